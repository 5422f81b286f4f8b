//! Runs the binary in a folder of its own.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

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

    /// Writes files, each after a line `== NAME`.
    pub fn files(&self, text: &str) {
        for file in format!("\n{text}").split("\n== ").skip(1) {
            let (name, text) = file.split_once('\n').unwrap_or((file, ""));
            self.write(name, text);
        }
    }

    /// Writes a recipe by what its advantage does.
    pub fn advantage(&self, name: &str, body: &str) {
        self.write(name, &format!("fn advantage(batch, p) {{ {body} }}\n"));
    }

    /// Writes the configuration `small.toml` of a small run in the folder `run`.
    pub fn small_run(&self, keys: &str) {
        let small = "maze_size = 2\nrollout_batch_size = 2\nhidden_size = 8\nbatch_every = 1\neval_prompts = 1\nout = \"run\"\n";
        self.write(
            "small.toml",
            &format!("{small}{}", keys.replace("; ", "\n")),
        );
    }

    /// The batch of its rollouts.
    pub fn batch(&self) -> advlab::Batch {
        let rollouts = advlab::files::read(self.path().join("rollouts.jsonl"), &Default::default());
        rollouts.unwrap().batch
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

    /// Runs a command that ends with status 0.
    #[track_caller]
    pub fn ok(&self, arguments: &str) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.status, 0, "{arguments}: {}{}", ran.out, ran.err);
        ran
    }

    /// What the prompt answers to lines.
    pub fn prompt(&self, arguments: &str, lines: &str) -> String {
        self.write("lines", lines);
        let lines = std::fs::File::open(self.path().join("lines")).expect("a file");
        let output = self
            .command(&format!("{arguments} --stdin"))
            .stdin(lines)
            .output();
        String::from_utf8(output.expect("the binary runs").stdout).expect("UTF-8")
    }

    /// The object that a command prints with `--json`.
    #[track_caller]
    pub fn json(&self, arguments: &str) -> Value {
        let ran = self.ok(&format!("{arguments} --json"));
        serde_json::from_str(&ran.out).expect("JSON")
    }

    /// Runs the commands of a snapshot, each in a line after `$ advlab `, and compares what they print with it. Of an answer
    /// that ends with a line `...`, the lines before it are compared.
    pub fn replay(&self, name: &str) {
        let folder = Path::new(crate::ROOT).join("tests/it/cli/snapshots");
        let snapshot = std::fs::read_to_string(folder.join(format!("it__cli__lab__{name}.snap")));
        let snapshot = snapshot.expect("a snapshot");
        let shown = snapshot.split("$ advlab ").skip(1).map(|one| {
            let (command, expected) = one.split_once('\n').expect("a line");
            let shown = self.run(command).shown();
            let lines = match expected.trim_end().strip_suffix("\n...") {
                Some(start) => shown.lines().take(start.lines().count()).chain(["..."]),
                None => shown.lines().take(usize::MAX).chain([""]),
            };
            let lines: Vec<&str> = lines.collect();
            format!("$ advlab {command}\n{}\n", lines.join("\n").trim_end())
        });
        insta::assert_snapshot!(name, shown.collect::<String>());
    }

    /// Runs a table of commands, a line each: the exit status, the arguments, and parts of what is printed, after `=/>` one that
    /// is not. One that fails prints why, and no result.
    #[track_caller]
    pub fn expect(&self, table: &str) {
        for row in table.trim().lines() {
            let (status, rest) = row.trim().split_once("  ").expect("a status");
            let (rest, other) = rest.split_once("  =/>  ").unwrap_or((rest, "panicked"));
            let (arguments, parts) = rest.split_once("  =>  ").unwrap_or((rest, ""));
            let ran = self.run(arguments);
            assert_eq!(ran.status.to_string(), status, "{arguments}: {}", ran.err);
            let has = |part: &str| ran.err.contains(part) || ran.out.contains(part);
            let is_there = parts.split("  &  ").all(has) && !has(other) && !has("panicked");
            let heads = ["Error: ", "error: ", "Usage: "];
            let is_head = |line: &str| heads.iter().any(|head| line.starts_with(head));
            let is_told = match ran.status {
                0 => !ran.out.is_empty(),
                _ => ran.out.is_empty() && ran.err.lines().any(is_head),
            };
            let text = || format!("{row}: {}{}", ran.out, ran.err);
            assert!(is_there && is_told, "{}", text());
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
        let timeless = |line: &str| {
            if line.trim_start().starts_with("time  ") {
                "  time        ...".to_string()
            } else {
                line.trim_end().to_string()
            }
        };
        let lines = |text: &str| text.lines().map(timeless).collect::<Vec<_>>().join("\n");
        let (out, err) = (lines(&self.out), lines(&self.err));
        let status = format!("exit status {}", self.status);
        match (&*out, &*err) {
            (_, "") => format!("{status}\n{out}"),
            ("", _) => format!("{status}, on standard error:\n{err}"),
            _ => format!("{status}\n{out}\n--- standard error\n{err}"),
        }
    }
}
