//! Tensors: the op table, the lazy graph with its gradients, and the executor.

mod backprop;
mod binomial;
mod error;
mod evaluate;
mod exec;
mod exp;
mod frame;
mod graph;
mod guard;
pub(crate) mod kernel;
pub mod op;
mod plan;
mod precision;
pub mod profile;
#[cfg(test)]
mod tests;
mod trace;
mod value;

pub use crate::batch::Level;
pub(crate) use backprop::depends_on;
pub use backprop::grad;
pub use binomial::{binomial_ratio, ln_binomial};
pub use error::{Origin, Stopped, TensorError, TensorErrorKind};
pub(crate) use exec::finish;
pub(crate) use exec::sums::{Depth, Moments, TILE};
pub use exp::k3;
pub(crate) use frame::{Context, Frame};
pub(crate) use graph::Prim;
pub use graph::Tensor;
pub use guard::Guard;
pub(crate) use guard::Reservation;
pub(crate) use precision::{Precision, in_strides};
pub(crate) use trace::{GroupKey, Trace, Tracing};
pub use value::Value;
