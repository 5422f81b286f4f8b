//! What an input costs, and whether it went where none went before: the bytes that are allocated, the time, the branches taken.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The system's allocator, which counts.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(
            HELD.fetch_add(layout.size(), Relaxed) + layout.size(),
            Relaxed,
        );
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(
            HELD.fetch_add(layout.size(), Relaxed) + layout.size(),
            Relaxed,
        );
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The most bytes that a function held at once, beyond what was held before it, and its result.
pub fn measured<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = run();
    (result, MOST.load(Relaxed).saturating_sub(before))
}

/// The counters of branches, if the build has them: where they begin, and how many there are.
static COUNTERS: Mutex<(usize, usize)> = Mutex::new((0, 0));

/// What code that is built with `-C passes=sancov-module -C llvm-args=-sanitizer-coverage-inline-8bit-counters` calls as it is
/// loaded; nothing calls it in other builds.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: usize, stop: usize) {
    *COUNTERS.lock().unwrap() = (start, stop - start);
}

/// The branches that were taken so far, each with how often: in powers of two.
#[derive(Default)]
pub struct Coverage(Vec<u8>);

impl Coverage {
    /// Whether a branch was taken since the last call that was not taken before, or not as often. Always false in a build
    /// without counters.
    pub fn has_news(&mut self) -> bool {
        let (start, length) = *COUNTERS.lock().unwrap();
        self.0.resize(length, 0);
        let mut has_news = false;
        for (index, seen) in self.0.iter_mut().enumerate() {
            let counter = (start + index) as *mut u8;
            // SAFETY: the linker's section of counters is `length` bytes that live as long as the program; the program itself
            // only adds to them, and a count that is lost between two threads does no harm.
            let count = unsafe { counter.replace(0) };
            let often = count.checked_ilog2().map_or(0, |power| 1 << power);
            has_news |= often & !*seen != 0;
            *seen |= often;
        }
        has_news
    }

    /// How many branches were taken.
    pub fn branches(&self) -> usize {
        self.0.iter().filter(|seen| **seen != 0).count()
    }
}

/// When the input that runs began, in milliseconds of the process; 0 between inputs.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Ends the process if an input runs for longer than `patience`; the input stands in a file.
pub fn end_hangs(patience: Duration, started: Instant, input: &Path) {
    let input = input.to_path_buf();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let began = BEGAN.load(Relaxed);
            if began > 0 && started.elapsed() > Duration::from_millis(began) + patience {
                eprintln!("it hangs: {}", input.display());
                std::process::abort();
            }
        }
    });
}

/// Marks the begin of an input, or the end.
pub fn mark(began: Option<Instant>, started: Instant) {
    let since = began.map_or(0, |now| (now - started).as_millis() as u64 + 1);
    BEGAN.store(since, Relaxed);
}
