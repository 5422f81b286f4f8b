//! Counts the memory that each thread allocates. This count limits a script's memory, in addition to the limits on tensors and on
//! the sizes of values.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;

/// Blocks of this many bytes or more are not counted here. They belong to tensors, batches and keys, which the guard counts, and
/// tensors reuse them. No other value of a script needs so large a block.
const LARGE: usize = 4 << 20;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count per thread. If a program uses it as its `#[global_allocator]`, the limit on a script's
/// memory also covers values whose size is not known. Tests that measure memory choose a [`Watch`] as `W`.
pub struct Counting<W = ()>(PhantomData<fn() -> W>);

/// An additional count of all memory, for tests.
pub trait Watch {
    /// Counts allocated bytes; a negative number means freed bytes. This function must not allocate.
    fn count(bytes: isize);
}

impl Watch for () {
    fn count(_: isize) {}
}

impl<W> Counting<W> {
    /// Makes the allocator.
    #[expect(
        clippy::new_without_default,
        reason = "`new` initialises a static, which needs a const function, and `Default::default` is not const"
    )]
    pub const fn new() -> Self {
        Counting(PhantomData)
    }
}

/// Returns the number of bytes that this thread (or another thread for it, see [`moved`]) has allocated, minus those that it has
/// freed, in blocks smaller than [`LARGE`]; 0 if the program's allocator is not [`Counting`].
pub(crate) fn held() -> isize {
    HELD.get()
}

/// Adds bytes to this thread's count, such as the bytes that another thread allocated for it; a negative number subtracts.
pub(crate) fn moved(bytes: isize) {
    HELD.with(|held| held.set(held.get().wrapping_add(bytes)));
}

fn count<W: Watch>(bytes: usize, sign: isize) {
    let change = sign * bytes as isize;
    W::count(change);
    if bytes < LARGE {
        moved(change);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, so the caller's promises hold for that call, too. Counting
// does not allocate.
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
        // If the system copies the block, the old and the new block exist at the same time, so the new block is counted first.
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
