//! The naive executor's scans along the tokens of each response.

use super::{Precision, fill};
use crate::batch::{FloatBuffer, Layout};
use crate::tensor::op::Scan;
use crate::tensor::{Guard, Level, Stopped, Value};

/// The running value is f64, also where the tokens are f32.
pub(super) fn scan<T: Precision>(
    scan: Scan,
    number: f64,
    values: &Value,
    layout: &Layout,
    guard: &Guard,
) -> Result<FloatBuffer, Stopped> {
    let Some(values) = T::slice(values.buffer()) else {
        unreachable!("a scan has the precision of its argument");
    };
    let out = fill(layout, Level::Token, guard, |response, out: &mut [T]| {
        let x = &values[layout.tokens_of(response)];
        match scan {
            Scan::Cumsum => {
                let mut sum = 0.0;
                for (out, x) in out.iter_mut().zip(x) {
                    sum = x.widen() + number * sum;
                    *out = T::narrow(sum);
                }
            }
            Scan::SuffixSum => {
                let mut sum = 0.0;
                for (out, x) in out.iter_mut().zip(x).rev() {
                    sum = x.widen() + number * sum;
                    *out = T::narrow(sum);
                }
            }
            Scan::Next => {
                if let Some((last, others)) = out.split_last_mut() {
                    others.copy_from_slice(&x[1..]);
                    *last = T::narrow(number);
                }
            }
            Scan::Prev => {
                if let Some((first, others)) = out.split_first_mut() {
                    others.copy_from_slice(&x[..x.len() - 1]);
                    *first = T::narrow(number);
                }
            }
        }
        Ok::<(), Stopped>(())
    })?;
    Ok(T::wrap(out))
}

pub(super) fn at_last_token<T: Precision>(
    values: &Value,
    layout: &Layout,
    guard: &Guard,
) -> Result<FloatBuffer, Stopped> {
    let out = fill(layout, Level::Token, guard, |response, out: &mut [T]| {
        if let Some(last) = out.last_mut() {
            *last = T::narrow(values.get(response));
        }
        Ok::<(), Stopped>(())
    })?;
    Ok(T::wrap(out))
}
