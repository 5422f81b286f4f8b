//! Tensors: levels, the op table, the lazy graph with its gradients, and the executor.

mod binomial;
mod error;
mod evaluate;
mod exec;
mod exp;
mod frame;
mod grad;
mod graph;
mod guard;
pub mod op;
mod plan;
mod prim;
pub mod profile;
#[cfg(test)]
mod tests;
mod value;

pub use crate::batch::Level;
pub use binomial::{binomial_ratio, ln_binomial};
pub use error::{Origin, TensorError, TensorErrorKind};
pub use exec::Executor;
pub(crate) use exec::moments::{Depth, Moments, TILE};
pub(crate) use exec::{Precision, finish, in_strides};
pub use exp::k3;
pub(crate) use frame::{Context, Frame};
pub(crate) use grad::depends_on;
pub use grad::grad;
pub use graph::Tensor;
pub(crate) use guard::Reservation;
pub use guard::{Guard, Stopped};
pub(crate) use plan::Plan;
pub use value::Value;
