//! State: what hooks see as `this`, over steps and over versions.

use advlab::script::{Recipe, State};

use super::lab::{batch, fail_on, message, recipe, step};

const COUNTER: &str = r#"
fn init(p) { #{ steps: 0, history: [] } }
fn advantage(batch, p) {
    this.steps += 1;
    this.history.push(batch.reward.mean("batch").value());
    metric("steps", this.steps);
    metric("kept", this.history.len());
    batch.reward
}
"#;

fn metric(recipe: &Recipe, state: &mut State, name: &str) -> f64 {
    let outcome = step(recipe, state);
    let mut metrics = outcome.reports.metrics.into_iter();
    metrics.find(|(known, _)| known == name).expect(name).1
}

#[test]
fn it_lasts_over_steps() {
    let recipe = recipe(COUNTER);
    let mut state = recipe.init().unwrap();
    for expected in 1..=5 {
        assert_eq!(metric(&recipe, &mut state, "steps"), f64::from(expected));
    }
    assert_eq!(metric(&recipe, &mut state, "kept"), 6.0);
}

/// Reward, advantage and loss of a step see one state, in that order.
#[test]
fn hooks_of_a_step_share_it() {
    let recipe = recipe(
        r#"
        fn init(p) { #{ seen: "" } }
        fn reward(batch, p) { this.seen += "r"; batch.reward }
        fn advantage(batch, p) { this.seen += "a"; print(this.seen); batch.reward }
    "#,
    );
    let mut state = recipe.init().unwrap();
    assert_eq!(step(&recipe, &mut state).reports.prints, ["ra"]);
    assert_eq!(step(&recipe, &mut state).reports.prints, ["rara"]);
}

#[test]
fn a_step_that_fails_leaves_it_as_it_was() {
    let recipe = recipe(
        r#"
        fn init(p) { #{ steps: 0 } }
        fn advantage(batch, p) {
            this.steps += 1;
            metric("steps", this.steps);
            if this.steps == 2 { throw "the second step"; }
            batch.reward
        }
    "#,
    );
    let mut state = recipe.init().unwrap();
    assert_eq!(metric(&recipe, &mut state, "steps"), 1.0);
    let before = state.clone();
    assert!(message(recipe.advantage(&batch(), &mut state)).contains("the second step"));
    assert_eq!(state, before);
}

/// Without a `migrate`, what `init` has beyond the old state is added.
#[test]
fn a_new_version_takes_it_over() {
    for (old, new, expected) in [
        (
            "fn init(p) { #{ a: 1 } } fn advantage(batch, p) { this.a = 5; batch.reward }",
            "fn init(p) { #{ a: 100, b: 2 } } fn advantage(batch, p) { metric(\"x\", this.a + this.b); batch.reward }",
            7.0,
        ),
        (
            "fn init(p) { #{ total: 6.0, n: 3 } } fn advantage(batch, p) { batch.reward }",
            "fn init(p) { #{ mean: 0.0 } } fn migrate(old, p) { #{ mean: old.total / old.n } }
             fn advantage(batch, p) { metric(\"x\", this.mean); batch.reward }",
            2.0,
        ),
    ] {
        let (old, new) = (recipe(old), recipe(new));
        let mut state = old.init().unwrap();
        step(&old, &mut state);
        let mut state = new.migrate(&state).unwrap();
        assert_eq!(metric(&new, &mut state, "x"), expected);
    }
}

/// Only what a checkpoint can hold is a state.
#[test]
fn what_cannot_be_kept_is_refused() {
    let cases = [
        "this.x = batch; batch.reward => `this.x` is a batch",
        "this.x = batch.reward; batch.reward => `this.x` is a response tensor",
        "this.x = |x| x; batch.reward => `this.x` is a function",
        "this.x = [1, [batch.reward]]; batch.reward => `this.x[1][0]` is a response tensor",
    ];
    fail_on(&batch(), &cases);
    for returned in ["1", "[]", "()", "\"text\""] {
        let text =
            format!("fn init(p) {{ {returned} }}\nfn advantage(batch, p) {{ batch.reward }}");
        assert!(recipe(&text).init().is_err(), "{returned}");
    }
}
