//! `:save`: what was typed, as a script.

use std::path::{Path, PathBuf};

use super::super::pieces::{Kind, Piece, pieces};
use super::super::session::Session;
use super::{Answered, missing};
use crate::script::{Diagnostic, Hook, Setting};

/// An input that was right.
#[derive(Clone, Debug)]
pub(in crate::repl) struct Typed {
    pub(in crate::repl) text: String,
    /// Whether it had a value: the next `_` means that.
    pub(in crate::repl) has_value: bool,
    /// Whether the value can be an advantage: a response or token tensor.
    pub(in crate::repl) is_signal: bool,
}

pub(super) fn save(session: &mut Session, path: &str) -> Answered {
    let file = PathBuf::from(path.trim_matches('"'));
    if path.is_empty() {
        return Err(missing("save"));
    }
    let shown = file.display();
    let error =
        |message: String, help: &str| Err(Diagnostic::error(message).with_help(help).into());
    if file.extension().is_none_or(|ending| ending != "rhai") {
        let help = format!(
            "such as {}",
            Path::new(path).with_extension("rhai").display()
        );
        return error(format!("{shown}: a script's file ends in .rhai"), &help);
    }
    if session.typed.is_empty() {
        return error(
            "nothing has been typed that could be saved".to_string(),
            "commands do not count",
        );
    }
    if file.exists() && !session.saved.contains(&file) {
        return error(
            format!("{shown} is there already, and is left as it is"),
            "choose another name",
        );
    }
    let script = session.typed_script();
    std::fs::write(&file, &script)
        .map_err(|error| Diagnostic::error(format!("cannot write {shown}: {error}")))?;
    session.saved.insert(file.clone());
    let lines = script.lines().count();
    match session.script.host().load(&file.display().to_string()) {
        Ok(recipe) => Ok(format!(
            "{shown}: {lines} lines, a recipe ({})",
            recipe.version()
        )),
        Err(error) => {
            let why = error
                .diagnostics
                .first()
                .map_or(String::new(), |first| first.message.clone());
            Ok(format!("{shown}: {lines} lines, no recipe yet: {why}"))
        }
    }
}

/// What the inputs were made of, in order.
#[derive(Default)]
struct Parts {
    imports: Vec<String>,
    functions: Vec<String>,
    /// The lines of the hook that the statements make.
    body: Vec<String>,
}

/// What becomes of an input in the hook that the statements make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Its functions count, its statements do not.
    Dropped,
    Statement,
    /// A value that a later input calls `_`.
    Last,
    /// The hook's value.
    Result,
}

impl Session {
    /// Whether a hook was typed as a function.
    pub(in crate::repl) fn has_typed_hook(&self) -> bool {
        let parts = self.parts();
        parts.functions.iter().any(|function| is_hook(function))
    }

