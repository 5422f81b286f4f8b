//! Counts what each thread allocates: the last bound of a script's memory, whatever takes it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;

/// Blocks from this size on are buffers of tensors, which the guard counts, and which are kept for others: no value of a script has
/// one so large.
const LARGE: usize = 4 << 20;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts per thread. A program whose `#[global_allocator]` it is bounds all that a script
/// allocates, and not only what is known to take memory. A test that measures memory has it counted by a [`Watch`] too.
pub struct Counting<W = ()>(PhantomData<fn() -> W>);

/// A second count of all memory.
pub trait Watch {
    /// Counts bytes that are allocated, or freed if they are negative; allocates nothing itself.
    fn count(bytes: isize);
}

impl Watch for () {
    fn count(_: isize) {}
}

impl<W> Counting<W> {
    /// The allocator.
    #[expect(
        clippy::new_without_default,
        reason = "a static takes a const function"
    )]
    pub const fn new() -> Self {
        Counting(PhantomData)
    }
}

/// The bytes in small blocks that this thread has allocated, without those that it has freed; 0 if nothing counts them.
pub(crate) fn held() -> isize {
    HELD.get()
}

/// Counts bytes as this thread's that another one has allocated, or no longer.
pub(crate) fn moved(bytes: isize) {
    HELD.set(HELD.get().wrapping_add(bytes));
}

fn count<W: Watch>(bytes: usize, sign: isize) {
    let change = sign * bytes as isize;
    W::count(change);
    if bytes < LARGE {
        moved(change);
    }
}

// SAFETY: every call goes to the system's allocator as it is, whose promises are those of the callers; counting allocates nothing.
unsafe impl<W: Watch> GlobalAlloc for Counting<W> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count::<W>(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count::<W>(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The system may copy, and then holds both.
        count::<W>(size, 1);
        count::<W>(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count::<W>(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
