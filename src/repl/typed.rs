//! What was typed, as a script: for `:save`, and for the recipe that a typed hook makes.

use std::path::Path;

use super::pieces::{Kind, Piece, pieces};
use crate::script::{Builtin, Hook, Host, Parameter, Recipe, ScriptError, Setting};

/// What messages call the recipe that the typed hooks make.
const NAME: &str = "what you typed";

/// An input that was right.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) text: String,
    /// Whether it had a value: the next `_` means that.
    pub(super) has_value: bool,
    /// Whether the value can be an advantage: a response or token tensor.
    pub(super) is_signal: bool,
    /// The recipe that was in use: its hooks are `advantage()` and the like in the text.
    pub(super) recipe: Option<Recipe>,
}

/// The inputs of a session that were right, in order.
#[derive(Debug, Default)]
pub(super) struct Typed {
    inputs: Vec<Input>,
}

/// What a piece of script defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Defines {
    /// No function.
    Nothing,
    /// Functions that advlab does not call.
    Helpers,
    /// A hook: `advantage`, `loss`, or one that goes with these.
    Hook,
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

impl Typed {
    pub(super) fn push(&mut self, input: Input) {
        self.inputs.push(input);
    }

    pub(super) fn clear(&mut self) {
        self.inputs.clear();
    }

    /// Whether there is anything that a script could be made of.
    pub(super) fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Whether there is an advantage in it: a hook, or a value that can be one.
    pub(super) fn has_advantage(&self) -> bool {
        self.has_hook() || self.inputs.iter().any(|input| input.is_signal)
    }

    /// Whether an advantage or a loss was typed as a function.
    pub(super) fn has_hook(&self) -> bool {
        let mut items = self.inputs.iter().flat_map(|input| items(&input.text));
        items.any(|item| matches!(item, Item::Function(text) if makes_recipe(&text)))
    }

