//! Runs the binary in a folder of its own.

use std::path::Path;
use std::process::{Command, Output};

pub struct Lab {
    folder: tempfile::TempDir,
}

pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Lab {
    /// A folder with the repository's rollouts in it.
    pub fn new() -> Lab {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let rollouts = Path::new(crate::ROOT).join("examples/rollouts.jsonl");
        std::fs::copy(rollouts, folder.path().join("rollouts.jsonl")).expect("a copy");
        Lab { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a file")
    }

    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_advlab"));
        command.args(arguments.split_whitespace());
        command.current_dir(self.path());
        command
    }

    pub fn run(&self, arguments: &str) -> Ran {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(arguments).output().expect("the binary runs");
        Ran {
            status: status.code().expect("no signal"),
            out: String::from_utf8(stdout).expect("UTF-8"),
            err: String::from_utf8(stderr).expect("UTF-8"),
        }
    }

    /// Runs the commands of a snapshot, each in a line after `$ advlab `, and compares what they print with it.
    pub fn replay(&self, name: &str) {
        let folder = Path::new(crate::ROOT).join("tests/it/cli/snapshots");
        let snapshot = std::fs::read_to_string(folder.join(format!("it__cli__lab__{name}.snap")));
        let snapshot = snapshot.expect("a snapshot");
        let commands = snapshot
            .lines()
            .filter_map(|line| line.strip_prefix("$ advlab "));
        let shown = commands.map(|one| format!("$ advlab {one}\n{}\n", self.run(one).shown()));
        let text = shown.collect::<String>();
        insta::assert_snapshot!(name, text);
    }

    /// Runs a table of commands, a line each: the exit status, the arguments, and a part of what is printed.
    pub fn expect(&self, table: &str) {
        for row in table.trim().lines() {
            let (status, rest) = row.split_once("  ").expect("a status");
            let (arguments, part) = rest.split_once("  =>  ").expect("arguments and a message");
            let ran = self.run(arguments);
            assert_eq!(ran.status.to_string(), status, "{arguments}: {}", ran.err);
            let is_there = ran.err.contains(part) || ran.out.contains(part);
            assert!(is_there, "{arguments}: {}{}", ran.out, ran.err);
        }
    }
}

impl Ran {
    /// Its standard error has this part.
    #[track_caller]
    pub fn says(&self, part: &str) {
        assert!(self.err.contains(part), "{}{}", self.out, self.err);
    }

    /// Its standard output has this part.
    #[track_caller]
    pub fn shows(&self, part: &str) {
        assert!(self.out.contains(part), "{}{}", self.out, self.err);
    }

    /// It ended with this status, and its standard error has this part.
    #[track_caller]
    pub fn ends(&self, status: i32, part: &str) {
        assert_eq!(self.status, status, "{}{}", self.out, self.err);
        self.says(part);
    }

    /// All of it as a snapshot shows it, without what no two runs share.
    pub fn shown(&self) -> String {
        let timeless = |line: &str| match line.trim_start().starts_with("time  ") {
            true => "  time        ...".to_string(),
            false => line.trim_end().to_string(),
        };
        let lines = |text: &str| text.lines().map(timeless).collect::<Vec<_>>().join("\n");
        let mut shown = format!("exit status {}\n{}", self.status, lines(&self.out));
        if !self.err.is_empty() {
            shown.push_str(&format!("\n--- standard error\n{}", lines(&self.err)));
        }
        shown
    }
}
