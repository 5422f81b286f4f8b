//! What an input costs: the bytes that it allocates, and the time.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use advlab::allocation::{Counting, Watch};

/// The most bytes that all threads have held.
struct Most;

#[global_allocator]
static ALLOCATOR: Counting<Most> = Counting::new();
static HELD: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

impl Watch for Most {
    fn count(bytes: isize) {
        MOST.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }
}

static BEGAN: Mutex<Option<Instant>> = Mutex::new(None);

/// The result of a function, the most bytes that it held at once beyond those before it, and its time.
pub fn measured<R>(run: impl FnOnce() -> R) -> (R, usize, Duration) {
    let (before, began) = (HELD.load(Relaxed), Instant::now());
    MOST.store(before, Relaxed);
    *BEGAN.lock().unwrap() = Some(began);
    let result = run();
    *BEGAN.lock().unwrap() = None;
    let most = (MOST.load(Relaxed) - before).max(0) as usize;
    (result, most, began.elapsed())
}

/// Ends the process if a measured function takes longer than `patience`; its input stands in a file.
pub fn end_hangs(patience: Duration, input: PathBuf) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(patience / 60);
            let began = *BEGAN.lock().unwrap();
            if began.is_some_and(|began| began.elapsed() > patience) {
                eprintln!("it hangs: {}", input.display());
                std::process::abort();
            }
        }
    });
}
