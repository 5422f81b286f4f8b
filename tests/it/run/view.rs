//! What a person sees of a run: reloads, rejected saves, and how to go on after Ctrl-C.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::lab::{Lab, Process, STATEFUL, command, done, lines, rows, says};

/// A run of the command line, whose lines are read as they come.
struct Shown {
    run: Process,
    lines: Receiver<String>,
}

impl Shown {
    /// Begins a run of the lab with its configuration.
    fn train(lab: &Lab, flags: &str) -> Shown {
        lab.write_config();
        let line = format!("train FOLDER/config.toml{flags}");
        Shown::start_in(Path::new("."), command(lab.place(), &line))
    }

    fn start_in(folder: &Path, mut command: Command) -> Shown {
        command.current_dir(folder);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let run = Process(child);
        Shown { run, lines }
    }

    /// All lines up to one that holds this text.
    fn until(&self, text: &str) -> String {
        // Ends what hangs. For all of them: a run without an end never stops saying something.
        let end = Instant::now() + Duration::from_secs(300);
        let mut all = String::new();
        while !all.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => all.push_str(&format!("{line}\n")),
                Err(_) => panic!("no `{text}` in:\n{all}"),
            }
        }
        all
    }

    #[cfg(unix)]
    fn ctrl_c(&mut self) -> String {
        self.run.signal("-INT");
        assert_eq!(self.run.0.wait().unwrap().code(), Some(0));
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(unix)]
#[test]
fn saves_are_shown_and_ctrl_c_says_how_to_go_on() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 1_000_000;
    let mut shown = Shown::train(&lab, "");
    let begin = shown.until("save it");
    let policy = "maze with policy mlp: 4 x 4 responses a step";
    says(&begin, &["recipe.rhai", policy]);
    let evaluation = shown.until("step 10    eval pass@1 ");
    says(&evaluation, &["step 0     eval pass@1 ", "pass@4"]);

    let edited = STATEFUL.replace("value: 0.5", "value: 0.75");
    std::fs::write(lab.script(), &edited).unwrap();
    let reload = shown.until("->");
    let line = reload.lines().last().unwrap();
    says(line, &["recipe.rhai", "(+1 -1 lines, checked in "]);
    let effect = "  pull 0.5 -> 0.75  advantage on the last batch compared with the last step's version: correlation ";
    assert!(line.starts_with("step ") && line.contains(effect), "{line}");
    let log = lines(&lab.file("reloads.jsonl"));
    let used = log.iter().find(|line| line["event"] == "use").unwrap();
    says(
        used["effect"][0].as_str().unwrap(),
        &["advantage on the last batch", "correlation "],
    );

    std::fs::write(lab.script(), edited.replace("this.mean +", "this.maen +")).unwrap();
    let rejected = shown.until("still using");
    says(&rejected, &["maen", "recipe.rhai:6:", "0.9 * this.maen"]);

    std::fs::remove_file(lab.script()).unwrap();
    let missing = shown.until("No such file");
    says(&missing, &["still using"]);

    let end = shown.ctrl_c();
    says(&end, &["1 reload, 1 save rejected, 0 failures at a step"]);
    let run = lab.run();
    let run_shown = run.display();
    let go_on = format!("advlab view {run_shown}\n  advlab train --resume {run_shown}");
    assert!(end.trim_end().ends_with(&go_on), "{end}");
    let done = rows(&run).len();
    assert!(lab.file(&format!("checkpoints/{done:06}")).exists());
}

#[test]
fn a_resumed_run_follows_its_script_from_another_folder() {
    let mut lab = Lab::new(STATEFUL);
    let home = lab.folder.path().to_path_buf();
    lab.config.recipe = "recipe.rhai".to_string();
    lab.config.out = "run".to_string();
    lab.config.steps = 4;
    lab.write_config();
    let shown = Shown::start_in(&home, command(&home, "train config.toml"));
    // People read the path as they gave it.
    shown.until("edit recipe.rhai and save it");
    shown.until("--resume run --steps 8");
    let text = std::fs::read_to_string(lab.file("config.toml")).unwrap();
    let path = lab.script().canonicalize().unwrap();
    let recipe = format!("recipe = {path:?}\n");
    says(&text, &[&recipe, "loss_recipe = \"ppo_clip\"\n"]);

    let edited = STATEFUL.replace("value: 0.5", "value: 0.75");
    std::fs::write(lab.script(), edited).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let resume = command(&home, "train --resume FOLDER/run --steps 1000000");
    let shown = Shown::start_in(elsewhere.path(), resume);
    let reload = shown.until("->");
    says(&reload, &[&format!("edit {} and", path.display())]);
    says(&reload, &["pull 0.5 -> 0.75"]);
    drop(shown);
    // From where it was begun, the path is as short as it was.
    let shown = Shown::start_in(&home, command(&home, "train --resume run"));
    shown.until("edit recipe.rhai and save it");
}

#[test]
fn what_a_script_prints_stands_with_its_step() {
    let mut lab = Lab::new(
        "fn advantage(batch, p) { print(\"right: \" + batch.correct.sum(\"batch\").value() + \"\\nof 16\"); batch.reward }",
    );
    lab.config.steps = 2;
    lab.write_config();
    let text = done(lab.place(), "train FOLDER/config.toml");
    let is_printed = |line: &&str| line.contains("right: ") || line.ends_with("of 16");
    let printed = text.lines().filter(is_printed);
    let steps: Vec<&str> = printed.map(|line| &line[..7]).collect();
    let expected = ["step 0 ", "step 0 ", "step 1 ", "step 1 "];
    assert_eq!(steps, expected, "{text}");
}

/// A person must not take the batch's pass@1 for that of the evaluation.
#[cfg(unix)]
#[test]
fn whose_pass_at_1_it_is_is_said() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 100_000;
    lab.config.eval_every = 20;
    lab.write_config();
    let config = lab.place().join("config.toml");
    let program = env!("CARGO_BIN_EXE_advlab");
    let command = format!("{program} train {}", config.display());
    let mut terminal = rexpect::spawn(&command, Some(20_000)).unwrap();
    terminal.exp_string("eval pass@1 0.").unwrap();
    terminal.exp_string("batch pass@1 0.").unwrap();
    terminal.send_control('c').unwrap();
    // The summary compares evaluations alone, the last one of the policy as it was stopped.
    let summary = r"evaluation +step 0 +step \d+\s";
    terminal.exp_regex(summary).unwrap();
    terminal.exp_string("--resume").unwrap();
    terminal.exp_eof().unwrap();
}
