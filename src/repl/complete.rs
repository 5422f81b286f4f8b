//! What can be typed next, at a place in the input: names, members, levels, recipes, files, commands.

use std::path::Path;

use super::command::{Command, Takes, commands};
use super::pieces::{Kind, Piece, is_open, pieces};
use super::session::Session;
use crate::doc;
use crate::script::{BUILTINS, Name, Recipe};
use crate::tensor::Level;
use crate::tensor::op::{self, ParamKind};
use crate::train::Kept;

/// A way to go on with the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What is typed in place of the word.
    pub text: String,
    /// What the list shows.
    pub shown: String,
}

impl Completion {
    fn of(text: impl Into<String>) -> Completion {
        let text = text.into();
        Completion {
            shown: text.clone(),
            text,
        }
    }
}

impl Session {
    /// Where the word at the cursor begins, and what it can become.
    pub fn complete(&self, text: &str, cursor: usize) -> (usize, Vec<Completion>) {
        let before = &text[..cursor];
        let (start, all) = if let Some(command) = before.strip_prefix(':') {
            match command.split_once(char::is_whitespace) {
                None => (1, command_names()),
                Some((name, arguments)) => self.arguments(name, arguments, before),
            }
        } else if before.starts_with('?') {
            (1, doc::names().map(Completion::of).collect())
        } else {
            self.of_script(before)
        };
        let typed = &before[start..];
        let mut fitting: Vec<Completion> = all
            .into_iter()
            .filter(|one| one.text.starts_with(typed))
            .collect();
        fitting.dedup();
        (start, fitting)
    }

    /// What to show behind the text: how the function is called whose arguments are being typed, or, in a new line,
    /// what the input waits for.
    pub fn hint(&self, text: &str) -> Option<String> {
        if text.ends_with('\n') && self.is_incomplete(text) {
            return Some(match closing(text) {
                Some("`") => "  `` ` `` ends it".to_string(),
                Some(sign) => format!("  `{sign}` ends it"),
                None => "  it goes on".to_string(),
            });
        }
        let (before, argument) = open_call(text)?;
        if !text[argument..].is_empty() {
            return None;
        }
        let start = word_start(before);
        let name = &before[start..];
        let is_method = before[..start].ends_with('.');
        let all = match is_method {
            true => self.script.members(&before[..start - 1]),
            false => self.script.names(),
        };
        let found = all
            .into_iter()
            .find(|known| known.text.trim_end_matches(['(', ')']) == name)?;
        let (_, arguments) = found.call.split_once('(')?;
        // A row that is called as a function is shown as one, its receiver among the arguments.
        let own_receiver = found.call.starts_with(&format!("{name}("));
        Some(match (is_method, own_receiver) {
            (true, true) => arguments
                .split_once(", ")
                .map_or(")", |(_, rest)| rest)
                .to_string(),
            (false, false) if op::table().any(|op| op.name == name) => format!("x, {arguments}"),
            _ => arguments.to_string(),
        })
    }

    fn arguments(&self, name: &str, arguments: &str, before: &str) -> (usize, Vec<Completion>) {
        let Some(command) = Command::find(name) else {
            return (before.len(), Vec::new());
        };
        let word = before
            .rfind(char::is_whitespace)
            .map_or(before.len(), |at| at + 1);
        if before[word..].starts_with("--") {
            return (word, options(&command));
        }
        match command.takes() {
            Takes::Nothing => (before.len(), Vec::new()),
            Takes::Script => {
                let offset = before.len() - arguments.len();
                let (start, all) = self.of_script(arguments);
                (offset + start, all)
            }
            Takes::Recipes => {
                let mut all: Vec<Completion> = BUILTINS
                    .iter()
                    .map(|one| Completion::of(one.name))
                    .collect();
                let named = before[..word]
                    .split_whitespace()
                    .rfind(|word| !word.contains('=') && !word.starts_with(':'));
                if let Some(recipe) = named.and_then(|name| self.script.host().load(name).ok()) {
                    all.extend(parameters(&recipe));
                }
                all.extend(files(&before[word..], |name| name.ends_with(".rhai")));
                (word, all)
            }
            Takes::Path => (word, files(&before[word..], |_| true)),
            Takes::Parameter => (word, self.script.recipe().map_or(Vec::new(), parameters)),
            Takes::Step => (
                word,
                self.data()
                    .run
                    .iter()
                    .filter_map(|(kept, _)| Kept::open(kept.folder()).ok())
                    .flat_map(|kept| kept.batches().to_vec())
                    .map(|(step, _)| Completion::of(step.to_string()))
                    .collect(),
            ),
            Takes::Name => (
                word,
                doc::names()
                    .chain(commands().map(|row| row.name))
                    .map(Completion::of)
                    .collect(),
            ),
        }
    }

