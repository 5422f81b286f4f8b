//! The parts of an input, imports, functions and statements, and the recipe that all of them make.

use std::collections::HashSet;
use std::path::Path;

use super::Session;
use super::inputs::Inputs;
use crate::diagnostic::Diagnostics;
use crate::script::state::written;
use crate::script::syntax::{Token, TokenKind, code};
use crate::script::{Hook, Parameter, Recipe, Setting};

/// The name of the recipe that was typed, in messages.
const NAME: &str = "what you typed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// With its semicolon.
    Import(String),
    /// The engine knows a function by its name and the number of its parameters.
    Function(String, usize, String),
    /// Without its semicolon.
    Statement(String),
}

/// The parts of an input, with the comments before them: statements end at a semicolon, functions at their brace.
pub(super) fn items(text: &str) -> Vec<Item> {
    let all = code(text);
    let mut items = Vec::new();
    let (mut first, mut from, mut depth) = (0, 0, 0i32);
    for (index, token) in all.iter().enumerate() {
        depth += token.nesting();
        let last = match token.text {
            ";" if depth == 0 => index,
            "}" if depth == 0 && is_function(&all[first..]) => index + 1,
            _ => continue,
        };
        items.extend(item(text, from, &all[first..last]));
        (first, from) = (index + 1, token.end());
    }
    items.extend(item(text, from, &all[first..]));
    items
}

