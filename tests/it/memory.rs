//! The allocator of these tests: that of the program, which counts for the sandbox, with the most that each thread has held.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use advlab::allocation::Counting;

struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: isize) {
    HELD.set(HELD.get() + sign * bytes as isize);
    MOST.set(MOST.get().max(HELD.get()));
}

// SAFETY: every call goes to the program's allocator as it is, whose promises are those of the callers.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { Counting.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { Counting.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: as above.
        unsafe { Counting.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { Counting.dealloc(at, layout) }
    }
}

/// The result of a function, and the most bytes that its thread held beyond those before it.
pub fn most_held<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = run();
    (result, (MOST.get() - before) as usize)
}
