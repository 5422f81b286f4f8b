//! Registers the types of values with which scripts compute, and the functions of these types.

pub(crate) mod arithmetic;
pub(crate) mod arrays;
pub(crate) mod batch;
pub(crate) mod keys;
pub(crate) mod tensors;
