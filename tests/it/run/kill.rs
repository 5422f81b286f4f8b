//! kill -9 at random moments.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

use super::lab::{Lab, STATEFUL, advlab, lines, replayed, rows};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_advlab"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The steps that the run has written.
fn steps_of(lab: &Lab) -> usize {
    let metrics = std::fs::read(lab.file("metrics.jsonl")).unwrap_or_default();
    metrics.iter().filter(|&&byte| byte == b'\n').count()
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
            let started = Instant::now();
            while steps_of(&lab) < wanted && started.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            std::thread::sleep(Duration::from_millis(random.random_range(0..160)));
        }
        // It must not have ended by itself.
        assert_eq!(
            child.try_wait().unwrap(),
            None,
            "{:?}",
            advlab(&["train", "--resume", run, "--steps", "1"])
        );
        child.kill().unwrap();
        child.wait().unwrap();
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
    let reloads = lines(&lab.file("reloads.jsonl"));
    let switches = reloads.iter().filter(|line| line["event"] != "native");
    assert_eq!(switches.count(), 1);
    assert_eq!(replayed(&lab.run()), (steps, None));
}
