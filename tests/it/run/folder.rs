//! What can be wrong with a run's folder: each is told, and nothing that was there is lost.

use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;

use advlab::native::Mode;
use advlab_train::{Ending, Event, Run};
use serde_json::Value;

use super::lab::{
    Lab, STATEFUL, command, done, go, go_to, lines, refused, replayed, rows, says, wait_until,
};

fn begun(steps: u64) -> Lab {
    let lab = Lab::new(STATEFUL);
    go_to(&mut lab.create(), steps);
    lab
}

fn checkpoint(lab: &Lab, step: u64) -> std::path::PathBuf {
    lab.file(&format!("checkpoints/{step:06}"))
}

#[test]
fn folders_that_are_no_run_or_taken() {
    let lab = begun(2);
    let place = lab.folder.path();
    let [empty, full] = ["empty", "full"].map(|name| place.join(name));
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("recipe.rhai"), "").unwrap();
    let mut shown = String::new();
    for words in [
        "train --resume /nowhere",
        "train --resume FOLDER/empty",
        "train --resume FOLDER/recipe.rhai",
        "train --out FOLDER/run",
        "train --out FOLDER/full",
        "train --out FOLDER/recipe.rhai",
        "train --out FOLDER/recipe.rhai/run",
        "replay /nowhere",
        "replay FOLDER/empty",
    ] {
        writeln!(shown, "{words}\n{}", refused(place, words)).unwrap();
    }
    insta::assert_snapshot!(shown);
    assert!(std::fs::read_dir(empty).unwrap().next().is_none());
    assert_eq!(rows(&lab.run()).len(), 2);
}

#[test]
fn two_processes_do_not_write_one_folder() {
    let lab = begun(2);
    let held = lab.resume();
    let message = refused(lab.place(), "train --resume FOLDER/run");
    says(&message, &["another process is writing to"]);
    // Reading is for everybody.
    assert_eq!(replayed(&lab.run()), (2, None));
    drop(held);
    assert_eq!(go(&mut lab.resume()), Ending::Finished);
}

#[test]
fn the_next_free_folder_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    for number in 1..3 {
        let mut command = command(folder.path(), "train --steps 1");
        let output = command.current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let rows = format!("runs/maze-grpo-{number}/metrics.jsonl");
        assert!(folder.path().join(rows).exists());
    }
}

