//! Comparisons: exact as IEEE has them, and never silently false.

use super::lab::{are_on, batch, builder, print_on, run_on, tensor};

type Holds = fn(f64, f64) -> bool;

const SIGNS: [(&str, Holds); 6] = [
    ("==", |a, b| a == b),
    ("!=", |a, b| a != b),
    ("<", |a, b| a < b),
    ("<=", |a, b| a <= b),
    (">", |a, b| a > b),
    (">=", |a, b| a >= b),
];

const REWARDS: [f64; 5] = [1.0, 0.0, 0.0, 0.5, -1.0];

fn truths(expected: impl Iterator<Item = bool>) -> (String, Vec<f64>) {
    let values = expected.map(|truth| f64::from(u8::from(truth))).collect();
    ("response".to_string(), values)
}

#[test]
fn a_tensor_with_numbers_on_either_side_and_with_tensors() {
    for (sign, holds) in SIGNS {
        for (written, number) in [("0", 0.0), ("0.5", 0.5), ("1", 1.0), ("true", 1.0)] {
            let right = tensor(&format!("batch.reward {sign} {written}"));
            let expected = truths(REWARDS.iter().map(|&r| holds(r, number)));
            assert_eq!(right, expected, "reward {sign} {written}");
            let left = tensor(&format!("{written} {sign} batch.reward"));
            let expected = truths(REWARDS.iter().map(|&r| holds(number, r)));
            assert_eq!(left, expected, "{written} {sign} reward");
        }
        for (other, values) in [
            ("batch.correct", [1., 0., 0., 1., 0.]),
            ("batch.reward.max(\"group\")", [1., 0.5, 1., 0.5, 1.]),
        ] {
            let found = tensor(&format!("batch.reward {sign} {other}"));
            let pairs = REWARDS.iter().zip(values);
            assert_eq!(
                found,
                truths(pairs.map(|(&r, x)| holds(r, x))),
                "{sign} {other}"
            );
        }
    }
}

/// The engine's own comparison of floats has an epsilon; that of tensors has none.
#[test]
fn no_epsilon() {
    let x = vec![1e-17, 0.0, -1e-300, f64::MIN_POSITIVE, 1.0 + f64::EPSILON];
    are_on(
        &builder().response("x", x).build().unwrap(),
        &[
            "batch.x > 0 => response 1 0 0 1 1",
            "batch.x == 0.0 => response 0 1 0 0 0",
            "batch.x == 1.0 => response 0 0 0 0 0",
            "batch.x < 0 => response 0 0 1 0 0",
        ],
    );
}

/// Of two batch tensors, a comparison is a plain true or false: a script can branch on it.
#[test]
fn batch_tensors_compare_to_a_plain_truth() {
    print_on(
        &batch(),
        &[
            r#"batch.reward.mean("batch") < 1 => true"#,
            r#"1 < batch.reward.mean("batch") => false"#,
            r#"if batch.reward.max("batch") >= 1 { "some right" } else { "none" } => some right"#,
            r#"batch.reward.max("batch") == 1 && batch.reward.min("batch") == -1 => true"#,
        ],
    );
}

/// Rhai calls two values of types that it knows no comparison for unequal, without a word. Not of tensors.
#[test]
fn a_tensor_with_what_is_no_number_is_an_error() {
    for other in ["\"text\"", "()", "[1.0]", "#{ a: 1 }", "'c'", "batch"] {
        for sign in ["==", "!=", "<"] {
            for pair in [
                format!("batch.reward {sign} {other}"),
                format!("{other} {sign} batch.reward"),
            ] {
                let text = format!("fn advantage(batch, p) {{ where({pair}, 1, 0) }}");
                let gave = run_on(&text, &batch()).map(|outcome| outcome.advantage);
                assert!(gave.is_err(), "{pair} gave {gave:?}");
            }
        }
    }
}
