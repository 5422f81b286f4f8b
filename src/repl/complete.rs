//! Completions at an index of the input: names, members, levels, recipes, files, commands.

use std::path::Path;

use super::command::{Command, Takes, commands};
use super::session::Session;
use crate::doc;
use crate::script::{BUILTINS, Name, Recipe, Token, TokenKind, Unfinished, unfinished};
use crate::tensor::Level;
use crate::tensor::op::{self, ParamKind};
use crate::train::Kept;

/// A way to go on with the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The string that replaces the word.
    pub text: String,
    /// The string that the list shows.
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

    /// A hint to show behind the text: how the function is called whose arguments are being typed, or, in a new line,
    /// what the input waits for.
    pub fn hint(&self, text: &str) -> Option<String> {
        let open = unfinished(text);
        if text.ends_with('\n') && self.is_incomplete(text) {
            return Some(match open.closed_by() {
                Some("`") => "  `` ` `` ends it".to_string(),
                Some(sign) => format!("  `{sign}` ends it"),
                None => "  it goes on".to_string(),
            });
        }
        let (head, arguments) = open.call()?;
        if arguments < text.len() {
            return None;
        }
        let (name, before) = head.split_last()?;
        let receiver = receiver(before);
        let all = self.script_names(receiver);
        let found = all
            .into_iter()
            .find(|known| known.text.trim_end_matches(['(', ')']) == name.text)?;
        let (_, arguments) = found.call.split_once('(')?;
        // A row that is called as a function is shown as one, its receiver among the arguments.
        let has_receiver = found.call.starts_with(&format!("{}(", name.text));
        Some(match (receiver.is_some(), has_receiver) {
            (true, true) => arguments
                .split_once(", ")
                .map_or(")", |(_, rest)| rest)
                .to_string(),
            (false, false) if op::table().any(|op| op.name == name.text) => {
                format!("x, {arguments}")
            }
            _ => arguments.to_string(),
        })
    }

    /// The names that can be typed after a receiver's dot, or without one.
    fn script_names(&self, receiver: Option<&[Token<'_>]>) -> Vec<Name> {
        match receiver {
            Some(receiver) => self.script.members(receiver),
            None => self.script.names(),
        }
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
        let open = unfinished(before);
        match open.last {
            Some(last) if last.kind == TokenKind::String => {
                return (last.start + 1, self.in_quotes(&open));
            }
            Some(_) => return (before.len(), Vec::new()),
            None => {}
        }
        let is_word = |token: &&Token<'_>| {
            token.end() == before.len()
                && matches!(token.kind, TokenKind::Name | TokenKind::Keyword)
        };
        let word = open.code.last().filter(is_word);
        let start = word.map_or(before.len(), |word| word.start);
        let names = self.script_names(receiver(
            &open.code[..open.code.len() - usize::from(word.is_some())],
        ));
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

    /// The strings that can stand in the quotes that are open.
    fn in_quotes(&self, open: &Unfinished<'_>) -> Vec<Completion> {
        let quoted = |name: &str| Completion {
            text: format!("{name}\""),
            shown: name.to_string(),
        };
        if open.code.last().is_some_and(|token| token.text == "import") {
            return BUILTINS.iter().map(|one| quoted(one.name)).collect();
        }
        let head = open.call().and_then(|(head, _)| head.split_last());
        let function = head.map_or("", |(name, _)| name.text);
        if let Some((_, before)) = head.filter(|_| function == "has") {
            let columns = self.script_names(receiver(before));
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

/// The receiver before the dot that ends the tokens.
fn receiver<'a, 't>(code: &'a [Token<'t>]) -> Option<&'a [Token<'t>]> {
    let (last, before) = code.split_last()?;
    (last.text == ".").then_some(before)
}

fn command_names() -> Vec<Completion> {
    let row = |command: Command| Completion {
        text: if command.arguments.is_empty() {
            command.name.to_string()
        } else {
            format!("{} ", command.name)
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
