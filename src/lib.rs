//! advlab: the advantage lab.

pub mod batch;
pub mod script;
mod suggest;
pub mod tensor;
pub mod train;

pub use batch::Batch;
pub use script::{Host, Recipe};
pub use suggest::nearest;