    /// The recipe of what was typed: the hooks, or where there are none the statements, whose last value per response or
    /// token is the advantage. It has the settings of the recipe in use, where it has parameters of these names.
    ///
    /// # Errors
    /// As [`Host::compile`].
    pub(super) fn recipe(
        &self,
        host: &Host,
        in_use: Option<&Recipe>,
    ) -> Result<Recipe, ScriptError> {
        let mut recipe = host.compile_beside(NAME, &self.script(in_use), Path::new("."))?;
        if let Some(in_use) = in_use {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// What was typed, as a script: imports, functions, and, where none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub(super) fn script(&self, in_use: Option<&Recipe>) -> String {
        let parts = self.parts();
        let mut sections = vec!["//! What was typed at the prompt.".to_string()];
        if !parts.imports.is_empty() {
            sections.push(parts.imports.join("\n"));
        }
        sections.extend(self.params_function(&parts, in_use));
        sections.extend(parts.functions.iter().cloned());
        if !self.has_hook() && !parts.body.is_empty() {
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
        let last_signal = self.inputs.iter().rposition(|input| input.is_signal);
        let uses = self.uses(last_signal);
        let mut last = "()";
        for (input, used) in self.inputs.iter().zip(uses) {
            let text = hooks_of_recipe(input, &mut parts.imports, last);
            if input.has_value {
                last = "last";
            }
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
            statements.retain(|text| text != "()");
            let line = match (used, statements.pop()) {
                (_, None) | (Use::Dropped, _) => continue,
                (Use::Statement, Some(text)) => text + ";",
                (Use::Last, Some(text)) => format!("let last = {text};"),
                (Use::Result, Some(text)) => text,
            };
            parts
                .body
                .extend(statements.into_iter().map(|text| text + ";"));
            parts.body.push(line);
        }
        parts
    }

    /// What becomes of each input where the one at `result` is the value of the hook: nothing after it counts.
    fn uses(&self, result: Option<usize>) -> Vec<Use> {
        let mut is_last_wanted = false;
        let mut uses = Vec::new();
        for (place, input) in self.inputs.iter().enumerate().rev() {
            let used = match input.has_value {
                _ if Some(place) == result => Use::Result,
                _ if result.is_some_and(|result| place > result) => Use::Dropped,
                true if is_last_wanted => Use::Last,
                true => Use::Dropped,
                false => Use::Statement,
            };
            is_last_wanted &= !input.has_value;
            let of_text = pieces(&input.text);
            if used != Use::Dropped && of_text.iter().any(|piece| is_last(piece, &input.text)) {
                is_last_wanted = true;
            }
            uses.push(used);
        }
        uses.reverse();
        uses
    }

    /// The parameters that what was typed reads, declared again: those of the recipe that was in use then, with the
    /// values that they have now.
    fn params_function(&self, parts: &Parts, in_use: Option<&Recipe>) -> Option<String> {
        let typed = parts.functions.iter().chain(&parts.body);
        let is_declared = parts
            .functions
            .iter()
            .any(|function| function.starts_with("fn params"));
        if is_declared || !typed.into_iter().any(|text| reads_parameters(text)) {
            return None;
        }
        let mut readers = self.inputs.iter().rev();
        let source = readers.find_map(|input| {
            let recipe = input.recipe.as_ref()?;
            (recipe.params().iter().len() > 0).then_some(recipe)
        })?;
        let lines: Vec<String> = source
            .params()
            .iter()
            .map(|(parameter, value)| {
                let now = in_use.and_then(|recipe| recipe.params().get(&parameter.name));
                declared(parameter, now.unwrap_or(value))
            })
            .collect();
        Some(format!(
            "fn params() {{\n    #{{\n{}\n    }}\n}}",
            lines.join("\n")
        ))
    }
}

/// What a piece of script defines.
pub(super) fn defines(text: &str) -> Defines {
    let of_item = |item: Item| match item {
        Item::Function(text) if is_hook(&text) => Defines::Hook,
        Item::Function(_) => Defines::Helpers,
        _ => Defines::Nothing,
    };
    let all = items(text).into_iter().map(of_item);
    all.max().unwrap_or(Defines::Nothing)
}

/// Whether a recipe is made of what was typed.
pub(super) fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == NAME
}

/// A line of `params()`.
fn declared(parameter: &Parameter, value: &Setting) -> String {
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
}

/// Whether a statement, or the body of a function, reads `p`.
fn reads_parameters(text: &str) -> bool {
    let body = match text.starts_with("fn ") {
        true => &text[text.find('{').unwrap_or(0)..],
        false => text,
    };
    let of_body = pieces(body);
    let is_p = |piece: &Piece| piece.kind == Kind::Name && &body[piece.range.clone()] == "p";
    of_body.iter().any(is_p)
}

/// An input's text with `_` as `last`, and with the hooks of the recipe that was in use as those of an import.
fn hooks_of_recipe(input: &Input, imports: &mut Vec<String>, last: &str) -> String {
    let text = &input.text;
    let builtin = input.recipe.as_ref().map(Recipe::name);
    let builtin = builtin.filter(|name| Builtin::find(name).is_some());
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
        let is_method = text[..piece.range.start].trim_end().ends_with('.');
        match (builtin, hook) {
            (Some(name), Some(hook)) if after == "()" && !is_method => {
                let line = format!("import \"{name}\" as {name};");
                if !imports.contains(&line) {
                    imports.push(line);
                }
                out.push_str(&format!("{name}::{}(batch, p)", hook.name()));
                skip = 2;
            }
            _ if is_last(piece, text) => out.push_str(last),
            _ => out.push_str(part),
        }
    }
    out
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

/// Whether a function is one that makes a recipe of a script.
fn makes_recipe(function: &str) -> bool {
    [Hook::Advantage, Hook::Loss]
        .into_iter()
        .any(|hook| is_named(function, hook))
}

fn is_hook(function: &str) -> bool {
    Hook::ALL.into_iter().any(|hook| is_named(function, hook))
}

fn is_named(function: &str, hook: Hook) -> bool {
    let rest = function.strip_prefix(&format!("fn {}", hook.name()));
    rest.is_some_and(|rest| rest.trim_start().starts_with('('))
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
