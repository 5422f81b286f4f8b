//! Commands that change files, what they leave behind when they are interrupted, and how they go on.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::Trials;
use super::lab::{Lab, STATEFUL, command, done, go_to, replayed, rows};
use super::trace::{Act, Failure, Traced, run};

/// A command, what its folder contains before it, and where it writes: a run's folder, or a file.
struct Case(&'static str, fn() -> Lab, &'static str);

/// The steps of a run.
const STEPS: u64 = 7;

/// Each call adds a step, and the output and the rows are of that step.
const COUNTS: &str = "fn init(p) { #{ n: 0 } }
fn advantage(batch, p) { this.n += 1; metric(\"n\", this.n); batch.reward * this.n }
";

const RESUME: &str = "train --resume FOLDER/run";
const COUNT: &str = "apply FOLDER/recipe.rhai FOLDER/in.jsonl --state FOLDER/s.json \
     --metrics FOLDER/m.jsonl -o FOLDER/out.jsonl";

static CASES: [Case; 7] = [
    Case("train FOLDER/config.toml", new_run, "run"),
    Case(RESUME, stopped_run, "run"),
    Case(
        "apply grpo FOLDER/in.jsonl -o FOLDER/out.jsonl",
        rollouts,
        "out.jsonl",
    ),
    Case(
        "apply grpo FOLDER/in.jsonl --force -o FOLDER/in.jsonl",
        rollouts,
        "in.jsonl",
    ),
    Case(
        "apply grpo FOLDER/in.parquet -o FOLDER/out.parquet",
        rollouts,
        "out.parquet",
    ),
    Case(
        "verify FOLDER/math.jsonl -o FOLDER/out.jsonl",
        rollouts,
        "out.jsonl",
    ),
    Case(COUNT, counted, "out.jsonl"),
];

/// A short run with everything that a folder can have: batches, checkpoints that are removed, events.
fn new_run() -> Lab {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = STEPS;
    lab.config.checkpoint_every = 3;
    (lab.config.keep_checkpoints, lab.config.keep_batches) = (2, 1);
    (lab.config.batch_every, lab.config.eval_every) = (3, 4);
    lab.write_config();
    lab
}

/// A run that was stopped and whose recipe was edited.
fn stopped_run() -> Lab {
    let lab = new_run();
    go_to(&mut lab.create(), 4);
    fs::write(lab.script(), STATEFUL.replace("0.01 *", "0.02 *")).unwrap();
    lab
}

fn rollouts() -> Lab {
    let lab = Lab::new(COUNTS);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let place = |name: &str| lab.place().join(name);
    fs::copy(root.join("examples/rollouts.jsonl"), place("in.jsonl")).unwrap();
    fs::copy(root.join("tests/data/math.jsonl"), place("math.jsonl")).unwrap();
    let dump = "tests/data/dumps/trl_plain.parquet";
    fs::copy(root.join(dump), place("in.parquet")).unwrap();
    for ending in ["jsonl", "parquet"] {
        fs::write(place(&format!("out.{ending}")), "old").unwrap();
    }
    lab
}

/// The state after one step.
fn counted() -> Lab {
    let lab = rollouts();
    done(lab.place(), COUNT);
    lab
}

/// A case, and what it does if nothing happens to it.
struct Expected {
    case: &'static Case,
    before: Vec<u8>,
    after: Vec<u8>,
    /// The changes of files that it makes.
    changes: usize,
}

/// Interrupts the commands in these ways, each at the change of a file or from there on: at all changes that they make, or at
/// some of them.
pub fn at_changes(trials: &Trials, kinds: &[(Act, bool)]) {
    let mut points = Vec::new();
    for expected in expected() {
        let changes =
            (0..expected.changes).flat_map(|at| kinds.iter().map(move |kind| (at, *kind)));
        points.extend(changes.map(|(at, kind)| (expected, at, kind)));
    }
    let possible = points.len();
    // Odd, so that all kinds come, whose number is a power of two.
    let stride = possible.div_ceil(trials.count).max(1) | 1;
    points.rotate_left(trials.seed as usize % stride);
    let (mut done, mut ended, mut wrong) = (0, 0, Vec::new());
    for (expected, at, (act, is_once)) in points.into_iter().step_by(stride) {
        if trials.is_over(done) {
            break;
        }
        done += 1;
        match expected.check(at, act, is_once) {
            Ok(has_ended) => ended += usize::from(has_ended),
            Err(what) => wrong.push(format!("{act:?} at change {at}, once {is_once}: {what}")),
        }
    }
    let seed = trials.seed;
    println!("{done} of {possible} interruptions, {ended} ended a command, seed {seed}");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn expected() -> &'static [Expected] {
    static EXPECTED: OnceLock<Vec<Expected>> = OnceLock::new();
    EXPECTED.get_or_init(|| CASES.iter().map(Expected::of).collect())
}

impl Expected {
    fn of(case: &'static Case) -> Expected {
        let lab = (case.1)();
        let before = case.written(&lab);
        let traced = case.run(&lab, |_| None);
        assert!(traced.status.success(), "{}: {traced:?}", case.0);
        Expected {
            case,
            before,
            after: case.written(&lab),
            changes: traced.changes,
        }
    }

    /// Interrupts the command, and checks what it says, what there is then, and after it was called again; gives whether it ended.
    fn check(&self, at: usize, act: Act, is_once: bool) -> Result<bool, String> {
        let lab = (self.case.1)();
        let acts = |change| (change == at || change > at && !is_once).then_some(act);
        let traced = self.case.run(&lab, acts);
        let says = |what| format!("{}: {what}\n{traced:?}", self.case.0);
        let code = traced.status.code();
        let is_told = traced.stderr.contains("os error");
        let is_right = match act {
            // A run whose threads take turns differently may have one change fewer.
            Act::Kill | Act::KillHalfway if traced.changes <= at => {
                code == Some(0) && traced.changes + 1 >= self.changes
            }
            Act::Kill | Act::KillHalfway => traced.status.signal() == Some(libc::SIGKILL),
            // One that is not caught yet ends the program as a kill does.
            Act::Signal(signal) if code == Some(128 + signal) => {
                traced.stderr.contains("interrupted")
            }
            Act::Signal(signal) => code == Some(0) || traced.status.signal() == Some(signal),
            // A file that cannot be tidied away is no error.
            Act::Fail(_) => code == Some(0) || code == Some(1) && is_told,
            Act::Wait(_) | Act::Back(_) => code == Some(0),
        };
        if !is_right || traced.stderr.contains("panicked") {
            return Err(says("how it ends".to_string()));
        }
        let cannot = [Failure::ReadOnly, Failure::Gone].map(Act::Fail);
        let can_remove = code.is_some() && !cannot.contains(&act);
        if can_remove && let Some(path) = left(lab.place()) {
            return Err(says(format!("{} was left", path.display())));
        }
        // A run ends at a signal as after its last step.
        let may_end_early = matches!(act, Act::Signal(_));
        if code == Some(0) && !may_end_early && self.case.written(&lab) != self.after {
            return Err(says("it ended with 0, without its result".to_string()));
        }
        self.check_files(&lab).map_err(says)?;
        Ok(code != Some(0))
    }

    fn check_files(&self, lab: &Lab) -> Result<(), String> {
        let case = self.case;
        let says = |what: &str| Err(what.to_string());
        if case.2 == "run" {
            // A run that had ended refuses to go on.
            if !lab.file("checkpoints/000007").exists() {
                let begun = lab.file("config.toml").exists();
                let line = if begun { RESUME } else { CASES[0].0 };
                let output = command(lab.place(), line).output().unwrap();
                if !output.status.success() {
                    return says(&format!("it does not go on: {output:?}"));
                }
            }
            let (steps, difference) = replayed(&lab.run());
            if (steps, &difference) != (STEPS, &None) {
                return says(&format!("the replay of {steps} steps: {difference:?}"));
            }
            if case.written(lab) != self.after {
                return says("the rows differ");
            }
            return match left(&lab.run()) {
                Some(path) => says(&format!("{} was left", path.display())),
                None => Ok(()),
            };
        }
        let is_done = match case.written(lab) {
            written if written == self.after => true,
            written if written == self.before => false,
            _ => return says("the output is neither the old one nor the new one"),
        };
        if case.0 == COUNT {
            return check_state(lab, is_done);
        }
        done(lab.place(), case.0);
        if case.written(lab) == self.after {
            Ok(())
        } else {
            says("it does not do it again")
        }
    }
}

/// The state is of the step before or of this one, which is then written, and its rows are each there once.
fn check_state(lab: &Lab, is_done: bool) -> Result<(), String> {
    let number = || {
        let text =
            fs::read_to_string(lab.place().join("s.json")).map_err(|error| error.to_string());
        let state: serde_json::Value =
            serde_json::from_str(&text?).map_err(|error| error.to_string())?;
        state["state"]["map"]["n"]
            .as_u64()
            .ok_or(format!("{state}"))
    };
    let before = number()?;
    if ![1, 2].contains(&before) || before == 2 && !is_done {
        return Err(format!("the state is after step {before}"));
    }
    done(lab.place(), COUNT);
    let rows = super::lab::lines(&lab.place().join("m.jsonl"));
    let seen: Vec<_> = rows
        .iter()
        .map(|row| row["metrics"]["n"].as_f64())
        .collect();
    let expected: Vec<_> = (1..=before + 1).map(|n| Some(n as f64)).collect();
    match (number()?, seen == expected) {
        (now, true) if now == before + 1 => Ok(()),
        (now, _) => Err(format!("after state {before}: state {now}, rows {seen:?}")),
    }
}

impl Case {
    fn run(&self, lab: &Lab, act: impl Fn(usize) -> Option<Act>) -> Traced {
        run(&mut command(lab.place(), self.0), lab.place(), act)
    }

    /// What it wrote, without times.
    fn written(&self, lab: &Lab) -> Vec<u8> {
        match self.2 {
            "run" if !lab.file("metrics.jsonl").exists() => Vec::new(),
            "run" => format!("{:?}", rows(&lab.run())).into_bytes(),
            file => fs::read(lab.place().join(file)).unwrap(),
        }
    }
}

/// A file in a folder that was not finished.
fn left(folder: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    entries.find_map(|entry| match entry.path().is_dir() {
        _ if entry.file_name().to_string_lossy().ends_with(".part") => Some(entry.path()),
        true => left(&entry.path()),
        false => None,
    })
}
