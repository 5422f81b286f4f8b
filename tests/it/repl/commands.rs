//! The commands: what each answers, and what a wrong one is told.

use insta::assert_snapshot;

use super::session;

/// Of a recipe, in use or named, and of an expression: the lines are those of what ran.
#[test]
fn a_profile_is_of_the_recipe_or_of_an_expression() {
    let mut session = session();
    let told = [
        (
            ":profile passk k=2",
            [
                "passk 13a556  k=2",
                "native",
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
