//! A replay finds the numbers again, and a number that is not the run's.

use advlab::native::Mode;
use advlab::script::Host;
use advlab_cli::prompt::{Paint, PromptSession};
use advlab_train::{Difference, Ending, Event, Replay, Run, TaskName};
use serde_json::json;

use super::lab::{
    Lab, STATEFUL, command, done, go, go_to, go_until, lines, refused, replayed, says,
};

#[test]
fn a_run_repeats_itself() {
    let lab = Lab::new(STATEFUL);
    go_to(&mut lab.create(), 11);
    go(&mut lab.resume());
    assert_eq!(replayed(&lab.run()), (24, None));
    let text = done(lab.place(), "replay FOLDER/run");
    says(&text, &["the replay agrees with 24 recorded steps"]);
}

/// What a run warns of is kept beside its versions, where a repetition passes over it.
#[test]
fn warnings_are_kept_and_change_no_number() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.warnings.entropy = 100.0;
    go_to(&mut lab.create(), 13);
    // Neither the steps after the checkpoint, which are done again, nor those behind it are warned of again.
    let checkpoints = || std::fs::read_dir(lab.file("checkpoints")).unwrap();
    let last = checkpoints().map(|one| one.unwrap().path()).max().unwrap();
    std::fs::remove_dir_all(last).unwrap();
    let mut told = 0;
    let count = |event: &Event<'_>| {
        told += usize::from(matches!(event, Event::Log(line) if line.text.contains("the entropy")));
        false
    };
    assert_eq!(go_until(&mut lab.resume(), count), Ending::Finished);
    assert_eq!(told, 0);
    let kept = lines(&lab.file("reloads.jsonl"));
    let is_of_entropy = |line: &&serde_json::Value| {
        let message = line["message"].as_str();
        line["event"] == "warning" && message.is_some_and(|text| text.contains("the entropy"))
    };
    let steps: Vec<_> = kept
        .iter()
        .filter(is_of_entropy)
        .map(|line| &line["step"])
        .collect();
    assert_eq!(steps, [9]);
    assert_eq!(replayed(&lab.run()), (24, None));
}

/// Supervised fine-tuning comes before the first evaluation, into the first checkpoint and into a repetition.
#[test]
fn a_fine_tuned_run_repeats_itself() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.task = TaskName::Arithmetic;
    lab.config.arithmetic_digits = 1;
    lab.config.sft_steps = 60;
    lab.config.sft_lr = 0.01;
    go_to(&mut lab.create(), 11);
    go(&mut lab.resume());
    assert_eq!(replayed(&lab.run()), (24, None));
    let first = &lines(&lab.file("metrics.jsonl"))[0];
    // As it was made, the policy has nearly ln 11, which is 2.4.
    let entropy = first["initial_evaluation"]["entropy"].as_f64();
    assert!(entropy < Some(2.0), "{first}");
    assert_eq!(first["kl"], 0.0, "the reference is the tuned policy");

    // Stopped half-way, it begins anew, and its history with it: with what the recipe's file has by then.
    lab.config.out = lab.file("stopped").display().to_string();
    let ending = go_until(&mut lab.create(), |event| {
        matches!(event, Event::FineTuned { update: 7, .. })
    });
    assert_eq!(ending, Ending::Stopped(0));
    let edited = STATEFUL.replace("0.25", "0.75");
    std::fs::write(lab.script(), edited).unwrap();
    go(&mut Run::resume(&lab.file("stopped"), None, Mode::Off).unwrap());
    assert_eq!(replayed(&lab.file("stopped")), (24, None));

    lab.config.task = TaskName::Maze;
    lab.config.out = lab.file("other").display().to_string();
    let error = Run::create(lab.config.clone()).err().unwrap();
    let expected = "the task \"maze\" has no solutions to train on";
    says(&error.to_string(), &[expected]);
    assert!(!lab.file("other").exists());
}

/// Replays a run whose losses were computed by a kernel, with and without kernels.
#[test]
fn kernels_and_scripts_repeat_each_other() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.recipe = "grpo".to_string();
    lab.config.params = Default::default();
    // In `Auto`, the kernel is used only if it happens to be faster.
    lab.config.native = Mode::On;
    go(&mut lab.create());
    let native = |line: &serde_json::Value| line["ms"]["native"].as_f64().unwrap();
    let rows = lines(&lab.file("metrics.jsonl"));
    assert!(native(&rows[rows.len() - 1]) > 0.0);
    for mode in [Mode::Off, Mode::On, Mode::Auto] {
        let replay = Replay::open(&lab.run(), mode).unwrap();
        assert_eq!(replay.go(&mut |_| {}).unwrap(), None, "{mode:?}");
    }
}

