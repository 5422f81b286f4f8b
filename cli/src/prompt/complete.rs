//! Completions at the cursor: names, members, levels, recipes, files, commands.

use super::arguments::{OPTIONS, commands};
use super::session::PromptSession;
use crate::doc;
use advlab::script::{BUILTINS, Builtin, Token, TokenKind, Unfinished, unfinished};
use advlab::session::Name;
use advlab::tensor::Level;
use advlab::tensor::op::{self, ParamKind};

/// Completions that are shown as they are typed.
fn plain(all: impl IntoIterator<Item = impl Into<String>>) -> Vec<Name> {
    let name = |text: String| {
        let call = String::new();
        Name { text, call }
    };
    all.into_iter().map(|text| name(text.into())).collect()
}

impl PromptSession {
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
        (start, all)
    }

    /// Completions for the arguments of a command. All arguments complete like the first one in the command's row of the help.
    fn arguments(&self, name: &str, arguments: &str, before: &str) -> (usize, Vec<Name>) {
        let Some(command) = commands().find(|command| command.name == name) else {
            return (before.len(), Vec::new());
        };
        let word = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let typed = &before[word..];
        if typed.starts_with("--") {
            let own = OPTIONS.iter().filter(|(_, of)| of.contains(&command.name));
            return (word, plain(own.map(|(option, _)| *option)));
        }
        let first = command.arguments.split(' ').next().unwrap_or_default();
        let all = match first.trim_matches(['[', ']']) {
            "X" => {
                let (start, all) = self.of_script(arguments);
                return (before.len() - arguments.len() + start, all);
            }
            "RECIPE" | "A" => {
                let mut all = plain(BUILTINS.iter().map(|one| one.name));
                let words = before[..word].split_whitespace().skip(1);
                let named = words.filter(|word| !word.contains('=')).last();
                all.extend(named.map_or(Vec::new(), |name| self.parameters(name)));
                all.extend(files(typed, ".rhai"));
                all
            }
            "FILE" | "PATH" => files(typed, ""),
            "NAME" => plain(doc::names()),
            "k=8" => self.parameters(""),
            _ => Vec::new(),
        };
        (word, all)
    }

    /// The parameters of the named recipe, or of the recipe in use.
    fn parameters(&self, words: &str) -> Vec<Name> {
        let recipe = self.recipe_of(words);
        let names = recipe.iter().flat_map(|recipe| recipe.params().iter());
        plain(names.map(|(parameter, _)| format!("{}=", parameter.name)))
    }

    fn of_script(&self, before: &str) -> (usize, Vec<Name>) {
        let open = unfinished(before);
        if let Some(last) = open.last {
            return match last.kind {
                TokenKind::String => (last.start + 1, in_quotes(&open)),
                _ => (before.len(), Vec::new()),
            };
        }
        let is_word = |token: &Token<'_>| {
            let is_name = matches!(token.kind, TokenKind::Name | TokenKind::Keyword);
            is_name && token.end() == before.len()
        };
        let (start, code) = match open.code.split_last() {
            Some((word, code)) if is_word(word) => (word.start, code),
            _ => (before.len(), &open.code[..]),
        };
        let names = match code.split_last() {
            Some((dot, receiver)) if dot.text == "." => self.script.members(receiver),
            _ => self.script.names(),
        };
        (start, names)
    }
}

/// The strings that fit between the open quotes: recipes to import, the choices of a function's parameter, or else levels.
fn in_quotes(open: &Unfinished<'_>) -> Vec<Name> {
    let quoted = |name: &str| Name {
        text: format!("{name}\""),
        call: name.to_string(),
    };
    if open.code.last().is_some_and(|token| token.text == "import") {
        return Builtin::importable().map(|one| quoted(one.name)).collect();
    }
    let head = open.call().and_then(|(head, _)| head.last());
    let function = op::table().find(|op| head.is_some_and(|head| head.text == op.name));
    let choices = function
        .iter()
        .flat_map(|op| op.params)
        .find_map(|param| match param.kind {
            ParamKind::Choice(choices) => {
                Some(choices.iter().map(|choice| quoted(choice)).collect())
            }
            _ => None,
        });
    choices.unwrap_or_else(|| Level::ALL.iter().map(|one| quoted(one.name())).collect())
}

/// The commands, with a space after those that take arguments.
fn command_names() -> Vec<Name> {
    plain(commands().map(|command| match command.arguments {
        "" => command.name.to_string(),
        _ => format!("{} ", command.name),
    }))
}

/// Folders, and files with this ending, whose paths begin with `word`; hidden ones only if the word's last name begins with a dot.
fn files(word: &str, ending: &str) -> Vec<Name> {
    let (folder, start) = word.split_at(word.rfind(std::path::is_separator).map_or(0, |at| at + 1));
    let entries = std::fs::read_dir(if folder.is_empty() { "." } else { folder });
    let entries = entries.into_iter().flatten().flatten();
    let shown = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let slash = if entry.path().is_dir() { "/" } else { "" };
        let is_shown = slash == "/" || name.ends_with(ending);
        let is_hidden = name.starts_with('.') && !start.starts_with('.');
        (is_shown && !is_hidden).then(|| format!("{folder}{name}{slash}"))
    };
    let mut all: Vec<String> = entries.filter_map(shown).collect();
    all.sort();
    plain(all)
}