    fn of_script(&self, before: &str) -> (usize, Vec<Completion>) {
        let all = pieces(before);
        if let Some(piece) = all.last().filter(|piece| is_open_text(piece, before)) {
            let start = piece.range.start + 1;
            return (start, self.texts(&before[..piece.range.start]));
        }
        if all.last().is_some_and(|piece| piece.kind == Kind::Comment) {
            return (before.len(), Vec::new());
        }
        let start = word_start(before);
        let names: Vec<Name> = match before[..start].strip_suffix('.') {
            Some(receiver) => self.script.members(receiver),
            None => self.script.names(),
        };
        let shown = |name: Name| Completion {
            shown: if name.call.is_empty() {
                name.text.clone()
            } else {
                name.call
            },
            text: name.text,
        };
        (start, names.into_iter().map(shown).collect())
    }

    /// What can stand in the quotes that open after the text.
    fn texts(&self, before: &str) -> Vec<Completion> {
        let quoted = |name: &str| Completion {
            text: format!("{name}\""),
            shown: name.to_string(),
        };
        if before.trim_end().ends_with("import") {
            return BUILTINS.iter().map(|one| quoted(one.name)).collect();
        }
        let function = open_call(before).map_or("", |(head, _)| &head[word_start(head)..]);
        if function == "has" {
            let columns = self.script.members("batch");
            return columns
                .iter()
                .filter(|name| name.call.is_empty())
                .map(|name| quoted(&name.text))
                .collect();
        }
        let choices = op::table()
            .filter(|op| op.name == function)
            .flat_map(|op| op.params)
            .find_map(|param| match param.kind {
                ParamKind::Choice(choices) => Some(choices),
                _ => None,
            });
        match choices {
            Some(choices) => choices.iter().map(|choice| quoted(choice)).collect(),
            None => Level::ALL
                .iter()
                .map(|level| quoted(level.name()))
                .collect(),
        }
    }
}

fn command_names() -> Vec<Completion> {
    let row = |command: Command| Completion {
        text: match command.arguments.is_empty() {
            true => command.name.to_string(),
            false => format!("{} ", command.name),
        },
        shown: format!(":{}", command.name),
    };
    commands().map(row).collect()
}

fn options(command: &Command) -> Vec<Completion> {
    let options: &[&str] = match command.name {
        "curve" => &["--n ", "--out "],
        "plot" => &["--out "],
        _ => &[],
    };
    options.iter().copied().map(Completion::of).collect()
}

fn parameters(recipe: &Recipe) -> Vec<Completion> {
    let names = recipe.params().iter();
    names
        .map(|(parameter, _)| Completion::of(format!("{}=", parameter.name)))
        .collect()
}

/// Files and folders that begin as the word does.
fn files(word: &str, wanted: impl Fn(&str) -> bool) -> Vec<Completion> {
    let folder = &word[..word.rfind('/').map_or(0, |at| at + 1)];
    let at = if folder.is_empty() { "." } else { folder };
    let entries = std::fs::read_dir(Path::new(at))
        .into_iter()
        .flatten()
        .flatten();
    let mut all: Vec<Completion> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_folder = entry.path().is_dir();
            let slash = if is_folder { "/" } else { "" };
            let is_hidden = name.starts_with('.') && !word[folder.len()..].starts_with('.');
            (!is_hidden && (is_folder || wanted(&name))).then(|| Completion {
                text: format!("{folder}{name}{slash}"),
                shown: format!("{name}{slash}"),
            })
        })
        .collect();
    all.sort_by(|a, b| a.text.cmp(&b.text));
    all
}

/// Where the name at the end of the text begins.
fn word_start(text: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.char_indices()
        .rev()
        .take_while(|(_, c)| is_part(*c))
        .last()
        .map_or(text.len(), |(at, _)| at)
}

/// Whether a text in quotes has not ended.
fn is_open_text(piece: &Piece, text: &str) -> bool {
    let part = &text[piece.range.clone()];
    piece.kind == Kind::Text && (part.len() == 1 || !part.ends_with(&part[..1]))
}

/// What closes the innermost bracket, text or comment that is open at the end.
fn closing(text: &str) -> Option<&'static str> {
    let all = pieces(text);
    if let Some(last) = all.last().filter(|_| is_open(text)) {
        return Some(match last.kind {
            Kind::Comment => "*/",
            _ => "`",
        });
    }
    let mut open = Vec::new();
    for piece in all.iter().filter(|piece| piece.kind == Kind::Sign) {
        match &text[piece.range.clone()] {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" => {
                open.pop();
            }
            _ => {}
        }
    }
    open.pop()
}

/// The text up to the name of the innermost call that is open at the end, and where its arguments begin.
fn open_call(text: &str) -> Option<(&str, usize)> {
    let mut open = Vec::new();
    for piece in pieces(text) {
        match &text[piece.range.clone()] {
            "(" | "[" | "{" if piece.kind == Kind::Sign => open.push(piece.range.start),
            ")" | "]" | "}" if piece.kind == Kind::Sign => {
                open.pop();
            }
            _ => {}
        }
    }
    let at = open.pop().filter(|&at| text[at..].starts_with('('))?;
    Some((&text[..at], at + 1))
}
