//! What scripts have beside tensors: constants, arrays, columns by name, batches with other columns, subsets, returns.

use advlab::script::Host;

use super::lab::{
    advantage_on, agree_on, are_on, batch, batch_with_logp, builder, fail_on, print_on, recipe,
    rows, values,
};

#[test]
fn functions_see_the_constants_of_their_script() {
    for case in [
        "const K = 4; fn advantage(batch, p) { K * batch.reward } => 4",
        "const HALF = -0.5; fn advantage(batch, p) { twice(batch.reward) } fn twice(x) { x * HALF * 2 } => -1",
        "const NAME = \"reward\"; fn advantage(batch, p) { batch.column(NAME) } => 1",
        "const K = 4; fn advantage(batch, p) { batch.map_groups(|g| g.reward * K) } => 4",
        "const K = 4; fn advantage(batch, p) { let k = |K| K; batch.reward * k.call(3) } => 3",
        // What is nearer comes first.
        "const k = 4; fn advantage(batch, p) { of(2) * batch.reward } fn of(k) { k } => 2",
        "const k = 4; fn advantage(batch, p) { let k = 3; k * batch.reward } => 3",
        "const k = 4; fn advantage(batch, p) { let s = 0; for k in 0..3 { s += k; } s * batch.reward } => 3",
        "const K = 4; fn params() { #{ k: K } } fn advantage(batch, p) { p.k * batch.reward } => 4",
    ] {
        let (text, first) = case.split_once(" => ").unwrap();
        assert_eq!(advantage_on(text, &batch())[0].to_string(), first, "{text}");
    }
    let text = "const A = 1.0 / 3.0;\nfn advantage(batch, p) { A * batch.reward }";
    let error = Host::new().compile("test", text).unwrap_err().to_string();
    assert!(error.contains("only if its value is a literal"), "{error}");
}

#[test]
fn arrays_are_reduced_as_tensors_are() {
    print_on(
        &batch(),
        &[
            "[1, 2, 4.5].sum() => 7.5",
            "[1, 2].mean() => 1.5",
            "[3, -1, 2].min() => -1.0",
            "[3, -1, 2].max() => 3.0",
            "[].sum() => 0.0",
            "{ let x = [3, 1, 2]; x.sort(); x } => [1, 2, 3]",
            "{ let x = [3, 1, 2]; let f = || x.sort(|a, b| a - b); f.call(); x } => [1, 2, 3]",
        ],
    );
    are_on(
        &batch(),
        &["[batch.reward, 1, batch.length].sum() => response 3 3 4 2.5 2"],
    );
    fail_on(
        &batch(),
        &[
            "[].max() * batch.reward => an empty array has no `max`",
            "[\"a\"].sum() * batch.reward => numbers and tensors, not a string",
        ],
    );
}

#[test]
fn columns_by_name_and_several_rewards() {
    let batch = builder().response("reward_format", vec![0.0, 1.0, 0.0, 1.0, 1.0]);
    let batch = batch.build().expect("a batch");
    are_on(
        &batch,
        &[
            r#"batch.column("reward_format") => response 0 1 0 1 1"#,
            r#"{ let sum = 0; for name in batch.columns("reward") { sum += batch.column(name); } sum } => response 1 1 0 1.5 0"#,
        ],
    );
    let wrong = r#"batch.column("reward_fromat") => no column `reward_fromat`"#;
    fail_on(&batch, &[wrong]);
}

#[test]
fn a_batch_with_other_columns_is_the_same_otherwise() {
    let batch = batch();
    agree_on(
        &batch,
        &[
            // A `const` is not changed by asking it for something.
            r#"{ const r = batch.reward; r * (1 + r.max("batch").value()) } === batch.reward * 2"#,
            "batch.with(#{ reward: 2 }).reward === 2 + 0 * batch.reward",
            r#"batch.with(#{ reward: batch.length }).reward.max("group") === batch.length.max("group")"#,
            // A reward stands at both levels; what is right stays what the verifier has said.
            r#"batch.with(#{ reward: 2 }).token_reward.sum("response") === 2 + 0 * batch.reward"#,
            "batch.with(#{ token_reward: 1 + 0 * batch.token_reward }).reward === batch.length",
            "batch.with(#{ reward: -batch.reward }).correct === batch.correct",
            r#"batch.with(#{ extra: batch.reward.max("group") }).extra === batch.reward.max("group").expand("response")"#,
            // In groups, after `regroup`, and more than once.
            "batch.map_groups(|g| g.with(#{ reward: g.length }).reward) === batch.length",
            r#"batch.regroup(batch.length).with(#{ reward: batch.length }).reward.mean("group").expand("response") === batch.length"#,
            "batch.with(#{ a: 1 }).with(#{ b: 2 }).a === 1 + 0 * batch.reward",
            // As keys too.
            r#"batch.with(#{ a: batch.length }).key("a", "group") == batch.key("length", "group") === 1 + 0 * batch.reward"#,
        ],
    );
    // A built-in that is imported sees them.
    let imported = "import \"dr_grpo\" as d; fn advantage(batch, p) { d::advantage(batch.with(#{ reward: batch.length }), p) }";
    let own = "fn advantage(batch, p) { batch.length - batch.length.mean(\"group\") }";
    assert_eq!(advantage_on(imported, &batch), advantage_on(own, &batch));
    fail_on(
        &batch,
        &[
            "batch.with(#{ a: \"b\" }).reward => column `a` cannot be a string",
            "batch.with(#{ groups: 1 }).reward => `groups` is not the name of a column",
            "batch.with(#{ a: batch.groups[0].reward }).reward => tensor of another batch",
        ],
    );
}

/// Clipping is studied where logp is not old_logp, and the gradient is still by the batch's own logp.
#[test]
fn a_loss_goes_through_a_replaced_logp() {
    let text = "fn loss(batch, p) { let b = batch.with(#{ logp: 2 * batch.logp }); b.logp.sum(\"batch\") }";
    let recipe = recipe(text);
    let loss = recipe.loss(&batch_with_logp(), None, &mut recipe.init().unwrap());
    assert_eq!(values(&loss.unwrap().gradient), [2.0; 9]);
}

#[test]
fn subsets_are_drawn_by_the_seed() {
    are_on(
        &batch(),
        &[
            r#"batch.subset("group", 2).sum("group") => group 2 2"#,
            r#"batch.subset("batch", 9) => response 1 1 1 1 1"#,
        ],
    );
    let drawn = r#"batch.subset("batch", 2) === batch.subset("batch", 2)"#;
    agree_on(&batch(), &[drawn]);
    fail_on(&batch(), &[r#"batch.subset("grp", 2) => subset"#]);
}

#[test]
fn a_critic_gets_its_returns() {
    let batch = builder().ragged("value", rows(|_| 0.5)).build().unwrap();
    let returns = |name: &str| {
        let recipe = Host::new().load(name).unwrap();
        recipe.returns(&batch, &recipe.init().unwrap())
    };
    // With lambda = 1 the target is the return itself, whatever the critic says.
    let found = returns("gae_decoupled").unwrap().unwrap();
    let expected = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, -1.0, -1.0];
    assert_eq!(values(&found), expected);
    assert!(returns("grpo").unwrap().is_none());
    let wrong = recipe("fn advantage(batch, p) { batch.reward }\nfn returns(batch, p) { 1 }");
    let error = wrong.returns(&batch, &wrong.init().unwrap()).unwrap_err();
    let said = "`returns` must return a response or token tensor";
    assert!(error[0].message.contains(said), "{error}");
}
