//! AdamW on libtorch's tensors: the formulas and scalars of the MLP's.

use tch::{Tensor, no_grad_guard};

use super::weights::{copies, zeros};
use crate::policy::adamw::Scalars;
use crate::policy::{AdamWConfig, NonFinite};
use crate::torch::{Result, to_vec};

/// Numbers that are updated at a time, so that intermediate results are small beside a large model's embedding.
const BLOCK: i64 = 1 << 22;

/// What updates need besides the gradient, for all parameters in their order; empty before the first one.
#[derive(Default)]
pub(super) struct Optimizer {
    pub updates: u64,
    /// The moving averages of the gradient.
    pub first: Vec<Tensor>,
    /// The moving averages of the squared gradient.
    pub second: Vec<Tensor>,
}

impl Optimizer {
    /// The state after so many updates, with averages that are still to be filled in.
    pub(super) fn new(updates: u64, parameters: &[Tensor]) -> Result<Self> {
        Ok(Optimizer {
            updates,
            first: zeros(parameters)?,
            second: zeros(parameters)?,
        })
    }

    pub(super) fn copied(&self) -> Result<Self> {
        Ok(Optimizer {
            updates: self.updates,
            first: copies(&self.first)?,
            second: copies(&self.second)?,
        })
    }

    /// Moves the parameters one step against the gradient, which is scaled down to `max_norm` if it is longer. Gives its
    /// norm before scaling. If that is not finite, or a parameter would not be, nothing changes.
    pub(super) fn update(
        &mut self,
        config: &AdamWConfig,
        parameters: &[Tensor],
        gradient: &mut [Tensor],
        max_norm: Option<f64>,
    ) -> Result<std::result::Result<f64, NonFinite>> {
        let _guard = no_grad_guard();
        let norm = norm(gradient)?;
        if !norm.is_finite() {
            return Ok(Err(NonFinite::Gradient(norm)));
        }
        if let Some(max) = max_norm.filter(|&max| norm > max) {
            for gradient in gradient.iter_mut() {
                let _ = gradient.f_mul_scalar_(max / norm)?;
            }
        }
        if self.first.is_empty() {
            *self = Optimizer::new(0, parameters)?;
        }
        let scalars = Scalars::new(config, self.updates + 1);
        // A trial costs less than a copy to go back to.
        for is_trial in [true, false] {
            for index in 0..parameters.len() {
                let [first, second] = [&self.first[index], &self.second[index]];
                for block in blocks([&parameters[index], &gradient[index], first, second])? {
                    let next = next(&scalars, &block)?;
                    if is_trial && next[0].f_isfinite()?.f_all()?.f_int64_value(&[])? == 0 {
                        return Ok(Err(NonFinite::Parameters));
                    }
                    let [parameter, _, first, second] = block;
                    for (mut place, next) in [parameter, first, second].into_iter().zip(&next) {
                        if !is_trial {
                            place.f_copy_(next)?;
                        }
                    }
                }
            }
        }
        self.updates += 1;
        Ok(Ok(norm))
    }
}

/// Tensors of one shape as lists of numbers, a block at a time: views.
fn blocks(tensors: [&Tensor; 4]) -> Result<Vec<[Tensor; 4]>> {
    let [a, b, c, d] = tensors.map(|tensor| tensor.f_view([-1])?.f_split(BLOCK, 0));
    let (a, b, c, d) = (
        a?.into_iter(),
        b?.into_iter(),
        c?.into_iter(),
        d?.into_iter(),
    );
    Ok(a.zip(b)
        .zip(c.zip(d))
        .map(|((a, b), (c, d))| [a, b, c, d])
        .collect())
}

/// A parameter and its moments after an update.
fn next(
    scalars: &Scalars,
    [parameter, gradient, first, second]: &[Tensor; 4],
) -> Result<[Tensor; 3]> {
    let number = f64::from;
    let first = first.f_lerp(gradient, number(scalars.toward))?;
    let square = gradient.f_square()?.f_mul_scalar(number(scalars.add))?;
    let second = second.f_mul_scalar(number(scalars.decay))?.f_add(&square)?;
    let scale = second.f_sqrt()?.f_div_scalar(number(scalars.correction))?;
    let step = first.f_div(&scale.f_add_scalar(number(scalars.eps))?)?;
    let step = step.f_mul_scalar(number(scalars.size))?;
    let parameter = parameter.f_mul_scalar(number(scalars.keep))?.f_sub(&step)?;
    Ok([parameter, first, second])
}

/// The L2 norm of all gradients together. A row is one sum, and rows are added in order, so that it is the same for any
/// number of threads. Infinite if float32 cannot square a value.
fn norm(gradient: &[Tensor]) -> Result<f64> {
    let mut squares = 0.0;
    for gradient in gradient {
        let rows = gradient.f_square()?.f_view([gradient.size()[0], -1])?;
        let rows = rows.f_sum_dim_intlist([-1i64].as_slice(), false, tch::Kind::Double)?;
        squares += to_vec::<f64>(&rows)?.iter().sum::<f64>();
    }
    Ok(squares.sqrt())
}
