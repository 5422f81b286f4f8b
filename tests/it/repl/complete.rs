//! What Tab offers.

use advlab_cli::prompt::PromptSession;

use super::session;

/// What the word at the end can become.
fn offers(session: &PromptSession, text: &str) -> Vec<String> {
    let (_, all) = session.complete(text, text.len());
    all.into_iter().map(|one| one.text).collect()
}

/// A line, and all that it is offered, by words.
const OFFERS: &[(&str, &str)] = &[
    // Members of what stands before the dot.
    ("batch.old", "old_logp"),
    ("1 + batch.rew", "reward"),
    ("batch.ran", "random("),
    ("r.others", "others_mean( others_std("),
    ("batch.reward.val", "value() values()"),
    ("(r - r.mean(\"group\")).whi", "whiten("),
    ("batch.groups[0].rew", "reward"),
    ("batch.map_groups(|g| g.ent", "entropy"),
    ("m.", "alpha beta"),
    ("list.whi", ""),
    // Names, levels and choices.
    ("ra", "radius rank( rare("),
    ("batch.reward.mean(\"gr", "group\""),
    (
        "batch.reward.mean(\"",
        "batch\" group\" trajectory\" position\" response\" token\"",
    ),
    ("kl(batch.old_logp, batch.ref_logp, \"a", "abs\""),
    (
        "import \"grpo",
        "grpo\" grpo_loo\" grpo_passk\" grpo_lambda\"",
    ),
    ("// a comment m", ""),
    // Commands and what they take.
    (":re", "recipe  reset"),
    (":recipe pac", "pacs"),
    (":recipe ppo_clip dual", "dual_clip="),
    (":diff passk grpo_", "grpo_loo grpo_passk grpo_lambda"),
    (":curve passk --", "--n --out --width"),
    (":mass passk --", "--out --width"),
    (":plot batch.ent", "entropy"),
    (
        ":load examples/roll",
        "examples/rollouts.jsonl examples/rollouts.rs",
    ),
    ("?suffix", "suffix_sum"),
    // Without a recipe.
    ("advan", ""),
    (":set ", ""),
];

#[test]
fn tab_offers_what_fits() {
    let mut session = session();
    for input in [
        "let r = batch.reward",
        "let list = [1, 2]",
        "let m = #{ alpha: 1, beta: 2 }",
        "let radius = 1",
        "fn rare(x) { x }",
    ] {
        session.submit(input);
    }
    for (line, expected) in OFFERS {
        assert_eq!(offers(&session, line).join(" "), *expected, "{line}");
    }
    session.submit(":recipe passk");
    for (line, expected) in [("advan", "advantage()"), ("p.", "k"), (":set ", "k=")] {
        assert_eq!(offers(&session, line), [expected], "{line}");
    }
}
