//! AdamW on libtorch's tensors: the same formulas, and the same scalars, as [`AdamW`](super::super::AdamW) has.

use tch::{Kind, Tensor, no_grad_guard};

use crate::policy::adamw::Scalars;
use crate::policy::{AdamWConfig, NonFinite};
use crate::torch::{Result, to_vec};

/// Parameters that are updated at a time: what is computed on the way is small, and a large model's embedding is not there
/// several times.
const BLOCK: i64 = 1 << 22;

/// What updates need besides the gradient, for all parameters in their order; nothing before the first one.
#[derive(Default)]
pub(super) struct Optimizer {
    pub updates: u64,
    /// The moving averages of the gradient and of its square, float32.
    pub averages: Vec<(Tensor, Tensor)>,
}

impl Optimizer {
    /// With moments of zero.
    pub(super) fn begin(updates: u64, parameters: &[&Tensor]) -> Result<Self> {
        let averages = parameters.iter();
        let averages = averages.map(|parameter| Ok((zeros(parameter)?, zeros(parameter)?)));
        Ok(Optimizer {
            updates,
            averages: averages.collect::<Result<_>>()?,
        })
    }

    pub(super) fn copied(&self) -> Result<Self> {
        let averages = self.averages.iter();
        let averages = averages.map(|(first, second)| Ok((copy(first)?, copy(second)?)));
        Ok(Optimizer {
            updates: self.updates,
            averages: averages.collect::<Result<_>>()?,
        })
    }

    /// Moves the parameters one step against the gradient, which is scaled down to `max_norm` if it is longer. Gives its
    /// norm before. Where it is not finite, or a parameter would not be, nothing changes.
    pub(super) fn update(
        &mut self,
        config: &AdamWConfig,
        parameters: &[&Tensor],
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
        if self.averages.is_empty() {
            *self = Optimizer::begin(0, parameters)?;
        }
        let scalars = Scalars::new(config, self.updates + 1);
        let all = || parameters.iter().zip(&*gradient).zip(&self.averages);
        // Trying first costs less than a copy to go back to.
        for ((parameter, gradient), (first, second)) in all() {
            for block in blocks([parameter, gradient, first, second]) {
                let [parameter, ..] = next(&scalars, &block?)?;
                if parameter.f_isfinite()?.f_all()?.f_int64_value(&[])? == 0 {
                    return Ok(Err(NonFinite::Parameters));
                }
            }
        }
        for ((parameter, gradient), (first, second)) in all() {
            for block in blocks([parameter, gradient, first, second]) {
                let block = block?;
                let next = next(&scalars, &block)?;
                let [parameter, _, first, second] = block;
                for (mut place, next) in [parameter, first, second].into_iter().zip(&next) {
                    place.f_copy_(next)?;
                }
            }
        }
        self.updates += 1;
        Ok(Ok(norm))
    }
}

/// Zeros of a tensor's shape, float32.
pub(super) fn zeros(like: &Tensor) -> Result<Tensor> {
    let options = (Kind::Float, like.device());
    Ok(Tensor::f_zeros(like.size(), options)?)
}

/// A tensor with the same numbers, in memory of its own.
pub(super) fn copy(tensor: &Tensor) -> Result<Tensor> {
    let mut copy = tensor.f_detach()?.f_empty_like()?;
    copy.f_copy_(tensor)?;
    Ok(copy)
}

/// Tensors of one shape as rows of numbers, a block of them at a time: views.
fn blocks<const N: usize>(tensors: [&Tensor; N]) -> impl Iterator<Item = Result<[Tensor; N]>> {
    let count = tensors.first().map_or(0, |tensor| tensor.numel()) as i64;
    (0..count).step_by(BLOCK as usize).map(move |start| {
        let size = BLOCK.min(count - start);
        let view = |tensor: &Tensor| tensor.f_view([-1])?.f_narrow(0, start, size);
        let mut views = tensors.map(Tensor::shallow_clone);
        for place in &mut views {
            *place = view(place)?;
        }
        Ok(views)
    })
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

/// The L2 norm of all gradients together. A row is one sum, and rows are added in order: so it is the same for any number
/// of threads. Infinite where float32 cannot square a value.
fn norm(gradient: &[Tensor]) -> Result<f64> {
    let mut squares = 0.0;
    for gradient in gradient {
        let rows = gradient.f_square()?.f_view([gradient.size()[0], -1])?;
        let rows = rows.f_sum_dim_intlist([-1i64].as_slice(), false, Kind::Double)?;
        squares += to_vec::<f64>(&rows)?.iter().sum::<f64>();
    }
    Ok(squares.sqrt())
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::policy::AdamW;
    use crate::torch::{floats, to_vec};

    #[test]
    fn updates_are_those_of_adamw_on_slices() {
        let config = AdamWConfig {
            lr: 0.02,
            weight_decay: 0.3,
            ..AdamWConfig::default()
        };
        let start: Vec<f32> = (0..40).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut expected = start.clone();
        let mut adamw = AdamW::new(config, start.len());
        let tensor = floats(&start, Device::Cpu).unwrap().view([8, 5]);
        let mut optimizer = Optimizer::default();
        for step in 0..50 {
            let gradient = |i: usize| ((i + 7 * step) as f32 * 0.91).cos() * (1 + i % 3) as f32;
            let gradient: Vec<f32> = (0..start.len()).map(gradient).collect();
            let norm = gradient
                .iter()
                .map(|g| f64::from(*g).powi(2))
                .sum::<f64>()
                .sqrt();
            let halved: Vec<f32> = gradient.iter().map(|g| g / 2.0).collect();
            assert!(adamw.update(&mut expected, &halved));
            let mut gradient = [floats(&gradient, Device::Cpu).unwrap().view([8, 5])];
            let found = optimizer.update(&config, &[&tensor], &mut gradient, Some(norm / 2.0));
            assert!((found.unwrap().unwrap() / norm - 1.0).abs() < 1e-6);
        }
        for (found, expected) in to_vec::<f32>(&tensor).unwrap().iter().zip(&expected) {
            // 50 roundings of numbers near 1.
            assert!((found - expected).abs() < 50.0 * 6e-8, "{found} {expected}");
        }
    }

    #[test]
    fn what_is_not_finite_changes_nothing() {
        let config = AdamWConfig::default();
        let tensor = floats(&[1.0, f32::MAX], Device::Cpu).unwrap();
        let mut optimizer = Optimizer::default();
        let mut update = |gradient: [f32; 2], config: &AdamWConfig| {
            let mut gradient = [floats(&gradient, Device::Cpu).unwrap()];
            optimizer
                .update(config, &[&tensor], &mut gradient, None)
                .unwrap()
        };
        let far = AdamWConfig { lr: 1e38, ..config };
        assert!(matches!(
            update([f32::NAN, 0.0], &config),
            Err(NonFinite::Gradient(_))
        ));
        assert!(matches!(
            update([1e30, 0.0], &config),
            Err(NonFinite::Gradient(_))
        ));
        assert_eq!(update([0.0, -1.0], &far), Err(NonFinite::Parameters));
        assert_eq!(to_vec::<f32>(&tensor).unwrap(), [1.0, f32::MAX]);
        assert_eq!(update([3.0, 4.0], &config), Ok(5.0));
    }
}
