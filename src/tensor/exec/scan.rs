//! The one scan of all executors: along the tokens of each response, tile by tile, with a running value in f64.
//!
//! Discounted sums go eight tokens at a time, so that a step of the chain is one product and one sum for all eight. The
//! order of adding is part of the definition, as in [`super::moments`].

use std::array::from_fn;

use super::Precision;
use super::moments::TILE;
use super::tokens::fill;
use crate::batch::{FloatBuffer, Layout};
use crate::tensor::op::Scan;
use crate::tensor::{Guard, Level, Stopped, Value};

/// A scan with its number on its way along a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) scan: Scan,
    /// The discount, or the fill beyond the end.
    pub(crate) number: f64,
}

impl Running {
    /// Whether tiles are to come from the last to the first.
    pub(crate) fn from_the_end(scan: Scan) -> bool {
        matches!(scan, Scan::SuffixSum | Scan::Next)
    }

    /// The value that the first tile starts from.
    pub(crate) fn start(self) -> f64 {
        match self.scan {
            Scan::Cumsum | Scan::SuffixSum => 0.0,
            Scan::Next | Scan::Prev => self.number,
        }
    }

    /// The results of all values, tile by tile.
    fn all<T: Precision>(self, x: &[T], out: &mut [T]) {
        let mut carry = self.start();
        let tiles = x.chunks(TILE).zip(out.chunks_mut(TILE));
        if Running::from_the_end(self.scan) {
            tiles
                .rev()
                .for_each(|(x, out)| self.tile(x, &mut carry, out));
        } else {
            tiles.for_each(|(x, out)| self.tile(x, &mut carry, out));
        }
    }

    /// The results of a tile, from the carry that the one before has left.
    pub(crate) fn tile<T: Precision>(self, x: &[T], carry: &mut f64, out: &mut [T]) {
        let (Some(first), Some(last)) = (x.first(), x.last()) else {
            return;
        };
        match self.scan {
            Scan::Cumsum => cumsum(x, self.number, carry, out),
            Scan::SuffixSum => suffix_sum(x, self.number, carry, out),
            Scan::Next => {
                let end = out.len() - 1;
                out[..end].copy_from_slice(&x[1..]);
                out[end] = T::narrow(*carry);
                *carry = first.widen();
            }
            Scan::Prev => {
                out[1..].copy_from_slice(&x[..x.len() - 1]);
                out[0] = T::narrow(*carry);
                *carry = last.widen();
            }
        }
    }
}

const BLOCK: usize = 8;

/// gamma to the powers 1 to 8.
fn powers(gamma: f64) -> [f64; BLOCK] {
    let mut power = 1.0;
    from_fn(|_| {
        power *= gamma;
        power
    })
}

/// The discounted sums within eight values, the carry left aside: in three steps of doubled reach.
#[inline(always)]
fn within(x: [f64; BLOCK], powers: &[f64; BLOCK]) -> [f64; BLOCK] {
    let pairs: [f64; BLOCK] = from_fn(|i| {
        if i % 4 > 0 {
            x[i] + powers[0] * x[i - 1]
        } else {
            x[i]
        }
    });
    let fours: [f64; BLOCK] = from_fn(|i| {
        if i % 4 > 1 {
            pairs[i] + powers[1] * pairs[i - 2]
        } else {
            pairs[i]
        }
    });
    from_fn(|i| {
        if i > 3 {
            fours[i] + powers[i - 4] * fours[3]
        } else {
            fours[i]
        }
    })
}

#[multiversion::multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn cumsum<T: Precision>(x: &[T], gamma: f64, carry: &mut f64, out: &mut [T]) {
    let powers = powers(gamma);
    let ((blocks, rest), (outs, last)) = (x.as_chunks::<BLOCK>(), out.as_chunks_mut::<BLOCK>());
    let mut sum = *carry;
    for (x, out) in blocks.iter().zip(outs) {
        let sums = within(x.map(T::widen), &powers);
        *out = from_fn(|i| T::narrow(sums[i] + powers[i] * sum));
        sum = sums[BLOCK - 1] + powers[BLOCK - 1] * sum;
    }
    for (x, out) in rest.iter().zip(last) {
        sum = x.widen() + gamma * sum;
        *out = T::narrow(sum);
    }
    *carry = sum;
}

#[multiversion::multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn suffix_sum<T: Precision>(x: &[T], gamma: f64, carry: &mut f64, out: &mut [T]) {
    let powers = powers(gamma);
    let ((blocks, rest), (outs, last)) = (x.as_chunks::<BLOCK>(), out.as_chunks_mut::<BLOCK>());
    let mut sum = *carry;
    for (x, out) in rest.iter().zip(last).rev() {
        sum = x.widen() + gamma * sum;
        *out = T::narrow(sum);
    }
    for (x, out) in blocks.iter().zip(outs).rev() {
        let sums = within(from_fn(|i| x[BLOCK - 1 - i].widen()), &powers);
        *out = from_fn(|i| T::narrow(sums[BLOCK - 1 - i] + powers[BLOCK - 1 - i] * sum));
        sum = sums[BLOCK - 1] + powers[BLOCK - 1] * sum;
    }
    *carry = sum;
}

/// A scan of all responses, each with what runs along it; of one value a response, of all trajectories.
pub(crate) fn scan<T: Precision>(
    running: impl Fn(usize) -> Running + Sync,
    value: &Value,
    layout: &Layout,
    guard: &Guard,
) -> Result<FloatBuffer, Stopped> {
    let Some(values) = T::slice(value.buffer()) else {
        unreachable!("a scan has the precision of its argument");
    };
    if value.level() == Level::Response {
        return Ok(T::wrap(along_rows(running, values, layout)));
    }
    let out = fill(layout, Level::Token, guard, |response, out: &mut [T]| {
        running(response).all(&values[layout.tokens_of(response)], out);
        Ok::<(), Stopped>(())
    })?;
    Ok(T::wrap(out))
}

/// Along the turns of each trajectory.
fn along_rows<T: Precision>(
    running: impl Fn(usize) -> Running,
    values: &[T],
    layout: &Layout,
) -> Vec<T> {
    let mut all = vec![T::default(); values.len()];
    for trajectory in 0..layout.size(Level::Trajectory) {
        let rows = layout.rows_of(trajectory);
        let x: Vec<T> = rows.iter().map(|&row| values[row as usize]).collect();
        let mut out = vec![T::default(); x.len()];
        running(rows[0] as usize).all(&x, &mut out);
        for (&row, value) in rows.iter().zip(out) {
            all[row as usize] = value;
        }
    }
    all
}

pub(crate) fn at_last_token<T: Precision>(
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
