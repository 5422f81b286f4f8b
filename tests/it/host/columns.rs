//! Columns: those of the batch, and those that follow from others.

use advlab::batch::Batch;
use advlab::script::Host;

use super::lab::{
    batch, batch_with_logp, builder, message, printed_on, rows, run_on, tensor, tensor_on,
};

fn response(values: &[f64]) -> (String, Vec<f64>) {
    ("response".to_string(), values.to_vec())
}

fn token(values: &[f64]) -> (String, Vec<f64>) {
    ("token".to_string(), values.to_vec())
}

#[test]
fn correct_is_a_reward_above_zero() {
    assert_eq!(tensor("batch.correct"), response(&[1., 0., 0., 1., 0.]));
}

#[test]
fn a_column_of_its_own_goes_before_a_derived_one() {
    let batch = builder()
        .response("correct", vec![0.0, 1.0, 0.0, 1.0, 0.0])
        .response("length", vec![10.0, 20.0, 30.0, 40.0, 50.0])
        .build()
        .unwrap();
    let correct = tensor_on("batch.correct", &batch);
    assert_eq!(correct, response(&[0., 1., 0., 1., 0.]));
    let length = tensor_on("batch.length", &batch);
    assert_eq!(length, response(&[10., 20., 30., 40., 50.]));
}

#[test]
fn length_is_the_number_of_tokens_that_count() {
    assert_eq!(tensor("batch.length"), response(&[1., 2., 3., 1., 2.]));
}

#[test]
fn the_reward_stands_on_the_last_token() {
    let expected = token(&[1., 0., 0., 0., 0., 0., 0.5, 0., -1.]);
    assert_eq!(tensor("batch.token_reward"), expected);
}

#[test]
fn the_reward_is_the_sum_of_its_tokens() {
    let batch = Batch::builder()
        .groups([0, 0])
        .lengths([2, 1])
        .ragged("token_reward", [vec![0.25f64, 0.5], vec![-1.0]])
        .build()
        .unwrap();
    assert_eq!(tensor_on("batch.reward", &batch), response(&[0.75, -1.0]));
    assert_eq!(tensor_on("batch.correct", &batch), response(&[1.0, 0.0]));
}

#[test]
fn the_reward_is_correct_where_there_is_nothing_else() {
    let batch = Batch::builder()
        .groups([0, 0])
        .response("correct", vec![0.0, 1.0])
        .build()
        .unwrap();
    assert_eq!(tensor_on("batch.reward", &batch), response(&[0.0, 1.0]));
}

#[test]
fn a_missing_logp_is_old_logp_and_is_noted() {
    let batch = builder()
        .ragged("old_logp", rows(|_| -1.5))
        .build()
        .unwrap();
    let text = "fn loss(batch, p) { (batch.logp * batch.reward).mean(\"batch\") }";
    let outcome = run_on(text, &batch).unwrap();
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
    assert!(outcome.notes[0].contains("`old_logp` stands for it"));
}

#[test]
fn the_gradient_by_logp_is_not_one_by_old_logp() {
    let only_old = "fn loss(batch, p) { (batch.old_logp * batch.reward).mean(\"batch\") }";
    assert!(message(run_on(only_old, &batch_with_logp())).contains("logp"));
}

#[test]
fn has_tells_what_is_there() {
    let batch = batch_with_logp();
    for (column, expected) in [
        ("reward", "true"),
        ("correct", "true"),
        ("logp", "true"),
        ("ref_logp", "false"),
        ("anything", "false"),
    ] {
        let found = printed_on(&format!("batch.has(\"{column}\")"), &batch);
        assert_eq!(found, expected, "{column}");
    }
}

/// 0.1 + 0.2 + 0.4 and 0.7 are one reward to whoever gave them, also in f32.
#[test]
fn a_reward_by_token_is_as_precise_as_it_was_given() {
    let batch = Batch::builder()
        .groups([0, 0])
        .ragged(
            "token_reward",
            [vec![0.1f32, 0.2, 0.4], vec![0.0, 0.0, 0.7]],
        )
        .lengths([3, 3])
        .build()
        .unwrap();
    let (_, rewards) = tensor_on("batch.reward", &batch);
    assert_eq!(rewards, [f64::from(0.7f32); 2]);
    let (_, std) = tensor_on("batch.reward.std(\"group\")", &batch);
    assert_eq!(std, [0.0]);
}

