//! Columns that are read on first use, because a batch may hold gigabytes, and a recipe may need only one column of it; and a
//! look for odd values in those that have been read.

use std::mem::discriminant;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::safetensors::Dtype as Number;

use super::meaning::{Bound, Meaning};
use super::names::{FileKind, Names, Reading, Role};
use super::table::{ColumnData, FileColumn};
use super::{Dtype, Progress, Result, Rollouts, changed, read_table};
use crate::batch::{Buffer, BufferOwner, FloatBuffer, TokenValues};
use crate::diagnostic::Diagnostic;
use crate::number_text::counted;
use crate::parallel::each;
use crate::tensor::Precision;

/// Whether a column has been read, and the error if it could not be.
type LoadOutcome = Arc<OnceLock<Result<()>>>;

type Reader<T> = Box<dyn FnOnce() -> Result<Buffer<T>> + Send>;

/// A column whose values are read on first use; until then only their number is known.
struct Later<T: 'static> {
    length: usize,
    /// The value that stands for all others if they cannot be read.
    missing: T,
    read: Mutex<Option<Reader<T>>>,
    values: OnceLock<Buffer<T>>,
    outcome: LoadOutcome,
}

impl<T: Clone + Send + Sync> Later<T> {
    fn load(&self) -> Buffer<T> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader is gone after it panicked.
        let failed = || Err(Diagnostic::error("its values could not be read"));
        let read = read.take().map_or_else(failed, |read| read());
        let missing = || vec![self.missing.clone(); self.length].into();
        self.outcome.get_or_init(|| read.clone().map(drop));
        read.unwrap_or_else(|_| missing())
    }
}

