//! The naive executor's reductions, ranks and indices.
//!
//! Sums, means and deviations are those of [`super::moments`].

use std::cmp::Ordering;
use std::sync::Arc;

use rayon::prelude::*;

use super::moments::{Depth, Moments, TILE};
use super::{BLOCK, Precision, cells};
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

/// How many cells of a level are some 10 microseconds of work: the grain of tasks, and at which a guard is looked at.
fn grain(layout: &Layout, from: Level, to: Level) -> usize {
    (BLOCK * layout.size(to) / layout.size(from).max(1)).clamp(1, BLOCK)
}

/// What a reduction has to know of its values.
pub(super) fn depth(reduction: Reduction) -> Depth {
    match reduction {
        Reduction::Sum | Reduction::Count | Reduction::Median => Depth::Sum,
        Reduction::Mean | Reduction::Min | Reduction::Max => Depth::Extremes,
        Reduction::Std | Reduction::PopulationStd => Depth::Squares,
    }
}

/// The reduction's result in a cell; of no value, 0.
pub(crate) fn finish(reduction: Reduction, moments: &Moments) -> f64 {
    if moments.count == 0 {
        return 0.0;
    }
    match reduction {
        Reduction::Sum => moments.sum,
        Reduction::Mean => moments.mean(),
        Reduction::Min => moments.min,
        Reduction::Max => moments.max,
        Reduction::Std => moments.std(1),
        Reduction::PopulationStd => moments.std(0),
        Reduction::Count => moments.count as f64,
        Reduction::Median => unreachable!("a median sorts its values"),
    }
}

/// The moments of the cells of a level, from those of the responses' tokens.
pub(super) fn of_responses(layout: &Layout, responses: &[Moments], to: Level) -> Vec<Moments> {
    let merged = |members: &mut dyn Iterator<Item = usize>| {
        members.fold(Moments::EMPTY, |sum, response| sum.and(responses[response]))
    };
    match to {
        Level::Response => responses.to_vec(),
        Level::Group => (0..layout.groups())
            .map(|group| merged(&mut layout.members(group).iter().map(|&member| member as usize)))
            .collect(),
        _ => vec![merged(&mut (0..responses.len()))],
    }
}

impl Reduced<'_> {
    pub(super) fn run(
        &self,
        reduction: Reduction,
        guard: &Arc<Guard>,
    ) -> Result<Vec<f64>, Stopped> {
        let cells = match (self.from, self.to) {
            _ if reduction == Reduction::Median => return self.medians(guard),
            (Level::Token, Level::Response | Level::Group | Level::Batch) => {
                let responses = self.each(Level::Response, guard, |cell| {
                    self.moments(Level::Response, cell, reduction)
                })?;
                of_responses(self.layout, &responses, self.to)
            }
            _ => self.each(self.to, guard, |cell| {
                self.moments(self.to, cell, reduction)
            })?,
        };
        Ok(cells.iter().map(|cell| finish(reduction, cell)).collect())
    }

    /// Computes something of each cell of a level, in parallel.
    fn each<R: Send>(
        &self,
        to: Level,
        guard: &Guard,
        of: impl Fn(usize) -> R + Sync,
    ) -> Result<Vec<R>, Stopped> {
        let grain = grain(self.layout, self.from, to);
        (0..self.layout.size(to))
            .into_par_iter()
            .with_min_len(grain)
            .map(|cell| {
                if cell % grain == 0 {
                    guard.check()?;
                }
                Ok(of(cell))
            })
            .collect()
    }

    fn moments(&self, to: Level, cell: usize, reduction: Reduction) -> Moments {
        match self.values {
            FloatBuffer::F32(values) => self.moments_of(values, to, cell, depth(reduction)),
            FloatBuffer::F64(values) => self.moments_of(values, to, cell, depth(reduction)),
        }
    }

    fn moments_of<T: Precision>(
        &self,
        values: &[T],
        to: Level,
        cell: usize,
        depth: Depth,
    ) -> Moments {
        let ranges = cells::stretches(self.layout, self.from, to, cell);
        let Some(selection) = self.selection else {
            if let [range] = &ranges[..] {
                return Moments::of(&values[range.clone()], depth);
            }
            let gathered = ranges.into_iter().flat_map(|range| &values[range]);
            return Moments::of(&gathered.copied().collect::<Vec<T>>(), depth);
        };
        // Tiles are those of all values, selected or not, whether they lie side by side or not.
        let selection = selection.view();
        let indices: Vec<usize> = ranges.into_iter().flatten().collect();
        let tiles = indices.chunks(TILE).map(|tile| {
            let taken = tile.iter().filter(|&&index| selection.get(index) != 0.0);
            let taken: Vec<T> = taken.map(|&index| values[index]).collect();
            Moments::of_tile(&taken, depth)
        });
        tiles.fold(Moments::EMPTY, Moments::and)
    }

    fn medians(&self, guard: &Arc<Guard>) -> Result<Vec<f64>, Stopped> {
        // A median sorts a copy of its values.
        let _scratch = guard.reserve(self.layout.size(self.from) * size_of::<f64>())?;
        self.each(self.to, guard, |cell| self.median(cell))
    }

    /// The mean of the two middle values; NaN where any value is.
    fn median(&self, cell: usize) -> f64 {
        let (values, selection) = (self.values.view(), self.selection.map(FloatBuffer::view));
        let mut values: Vec<f64> = cells::indices(self.layout, self.from, self.to, cell)
            .into_iter()
            .filter(|&index| selection.is_none_or(|selection| selection.get(index) != 0.0))
            .map(|index| values.get(index))
            .collect();
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
