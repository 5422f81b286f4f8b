//! Columns that are read on first use, because a batch may hold gigabytes, and a recipe may need only one column of it; and a
//! look for odd values in those that have been read.

use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock, OnceLock};

use super::meaning::{Bound, Meaning};
use super::names::{FileKind, Names, Reading, Role};
use super::table::{ColumnData, FileColumn, Lists};
use super::{Dtype, Progress, Result, Rollouts, read_table};
use crate::batch::{Buffer, BufferOwner, FloatBuffer, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::number_text::counted;
use crate::panics::caught;
use crate::parallel::each;
use crate::tensor::Precision;

/// Whether a column has been read, and the error if it could not be.
type LoadOutcome = Arc<OnceLock<Result<()>>>;

type Load<T> = Box<dyn FnOnce() -> Buffer<T> + Send>;

/// A column whose values are read on first use; until then only their number is known.
struct Later<T: 'static> {
    length: usize,
    /// One of the threads that need the values reads them, and the others wait.
    values: LazyLock<Buffer<T>, Load<T>>,
}

impl<T: Send + Sync> BufferOwner<T> for Later<T> {
    fn as_slice(&self) -> &[T] {
        &self.values
    }

    fn count(&self) -> usize {
        self.length
    }
}

/// Works on separate threads: a thread of the pool that waits may take up other work, which may need the very column
/// that it is reading.
fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let threads = rayon::current_num_threads();
    let pool = move || rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let work = || match pool() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    };
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Meaning<'_> {
    /// A column of `length` values that are read on first use; `missing` stands for each of them if they cannot be read.
    fn later<T: Clone + Send + Sync>(
        &mut self,
        reading: &Reading,
        (length, missing): (usize, T),
        read: impl FnOnce() -> Result<Buffer<T>> + Send + 'static,
    ) -> Buffer<T> {
        let outcome = self.watch(reading);
        let load = move || {
            let failed = || Err(Diagnostic::error("its values could not be read"));
            let read = caught(read).unwrap_or_else(failed);
            outcome.get_or_init(|| read.clone().map(drop));
            read.unwrap_or_else(|_| vec![missing; length].into())
        };
        let load: Load<T> = Box::new(|| apart(load));
        let values = LazyLock::new(load);
        Buffer::new(Later { length, values })
    }

    fn watch(&mut self, reading: &Reading) -> LoadOutcome {
        let (reading, loaded) = (reading.clone(), LoadOutcome::default());
        self.watched.push(WatchedColumn {
            reading,
            loaded: loaded.clone(),
            notes: OnceLock::new(),
        });
        loaded
    }

    /// The texts of a column, one per response.
    pub(super) fn text_values(&mut self, bound: &Bound) -> Result<Buffer<Arc<str>>> {
        let (length, column) = (self.responses, &bound.column);
        Ok(match &column.data {
            ColumnData::Tensor(tensor) => tensor.strings()?.into(),
            ColumnData::Texts(texts, _) if texts.len() == length => texts.clone().into(),
            _ => {
                let read = self.read_again(column, length, |data| match data {
                    ColumnData::Texts(texts, _) => texts,
                    _ => Vec::new(),
                });
                self.later(&bound.reading, (length, "".into()), || Ok(read()?.into()))
            }
        })
    }

    /// The numbers of a column of arrays.
    pub(super) fn token_values(&mut self, Bound { reading, column }: Bound) -> Result<TokenValues> {
        let dtype = self.options.dtype;
        if let ColumnData::Tensor(tensor) = &column.data {
            let (tensor, shape) = (tensor.clone(), (tensor.shape[0], tensor.shape[1]));
            tensor.bytes()?;
            let is_wide = dtype.map_or(tensor.is_wide(), |dtype| dtype == Dtype::F64);
            let count = shape.0 * shape.1;
            let numbers: FloatBuffer = match is_wide {
                true => {
                    let read = move || tensor.numbers();
                    self.later(&reading, (count, f64::NAN), read).into()
                }
                false => {
                    let read = move || tensor.numbers();
                    self.later(&reading, (count, f32::NAN), read).into()
                }
            };
            let values = TokenValues::padded(numbers, shape, shape.1);
            let as_many = || unreachable!("there are as many numbers as the shape has");
            return Ok(values.unwrap_or_else(as_many));
        }
        let ColumnData::Lists(Lists { starts, .. }) = &column.data else {
            unreachable!("a column of tokens has arrays");
        };
        let starts = starts.clone();
        let is_f32 = dtype == Some(Dtype::F32);
        let narrow = |values: Vec<f64>| values.iter().map(|&value| value as f32).collect();
        let numbers: FloatBuffer = if column.data.is_left() {
            let count = starts[starts.len() - 1];
            let read = self.read_again(&column, count, ColumnData::into_numbers);
            match is_f32 {
                true => {
                    let read = move || read().map(narrow);
                    self.later(&reading, (count, f32::NAN), read).into()
                }
                false => {
                    let read = move || read().map(Buffer::from);
                    self.later(&reading, (count, f64::NAN), read).into()
                }
            }
        } else {
            self.watch(&reading).get_or_init(|| Ok(()));
            let values = Arc::unwrap_or_clone(column).data.into_numbers();
            match is_f32 {
                true => FloatBuffer::F32(narrow(values)),
                false => values.into(),
            }
        };
        Ok(TokenValues::ragged(numbers, starts.into()))
    }

    /// A function that reads the values of a column left in the file, after a check that the file is unchanged.
    fn read_again<T>(
        &self,
        column: &FileColumn,
        count: usize,
        values: fn(ColumnData) -> Vec<T>,
    ) -> impl FnOnce() -> Result<Vec<T>> + Send + use<T> {
        let (origin, name) = (self.table.origin.clone(), column.name.clone());
        let only = Names {
            only: Some(name.clone()),
            deferred: None,
            // Whether words are counted decides what an empty array is; tokens take longer.
            tokenizer: None,
            ..(*self.table.names).clone()
        };
        move || {
            let schema = |_: &[_], _| Ok(only.clone());
            let table = read_table(&origin.path, &schema, &Progress::default())?;
            origin.check(table.origin.sum)?;
            let mut columns = table.columns.into_iter();
            let found = columns.find(|found| found.name == name);
            let values = found.map(|found| values(Arc::unwrap_or_clone(found).data));
            let values = values.filter(|values| values.len() == count);
            let damaged = || {
                let what = format!("`{name}` is damaged: it has other values than the file says");
                Diagnostic::error(what).in_file(&origin.path)
            };
            values.ok_or_else(damaged)
        }
    }
}

