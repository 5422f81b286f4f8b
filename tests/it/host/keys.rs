//! Keys: responses told apart by texts, and what is remembered under them.

use advlab::batch::Batch;
use advlab::script::{Recipe, State};

use super::lab::{are_on, fail_on, message, recipe, values};

/// Two prompts, two agents over two episodes.
fn batch() -> Batch {
    Batch::builder()
        .groups(["x", "x", "y", "y", "x"])
        .lengths([1, 2, 1, 1, 1])
        .response("reward", vec![1.0, 0.0, 1.0, 0.0, 2.0])
        .response("seat", vec![0.0, 1.0, -0.0, 1.0, 0.0])
        .text("agent", ["a", "b", "a", "b", "a"])
        .text("episode", ["/", "1", "1", "1", "/"])
        .build()
        .unwrap()
}

fn advantage(recipe: &Recipe, state: &mut State) -> Vec<f64> {
    values(&recipe.advantage(&batch(), state).unwrap().advantage)
}

#[test]
fn they_compare_and_group() {
    are_on(
        &batch(),
        &[
            r#"batch.key("agent") == "a" => response 1 0 1 0 1"#,
            r#"batch.key("agent") != "a" => response 0 1 0 1 0"#,
            r#"batch.key("agent") != "none" => response 1 1 1 1 1"#,
            r#""none" == batch.key("agent") => response 0 0 0 0 0"#,
            r#""a" != batch.key("agent") => response 0 1 0 1 0"#,
            r#"batch.key("seat") == 0 => response 1 0 1 0 1"#,
            r#"batch.key("group") == batch.key(["group"]) => response 1 1 1 1 1"#,
            r#"batch.key("agent", "episode") == batch.key("agent") => response 0 0 0 0 0"#,
            r#"batch.key("agent") != batch.key("agent", "episode", "seat") => response 1 1 1 1 1"#,
            r#"batch.regroup(batch.key("agent")).reward.sum("group").expand("response") => response 3 0 1 0 3"#,
            r#"batch.group_by(batch.key("agent")).reward.sum("group").expand("response") => response 4 0 4 0 4"#,
            r#"batch.group_by(batch.seat).reward.sum("group").expand("response") => response 4 0 4 0 4"#,
            r#"batch.group_by(batch.key("agent", "episode")).reward.count("group").expand("response") => response 2 2 1 2 2"#,
            r#"batch.map_groups(|g| g.reward * (g.key("agent") == "a") + if g.key == "y" { 9 } else { 0 }) => response 1 0 10 9 2"#,
        ],
    );
}

#[test]
fn what_is_none_says_what_there_is() {
    fail_on(
        &batch(),
        &[
            r#"batch.key("agents") => the batch has no column `agents` (did you mean `agent`?)"#,
            r#"batch.key("persona") => ; its columns of texts are `agent`, `episode`"#,
            r#"batch.agent => `agent` is a column of texts, not of numbers"#,
            r#"batch.key => `key` is the name of one group"#,
            r#"batch.regroup("agent") => a text column is `batch.key("#,
            r#"batch.map_groups(|g| g.regroup(batch.key("agent")).reward.mean("group").expand("response")) => of different batches cannot be combined"#,
            r#"let g = batch.groups[1]; batch.regroup(g.reward) => of different batches cannot be combined"#,
            r#"let g = batch.groups[1]; g.group_by(batch.seat) => of different batches cannot be combined"#,
            r#"batch.key(["agent", 1]) => `batch.key` takes the names of columns"#,
            r#"batch.key("agent", 1) => `batch.key` takes the names of columns"#,
            r#"batch.key([]) => `batch.key` takes the names of columns"#,
            r#"batch.key("agent") == batch => a key can be compared with a text, a number or a key"#,
            r#"running("b", batch.key("agent"), 0, 1, 1 / batch.reward) => inf cannot be remembered, at response 1 of group "x""#,
            r#"recall("b", batch.key("agent"), batch.length.expand("token")) => a response tensor or a number is needed here, not a token tensor"#,
        ],
    );
}

const MEAN: &str = r#"
fn advantage(batch, p) {
    let b = running("mean", batch.key("agent"), 0.5, 0.5, 0.5 * batch.reward);
    remember("last", batch.key("agent"), batch.reward);
    b
}
"#;

/// Of one key each response sees the one before; what is remembered is there in the next step, in a checkpoint and in the next
/// version.
#[test]
fn what_is_remembered_lasts() {
    let first = recipe(MEAN);
    let mut state = State::default();
    assert_eq!(advantage(&first, &mut state), [0.5, 0.5, 0.75, 0.25, 0.875]);
    assert_eq!(state.recall("mean", "a"), Some(1.4375));
    assert_eq!(state.recall("last", "a"), Some(2.0));
    let kept = state.clone();
    let mut restored = State::from_json(&state.to_json()).unwrap();
    assert_eq!(restored, state);
    assert_eq!(advantage(&first, &mut restored)[..2], [1.4375, 0.125]);
    // The older state has its own.
    assert_eq!(kept.recall("mean", "b"), Some(0.125));
    let recall = r#"fn init(p) { #{ n: 1 } } fn advantage(batch, p) { recall("mean", batch.key("agent"), -1) }"#;
    let other = recipe(recall);
    let mut migrated = other.migrate(&state).unwrap();
    assert_eq!(advantage(&other, &mut migrated)[0], 1.4375);
}

/// A step that fails has remembered nothing.
#[test]
fn a_failed_step_leaves_no_memory() {
    let failing =
        recipe(r#"fn advantage(batch, p) { remember("b", batch.key("agent"), 1); batch.none }"#);
    let mut state = State::default();
    message(failing.advantage(&batch(), &mut state));
    assert_eq!(state, State::default());
}

#[test]
fn a_table_has_at_most_so_many_keys_and_says_so() {
    let bounded = recipe(
        r#"fn advantage(batch, p) { remember("b", batch.key("agent", "episode"), batch.reward, 2); batch.reward }"#,
    );
    let mut state = State::default();
    let outcome = bounded.advantage(&batch(), &mut state).unwrap();
    let said = "\"b\" has had more than 2 keys: the keys written longest ago are forgotten";
    assert_eq!(outcome.reports.notes, [said]);
    assert_eq!(state.recall("b", "a/ //"), Some(2.0));
    assert_eq!(state.recall("b", "b/ 1"), Some(0.0));
    assert_eq!(state.recall("b", "a/ 1"), None, "{state:?}");
}
