//! A version that fails at a step, though it passed its checks, gives way to the one before.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use advlab::files::{ReadOptions, read};
use advlab::script::Host;
use advlab_train::{Ending, Event, LogEvent, Run, RunFolder};

use super::lab::{Lab, STATEFUL, done, go, go_to, go_until, lines, replayed, rows, says};

/// Works for eight steps: its state knows.
const FAILS_LATER: &str = r#"
fn init(p) { #{ left: 8 } }
fn migrate(old, p) { #{ left: 8 } }
fn advantage(batch, p) {
    this.left -= 1;
    if this.left < 0 { throw "worn out"; }
    metric("left", this.left);
    batch.reward - batch.reward.mean("batch")
}
"#;

/// Has a loss that fails in the second update, when the policy has changed already.
const FAILS_IN_LOSS: &str = r#"
fn init(p) { #{ left: 8, calls: 0 } }
fn migrate(old, p) { #{ left: 8, calls: 0 } }
fn advantage(batch, p) {
    this.left -= 1;
    this.calls = 0;
    batch.reward - batch.reward.mean("batch")
}
fn loss(batch, p) {
    this.calls += 1;
    if this.left < 0 && this.calls > 1 { throw "worn out"; }
    -(batch.advantage * batch.logp).mean("batch")
}
"#;

/// Steps after the failure: time enough for the version to be tried again, if it were.
const MORE: u64 = 80;

/// Saves `edit` at step 3, and goes on until a version has failed and half a second has passed; stops before that at each
/// step that `is_stop` wants, to be resumed there.
fn run_into_failure(lab: &Lab, edit: &str, is_stop: &dyn Fn(u64) -> bool) {
    let mut run = lab.create();
    let mut switched = 0;
    let mut failed = None;
    loop {
        let ending = go_until(&mut run, |event| match event {
            Event::Log(entry) => {
                match &entry.line.event {
                    LogEvent::Use { .. } => switched = entry.line.step,
                    LogEvent::Failed { .. } => failed = Some(entry.line.step),
                    _ => {}
                }
                false
            }
            Event::Step { row, .. } => {
                if row.step == 3 {
                    std::fs::write(lab.script(), edit).unwrap();
                }
                std::thread::sleep(Duration::from_millis(4));
                let is_over = failed.is_some_and(|step| row.step > step + MORE);
                is_over || switched > 0 && is_stop(row.step - switched)
            }
            _ => false,
        });
        let step = run.step();
        assert_eq!(ending, Ending::Stopped(step));
        if failed.is_some_and(|failed| step > failed + MORE) {
            return;
        }
        drop(run);
        run = lab.resume();
    }
}

fn check(edit: &str, is_stop: &dyn Fn(u64) -> bool) {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 100_000;
    run_into_failure(&lab, edit, is_stop);
    let rows = rows(&lab.run());
    let reloads = lines(&lab.file("reloads.jsonl"));
    let event = |name: &str| {
        let found = reloads.iter().filter(|line| line["event"] == name);
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "{name} in {reloads:#?}");
        found[0]
    };
    let (start, used, failed) = (event("start"), event("use"), event("failed"));
    let (from, to) = (
        used["step"].as_u64().unwrap(),
        failed["step"].as_u64().unwrap(),
    );
    assert_eq!(to, from + 8);
    assert_eq!(failed["back_to"], start["version"]);
    assert!(failed["error"].as_str().unwrap().contains("worn out"));
    for row in &rows {
        let step = row["step"].as_u64().unwrap();
        let is_new = (from..to).contains(&step);
        let expected = if is_new { used } else { start };
        assert_eq!(row["version"], expected["version"]);
        assert_eq!(row.get("failed").is_some(), step == to);
    }
    // So the folder is read by whoever looks at a step.
    let kept = RunFolder::open(&lab.run()).unwrap();
    let log = kept.log().unwrap();
    let versions = [(0, start), (from, used), (to, start)]
        .map(|(step, line)| (step, line["version"].as_str().unwrap()));
    assert_eq!(log.versions(), versions);
    for (step, expected) in [(to - 1, used), (to + 1, start)] {
        let recipe = kept.recipe_at(&Host::new(), step).unwrap();
        assert_eq!(
            Some(recipe.version().as_str()),
            expected["version"].as_str()
        );
    }
    // The first version goes on with the state that it left.
    let batch = lab.file(failed["batch"].as_str().unwrap());
    let kept = read(&batch, &ReadOptions::default()).unwrap().batch;
    assert_eq!((kept.step(), kept.layout().responses()), (to, 16));
    done(&batch, "apply grpo FOLDER");
    let steps = rows.len() as u64;
    assert_eq!(replayed(&lab.run()), (steps, None));
}

#[test]
fn the_step_falls_back_and_its_batch_is_kept() {
    check(FAILS_LATER, &|_| false);
}

#[test]
fn a_loss_that_fails_after_an_update_takes_the_update_back() {
    check(FAILS_IN_LOSS, &|_| false);
}

#[test]
fn a_resumed_run_falls_back_as_well() {
    check(FAILS_LATER, &|steps| steps == 4 || steps == 7 || steps == 9);
}

/// A crash leaves rows behind that no checkpoint has.
#[test]
fn steps_since_the_checkpoint_are_done_again_by_the_versions_that_they_had() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 100_000;
    lab.config.checkpoint_every = 100_000;
    run_into_failure(&lab, FAILS_LATER, &|_| false);
    let before = rows(&lab.run());
    let steps = before.len() as u64;
    std::fs::remove_dir_all(lab.file(&format!("checkpoints/{steps:06}"))).unwrap();
    let files = ["metrics.jsonl", "reloads.jsonl"].map(|name| lab.file(name));
    let recorded = files.each_ref().map(|path| std::fs::read(path).unwrap());
    // Saved between the crash and now: for the steps to come.
    std::fs::write(lab.script(), STATEFUL.replace("0.01 *", "0.02 *")).unwrap();

    let mut again = Vec::new();
    // Stopped on the way, and at its end.
    for stop_at in [steps / 2, steps] {
        let mut run = lab.resume();
        let note = format!("steps {} to {} came after", again.len(), steps - 1);
        assert!(run.notes().iter().any(|told| told.starts_with(&note)));
        let ending = go_until(&mut run, |event| {
            if let Event::Step { row, .. } = event {
                let mut row = serde_json::json!(row);
                row.as_object_mut().unwrap().remove("ms");
                again.push(row);
            }
            again.len() as u64 == stop_at
        });
        assert_eq!(ending, Ending::Stopped(stop_at));
        let now = files.each_ref().map(|path| std::fs::read(path).unwrap());
        assert!(
            now == recorded,
            "nothing is recorded twice, and nothing lost"
        );
    }
    assert_eq!(again, before);
    go_to(&mut lab.resume(), steps + 2);
    let after = rows(&lab.run());
    assert_ne!(after[steps as usize]["version"], after[0]["version"]);
    assert_eq!(replayed(&lab.run()), (steps + 2, None));
}

#[test]
fn a_rejected_version_is_tried_again_when_it_is_saved_again() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 100_000;
    run_into_failure(&lab, FAILS_LATER, &|_| false);
    let mut run = lab.resume();
    assert!(
        run.notes()[0].contains("save it again"),
        "{:?}",
        run.notes()
    );
    let (begin, mut switched) = (run.step(), None);
    go_until(&mut run, |event| match event {
        Event::Log(entry) if matches!(entry.line.event, LogEvent::Use { .. }) => {
            switched = Some(entry.line.step);
            false
        }
        Event::Step { row, .. } => {
            std::thread::sleep(Duration::from_millis(4));
            if row.step == begin + MORE {
                std::fs::write(lab.script(), FAILS_LATER).unwrap();
            }
            switched.is_some() || row.step > begin + 50_000
        }
        _ => false,
    });
    assert!(
        switched.is_some_and(|step| step > begin + MORE),
        "{switched:?}"
    );
}

/// Takes over two of three states. A check sees the state of one step, and the run is one or more ahead of it: now and then
/// the check passes, and the run does not.
fn migrates_sometimes(number: u32) -> String {
    format!(
        "// {number}\nfn init(p) {{ #{{ n: 0 }} }}\nfn migrate(old, p) {{ if old.n % 3 == 0 {{ throw \"not now\"; }} old }}\nfn advantage(batch, p) {{ this.n += 1; metric(\"n\", this.n); batch.reward - 0.5 }}\n"
    )
}

#[test]
fn a_migrate_that_fails_on_the_runs_own_state_is_repeated_too() {
    let mut lab = Lab::new(&migrates_sometimes(0));
    lab.config.steps = 100_000;
    let mut run = lab.create();
    let (mut saves, mut failures, mut switches_after, mut is_judged) = (0, 0, 0, true);
    go_until(&mut run, |event| {
        match event {
            Event::Step { row, .. } => {
                std::thread::sleep(Duration::from_millis(4));
                if failures > 0 && switches_after > 0 || row.step > 50_000 {
                    return true;
                }
                if std::mem::take(&mut is_judged) {
                    saves += 1;
                    std::fs::write(lab.script(), migrates_sometimes(saves)).unwrap();
                }
            }
            Event::Log(entry) => match &entry.line.event {
                LogEvent::Use { .. } => {
                    switches_after += usize::from(failures > 0);
                    is_judged = true;
                }
                LogEvent::Failed { hook, .. } => {
                    assert_eq!(hook, "migrate");
                    (failures, is_judged) = (failures + 1, true);
                }
                event => is_judged |= matches!(event, LogEvent::Rejected { .. }),
            },
            _ => {}
        }
        false
    });
    assert!(
        failures > 0 && switches_after > 0,
        "{saves} saves, {failures} failures"
    );
    // Every step counted, whatever became of the saves.
    let rows = rows(&lab.run());
    for (step, row) in rows.iter().enumerate() {
        assert_eq!(row["metrics"]["n"], (step + 1) as f64);
    }
    let steps = rows.len() as u64;
    assert_eq!(replayed(&lab.run()), (steps, None));
}

#[test]
fn without_a_version_that_worked_the_run_ends_and_goes_on_once_the_script_is_mended() {
    let mut lab = Lab::new(&FAILS_LATER.replace("\"worn out\"", "\"no more\""));
    lab.config.steps = 20;
    let fails = |mut run: Run| run.go(&AtomicBool::new(false), &mut |_| {}).unwrap_err();
    let error = fails(lab.create()).to_string();
    says(&error, &["no more"]);
    assert_eq!(rows(&lab.run()).len(), 8);
    let names = std::fs::read_dir(lab.file("batches")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.any(|name| name.starts_with("failed-000008-")));

    // Nothing was mended.
    fails(lab.resume());
    std::fs::write(lab.script(), "fn advantage(batch, p) { batch.reward }").unwrap();
    assert_eq!(go(&mut lab.resume()), Ending::Finished);
    let rows = rows(&lab.run());
    assert_eq!(rows.len(), 20);
    assert_ne!(rows[7]["version"], rows[8]["version"]);
    assert_eq!(replayed(&lab.run()), (20, None));
}
