//! Plain numbers in scripts.

use super::lab::{advantage_on, batch, fail_on, print_on};

/// In Python `1 / 2` is 0.5, and so it is here; a formula that is 0 by accident gives neither a gradient nor an error.
#[test]
fn the_quotient_of_whole_numbers_is_a_number() {
    print_on(
        &batch(),
        &[
            "1 / 2 => 0.5",
            "7 / 2 => 3.5",
            "6 / 3 => 2.0",
            "-1 / 4 => -0.25",
            "{ let a = 1; let b = 3; a / b * 3 } => 1.0",
            "{ let a = 3; a /= 2; a } => 1.5",
            "{ let m = #{ a: [3] }; m.a[0] /= 2; m.a[0] } => 1.5",
            "batch.step / 4 => 0.0",
            "7 % 2 => 1",
            "(7 / 2).floor() => 3.0",
            "(7 / 2).to_int() => 3",
            "1 / 0 > 1e300 => true",
        ],
    );
    let text =
        "fn params() { #{ k: #{ value: 4 } } } fn advantage(batch, p) { 1 / p.k * batch.reward }";
    assert_eq!(advantage_on(text, &batch())[0], 0.25);
}

#[test]
fn comparisons_are_exact() {
    print_on(
        &batch(),
        &[
            "1e-17 > 0.0 => true",
            "1e-17 > 0 => true",
            "0 < 1e-300 => true",
            "1.0 == 1.0 + 2.3e-16 => false",
            "0.1 + 0.2 == 0.3 => false",
            "0.5 == 0.5 => true",
            "2 == 2.0 => true",
            "2.0 != 2 => false",
            "3 >= 3.0 => true",
            "{ let nan = 0.0 / 0.0; nan == nan } => false",
            "[0.1, 0.3].contains(0.1 + 0.2) => false",
        ],
    );
}

#[test]
fn a_place_in_an_array_is_a_whole_number() {
    fail_on(
        &batch(),
        &["let a = [1, 2, 3]; a[3 / 2] * batch.reward => integer"],
    );
}
