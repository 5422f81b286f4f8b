//! Values at a level, over a batch's layout: the form of computed tensors, rewards, advantages and gradients.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ndarray::Array2;

use super::large::{Large, Plain, SpareMemory, fill, in_large_pages};
use super::{Buffer, FloatBuffer, Layout, Level};
use crate::diagnostic::Diagnostic;
use crate::parallel::by_parts;

/// Values at a level with their layout, such as an advantage, a reward or a gradient.
#[derive(Clone, Debug)]
pub struct Computed {
    layout: Arc<Layout>,
    level: Level,
    /// The values, and a copy with one value per token, which is made when values in another form are first read by token.
    values: Arc<(Values, OnceLock<FloatBuffer>)>,
}

/// The values in the form in which they were computed. `ByResponse` and `Rows` are forms of token values only.
#[derive(Debug)]
enum Values {
    /// One value per cell of the level.
    Cells(FloatBuffer),
    /// One value for all tokens of a response, and whether the values are f64.
    ByResponse(Vec<f64>, bool),
    /// The rows of an array [B, T], with 0 at each token that does not count.
    Rows(Large<f32>),
}

impl Computed {
    /// Makes values over a layout. Panics unless there is one value per cell of the level.
    pub fn new(layout: Arc<Layout>, level: Level, values: impl Into<FloatBuffer>) -> Self {
        let values = values.into();
        let (found, size) = (values.len(), layout.size(level));
        assert_eq!(
            found, size,
            "the number of values is {found}, but the {level} level has {size} cells"
        );
        Computed::of(layout, level, Values::Cells(values))
    }

    /// Makes token values from one value for all tokens of each response.
    pub(crate) fn uniform(layout: Arc<Layout>, values: Vec<f64>, is_f64: bool) -> Self {
        Computed::of(layout, Level::Token, Values::ByResponse(values, is_f64))
    }

    /// Makes token values from the rows of an array [B, T], which are 0 at each token that does not count.
    pub(crate) fn of_rows(layout: Arc<Layout>, rows: Large<f32>) -> Self {
        Computed::of(layout, Level::Token, Values::Rows(rows))
    }

    fn of(layout: Arc<Layout>, level: Level, values: Values) -> Self {
        Computed {
            layout,
            level,
            values: Arc::new((values, OnceLock::new())),
        }
    }

    /// Returns the level of the values: `Response` or `Token` for a reward or an advantage.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the values: one per cell of the level.
    pub fn buffer(&self) -> &FloatBuffer {
        let (layout, width) = (&*self.layout, self.layout.width());
        let (values, copy) = &*self.values;
        match values {
            Values::Cells(cells) => cells,
            Values::ByResponse(values, true) => copy.get_or_init(|| {
                by_token::<f64>(layout, |out, response, _| out.fill(values[response]))
            }),
            Values::ByResponse(values, false) => copy.get_or_init(|| {
                by_token::<f32>(layout, |out, response, _| {
                    out.fill(values[response] as f32);
                })
            }),
            Values::Rows(rows) => copy.get_or_init(|| {
                by_token::<f32>(layout, |out, response, columns| {
                    out.copy_from_slice(&rows[response * width..][columns]);
                })
            }),
        }
    }

    /// Returns whether the values are f64; they are f32 otherwise.
    pub fn is_f64(&self) -> bool {
        match &self.values.0 {
            Values::Cells(cells) => cells.is_f64(),
            Values::ByResponse(_, is_f64) => *is_f64,
            Values::Rows(_) => false,
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.layout.size(self.level)
    }

    /// Returns whether there are no values, for example at token level in a batch without tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value at an index, converted to f64.
    pub fn get(&self, index: usize) -> f64 {
        self.buffer().get(index)
    }

    /// Returns all values, converted to f64.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.buffer().iter()
    }

    /// Returns the layout of the values.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the value at a token of a response, converted to f64. At a coarser level, returns the value of the token's cell.
    ///
    /// `token` is an index among the response's tokens that count, from 0, and must be below their number. Panics if there is no
    /// such response.
    pub fn at(&self, response: usize, token: usize) -> f64 {
        self.lookup()(response, self.layout.tokens_of(response).start + token)
    }

