//! What an input leaves behind, and what it does not.

use std::path::Path;

use advlab_cli::prompt::{Session, piped};

use super::session;

fn is(session: &mut Session, input: &str, answer: &str) {
    assert_eq!(session.submit(input).text, answer, "{input}");
}

/// The answer, which must have the words in it.
fn says(session: &mut Session, input: &str, words: &str) -> String {
    let text = session.submit(input).text;
    assert!(text.contains(words), "{input}: {text}");
    text
}

#[test]
fn what_is_only_looked_at_changes_nothing() {
    let mut session = session();
    session.submit("let r = 1");
    session.submit(":profile r += 1");
    is(&mut session, "r", "1");
    session.submit(":plot batch = 5");
    session.submit(":plot { let s = batch.reward; s }");
    assert!(session.submit("s").is_error);
    session.submit(":profile fn f() { 1 } batch.reward");
    assert!(session.submit("f()").is_error);
    is(&mut session, "batch.reward.len()", "128");
}

#[test]
fn lines_that_are_pasted_together_are_the_inputs_that_they_were() {
    let mut session = session();
    let paste = "fn advantage(batch, p) {\n    batch.reward * 2\n}\n:run\nlet x = batch.reward\n    .len()\n?mean\nx + 1\n";
    let text = says(&mut session, paste, "what you typed is the recipe now");
    let news = ["max 2", "x.mean(level", "129"].map(|part| text.find(part).expect(part));
    assert!(news.is_sorted(), "{text}");
    // In the middle of an input, a line is a part of it, whatever it begins with.
    is(&mut session, "let s = `a\n:run\n?b`;\ns.len()", "9");
    assert!(session.submit("1 +\n:run\n").is_error);
    let chart = says(&mut session, ":plot [\n1,\n4\n]\n1 + 1", "index");
    assert!(chart.ends_with("\n2"), "{chart}");
    // However many there are.
    is(
        &mut session,
        &":set step=1\n".repeat(2000),
        "batch.step is 1\n".repeat(2000).trim_end(),
    );
}

#[test]
fn a_diff_says_what_typed_recipe_it_compares() {
    let mut session = session();
    session.submit("batch.reward - batch.reward.mean(\"group\")");
    says(
        &mut session,
        ":diff grpo",
        "note: what you typed is the formula `batch.reward - batch.reward.mean(",
    );
    session.submit("fn advantage(batch, p) { batch.reward }");
    session.submit("batch.reward * 3");
    says(
        &mut session,
        ":diff grpo",
        "note: what you typed is your `fn advantage`",
    );
    assert!(
        !session
            .submit(":diff grpo passk")
            .text
            .contains("what you typed")
    );
}

#[test]
fn an_input_that_fails_on_what_is_the_sessions_own_leaves_nothing() {
    let mut session = session();
    assert!(session.submit("let q = 5; let p = 3").is_error);
    assert!(session.submit("q").is_error);
    assert!(session.submit("let q = 5; batch = 3").is_error);
    assert!(session.submit("q").is_error);
    is(&mut session, "batch.reward.len()", "128");
}

#[test]
fn an_import_that_is_not_there_is_the_functions_own() {
    let mut session = session();
    session.submit("fn f() { import \"nonexistent\" as m; 1 }");
    is(&mut session, "1 + 1", "2");
    assert!(session.submit("f()").is_error);
}

#[test]
fn a_typed_hook_that_was_forgotten_does_not_come_back() {
    let mut session = session();
    says(
        &mut session,
        "fn advantage(batch, p) { foo(batch.reward) }",
        "not a recipe yet",
    );
    session.submit(":reset");
    session.submit(":recipe grpo");
    session.submit("batch.reward * 2");
    is(&mut session, "fn helper(x) { x }", "");
    says(&mut session, ":recipe", "GRPO");
    says(
        &mut session,
        "fn advantage(batch, p) { foo(batch.reward) }",
        "not used yet: the recipe is still grpo",
    );
    session.submit(":recipe dr_grpo");
    is(&mut session, "fn foo(x) { x }", "");
    says(&mut session, ":recipe", "Dr. GRPO");
}

#[test]
fn a_function_that_is_typed_again_with_other_names_replaces_the_first() {
    let mut session = session();
    session.submit("fn advantage(batch, p) { batch.reward }");
    session.submit("fn advantage(b, p) { b.reward * 2 }");
    is(&mut session, "advantage().max(\"batch\").value()", "2");
    session.submit("// with a comment before it\nfn  advantage(b, q) { b.reward * 3 }");
    is(&mut session, "advantage().max(\"batch\").value()", "3");
}

#[test]
fn another_recipe_ends_the_watch_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a script");
        path.display().to_string()
    };
    let one = file("one.rhai", "fn advantage(batch, p) { batch.reward }");
    let two = file("two.rhai", "fn advantage(batch, p) { batch.reward * 2 }");
    let largest = "advantage().max(\"batch\").value()";
    let mut session = session();
    session.submit(&format!(":watch {one}"));
    is(&mut session, largest, "1");
    says(
        &mut session,
        &format!(":load {two}"),
        "one.rhai is not watched any more",
    );
    is(&mut session, largest, "2");
    session.submit(&format!(":watch {one}"));
    says(&mut session, ":recipe dr_grpo", "not watched any more");
    session.submit(&format!(":watch {one}"));
    let typed = "fn advantage(batch, p) { batch.reward * 3 }";
    says(&mut session, typed, "not watched any more");
    is(&mut session, largest, "3");
}