    /// What was typed, as a script: imports, functions, and, where none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub(in crate::repl) fn typed_script(&self) -> String {
        let parts = self.parts();
        let mut sections = vec!["//! What was typed at the prompt.".to_string()];
        if !parts.imports.is_empty() {
            sections.push(parts.imports.join("\n"));
        }
        sections.extend(self.params_function(&parts));
        sections.extend(parts.functions.iter().cloned());
        if !parts.functions.iter().any(|function| is_hook(function)) && !parts.body.is_empty() {
            let indented: Vec<String> = parts
                .body
                .iter()
                .flat_map(|line| line.lines())
                .map(|line| format!("    {line}").trim_end().to_string())
                .collect();
            sections.push(format!(
                "fn advantage(batch, p) {{\n{}\n}}",
                indented.join("\n")
            ));
        }
        sections.join("\n\n") + "\n"
    }

    fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        let last_signal = self.typed.iter().rposition(|typed| typed.is_signal);
        let uses = self.uses(last_signal);
        for (typed, used) in self.typed.iter().zip(uses) {
            let text = match used {
                Use::Dropped => typed.text.clone(),
                _ => self.hooks_of_recipe(&typed.text, &mut parts.imports),
            };
            let mut statements = Vec::new();
            for item in items(&text) {
                match item {
                    Item::Import(line) if parts.imports.contains(&line) => {}
                    Item::Import(line) => parts.imports.push(line),
                    Item::Function(text) => {
                        // A function that is typed again replaces the one before.
                        parts.functions.retain(|known| head(known) != head(&text));
                        parts.functions.push(text);
                    }
                    Item::Statement(text) => statements.push(text),
                }
            }
            let last = match (used, statements.pop()) {
                (_, None) | (Use::Dropped, _) => continue,
                (Use::Statement, Some(text)) => text + ";",
                (Use::Last, Some(text)) => format!("let last = {text};"),
                (Use::Result, Some(text)) => text,
            };
            parts
                .body
                .extend(statements.into_iter().map(|text| text + ";"));
            parts.body.push(last);
        }
        parts
    }

    /// What becomes of each input where the one at `result` is the value of the hook: nothing after it counts.
    fn uses(&self, result: Option<usize>) -> Vec<Use> {
        let mut is_last_wanted = false;
        let mut uses = Vec::new();
        for (place, typed) in self.typed.iter().enumerate().rev() {
            let used = match typed.has_value {
                _ if Some(place) == result => Use::Result,
                _ if result.is_some_and(|result| place > result) => Use::Dropped,
                true if is_last_wanted => Use::Last,
                true => Use::Dropped,
                false => Use::Statement,
            };
            is_last_wanted &= !typed.has_value;
            let of_text = pieces(&typed.text);
            if used != Use::Dropped && of_text.iter().any(|piece| is_last(piece, &typed.text)) {
                is_last_wanted = true;
            }
            uses.push(used);
        }
        uses.reverse();
        uses
    }

    /// The text with `_` under a name, and with the hooks of the recipe in use as those of an import.
    fn hooks_of_recipe(&self, text: &str, imports: &mut Vec<String>) -> String {
        let builtin = self.script.recipe().map(|recipe| recipe.name().to_string());
        let builtin = builtin.filter(|name| crate::script::Builtin::find(name).is_some());
        let all = pieces(text);
        let mut out = String::new();
        let mut skip = 0;
        for (place, piece) in all.iter().enumerate() {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let part = &text[piece.range.clone()];
            let after: String = all[place + 1..]
                .iter()
                .take(2)
                .map(|next| &text[next.range.clone()])
                .collect();
            let hook = [Hook::Reward, Hook::Advantage, Hook::Loss]
                .into_iter()
                .find(|hook| hook.name() == part);
            match (&builtin, hook) {
                (Some(name), Some(hook)) if after == "()" => {
                    let line = format!("import \"{name}\" as {name};");
                    if !imports.contains(&line) {
                        imports.push(line);
                    }
                    out.push_str(&format!("{name}::{}(batch, p)", hook.name()));
                    skip = 2;
                }
                _ if is_last(piece, text) => out.push_str("last"),
                _ => out.push_str(part),
            }
        }
        out
    }

    /// The parameters of the recipe in use, declared again, where what was typed reads them.
    fn params_function(&self, parts: &Parts) -> Option<String> {
        let recipe = self.script.recipe()?;
        let typed = parts.functions.iter().chain(&parts.body);
        let reads = |text: &String| text.contains("p.") || text.contains("(batch, p)");
        let declared = parts
            .functions
            .iter()
            .any(|function| function.starts_with("fn params"));
        if declared || recipe.params().iter().len() == 0 || !typed.into_iter().any(reads) {
            return None;
        }
        let lines: Vec<String> = recipe
            .params()
            .iter()
            .map(|(parameter, value)| {
                let literal = match value {
                    Setting::Text(text) => format!("{text:?}"),
                    Setting::Nothing => "()".to_string(),
                    other => other.to_string(),
                };
                let mut entry = format!("value: {literal}");
                for (bound, number) in [("min", parameter.min), ("max", parameter.max)] {
                    if let Some(number) = number {
                        entry.push_str(&format!(", {bound}: {number}"));
                    }
                }
                if !parameter.choices.is_empty() {
                    entry.push_str(&format!(", choices: {:?}", parameter.choices));
                }
                format!(
                    "        {}: #{{ {entry}, doc: {:?} }},",
                    parameter.name, parameter.doc
                )
            })
            .collect();
        Some(format!(
            "fn params() {{\n    #{{\n{}\n    }}\n}}",
            lines.join("\n")
        ))
    }
}

/// Whether the piece is the name of the last value, and not the last arm of a `switch`.
fn is_last(piece: &Piece, text: &str) -> bool {
    let after = text[piece.range.end..].trim_start();
    piece.kind == Kind::Name && &text[piece.range.clone()] == "_" && !after.starts_with("=>")
}

/// `fn name(a, b)`, by which a function is known.
fn head(function: &str) -> String {
    let end = function.find('{').unwrap_or(function.len());
    function[..end].trim().to_string()
}

fn is_hook(function: &str) -> bool {
    let hooks = [Hook::Advantage, Hook::Loss];
    hooks.iter().any(|hook| {
        let rest = function.strip_prefix(&format!("fn {}", hook.name()));
        rest.is_some_and(|rest| rest.trim_start().starts_with('('))
    })
}

/// A part of an input.
enum Item {
    Import(String),
    Function(String),
    /// Without the semicolon.
    Statement(String),
}

/// The parts of an input: statements end at a semicolon, functions at their brace.
fn items(text: &str) -> Vec<Item> {
    let all = pieces(text);
    let mut items = Vec::new();
    let (mut start, mut depth, mut is_function) = (0, 0i32, false);
    let mut take = |range: std::ops::Range<usize>, is_function: bool| {
        let part = text[range].trim();
        match part {
            "" => {}
            _ if is_function => items.push(Item::Function(part.to_string())),
            _ if part.starts_with("import ") => items.push(Item::Import(format!("{part};"))),
            _ => items.push(Item::Statement(part.to_string())),
        }
    };
    for piece in &all {
        let part = &text[piece.range.clone()];
        let is_sign = piece.kind == Kind::Sign;
        if depth == 0 && piece.kind == Kind::Keyword && part == "fn" {
            is_function = true;
        }
        depth += match part {
            "(" | "[" | "{" if is_sign => 1,
            ")" | "]" | "}" if is_sign => -1,
            _ => 0,
        };
        if depth == 0 && is_sign && part == "}" && is_function {
            take(start..piece.range.end, true);
            (start, is_function) = (piece.range.end, false);
        } else if depth == 0 && is_sign && part == ";" {
            take(start..piece.range.start, false);
            start = piece.range.end;
        }
    }
    take(start..text.len(), is_function);
    items
}
