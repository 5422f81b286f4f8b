//! advlab: the advantage lab.

pub mod batch;
pub mod live;
pub mod script;
mod suggest;
pub mod tensor;
pub mod train;

pub use batch::Batch;
pub use live::LiveRecipe;
pub use script::{Host, Recipe};
pub use suggest::nearest;