/// A column that is looked at once it has been read.
#[derive(Clone, Debug)]
pub(super) struct WatchedColumn {
    reading: Reading,
    loaded: LoadOutcome,
    notes: OnceLock<Result<Vec<String>>>,
}

impl WatchedColumn {
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }
}

impl Rollouts {
    /// Notes on the columns read so far: with [`ReadOptions::defer`](super::ReadOptions::defer), some are read after the file was
    /// opened.
    ///
    /// # Errors
    /// The problem with one of them: its values are NaN, and so are all results computed from it.
    pub fn late_notes(&self) -> Result<Vec<Diagnostic>, Diagnostics> {
        let mut all = Vec::new();
        for column in &self.watched {
            let Some(loaded) = column.loaded.get() else {
                continue;
            };
            loaded.clone()?;
            let check = || match self.batch.token_column(&column.reading.ours) {
                Some(values) => match values.numbers() {
                    FloatBuffer::F32(numbers) => self.check(&column.reading, values, numbers),
                    FloatBuffer::F64(numbers) => self.check(&column.reading, values, numbers),
                },
                None => Ok(Vec::new()),
            };
            all.extend(column.notes.get_or_init(check).clone()?);
        }
        Ok(all.into_iter().map(Diagnostic::note).collect())
    }

    /// Looks for odd values. A NaN that counts would make all results of its group NaN, so it is reported for the file already.
    fn check<T: Precision>(
        &self,
        reading: &Reading,
        values: &TokenValues,
        numbers: &[T],
    ) -> Result<Vec<String>> {
        let (ours, theirs) = (reading.ours.as_str(), reading.theirs.as_str());
        let column = (values, numbers);
        // Half precision may round a log-prob of 0 up by as much.
        let most = if ours.ends_with("logp") {
            1e-3
        } else {
            f64::MAX
        };
        let beyond = self.odd_values(column, true, |x| !(f64::MIN..=most).contains(&x));
        let stray = beyond.and_then(|_| self.odd_values(column, true, |x| !x.is_finite()));
        if let Some((response, token, value, _)) = stray
            && reading.role == Role::Token
            && self.kind != FileKind::Saved
        {
            let found = match value {
                value if value.is_nan() => "NaN or null".to_string(),
                value if self.is_narrowed => format!("{value} (or more than f32 holds)"),
                value => value.to_string(),
            };
            let at = (Some(self.row(response)), Some(token));
            let expected = "a finite number where the mask is 1";
            return Err(self.origin.wrong(theirs, at, found, expected));
        }
        let is_positive = |x: f64| x > most && x.is_finite();
        let positive = beyond.and_then(|_| self.odd_values(column, true, is_positive));
        let lost = match ours {
            // Padding may contain NaN where the mask is 0.
            "token_reward" => self.odd_values(column, false, |x| x != 0.0 && x.is_finite()),
            _ => None,
        };
        let no_logp = ": no log-prob is; are these probabilities, or -logp?";
        let no_token = "holds rewards where the mask is 0,";
        let kinds = [
            (stray, ours, "is NaN or infinite", ""),
            (positive, theirs, "is above 0", no_logp),
            (lost, theirs, no_token, ": they do not count"),
        ];
        let notes = kinds.into_iter().filter_map(|(found, name, what, why)| {
            let (response, token, _, count) = found?;
            let (count, first) = (
                counted(count, "token"),
                self.origin.name_of(self.row(response)),
            );
            Some(format!(
                "`{name}` {what} at {count}, the first in {first}, token {token}{why}"
            ))
        });
        Ok(notes.collect())
    }

