//! advlab: the advantage lab.

pub mod batch;
mod suggest;
pub mod tensor;
