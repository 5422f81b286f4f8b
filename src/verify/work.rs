//! The work that one comparison may be: in a hundredth of a second it is decided, or it is not.

use std::cell::Cell;

/// Units of some four nanoseconds.
const MOST: u64 = 1_500_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(MOST) };
}

/// Begins a comparison.
pub(super) fn begin() {
    LEFT.set(MOST);
}

/// Takes the work of a number with so many bits, common divisors among it; `None` where there is none left.
pub(super) fn spend(bits: u64) -> Option<()> {
    LEFT.set(LEFT.get().checked_sub(10 + bits / 4 + bits * bits / 1024)?);
    Some(())
}
