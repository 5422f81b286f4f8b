//! Comparisons: exact as IEEE has them, and never silently false.

use super::lab::{batch, builder, printed, run_on, tensor, tensor_on};

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
fn a_tensor_with_each_kind_of_number_on_either_side() {
    for (sign, holds) in SIGNS {
        for (written, number) in [("0", 0.0), ("0.5", 0.5), ("1", 1.0), ("true", 1.0)] {
            let found = tensor(&format!("batch.reward {sign} {written}"));
            assert_eq!(
                found,
                truths(REWARDS.iter().map(|&r| holds(r, number))),
                "reward {sign} {written}"
            );
            let found = tensor(&format!("{written} {sign} batch.reward"));
            assert_eq!(
                found,
                truths(REWARDS.iter().map(|&r| holds(number, r))),
                "{written} {sign} reward"
            );
        }
    }
}

#[test]
fn a_tensor_with_a_tensor_of_each_level() {
    for (sign, holds) in SIGNS {
        let found = tensor(&format!("batch.reward {sign} batch.correct"));
        let correct = [1., 0., 0., 1., 0.];
        let pairs = REWARDS.iter().zip(correct);
        assert_eq!(found, truths(pairs.map(|(&r, c)| holds(r, c))), "{sign}");

        let found = tensor(&format!("batch.reward {sign} batch.reward.max(\"group\")"));
        let best = [1., 0.5, 1., 0.5, 1.];
        let pairs = REWARDS.iter().zip(best);
        assert_eq!(found, truths(pairs.map(|(&r, b)| holds(r, b))), "{sign}");
    }
}

/// The engine's own comparison of floats has an epsilon; that of tensors has none.
#[test]
fn no_epsilon() {
    let tiny = builder()
        .response(
            "x",
            vec![1e-17, 0.0, -1e-300, f64::MIN_POSITIVE, 1.0 + f64::EPSILON],
        )
        .build()
        .unwrap();
    assert_eq!(tensor_on("batch.x > 0", &tiny).1, [1., 0., 0., 1., 1.]);
    assert_eq!(tensor_on("batch.x == 0.0", &tiny).1, [0., 1., 0., 0., 0.]);
    assert_eq!(tensor_on("batch.x == 1.0", &tiny).1, [0.; 5]);
    assert_eq!(tensor_on("batch.x < 0", &tiny).1, [0., 0., 1., 0., 0.]);
}

/// Of two batch tensors, a comparison is a plain true or false: a script can branch on it.
#[test]
fn batch_tensors_compare_to_a_plain_truth() {
    assert_eq!(printed("batch.reward.mean(\"batch\") < 1"), "true");
    assert_eq!(printed("1 < batch.reward.mean(\"batch\")"), "false");
    let branch = "if batch.reward.max(\"batch\") >= 1 { \"some right\" } else { \"none\" }";
    assert_eq!(printed(branch), "some right");
    let both = "batch.reward.max(\"batch\") == 1 && batch.reward.min(\"batch\") == -1";
    assert_eq!(printed(both), "true");
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
                let result = run_on(&text, &batch());
                assert!(
                    result.is_err(),
                    "{pair} gave {:?}",
                    result.map(|o| o.advantage)
                );
            }
        }
    }
}
