//! Comparisons: exact as IEEE has them, and never silently false.

use super::lab::{are_on, batch, builder, print_on, run_on, tensor_on};

#[test]
fn a_tensor_with_numbers_on_either_side_and_with_tensors() {
    const REWARDS: [f64; 5] = [1.0, 0.0, 0.0, 0.5, -1.0];
    type Sign = (&'static str, fn(&f64, &f64) -> bool);
    let signs: [Sign; 6] = [
        ("==", f64::eq),
        ("!=", f64::ne),
        ("<", f64::lt),
        ("<=", f64::le),
        (">", f64::gt),
        (">=", f64::ge),
    ];
    for (sign, holds) in signs {
        for (other, values) in [
            ("0", [0.0; 5]),
            ("0.5", [0.5; 5]),
            ("1", [1.0; 5]),
            ("true", [1.0; 5]),
            ("batch.correct", [1., 0., 0., 1., 0.]),
            ("batch.reward.max(\"group\")", [1., 0.5, 1., 0.5, 1.]),
        ] {
            let pairs = || REWARDS.iter().zip(&values);
            let right: Vec<bool> = pairs().map(|(r, x)| holds(r, x)).collect();
            let left: Vec<bool> = pairs().map(|(r, x)| holds(x, r)).collect();
            for (text, expected) in [
                (format!("batch.reward {sign} {other}"), right),
                (format!("{other} {sign} batch.reward"), left),
            ] {
                let expected = expected.into_iter().map(|truth| f64::from(u8::from(truth)));
                let expected = ("response".to_string(), expected.collect());
                assert_eq!(tensor_on(&text, &batch()), expected, "{text}");
            }
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
