//! The work that one comparison may be: what is not decided within it is not decided, on every machine alike.

use std::cell::Cell;

/// Units of about a nanosecond.
const MOST: u64 = 2_300_000;

/// Numbers with more bits than these are not computed.
const MOST_BITS: u64 = 40_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(MOST) };
}

/// Begins a comparison.
pub(super) fn begin() {
    LEFT.set(MOST);
}

/// Takes work; `None` where there is none left, from then on.
pub(super) fn look(units: u64) -> Option<()> {
    let left = LEFT.get().checked_sub(units);
    LEFT.set(left.unwrap_or(0));
    left.map(drop)
}

/// Takes the work of making a number with so many bits.
pub(super) fn spend(bits: u64) -> Option<()> {
    look(50 + bits / 8)?;
    (bits <= MOST_BITS).then_some(())
}

/// Takes the work of the common divisor of two numbers with so many bits.
pub(super) fn divide(less: u64, more: u64) -> Option<()> {
    look(200 + less * 80 + less * less / 20 + less * more / 2000)
}