    /// Returns a function that returns the value for a response and the index of one of its tokens in a token tensor.
    pub fn lookup(&self) -> impl Fn(usize, usize) -> f64 + Copy + '_ {
        let (value, layout, level) = (self.buffer().reader(), &*self.layout, self.level);
        move |response, token| {
            value(match level {
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

    /// Returns the value of each token that counts, response by response.
    pub fn per_token(&self) -> impl Iterator<Item = f64> + '_ {
        let value = self.lookup();
        (0..self.layout.responses()).flat_map(move |response| {
            let tokens = self.layout.tokens_of(response);
            tokens.map(move |token| value(response, token))
        })
    }

    /// Returns the values of some tokens of a response, and the number of tokens to which each value applies: 1 at token and
    /// position level; at other levels, one value applies to all these tokens.
    pub fn of_tokens(
        &self,
        response: usize,
        tokens: Range<usize>,
    ) -> (impl ExactSizeIterator<Item = f64> + Clone, usize) {
        let (value, count) = (self.lookup(), tokens.len());
        let (cells, each) = match self.level {
            Level::Token | Level::Position => (tokens, 1),
            _ => (tokens.start..tokens.start + 1, count),
        };
        (cells.map(move |token| value(response, token)), each)
    }

    /// Returns the sum of |x| over some tokens of a response, and how many of these tokens have the value 0.
    pub fn magnitude(&self, response: usize, tokens: Range<usize>) -> (f64, usize) {
        let (values, each) = self.of_tokens(response, tokens);
        let zeros = values.clone().filter(|x| *x == 0.0).count() * each;
        (values.map(f64::abs).sum::<f64>() * each as f64, zeros)
    }

    /// Returns a value for each response: the value of the cell that contains the response or, at token and position level, the
    /// mean over the response's tokens, which is 0 if there are none.
    pub fn by_response(&self) -> Vec<f64> {
        let responses = 0..self.layout.responses();
        responses
            .map(|response| self.of_response(response))
            .collect()
    }

    /// Returns the value of one response, as defined by [`Computed::by_response`].
    pub(crate) fn of_response(&self, response: usize) -> f64 {
        let (values, _) = self.of_tokens(response, self.layout.tokens_of(response));
        let count = values.len().max(1) as f64;
        values.sum::<f64>() / count
    }

    /// Returns the values as a padded array [B, T], with 0 wherever the mask is 0. T is the length of the longest row in the
    /// input. The values are rounded to f32, because most trainers have advantages in f32.
    pub fn to_padded(&self) -> Array2<f32> {
        let mut array = Array2::zeros((self.layout.responses(), self.layout.width()));
        if let Some(rows) = array.as_slice_mut() {
            in_large_pages(rows);
            self.fill(rows);
        }
        array
    }

    /// Returns the same array as [`Computed::to_padded`], in memory that is reused, if it is large, after the array is dropped.
    /// The values are not copied if the executor wrote them as rows (see
    /// [`Host::with_padded_results`](crate::Host::with_padded_results)) and `self` has no clone.
    ///
    /// # Errors
    /// A [`Diagnostic`] if the system has no memory for the values.
    pub fn into_rows(self, spare: &SpareMemory) -> Result<Large<f32>, Diagnostic> {
        let (responses, width) = (self.layout.responses(), self.layout.width());
        let values = match Arc::try_unwrap(self.values) {
            Ok((Values::Rows(rows), _)) => return Ok(rows),
            Ok(values) => values.into(),
            Err(shared) => shared,
        };
        let mut rows = spare.numbers(responses * width).map_err(|_| {
            let what = format!("the system has no memory left for an array [{responses}, {width}]");
            Diagnostic::error(what)
        })?;
        Computed { values, ..self }.fill(&mut rows);
        Ok(rows)
    }

    fn fill(&self, rows: &mut [f32]) {
        // The width is at least 1, to avoid a division by 0. An array without columns has no rows to write.
        let width = self.layout.width().max(1);
        by_parts(rows, width, &|start, row| self.fill_row(start / width, row));
    }

    fn fill_row(&self, response: usize, row: &mut [f32]) {
        let cells = match &self.values.0 {
            Values::Rows(rows) => {
                return row.copy_from_slice(&rows[response * row.len()..][..row.len()]);
            }
            Values::ByResponse(values, _) => {
                self.layout.clear_padding(response, row);
                let (runs, value) = (self.layout.token_runs(response), values[response] as f32);
                return runs.for_each(|(_, columns)| fill(&mut row[columns], value));
            }
            Values::Cells(cells) => cells,
        };
        self.layout.clear_padding(response, row);
        let value = self.lookup();
        for (tokens, columns) in self.layout.token_runs(response) {
            let out = &mut row[columns];
            match (self.level, cells) {
                (Level::Token, FloatBuffer::F32(values)) => out.copy_from_slice(&values[tokens]),
                (Level::Token | Level::Position, _) => (out.iter_mut().zip(tokens))
                    .for_each(|(out, token)| *out = value(response, token) as f32),
                _ => fill(out, value(response, 0) as f32),
            }
        }
    }
}

/// Returns a value for each token that counts. `write` fills in the values of one run of tokens, given the index of the
/// response and the run's range of columns in the response's row.
fn by_token<T: Plain>(layout: &Layout, write: impl Fn(&mut [T], usize, Range<usize>)) -> FloatBuffer
where
    Buffer<T>: Into<FloatBuffer>,
{
    let mut all = vec![T::default(); layout.tokens()];
    in_large_pages(&mut all);
    for response in 0..layout.responses() {
        for (tokens, columns) in layout.token_runs(response) {
            write(&mut all[tokens], response, columns);
        }
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Host;
    use crate::batch::Batch;
    use crate::native::{Mode, Native};

    proptest! {
        #[test]
        fn values_are_written_where_the_mask_is_1(
            rows in prop::collection::vec((0..3i64, prop::collection::vec(any::<bool>(), 0..9)), 1..6),
            level in 0..Level::ALL.len(),
            is_f64: bool,
        ) {
            let masks = rows.iter().map(|(_, mask)| mask);
            let batch = Batch::builder().groups(rows.iter().map(|(group, _)| *group));
            let batch = batch.ragged_mask(masks).build().unwrap();
            let (layout, level) = (batch.layout(), Level::ALL[level]);
            let values = (1..=layout.size(level)).map(|index| index as f32);
            let values: FloatBuffer = if is_f64 {
                values.map(f64::from).collect::<Vec<f64>>().into()
            } else {
                values.collect::<Vec<f32>>().into()
            };
            let computed = Computed::new(layout.clone(), level, values);
            let shape = (layout.responses(), layout.width());
            let expected = Array2::from_shape_fn(shape, |(response, column)| {
                let mask = &rows[response].1;
                let before = mask.iter().take(column).filter(|counts| **counts).count();
                let counts = mask.get(column) == Some(&true);
                if counts { computed.at(response, before) as f32 } else { 0.0 }
            });
            prop_assert_eq!(&computed.to_padded(), &expected);
            let rows = computed.into_rows(&SpareMemory::default()).unwrap();
            prop_assert_eq!(Some(&*rows), expected.as_slice());
        }
    }

    #[test]
    fn a_result_is_written_as_rows_by_script_and_kernel_if_the_host_wants_them() {
        let host = Host::new().with_padded_results();
        let by_kernel = host.clone().with_native(&Native::new(Mode::On));
        for (has_hole, native) in [(false, false), (false, true), (true, false), (true, true)] {
            let counts = |(row, column)| !(has_hole && row == 2 && column == 1);
            let mask = Array2::from_shape_fn((4, 3), counts);
            let mut builder = Batch::builder().groups([0, 0, 1, 1]).mask(mask.view());
            for name in ["old_logp", "logp", "ref_logp", "advantage"] {
                let values = |(row, column)| 0.1 * (row * column) as f32 - 1.0;
                builder = builder.token(name, Array2::from_shape_fn((4, 3), values));
            }
            let (batch, host) = (
                builder.build().unwrap(),
                [&host, &by_kernel][usize::from(native)],
            );
            let recipe = host.load("ppo_clip").unwrap();
            let loss = recipe
                .loss(&batch, None, &mut recipe.init().unwrap())
                .unwrap();
            assert_eq!(loss.reports.native.is_some(), native && !has_hole);
            let rows = match &loss.gradient.values.0 {
                Values::Rows(rows) => Some(rows.as_ptr()),
                _ => None,
            };
            let taken = loss.gradient.into_rows(&SpareMemory::default()).unwrap();
            assert_eq!(
                rows,
                Some(taken.as_ptr()),
                "{has_hole} {native}: not copied"
            );
        }
    }

    #[test]
    fn a_token_has_the_value_of_its_cell_at_each_level() {
        let batch = Batch::builder()
            .groups(["a", "b", "a"])
            .lengths([2, 1, 1])
            .build()
            .unwrap();
        let layout = batch.layout();
        for (level, per_token, by_response) in [
            (Level::Batch, [0.0; 4], [0.0; 3]),
            (Level::Group, [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
            (Level::Response, [0.0, 0.0, 1.0, 2.0], [0.0, 1.0, 2.0]),
            (Level::Position, [0.0, 1.0, 2.0, 0.0], [0.5, 2.0, 0.0]),
            (Level::Token, [0.0, 1.0, 2.0, 3.0], [0.5, 2.0, 3.0]),
        ] {
            let values: Vec<f64> = (0..layout.size(level)).map(|index| index as f64).collect();
            let computed = Computed::new(layout.clone(), level, values);
            assert_eq!(computed.per_token().collect::<Vec<f64>>(), per_token);
            assert_eq!(computed.by_response(), by_response, "{level}");
            for response in 0..3 {
                let tokens = layout.tokens_of(response);
                let own = &per_token[tokens.clone()];
                let zeros = own.iter().filter(|x| **x == 0.0).count();
                let found = computed.magnitude(response, tokens);
                assert_eq!(found, (own.iter().sum(), zeros), "{level}");
            }
        }
    }
}