#[test]
fn a_damaged_checkpoint_costs_the_steps_since_the_one_before() {
    let mut lab = Lab::new(STATEFUL);
    let whole = lab.unstopped();
    lab.config.keep_checkpoints = 2;
    go_to(&mut lab.create(), 13);
    let newest = checkpoint(&lab, 13).join("policy.safetensors");
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    let mut run = lab.resume();
    assert_eq!(run.step(), 10);
    assert!(run.notes()[0].contains("000013"), "{:?}", run.notes());
    // As the newest one it would push out each good one that is written before it.
    assert!(!checkpoint(&lab, 13).exists());
    assert!(lab.file("checkpoints/unused-000013-1/run.json").exists());
    go_to(&mut run, 12);
    drop(run);
    let path = checkpoint(&lab, 12).join("run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    says(&text, &["advlab checkpoint 4"]);
    // Other formats have other fields.
    std::fs::write(&path, "{\"format\": \"advlab checkpoint 3\", \"run\": {}}").unwrap();
    run = lab.resume();
    let note = &run.notes()[0];
    says(note, &["its format is \"advlab checkpoint 3\""]);
    go(&mut run);
    assert_eq!(rows(&lab.run()), whole);
}

#[test]
fn a_run_that_was_begun_while_the_lock_was_waited_for_is_left_alone() {
    let begin = || {
        let lab = Lab::new(STATEFUL);
        std::fs::create_dir(lab.run()).unwrap();
        let lock = std::fs::File::create(lab.file("lock")).unwrap();
        lock.lock().unwrap();
        let config = lab.config.clone();
        let second = std::thread::spawn(move || Run::create(config).err());
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::fs::write(lab.file("config.toml"), "seed = 7\n").unwrap();
        lock.unlock().unwrap();
        let error = second.join().unwrap().expect("it is another run's");
        let config = std::fs::read_to_string(lab.file("config.toml")).unwrap();
        assert_eq!(config, "seed = 7\n");
        error.to_string()
    };
    // It waits for a second: on a machine that does much else that may be over before the lock is free.
    let is_late = |error: &String| error.contains("another process is writing to");
    let error = std::iter::repeat_with(begin)
        .take(100)
        .find(|error| !is_late(error));
    says(&error.unwrap(), &["is not empty"]);
}

#[test]
fn a_flipped_bit_is_noticed_and_no_checkpoint_at_all_is_said() {
    let lab = begun(8);
    for (step, file) in [(5, "policy.safetensors"), (8, "run.json")] {
        let path = checkpoint(&lab, step).join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.iter().rposition(u8::is_ascii_digit).unwrap();
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let error = Run::resume(&lab.run(), None, Mode::Off).err().unwrap();
    let message = error.render(false);
    says(
        &message,
        &["has no checkpoint that can be used", "000008", "000005"],
    );
    assert_eq!(rows(&lab.run()).len(), 8, "nothing is lost");
}

#[test]
fn metrics_that_were_cut_go_back_to_a_checkpoint_that_they_reach() {
    let lab = Lab::new(STATEFUL);
    let whole = lab.unstopped();
    go_to(&mut lab.create(), 8);
    let path = lab.file("metrics.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let cut = text.match_indices('\n').nth(5).unwrap().0 + 40;
    std::fs::write(&path, &text[..cut]).unwrap();
    let mut run = lab.resume();
    assert_eq!(run.step(), 5);
    go(&mut run);
    assert_eq!(rows(&lab.run()), whole);
}

/// A damaged line is told; only `--force` goes on without it, and nothing is lost. Also without some rows, each step is done
/// again by the version that it had.
#[test]
fn a_damaged_row_stops_a_resume() {
    let mut lab = Lab::new(STATEFUL);
    (lab.config.steps, lab.config.eval_every) = (70, 0);
    (lab.config.checkpoint_every, lab.config.keep_checkpoints) = (40, 9);
    go_to(&mut lab.create(), 62);
    std::fs::write(lab.script(), STATEFUL.replace("0.01", "0.02")).unwrap();
    go_to(&mut lab.resume(), 63);
    std::fs::write(lab.script(), "fn advantage(batch, p) {").unwrap();
    go_to(&mut lab.resume(), 64);
    let told = |event: &str| {
        let told = lines(&lab.file("reloads.jsonl")).into_iter();
        let told = told.filter(|line| line["event"] == event);
        told.map(|line| line["step"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!((told("use"), told("rejected")), (vec![62], vec![63]));
    // The run was killed with its checkpoint of step 40.
    for step in [62, 63, 64] {
        std::fs::remove_dir_all(checkpoint(&lab, step)).unwrap();
    }
    let before = rows(&lab.run());
    let path = lab.file("metrics.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    // One before the checkpoint, and three behind it.
    let gone = [7, 50, 51, 55];
    let damage = |(step, line): (usize, &str)| match gone.contains(&step) {
        true => line.replacen(':', "?", 1) + "\n",
        false => format!("{line}\n"),
    };
    let damaged: String = text.lines().enumerate().map(damage).collect();
    std::fs::write(&path, &damaged).unwrap();
    let message = refused(lab.place(), "train --resume FOLDER/run");
    says(&message, &["metrics.jsonl, line 8: ", "--force"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
    assert!(checkpoint(&lab, 40).exists());

    // Without a line of the history nobody knows the versions: it stays as it is, and so do the rows.
    let reloads = lab.file("reloads.jsonl");
    let history = std::fs::read_to_string(&reloads).unwrap();
    std::fs::write(&reloads, history.replacen(':', "?", 1)).unwrap();
    let message = refused(lab.place(), "train --resume FOLDER/run --force");
    says(&message, &["reloads.jsonl, line 1: "]);
    assert!(!message.contains("--force"), "{message}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
    // A version that came later is not the one that it began with.
    std::fs::write(&reloads, history.split_once('\n').unwrap().1).unwrap();
    let message = refused(lab.place(), "replay FOLDER/run");
    says(&message, &["no line in reloads.jsonl"]);
    std::fs::write(&reloads, history).unwrap();

    let shown = done(lab.place(), "train --resume FOLDER/run --force");
    says(
        &shown,
        &[
            "moved 4 damaged lines of metrics.jsonl",
            "a version that was rejected before",
        ],
    );
    let aside = std::fs::read_to_string(lab.file("metrics.damaged")).unwrap();
    assert_eq!(aside.lines().count(), gone.len());
    let is_left = |row: &Value| !gone.contains(&(row["step"].as_u64().unwrap() as usize));
    let left: Vec<Value> = before.into_iter().filter(is_left).collect();
    let after = rows(&lab.run());
    assert_eq!(after[..left.len()], left);
    assert_eq!(after.len(), 70 - gone.len());
    assert_eq!((told("use"), told("rejected")), (vec![62], vec![63]));
    assert_eq!(told("warning"), Vec::<u64>::new());
    assert_eq!(replayed(&lab.run()), (66, None));
}

/// Nobody reads what the run prints: it does its steps all the same, and says afterwards what it left out.
#[test]
fn a_run_does_not_wait_for_its_terminal() {
    let line = "x".repeat(1000);
    let prints = format!("for i in 0..800 {{ print(\"{line}\"); }}\n    let now");
    let lab = Lab::new(&STATEFUL.replace("let now", &prints));
    lab.write_config();
    let mut command = command(lab.place(), "train FOLDER/config.toml");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let finished = lab.file("checkpoints/000024");
    wait_until(|| finished.exists());
    assert!(finished.exists(), "the run waited for its reader");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    says(&text, &["messages dropped: ", "24 steps in "]);
}

#[test]
fn what_was_half_written_is_removed() {
    let lab = begun(2);
    let parts = ["", "batches", "checkpoints", "scripts"]
        .map(|folder| lab.file(folder).join(".advlab-7.part"));
    for part in &parts {
        std::fs::create_dir_all(part).unwrap();
    }
    drop(lab.resume());
    assert!(!parts.iter().any(|part| part.exists()));
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut place = folder.path().to_path_buf();
    if std::fs::write(place.join("probe"), "").is_ok() {
        // The superuser may write anywhere but where nobody can.
        place = Path::new("/proc").to_path_buf();
    }
    let message = refused(&place, "train --out FOLDER/run");
    says(&message, &["cannot make the folder FOLDER/run"]);
}

/// Open files go on without their names: what is written to them would be lost.
#[test]
fn what_is_removed_during_a_run_ends_it() {
    for name in ["metrics.jsonl", "reloads.jsonl"] {
        let mut lab = Lab::new(STATEFUL);
        // It has something to say after ten steps.
        lab.config.warnings.entropy = 100.0;
        let mut run = lab.create();
        let mut remove = |event: &Event<'_>| {
            if matches!(event, Event::Step { row, .. } if row.step == 5) {
                std::fs::remove_file(lab.file(name)).unwrap();
            }
        };
        let error = run.go(&AtomicBool::new(false), &mut remove).unwrap_err();
        says(&error.to_string(), &[name, "it was removed or replaced"]);
        assert!((6..12).contains(&run.step()), "{}", run.step());
    }
}

/// The lock is waited for, and what its holder left is read after that.
#[test]
fn a_run_that_was_extended_while_the_lock_was_waited_for_has_its_new_steps() {
    let lab = begun(2);
    let lock = std::fs::File::open(lab.file("lock")).unwrap();
    lock.lock().unwrap();
    let run = lab.run();
    let second = std::thread::spawn(move || {
        let run = Run::resume(&run, None, Mode::Off).unwrap();
        run.config().steps
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    let config = std::fs::read_to_string(lab.file("config.toml")).unwrap();
    let config = config.replace("\nsteps = 24\n", "\nsteps = 48\n");
    std::fs::write(lab.file("config.toml"), config).unwrap();
    lock.unlock().unwrap();
    assert_eq!(second.join().unwrap(), 48);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
    let lab = begun(2);
    std::fs::remove_file(lab.file("lock")).unwrap();
    let mut mkfifo = std::process::Command::new("mkfifo");
    assert!(mkfifo.arg(lab.file("lock")).status().unwrap().success());
    done(lab.place(), "view FOLDER/run --export FOLDER/page.html");
    let message = refused(lab.place(), "train --resume FOLDER/run");
    says(&message, &["FOLDER/run/lock: it is a pipe"]);
}

/// Names in files may have what a terminal obeys.
#[test]
fn names_of_files_do_not_reach_the_terminal_as_they_are() {
    let lab = begun(2);
    let name = "\\u001b]0;x\\u0007";
    let edit = |file: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(lab.file(file)).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(lab.file(file), text.replacen(from, to, 1)).unwrap();
    };
    let shown = |line: &str, input: &str| {
        let mut command = command(lab.place(), line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let is_obeyed = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(is_obeyed), "{line}: {text:?}");
        says(&text, &["\\u{1b}]0;x\\u{7}"]);
    };
    let rows = lab.place().join("rows.jsonl");
    let line = |reward| format!("{{\"group\":\"{name}\",\"reward\":{reward}}}\n");
    std::fs::write(rows, [line(1), line(0)].concat()).unwrap();
    let input = "for g in batch.groups { print(g.key); }\n";
    shown("repl FOLDER/rows.jsonl --stdin", input);
    let metric = "\"metrics\":{\"mean\"";
    edit("metrics.jsonl", metric, &metric.replace("mean", name));
    shown("replay FOLDER/run", "");
    let recipe = lab.script().display().to_string();
    edit("config.toml", &recipe, &format!("{name}.rhai"));
    shown("compare FOLDER/run", "");
    shown("train --resume FOLDER/run", "");
}
