//! What a person sees of a run: reloads, rejected saves, and how to go on after Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::lab::{Lab, STATEFUL, rows};

/// A run of the command line, whose lines are read as they come.
struct Shown {
    child: Child,
    lines: Receiver<String>,
}

impl Shown {
    fn start(arguments: &[&str]) -> Shown {
        let mut child = Command::new(env!("CARGO_BIN_EXE_advlab"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Shown { child, lines }
    }

    /// All lines up to one that holds this text.
    fn until(&self, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            match self.lines.recv_timeout(Duration::from_secs(20)) {
                Ok(line) => all.push_str(&format!("{line}\n")),
                Err(_) => panic!("no `{text}` in:\n{all}"),
            }
        }
        all
    }

    #[cfg(unix)]
    fn ctrl_c(&mut self) -> String {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &id])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
#[test]
fn saves_are_shown_and_ctrl_c_says_how_to_go_on() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 1_000_000;
    let config = lab.config_file();
    let mut shown = Shown::start(&["train", config.to_str().unwrap()]);
    let begin = shown.until("save it");
    assert!(
        begin.contains("recipe.rhai") && begin.contains("4 x 4 responses a step"),
        "{begin}"
    );
    let evaluation = shown.until("pass@1");
    assert!(
        evaluation.contains("pass@4") && evaluation.contains("step 10"),
        "{evaluation}"
    );

    let edited = STATEFUL.replace("value: 0.5", "value: 0.75");
    std::fs::write(lab.script(), &edited).unwrap();
    let reload = shown.until("->");
    let line = reload.lines().last().unwrap();
    assert!(
        line.starts_with("step ") && line.contains("recipe.rhai"),
        "{line}"
    );
    assert!(
        line.contains("(+1 -1 lines, checked in ") && line.ends_with("pull 0.5 -> 0.75"),
        "{line}"
    );

    std::fs::write(lab.script(), edited.replace("this.mean +", "this.maen +")).unwrap();
    let rejected = shown.until("still using");
    assert!(
        rejected.contains("maen") && rejected.contains("recipe.rhai:6:"),
        "{rejected}"
    );
    assert!(rejected.contains("0.9 * this.maen"), "{rejected}");

    std::fs::remove_file(lab.script()).unwrap();
    let missing = shown.until("No such file");
    assert!(missing.contains("still using"), "{missing}");

    let end = shown.ctrl_c();
    assert!(
        end.contains("1 reload, 1 save rejected, 0 failures at a step"),
        "{end}"
    );
    let run = lab.run();
    let go_on = format!("advlab train --resume {}", run.display());
    assert!(end.trim_end().ends_with(&go_on), "{end}");
    let done = rows(&run).len();
    assert!(
        lab.file(&format!("checkpoints/{done:06}.safetensors"))
            .exists()
    );
}
