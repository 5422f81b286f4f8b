//! Tensors: levels, the op table, the lazy graph with its gradients, and what computes it.

mod level;

pub use level::{Level, UnknownLevel};
