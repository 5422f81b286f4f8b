//! The executor's only implementation of sums over cells, with the statistics that follow from them.
//!
//! Floating-point sums depend on the order of addition, so this order is part of the definition: a response's tokens are cut into
//! tiles of [`TILE`] tokens, each tile is summed in 16 lanes, which are added up in a fixed order, and tiles and responses are
//! merged in batch order. Other values, and tokens in other cells than responses, groups and the batch, are cut into tiles cell
//! by cell. A sum has the same bits for any number of threads and any choice of fused steps.

use crate::tensor::precision::Precision;

/// The number of values that are summed together. It is small enough for several arrays of this length to fit into the L1 cache.
/// A response's first tile starts at the response's first token.
pub(crate) const TILE: usize = 1024;

const LANES: usize = 16;

/// The moments that a reduction needs. Each depth includes the depths before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    Sum,
    Extremes,
    Squares,
}

/// The count, sum, extremes and spread of some values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) count: usize,
    pub(crate) sum: f64,
    /// The smallest value, or NaN if any value is NaN; infinity if there are no values or the depth is [`Depth::Sum`].
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The sum of the squared distances from the mean.
    pub(crate) squares: f64,
}

impl Moments {
    pub(crate) const EMPTY: Moments = Moments {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        squares: 0.0,
    };

    /// Computes the moments of at most [`TILE`] values.
    pub(crate) fn of_tile<T: Precision>(values: &[T], depth: Depth) -> Moments {
        if values.is_empty() {
            return Moments::EMPTY;
        }
        let mut moments = Moments {
            count: values.len(),
            sum: sum(values),
            ..Moments::EMPTY
        };
        if depth >= Depth::Extremes {
            (moments.min, moments.max) = extremes(values);
            // A NaN value makes the sum NaN. Infinities of both signs do so, too, so the values themselves are tested for NaN.
            if moments.sum.is_nan() && values.iter().any(|value| value.widen().is_nan()) {
                (moments.min, moments.max) = (f64::NAN, f64::NAN);
            }
        }
        if depth == Depth::Squares {
            moments.squares = squares(values, moments.mean());
        }
        moments
    }

    /// Computes the moments of `count` copies of an f32. A tile's sum is exact in f64, so the order of addition does not matter.
    pub(crate) fn of_equal(value: f32, count: usize, depth: Depth) -> Moments {
        let tile = |count: usize| {
            if count == 0 || !value.is_finite() {
                return Moments::of_tile(&vec![value; count], depth);
            }
            let (value, has_extremes) = (f64::from(value), depth >= Depth::Extremes);
            Moments {
                count,
                // The sum of negative zeros is +0, because the lanes start at +0.
                sum: 0.0 + value * count as f64,
                min: if has_extremes { value } else { f64::INFINITY },
                max: if has_extremes {
                    value
                } else {
                    f64::NEG_INFINITY
                },
                squares: 0.0,
            }
        };
        let tiles = std::iter::repeat_n(tile(TILE), count / TILE);
        tiles
            .chain([tile(count % TILE)])
            .fold(Moments::EMPTY, Moments::and)
    }

    /// Computes the moments of the selected values. A tile is [`TILE`] consecutive values, whether they are selected or not.
    pub(crate) fn of_selected<T: Precision>(
        values: impl Iterator<Item = (T, bool)>,
        depth: Depth,
    ) -> Moments {
        let (mut all, mut tile) = (Moments::EMPTY, Vec::with_capacity(TILE));
        for (index, (value, is_selected)) in values.enumerate() {
            if index % TILE == 0 {
                all = all.and(Moments::of_tile(&tile, depth));
                tile.clear();
            }
            if is_selected {
                tile.push(value);
            }
        }
        all.and(Moments::of_tile(&tile, depth))
    }