#[test]
fn the_two_forms_of_a_hook_and_numbers_in_places_of_tensors() {
    let mut session = session();
    session.submit(":recipe grpo");
    is(
        &mut session,
        "(advantage() - advantage(batch)).abs().max(\"batch\").value()",
        "0",
    );
    says(&mut session, "batch.reward.std(\"group\", 0)", "ddof");
    says(
        &mut session,
        "max(1, 2, 3)",
        "takes 2 arguments, and gets 3",
    );
    is(
        &mut session,
        "batch.reward.max(\"batch\", batch.correct).value()",
        "1",
    );
}

#[test]
fn a_state_is_shown_as_a_script_writes_it() {
    let mut session = session();
    let init = "fn init(p) { #{ mean: 0.5, seen: [1, \"a\"] } }";
    session.submit(&format!(
        "{init} fn advantage(batch, p) {{ this.mean = 1.5; batch.reward }}"
    ));
    says(&mut session, ":run", "#{ mean: 1.5, seen: [1, \"a\"] }");
}

#[test]
fn token_advantages_are_compared_token_by_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("fn advantage(batch, p) {{ {text} }}")).expect("a script");
        path.display().to_string()
    };
    let centred = "let c = (batch.old_logp * 0 + 1).cumsum(); c - c.mean(\"response\")";
    let one = file("one.rhai", centred);
    let three = file("three.rhai", &format!("{centred} + 0 * c"));
    let zero = file("zero.rhai", "batch.old_logp * 0");
    let mut session = session();
    says(
        &mut session,
        &format!(":diff {one} {zero}"),
        "of the tokens differ",
    );
    says(
        &mut session,
        &format!(":diff {one} {three}"),
        "no difference on any of the 1 363 tokens",
    );
}

#[test]
fn a_curve_keeps_the_signs_of_log_probs_and_entropies() {
    let mut session = session();
    session.submit("0.1 * batch.entropy");
    let text = says(&mut session, ":curve --n=2", "group of 2");
    assert!(text.contains("0.05") && !text.contains("-0.05"), "{text}");
}

#[test]
fn the_recipe_in_use_is_compared_with_its_other_settings() {
    let mut session = session();
    session.submit(":recipe passk k=2");
    let text = says(&mut session, ":diff k=4", "k=2");
    assert!(text.contains("k=4"), "{text}");
    says(&mut session, ":run grpo", "grpo");
    says(&mut session, ":recipe", "Pass@k");
}

#[test]
fn a_formula_has_a_gradient_without_a_recipe() {
    let mut session = session();
    assert!(session.submit(":grad").is_error);
    session.submit("batch.reward - batch.reward.mean(\"group\")");
    says(&mut session, ":grad", "d loss() / d logp");
    assert!(
        session.submit("loss()").is_error,
        "and no recipe is loaded by it"
    );
}

#[test]
fn another_batch_names_the_variables_of_the_one_before() {
    let mut session = session();
    session.submit("let r = batch.reward; let n = 3");
    let text = says(
        &mut session,
        ":load examples/rollouts.jsonl",
        "of the batch before",
    );
    assert!(text.ends_with(": r"), "{text}");
}

/// What lines on standard input are answered.
fn answers(lines: &[u8]) -> String {
    let mut out = Vec::new();
    piped(&mut session(), lines, &mut out).expect("answers");
    String::from_utf8(out).expect("text")
}

#[test]
fn piped_lines_are_inputs_and_no_line_ends_the_session() {
    assert_eq!(answers(b"1 + 1\n2 + 2"), "2\n4\n");
    assert_eq!(answers(b"fn f(x) {\r\n  x + 1\r\n}\r\nf(1)\r\n"), "2\n");
    let text = answers(b"1 + 1\n\"\xff\xfe\"\n2 + 2\n");
    assert!(
        text.starts_with("2\nError: this line is not UTF-8"),
        "{text}"
    );
    assert!(text.ends_with("\n4\n"), "{text}");
    let text = answers(b"1 2\n3\nlet c = '`'\n4\n");
    assert!(text.contains("Error: a `;` is missing"), "{text}");
    assert!(text.ends_with("\n3\n4\n"), "{text}");
    let text = answers(b"1\nfn f(x) {\n");
    assert!(
        text.starts_with("1\nError:"),
        "what the end cuts off: {text}"
    );
    assert_eq!(answers(b"1\n:quit\n2\n"), "1\n");
}

#[test]
fn a_run_that_goes_on_has_its_new_batches() {
    let run = tempfile::tempdir().expect("a folder");
    let batches = run.path().join("batches");
    std::fs::create_dir(&batches).expect("a folder");
    let keep = |step: u64| {
        let path = batches.join(format!("step-{step:06}.safetensors"));
        super::data::keep(Path::new(&path), [1.0, 0.0, 0.0, 0.0]);
    };
    keep(10);
    let mut session = session();
    session.open(run.path(), &[]).expect("a run");
    keep(20);
    std::fs::remove_file(batches.join("step-000010.safetensors")).expect("an old one");
    let completions = session.complete(":batch ", 7).1;
    let texts: Vec<String> = completions.into_iter().map(|one| one.text).collect();
    assert_eq!(texts, ["20"]);
    says(&mut session, ":batch 20", "step-000020");
    says(&mut session, ":batch 10", "the nearest are those of 20");
}

#[test]
fn a_power_of_a_negation_asks_for_brackets() {
    let mut session = session();
    session.submit("let x = batch.reward.mean(\"batch\")");
    for input in [
        "-x ** 2",
        "-2 ** 2",
        "exp(-((x - 0.25) / 0.2) ** 2)",
        "`${1 + -x.value() ** 2}`",
    ] {
        assert!(session.submit(input).is_error, "{input}");
        says(&mut session, input, "`(-x) ** y` or `-(x ** y)`");
    }
    is(&mut session, "-(2 ** 2) + (-2) ** 2 - 2 ** 2", "-4");
}
