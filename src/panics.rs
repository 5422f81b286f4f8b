//! Catches panics of other crates on damaged input, so that the caller can return an error.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of another crate's function, or `None` if the function panics.
pub fn caught<T>(read: impl FnOnce() -> T) -> Option<T> {
    // Calls can be nested: after an inner call, the outer call still expects panics.
    let before = IS_EXPECTED.replace(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    IS_EXPECTED.set(before);
    read.ok()
}

/// Ensures that panics which [`caught`] turns into `None` are not printed.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_panic_that_is_caught_within_another_is_not_printed() {
        static PRINTED: AtomicUsize = AtomicUsize::new(0);
        let (own, before) = (thread::current().id(), panic::take_hook());
        panic::set_hook(Box::new(move |info| match thread::current().id() == own {
            true => drop(PRINTED.fetch_add(1, Ordering::Relaxed)),
            false => before(info),
        }));
        silence_caught();
        let nested = || {
            assert_eq!(caught(|| 1), Some(1));
            assert_eq!(caught(|| panic!("inside")), None::<u8>);
            panic!("outside")
        };
        assert_eq!(caught(nested), None::<u8>);
        assert_eq!(PRINTED.load(Ordering::Relaxed), 0);
        let uncaught = catch_unwind(|| panic!("to be printed"));
        assert!(uncaught.is_err());
        assert_eq!(PRINTED.load(Ordering::Relaxed), 1);
    }
}
