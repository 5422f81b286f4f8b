//! The commands: what each answers, and what a wrong one is told.

use insta::assert_snapshot;

use super::{session, transcript};

/// Times differ from run to run.
fn without_time(text: String) -> String {
    let keep = |line: &&str| !line.trim_start().starts_with("time ");
    text.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_recipe_on_the_batch() {
    let text = transcript(
        &mut session(),
        r#"
:recipe

:recipe passk k=2

p

advantage()

:params

:set k=4

:set k = 8

p.k

p.k = 2

:set kk=2

:set k=0

:set

:run

loss()

grad(loss(), batch.logp).abs().sum("batch").value() > 0

:grad

:grad (batch.logp * batch.reward).mean("batch")

:grad batch.logp

:recipe grpo_lambda

reward()

:run

:recipe pacs

advantage()

:run

:recipe nope

:recipe grpo eps
"#,
    );
    let text = without_time(text);
    assert_snapshot!(text);
}

#[test]
fn two_recipes_compared() {
    let text = transcript(
        &mut session(),
        r#"
:diff passk grpo

:diff passk k=1 grpo std=population

:diff passk k=2 passk k=4

:recipe rloo

:diff dr_grpo

:diff

:diff reinforce_pp rloo
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn curves() {
    let text = transcript(
        &mut session(),
        r#"
:curve passk k=4 --n 32

:recipe grpo

:curve

:curve grpo_lambda --n 4

:curve pacs --n 4

:curve passk --n 2

:curve passk --n many
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn plots_and_graphs() {
    let text = transcript(
        &mut session(),
        r#"
:plot batch.old_logp

:plot batch.length, batch.entropy.mean("response")

:plot batch.old_logp batch.ref_logp

:plot [1, 4, 2]

:plot batch.reward * 0

:plot

:plot "text"

:plot [1, 2], [1, 2, 3]
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn documentation() {
    let text = transcript(
        &mut session(),
        r#"
?

?mean

?suffix_sum

?map_groups

?:diff

?passk

?maen

?level

:help kl
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn data_and_wrong_commands() {
    let mut session = session();
    // Tests run in the repository's folder; an absolute path would decide where the lines of a message end.
    let inputs = [
        ":batch",
        ":batch 140",
        ":batch last",
        ":load tests/data/verl.jsonl",
        "batch.reward",
        "batch.old_logp",
        ":load",
        ":load nowhere.jsonl",
        ":load Cargo.toml",
        ":load src",
        ":rceipe passk",
        ":",
        ":vars",
        ":save",
        ":save formula.txt",
        ":plan batch.reward",
        ":time batch.reward",
        "range(3)",
    ];
    let text = transcript(&mut session, &inputs.join("\n\n"));
    assert_snapshot!(text);
}

/// Of a recipe, in use or named, and of an expression: the lines are those of what ran.
#[test]
fn a_profile_is_of_the_recipe_or_of_an_expression() {
    let mut session = session();
    let told = [
        (
            ":profile passk k=2",
            [
                "passk 13a556  k=2",
                "script, new array",
                "let n = right.count(\"group\");",
            ],
        ),
        (
            ":profile (batch.old_logp - batch.ref_logp).sum(\"response\")",
            [
                "input",
                "the script itself, and plans",
                "1  (batch.old_logp",
            ],
        ),
    ];
    for (input, expected) in told {
        let outcome = session.submit(input);
        assert!(!outcome.is_error, "{input}: {}", outcome.text);
        for part in expected {
            assert!(outcome.text.contains(part), "{input}: {}", outcome.text);
        }
        let is_short = |line: &str| line.chars().count() <= 80;
        assert!(outcome.text.lines().all(is_short), "{}", outcome.text);
    }
    session.submit("fn gap(x) { x - x.mean(\"group\") }");
    let outcome = session.submit(":profile gap(batch.old_logp.sum(\"response\"))");
    assert!(
        outcome.text.contains("an earlier input:1  fn gap(x)"),
        "{}",
        outcome.text
    );
    session.submit(":recipe grpo");
    assert!(session.submit(":profile").text.starts_with("grpo "));
    assert!(session.submit(":profile batch.rewrad").is_error);
}

#[test]
fn what_was_typed_is_saved_as_a_recipe_that_gives_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.rhai");
    let mut session = session();
    let typed = [
        "let r = batch.reward",
        "r.mean(\"group\")",
        "let centred = r - _",
        "batch.length",
        "fn scale(x) { x * 2 }",
        ":recipe passk k=2",
        "import \"passk\" as passk;",
        "scale(centred) + p.k * passk::advantage(batch, p)",
    ];
    for input in typed {
        let outcome = session.submit(input);
        assert!(!outcome.is_error, "{}", outcome.text);
    }
    let save = format!(":save {}", file.display());
    assert!(session.submit(&save).text.contains("a recipe"));
    let script = std::fs::read_to_string(&file).expect("the script");
    assert_snapshot!(script);
    let same = "(_ - advantage()).abs().max(\"batch\").value()".to_string();
    let recipe = format!(":recipe {}", file.display());
    for input in [typed[7], &recipe, &same] {
        let outcome = session.submit(input);
        assert!(!outcome.is_error, "{}", outcome.text);
        if input == same {
            assert_eq!(outcome.text, "0");
        }
    }
    assert!(
        !session.submit(&save).is_error,
        "its own file may be written again"
    );
    std::fs::write(folder.path().join("other.rhai"), "mine").expect("a file");
    let other = session.submit(&format!(
        ":save {}",
        folder.path().join("other.rhai").display()
    ));
    assert!(
        other.is_error && other.text.contains("left as it is"),
        "{}",
        other.text
    );
}

#[test]
fn what_was_typed_is_a_recipe_too_and_what_was_defined_last_counts() {
    let text = transcript(
        &mut session(),
        r#"
:curve

let r = batch.reward

r - r.mean("group")

:diff dr_grpo

:recipe passk k=2

fn advantage(batch, p) { centered(batch.reward) * p.k }

fn other(x) { x }

fn centered(x) { x - x.mean("group") }

advantage().max("batch").value()

advantage(batch, p).max("batch").value()

:set k=4

advantage().max("batch").value()

fn centered(x) { x - x.mean("group") + 1 }

advantage().max("batch").value()

:recipe dr_grpo

advantage().max("batch").value()

advantage(batch, p).max("batch").value()

advantage(batch.groups[1], p)

fn reward(batch, p) { batch.reward * 3 }

reward().max("batch").value()

:reset

fn reward(batch, p) { batch.reward * 3 }

:recipe grpo

advantage(batch, #{ eps: 1.0 }).max("batch").value()

advantage(batch, #{ epz: 1.0 })

fn advantage(batch, p) { 2 * advantage() }

import "dr_grpo" as dr_grpo;

fn advantage(batch, p) { 2 * dr_grpo::advantage(batch, #{}) }

advantage().max("batch").value()
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn a_script_has_its_own_test_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.rhai");
    let script = r#"
fn test_batch() {
    #{
        group: ["a", "a", "b", "b"],
        reward: [1, 0, 0, 1],
        old_logp: [[-0.5, -0.25], [-1.0], [-0.75], [-0.5]],
        hardness: [0.5, 0.5, 1.0, 1.0],
    }
}

fn advantage(batch, p) { batch.hardness * (batch.reward - batch.reward.mean("group")) }
"#;
    std::fs::write(&file, script).expect("a script");
    let mut session = session();
    session.open(&file, &[]).expect("its test batch");
    assert_eq!(
        session.submit("advantage().values()").text,
        "[0.25, -0.25, -0.5, 0.5]"
    );
    assert_eq!(session.submit("batch.length.values()").text, "[2, 1, 1, 1]");
    let without = folder.path().join("without.rhai");
    std::fs::write(&without, "fn advantage(batch, p) { batch.reward }").expect("a script");
    session.open(&without, &[]).expect("the built-in batch");
    assert!(session.about_data().contains("has no `test_batch()`"));
    assert_eq!(session.submit("advantage().len()").text, "128");
}

#[test]
fn figures_are_written_as_svg() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("curve.svg");
    let mut session = session();
    for command in [
        ":curve passk --n 8 --out",
        ":plot batch.length --out",
        ":plot batch.length, batch.reward --out",
        ":curve passk grpo dr_grpo --n 8 --out",
        ":objective grpo_lambda grpo --n 8 --out",
        ":surface ppo_clip --out",
        ":surface gspo loss --out",
    ] {
        let outcome = session.submit(&format!("{command} {}", file.display()));
        assert!(!outcome.is_error, "{}", outcome.text);
        let svg = std::fs::read_to_string(&file).expect("the figure");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    assert!(
        session
            .submit(":plot batch.length --out figure.png")
            .is_error
    );
    assert!(session.submit(":plot batch.length --out").is_error);
    for (ending, begins) in [("csv", "panel,series,x,y,z\n"), ("json", "{\"title\":")] {
        let file = folder.path().join(format!("curve.{ending}"));
        session.submit(&format!(
            ":curve passk k=2 grpo --n 4 --out {}",
            file.display()
        ));
        let text = std::fs::read_to_string(&file).expect("the numbers");
        assert!(
            text.starts_with(begins) && text.contains("passk k=2"),
            "{text}"
        );
    }
}

#[test]
fn what_designs_optimise_and_whom_they_teach() {
    let text = transcript(
        &mut session(),
        r#"
:objective rloo maxrl --n 8

:objective pacs reinforce_pp --n 4

:objective k=2

:mass grpo

:mass kl_advantage

:surface ppo_clip

:surface grpo

:curve grpo passk k=2 --n 4

:diff ppo_clip gspo

:recipe gspo

:grad
"#,
    );
    assert_snapshot!(text);
}
