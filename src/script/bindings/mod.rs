//! The types of values that scripts compute with, and their functions.

pub(crate) mod arithmetic;
pub(crate) mod arrays;
pub(crate) mod batch;
pub(crate) mod keys;
pub(crate) mod tensors;
