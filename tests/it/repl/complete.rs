//! What Tab offers, and what stands dimmed after an open bracket.

use advlab_cli::prompt::Session;

use super::session;

/// What the word at the end can become.
fn offers(session: &Session, text: &str) -> Vec<String> {
    let (_, all) = session.complete(text, text.len());
    all.into_iter().map(|one| one.text).collect()
}

#[test]
fn members_are_those_of_what_stands_before_the_dot() {
    let mut session = session();
    for input in [
        "let r = batch.reward",
        "let list = [1, 2]",
        "let m = #{ alpha: 1, beta: 2 }",
        "let s = \"text\"",
    ] {
        session.submit(input);
    }
    assert_eq!(offers(&session, "batch.old"), ["old_logp"]);
    assert_eq!(offers(&session, "1 + batch.rew"), ["reward"]);
    assert_eq!(offers(&session, "batch.ran"), ["random("]);
    assert_eq!(
        offers(&session, "r.others"),
        ["others_mean(", "others_std("]
    );
    assert_eq!(
        offers(&session, "batch.reward.val"),
        ["value()", "values()"]
    );
    assert_eq!(offers(&session, "(r - r.mean(\"group\")).whi"), ["whiten("]);
    assert_eq!(offers(&session, "batch.groups[0].rew"), ["reward"]);
    assert_eq!(offers(&session, "batch.map_groups(|g| g.ent"), ["entropy"]);
    assert_eq!(offers(&session, "m."), ["alpha", "beta"]);
    assert!(offers(&session, "list.pus").contains(&"push(".to_string()));
    assert!(offers(&session, "s.to_upp").contains(&"to_upper()".to_string()));
    assert!(!offers(&session, "list.").contains(&"whiten(".to_string()));
    assert!(
        !offers(&session, "batch.").contains(&"value".to_string()),
        "the batch has no such column"
    );
}

#[test]
fn names_levels_columns_and_choices() {
    let mut session = session();
    session.submit("let radius = 1");
    session.submit("fn rare(x) { x }");
    assert_eq!(offers(&session, "ra"), ["radius", "rank(", "rare("]);
    assert_eq!(offers(&session, "batch.reward.mean(\"gr"), ["group\""]);
    assert_eq!(
        offers(&session, "batch.reward.mean(\""),
        [
            "batch\"",
            "group\"",
            "trajectory\"",
            "position\"",
            "response\"",
            "token\""
        ]
    );
    assert_eq!(offers(&session, "batch.has(\"ref"), ["ref_logp\""]);
    assert_eq!(
        offers(&session, "kl(batch.old_logp, batch.ref_logp, \"a"),
        ["abs\""]
    );
    assert_eq!(
        offers(&session, "import \"grpo"),
        ["grpo\"", "grpo_loo\"", "grpo_passk\"", "grpo_lambda\""]
    );
    assert!(offers(&session, "// a comment m").is_empty());
    assert!(offers(&session, "advan").is_empty(), "no recipe is loaded");
    session.submit(":recipe passk");
    assert_eq!(offers(&session, "advan"), ["advantage()"]);
    assert_eq!(offers(&session, "p."), ["k"]);
}

#[test]
fn commands_and_what_they_take() {
    let mut session = session();
    assert_eq!(offers(&session, ":re"), ["recipe ", "reset"]);
    assert_eq!(offers(&session, ":recipe pac"), ["pacs"]);
    assert_eq!(offers(&session, ":recipe ppo_clip dual"), ["dual_clip="]);
    assert_eq!(
        offers(&session, ":diff passk grpo_"),
        ["grpo_loo", "grpo_passk", "grpo_lambda"]
    );
    assert_eq!(offers(&session, ":curve passk --"), ["--n ", "--out "]);
    assert_eq!(offers(&session, ":plot batch.ent"), ["entropy"]);
    assert_eq!(
        offers(&session, ":load examples/roll"),
        ["examples/rollouts.jsonl", "examples/rollouts.rs"]
    );
    assert_eq!(offers(&session, "?suffix"), ["suffix_sum"]);
    assert!(offers(&session, ":set ").is_empty());
    session.submit(":recipe passk");
    assert_eq!(offers(&session, ":set "), ["k="]);
}

#[test]
fn an_open_bracket_shows_what_it_takes() {
    let session = session();
    let hint = |text: &str| session.hint(text).unwrap_or_default();
    assert_eq!(hint("batch.reward.mean("), "level, [selection])");
    assert_eq!(hint("kl("), "logp, ref, kind)");
    assert_eq!(hint("batch.regroup("), "key)");
    assert_eq!(hint("where("), "c, a, b)");
    assert_eq!(hint("batch.reward.mean(\"group\""), "");
    assert_eq!(hint("nothing("), "");
}

#[test]
fn a_new_line_shows_what_it_waits_for() {
    let session = session();
    let hint = |text: &str| session.hint(text).unwrap_or_default();
    assert_eq!(hint("fn f(x) {\n"), "  `}` ends it");
    assert_eq!(hint("fn f(x) { g(x,\n"), "  `)` ends it");
    assert_eq!(hint("[1, \"}\",\n"), "  `]` ends it");
    assert_eq!(hint("/* why {\n"), "  `*/` ends it");
    assert_eq!(hint("`a text (\n"), "  `` ` `` ends it");
    assert_eq!(hint("1 +\n"), "  it goes on");
    assert_eq!(hint("fn f(x) {\n    x"), "", "a line with something in it");
    assert_eq!(hint("1 + 1\n"), "");
}
