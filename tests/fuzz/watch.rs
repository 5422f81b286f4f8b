//! What an input costs: the bytes that it allocates, and the time.

use std::alloc::{GlobalAlloc, Layout};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use advlab::allocation::Counting;

/// The program's allocator, with the most that all threads have held.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn count(layout: Layout) {
    MOST.fetch_max(
        HELD.fetch_add(layout.size(), Relaxed) + layout.size(),
        Relaxed,
    );
}

// SAFETY: every call goes to the program's allocator as it is, whose promises are those of the callers.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: as above.
        unsafe { Counting.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: as above.
        unsafe { Counting.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { Counting.dealloc(at, layout) }
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
    let most = MOST.load(Relaxed).saturating_sub(before);
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