/// Whoever looks at a batch of the run sees what the run did with it.
#[test]
fn a_batch_of_a_run_is_drawn_for_with_the_runs_seed() {
    let script = "fn advantage(batch, p) { metric(\"noise\", batch.random(\"response\").sum(\"batch\").value()); batch.reward }";
    let mut lab = Lab::new(script);
    (lab.config.seed, lab.config.steps, lab.config.batch_every) = (5, 3, 1);
    go(&mut lab.create());
    let row = lines(&lab.file("metrics.jsonl")).pop().unwrap();
    let noise = &row["metrics"]["noise"];
    let (run, batch) = (lab.run(), "batches/step-000002.safetensors");
    for input in ["FOLDER/run", &format!("FOLDER/run/{batch}")] {
        let applied = |more: &str| {
            let line = format!("apply --json FOLDER/recipe.rhai {input}{more}");
            let json: serde_json::Value = serde_json::from_str(&done(lab.place(), &line)).unwrap();
            json["metrics"]["noise"].clone()
        };
        assert_eq!(applied(""), *noise);
        assert_ne!(applied(" --seed 0"), *noise);
    }
    let mut session = PromptSession::new(&Host::new(), Paint::PLAIN);
    session.open(&run, &[]).unwrap();
    let typed = "batch.random(\"response\").sum(\"batch\").value()";
    let drawn: f64 = session.submit(typed).text.parse().unwrap();
    // The prompt shows fewer digits.
    assert!(
        (drawn - noise.as_f64().unwrap()).abs() < 1e-3,
        "{drawn} {noise}"
    );
    assert!(session.submit(":run").text.contains("noise"));
    // A file of nobody's run has the seed 0 again.
    let alone = lab.folder.path().join("alone.safetensors");
    std::fs::copy(lab.file(batch), &alone).unwrap();
    session.open(&alone, &[]).unwrap();
    let of_file = session.submit(typed).text;
    session.set_seed(0);
    session.open(&run, &[]).unwrap();
    let other = session.submit(typed).text;
    assert_eq!(of_file, other);
    let other: f64 = other.parse().unwrap();
    assert!((drawn - other).abs() > 1e-2, "{drawn} {other}");
}

#[test]
fn a_script_without_an_ending_may_import_one_of_its_name() {
    let mut lab = Lab::new("fn centered(x) { x - 0.5 }");
    let script = lab.folder.path().join("recipe");
    let text = "import \"recipe\" as r;\nfn advantage(batch, p) { r::centered(batch.reward) }";
    std::fs::write(&script, text).unwrap();
    lab.config.recipe = script.display().to_string();
    go_to(&mut lab.create(), 5);
    go_to(&mut lab.resume(), 8);
    assert_eq!(replayed(&lab.run()), (8, None));
}

#[test]
fn a_number_that_was_changed_is_found() {
    let lab = Lab::new(STATEFUL);
    go(&mut lab.create());
    let path = lab.file("metrics.jsonl");
    let mut rows = lines(&path);
    let entropy = rows[13]["entropy"].as_f64().unwrap();
    // The nearest number there is.
    let wrong = f64::from_bits(entropy.to_bits() + 1);
    rows[13]["entropy"] = json!(wrong);
    rows[15]["length"] = json!(0.0);
    let changed: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&path, changed).unwrap();
    let difference = Difference {
        step: 13,
        field: "entropy".to_string(),
        recorded: Some(json!(wrong)),
        repeated: Some(json!(entropy)),
    };
    assert_eq!(replayed(&lab.run()).1, Some(difference));
    let output = command(lab.place(), "replay FOLDER/run").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    says(&text, &["step 13 is the first that differs"]);
}

#[test]
fn a_kept_script_that_was_edited_is_refused() {
    let lab = Lab::new(STATEFUL);
    go_to(&mut lab.create(), 2);
    let scripts = std::fs::read_dir(lab.file("scripts")).unwrap();
    for entry in scripts {
        let kept = entry.unwrap().path().join("recipe.rhai");
        if kept.exists() {
            let text = std::fs::read_to_string(&kept).unwrap();
            std::fs::write(&kept, format!("{text}// edited\n")).unwrap();
        }
    }
    let error = refused(lab.place(), "replay FOLDER/run");
    says(&error, &["was the file edited"]);
}

/// A row of a step that the run does not have: whoever looked for it would never end.
#[test]
fn a_row_of_another_step_is_told() {
    let lab = Lab::new(STATEFUL);
    go_to(&mut lab.create(), 6);
    let path = lab.file("metrics.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    let refuse = |found: &str, expected: &str| {
        std::fs::write(&path, format!("{whole}{{\"step\":{found}}}\n")).unwrap();
        for line in ["replay FOLDER/run", "train --resume FOLDER/run"] {
            let told = format!("its step is {found}: expected {expected}");
            says(
                &refused(lab.place(), line),
                &["metrics.jsonl, line 7: ", &told],
            );
        }
    };
    for found in ["1000000000", "18446744073709551615", "24", "5"] {
        refuse(found, "a step from 6 to 23");
    }
    std::fs::write(&path, format!("{whole}{{\"step\":null}}\n")).unwrap();
    for line in ["replay FOLDER/run", "train --resume FOLDER/run"] {
        let told = "metrics.jsonl, line 7: the line is JSON, but not a line that a run writes: ";
        says(
            &refused(lab.place(), line),
            &[told, "null", "repair the line"],
        );
    }
    let note = Run::set_damaged_aside(&lab.run()).unwrap().unwrap();
    says(&note, &["1 damaged line of metrics.jsonl"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    let config = std::fs::read_to_string(lab.file("config.toml")).unwrap();
    let short = config.replace("\nsteps = 24\n", "\nsteps = 6\n");
    std::fs::write(lab.file("config.toml"), short).unwrap();
    refuse("6", "no row after the run's 6 steps");
    std::fs::write(lab.file("config.toml"), config).unwrap();
    // A gap may be where damaged lines were.
    let rows: Vec<&str> = whole.split_inclusive('\n').collect();
    std::fs::write(&path, [&rows[..2], &rows[4..]].concat().concat()).unwrap();
    assert_eq!(replayed(&lab.run()), (4, None));
}
