//! Values computed of a batch, at a level and over the batch's layout.

use std::sync::Arc;

use multiversion::multiversion;
use ndarray::{Array2, ArrayView1, ArrayViewMut2};
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
    pub fn lookup(&self) -> impl Fn(usize, usize) -> f64 + Copy + '_ {
        let (values, layout, level) = (self.values.view(), &*self.layout, self.level);
        move |response, token| {
            values.get(match level {
                Level::Token => token,
                Level::Response => response,
                Level::Trajectory => layout.trajectory_of(response),
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

    /// The value of each response, at any level: that of its cell; of values by token or position, the mean over its tokens.
    pub fn by_response(&self) -> Vec<f64> {
        let value = self.lookup();
        let mean = |response: usize| {
            let tokens = self.layout.tokens_of(response);
            let count = tokens.len().max(1) as f64;
            tokens.map(|token| value(response, token)).sum::<f64>() / count
        };
        let responses = 0..self.layout.responses();
        match self.level {
            Level::Token | Level::Position => responses.map(mean).collect(),
            _ => responses.map(|response| value(response, 0)).collect(),
        }
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
        has_shape_of(array, &self.layout, "an advantage")?;
        self.fill(array, true);
        Ok(())
    }

    /// Writes the tokens that count, and 0 elsewhere where the array is to be cleared.
    fn fill(&self, array: &mut ArrayViewMut2<'_, f32>, clear: bool) {
        if let Some(mut rows) = Rows::of(array) {
            return self.fill_rows(&mut rows, clear);
        }
        let mut values = vec![0.0; array.ncols()];
        for (response, mut row) in array.rows_mut().into_iter().enumerate() {
            values.fill(0.0);
            self.fill_row(response, &mut values, clear);
            row.assign(&ArrayView1::from(&values[..]));
        }
    }

    pub(crate) fn fill_rows(&self, rows: &mut Rows<'_>, clear: bool) {
        let rows = rows.par_iter_mut().enumerate();
        rows.for_each(|(response, row)| self.fill_row(response, row, clear));
    }

    fn fill_row(&self, response: usize, row: &mut [f32], clear: bool) {
        if clear {
            self.layout.clear_padding(response, row);
        }
        let value = self.lookup();
        for (tokens, columns) in self.layout.stretches(response) {
            let out = &mut row[columns];
            // Rounds to f32: that is what trainers hold advantages in.
            match (self.level, &self.values) {
                (Level::Token, FloatBuffer::F32(values)) => out.copy_from_slice(&values[tokens]),
                (Level::Token | Level::Position, _) => (out.iter_mut().zip(tokens))
                    .for_each(|(out, token)| *out = value(response, token) as f32),
                _ => fill(out, value(response, 0) as f32),
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn fill(out: &mut [f32], value: f32) {
    out.fill(value);
}

/// The rows of a padded array [B, T] that is written into, one after another in memory.
pub(crate) struct Rows<'a> {
    values: &'a mut [f32],
    width: usize,
}

impl<'a> Rows<'a> {
    /// `None` where the array's values do not lie one after another.
    pub(crate) fn of(array: &'a mut ArrayViewMut2<'_, f32>) -> Option<Rows<'a>> {
        let width = array.ncols();
        let values = array.as_slice_mut()?;
        Some(Rows { values, width })
    }

    /// Cuts off the first rows.
    pub(crate) fn split(&mut self, rows: usize) -> Rows<'a> {
        let (head, tail) = std::mem::take(&mut self.values).split_at_mut(rows * self.width);
        self.values = tail;
        Rows {
            values: head,
            width: self.width,
        }
    }

    pub(crate) fn reborrow(&mut self) -> Rows<'_> {
        Rows {
            values: self.values,
            width: self.width,
        }
    }

    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..(row + 1) * self.width]
    }

    /// The first row, for as long as the array lives.
    pub(crate) fn into_row(self) -> &'a mut [f32] {
        &mut self.values[..self.width]
    }

    pub(crate) fn par_iter_mut(&mut self) -> impl IndexedParallelIterator<Item = &mut [f32]> {
        // Without columns there is nothing to write.
        self.values.par_chunks_mut(self.width.max(1))
    }
}

/// Whether an array is one for a layout's padded values.
pub(crate) fn has_shape_of(
    array: &ArrayViewMut2<'_, f32>,
    layout: &Layout,
    what: &str,
) -> Result<(), Diagnostic> {
    let (found, shape) = (array.dim(), (layout.responses(), layout.width()));
    if found == shape {
        return Ok(());
    }
    let what = format!("an array {found:?} for {what} {shape:?}");
    let help = "one row a response, as wide as the batch's padded columns";
    Err(Diagnostic::error(what).with_help(help))
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
        for (level, expected) in [
            (Level::Batch, [0.0, 0.0, 0.0]),
            (Level::Group, [0.0, 1.0, 0.0]),
            (Level::Response, [0.0, 1.0, 2.0]),
            (Level::Position, [0.5, 2.0, 0.0]),
            (Level::Token, [0.5, 2.0, 3.0]),
        ] {
            let values: Vec<f64> = (0..layout.size(level)).map(|index| index as f64).collect();
            let computed = Computed::new(layout.clone(), level, values);
            assert_eq!(computed.by_response(), expected, "{level}");
        }
    }
}
