//! The naive executor's reductions, ranks and indices.
//!
//! Every sum is taken over fixed pieces whose sums are then added in order, so that the bits are the same for any
//! number of threads.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::{BLOCK, cells};
use crate::batch::{FloatBuffer, Layout};
use crate::tensor::op::Reduction;
use crate::tensor::{Guard, Level, Stopped};

/// The values of a reduction with the selection of those that take part.
pub(super) struct Reduced<'a> {
    pub(super) values: &'a FloatBuffer,
    pub(super) selection: Option<&'a FloatBuffer>,
    pub(super) layout: &'a Layout,
    pub(super) from: Level,
    pub(super) to: Level,
}

/// The results of one pass over the values of a cell.
#[derive(Clone, Copy)]
struct Pass {
    count: usize,
    sum: f64,
    min: f64,
    max: f64,
    any: bool,
    all: bool,
}

impl Pass {
    const EMPTY: Pass = Pass {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        any: false,
        all: true,
    };

    fn with(self, x: f64) -> Pass {
        Pass {
            count: self.count + 1,
            sum: self.sum + x,
            min: if x < self.min || x.is_nan() {
                x
            } else {
                self.min
            },
            max: if x > self.max || x.is_nan() {
                x
            } else {
                self.max
            },
            any: self.any || x != 0.0,
            all: self.all && x != 0.0,
        }
    }

    /// With the values of a later piece.
    fn and(self, after: Pass) -> Pass {
        if after.count == 0 {
            return self;
        }
        // A NaN anywhere is both the piece's least and its largest value, and stays both.
        let extremes = self.with(after.min).with(after.max);
        Pass {
            count: self.count + after.count,
            sum: self.sum + after.sum,
            min: extremes.min,
            max: extremes.max,
            any: self.any || after.any,
            all: self.all && after.all,
        }
    }

    /// Never outside the smallest and the largest value: equal values have themselves as their mean.
    fn mean(self) -> f64 {
        let mean = self.sum / self.count as f64;
        if self.min <= self.max {
            mean.clamp(self.min, self.max)
        } else {
            mean
        }
    }
}

/// How many cells of a level are some 10 microseconds of work: the grain of tasks, and at which a guard is looked at.
fn grain(layout: &Layout, from: Level, to: Level) -> usize {
    (BLOCK * layout.size(to) / layout.size(from).max(1)).clamp(1, BLOCK)
}

