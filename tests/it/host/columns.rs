//! Columns: those of the batch, and those that follow from others.

use advlab::batch::Batch;
use advlab::script::Host;

use super::lab::{
    are_on, batch, batch_with_logp, builder, message, print_on, rows, run_on, tensor_on,
};

#[test]
fn columns_follow_from_others() {
    are_on(
        &batch(),
        &[
            "batch.correct => response 1 0 0 1 0",
            // Only tokens that count.
            "batch.length => response 1 2 3 1 2",
            "batch.token_reward => token 1 0 0 0 0 0 0.5 0 -1",
        ],
    );
    let own = builder().response("correct", vec![0.0, 1.0, 0.0, 1.0, 0.0]);
    let own = own.response("length", vec![10.0, 20.0, 30.0, 40.0, 50.0]);
    let two = || Batch::builder().groups([0, 0]);
    let by_token = two().ragged("token_reward", [vec![0.25f64, 0.5], vec![-1.0]]);
    let only_correct = two().response("correct", vec![0.0, 1.0]);
    for (batch, case) in [
        (&own, "batch.correct => response 0 1 0 1 0"),
        (&own, "batch.length => response 10 20 30 40 50"),
        (&by_token, "batch.reward => response 0.75 -1"),
        (&by_token, "batch.correct => response 1 0"),
        (&only_correct, "batch.reward => response 0 1"),
    ] {
        are_on(&batch.clone().build().unwrap(), &[case]);
    }
}

#[test]
fn a_missing_logp_is_old_logp_and_is_noted() {
    let batch = builder().ragged("old_logp", rows(|_| -1.5));
    let text = "fn loss(batch, p) { (batch.logp * batch.reward).mean(\"batch\") }";
    let outcome = run_on(text, &batch.build().unwrap()).unwrap();
    assert_eq!(
        outcome.reports.notes.len(),
        1,
        "{:?}",
        outcome.reports.notes
    );
    assert!(outcome.reports.notes[0].contains("`old_logp` is used instead"));
}

#[test]
fn the_gradient_by_logp_is_not_one_by_old_logp() {
    let only_old = "fn loss(batch, p) { (batch.old_logp * batch.reward).mean(\"batch\") }";
    assert!(message(run_on(only_old, &batch_with_logp())).contains("logp"));
}

#[test]
fn has_tells_what_is_there() {
    print_on(
        &batch_with_logp(),
        &[
            "batch.has(\"reward\") => true",
            "batch.has(\"correct\") => true",
            "batch.has(\"logp\") => true",
            "batch.has(\"ref_logp\") => false",
            "batch.has(\"anything\") => false",
        ],
    );
}

/// 0.1 + 0.2 + 0.4 and 0.7 are one reward to whoever gave them, also in f32.
#[test]
fn a_reward_by_token_is_as_precise_as_it_was_given() {
    let rewards = [vec![0.1f32, 0.2, 0.4], vec![0.0, 0.0, 0.7]];
    let batch = Batch::builder().groups([0, 0]).lengths([3, 3]);
    let batch = batch.ragged("token_reward", rewards).build().unwrap();
    let (_, rewards) = tensor_on("batch.reward", &batch);
    assert_eq!(rewards, [f64::from(0.7f32); 2]);
    let (_, std) = tensor_on("batch.reward.std(\"group\")", &batch);
    assert_eq!(std, [0.0]);
}

/// Comments, other texts, methods, parameters and the state are no columns. What may be a name is taken for one; a name that
/// is computed is not known.
#[test]
fn a_recipe_says_which_columns_it_reads() {
    for case in [
        "batch.reward.mean(\"batch\").value() + batch.kl => kl reward",
        "/* batch.value */ // no batch.value\n batch[\"token_reward\"] => token_reward",
        "batch[\"value\"].mean(\"response\") => value",
        "let m = [[batch]]; m[0][1].kl => kl",
        "let m = #{}; batch[m.name].abs() => name ...",
        "metric(\"value\", 1.0); print(`value`); batch.reward => reward",
        "batch.map_groups(|g| if g.has(\"value\") { g?.value } else { g.reward }) => reward value",
        "batch.key(\"agent\", \"episode\"); batch.key([\"turn\"]); batch.groups[0].reward => agent episode reward turn",
        "const NAME = \"value\"; batch.column(NAME) => ...",
        "batch.column(\"val\" + \"ue\") => ue val ...",
        "let xs = [1]; let x = 0; for (y, i) in xs { x += xs[xs.len() - i]; } batch.reward * x => reward ...",
        "let m = #{ value: 1 }; this.value = m.value; this.by[`${p}`] = m[`v`]; batch.reward => reward v value ...",
        // Whole scripts.
        "fn params() { #{ value: #{ value: 1 }, column: #{ value: \"reward\" } } } fn init(p) { #{} } \
         fn advantage(batch, p) { batch.reward * p.value + batch[p.column] } => reward ...",
        "batch.columns(\"reward_\"); batch.reward => reward reward_ ...",
        "batch.reward.last(\"trajectory\") => reward trajectory",
        "Fn(\"column\").call(batch, p.name) => ...",
        "fn of(b) { b.reward } fn advantage(batch, p) { Fn(\"of\").call(batch) } => reward",
        "fn loss(batch, p) { -batch.advantage } => advantage logp",
        "import \"gae\" as gae; fn advantage(batch, p) { batch.reward } => reward token_reward value",
    ] {
        let (script, reads) = case.split_once(" => ").unwrap();
        let script = if script.contains("fn ") {
            script.to_string()
        } else {
            format!("fn advantage(batch, p) {{ {script} }}")
        };
        let recipe = Host::new().compile("reads", &script);
        let recipe = recipe.unwrap_or_else(|error| panic!("{}", error.render(false)));
        let found = recipe.reads();
        // The dots stand for names that are computed.
        let named = reads.split_whitespace().filter(|name| *name != "...");
        assert!(found.iter().eq(named), "{script}: {found:?}");
        assert_eq!(
            recipe.columns().is_none(),
            reads.ends_with("..."),
            "{script}"
        );
    }
}

/// A program learns which column is missing from the error itself, and need not parse its message.
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
