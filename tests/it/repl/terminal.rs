//! The prompt at a real terminal: completion, Ctrl-C in an endless loop, the history of the session before.

use std::path::Path;
use std::process::Command;

use rexpect::session::{PtySession, spawn_command};

/// What an answer may take on a busy machine, in milliseconds.
const PATIENCE: u64 = 300_000;

/// The prompt, with a state folder of its own.
fn start(state: &Path, patience: u64) -> PtySession {
    start_with(state, patience, "false")
}

/// The prompt, with an editor.
fn start_with(state: &Path, patience: u64, editor: &str) -> PtySession {
    let mut command = Command::new("sh");
    command
        .args(["-c", "stty rows 24 columns 80; exec $0 repl"])
        .arg(env!("CARGO_BIN_EXE_advlab"))
        .env("XDG_STATE_HOME", state)
        .env("TERM", "xterm")
        .env("VISUAL", "")
        .env("EDITOR", editor)
        .env("NO_COLOR", "1");
    let mut terminal = spawn_command(command, Some(patience)).expect("the prompt starts");
    terminal.exp_string("Ctrl-D ends").expect("the greeting");
    prompt(&mut terminal);
    terminal
}

/// Waits for the next prompt: the editor says so when it takes over the terminal.
fn prompt(terminal: &mut PtySession) {
    terminal.exp_string("[?2004h").expect("the prompt");
}

fn type_in(terminal: &mut PtySession, keys: &str) {
    terminal.send(keys).expect("keys are typed");
    terminal.flush().expect("keys are typed");
}

/// Types an input, and waits for a line that is the answer, and for the next prompt.
fn answers(terminal: &mut PtySession, input: &str, answer: &str) {
    type_in(terminal, &format!("{input}\r"));
    let found = terminal.exp_string(&format!("\n{answer}\r"));
    found.unwrap_or_else(|error| panic!("{input}: {error}"));
    prompt(terminal);
}

#[test]
fn tab_completes_columns_methods_and_levels_and_enter_waits_for_the_brace() {
    let state = tempfile::tempdir().expect("a folder");
    let mut terminal = start(state.path(), PATIENCE);
    answers(&mut terminal, "batch.rew\t.len()", "128");
    answers(
        &mut terminal,
        "batch.reward.others_m\t\"gr\t).l\ten()",
        "128",
    );
    type_in(&mut terminal, "fn twice(x) {\r2 * x\r}\r");
    prompt(&mut terminal);
    answers(&mut terminal, "twice(21)", "42");
    type_in(&mut terminal, ":rec\tpassk k=3\r");
    terminal.exp_string(":run summarises").expect("the recipe");
    prompt(&mut terminal);
    answers(&mut terminal, "p.\t", "3");
    type_in(&mut terminal, "\x04");
    terminal.exp_eof().expect("Ctrl-D ends the session");
}

#[test]
fn an_input_is_edited_in_the_editor_of_the_environment() {
    let state = tempfile::tempdir().expect("a folder");
    let mut terminal = start_with(state.path(), PATIENCE, "sed -i s/1/41/");
    answers(&mut terminal, "1 + 1", "2");
    answers(&mut terminal, ":edit", "42");
    type_in(&mut terminal, "exit\r");
    terminal.exp_eof().expect("exit ends the session");
}

#[test]
fn ctrl_c_stops_the_computation_and_the_history_lasts() {
    let state = tempfile::tempdir().expect("a folder");
    let mut terminal = start(state.path(), PATIENCE);
    // Slow steps: a loop that does nothing would end at the limit of operations before a hand is at the keys.
    let slow = "loop { batch.old_logp.exp().sum(\"batch\").value() }\r";
    type_in(&mut terminal, slow);
    // Ctrl-C is pressed until it is heard: one that comes before the evaluation is not for it.
    let mut shown = String::new();
    let is_heard = |shown: &str| {
        let after = shown.split_once("cancelled");
        after.is_some_and(|(_, after)| after.contains("[?2004h"))
    };
    for _ in 0..PATIENCE / 200 {
        if is_heard(&shown) {
            break;
        }
        type_in(&mut terminal, "\x03");
        std::thread::sleep(std::time::Duration::from_millis(200));
        shown.extend(std::iter::from_fn(|| terminal.try_read()));
    }
    assert!(is_heard(&shown), "Ctrl-C stops an endless loop: {shown}");
    answers(&mut terminal, "40 + 2", "42");
    type_in(&mut terminal, "\x04");
    terminal.exp_eof().expect("Ctrl-D ends the session");

    let mut terminal = start(state.path(), PATIENCE);
    answers(&mut terminal, "40\x1b[C", "42");
    answers(&mut terminal, "\x1b[A", "42");
    answers(&mut terminal, "_ + 1", "43");
}

#[test]
fn figures_fit_the_window() {
    let state = tempfile::tempdir().expect("a folder");
    let mut terminal = start(state.path(), PATIENCE);
    for input in [
        ":curve grpo passk",
        ":plot batch.length, batch.reward",
        ":surface ppo_clip loss",
        ":objective grpo --noise",
    ] {
        type_in(&mut terminal, &format!("{input}\r"));
        terminal.exp_string("\r\n").expect("the input ends");
        let text = terminal.exp_string("[?2004h").expect("the prompt");
        assert!(text.matches('\n').count() < 24, "{text}");
    }
}