impl Reduced<'_> {
    pub(super) fn run(
        &self,
        reduction: Reduction,
        guard: &Arc<Guard>,
    ) -> Result<Vec<f64>, Stopped> {
        // A median sorts a copy of its values.
        let copied = match reduction {
            Reduction::Median => self.layout.size(self.from) * size_of::<f64>(),
            _ => 0,
        };
        let _scratch = guard.reserve(copied)?;
        let grain = grain(self.layout, self.from, self.to);
        (0..self.layout.size(self.to))
            .into_par_iter()
            .with_min_len(grain)
            .map(|cell| {
                if cell % grain == 0 {
                    guard.check()?;
                }
                Ok(self.cell(reduction, cell))
            })
            .collect()
    }

    fn cell(&self, reduction: Reduction, cell: usize) -> f64 {
        if reduction == Reduction::Median {
            return self.median(cell);
        }
        let pieces = self.pieces(cell);
        if reduction == Reduction::Sum {
            // The most frequent reduction needs nothing else of a pass.
            return self.over(&pieces, 0.0, |sum, x| sum + x, |a, b| a + b);
        }
        let pass = self.over(&pieces, Pass::EMPTY, |pass, x| pass.with(x), Pass::and);
        if pass.count == 0 {
            return if reduction == Reduction::All {
                1.0
            } else {
                0.0
            };
        }
        match reduction {
            Reduction::Mean => pass.mean(),
            Reduction::Min => pass.min,
            Reduction::Max => pass.max,
            Reduction::Count => pass.count as f64,
            Reduction::Any => f64::from(u8::from(pass.any)),
            Reduction::All => f64::from(u8::from(pass.all)),
            Reduction::Std => self.deviation(&pieces, pass, 1),
            Reduction::PopulationStd => self.deviation(&pieces, pass, 0),
            Reduction::Sum | Reduction::Median => unreachable!("handled above"),
        }
    }

    fn deviation(&self, pieces: &[Range<usize>], pass: Pass, ddof: usize) -> f64 {
        if pass.min == pass.max || pass.count <= ddof {
            return 0.0;
        }
        let mean = pass.mean();
        let squares = self.over(
            pieces,
            0.0,
            |sum, x| sum + (x - mean) * (x - mean),
            |a, b| a + b,
        );
        (squares / (pass.count - ddof) as f64).sqrt()
    }

    /// The mean of the two middle values; NaN where any value is.
    fn median(&self, cell: usize) -> f64 {
        let mut values: Vec<f64> = Vec::new();
        for piece in self.pieces(cell) {
            let all = self.values.view();
            values.extend(self.selected(piece).map(|index| all.get(index)));
        }
        if values.is_empty() {
            return 0.0;
        }
        if values.iter().any(|value| value.is_nan()) {
            return f64::NAN;
        }
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        if low == high {
            low
        } else {
            low / 2.0 + high / 2.0
        }
    }

    /// The values of a cell in pieces of a fixed size.
    fn pieces(&self, cell: usize) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        cells::stretches(self.layout, self.from, self.to, cell, |stretch| {
            let mut start = stretch.start;
            while start < stretch.end {
                let end = stretch.end.min(start + BLOCK);
                pieces.push(start..end);
                start = end;
            }
        });
        pieces
    }

    fn selected(&self, piece: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let selection = self.selection.map(FloatBuffer::view);
        piece.filter(move |&index| selection.is_none_or(|selection| selection.get(index) != 0.0))
    }

    /// Folds each piece from `start`, and what comes of them in order.
    fn over<A: Copy + Send + Sync>(
        &self,
        pieces: &[Range<usize>],
        start: A,
        with: impl Fn(A, f64) -> A + Sync,
        and: impl Fn(A, A) -> A,
    ) -> A {
        let one = |piece: &Range<usize>| match (self.values, self.selection) {
            (FloatBuffer::F32(values), None) => values[piece.clone()]
                .iter()
                .fold(start, |a, &x| with(a, f64::from(x))),
            (FloatBuffer::F64(values), None) => {
                values[piece.clone()].iter().fold(start, |a, &x| with(a, x))
            }
            _ => {
                let values = self.values.view();
                self.selected(piece.clone())
                    .fold(start, |a, index| with(a, values.get(index)))
            }
        };
        // Cells that are large are few: their pieces are what there is to share out. The order of adding stays.
        let values: usize = pieces.iter().map(Range::len).sum();
        if values > BLOCK {
            let length = (BLOCK * pieces.len() / values).max(1);
            let parts: Vec<A> = pieces.par_iter().with_min_len(length).map(one).collect();
            return parts.into_iter().fold(start, and);
        }
        pieces.iter().map(one).fold(start, and)
    }
}

/// The rank (0 = smallest, ties in batch order, NaN last) or the index of each value in its cell of `to`.
pub(super) fn order_within(
    values: Option<&FloatBuffer>,
    layout: &Layout,
    from: Level,
    to: Level,
    guard: &Arc<Guard>,
) -> Result<Vec<f64>, Stopped> {
    // The indices of each cell; to rank them, their values beside them, once more while they are merged.
    let copies = if values.is_some() { 2 } else { 0 };
    let each = size_of::<usize>() + copies * size_of::<(f64, usize)>();
    let _scratch = guard.reserve(layout.size(from) * each)?;
    let order = |cell: usize| -> Result<Vec<usize>, Stopped> {
        guard.check()?;
        let indices = cells::indices(layout, from, to, cell);
        let Some(values) = values else {
            return Ok(indices);
        };
        let values = values.view();
        let with_value = |index| (values.get(index), index);
        let mut sorted: Vec<(f64, usize)> = indices.into_iter().map(with_value).collect();
        // Stable: ties keep their batch order, for any number of threads.
        sorted.par_sort_by(|a, b| ascending(a.0, b.0));
        Ok(sorted.into_iter().map(|(_, index)| index).collect())
    };
    let orders: Vec<Vec<usize>> = (0..layout.size(to))
        .into_par_iter()
        .with_min_len(grain(layout, from, to))
        .map(order)
        .collect::<Result<_, _>>()?;
    let mut out = vec![0.0; layout.size(from)];
    for indices in orders {
        for (rank, index) in indices.into_iter().enumerate() {
            out[index] = rank as f64;
        }
    }
    Ok(out)
}

fn ascending(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