impl<T: Clone + Send + Sync> BufferOwner<T> for Arc<Later<T>> {
    fn as_slice(&self) -> &[T] {
        // One of the threads that need the values reads them, and the others wait.
        self.values.get_or_init(|| apart(|| self.load()))
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
    /// A column of `length` values that are read on first use.
    fn later<T: Clone + Send + Sync>(
        &mut self,
        reading: &Reading,
        (length, missing): (usize, T),
        read: impl FnOnce() -> Result<Buffer<T>> + Send + 'static,
    ) -> Buffer<T> {
        Buffer::new(Arc::new(Later {
            length,
            missing,
            read: Mutex::new(Some(Box::new(read))),
            values: OnceLock::new(),
            outcome: self.watch(reading),
        }))
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
                let read = self.read_again(column);
                self.later(&bound.reading, (length, "".into()), || match read()? {
                    ColumnData::Texts(texts, _) => Ok(texts.into()),
                    _ => unreachable!("the column is the same as when it was read first"),
                })
            }
        })
    }

    /// The numbers of a column of arrays.
    pub(super) fn token_values(&mut self, Bound { reading, column }: Bound) -> Result<TokenValues> {
        let dtype = self.options.dtype;
        let starts = match &column.data {
            ColumnData::Tensor(tensor) => {
                let (tensor, shape) = (tensor.clone(), (tensor.shape[0], tensor.shape[1]));
                tensor.bytes()?;
                let is_wide = dtype.map_or(tensor.is_wide(), |dtype| dtype == Dtype::F64);
                let count = shape.0 * shape.1;
                let numbers: FloatBuffer = match is_wide {
                    true => {
                        let read = move || tensor.floats(Number::F64);
                        self.later(&reading, (count, f64::NAN), read).into()
                    }
                    false => {
                        let read = move || tensor.floats(Number::F32);
                        self.later(&reading, (count, f32::NAN), read).into()
                    }
                };
                let values = TokenValues::padded(numbers, shape, shape.1);
                let Some(values) = values else {
                    unreachable!("there are as many numbers as the shape has");
                };
                return Ok(values);
            }
            ColumnData::Lists(lists) => lists.starts.clone(),
            _ => unreachable!("a column of tokens has arrays"),
        };
        let (count, is_f32) = (starts[starts.len() - 1], dtype == Some(Dtype::F32));
        let narrow = |values: Vec<f64>| values.iter().map(|&value| value as f32).collect();
        let numbers: FloatBuffer = if column.data.is_left() {
            let (path, read) = (self.table.origin.path.clone(), self.read_again(&column));
            let read = move || match read()?.into_numbers() {
                values if values.len() == count => Ok(values),
                _ => Err(changed(&path, "its bytes are others")),
            };
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

    /// A function that reads a column left in the file, after a check that the file is unchanged.
    fn read_again(
        &self,
        column: &FileColumn,
    ) -> impl FnOnce() -> Result<ColumnData> + Send + use<> {
        let (origin, name) = (self.table.origin.clone(), column.name.clone());
        let (filled, kind) = (column.filled, discriminant(&column.data));
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
            let is_same =
                |found: &FileColumn| found.filled == filled && discriminant(&found.data) == kind;
            match found.and_then(Arc::into_inner) {
                Some(found) if is_same(&found) => Ok(found.data),
                _ => Err(changed(&origin.path, "its bytes are others")),
            }
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

/// An odd value: its response, its column and itself; and the number of such values.
type Found = (usize, usize, f64, usize);

impl Rollouts {
    /// Notes on the columns that have been read and are still watched, or the first error.
    pub(super) fn notes_on_values(&self) -> Result<Vec<Diagnostic>> {
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
        let Reading {
            ours, theirs, role, ..
        } = reading;
        let all = each(self.batch.layout().responses(), 1, &|response| {
            self.odd_values(ours, (values, numbers), response)
        });
        let of_kind = |kind: usize| {
            let found = all.iter().flatten().filter_map(|found| found[kind]);
            found.reduce(|(at, column, value, count), (.., more)| (at, column, value, count + more))
        };
        let stray = of_kind(STRAY);
        if let Some((response, column, value, _)) = stray
            && *role == Role::Token
            && self.kind != FileKind::Saved
        {
            let found = match value {
                value if value.is_nan() => "NaN or null".to_string(),
                value if self.is_narrowed => format!("{value} (or more than f32 holds)"),
                value => value.to_string(),
            };
            let at = (Some(response), Some(column));
            let expected = "a finite number where the mask is 1";
            return Err(self.origin.wrong(theirs, at, found, expected));
        }
        let positive = ": no log-prob is; are these probabilities, or -logp?";
        let lost = "holds rewards where the mask is 0,";
        let kinds = [
            (stray, ours, "is NaN or infinite", ""),
            (of_kind(POSITIVE), theirs, "is above 0", positive),
            (of_kind(LOST), theirs, lost, ": they do not count"),
        ];
        let notes = kinds.into_iter().filter_map(|(found, name, what, why)| {
            let (response, column, _, count) = found?;
            let (count, first) = (counted(count, "token"), self.origin.name_of(response));
            Some(format!(
                "`{name}` {what} at {count}, the first in {first}, token {column}{why}"
            ))
        });
        Ok(notes.collect())
    }

    /// The odd values of a response, by their kinds.
    fn odd_values<T: Precision>(
        &self,
        ours: &str,
        (values, numbers): (&TokenValues, &[T]),
        response: usize,
    ) -> Option<Box<[Option<Found>; 3]>> {
        let (layout, is_logp) = (self.batch.layout(), ours.ends_with("logp"));
        let kind = |value: f64, counts: bool| match counts {
            true if !value.is_finite() => Some(STRAY),
            // Half precision may round a log-prob of 0 up by as much.
            true if is_logp && value > 1e-3 => Some(POSITIVE),
            // Padding may contain NaN where the mask is 0.
            false if value.is_finite() && value != 0.0 => Some(LOST),
            _ => None,
        };
        let usual = (f32::MIN, if is_logp { 0.0 } else { f32::MAX });
        let runs = layout.stretches(response).map(|run| (run, usual, true));
        let gaps = (ours == "token_reward").then(|| layout.gaps(response));
        let gaps = gaps.into_iter().flatten();
        let gaps = gaps.map(|columns| ((0..0, columns), (0.0, 0.0), false));
        let mut found = None;
        for ((tokens, columns), usual, counts) in runs.chain(gaps) {
            let row = &numbers[values.place(response, (tokens, columns.clone()))];
            if is_usual(row, usual) {
                continue;
            }
            for (column, value) in columns.zip(row) {
                let value = value.widen();
                if let Some(kind) = kind(value, counts) {
                    let kinds: &mut Box<[Option<Found>; 3]> = found.get_or_insert_default();
                    kinds[kind].get_or_insert((response, column, value, 0)).3 += 1;
                }
            }
        }
        found
    }
}

/// Kinds of odd values: no finite numbers, log-probs above 0, and rewards where the mask is 0.
const STRAY: usize = 0;
const POSITIVE: usize = 1;
const LOST: usize = 2;

/// Whether all values lie between two numbers. Counting the others has no branches.
fn is_usual<T: Precision>(row: &[T], usual: (f32, f32)) -> bool {
    let (low, high) = (T::narrow(usual.0.into()), T::narrow(usual.1.into()));
    let is_odd = |value: &T| !((*value >= low) & (*value <= high));
    row.iter()
        .map(|value| u32::from(is_odd(value)))
        .sum::<u32>()
        == 0
}