fn is_function(code: &[Token<'_>]) -> bool {
    let is = |index: usize, word| code.get(index).is_some_and(|token| token.text == word);
    is(0, "fn") || (is(0, "private") && is(1, "fn"))
}

/// The part that these tokens make, with the comments after `from`.
fn item(text: &str, from: usize, code: &[Token<'_>]) -> Option<Item> {
    // A comment after the last token is left out: it would hide a semicolon.
    let (first, last) = (code.first()?, code.last()?);
    let text = text[from..last.end()].trim().to_string();
    if !is_function(code) {
        return Some(match first.text {
            "import" => Item::Import(format!("{text};")),
            _ => Item::Statement(text),
        });
    }
    let mut names = code.iter().filter(|token| token.kind == TokenKind::Name);
    let name = names.next()?;
    let head = code.iter().skip_while(|token| token.start <= name.start);
    let head = head.take_while(|token| !matches!(token.text, "()" | ")"));
    let parameters = head.filter(|token| token.kind == TokenKind::Name).count();
    Some(Item::Function(name.text.to_string(), parameters, text))
}

/// The uses of the last value: `_`, except as the last arm of a `switch`.
pub(super) fn last_values(text: &str) -> Vec<Token<'_>> {
    let all = code(text);
    let is_arm = |index: usize| all.get(index + 1).is_some_and(|next| next.text == "=>");
    let values = (0..all.len()).filter(|&index| all[index].is_name("_") && !is_arm(index));
    values.map(|index| all[index]).collect()
}

/// The text with another name for the last value.
fn with_value_named(text: &str, name: &str) -> String {
    let (mut renamed, mut from) = (String::new(), 0);
    for value in last_values(text) {
        renamed.extend([&text[from..value.start], name]);
        from = value.end();
    }
    renamed + &text[from..]
}

fn has_name(text: &str, name: &str) -> bool {
    code(text).iter().any(|token| token.is_name(name))
}

impl Session {
    /// The inputs that ran.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The recipe of what was typed: the hooks, or if there are none the statements, whose last value per response or
    /// token is the advantage. It has the settings of the recipe in use, where it has parameters of these names.
    ///
    /// # Errors
    /// As [`Host::compile`](crate::script::Host::compile).
    pub fn typed_recipe(&self) -> Result<Recipe, Diagnostics> {
        let (script, folder) = (self.typed_script(), Path::new("."));
        let compiled = self.host.compile_beside(NAME, &script, folder);
        let mut recipe = compiled.map_err(|mut error| {
            self.explain_scope(error.first_mut());
            error
        })?;
        if let Some(in_use) = self.recipe.as_ref().filter(|_| self.inputs.has_hook()) {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// The script of what was typed, in order: imports, functions, and, if none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub fn typed_script(&self) -> String {
        self.inputs.script(self.recipe.as_ref())
    }

    /// The source of the functions of that name: those of the last input that has any, or else of the recipe.
    pub fn source_of(&self, name: &str) -> Option<String> {
        let typed = self.inputs.all.iter().rev().map(|input| &*input.text);
        let texts = typed.chain(self.recipe.iter().map(|recipe| recipe.text()));
        let mut found = texts.map(|text| {
            let functions = items(text).into_iter().filter_map(|item| match item {
                Item::Function(own, _, text) if own == name => Some(text),
                _ => None,
            });
            functions.collect::<Vec<_>>().join("\n\n")
        });
        let found = found.find(|functions| !functions.is_empty())?;
        // The doc comment of the script does not belong to its first function.
        let lines = found.lines().skip_while(|line| line.starts_with("//!"));
        Some(
            lines
                .collect::<Vec<_>>()
                .join("\n")
                .trim_start()
                .to_string(),
        )
    }
}

impl Inputs {
    /// Whether there is an advantage in them: a hook, or a value that can be one.
    pub fn has_advantage(&self) -> bool {
        self.has_hook() || self.formula().is_some()
    }

    /// Whether a function was typed.
    pub fn has_function(&self) -> bool {
        self.completed().any(|input| !input.functions.is_empty())
    }

    /// Whether an advantage or a loss was typed as a function.
    pub fn has_hook(&self) -> bool {
        let hooks = [Hook::Advantage, Hook::Loss].map(Hook::name);
        let mut functions = self.completed().flat_map(|input| &input.functions);
        functions.any(|name| hooks.contains(&name.as_str()))
    }

    /// The formula that is the advantage, unless a function is.
    pub fn formula(&self) -> Option<&str> {
        let last = self.completed().filter(|input| input.is_signal).last();
        last.filter(|_| !self.has_hook())
            .map(|input| input.text.trim())
    }

    /// The hook of a recipe that the formula calls, and the recipe's name: a script of its own has no such hook.
    pub fn called_hook(&self) -> Option<(&'static str, &str)> {
        if self.has_hook() {
            return None;
        }
        let last = self.last_signal();
        let inputs = self
            .completed()
            .take(last.map_or(usize::MAX, |last| last + 1));
        inputs.into_iter().find_map(|input| {
            let recipe = input.recipe.as_ref()?;
            let code = code(&input.text);
            let is_called = |name: &str| {
                let mut pairs = code.windows(2);
                pairs.any(|pair| pair[0].is_name(name) && pair[1].opens_call())
                    && !code
                        .windows(2)
                        .any(|pair| pair[0].text == "::" && pair[1].is_name(name))
            };
            let mut hooks = Hook::OF_BATCH.into_iter().map(Hook::name);
            Some((hooks.find(|name| is_called(name))?, recipe.name()))
        })
    }

    /// The index, among the completed inputs, of the last whose value can be the advantage.
    fn last_signal(&self) -> Option<usize> {
        let mut signals = self
            .completed()
            .enumerate()
            .filter(|(_, input)| input.is_signal);
        signals.by_ref().last().map(|(index, _)| index)
    }

    fn script(&self, in_use: Option<&Recipe>) -> String {
        let has_hook = self.has_hook();
        let result = self.last_signal();
        let value = self.value_name();
        let (mut imports, mut functions, mut body) = (Vec::new(), Vec::new(), Vec::new());
        let mut declares = false;
        let mut last_value = None;
        for (index, input) in self.completed().enumerate() {
            let is_read = result.is_none_or(|result| index <= result);
            for item in items(&input.text) {
                match item {
                    Item::Import(line) if !imports.contains(&line) => imports.push(line),
                    Item::Import(_) => {}
                    Item::Function(name, parameters, text) => {
                        declares |= name == Hook::Params.name();
                        // A function that is typed again replaces the one before.
                        functions
                            .retain(|(known, count, _)| (known, *count) != (&name, parameters));
                        functions.push((name, parameters, with_value_named(&text, &value)));
                    }
                    // A `_` before there was a value.
                    Item::Statement(text) if text == "_" && last_value.is_none() => {}
                    Item::Statement(text) if is_read => {
                        if !last_values(&text).is_empty()
                            && let Some(index) = last_value
                        {
                            let before: &mut String = &mut body[index];
                            if !before.starts_with(&format!("let {value} = ")) {
                                before.insert_str(0, &format!("let {value} = "));
                            }
                        }
                        body.push(with_value_named(&text, &value));
                    }
                    Item::Statement(_) => {}
                }
            }
            if input.has_value && is_read {
                last_value = body.len().checked_sub(1);
            }
        }
        let body = match has_hook {
            true => String::new(),
            false => {
                body.join(";\n")
                    + if result.is_none() && !body.is_empty() {
                        ";"
                    } else {
                        ""
                    }
            }
        };
        let mut script = vec!["//! What was typed at the prompt.".to_string()];
        if !imports.is_empty() {
            script.push(imports.join("\n"));
        }
        // A hook takes the settings of now; a formula was computed with those of then.
        let in_use = in_use.filter(|_| has_hook);
        script.extend(self.declared_params(in_use).filter(|_| !declares));
        script.extend(functions.into_iter().map(|(.., text)| text));
        if !body.is_empty() {
            let lines = body
                .lines()
                .map(|line| format!("    {line}").trim_end().to_string());
            let body = lines.collect::<Vec<_>>().join("\n");
            script.push(format!("fn advantage(batch, p) {{\n{body}\n}}"));
        }
        script.join("\n\n") + "\n"
    }

    /// A name for the last value that nothing else has.
    fn value_name(&self) -> String {
        let texts: Vec<_> = self.completed().map(|input| code(&input.text)).collect();
        let taken: HashSet<&str> = texts.iter().flatten().map(|token| token.text).collect();
        let mut name = "last_value".to_string();
        while taken.contains(name.as_str()) {
            name.push('_');
        }
        name
    }

    /// `params()` of the recipe whose parameters were read last, with the settings of the recipe in use where it has them.
    fn declared_params(&self, in_use: Option<&Recipe>) -> Option<String> {
        let inputs: Vec<_> = self.completed().collect();
        let mut recipes = inputs.into_iter().rev().filter_map(|input| {
            // The parameter of a function is named `p` in its head too.
            let texts = items(&input.text).into_iter().map(|item| match item {
                Item::Function(.., text) => text.split_once('{').unwrap_or_default().1.to_string(),
                Item::Import(text) | Item::Statement(text) => text,
            });
            let reads = texts.into_iter().any(|text| has_name(&text, "p"));
            input.recipe.as_ref().filter(|_| reads)
        });
        let recipe = recipes.find(|recipe| recipe.params().iter().len() > 0)?;
        let lines = recipe.params().iter().map(|(parameter, value)| {
            let now = in_use.and_then(|recipe| recipe.params().get(&parameter.name));
            declared(parameter, now.unwrap_or(value))
        });
        let lines = lines.collect::<Vec<_>>().join("\n");
        Some(format!("fn params() {{\n    #{{\n{lines}\n    }}\n}}"))
    }
}

/// A line of `params()`.
fn declared(parameter: &Parameter, value: &Setting) -> String {
    let mut entry = format!("value: {}", written(&value.to_dynamic()));
    for (name, bound) in [("min", parameter.min), ("max", parameter.max)] {
        if let Some(bound) = bound {
            entry.push_str(&format!(", {name}: {bound}"));
        }
    }
    if !parameter.choices.is_empty() {
        entry.push_str(&format!(", choices: {:?}", parameter.choices));
    }
    let (name, doc) = (&parameter.name, &parameter.doc);
    format!("        {name}: #{{ {entry}, doc: {doc:?} }},")
}

/// Whether a recipe is one that was typed.
pub fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_falls_into_its_items_whatever_stands_around_them() {
        let function =
            |name: &str, count, text: &str| Item::Function(name.into(), count, text.into());
        let statement = |text: &str| Item::Statement(text.into());
        let import = Item::Import("import \"grpo\" as g;".into());
        for (text, expected) in [
            (
                "// why\nfn  f(a, b) { a; b } let x = 1 // note; fn\n; x",
                vec![
                    function("f", 2, "// why\nfn  f(a, b) { a; b }"),
                    statement("let x = 1"),
                    statement("x"),
                ],
            ),
            (
                "import \"grpo\" as g; private fn h() { `}`; (1) } if a { b }",
                vec![
                    import,
                    function("h", 0, "private fn h() { `}`; (1) }"),
                    statement("if a { b }"),
                ],
            ),
            (" // nothing\n ;; /* here */", vec![]),
        ] {
            assert_eq!(items(text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_value_gets_a_name_except_in_a_switch() {
        let text = "switch _ { _ => `a ${_}` } + _x";
        let named = with_value_named(text, "v");
        assert_eq!(named, "switch v { _ => `a ${v}` } + _x");
    }
}
