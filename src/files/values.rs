//! Columns that are read on first use, because a batch may hold gigabytes, and a recipe may need only one column of it. The
//! numbers of tokens are checked for odd values then.

use std::mem::discriminant;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::safetensors::Dtype as Number;

use super::meaning::{Bound, Meaning};
use super::names::{Names, Reading, Role};
use super::table::{ColumnData, FileColumn, FileOrigin};
use super::{Dtype, Progress, Result, changed, read_table};
use crate::batch::layout::Tokens;
use crate::batch::{Buffer, BufferOwner, FloatBuffer, TokenValues};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;
use crate::parallel::each;
use crate::tensor::Precision;

/// The values of a column, and notes on odd values among them.
type Read<T> = Result<(Buffer<T>, Vec<String>)>;

/// Notes on the values of a column, or the error that kept them from being read; nothing before they are used.
pub(super) type LoadOutcome = Arc<OnceLock<Result<Vec<String>>>>;

/// A column whose values are read on first use; until then only their number is known.
struct Later<T: 'static> {
    length: usize,
    /// The value that stands for all others if they cannot be read.
    missing: T,
    read: Mutex<Option<Box<dyn FnOnce() -> Read<T> + Send>>>,
    values: OnceLock<Buffer<T>>,
    outcome: LoadOutcome,
}

impl<T: Clone + Send + Sync> Later<T> {
    fn new(
        length: usize,
        missing: T,
        read: impl FnOnce() -> Read<T> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Later {
            length,
            missing,
            read: Mutex::new(Some(Box::new(read))),
            values: OnceLock::new(),
            outcome: LoadOutcome::default(),
        })
    }

    fn load(&self) -> &Buffer<T> {
        self.values.get_or_init(|| {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            // A reader is gone after it panicked.
            let failed = || Err(Diagnostic::error("its values could not be read"));
            let (values, outcome) = match read.take().map_or_else(failed, |read| read()) {
                Ok((values, notes)) => (values, Ok(notes)),
                Err(error) => (vec![self.missing.clone(); self.length].into(), Err(error)),
            };
            self.outcome.get_or_init(|| outcome);
            values
        })
    }
}

