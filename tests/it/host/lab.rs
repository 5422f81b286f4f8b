//! What the tests of the host share: two small batches, and short ways to run a script on them.

use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::script::{Computed, Host, Outcome, Recipe, State};

/// Two interleaved groups, `a` with three responses and `b` with two, without log-probs.
///
/// | response | 0 | 1 | 2 | 3 | 4 |
/// |---|---|---|---|---|---|
/// | group | a | b | a | b | a |
/// | tokens | 1 | 2 | 3 | 1 | 2 |
/// | reward | 1 | 0 | 0 | 0.5 | -1 |
pub fn batch() -> Batch {
    builder().build().expect("a batch")
}

pub fn builder() -> advlab::batch::BatchBuilder {
    Batch::builder()
        .groups(["a", "b", "a", "b", "a"])
        .lengths([1, 2, 3, 1, 2])
        .response("reward", vec![1.0, 0.0, 0.0, 0.5, -1.0])
}

/// The same with the log-probs of a step after its first update.
pub fn batch_with_logp() -> Batch {
    builder()
        .ragged("old_logp", rows(|_| -1.0))
        .ragged("logp", rows(|i| -1.0 + 0.1 * i as f64))
        .build()
        .expect("a batch")
}

/// A number for each token of the small batch.
pub fn rows(value: impl Fn(usize) -> f64) -> [Vec<f64>; 5] {
    let mut tokens = 0..;
    [1, 2, 3, 1, 2].map(|length| tokens.by_ref().take(length).map(&value).collect())
}

pub fn recipe(text: &str) -> Recipe {
    match Host::new().compile("test", text) {
        Ok(recipe) => recipe,
        Err(error) => panic!("{}", error.render(false)),
    }
}

/// Runs a script on a batch, in a state of its own.
pub fn run_on(text: &str, batch: &Batch) -> Result<Outcome, Diagnostics> {
    let recipe = recipe(text);
    let mut state = recipe.init()?;
    recipe.advantage(batch, &mut state)
}

/// Runs the recipe on the small batch.
pub fn step(recipe: &Recipe, state: &mut State) -> Outcome {
    match recipe.advantage(&batch(), state) {
        Ok(outcome) => outcome,
        Err(error) => panic!("{}", error.render(false)),
    }
}

/// The level and the values of an expression on a batch.
pub fn tensor_on(expression: &str, batch: &Batch) -> (String, Vec<f64>) {
    let text = format!(
        "fn advantage(batch, p) {{ let x = {expression}; print(x.level); for v in x.values() {{ print(v); }} 0 * batch.reward }}"
    );
    let outcome = run_on(&text, batch)
        .unwrap_or_else(|error| panic!("{expression}: {}", error.render(false)));
    let level = outcome.reports.prints[0].clone();
    let number = |text: &String| text.parse().expect("a number");
    (
        level,
        outcome.reports.prints[1..].iter().map(number).collect(),
    )
}

/// Expressions on a batch, each with the level and the values that it has: `batch.correct => response 1 0 0 1 0`.
pub fn are_on(batch: &Batch, cases: &[&str]) {
    for (expression, expected) in cases.iter().map(|case| case.split_once(" => ").unwrap()) {
        let (level, values) = tensor_on(expression, batch);
        let values: String = values.iter().map(|x| format!(" {}", x + 0.0)).collect();
        assert_eq!(format!("{level}{values}"), expected, "{expression}");
    }
}

/// Pairs of expressions on a batch that have the same level and values: `batch.map_groups(|g| 3) === 3 + 0 * batch.reward`.
pub fn agree_on(batch: &Batch, cases: &[&str]) {
    for (one, other) in cases.iter().map(|case| case.split_once(" === ").unwrap()) {
        assert_eq!(tensor_on(one, batch), tensor_on(other, batch), "{one}");
    }
}

/// Expressions on a batch, each with what it prints: `1 / 2 => 0.5`.
pub fn print_on(batch: &Batch, cases: &[&str]) {
    for (expression, expected) in cases.iter().map(|case| case.split_once(" => ").unwrap()) {
        let text = format!("fn advantage(batch, p) {{ print({expression}); 0 * batch.reward }}");
        let outcome = run_on(&text, batch);
        let outcome = outcome.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(outcome.reports.prints.concat(), expected, "{expression}");
    }
}

/// Bodies of `advantage` that go wrong on a batch, each with a part of what is said: `batch.x => no column`.
pub fn fail_on(batch: &Batch, cases: &[&str]) {
    for (body, expected) in cases.iter().map(|case| case.split_once(" => ").unwrap()) {
        let error = run_on(&format!("fn advantage(batch, p) {{ {body} }}"), batch).expect_err(body);
        let said = error[0].to_string();
        assert!(said.contains(expected), "{body}: {said}");
    }
}

/// The values of the advantage of a script on a batch.
pub fn advantage_on(text: &str, batch: &Batch) -> Vec<f64> {
    let outcome = run_on(text, batch).unwrap_or_else(|error| panic!("{}", error.render(false)));
    values(&outcome.advantage)
}

pub fn values(computed: &Computed) -> Vec<f64> {
    computed.buffer().iter().collect()
}

pub fn bits(computed: &Computed) -> Vec<u64> {
    computed.buffer().iter().map(f64::to_bits).collect()
}

/// The first message of what must go wrong.
pub fn message(result: Result<Outcome, Diagnostics>) -> String {
    match result {
        Ok(outcome) => panic!("it went well: {:?}", outcome.advantage),
        Err(error) => error[0].message.clone(),
    }
}
