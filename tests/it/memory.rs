//! The allocator of these tests: that of the program, which counts for the sandbox, with the most that each thread has held.

use std::cell::Cell;

use advlab::allocation::{Counting, Watch};
use advlab::deep_stack;

struct Most;

#[global_allocator]
static ALLOCATOR: Counting<Most> = Counting::new();

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

impl Watch for Most {
    fn count(bytes: isize) {
        HELD.set(HELD.get() + bytes);
        MOST.set(MOST.get().max(HELD.get()));
    }
}

/// The result of a function, and the most bytes that its thread held beyond those before it. The thread is one on which scripts run.
pub fn most_held<R: Send>(run: impl FnOnce() -> R + Send) -> (R, usize) {
    deep_stack::call(|| {
        let before = HELD.get();
        MOST.set(before);
        let result = run();
        (result, (MOST.get() - before) as usize)
    })
}
