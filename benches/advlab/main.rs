//! Benchmarks of what a trainer waits for: recipes, operations, groups one by one, reading, steps of the maze, and a reload.
//!
//!     cargo bench                           at the shapes of training runs: some minutes, and 4 GB
//!     ADVLAB_BENCH=short cargo bench        at small shapes, in seconds
//!     cargo bench -- recipes                only the benchmarks of that name

mod recipes;
mod running;

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use advlab::Batch;
use advlab_cli::report::profile::example;

static IS_SHORT: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("ADVLAB_BENCH").is_some_and(|mode| mode == "short"));

fn main() {
    let longest = Duration::from_millis(if *IS_SHORT { 150 } else { 2000 });
    divan::Divan::default()
        .max_time(longest)
        .config_with_args()
        .main();
}

/// The number of groups, the responses per group, and the longest response in tokens.
#[derive(Clone, Copy, PartialEq)]
struct Shape(usize, usize, usize);

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.0, self.1, self.2)
    }
}

/// Long responses, many short responses, and a batch that fits into the caches.
fn shapes() -> [Shape; 3] {
    if *IS_SHORT {
        [Shape(16, 16, 1024), Shape(512, 16, 32), Shape(16, 16, 128)]
    } else {
        [
            Shape(512, 16, 4096),
            Shape(16384, 16, 128),
            Shape(64, 16, 1024),
        ]
    }
}

/// Returns a batch of a shape. Only the last batch is kept, so that consecutive benchmarks of one shape share it.
fn batch(shape: Shape) -> Arc<Batch> {
    static LAST: Mutex<Option<(Shape, Arc<Batch>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, batch)) = &*last
        && *known == shape
    {
        return batch.clone();
    }
    *last = None;
    let batch = Arc::new(example(shape.0, shape.1, shape.2));
    *last = Some((shape, batch.clone()));
    batch
}
