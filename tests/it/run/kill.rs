//! kill -9 at random moments.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

use super::lab::{Lab, STATEFUL, advlab, lines, replayed, rows};

pub fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_advlab"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The steps that the run has written.
pub fn steps_of(lab: &Lab) -> usize {
    let metrics = std::fs::read(lab.file("metrics.jsonl")).unwrap_or_default();
    metrics.iter().filter(|&&byte| byte == b'\n').count()
}

fn wait_until(seconds: u64, is_over: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_over() && started.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a run, which must not have ended by itself.
fn kill(child: &mut Child, run: &str) {
    let ended = child.try_wait().unwrap();
    let resumed = |_| advlab(&["train", "--resume", run, "--steps", "1"]);
    assert_eq!(ended, None, "{:?}", ended.map(resumed));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Edits the recipe of a run while it goes, kills it once the edit is used, kills it again as it goes on, and lets it end
/// some steps later. It is then what it would have been without the kills. Gives its steps.
#[cfg(feature = "torch")]
pub fn edited_and_killed(lab: &mut Lab) -> u64 {
    lab.config.steps = 1_000_000;
    lab.config.checkpoint_every = 2;
    let config = lab.config_file();
    let (config, run) = (config.to_str().unwrap(), lab.run());
    let run = run.to_str().unwrap();
    let mut child = start(&["train", config]);
    wait_until(60, || steps_of(lab) >= 2);
    std::fs::write(lab.script(), STATEFUL.replace("0.01 *", "0.02 *")).unwrap();
    let is_used = || {
        let reloads = std::fs::read_to_string(lab.file("reloads.jsonl"));
        reloads.is_ok_and(|text| text.contains("\"use\""))
    };
    wait_until(60, is_used);
    for _ in 0..2 {
        let wanted = steps_of(lab) + 3;
        wait_until(60, || steps_of(lab) >= wanted);
        kill(&mut child, run);
        child = start(&["train", "--resume", run]);
    }
    kill(&mut child, run);
    let done = std::fs::read_to_string(lab.file("metrics.jsonl")).unwrap();
    let steps = done.lines().count() as u64 + 2;
    let output = advlab(&["train", "--resume", run, "--steps", &steps.to_string()]);
    assert!(output.status.success(), "{output:?}");
    let uses = lines(&lab.file("reloads.jsonl"));
    let uses = uses.iter().filter(|line| line["event"] == "use");
    assert_eq!(uses.count(), 1, "the edit");
    assert_eq!(replayed(&lab.run()), (steps, None));
    steps
}

#[test]
fn a_run_that_is_killed_twenty_times_has_the_numbers_of_one_that_was_not() {
    let mut lab = Lab::new(STATEFUL);
    // More than it can do before the last kill.
    lab.config.steps = 1_000_000;
    let config = lab.config_file();
    let (config, run) = (config.to_str().unwrap(), lab.run());
    let run = run.to_str().unwrap();
    let mut random = rand::rngs::ChaCha8Rng::seed_from_u64(3);
    let mut killed = 0;
    let mut torn = 0;
    while killed < 20 {
        let is_there = lab.file("config.toml").exists();
        let mut child = if is_there {
            start(&["train", "--resume", run])
        } else {
            start(&["train", config])
        };
        // Half of the kills come whenever they come, the others after some steps, however slow the machine is.
        if random.random() {
            let wanted = steps_of(&lab) + random.random_range(1..12);
            wait_until(20, || steps_of(&lab) >= wanted);
        } else {
            std::thread::sleep(Duration::from_millis(random.random_range(0..160)));
        }
        kill(&mut child, run);
        killed += 1;
        let metrics = std::fs::read(lab.file("metrics.jsonl")).unwrap_or_default();
        torn += usize::from(metrics.last().is_some_and(|last| *last != b'\n'));
    }
    let done = std::fs::read_to_string(lab.file("metrics.jsonl")).unwrap();
    let steps = done.lines().count() as u64 + 10;
    println!("{steps} steps, {torn} lines torn");
    assert!(steps > 30, "the kills left {steps} steps");
    let output = advlab(&["train", "--resume", run, "--steps", &steps.to_string()]);
    assert!(output.status.success(), "{output:?}");
    lab.config.steps = steps;
    assert_eq!(rows(&lab.run()), lab.unstopped());
    assert_eq!(lines(&lab.file("reloads.jsonl")).len(), 1);
    assert_eq!(replayed(&lab.run()), (steps, None));
}
