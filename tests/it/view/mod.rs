//! The page of runs: what it is told, what it refuses, and how it looks to a browser.

#[cfg(unix)]
mod browser;
mod server;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

use advlab::batch::FloatBuffer;
use advlab::live::{LiveOptions, LiveRecipe};
use advlab::{Batch, Host};
use advlab_cli::report::view::{Server, Site};
use advlab_train::TrainerRun;
use serde_json::json;
use tempfile::TempDir;

/// A folder as a run leaves it, which can be made to go on.
struct Folder {
    place: TempDir,
}

impl Folder {
    /// Three steps, with an evaluation before them, a reload before the last and a save that was rejected.
    fn new() -> Folder {
        let folder = Folder {
            place: tempfile::tempdir().unwrap(),
        };
        for (version, line) in [("aa", "batch.reward"), ("bb", "batch.reward - 1")] {
            let scripts = folder.path().join("scripts").join(version);
            fs::create_dir_all(&scripts).unwrap();
            let text = format!("fn advantage(batch, p) {{\n    {line}\n}}\n");
            fs::write(scripts.join("mine.rhai"), text).unwrap();
        }
        for step in 0..3 {
            folder.step(step);
        }
        folder.event(json!({ "step": 0, "event": "start", "version": "aa" }));
        folder.event(json!({ "step": 1, "event": "rejected", "version": "cc", "error": "no column <b>rewrad</b>" }));
        folder.reload(2);
        folder
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    fn step(&self, step: u64) {
        let mut row = json!({ "step": step, "version": "aa", "reward_mean": step as f64 / 10.0, "pass@1": 0.5 });
        if step == 0 {
            row["initial_evaluation"] = json!({ "pass@1": 0.25 });
        }
        self.line("metrics.jsonl", &row);
    }

    fn reload(&self, step: u64) {
        self.event(json!({
            "step": step, "event": "use", "version": "bb", "from": "aa", "lines_added": 1, "lines_removed": 1,
            "imports": ["base.rhai"], "effect": ["advantage on the last batch compared with the last step's version: correlation -1.00", "no longer holds: <i>right</i> up"],
        }));
    }

    fn event(&self, event: serde_json::Value) {
        self.line("reloads.jsonl", &event);
    }

    fn line(&self, file: &str, line: &serde_json::Value) {
        let path = self.path().join(file);
        let file = fs::File::options().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

/// A trainer's folder, as the Python package writes it: two steps with their batches, with texts and advantages of tokens.
fn trainers() -> TempDir {
    trainers_with(
        "fn advantage(batch, p) {\n    (batch.reward - batch.reward.mean(\"group\")) * batch.entropy\n}\n",
    )
}

/// The same by another script.
fn trainers_with(text: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("mine.rhai");
    fs::write(&script, text).unwrap();
    let script = script.to_str().unwrap();
    let mut live = LiveRecipe::watch(&Host::new(), script, LiveOptions::default()).unwrap();
    let mut record = TrainerRun::open(&place.path().join("advlab"), &live, &[], 2).unwrap();
    for step in 0..2 {
        let batch = Batch::builder()
            .groups(["a", "a", "b", "b"])
            .lengths([2, 3, 1, 2])
            .response("reward", vec![1.0, 0.0, 1.0, 0.0])
            .token("entropy", FloatBuffer::from(vec![0.5f32; 8]))
            .token("old_logp", FloatBuffer::from(vec![-0.5f32; 8]))
            .text("prompt", ["<b>one</b>", "<b>one</b>", "two", "two"])
            .text("completion", ["x y", "a <i>b</i> c", "z", "p q r"])
            .step(step)
            .build()
            .unwrap();
        record.begin(Some(step)).unwrap();
        let before = live.state().clone();
        let done = live.step(&batch).unwrap();
        record.step(&live, &batch, &before, &done.outcome).unwrap();
    }
    place
}

/// Where a page is served.
struct Address {
    port: u16,
    token: String,
}

impl Address {
    /// From a line that has the page's address.
    fn find(line: &str) -> Option<Address> {
        let (_, address) = line.split_once("http://127.0.0.1:")?;
        let (port, token) = address.split_once("/?token=")?;
        let token = token.split_whitespace().next()?.to_string();
        Some(Address {
            port: port.parse().ok()?,
            token,
        })
    }

    fn url(&self) -> String {
        format!("http://localhost:{}/?token={}", self.port, self.token)
    }
}

/// Serves some folders until the tests end.
fn serve(folders: &[&Path]) -> Address {
    let folders: Vec<PathBuf> = folders.iter().map(|path| path.to_path_buf()).collect();
    let server = Server::bind(Site::of(&folders).unwrap(), Some(0)).unwrap();
    let address = server.address().unwrap();
    thread::spawn(move || server.serve());
    Address::find(&address).unwrap()
}
