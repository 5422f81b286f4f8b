//! Columns that are read when they are first used: a batch may hold gigabytes of which a recipe needs one column.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::batch::{Buffer, Owner};
use crate::diagnostic::Diagnostic;

/// The values of a column, and notes on what is odd in them.
pub(super) type Read<T> = Result<(Buffer<T>, Vec<String>), Diagnostic>;

/// Values in any case, and notes or the error because of which these are not those of the file.
type Loaded<T> = (Buffer<T>, Result<Vec<String>, Diagnostic>);

/// A column of which only the number of values is known until it is used.
pub(super) struct Later<T: 'static> {
    length: usize,
    read: Box<dyn Fn() -> Read<T> + Send + Sync>,
    /// The values if they cannot be read.
    missing: T,
    loaded: OnceLock<Loaded<T>>,
}

impl<T: Clone + Send + Sync> Later<T> {
    pub(super) fn new(
        length: usize,
        missing: T,
        read: impl Fn() -> Read<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Later {
            length,
            read: Box::new(read),
            missing,
            loaded: OnceLock::new(),
        })
    }

    fn load(&self) -> Loaded<T> {
        let missing = || Buffer::from(vec![self.missing.clone(); self.length]);
        match (self.read)() {
            Ok((values, notes)) => (values, Ok(notes)),
            Err(error) => (missing(), Err(error)),
        }
    }
}

impl<T: Clone + Send + Sync> Owner<T> for Arc<Later<T>> {
    fn as_slice(&self) -> &[T] {
        &self.loaded.get_or_init(|| apart(|| self.load())).0
    }

    fn count(&self) -> usize {
        self.length
    }
}

/// Works on threads of its own: a thread of the pool that waits for others takes up other work, which may need the very
/// column that it is reading.
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
    /// Reads it now.
    fn read_now(&self);

    /// What there is to say about its values, if they have been read.
    fn outcome(&self) -> Option<Result<Vec<String>, Diagnostic>>;
}

impl<T: Clone + Send + Sync> Pending for Later<T> {
    fn read_now(&self) {
        // Not in the lock: see `apart`.
        let loaded = self.load();
        self.loaded.get_or_init(|| loaded);
    }

    fn outcome(&self) -> Option<Result<Vec<String>, Diagnostic>> {
        self.loaded.get().map(|(_, outcome)| outcome.clone())
    }
}

impl fmt::Debug for dyn Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

/// Reads all that is still to be read, in parallel.
pub(super) fn read_all(columns: &[Arc<dyn Pending>]) {
    let unread = columns
        .par_iter()
        .filter(|column| column.outcome().is_none());
    unread.for_each(|column| column.read_now());
}

/// Notes on the columns that have been read, or the first error.
pub(super) fn notes(columns: &[Arc<dyn Pending>]) -> Result<Vec<Diagnostic>, Diagnostic> {
    let outcomes = columns.iter().filter_map(|column| column.outcome());
    let notes = outcomes.collect::<Result<Vec<_>, _>>()?;
    Ok(notes.into_iter().flatten().map(Diagnostic::note).collect())
}
