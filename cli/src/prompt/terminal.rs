//! The terminal around the session: editing, history, completion, hints, colours, and Ctrl-C; or piped lines.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::{DefaultHistory, History, SearchDirection};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};

use super::command::{Watched, Watching, lock};
use super::session::Session;
use advlab::paint::{NARROWEST, Paint};
use advlab::script::{Token, TokenKind, lex};
use advlab::session::Name;

const PROMPT: &str = "> ";
/// How often a watched script is checked: changes show before a hand is back at the keys.
const LOOK: Duration = Duration::from_millis(100);
/// Inputs that are kept between sessions.
const HISTORY: usize = 5000;

/// Runs a session at the terminal until Ctrl-D.
pub fn terminal(mut session: Session) -> io::Result<()> {
    session.set_editor(edit);
    let guard = session.guard().clone();
    // At the prompt Ctrl-C is an ordinary key; while an input is evaluated it is a signal.
    ctrlc::set_handler(move || guard.cancel()).map_err(io::Error::other)?;
    greet(&session);
    let session = Rc::new(RefCell::new(session));
    let mut editor = editor(&session).map_err(io::Error::other)?;
    let history = history_file().unwrap_or_default();
    // The first session has none.
    let _ = editor.load_history(&history);
    tell_news(&mut editor, session.borrow().watched.clone())?;
    loop {
        let input = match editor.readline(PROMPT) {
            Ok(input) => input,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        };
        if input.trim().is_empty() {
            continue;
        }
        let mut session = session.borrow_mut();
        if let Some((columns, rows)) = editor.dimensions() {
            session.paint.width = usize::from(columns).max(NARROWEST);
            session.height = usize::from(rows).saturating_sub(1);
        }
        let reply = session.submit(&input);
        // A space at the end marks an input that failed: it stays in the history, but is not suggested.
        let mark = if reply.is_error { " " } else { "" };
        let _ = editor.add_history_entry(format!("{}{mark}", input.trim_end()));
        let _ = editor.append_history(&history);
        let is_high = reply.text.lines().count() > session.height;
        let is_shown = reply.text.is_empty() || is_high && page(&reply.text).is_ok();
        if !is_shown {
            println!("{}", reply.text);
        }
        if session.is_over() {
            return Ok(());
        }
    }
}

fn greet(session: &Session) {
    let paint = session.paint;
    println!("{} {}", paint.bold("advlab"), env!("CARGO_PKG_VERSION"));
    println!("{}", session.about_data());
    let keys = "Type a formula: batch.reward.mean(\"group\")   :help   Tab completes   Ctrl-D ends";
    println!("{}", paint.dim(keys));
}

/// A non-empty variable of the environment.
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Shows text that is higher than the window in the user's pager.
fn page(text: &str) -> io::Result<()> {
    let pager = set("PAGER").unwrap_or("less".to_string());
    let mut words = pager.split_whitespace();
    let mut pager = std::process::Command::new(words.next().unwrap_or("less"));
    if set("LESS").is_none() {
        // As git does: with colours, and the text stays on the screen.
        pager.env("LESS", "FRX");
    }
    let mut pager = pager.args(words).stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = pager.stdin.take() {
        // The user may quit the pager early.
        let _ = writeln!(input, "{text}");
    }
    pager.wait().map(drop)
}

/// Opens a file in the user's editor, and waits until it ends.
fn edit(file: &Path) -> io::Result<()> {
    let editor = set("VISUAL").or_else(|| set("EDITOR"));
    let editor = editor.unwrap_or("vi".to_string());
    // It may have arguments, as in `code --wait`.
    let mut words = editor.split_whitespace();
    let mut command = std::process::Command::new(words.next().unwrap_or("vi"));
    let status = command.args(words).arg(file).status();
    let status = status.map_err(|error| io::Error::other(format!("{editor}: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{editor}: {status}")))
}

type Terminal = Editor<Prompt, DefaultHistory>;

fn editor(session: &Rc<RefCell<Session>>) -> rustyline::Result<Terminal> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .completion_show_all_if_ambiguous(true)
        .max_history_size(HISTORY)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Prompt(session.clone())));
    Ok(editor)
}

