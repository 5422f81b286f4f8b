//! Designs compared: the runs of a comparison are those that `train` does, and a stopped one goes on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use advlab::compare::{self, Comparison, Planned};
use advlab::train::Config;

use super::lab::Lab;

fn designs(lab: &Lab) -> Vec<Config> {
    let of = |recipe: &str| Config {
        recipe: recipe.to_string(),
        steps: 6,
        eval_every: 2,
        ..lab.config.clone()
    };
    let mut passk = of("passk");
    passk.set("k", "2");
    vec![of("grpo"), passk]
}

/// Plans, runs what is left, stops after so many steps, and counts the steps that were done.
fn go(lab: &Lab, folder: &Path, seeds: u64, stop_after: usize) -> (usize, Vec<Planned>) {
    let planned = Planned::all(&designs(lab), seeds, folder).expect("a plan");
    let (stop, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ended = compare::run(&planned, &stop, &|finished| {
        if finished.is_none() && steps.fetch_add(1, Ordering::Relaxed) + 1 >= stop_after {
            stop.store(true, Ordering::Relaxed);
        }
    });
    ended.expect("runs");
    (steps.into_inner(), planned)
}

#[test]
fn designs_by_seeds_are_run_resumed_and_reported() {
    let lab = Lab::new("fn advantage(batch, p) { batch.reward }");
    let folder = lab.folder.path().join("compare");
    let (before, _) = go(&lab, &folder, 2, 5);
    assert!((5..24).contains(&before), "{before}");
    let (_, planned) = go(&lab, &folder, 2, usize::MAX);
    assert_eq!(planned.len(), 4);
    assert_eq!(go(&lab, &folder, 2, usize::MAX).0, 0);

    let runs = compare::read(std::slice::from_ref(&folder)).expect("the runs");
    let names: Vec<&str> = runs.iter().map(|design| design.name.as_str()).collect();
    assert_eq!(names, ["grpo", "passk k=2"]);
    // What was stopped and went on has the numbers of a run that was not.
    let whole = lab.folder.path().join("whole");
    let config = Config {
        out: whole.display().to_string(),
        seed: 1,
        ..designs(&lab)[1].clone()
    };
    let mut run = advlab::train::Run::create(config).expect("a run");
    run.go(&AtomicBool::new(false), &mut |_| {}).expect("steps");
    let alone = compare::read(&[whole]).expect("the run");
    let seed = runs[1]
        .runs
        .iter()
        .find(|run| run.seed == Some(1))
        .expect("seed 1");
    assert_eq!(seed.curves, alone[0].runs[0].curves);
    let steps: Vec<f64> = seed.curves["pass@1"].iter().map(|point| point.0).collect();
    assert_eq!(steps, [0.0, 2.0, 4.0, 6.0]);

    let comparison = Comparison::of(runs);
    assert!(
        comparison.claims()[0].contains("too few seeds"),
        "{:?}",
        comparison.claims()
    );
    comparison.write(&folder).expect("a report");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let html = read("report.html");
    assert!(html.contains("<svg ") && html.contains("passk k=2") && !html.contains("src="));
    assert_eq!(read("runs.csv").lines().count(), 5);
    assert!(read("report.md").starts_with("| design | seeds | pass@1 |"));

    // The same folder with another configuration is refused, and so are two designs of one name.
    let mut other = designs(&lab);
    other[0].lr = 0.5;
    let refused = Planned::all(&other, 1, &folder).expect_err("another lr");
    assert!(
        refused.to_string().contains("another configuration"),
        "{refused}"
    );
    // So is another version of a script; of runs of different lengths all are read where the shortest ends.
    let own = Config {
        recipe: lab.config.recipe.clone(),
        ..designs(&lab)[0].clone()
    };
    let edited = lab.folder.path().join("edited");
    let plan = |steps| {
        Planned::all(
            &[Config {
                steps,
                ..own.clone()
            }],
            1,
            &edited,
        )
    };
    let goes = |planned: &[Planned]| compare::run(planned, &AtomicBool::new(false), &|_| {});
    goes(&plan(4).expect("a plan")).expect("a run");
    let text = Comparison::of(compare::read(&[folder.clone(), edited.clone()]).expect("runs"));
    let text = text.markdown();
    assert!(text.contains("after 4 steps"), "{text}");
    assert!(plan(4).is_ok());
    std::fs::write(&own.recipe, "fn advantage(batch, p) { -batch.reward }").expect("an edit");
    let refused = plan(4).expect_err("an edited script").to_string();
    assert!(refused.contains("was run with version"), "{refused}");

    let twice = [other[0].clone(), other[0].clone()];
    let refused = Planned::all(&twice, 1, &lab.folder.path().join("twice")).expect_err("one name");
    assert!(refused.to_string().contains("two designs"), "{refused}");
}
