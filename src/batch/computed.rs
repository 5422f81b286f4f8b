//! Values computed of a batch, at a level and over the batch's layout.

use std::sync::Arc;

use ndarray::{Array2, ArrayViewMut1, ArrayViewMut2, s};
use rayon::prelude::*;

use super::{FloatBuffer, Layout, Level};
use crate::diagnostic::Diagnostic;

/// Values at a level, with the layout that they lie over: an advantage, a reward, a gradient.
#[derive(Clone, Debug)]
pub struct Computed {
    layout: Arc<Layout>,
    level: Level,
    values: FloatBuffer,
}

impl Computed {
    /// Values over a layout. Panics where there are not as many as the layout has cells of the level.
    pub fn new(layout: Arc<Layout>, level: Level, values: impl Into<FloatBuffer>) -> Self {
        let values = values.into();
        let (found, size) = (values.len(), layout.size(level));
        assert_eq!(
            found, size,
            "{found} values for {size} of the {level} level"
        );
        Computed {
            layout,
            level,
            values,
        }
    }

    /// Where the values are: `Response` or `Token` for a reward or an advantage.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The values: one a response, or one a token that counts, response by response.
    pub fn buffer(&self) -> &FloatBuffer {
        &self.values
    }

    /// The layout that the values lie over.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The value, widened to f64, that a token of a response has: that of its cell where the level is coarser.
    ///
    /// `token` counts the response's tokens that count, from 0. Panics where there is no such response or token.
    pub fn at(&self, response: usize, token: usize) -> f64 {
        self.lookup()(response, self.layout.tokens_of(response).start + token)
    }

    /// Looks values up by a response and a token's index in a token tensor.
    pub(crate) fn lookup(&self) -> impl Fn(usize, usize) -> f64 + Copy + '_ {
        let (values, layout, level) = (self.values.view(), &*self.layout, self.level);
        move |response, token| {
            values.get(match level {
                Level::Token => token,
                Level::Response => response,
                Level::Position => {
                    let index = token - layout.tokens_of(response).start;
                    layout.positions_of(layout.group_of(response)).start + index
                }
                Level::Group => layout.group_of(response),
                Level::Batch => 0,
            })
        }
    }

    /// The value of each token that counts, response by response; response values are spread over their tokens.
    pub fn per_token(&self) -> impl Iterator<Item = f64> + '_ {
        let value = self.lookup();
        (0..self.layout.responses()).flat_map(move |response| {
            let tokens = self.layout.tokens_of(response);
            tokens.map(move |token| value(response, token))
        })
    }

    /// The values as a padded array [B, T], 0 where the mask is 0. T is the width of the input.
    pub fn to_padded(&self) -> Array2<f32> {
        // Zeros come from the system: rows' ends that are never written take no memory.
        let mut array = Array2::zeros((self.layout.responses(), self.layout.width()));
        self.fill(&mut array.view_mut(), false);
        array
    }

    /// Writes the values into an array [B, T] of the caller's, with any strides, 0 where the mask is 0.
    ///
    /// # Errors
    /// A [`Diagnostic`] where the array has another shape; it stays as it is.
    pub fn write_into(&self, array: &mut ArrayViewMut2<'_, f32>) -> Result<(), Diagnostic> {
        let (found, shape) = (array.dim(), (self.layout.responses(), self.layout.width()));
        if found != shape {
            let what = format!("an array {found:?} for an advantage {shape:?}");
            let help = "one row a response, as wide as the batch's padded columns";
            return Err(Diagnostic::error(what).with_help(help));
        }
        self.fill(array, true);
        Ok(())
    }

    /// Writes the tokens that count, and 0 elsewhere where the array is to be cleared.
    fn fill(&self, array: &mut ArrayViewMut2<'_, f32>, clear: bool) {
        let width = array.ncols().max(1);
        let fill = |response: usize, row: &mut ArrayViewMut1<'_, f32>| {
            if clear {
                row.fill(0.0);
            }
            for (tokens, columns) in self.layout.stretches(response) {
                let mut row = row.slice_mut(s![columns]);
                let out = row.iter_mut();
                // Rounds to f32: that is what trainers hold advantages in.
                match (self.level, &self.values) {
                    (Level::Token, FloatBuffer::F32(values)) => {
                        out.zip(&values[tokens])
                            .for_each(|(out, &value)| *out = value);
                    }
                    (Level::Token | Level::Position, _) => {
                        let value = self.lookup();
                        out.zip(tokens)
                            .for_each(|(out, token)| *out = value(response, token) as f32);
                    }
                    _ => {
                        let value = self.lookup()(response, 0) as f32;
                        out.for_each(|out| *out = value);
                    }
                }
            }
        };
        match array.as_slice_mut() {
            Some(values) => (values.par_chunks_mut(width).enumerate())
                .for_each(|(response, row)| fill(response, &mut row.into())),
            None => (array.rows_mut().into_iter().enumerate())
                .for_each(|(response, mut row)| fill(response, &mut row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    #[test]
    fn a_token_has_the_value_of_its_cell_at_each_level() {
        let batch = Batch::builder()
            .groups(["a", "b", "a"])
            .lengths([2, 1, 1])
            .build()
            .unwrap();
        let layout = batch.layout();
        let per_token = |level| {
            let values: Vec<f64> = (0..layout.size(level)).map(|index| index as f64).collect();
            let computed = Computed::new(layout.clone(), level, values);
            computed.per_token().collect::<Vec<f64>>()
        };
        assert_eq!(per_token(Level::Batch), [0.0; 4]);
        assert_eq!(per_token(Level::Group), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(per_token(Level::Response), [0.0, 0.0, 1.0, 2.0]);
        assert_eq!(per_token(Level::Position), [0.0, 1.0, 2.0, 0.0]);
        assert_eq!(per_token(Level::Token), [0.0, 1.0, 2.0, 3.0]);
    }
}
