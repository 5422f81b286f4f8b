//! The only implementation of sums, for all executors, with the statistics that follow from them.
//!
//! Floating-point sums depend on their order, so the order is part of the definition: a response's tokens are cut into
//! tiles of [`TILE`], each is summed by 16 lanes that a fixed tree adds up, and tiles, responses and groups are merged in
//! their order. No number of threads and no executor changes a bit of it.

use crate::tensor::precision::Precision;

/// How many values are computed with at once: few enough for several rows of them to stay in the nearest cache. Tiles
/// start at a response's first token.
pub(crate) const TILE: usize = 1024;

const LANES: usize = 16;

/// What a reduction needs to know of its values; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    Sum,
    Extremes,
    Squares,
}

/// What is known of some values after a pass over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) count: usize,
    pub(crate) sum: f64,
    /// Infinite where there is no value, and NaN where any value is.
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

    /// Of at most [`TILE`] values.
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
            // Only a sum with NaN in it, or with both infinities, is NaN.
            if moments.sum.is_nan() && values.iter().any(|value| value.widen().is_nan()) {
                (moments.min, moments.max) = (f64::NAN, f64::NAN);
            }
        }
        if depth == Depth::Squares {
            moments.squares = squares(values, moments.mean());
        }
        moments
    }

    /// Of any number of equal f32s. In f64, all sums of a tile's are exact in any order.
    pub(crate) fn of_equal(value: f32, count: usize, depth: Depth) -> Moments {
        let tile = |count: usize| {
            if count == 0 || !value.is_finite() {
                return Moments::of_tile(&vec![value; count], depth);
            }
            let (value, has_extremes) = (f64::from(value), depth >= Depth::Extremes);
            Moments {
                count,
                // The sum of negative zeros is 0.
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

    /// Of the selected ones of some values. Tiles are those of all values, selected or not.
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

    /// Of any number of values, tile by tile.
    pub(crate) fn of<T: Precision>(values: &[T], depth: Depth) -> Moments {
        let tiles = values
            .chunks(TILE)
            .map(|tile| Moments::of_tile(tile, depth));
        tiles.fold(Moments::EMPTY, Moments::and)
    }

    /// With values that come after these (T. F. Chan, G. H. Golub, R. J. LeVeque 1983, eq. 2.1).
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

    /// Never outside the smallest and the largest value: equal values have themselves as their mean. Infinite if the sum is.
    pub(crate) fn mean(&self) -> f64 {
        let mean = self.sum / self.count as f64;
        if self.min == self.max || self.min < self.max && mean.is_finite() {
            mean.clamp(self.min, self.max)
        } else {
            mean
        }
    }

    /// Exactly 0 for equal values, and where there are no more than `ddof`.
    pub(crate) fn std(&self, ddof: usize) -> f64 {
        if self.min == self.max || self.count <= ddof {
            return 0.0;
        }
        (self.squares / (self.count - ddof) as f64).sqrt()
    }
}

/// Adds the lanes up, halves onto halves.
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

/// The smallest and the largest value, NaN left aside.
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
