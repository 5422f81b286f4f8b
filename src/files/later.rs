//! Columns that are read on first use: a batch may hold gigabytes, and a recipe may need only one column of it.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;

use super::Result;
use crate::batch::{Buffer, BufferOwner};
use crate::diagnostic::Diagnostic;

/// The values of a column, and notes on odd values among them.
pub(super) type Read<T> = Result<(Buffer<T>, Vec<String>)>;

type Reader<T> = Box<dyn FnOnce() -> Read<T> + Send>;

/// Notes on the values of a column, or the error that kept them from being read.
type LoadOutcome = Result<Vec<String>>;

/// A column whose values are read on first use; until then only their number is known.
pub(super) struct Later<T: 'static> {
    length: usize,
    /// The value that stands for all others if they cannot be read.
    missing: T,
    read: Mutex<Option<Reader<T>>>,
    loaded: OnceLock<(Buffer<T>, LoadOutcome)>,
}

impl<T: Clone + Send + Sync> Later<T> {
    pub(super) fn new(
        length: usize,
        missing: T,
        read: impl FnOnce() -> Read<T> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Later {
            length,
            missing,
            read: Mutex::new(Some(Box::new(read))),
            loaded: OnceLock::new(),
        })
    }

    fn load(&self) -> (Buffer<T>, LoadOutcome) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader is gone after it panicked.
        let failed = || Err(Diagnostic::error("its values could not be read"));
        match read.take().map_or_else(failed, |read| read()) {
            Ok((values, notes)) => (values, Ok(notes)),
            Err(error) => (vec![self.missing.clone(); self.length].into(), Err(error)),
        }
    }
}

impl<T: Clone + Send + Sync> BufferOwner<T> for Arc<Later<T>> {
    fn as_slice(&self) -> &[T] {
        &self.loaded.get_or_init(|| apart(|| self.load())).0
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

/// A column that may still have to be read.
pub(super) trait Pending: Send + Sync {
    /// Reads the column on the caller's threads, before anybody else uses it.
    fn read_now(&self);

    /// The notes or the error of its values, if they have been read.
    fn outcome(&self) -> Option<LoadOutcome>;
}

impl<T: Clone + Send + Sync> Pending for Later<T> {
    fn read_now(&self) {
        self.loaded.get_or_init(|| self.load());
    }

    fn outcome(&self) -> Option<LoadOutcome> {
        self.loaded.get().map(|(_, outcome)| outcome.clone())
    }
}

impl fmt::Debug for dyn Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

pub(super) fn read_all(columns: &[Arc<dyn Pending>]) {
    columns.par_iter().for_each(|column| column.read_now());
}

/// Notes on the columns that have been read, or the first error.
pub(super) fn notes(columns: &[Arc<dyn Pending>]) -> Result<Vec<Diagnostic>> {
    let outcomes = columns.iter().filter_map(|column| column.outcome());
    let notes = outcomes.collect::<Result<Vec<_>, _>>()?;
    Ok(notes.into_iter().flatten().map(Diagnostic::note).collect())
}
