//! kill -9 at random moments.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

use super::lab::{Lab, STATEFUL, command, done, lines, replayed, rows};

pub fn start(lab: &Lab, line: &str) -> Child {
    let mut command = command(lab.place(), line);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The steps that the run has written.
pub fn steps_of(lab: &Lab) -> usize {
    let metrics = std::fs::read(lab.file("metrics.jsonl")).unwrap_or_default();
    metrics.iter().filter(|&&byte| byte == b'\n').count()
}

pub fn wait_until(seconds: u64, mut is_over: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_over() && started.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a run, which must not have ended by itself.
fn kill(child: &mut Child) {
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Edits the recipe of a run while it goes, kills it once the edit is used, kills it again as it goes on, and lets it end
/// some steps later. It is then what it would have been without the kills. Gives its steps.
#[cfg(feature = "torch")]
pub fn edited_and_killed(lab: &mut Lab) -> u64 {
    lab.config.steps = 1_000_000;
    lab.config.checkpoint_every = 2;
    lab.write_config();
    let mut child = start(lab, "train FOLDER/config.toml");
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
        kill(&mut child);
        child = start(lab, "train --resume FOLDER/run");
    }
    kill(&mut child);
    let steps = steps_of(lab) as u64 + 3;
    let line = format!("train --resume FOLDER/run --steps {steps}");
    done(lab.place(), &line);
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
    lab.write_config();
    let mut random = rand::rngs::ChaCha8Rng::seed_from_u64(3);
    let mut killed = 0;
    let mut torn = 0;
    while killed < 20 {
        let line = match lab.file("config.toml").exists() {
            true => "train --resume FOLDER/run",
            false => "train FOLDER/config.toml",
        };
        let mut child = start(&lab, line);
        // Half of the kills come whenever they come, the others after some steps, however slow the machine is.
        if random.random() {
            let wanted = steps_of(&lab) + random.random_range(1..12);
            wait_until(20, || steps_of(&lab) >= wanted);
        } else {
            std::thread::sleep(Duration::from_millis(random.random_range(0..160)));
        }
        kill(&mut child);
        killed += 1;
        let metrics = std::fs::read(lab.file("metrics.jsonl")).unwrap_or_default();
        torn += usize::from(metrics.last().is_some_and(|last| *last != b'\n'));
    }
    let written = std::fs::read_to_string(lab.file("metrics.jsonl")).unwrap();
    let steps = written.lines().count() as u64 + 10;
    println!("{steps} steps, {torn} lines torn");
    assert!(steps > 30, "the kills left {steps} steps");
    let line = format!("train --resume FOLDER/run --steps {steps}");
    done(lab.place(), &line);
    lab.config.steps = steps;
    assert_eq!(rows(&lab.run()), lab.unstopped());
    assert_eq!(lines(&lab.file("reloads.jsonl")).len(), 1);
    assert_eq!(replayed(&lab.run()), (steps, None));
}