    /// The first odd value of a column where the mask is 1, or where it is 0: its response, its token and itself; and the number
    /// of such values.
    fn odd_values<T: Precision>(
        &self,
        (values, numbers): (&TokenValues, &[T]),
        counts: bool,
        is_odd: impl Fn(f64) -> bool + Sync,
    ) -> Option<(usize, usize, f64, usize)> {
        let (layout, is_odd) = (self.batch.layout(), |value: &T| is_odd(value.widen()));
        let of_response = |response: usize| {
            let places: Vec<_> = match counts {
                true => layout.stretches(response).collect(),
                false => layout.gaps(response).map(|gap| (0..0, gap)).collect(),
            };
            let mut found = None;
            for (tokens, columns) in places {
                let first = columns.start;
                let row = &numbers[values.place(response, (tokens, columns))];
                // Counting has no branches, and nearly always finds nothing.
                let count = row.iter().filter(|value| is_odd(value)).count();
                if count == 0 {
                    continue;
                }
                let odd = row.iter().zip(first..).find(|(value, _)| is_odd(value));
                if let Some((value, token)) = odd {
                    found.get_or_insert((response, token, value.widen(), 0)).3 += count;
                }
            }
            found
        };
        let found = each(layout.responses(), 1, &of_response);
        let found = found.into_iter().flatten();
        found.reduce(|(at, token, value, count), (.., more)| (at, token, value, count + more))
    }
}