impl<T: Clone + Send + Sync> BufferOwner<T> for Arc<Later<T>> {
    fn as_slice(&self) -> &[T] {
        let loaded = self.values.get();
        loaded.unwrap_or_else(|| apart(|| self.load()))
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

/// Notes on the columns that have been read, or the first error.
pub(super) fn notes(columns: &[LoadOutcome]) -> Result<Vec<Diagnostic>> {
    let outcomes = columns.iter().filter_map(|column| column.get().cloned());
    let notes = outcomes.collect::<Result<Vec<_>, _>>()?;
    Ok(notes.into_iter().flatten().map(Diagnostic::note).collect())
}

impl Meaning<'_> {
    /// The texts of a column, one per response.
    pub(super) fn text_values(&mut self, column: &FileColumn) -> Result<Buffer<Arc<str>>> {
        Ok(match &column.data {
            ColumnData::Tensor(tensor) => tensor.strings()?.into(),
            ColumnData::Texts(texts, _) if texts.len() == self.responses => texts.clone().into(),
            _ => {
                let read = self.read_again(column);
                let later = Later::new(self.responses, "".into(), || match read()? {
                    ColumnData::Texts(texts, _) => Ok((texts.into(), Vec::new())),
                    _ => unreachable!("the column is the same as when it was read first"),
                });
                self.outcomes.push(later.outcome.clone());
                Buffer::new(later)
            }
        })
    }

    /// The numbers of a column of arrays.
    pub(super) fn token_values(
        &mut self,
        Bound { reading, column }: Bound,
        tokens: Arc<Tokens>,
    ) -> Result<TokenValues> {
        let dtype = self.options.dtype;
        let mut unread = UnreadColumn {
            reading,
            origin: self.table.origin.clone(),
            tokens,
            is_f32: dtype == Some(Dtype::F32),
            is_saved: self.table.saved.is_some(),
            starts: None,
            width: 0,
        };
        let starts = match &column.data {
            ColumnData::Tensor(tensor) => {
                tensor.bytes()?;
                unread.width = tensor.shape[1];
                let (tensor, count) = (tensor.clone(), tensor.shape[0] * tensor.shape[1]);
                let is_wide = dtype.map_or(tensor.is_wide(), |dtype| dtype == Dtype::F64);
                let is_now = self.options.defer.is_none();
                return Ok(match is_wide {
                    true => {
                        let read = move || tensor.floats::<f64>(Number::F64);
                        self.later(is_now, unread, count, read, |all| all)
                    }
                    false => {
                        let read = move || tensor.floats::<f32>(Number::F32);
                        self.later(is_now, unread, count, read, |all| all)
                    }
                });
            }
            ColumnData::Lists(lists) => lists.starts.clone(),
            _ => unreachable!("a column of tokens has arrays"),
        };
        let (count, path) = (starts[starts.len() - 1], unread.origin.path.clone());
        unread.starts = Some(starts.into());
        let is_left = column.data.is_left();
        let again = is_left.then(|| self.read_again(&column));
        let read = move || {
            let here = || Ok(Arc::unwrap_or_clone(column).data);
            match again.map_or_else(here, |again| again())?.into_numbers() {
                values if values.len() == count => Ok(Buffer::from(values)),
                _ => Err(changed(&path, "its bytes are others")),
            }
        };
        let narrow = |all: Buffer<f64>| all.iter().map(|&value| value as f32).collect();
        Ok(match unread.is_f32 {
            true => self.later::<f64, f32>(!is_left, unread, count, read, narrow),
            false => self.later(!is_left, unread, count, read, |all| all),
        })
    }

    /// A column of `count` numbers that are read, checked and narrowed on first use. If they cannot be read, all are NaN.
    fn later<S: Precision, T: Precision>(
        &mut self,
        is_now: bool,
        column: UnreadColumn,
        count: usize,
        read: impl FnOnce() -> Result<Buffer<S>> + Send + 'static,
        narrow: fn(Buffer<S>) -> Buffer<T>,
    ) -> TokenValues
    where
        Buffer<T>: Into<FloatBuffer>,
    {
        let (starts, shape) = (
            column.starts.clone(),
            (column.tokens.responses(), column.width),
        );
        let later = Later::new(count, T::narrow(f64::NAN), move || {
            let values = read()?;
            let notes = column.check(&values)?;
            Ok((narrow(values), notes))
        });
        self.outcomes.push(later.outcome.clone());
        let numbers: FloatBuffer = Buffer::new(later.clone()).into();
        if is_now {
            self.now.push(Box::new(move || {
                later.load();
            }));
        }
        let values = match starts {
            Some(starts) => Some(TokenValues::ragged(numbers, starts)),
            None => TokenValues::padded(numbers, shape, shape.1),
        };
        match values {
            Some(values) => values,
            None => unreachable!("there are as many numbers as the shape has"),
        }
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

/// An odd value: its response, its column and itself; and the number of such values.
type Found = (usize, usize, f64, usize);

/// What is known of a token column before its values are read.
struct UnreadColumn {
    reading: Reading,
    origin: Arc<FileOrigin>,
    tokens: Arc<Tokens>,
    is_f32: bool,
    /// A batch saved by advlab may contain NaN.
    is_saved: bool,
    /// The start of each row, and the end of the last one, if rows are not of one length.
    starts: Option<Arc<[usize]>>,
    width: usize,
}

impl UnreadColumn {
    /// Looks for odd values. A NaN that counts would make all results of its group NaN, so it is reported for the file already.
    fn check<T: Precision>(&self, numbers: &[T]) -> Result<Vec<String>> {
        let Reading {
            ours, theirs, role, ..
        } = &self.reading;
        let all = each(self.tokens.responses(), 1, &|response| {
            self.odd_values(numbers, response)
        });
        let of_kind = |kind: usize| {
            let found = all.iter().flatten().filter_map(|found| found[kind]);
            found.reduce(|(at, column, value, count), (.., more)| (at, column, value, count + more))
        };
        let stray = of_kind(STRAY);
        if let Some((response, column, value, _)) = stray
            && *role == Role::Token
            && !self.is_saved
        {
            let found = match value {
                value if value.is_nan() => "NaN or null".to_string(),
                value if value.is_finite() => format!("{value}, too large for f32,"),
                value => value.to_string(),
            };
            let at = (Some(response), Some(column));
            let expected = "a finite number where the mask is 1";
            return Err(self.origin.wrong(theirs, at, found, expected));
        }
        let kinds = [
            (stray, ours, "is NaN or infinite", ""),
            (
                of_kind(POSITIVE),
                theirs,
                "is above 0",
                ": no log-prob is; are these probabilities, or -logp?",
            ),
            (
                of_kind(LOST),
                theirs,
                "holds rewards where the mask is 0,",
                ": they do not count",
            ),
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
        numbers: &[T],
        response: usize,
    ) -> Option<Box<[Option<Found>; 3]>> {
        let is_logp = self.reading.ours.ends_with("logp");
        let kind = |value: f64, counts: bool| match counts {
            true if !value.is_finite() || self.is_f32 && (value as f32).is_infinite() => {
                Some(STRAY)
            }
            // Half precision may round a log-prob of 0 up by as much.
            true if is_logp && value > 1e-3 => Some(POSITIVE),
            // Padding may contain NaN where the mask is 0.
            false if value.is_finite() && value != 0.0 => Some(LOST),
            _ => None,
        };
        let high = if is_logp { 0.0 } else { f32::MAX.into() };
        let runs = self.tokens.runs(response).iter().map(|run| run.columns());
        let runs = runs.map(|columns| (columns, true, (f32::MIN.into(), high)));
        let gaps = (self.reading.ours == "token_reward").then(|| self.tokens.gaps(response));
        let gaps = gaps.into_iter().flatten();
        let gaps = gaps.map(|columns| (columns, false, (0.0, 0.0)));
        let start = match &self.starts {
            Some(starts) => starts[response],
            None => response * self.width,
        };
        let mut found = None;
        for (columns, counts, usual) in runs.chain(gaps) {
            let row = &numbers[start + columns.start..start + columns.end];
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
fn is_usual<T: Precision>(row: &[T], usual: (f64, f64)) -> bool {
    let (low, high) = (T::narrow(usual.0), T::narrow(usual.1));
    let is_odd = |value: &T| !((*value >= low) & (*value <= high));
    row.iter()
        .map(|value| u32::from(is_odd(value)))
        .sum::<u32>()
        == 0
}
