//! Panics of crates at damaged input, which are errors of that input.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The result of a crate's function; `None` if it panics.
pub fn caught<T>(read: impl FnOnce() -> T) -> Option<T> {
    IS_EXPECTED.set(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    IS_EXPECTED.set(false);
    read.ok()
}

/// Has the program print no panic that [`caught`] turns into an error.
pub fn silence_caught() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_EXPECTED.get() {
                print(info);
            }
        }));
    });
}