    /// Computes the moments of any number of values, tile by tile.
    pub(crate) fn of<T: Precision>(values: &[T], depth: Depth) -> Moments {
        let tiles = values
            .chunks(TILE)
            .map(|tile| Moments::of_tile(tile, depth));
        tiles.fold(Moments::EMPTY, Moments::and)
    }

    /// Merges the moments of some values and of the values after them (T. F. Chan, G. H. Golub, R. J. LeVeque 1983, eq. 2.1).
    pub(crate) fn and(self, after: Moments) -> Moments {
        if self.count == 0 || after.count == 0 {
            return if self.count == 0 { after } else { self };
        }
        let count = self.count + after.count;
        let apart = after.mean() - self.mean();
        let weight = self.count as f64 * after.count as f64 / count as f64;
        Moments {
            count,
            sum: self.sum + after.sum,
            min: if after.min < self.min || after.min.is_nan() {
                after.min
            } else {
                self.min
            },
            max: if after.max > self.max || after.max.is_nan() {
                after.max
            } else {
                self.max
            },
            squares: self.squares + after.squares + apart * apart * weight,
        }
    }

    /// Returns the mean. If the extremes are known, the mean is clamped to them, so that the mean of equal values is exactly
    /// that value. If the sum of unequal values is infinite, the mean is infinite, too.
    pub(crate) fn mean(&self) -> f64 {
        let mean = self.sum / self.count as f64;
        if self.min == self.max || self.min < self.max && mean.is_finite() {
            mean.clamp(self.min, self.max)
        } else {
            mean
        }
    }

    /// Returns the standard deviation. It is exactly 0 if all values are equal, or if there are no more than `ddof` values.
    pub(crate) fn std(&self, ddof: usize) -> f64 {
        if self.min == self.max || self.count <= ddof {
            return 0.0;
        }
        (self.squares / (self.count - ddof) as f64).sqrt()
    }
}

/// Adds up the lanes by repeatedly adding the upper half to the lower half.
fn tree(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn lanes<T: Precision>(values: &[T], term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += term(value.widen());
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += term(value.widen());
    }
    tree(sums)
}

#[multiversion::multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn sum<T: Precision>(values: &[T]) -> f64 {
    lanes(
        values,
        #[inline(always)]
        |x| x,
    )
}

#[multiversion::multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn squares<T: Precision>(values: &[T], mean: f64) -> f64 {
    lanes(
        values,
        #[inline(always)]
        |x| (x - mean) * (x - mean),
    )
}

/// Returns the smallest and the largest value; NaN is ignored.
#[multiversion::multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn extremes<T: Precision>(values: &[T]) -> (f64, f64) {
    let (mut low, mut high) = (
        [T::narrow(f64::INFINITY); LANES],
        [T::narrow(f64::NEG_INFINITY); LANES],
    );
    let (whole, rest) = values.as_chunks::<LANES>();
    let mut rows = |chunk: &[T]| {
        for ((low, high), &value) in low.iter_mut().zip(high.iter_mut()).zip(chunk) {
            *low = if value < *low { value } else { *low };
            *high = if value > *high { value } else { *high };
        }
    };
    for chunk in whole {
        rows(chunk);
    }
    rows(rest);
    let least = low.iter().fold(f64::INFINITY, |a, b| a.min(b.widen()));
    let most = high.iter().fold(f64::NEG_INFINITY, |a, b| a.max(b.widen()));
    (least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_summed_up_as_one_by_one() {
        let values = [0.0, -0.0, 1e-40, 0.1, -3.3e38, f32::NAN, f32::INFINITY];
        for value in values {
            for count in [0, 1, 2, 15, 16, 17, 333, 1023, 1024, 1025, 3000] {
                for depth in [Depth::Sum, Depth::Extremes, Depth::Squares] {
                    let at_once = Moments::of_equal(value, count, depth);
                    let one_by_one = Moments::of(&vec![value; count], depth);
                    assert_eq!(format!("{at_once:?}"), format!("{one_by_one:?}"));
                }
            }
        }
    }
}
