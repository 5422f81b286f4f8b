//! The terminal around the session: editing, history, completion, hints, colours, and Ctrl-C.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter, HistoryHinter};
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};

use super::command::{Watched, lock};
use super::session::Session;
use crate::paint::Paint;
use crate::script::{Token, TokenKind, lex};

const PROMPT: &str = "> ";
/// How often a script that is watched is looked at: what it changes is shown before a hand is back at the keys.
const LOOK: Duration = Duration::from_millis(100);
/// Columns that answers are made for, however narrow the terminal is.
const NARROWEST: usize = 40;
/// Inputs that are kept from session to session.
const HISTORY: usize = 5000;

/// Runs a session at the terminal until Ctrl-D.
///
/// # Errors
/// Where the terminal fails.
pub fn terminal(mut session: Session) -> io::Result<()> {
    session.set_editor(edit);
    let guard = session.guard().clone();
    // At the prompt Ctrl-C is a key like any other; while an input is evaluated it is a signal.
    ctrlc::set_handler(move || guard.cancel()).map_err(io::Error::other)?;
    greet(&session);
    let session = Rc::new(RefCell::new(session));
    let mut editor = editor(&session).map_err(io::Error::other)?;
    let history = history_file();
    if let Some(file) = &history {
        // The first session has none.
        let _ = editor.load_history(file);
    }
    let watched = tell_news(&mut editor)?;
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
        remember(&mut editor, &input, history.as_deref());
        let mut session = session.borrow_mut();
        if let Some((columns, _)) = editor.dimensions() {
            session.paint.width = usize::from(columns).max(NARROWEST);
        }
        let reply = session.submit(&input);
        if !reply.text.is_empty() {
            println!("{}", reply.text);
        }
        if session.is_over() {
            return Ok(());
        }
        *watched.lock().unwrap_or_else(PoisonError::into_inner) = session.teller();
    }
}

fn greet(session: &Session) {
    let paint = session.paint;
    println!("{} {}", paint.bold("advlab"), env!("CARGO_PKG_VERSION"));
    println!("{}", session.about_data());
    let keys = "Type a formula: batch.reward.mean(\"group\")   :help   Tab completes   Ctrl-D ends";
    println!("{}", paint.dim(keys));
}

/// Opens a file in the user's editor, and waits for its end.
fn edit(file: &Path) -> io::Result<()> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
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

/// The script that is watched now, if one is, for the thread that tells of its saves.
type InWatch = Arc<Mutex<Option<Arc<Mutex<Watched>>>>>;

fn editor(session: &Rc<RefCell<Session>>) -> rustyline::Result<Terminal> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .completion_show_all_if_ambiguous(true)
        .max_history_size(HISTORY)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Prompt {
        session: session.clone(),
        paint: session.borrow().paint,
        history: HistoryHinter::new(),
    }));
    Ok(editor)
}

/// The file that keeps the inputs: in the user's state folder.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME")
        .or_else(|| Some(set("HOME")?.join(".local/state")))
        .or_else(|| set("LOCALAPPDATA"))?;
    let folder = state.join("advlab");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// Adds an input to the history, at once also in the file: a session that is killed has lost nothing.
fn remember(editor: &mut Terminal, input: &str, history: Option<&Path>) {
    let is_new = editor.add_history_entry(input).unwrap_or(false);
    if let (true, Some(file)) = (is_new, history) {
        // A history that cannot be written is no reason to stop.
        let _ = editor.append_history(file);
    }
}

/// Starts the thread that shows what a watched script changes, above the line that is being typed.
fn tell_news(editor: &mut Terminal) -> io::Result<InWatch> {
    let watched = InWatch::default();
    let seen = watched.clone();
    let mut printer = editor.create_external_printer().map_err(io::Error::other)?;
    std::thread::Builder::new()
        .name("advlab-news".to_string())
        .spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                let current = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let news = current.and_then(|watched| lock(&watched).poll());
                if news.is_some_and(|news| printer.print(news + "\n").is_err()) {
                    return;
                }
            }
        })?;
    Ok(watched)
}

/// Completion, hints and colours for the line that is typed.
struct Prompt {
    session: Rc<RefCell<Session>>,
    paint: Paint,
    history: HistoryHinter,
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
        let (start, all) = self.session.borrow().complete(line, cursor);
        let pair = |one: super::complete::Completion| Pair {
            display: one.shown,
            replacement: one.text,
        };
        Ok((start, all.into_iter().map(pair).collect()))
    }
}

/// Dimmed text after the cursor.
struct Ahead {
    shown: String,
    /// Whether the right arrow takes it over.
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
        let hint = self.session.borrow().hint(line);
        let is_input = hint.is_none();
        let shown = hint.or_else(|| self.history.hint(line, cursor, context))?;
        Some(Ahead { shown, is_input })
    }
}

impl Highlighter for Prompt {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if line.starts_with([':', '?']) {
            return Cow::Borrowed(line);
        }
        Cow::Owned(highlighted(line, self.paint))
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(self.paint.bold(prompt))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(self.paint.dim(hint))
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.paint.color && kind != CmdKind::MoveCursor
    }
}

impl Validator for Prompt {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_incomplete = self.session.borrow().is_incomplete(context.input());
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
            TokenKind::String => paint.green(token.text),
            TokenKind::Number => paint.with("36", token.text),
            TokenKind::Comment => paint.dim(token.text),
            TokenKind::Name if is_call => paint.blue(token.text),
            _ => token.text.to_string(),
        });
        at = token.end();
    }
    out + &text[at..]
}
