//! A run and a file that is written outlive a kill at any moment.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rand::{Rng, RngExt};

use super::cases::at_changes;
use super::lab::{Lab, STATEFUL, command, done, lines, replayed, rows, steps_of, wait_until};
use super::trace::Act;
use super::{Trials, signal};

#[test]
fn kills_at_some_changes() {
    at_changes(&Trials::few(10), &KINDS);
}

#[test]
fn kills_at_some_moments() {
    at_moments(&Trials::few(1));
}

#[test]
#[ignore = "takes an hour"]
fn kills() {
    at_changes(&Trials::many(10_000), &KINDS);
}

#[test]
#[ignore = "takes an hour"]
fn kills_at_moments() {
    at_moments(&Trials::many(1000));
}

const KINDS: [(Act, bool); 4] = [
    (Act::Kill, true),
    (Act::KillHalfway, true),
    (Act::Signal(libc::SIGTERM), true),
    (Act::Signal(libc::SIGINT), true),
];

/// How many times a run is killed before it may end.
const KILLS: usize = 10;

/// Kills runs at random moments; every second one is edited between its kills.
fn at_moments(trials: &Trials) {
    let mut random = trials.random();
    let (mut killed, mut steps, mut runs) = (0, 0, 0);
    while !trials.is_over(killed) {
        println!("run {runs}, seed {}", trials.seed);
        steps += killed_run(&mut random, runs % 2 == 1);
        runs += 1;
        killed += KILLS;
    }
    println!(
        "{killed} kills of {runs} runs, {steps} steps, seed {}",
        trials.seed
    );
}

fn start(lab: &Lab) -> Child {
    let line = if lab.file("config.toml").exists() {
        "train --resume FOLDER/run"
    } else {
        "train FOLDER/config.toml"
    };
    let mut command = command(lab.place(), line);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// A run that is killed again and again has the numbers of one that was not; gives its steps.
fn killed_run(random: &mut impl Rng, is_edited: bool) -> u64 {
    let mut lab = Lab::new(STATEFUL);
    // More than it can do before the last kill.
    lab.config.steps = 1_000_000;
    lab.write_config();
    for _ in 0..KILLS {
        let mut child = start(&lab);
        // Half of the kills come whenever they come, the others after some steps, however slow the machine is.
        if random.random() {
            let wanted = steps_of(&lab) + random.random_range(1..12);
            wait_until(|| steps_of(&lab) >= wanted);
        } else {
            std::thread::sleep(Duration::from_millis(random.random_range(0..160)));
        }
        if is_edited {
            let factor = random.random_range(1..9);
            let edited = STATEFUL.replace("0.01 *", &format!("0.0{factor} *"));
            std::fs::write(lab.script(), edited).unwrap();
            std::thread::sleep(Duration::from_millis(random.random_range(0..160)));
        }
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        let name = ["-KILL", "-KILL", "-TERM", "-INT"][random.random_range(0..4)];
        signal(&child, name);
        wait_until(|| child.try_wait().unwrap().is_some());
        let status = child.try_wait().unwrap().expect("it ends at a signal");
        // A signal that is not caught yet ends the process as a kill does.
        let code = status.code();
        let signals = [libc::SIGKILL, libc::SIGTERM, libc::SIGINT].map(Some);
        let is_by_signal = signals.contains(&status.signal());
        assert!(code == Some(0) || is_by_signal, "{name}: {status:?}");
    }
    let steps = steps_of(&lab) as u64 + 10;
    let line = format!("train --resume FOLDER/run --steps {steps}");
    done(lab.place(), &line);
    let rows = rows(&lab.run());
    let numbers = rows.iter().map(|row| row["step"].as_u64().unwrap());
    assert!(numbers.eq(0..steps), "each row once");
    if !is_edited {
        lab.config.steps = steps;
        assert_eq!(rows, lab.unstopped());
        assert_eq!(lines(&lab.file("reloads.jsonl")).len(), 1);
    }
    assert_eq!(replayed(&lab.run()), (steps, None));
    steps
}
