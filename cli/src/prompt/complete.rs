//! Completions at an index of the input: names, members, levels, recipes, files, commands.

use super::command::{Command, commands};
use super::session::Session;
use crate::doc;
use advlab::script::{BUILTINS, Builtin, Recipe, Token, TokenKind, Unfinished, unfinished};
use advlab::session::Name;
use advlab::tensor::Level;
use advlab::tensor::op::{self, ParamKind};
use advlab_train::RunFolder;

/// Names that are displayed as they are typed.
fn plain(all: impl IntoIterator<Item = impl Into<String>>) -> Vec<Name> {
    let name = |text: String| Name {
        text,
        call: String::new(),
    };
    all.into_iter().map(|text| name(text.into())).collect()
}

impl Session {
    /// Where the word at the cursor begins, and its completions.
    pub fn complete(&self, text: &str, cursor: usize) -> (usize, Vec<Name>) {
        let before = &text[..cursor];
        let (start, mut all) = if let Some(command) = before.strip_prefix(':') {
            match command.split_once(char::is_whitespace) {
                None => (1, command_names()),
                Some((name, arguments)) => self.arguments(name, arguments, before),
            }
        } else if before.starts_with('?') {
            (1, plain(doc::names()))
        } else {
            self.of_script(before)
        };
        all.retain(|name| name.text.starts_with(&before[start..]));
        all.dedup();
        (start, all)
    }

    /// A hint to show after the text: the signature of the function whose arguments are being typed, or, in a new line, what
    /// is still open.
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
        let mut all = self.script_names(receiver).into_iter();
        let found = all.find(|known| known.text.trim_end_matches(['(', ')']) == name.text)?;
        let (_, arguments) = found.call.split_once('(')?;
        // In the signature of a function, the receiver is the first argument.
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

    /// The arguments of a command, of the kind that the first one in its row of the help is.
    fn arguments(&self, name: &str, arguments: &str, before: &str) -> (usize, Vec<Name>) {
        let Some(command) = Command::find(name) else {
            return (before.len(), Vec::new());
        };
        let word = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let typed = &before[word..];
        if typed.starts_with("--") {
            let options: &[&str] = match command.name {
                "curve" | "objective" => &["--n ", "--out "],
                "plot" | "surface" => &["--out "],
                _ => &[],
            };
            return (word, plain(options.iter().copied()));
        }
        let first = command.arguments.split(' ').next().unwrap_or_default();
        let all = match first.trim_matches(['[', ']']) {
            "" => Vec::new(),
            "X" => {
                let (start, all) = self.of_script(arguments);
                return (before.len() - arguments.len() + start, all);
            }
            "RECIPE" | "A" => {
                let mut all = plain(BUILTINS.iter().map(|one| one.name));
                let named = before[..word]
                    .split_whitespace()
                    .rfind(|word| !word.contains('=') && !word.starts_with(':'));
                if let Some(recipe) = named.and_then(|name| self.script.host().load(name).ok()) {
                    all.extend(parameters(&recipe));
                }
                all.extend(files(typed, |name| name.ends_with(".rhai")));
                all
            }
            "FILE" | "PATH" => files(typed, |_| true),
            "STEP" => {
                let kept = self.data.run.as_ref();
                let kept = kept.and_then(|(kept, _)| RunFolder::open(kept.folder()).ok());
                let batches = kept.iter().flat_map(RunFolder::batches);
                plain(batches.map(|(step, _)| step.to_string()))
            }
            "NAME" => plain(doc::names().chain(commands().map(|row| row.name))),
            _ => self.script.recipe().map_or(Vec::new(), parameters),
        };
        (word, all)
    }

    fn of_script(&self, before: &str) -> (usize, Vec<Name>) {
        let open = unfinished(before);
        match open.last {
            Some(last) if last.kind == TokenKind::String => {
                return (last.start + 1, self.in_quotes(&open));
            }
            Some(_) => return (before.len(), Vec::new()),
            None => {}
        }
        let is_word = |token: &Token<'_>| {
            token.end() == before.len()
                && matches!(token.kind, TokenKind::Name | TokenKind::Keyword)
        };
        match open.code.split_last() {
            Some((word, code)) if is_word(word) => (word.start, self.script_names(receiver(code))),
            _ => (before.len(), self.script_names(receiver(&open.code))),
        }
    }

    /// The strings that fit between the open quotes.
    fn in_quotes(&self, open: &Unfinished<'_>) -> Vec<Name> {
        let quoted = |name: &str| Name {
            text: format!("{name}\""),
            call: name.to_string(),
        };
        if open.code.last().is_some_and(|token| token.text == "import") {
            return Builtin::importable().map(|one| quoted(one.name)).collect();
        }
        let head = open.call().and_then(|(head, _)| head.split_last());
        let function = head.map_or("", |(name, _)| name.text);
        if let Some((_, before)) = head.filter(|_| function == "has") {
            let members = self.script_names(receiver(before));
            let columns = members.iter().filter(|name| name.call.is_empty());
            return columns.map(|name| quoted(&name.text)).collect();
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
            None => Level::ALL.iter().map(|one| quoted(one.name())).collect(),
        }
    }
}

/// The receiver before the dot that ends the tokens.
fn receiver<'a, 't>(code: &'a [Token<'t>]) -> Option<&'a [Token<'t>]> {
    let (last, before) = code.split_last()?;
    (last.text == ".").then_some(before)
}

fn command_names() -> Vec<Name> {
    let name = |command: Command| {
        let has_arguments = !command.arguments.is_empty();
        let space = if has_arguments { " " } else { "" };
        Name {
            text: format!("{}{space}", command.name),
            call: format!(":{}", command.name),
        }
    };
    commands().map(name).collect()
}

fn parameters(recipe: &Recipe) -> Vec<Name> {
    let names = recipe.params().iter();
    plain(names.map(|(parameter, _)| format!("{}=", parameter.name)))
}

/// Files and folders that begin as the word does.
fn files(word: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<Name> {
    let (folder, start) = word.split_at(word.rfind('/').map_or(0, |at| at + 1));
    let entries = std::fs::read_dir(if folder.is_empty() { "." } else { folder });
    let shown = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = entry.path().is_dir();
        let is_hidden = name.starts_with('.') && !start.starts_with('.');
        let slash = if is_folder { "/" } else { "" };
        (!is_hidden && (is_folder || is_wanted(&name))).then(|| Name {
            text: format!("{folder}{name}{slash}"),
            call: format!("{name}{slash}"),
        })
    };
    let entries = entries.into_iter().flatten().flatten();
    let mut all: Vec<Name> = entries.filter_map(shown).collect();
    all.sort();
    all
}