/// The file that keeps the inputs: in the user's state folder.
fn history_file() -> Option<PathBuf> {
    let state = set("XDG_STATE_HOME")
        .or_else(|| Some(set("HOME")? + "/.local/state"))
        .or_else(|| set("LOCALAPPDATA"))?;
    let folder = Path::new(&state).join("advlab");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// Starts the thread that prints what a watched script changes above the line that is being typed.
fn tell_news(editor: &mut Terminal, watching: Watching) -> io::Result<()> {
    let mut printer = editor.create_external_printer().map_err(io::Error::other)?;
    let tell = move || {
        loop {
            std::thread::sleep(LOOK);
            let news = lock(&watching).as_mut().and_then(Watched::poll);
            if news.is_some_and(|news| printer.print(news + "\n").is_err()) {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("advlab-news".to_string());
    thread.spawn(tell)?;
    Ok(())
}

/// Runs a session on lines, and writes its replies, errors too. Returns the number of inputs that were wrong.
pub fn piped(session: &mut Session, lines: impl BufRead, mut out: impl Write) -> io::Result<usize> {
    let (mut input, mut wrong) = (String::new(), 0);
    let mut lines = lines.split(b'\n');
    while !session.is_over {
        let line = lines.next().transpose()?;
        let is_last = line.is_none();
        match String::from_utf8(line.unwrap_or_default()) {
            Ok(line) => input.push_str(line.strip_suffix('\r').unwrap_or(&line)),
            Err(error) => {
                input.clear();
                wrong += 1;
                let byte = error.utf8_error().valid_up_to();
                writeln!(out, "Error: this line is not UTF-8: see its byte {byte}")?;
                continue;
            }
        }
        // An input that is cut off at the end is evaluated too, which gives an error with its location.
        if !is_last && session.is_incomplete(&input) {
            input.push('\n');
            continue;
        }
        if let Some(news) = session.news() {
            writeln!(out, "{news}")?;
        }
        let reply = session.submit(input.trim_end_matches('\n'));
        wrong += usize::from(reply.is_error);
        if !reply.text.is_empty() {
            writeln!(out, "{}", reply.text)?;
        }
        out.flush()?;
        input.clear();
        if is_last {
            break;
        }
    }
    Ok(wrong)
}

/// Completion, hints and colours for the line that is being typed.
struct Prompt(Rc<RefCell<Session>>);

impl Prompt {
    fn paint(&self) -> Paint {
        self.0.borrow().paint
    }
}

impl Helper for Prompt {}

impl Completer for Prompt {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, all) = self.0.borrow().complete(line, cursor);
        let pair = |Name { text, call }: Name| Pair {
            display: if call.is_empty() { text.clone() } else { call },
            replacement: text,
        };
        Ok((start, all.into_iter().map(pair).collect()))
    }
}

/// Dimmed text after the cursor.
struct Ahead {
    shown: String,
    /// Whether the right arrow accepts it.
    is_input: bool,
}

impl Hint for Ahead {
    fn display(&self) -> &str {
        &self.shown
    }

    fn completion(&self) -> Option<&str> {
        self.is_input.then_some(self.shown.as_str())
    }
}

impl Hinter for Prompt {
    type Hint = Ahead;

    fn hint(&self, line: &str, cursor: usize, context: &Context<'_>) -> Option<Ahead> {
        if cursor < line.len() || line.is_empty() {
            return None;
        }
        let hint = self.0.borrow().hint(line);
        let is_input = hint.is_none();
        let shown = hint.or_else(|| earlier(line, context.history()))?;
        Some(Ahead { shown, is_input })
    }
}

/// The rest of the newest input in the history that begins like this and did not fail.
fn earlier(line: &str, history: &dyn History) -> Option<String> {
    let mut newest = history.len().checked_sub(1)?;
    loop {
        let found = history.starts_with(line, newest, SearchDirection::Reverse);
        let found = found.ok()??;
        if found.entry != line && !found.entry.ends_with(' ') {
            return Some(found.entry[line.len()..].to_string());
        }
        newest = found.idx.checked_sub(1)?;
    }
}

impl Highlighter for Prompt {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if line.starts_with([':', '?']) {
            return Cow::Borrowed(line);
        }
        Cow::Owned(highlighted(line, self.paint()))
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(self.paint().bold(prompt))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(self.paint().dim(hint))
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.paint().color && kind != CmdKind::MoveCursor
    }
}

impl Validator for Prompt {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_incomplete = self.0.borrow().is_incomplete(context.input());
        Ok(if is_incomplete {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

pub(super) fn highlighted(text: &str, paint: Paint) -> String {
    let all = lex(text);
    let (mut out, mut at) = (String::new(), 0);
    for (index, token) in all.iter().enumerate() {
        let is_call = all.get(index + 1).is_some_and(Token::opens_call);
        out.push_str(&text[at..token.start]);
        out.push_str(&match token.kind {
            TokenKind::Keyword => paint.with("35", token.text),
            TokenKind::String => paint.with("32", token.text),
            TokenKind::Number => paint.with("36", token.text),
            TokenKind::Comment => paint.dim(token.text),
            TokenKind::Name if is_call => paint.blue(token.text),
            _ => token.text.to_string(),
        });
        at = token.end();
    }
    out + &text[at..]
}
