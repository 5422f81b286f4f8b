//! What scripts have beside tensors: constants, arrays, columns by name, batches with other columns, subsets, returns.

use advlab::batch::Batch;
use advlab::script::Host;

use super::lab::{
    batch, batch_with_logp, builder, message, printed, recipe, run_on, tensor, tensor_on,
};

fn values(text: &str, batch: &Batch) -> Vec<f64> {
    let outcome = run_on(text, batch).unwrap_or_else(|error| panic!("{}", error.render(false)));
    outcome.advantage.buffer().iter().collect()
}

#[test]
fn functions_see_the_constants_of_their_script() {
    for (text, first) in [
        (
            "const K = 4;\nfn advantage(batch, p) { K * batch.reward }",
            4.0,
        ),
        (
            "const HALF = -0.5;\nfn advantage(batch, p) { twice(batch.reward) }\nfn twice(x) { x * HALF * 2 }",
            -1.0,
        ),
        (
            "const NAME = \"reward\";\nfn advantage(batch, p) { batch.column(NAME) }",
            1.0,
        ),
        // What is nearer comes first.
        (
            "const k = 4;\nfn advantage(batch, p) { of(2) * batch.reward }\nfn of(k) { k }",
            2.0,
        ),
        (
            "const k = 4;\nfn advantage(batch, p) { let k = 3; k * batch.reward }",
            3.0,
        ),
        (
            "const k = 4;\nfn advantage(batch, p) { let s = 0; for k in 0..3 { s += k; } s * batch.reward }",
            3.0,
        ),
        (
            "const K = 4;\nfn params() { #{ k: K } }\nfn advantage(batch, p) { p.k * batch.reward }",
            4.0,
        ),
    ] {
        assert_eq!(values(text, &batch())[0], first, "{text}");
    }
    let text = "const A = 1.0 / 3.0;\nfn advantage(batch, p) { A * batch.reward }";
    let error = Host::new().compile("test", text).unwrap_err().to_string();
    assert!(error.contains("written out"), "{error}");
}

