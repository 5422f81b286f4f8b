//! Plain numbers in scripts, as every language of the field has them.
//!
//! Rhai's own division of integers is whole (`1 / 2` is 0), and its comparison of floats has a tolerance
//! (`1e-17 > 0.0` is false): in a formula, both are wrong without a word.

use std::any::TypeId;

use rhai::{Dynamic, Engine, FLOAT, INT};

use super::error::raise;
use super::mistake::Mistake;

/// Registers exact comparisons, quotients of integers that are numbers, and what is refused.
pub(super) fn numbers(engine: &mut Engine) {
    // The engine looks its own operators up only where they are slow.
    engine.set_fast_operators(false);
    quotients(engine);
    refused(engine);
    macro_rules! comparisons {
        ($($sign:literal $compare:tt),+) => {$(
            engine.register_fn($sign, |a: FLOAT, b: FLOAT| a $compare b);
            engine.register_fn($sign, |a: INT, b: FLOAT| widened(a) $compare b);
            engine.register_fn($sign, |a: FLOAT, b: INT| a $compare widened(b));
        )+};
    }
    comparisons!("==" ==, "!=" !=, "<" <, "<=" <=, ">" >, ">=" >=);
}

/// Refuses what Rhai has and no recipe means: its `^` of integers goes bit by bit (`2 ^ 3` is 1), where everybody means
/// the power, and a `sleep`, which it has for each number type, would make a run wait.
fn refused(engine: &mut Engine) {
    let (int, float) = (TypeId::of::<INT>(), TypeId::of::<FLOAT>());
    let pair = [int; 2];
    for (name, types) in [
        ("^", &pair[..]),
        ("^=", &pair),
        ("sleep", &[int]),
        ("sleep", &[float]),
    ] {
        engine.register_raw_fn(name, types, move |context, _| {
            let mistake = match name {
                "sleep" => Mistake::Sleep,
                sign => Mistake::BitwisePower { sign },
            };
            Err::<INT, _>(raise(&context, mistake))
        });
    }
}

fn quotients(engine: &mut Engine) {
    engine.register_fn("/", |a: INT, b: INT| widened(a) / widened(b));
    engine.register_raw_fn("/=", [TypeId::of::<INT>(); 2], |_, args| {
        let quotient = widened(args[0].as_int()?) / widened(args[1].as_int()?);
        *args[0] = Dynamic::from_float(quotient);
        Ok(())
    });
}

/// Exact up to 2^53, as wherever integers meet other numbers.
fn widened(whole: INT) -> FLOAT {
    whole as FLOAT
}