/// Comments, other texts, methods, parameters and the state are no columns. What may be a name is taken for one.
#[test]
fn a_recipe_says_which_columns_it_reads() {
    let advantage = |body: &str| format!("fn advantage(batch, p) {{ {body} }}");
    for (script, reads, is_computed) in [
        (advantage("batch.reward.mean(\"batch\").value() + batch.kl"), "kl reward", false),
        (advantage("/* batch.value */ // no batch.value\n batch[\"token_reward\"]"), "token_reward", false),
        (advantage("batch[\"value\"].mean(\"response\")"), "value", false),
        (advantage("let m = [[batch]]; m[0][1].kl"), "kl", false),
        (advantage("let m = #{}; batch[m.name].abs()"), "name", true),
        (advantage("metric(\"value\", 1.0); print(`value`); batch.reward"), "reward", false),
        (
            advantage("batch.map_groups(|g| if g.has(\"value\") { g?.value } else { g.reward })"),
            "reward value",
            false,
        ),
        (advantage("batch.key(\"agent\", \"episode\"); batch.key([\"turn\"]); batch.groups[0].reward"), "agent episode reward turn", false),
        (advantage("const NAME = \"value\"; batch.column(NAME)"), "", true),
        (advantage("batch.column(\"val\" + \"ue\")"), "ue val", true),
        (advantage("let xs = [1, 2]; let x = xs[xs.len() - 1]; for (y, i) in xs { x += xs[i]; } for i in 0..2 { x += xs[i]; } batch.reward * x"), "reward", true),
        (advantage("let m = #{ value: 1 }; this.value = m.value; this.by[`${p}`] = m[`v`]; batch.reward"), "reward v value", false),
        (
            "fn params() { #{ value: #{ value: 1 }, column: #{ value: \"reward\" } } } fn init(p) { #{} } \
             fn advantage(batch, p) { batch.reward * p.value }".to_string(),
            "reward",
            false,
        ),
        (
            "fn params() { #{ column: #{ value: \"reward\" } } } fn advantage(batch, p) { batch[p.column] }".to_string(),
            "",
            true,
        ),
        (advantage("let total = 0; for name in batch.columns(\"re\") { total += batch[name]; } total"), "", true),
        (advantage("let n = \"kl\"; column(batch, n)"), "", true),
        ("fn of(b, name) { b.column(name) } fn advantage(batch, p) { of(batch, \"reward\") }".to_string(), "", true),
        (advantage("Fn(\"column\").call(batch, \"value\")"), "", true),
        ("fn of(b) { b.reward } fn advantage(batch, p) { Fn(\"of\").call(batch) }".to_string(), "reward", true),
        ("fn loss(batch, p) { -batch.advantage }".to_string(), "advantage logp", false),
        ("import \"gae\" as gae; fn advantage(batch, p) { batch.reward }".to_string(), "reward token_reward value", false),
    ] {
        let recipe = Host::new().compile("reads", &script);
        let recipe = recipe.unwrap_or_else(|error| panic!("{}", error.render(false)));
        let reads: Vec<&str> = reads.split_whitespace().collect();
        assert!(recipe.reads().names.iter().eq(reads), "{script}: {:?}", recipe.reads());
        assert_eq!(recipe.reads().is_computed, is_computed, "{script}");
    }
}

/// Code decides by the kind of a problem and the column's name, not by a message's text.
#[test]
fn a_column_that_is_not_there_is_told_by_name() {
    for (text, missing) in [
        ("batch.valeu", Some("valeu")),
        ("batch.ref_logp", Some("ref_logp")),
        ("batch.key(\"agent\") == 1", Some("agent")),
        ("batch.groups[0].value", Some("value")),
        ("batch.reward.mean(\"token\")", None),
        ("throw \"the batch has no column `value`\"", None),
    ] {
        let error = run_on(&format!("fn advantage(batch, p) {{ {text} }}"), &batch()).unwrap_err();
        assert_eq!(error[0].missing_column(), missing, "{text}");
    }
}