#[test]
fn arrays_are_reduced_as_tensors_are() {
    for (expression, expected) in [
        ("[1, 2, 4.5].sum()", "7.5"),
        ("[1, 2].mean()", "1.5"),
        ("[3, -1, 2].min()", "-1.0"),
        ("[3, -1, 2].max()", "3.0"),
        ("[].sum()", "0.0"),
        ("{ let x = [3, 1, 2]; x.sort(); x }", "[1, 2, 3]"),
    ] {
        assert_eq!(printed(expression), expected, "{expression}");
    }
    let (level, sum) = tensor("[batch.reward, 1, batch.length].sum()");
    assert_eq!((level.as_str(), &sum[..2]), ("response", &[3.0, 3.0][..]));
    for (expression, expected) in [
        ("[].max()", "an empty array has no `max`"),
        ("[\"a\"].sum()", "numbers and tensors, not a string"),
    ] {
        let text = format!("fn advantage(batch, p) {{ {expression} * batch.reward }}");
        let found = message(run_on(&text, &batch()));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn columns_by_name_and_several_rewards() {
    let batch = builder()
        .response("reward_format", vec![0.0, 1.0, 0.0, 1.0, 1.0])
        .build()
        .expect("a batch");
    assert_eq!(
        tensor_on("batch.column(\"reward_format\")", &batch).1[1],
        1.0
    );
    let all =
        "{ let sum = 0; for name in batch.columns(\"reward\") { sum += batch.column(name); } sum }";
    assert_eq!(tensor_on(all, &batch).1, [1.0, 1.0, 0.0, 1.5, 0.0]);
    let wrong = "fn advantage(batch, p) { batch.column(\"reward_fromat\") }";
    let found = message(run_on(wrong, &batch));
    assert!(found.contains("no column `reward_fromat`"), "{found}");
}

#[test]
fn a_batch_with_other_columns_is_the_same_otherwise() {
    let batch = batch();
    let of = |expression: &str| tensor_on(expression, &batch).1;
    assert_eq!(of("batch.with(#{ reward: 2 }).reward"), [2.0; 5]);
    assert_eq!(
        of("batch.with(#{ reward: batch.length }).reward.max(\"group\")"),
        [3.0, 2.0]
    );
    // A reward stands at both levels; what is right stays what the verifier has said.
    let tokens = of("batch.with(#{ reward: 2 }).token_reward");
    assert_eq!(tokens.iter().sum::<f64>(), 10.0);
    assert_eq!(
        of("batch.with(#{ token_reward: 1 + 0 * batch.token_reward }).reward"),
        of("batch.length")
    );
    assert_eq!(
        of("batch.with(#{ reward: -batch.reward }).correct"),
        of("batch.correct")
    );
    assert_eq!(
        of("batch.with(#{ extra: batch.reward.max(\"group\") }).extra"),
        [1.0, 0.5, 1.0, 0.5, 1.0]
    );
    // In groups, after `regroup`, and more than once.
    assert_eq!(
        of("batch.map_groups(|g| g.with(#{ reward: g.length }).reward)"),
        of("batch.length")
    );
    assert_eq!(
        of(
            "batch.regroup(batch.length).with(#{ reward: batch.length }).reward.mean(\"group\").expand(\"response\")"
        ),
        of("batch.length")
    );
    assert_eq!(of("batch.with(#{ a: 1 }).with(#{ b: 2 }).a"), [1.0; 5]);
    // A built-in that is imported sees them.
    let imported = "import \"dr_grpo\" as d; fn advantage(batch, p) { d::advantage(batch.with(#{ reward: batch.length }), p) }";
    let recipe = Host::new().compile("test", imported).unwrap();
    let outcome = recipe
        .advantage(&batch, &mut recipe.init().unwrap())
        .unwrap();
    let own = "fn advantage(batch, p) { batch.length - batch.length.mean(\"group\") }";
    let found: Vec<f64> = outcome.advantage.buffer().iter().collect();
    assert_eq!(found, values(own, &batch));
    for (columns, expected) in [
        ("a: \"b\"", "column `a` cannot be a string"),
        ("groups: 1", "`groups` is no column"),
        ("a: batch.groups[0].reward", "tensor of another batch"),
    ] {
        let text = format!("fn advantage(batch, p) {{ batch.with(#{{ {columns} }}).reward }}");
        let found = message(run_on(&text, &batch));
        assert!(found.contains(expected), "{found}");
    }
}

/// Clipping is studied where logp is not old_logp, and the gradient is still by the batch's own logp.
#[test]
fn a_loss_goes_through_a_replaced_logp() {
    let text = "fn loss(batch, p) { let b = batch.with(#{ logp: 2 * batch.logp }); b.logp.sum(\"batch\") }";
    let recipe = recipe(text);
    let loss = recipe.loss(&batch_with_logp(), None, &mut recipe.init().unwrap());
    let gradient: Vec<f64> = loss.unwrap().gradient.buffer().iter().collect();
    assert_eq!(gradient, [2.0; 9]);
}

#[test]
fn subsets_are_drawn_by_the_seed() {
    assert_eq!(
        tensor("batch.subset(\"group\", 2).sum(\"group\")").1,
        [2.0, 2.0]
    );
    assert_eq!(tensor("batch.subset(\"batch\", 9)").1, [1.0; 5]);
    assert_eq!(
        tensor("batch.subset(\"batch\", 2)"),
        tensor("batch.subset(\"batch\", 2)")
    );
    let found = message(run_on(
        "fn advantage(batch, p) { batch.subset(\"grp\", 2) }",
        &batch(),
    ));
    assert!(found.contains("subset"), "{found}");
}

#[test]
fn a_critic_gets_its_returns() {
    let batch = builder()
        .ragged("value", super::lab::rows(|_| 0.5))
        .build()
        .expect("a batch");
    let returns = |name: &str| {
        let recipe = Host::new().load(name).unwrap();
        recipe.returns(&batch, &recipe.init().unwrap())
    };
    // With lambda = 1 the target is the return itself, whatever the critic says.
    let found = returns("gae_decoupled")
        .unwrap()
        .expect("the recipe has the hook");
    let found: Vec<f64> = found.buffer().iter().collect();
    assert_eq!(found, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, -1.0, -1.0]);
    assert!(returns("grpo").unwrap().is_none());
    let wrong = recipe("fn advantage(batch, p) { batch.reward }\nfn returns(batch, p) { 1 }");
    let error = wrong.returns(&batch, &wrong.init().unwrap()).unwrap_err();
    assert!(
        error[0]
            .message
            .contains("`returns` must return a response or token tensor"),
        "{error}"
    );
}
