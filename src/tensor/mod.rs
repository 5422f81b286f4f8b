//! Tensors: levels, the op table, the lazy graph with its gradients, and what computes it.

mod binomial;
mod error;
mod exec;
mod frame;
mod grad;
mod graph;
mod guard;
pub mod op;
mod plan;
#[cfg(test)]
mod tests;
mod value;

pub use crate::batch::Level;
pub(crate) use binomial::binomial_ratio;
pub use error::{Origin, TensorError, TensorErrorKind};
pub(crate) use exec::{Executor, Naive};
pub(crate) use frame::Frame;
pub(crate) use grad::depends_on;
pub use grad::grad;
pub use graph::Tensor;
pub use guard::{Guard, Stopped};
pub(crate) use op::k3;
pub(crate) use plan::Plan;
pub use value::Value;
