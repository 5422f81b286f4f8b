//! Exact numbers, and the limit on the work of one comparison. The limit is not a time, so that verdicts are the same everywhere.

use std::cell::Cell;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Zero};

pub(super) type Rational = num_rational::BigRational;

/// The limit on work, in units of about a nanosecond.
const MOST: u64 = 2_300_000;

/// The maximum number of bits of a number that is computed.
const MOST_BITS: u64 = 40_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(MOST) };
}

/// Begins a comparison with the full limit.
pub(super) fn begin() {
    LEFT.set(MOST);
}

/// Deducts units of work from the limit; returns `None` once the limit is used up.
pub(super) fn look(units: u64) -> Option<()> {
    let left = LEFT.get().checked_sub(units);
    LEFT.set(left.unwrap_or(0));
    left.map(drop)
}

/// Deducts the work of computing a number of `bits` bits from the limit; returns `None` if the work or the bits exceed a limit.
pub(super) fn spend(bits: u64) -> Option<()> {
    look(50 + bits / 8)?;
    (bits <= MOST_BITS).then_some(())
}

pub(super) fn whole(number: impl Into<BigInt>) -> Rational {
    Rational::from_integer(number.into())
}

/// Returns a number times a power of ten; `None` if the power is too large.
pub(super) fn shifted(number: BigInt, power: i32) -> Option<Rational> {
    spend(4 * u64::from(power.unsigned_abs()))?;
    let ten = BigInt::from(10).pow(power.unsigned_abs());
    if power < 0 {
        quotient(number, ten)
    } else {
        Some(whole(number * ten))
    }
}

/// Returns the reduced quotient of a whole number and a positive whole number. One division reduces both numbers to the size of
/// the smaller; `gcd` then finds their greatest common divisor by halving.
pub(super) fn quotient(above: BigInt, below: BigInt) -> Option<Rational> {
    spend(above.bits() + below.bits())?;
    if below.is_one() || above.is_zero() {
        return Some(whole(above));
    }
    let (less, more) = if above.bits() < below.bits() {
        (&above, &below)
    } else {
        (&below, &above)
    };
    let (small, large) = (less.bits(), more.bits());
    look(200 + small * 80 + small * small / 20 + small * large / 2000)?;
    let divisor = less.gcd(&(more % less));
    Some(Rational::new_raw(above / &divisor, below / divisor))
}
