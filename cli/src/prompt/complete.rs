//! Completions at the cursor: names, members, levels, recipes, files, commands.

use super::arguments::{OPTIONS, commands};
use super::session::PromptSession;
use crate::{complete, doc};
use advlab::script::BUILTINS;
use advlab::session::Name;

/// Returns completions that are shown exactly as they are inserted.
fn plain(all: impl IntoIterator<Item = impl Into<String>>) -> Vec<Name> {
    let name = |text: String| {
        let call = String::new();
        Name { text, call }
    };
    all.into_iter().map(|text| name(text.into())).collect()
}

impl PromptSession {
    /// Returns the position at which the word at the cursor begins, and the word's completions.
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
            complete::of_script(&self.script, before)
        };
        all.retain(|name| name.text.starts_with(&before[start..]));
        (start, all)
    }

    /// Returns the completions for an argument of a command. Each argument other than an option is completed like the first
    /// argument in the command's row of the help.
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
                let (start, all) = complete::of_script(&self.script, arguments);
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

    /// Returns the parameters of the recipe in `words`, or of the recipe in use if `words` is empty.
    fn parameters(&self, words: &str) -> Vec<Name> {
        let recipe = self.recipe_of(words);
        let names = recipe.iter().flat_map(|recipe| recipe.params().iter());
        plain(names.map(|(parameter, _)| format!("{}=", parameter.name)))
    }
}

/// Returns the commands, each with a space after its name if it takes arguments.
fn command_names() -> Vec<Name> {
    plain(commands().map(|command| match command.arguments {
        "" => command.name.to_string(),
        _ => format!("{} ", command.name),
    }))
}

/// Returns the folders, and the files with this ending, in the folder that `word` names. Hidden files and folders are included
/// only if the last name in `word` begins with a dot.
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
