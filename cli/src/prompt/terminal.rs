//! The user interface of the prompt: a terminal with line editing, history, colours, Ctrl-C and an editor for `:edit`, or a pipe.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};

use super::session::{PromptSession, is_command};
use super::watch::{Watched, Watching};
use crate::lock;
use crate::paint::{NARROWEST, printed};
use crate::report::show::highlighted;
use advlab::session::Name;

const PROMPT: &str = "> ";
/// The time between checks of a watched script; it is short, so that the effect of a change is shown soon after the save.
const LOOK: Duration = Duration::from_millis(100);
/// The number of inputs that the history keeps between sessions.
const HISTORY: usize = 5000;

/// Runs a session at the terminal until Ctrl-D or an input ends it.
pub fn terminal(mut session: PromptSession) -> io::Result<()> {
    session.editor = Some(Box::new(edit));
    let guard = session.guard().clone();
    // At the prompt, Ctrl-C is an ordinary key; while an input is evaluated, Ctrl-C is a signal.
    ctrlc::set_handler(move || guard.cancel()).map_err(io::Error::other)?;
    let paint = session.paint;
    println!("{} {}", paint.bold("advlab"), env!("CARGO_PKG_VERSION"));
    println!("{}", printed(&session.about_data()));
    let keys = "Type a formula: batch.reward.mean(\"group\")   :help   Tab completes   Ctrl-D ends";
    println!("{}", paint.dim(keys));
    let watching = session.watched.clone();
    let mut editor = editor(session).map_err(io::Error::other)?;
    let history = history_file().unwrap_or_default();
    // The error is ignored, because the first session has no history.
    let _ = editor.load_history(&history);
    tell_news(&mut editor, watching)?;
    loop {
        let input = match editor.readline(PROMPT) {
            Ok(input) if input.trim().is_empty() => continue,
            Ok(input) => input,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        };
        let _ = editor.add_history_entry(input.trim_end());
        let _ = editor.append_history(&history);
        let window = editor.dimensions();
        let Some(LineHelper(session)) = editor.helper_mut() else {
            return Ok(());
        };
        if let Some((columns, rows)) = window {
            session.paint.width = usize::from(columns).max(NARROWEST);
            session.height = usize::from(rows).saturating_sub(1);
        }
        let reply = session.submit(&input);
        if !reply.text.is_empty() {
            println!("{}", printed(&reply.text));
        }
        if session.is_over {
            return Ok(());
        }
    }
}

/// Returns the value of an environment variable, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Opens a file in the user's editor, and waits until the editor ends.
fn edit(file: &Path) -> io::Result<()> {
    let editor = variable("VISUAL").or_else(|| variable("EDITOR"));
    let usual = if cfg!(windows) { "notepad" } else { "vi" };
    let editor = editor.unwrap_or(usual.to_string());
    // The variable may contain arguments, as in `code --wait`.
    let mut words = editor.split_whitespace();
    let mut command = std::process::Command::new(words.next().unwrap_or(usual));
    let failed = |why: &dyn std::fmt::Display| io::Error::other(format!("{editor}: {why}"));
    let status = command.args(words).arg(file).status();
    let status = status.map_err(|error| failed(&error))?;
    let is_done = status.success().then_some(());
    is_done.ok_or_else(|| failed(&status))
}

type Terminal = Editor<LineHelper, DefaultHistory>;

fn editor(session: PromptSession) -> rustyline::Result<Terminal> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .completion_show_all_if_ambiguous(true)
        .max_history_size(HISTORY)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(LineHelper(session)));
    Ok(editor)
}

/// Returns the file that keeps the inputs between sessions, and creates the file's folder in the user's state folder.
fn history_file() -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME")
        .or_else(|| Some(variable("HOME")? + "/.local/state"))
        .or_else(|| variable("LOCALAPPDATA"))?;
    let folder = Path::new(&state).join("advlab");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// Starts the thread that prints the effects of a watched script's changes above the line that is being typed.
fn tell_news(editor: &mut Terminal, watching: Watching) -> io::Result<()> {
    let mut printer = editor.create_external_printer().map_err(io::Error::other)?;
    let tell = move || {
        loop {
            std::thread::sleep(LOOK);
            let news = lock(&watching).as_mut().and_then(Watched::poll);
            if news.is_some_and(|news| printer.print(printed(&news) + "\n").is_err()) {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("advlab-news".to_string());
    thread.spawn(tell).map(drop)
}

/// Runs a session on lines of input, and writes the replies, including errors. Returns the number of inputs that caused errors.
pub fn piped(
    session: &mut PromptSession,
    lines: impl BufRead,
    mut out: impl Write,
) -> io::Result<usize> {
    let (mut input, mut wrong) = (String::new(), 0);
    let mut lines = lines.split(b'\n');
    while !session.is_over {
        let line = lines.next().transpose()?;
        let is_last = line.is_none();
        let line = String::from_utf8_lossy(&line.unwrap_or_default()).into_owned();
        input.push_str(line.strip_suffix('\r').unwrap_or(&line));
        // An input that is incomplete after the last line is also evaluated, because the user then gets an error with a location.
        // A line that is not UTF-8 is evaluated at once, because no later line can make it valid.
        let is_text = !line.contains(char::REPLACEMENT_CHARACTER);
        if !is_last && is_text && session.is_incomplete(&input) {
            input.push('\n');
            continue;
        }
        if let Some(news) = session.news() {
            writeln!(out, "{}", printed(&news))?;
        }
        let reply = session.submit(input.trim_end_matches('\n'));
        wrong += usize::from(reply.is_error);
        if !reply.text.is_empty() {
            writeln!(out, "{}", printed(&reply.text))?;
        }
        out.flush()?;
        input.clear();
        if is_last {
            break;
        }
    }
    Ok(wrong)
}

/// Completion, suggestions from the history, and colours for the line that is being typed.
struct LineHelper(PromptSession);

impl Helper for LineHelper {}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, all) = self.0.complete(line, cursor);
        let pair = |Name { text, call }: Name| Pair {
            display: if call.is_empty() { text.clone() } else { call },
            replacement: text,
        };
        Ok((start, all.into_iter().map(pair).collect()))
    }
}

impl Hinter for LineHelper {
    type Hint = String;

    fn hint(&self, line: &str, cursor: usize, context: &Context<'_>) -> Option<String> {
        HistoryHinter::new().hint(line, cursor, context)
    }
}

impl Highlighter for LineHelper {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if is_command(line) {
            Cow::Borrowed(line)
        } else {
            Cow::Owned(highlighted(line, self.0.paint))
        }
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(self.0.paint.bold(prompt))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(self.0.paint.dim(hint))
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.0.paint.color && kind != CmdKind::MoveCursor
    }
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if self.0.is_incomplete(context.input()) {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}
