//! Designs compared: the runs of a comparison are those that `train` does, and a stopped one goes on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use advlab::paint::Paint;
use advlab_cli::report::compare::{self, Comparison, Planned};
use advlab_cli::report::draw::FigureWidth;
use advlab_train::Config;

use super::lab::{Lab, refused, says};

fn designs(lab: &Lab) -> Vec<(String, Config)> {
    let of = |words: &str, settings: &[(&str, &str)]| {
        let mut config = Config {
            recipe: words.split(' ').next().unwrap_or_default().to_string(),
            steps: 6,
            eval_every: 2,
            ..lab.config.clone()
        };
        for (name, value) in settings {
            config.assign(name, value).expect("a setting");
        }
        (words.to_string(), config)
    };
    let clip = [("loss_params.clip_high", "0.001"), ("lr", "0.02")];
    vec![
        of("grpo", &[]),
        of("passk k=2", &[("k", "2")]),
        of("grpo clip", &clip),
    ]
}

/// Plans, runs what is left, stops after so many steps, and counts the steps that were done.
fn go(lab: &Lab, folder: &Path, seeds: u64, stop_after: usize) -> (usize, Vec<Planned>) {
    let planned = Planned::all(&designs(lab), seeds, folder).expect("a plan");
    let (stop, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failed = compare::train_all(&planned, &stop, &|finished| {
        if finished.is_none() && steps.fetch_add(1, Ordering::Relaxed) + 1 >= stop_after {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(failed.is_empty(), "{failed:?}");
    (steps.into_inner(), planned)
}

#[test]
fn designs_by_seeds_are_run_resumed_and_reported() {
    let lab = Lab::new("fn advantage(batch, p) { batch.reward }");
    let folder = lab.folder.path().join("compare");
    let (before, _) = go(&lab, &folder, 2, 5);
    assert!((5..36).contains(&before), "{before}");
    let (_, planned) = go(&lab, &folder, 2, usize::MAX);
    assert_eq!(planned.len(), 6);
    assert_eq!(go(&lab, &folder, 2, usize::MAX).0, 0);

    let runs = compare::read(std::slice::from_ref(&folder)).expect("the runs");
    let names: Vec<&str> = runs.iter().map(|design| design.name.as_str()).collect();
    let clip = "grpo loss_params.clip_high=0.001 lr=0.02";
    assert_eq!(names, ["grpo lr=0.01", clip, "passk k=2 lr=0.01"]);
    // What was stopped and went on has the numbers of a run that was not.
    let whole = lab.folder.path().join("whole");
    let config = Config {
        out: whole.display().to_string(),
        seed: 1,
        ..designs(&lab)[1].1.clone()
    };
    let mut run = advlab_train::Run::create(config).expect("a run");
    run.go(&AtomicBool::new(false), &mut |_| {}).expect("steps");
    let alone = compare::read(&[whole]).expect("the run");
    let seed = runs[2]
        .runs
        .iter()
        .find(|run| run.seed == Some(1))
        .expect("seed 1");
    assert_eq!(seed.curves, alone[0].runs[0].curves);
    let steps: Vec<f64> = seed.curves["pass@1"].iter().map(|point| point.0).collect();
    assert_eq!(steps, [0.0, 2.0, 4.0, 6.0]);

    let comparison = Comparison::of(runs, &[]);
    assert!(
        comparison.claims()[0].contains("too few seeds to compare"),
        "{:?}",
        comparison.claims()
    );
    let mut same = compare::read(&[folder.join("grpo")]).expect("runs");
    same.push(same[0].clone());
    let claims = Comparison::of(same, &[]).claims();
    assert!(
        claims[0].ends_with("the two designs give the same results"),
        "{claims:?}"
    );
    comparison
        .report(Paint::PLAIN, "advlab compare grpo passk k=2")
        .write_folder(&folder)
        .expect("a report");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let html = read("report.html");
    // Four evaluations are no learning curve.
    assert!(html.contains("passk k=2") && !html.contains("src=") && !html.contains("<svg"));
    let parts = [
        "<pre>advlab compare grpo passk k=2</pre>",
        "a design has 4 evaluations, and a curve needs at least 5",
        "seed 1\n    ",
        " from step 0\n",
        "lr = 0.01",
        "---- passk.rhai, version ",
        "---- ppo_clip.rhai, version ",
        " core",
    ];
    says(&html, &parts);
    assert!(!folder.join("curves.svg").exists());
    assert_eq!(read("runs.csv").lines().count(), 7);

    // The same folder with another configuration is refused, and so are two designs of one name.
    let mut other = designs(&lab);
    other[0].1.lr = 0.5;
    let refused = Planned::all(&other, 1, &folder).expect_err("another lr");
    says(&refused.to_string(), &["another configuration"]);
    // So is another version of a script; of runs of different lengths all are read where the shortest ends.
    let own = Config {
        recipe: lab.config.recipe.clone(),
        ..designs(&lab)[0].1.clone()
    };
    let edited = lab.folder.path().join("edited");
    let plan = |steps| {
        let config = Config {
            steps,
            ..own.clone()
        };
        Planned::all(&[("a|b".to_string(), config)], 1, &edited)
    };
    let planned = plan(4).expect("a plan");
    assert!(compare::train_all(&planned, &AtomicBool::new(false), &|_| {}).is_empty());
    let text = Comparison::of(
        compare::read(&[folder.clone(), edited.clone()]).expect("runs"),
        &[],
    );
    let text = text.report(Paint::PLAIN, "").text;
    says(&text, &["after 4 steps, the last"]);
    assert!(plan(4).is_ok());
    std::fs::write(&own.recipe, "fn advantage(batch, p) { -batch.reward }").expect("an edit");
    let refused = plan(4).expect_err("an edited script").to_string();
    says(&refused, &["last used version"]);

    let twice = [other[0].clone(), other[0].clone()];
    let refused = Planned::all(&twice, 1, &lab.folder.path().join("twice")).expect_err("one name");
    says(&refused.to_string(), &["two designs"]);
}

/// A name is a parameter or a key for all designs; where one has both, each spelling is told.
#[test]
fn a_flag_means_one_thing_for_all_designs() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/k_annealed.rhai");
    let folder = tempfile::tempdir().expect("a folder");
    for designs in [["grpo", script], [script, "grpo"]] {
        let line = format!("compare {} --set steps=2", designs.join(" "));
        let text = refused(folder.path(), &line);
        says(&text, &["`recipe.steps=2`", "`run.steps=2`"]);
    }
    for (other, said) in [
        ("runs/nope", "runs/nope does not exist"),
        ("grpo", "give either recipes or folders"),
    ] {
        let text = refused(folder.path(), &format!("compare FOLDER {other}"));
        says(&text, &[said]);
    }
    let mut config = Config {
        recipe: script.to_string(),
        ..Config::default()
    };
    assert!(config.assign("steps", "7").is_err());
    // A table takes no value, and is none to suggest.
    for (typed, table) in [
        ("params", "params"),
        ("math", "math"),
        ("warning", "warnings"),
    ] {
        let refused = config.assign(typed, "1").expect_err("a table");
        let refused = refused.render(false);
        assert!(!refused.contains(&format!("`{table}`?")), "{refused}");
    }
    config.assign("recipe.steps", "7").expect("a parameter");
    config.assign("run.steps", "8").expect("a key");
    assert_eq!(
        (config.params["steps"].as_integer(), config.steps),
        (Some(7), 8)
    );
}

#[test]
fn a_run_that_fails_is_told_of_and_the_others_go_on() {
    let lab = Lab::new("fn advantage(batch, p) { batch.reward }");
    let folder = lab.folder.path().join("compare");
    let fails = "fn advantage(batch, p) { if batch.step > 0 { throw \"no more\" } batch.reward }";
    let script = lab.folder.path().join("fails.rhai");
    std::fs::write(&script, fails).expect("a script");
    let failing = Config {
        recipe: script.display().to_string(),
        ..designs(&lab)[0].1.clone()
    };
    let planned = [("fails".to_string(), failing), designs(&lab).remove(0)];
    let planned = Planned::all(&planned, 2, &folder).expect("a plan");
    let failed = compare::train_all(&planned, &AtomicBool::new(false), &|_| {});
    assert_eq!(failed.len(), 2);
    let comparison = Comparison::of(
        compare::read(&[folder.join("grpo")]).expect("runs"),
        &failed,
    );
    let text = comparison.report(Paint::PLAIN, "").text;
    says(&text, &["grpo        2 "]);
    assert!(comparison.claims()[0].contains("fails/seed-0 failed and is not compared: "));
}

/// Any number of the evaluations can decide; of the others, each keeps its column.
#[test]
fn designs_are_compared_by_the_number_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    // In pass@1 the two are alike; the second is always shorter.
    for (design, longer) in [("one", 10), ("two", 0)] {
        for seed in 0..4 {
            let run = folder.path().join(format!("{design}/{seed}"));
            std::fs::create_dir_all(&run).expect("a folder");
            let length = longer + seed;
            let row = |step: u64| {
                format!(
                    "{{\"step\": {step}, \"evaluation\": {{\"pass@1\": 0.{seed}, \"pass@2\": 0.5, \"length\": {length}}}, \"ms\": {{}}}}\n"
                )
            };
            std::fs::write(run.join("metrics.jsonl"), [row(0), row(1)].concat()).expect("metrics");
            let config = format!("seed = {seed}\nlr = 0.0{}\n", 1 + longer);
            std::fs::write(run.join("config.toml"), config).expect("a configuration");
        }
    }
    let comparison = || {
        let runs = ["one", "two"].map(|design| folder.path().join(design));
        Comparison::of(compare::read(&runs).expect("runs"), &[])
    };
    let is = "no significant difference from grpo lr=0.011 in pass@1 at the 95 % level";
    let claims = comparison().claims();
    assert!(claims[0].contains(is), "{claims:?}");
    let by_length = comparison().by("length").expect("a number of the runs");
    let is = "is below grpo lr=0.011 in length at the 95 % level (p = 0.02857, 4 seeds and 4)";
    assert!(
        by_length.claims()[0].contains(is),
        "{:?}",
        by_length.claims()
    );
    let text = by_length.report(Paint::PLAIN, "").text;
    says(
        &text,
        &["  length  ", "pass@1  ", "length and the other numbers are"],
    );
    let refused = comparison().by("pass@3").expect_err("not evaluated");
    says(
        &refused.to_string(),
        &["no `pass@3`", "did you mean `pass@"],
    );
}

/// Runs as a file has them: evaluations after some steps, and the configuration's text.
fn run_at(folder: &Path, config: Option<&str>, steps: &[u64]) {
    std::fs::create_dir_all(folder).expect("a folder");
    let row = |step: &u64| {
        let step = step - 1;
        format!("{{\"step\": {step}, \"evaluation\": {{\"pass@1\": 0.5}}, \"ms\": {{}}}}\n")
    };
    let rows: String = steps.iter().map(row).collect();
    std::fs::write(folder.join("metrics.jsonl"), rows).expect("metrics");
    if let Some(text) = config {
        std::fs::write(folder.join("config.toml"), text).expect("a configuration");
    }
}

/// A seed counts once, however many names its folder has.
#[cfg(unix)]
#[test]
fn a_run_that_is_linked_or_named_twice_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let [runs, one, link] = ["runs", "runs/a", "runs/b"].map(|name| folder.path().join(name));
    run_at(&one, Some("seed = 1\n"), &[3]);
    std::os::unix::fs::symlink(&one, link).expect("a link");
    std::fs::write(
        one.join("reloads.jsonl"),
        "{\"event\":\"start\",\"version\":\"aa\"}\n",
    )
    .expect("a log");
    let designs = compare::read(&[runs, one]).expect("the run");
    let counts: Vec<usize> = designs.iter().map(|design| design.runs.len()).collect();
    assert_eq!(counts, [1]);
}

#[test]
fn runs_without_a_common_step_say_so_and_names_stay_in_their_cells() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, other] = ["a|b", "trainer"].map(|name| folder.path().join(name));
    run_at(&one, None, &[3, 7]);
    run_at(&other, Some("task = \"trainer\"\n"), &[5]);
    let comparison = Comparison::of(compare::read(&[one, other]).expect("runs"), &[]);
    let report = comparison.report(Paint::PLAIN, "");
    report.write_folder(folder.path()).expect("a report");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file");
    let runs = read("runs.csv");
    assert!(runs.lines().all(|line| !line.contains(",0,")), "{runs}");
    let text = report.text.replace('\n', " ");
    says(
        &text,
        &["there is no step after which all runs have this score"],
    );
    // Five evaluations are a learning curve, in all of its files.
    let five = folder.path().join("five");
    run_at(&five, None, &[1, 2, 3, 4, 5]);
    let mut comparison = Comparison::of(compare::read(&[five]).expect("a run"), &[]);
    comparison.width = FigureWidth::Single;
    let report = comparison.report(Paint::PLAIN, "");
    report.write_folder(folder.path()).expect("a report");
    says(
        &read("report.html"),
        &["<svg ", "width=\"312\"", "<figcaption>Interquartile mean"],
    );
    assert!(read("curves.svg").starts_with("<svg"));
    let pdf = folder.path().join("curves.pdf");
    let error = report.write(&pdf, "").expect_err("no PDF").to_string();
    says(&error, &["ends in .svg", "rsvg-convert -f pdf"]);
    assert!(!pdf.exists());
}
