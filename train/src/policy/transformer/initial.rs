//! Random weights, for a model that learns from nothing.

use std::cell::Cell;
use std::f64::consts::TAU;

use tch::{Device, Tensor};

use super::weights::Source;
use advlab::random::{RandomStream, StreamKey};
use crate::torch::{TorchError, floats, room};
use advlab::diagnostic::Diagnostics;

/// The standard deviation of a matrix's weights, which is transformers' default.
const STD: f64 = 0.02;

/// Matrices are normal with the standard deviation [`STD`], norms 1 and biases 0.
pub(super) struct Initial {
    key: StreamKey,
    /// The stream of the next tensor.
    next: Cell<u64>,
}

impl Initial {
    pub(super) fn new(key: StreamKey) -> Self {
        let next = Cell::new(0);
        Initial { key, next }
    }
}

impl Source for Initial {
    fn read(&self, name: &str, shape: &[i64]) -> Result<Tensor, Diagnostics> {
        let count = shape.iter().product::<i64>() as usize;
        let mut stream = self.key.stream(self.next.replace(self.next.get() + 1));
        let mut values: Vec<f32> = room(count)?;
        match shape {
            [_] if name.ends_with(".bias") => values.resize(count, 0.0),
            [_] => values.resize(count, 1.0),
            _ => values.extend((0..count).map(|_| (STD * normal(&mut stream)) as f32)),
        }
        let tensor = floats(&values, Device::Cpu)?.f_view(shape);
        Ok(tensor.map_err(TorchError::from)?)
    }
}

/// A number of the standard normal distribution, by Box and Muller.
fn normal(stream: &mut RandomStream) -> f64 {
    // 1 - uniform is never 0.
    let radius = (-2.0 * (1.0 - stream.uniform()).ln()).sqrt();
    radius * (TAU * stream.uniform()).cos()
}
