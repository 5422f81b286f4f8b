//! advlab: the advantage lab.

pub mod train;
