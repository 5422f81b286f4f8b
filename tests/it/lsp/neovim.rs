//! A real client: Neovim without a window, on a script that a run follows.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, thread, time::Duration};

/// A run that is ended with the test.
struct Training(Child);

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a file of the run has a text; `advlab train` must not have ended.
fn wait_for(run: &mut Training, file: &Path, text: &str) {
    while !fs::read_to_string(file).is_ok_and(|all| all.contains(text)) {
        let ended = run.0.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "advlab train has ended: {ended:?}, without {text}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn neovim_mends_a_script_while_a_run_follows_it() {
    if Command::new("nvim").arg("--version").output().is_err() {
        let required = std::env::var("ADVLAB_NEOVIM").is_ok_and(|value| value == "required");
        assert!(!required, "there is no nvim");
        return eprintln!("skipped: there is no nvim");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("mine.rhai");
    fs::write(
        &script,
        "fn advantage(batch, p) {\n    let r = batch.reward;\n    r - r.mean(\"group\")\n}\n",
    )
    .unwrap();
    let program = env!("CARGO_BIN_EXE_advlab");
    let words = "train --recipe mine.rhai --steps 1000000 --out runs/one --set maze_size=2 --set batch_every=1 --set check_deadline_ms=300000";
    let mut run = Command::new(program);
    run.args(words.split(' ')).current_dir(folder.path());
    run.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Training(run.spawn().unwrap());
    wait_for(
        &mut run,
        &folder.path().join("runs/one/metrics.jsonl"),
        "\"step\":2",
    );
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/it/lsp/client.lua");
    let mut editor = Command::new("nvim");
    editor.args([
        "--headless",
        "-u",
        "NONE",
        "-i",
        "NONE",
        "mine.rhai",
        "-S",
        client,
    ]);
    let editor = editor
        .env("ADVLAB", program)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = format!(
        "{}{}",
        String::from_utf8_lossy(&editor.stdout),
        String::from_utf8_lossy(&editor.stderr)
    );
    for expected in [
        "slip: the batch has no column `rewrad`",
        "slip: help: did you mean `reward`?",
        "slip: note: this happened in a dry run on the last batch of ",
        "mended: 0 diagnostics",
        "hover: markdown",
        "hover: response tensor",
        "completion: std",
        "renamed:     let score = batch.reward",
        "done",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let text = fs::read_to_string(&script).unwrap();
    assert_eq!(
        text,
        "fn advantage(batch, p) {\n    let score = batch.reward\n    - 0.0;\n    score - score.mean(\"group\")\n}\n"
    );
    // The run has taken what the editor wrote.
    wait_for(
        &mut run,
        &folder.path().join("runs/one/reloads.jsonl"),
        "\"event\":\"use\"",
    );
}
