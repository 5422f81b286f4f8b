//! Disks that are full, read-only, gone or slow, and a clock that goes back, at any change of a file; and several processes in
//! one folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rand::RngExt;

use super::Trials;
use super::cases::at_changes;
use super::lab::{Lab, STATEFUL, command, replayed};
use super::trace::{Act, Failure, run};

#[test]
fn disks_that_fail_at_some_changes() {
    at_changes(&Trials::few(9), &KINDS);
}

#[test]
#[ignore = "takes an hour"]
fn disks() {
    let trials = Trials::many(10_000);
    together(&trials, 50);
    at_changes(&trials, &KINDS);
}

/// After a loss of power, a state or a checkpoint that is there must not be ahead of what it counts on: before it gets its name,
/// the contents and the names of these files are on the disk.
#[test]
fn a_state_is_written_after_what_it_counts_on() {
    let mut lab = Lab::new(STATEFUL);
    (lab.config.steps, lab.config.checkpoint_every) = (6, 3);
    lab.write_config();
    let counts =
        "fn init(p) { #{ seen: 0.0 } }\nfn advantage(batch, p) { this.seen += 1.0; batch.reward }";
    std::fs::write(lab.place().join("counts.rhai"), counts).unwrap();
    std::fs::create_dir(lab.place().join("steps")).unwrap();
    for step in [1, 2] {
        let path = lab.place().join(format!("steps/step_{step}.jsonl"));
        std::fs::write(path, "{\"group\":1,\"reward\":1}\n").unwrap();
    }
    let apply = "apply FOLDER/counts.rhai FOLDER/steps --state FOLDER/s.json --metrics FOLDER/m.jsonl -o FOLDER/out";
    for (line, states, files) in [
        (apply, "s.json", "m.jsonl out/step_1.jsonl"),
        (
            "train FOLDER/config.toml",
            "run/checkpoints/000",
            "run/metrics.jsonl run/reloads.jsonl run/config.toml",
        ),
    ] {
        let ran = run(&mut command(lab.place(), line), lab.place(), |_| None);
        assert!(ran.status.success(), "{}", ran.stderr);
        let states = lab.place().join(states).display().to_string();
        let is_state = |(kind, path): &(&str, PathBuf)| {
            let path = path.display().to_string();
            *kind == "name" && path.starts_with(&states) && !path.ends_with(".lock")
        };
        let places: Vec<usize> = (0..ran.order.len())
            .filter(|at| is_state(&ran.order[*at]))
            .collect();
        assert!(places.len() >= 2, "{:?}", ran.order);
        for place in places {
            let before = &ran.order[..place];
            let last = |kind: &str, path: &Path| {
                before
                    .iter()
                    .rposition(|(own, file)| *own == kind && file == path)
            };
            for file in files.split(' ').map(|file| lab.place().join(file)) {
                let named = last("name", &file);
                assert!(
                    named.is_some() && named < last("sync", file.parent().unwrap()),
                    "the name of {file:?}: {before:?}"
                );
                assert!(
                    last("write", &file) <= last("sync", &file),
                    "{file:?}: {before:?}"
                );
            }
        }
    }
}

#[test]
fn some_processes_in_one_folder() {
    together(&Trials::few(0), 2);
}

/// Of several processes that begin or resume one run at once, one does, and the others say why not.
fn together(trials: &Trials, rounds: usize) {
    let mut random = trials.random();
    for round in 0..rounds {
        let mut lab = Lab::new(STATEFUL);
        lab.config.steps = 6;
        lab.write_config();
        for (line, steps) in [
            ("train FOLDER/config.toml", 6),
            ("train --resume FOLDER/run --steps 9", 9),
        ] {
            let start = |_| {
                std::thread::sleep(Duration::from_millis(random.random_range(0..20)));
                let mut command = command(lab.place(), line);
                command.stdout(Stdio::null()).stderr(Stdio::piped());
                command.spawn().unwrap()
            };
            let children: Vec<_> = (0..3).map(start).collect();
            let ended = children
                .into_iter()
                .map(|child| child.wait_with_output().unwrap());
            let mut done = 0;
            for output in ended {
                let text = String::from_utf8(output.stderr).unwrap();
                let why = [
                    "another process is writing to",
                    "is not empty",
                    "has done 9 steps already",
                ];
                match output.status.code() {
                    Some(0) => done += 1,
                    Some(1) if why.iter().any(|why| text.contains(why)) => {}
                    _ => panic!("round {round}: {:?}\n{text}", output.status),
                }
            }
            assert_eq!(done, 1, "round {round}: {line}");
            assert_eq!(replayed(&lab.run()), (steps, None));
        }
    }
}

/// What happens at a change, and whether it is the only one or the first.
const KINDS: [(Act, bool); 8] = [
    (Act::Fail(Failure::Full), false),
    (Act::Fail(Failure::Full), true),
    (Act::Fail(Failure::ReadOnly), false),
    (Act::Fail(Failure::ReadOnly), true),
    (Act::Fail(Failure::Gone), false),
    (Act::Fail(Failure::Gone), true),
    (Act::Wait(Duration::from_millis(5)), false),
    (Act::Back(3600), false),
];
