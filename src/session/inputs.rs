//! The inputs of a session, recorded for the locations of errors and for the script that they make.
//!
//! An error may be in a function of a much earlier input. The engine knows a position as a line and a column only, and a
//! function keeps those of the text that it was compiled from. So each input is compiled behind as many empty lines as the
//! inputs before it have, and a line tells which input it belongs to. The first of these lines is not empty: it has the
//! imports so far, which the engine forgets after each input.

use std::collections::HashSet;

use rhai::{AST, Engine, ParseError, ParseErrorType, Token};

use super::answer::Answer;
use super::items::{Item, has_name, items, last_values, with_value_named};
use crate::batch::Computed;
use crate::diagnostic::{Diagnostic, Span};
use crate::script::bind::written;
use crate::script::library::imports_of;
use crate::script::syntax::{code, sites};
use crate::script::{Hook, Parameter, Recipe, Setting};
use crate::tensor::{Level, Origin};

/// The variable of the last value. The engine does not take it for a name; [`Inputs::name_last_value`] lets inputs use it.
pub(super) const LAST: &str = "_";

/// The name of the inputs in messages.
pub(super) const SOURCE: &str = "input";

/// The most lines that are told apart: the engine counts them in 16 bits.
const LINES: usize = 50_000;

/// The inputs of a session that ran, in order.
#[derive(Default)]
pub struct Inputs {
    pub(super) all: Vec<Input>,
    imports: Vec<String>,
    /// The index of the first input whose lines are counted.
    first_counted: usize,
    /// The last value that can be an advantage, of the batch that is in use.
    pub(super) signal: Option<Computed>,
}

#[derive(Default)]
pub(super) struct Input {
    /// The number of lines before it, including that of the imports.
    before: usize,
    pub(super) text: String,
    /// The names of its functions.
    pub(super) functions: Vec<String>,
    /// False for an input that ran and was refused after that.
    pub(super) is_complete: bool,
    /// Whether it had a value: the next `_` means it.
    pub(super) has_value: bool,
    /// Whether the value can be an advantage: a response or token tensor.
    pub(super) is_signal: bool,
    /// The recipe that was in use, with its settings.
    pub(super) recipe: Option<Recipe>,
}

impl Inputs {
    fn counted(&self) -> &[Input] {
        &self.all[self.first_counted..]
    }

    fn lines(&self) -> usize {
        let last = self.counted().last();
        last.map_or(1, |input| input.before + line_count(&input.text))
    }

    /// The inputs that ran to their end.
    pub(super) fn completed(&self) -> impl Iterator<Item = &Input> {
        self.all.iter().filter(|input| input.is_complete)
    }

    /// The last value that can be an advantage, of the batch that is in use.
    pub fn signal(&self) -> Option<&Computed> {
        self.signal.as_ref()
    }

    /// An input as it is compiled: the imports, then empty lines, then the text.
    pub(super) fn padded(&self, text: &str) -> String {
        let mut padded = self.imports.concat();
        padded.extend(std::iter::repeat_n('\n', self.lines()));
        padded + text
    }

    /// The text of all inputs and of the one that follows them, each line where its positions say.
    pub(super) fn whole(&self, text: &str) -> String {
        let mut whole = String::from("\n");
        for input in self.counted() {
            whole.push_str(&input.text);
            whole.push('\n');
        }
        whole + text
    }

    pub(super) fn push(&mut self, text: &str, ast: &AST) {
        // An import inside a function is the function's own.
        for (path, alias) in imports_of(ast) {
            let line = format!("import \"{path}\" as {alias}; ");
            if !alias.is_empty() && !self.imports.contains(&line) {
                self.imports.push(line);
            }
        }
        if self.lines() > LINES {
            // An error in an earlier function is then shown in the wrong input, which is better than a session that ends.
            self.first_counted = self.all.len();
        }
        self.all.push(Input {
            before: self.lines(),
            text: text.to_string(),
            functions: function_names(ast),
            ..Input::default()
        });
    }

    /// Completes the last input with its answer and the recipe that was in use.
    pub(super) fn complete(&mut self, answer: &Answer, recipe: Option<&Recipe>) {
        let Some(input) = self.all.last_mut() else {
            return;
        };
        input.is_complete = true;
        input.has_value = !matches!(answer, Answer::Nothing);
        input.recipe = recipe.cloned();
        if let Answer::Tensor(computed) = answer
            && matches!(computed.level(), Level::Response | Level::Token)
        {
            input.is_signal = true;
            self.signal = Some(computed.clone());
        }
    }

    /// Whether compiling failed because the text stops in the middle of something.
    pub(super) fn ends_too_early(&self, text: &str, error: &ParseError) -> bool {
        let unfinished = matches!(
            *error.err_type(),
            ParseErrorType::UnexpectedEOF | ParseErrorType::MissingToken(..)
        );
        let (Some(line), column) = (error.position().line(), error.position().position()) else {
            return unfinished;
        };
        let end = text.trim_end();
        let last = end.lines().next_back().unwrap_or("");
        let at = (line, column.unwrap_or(0));
        let of_end = (self.lines() + line_count(end), last.chars().count());
        match error.err_type() {
            // Where the text goes on, two values stand beside each other: `1 2`.
            ParseErrorType::MissingToken(token, _) if token == ";" => at > of_end,
            _ => unfinished && at >= of_end,
        }
    }

    /// A diagnostic with the location in the input that it is about, instead of in all of them.
    pub(super) fn in_its_input(&self, text: &str, mut diagnostic: Diagnostic) -> Diagnostic {
        for call in &mut diagnostic.notes {
            if let Some((what, line)) = call.rsplit_once(&format!("{SOURCE}:"))
                && let Ok(line) = line.parse()
            {
                let (name, line, _) = self.input_at(text, line);
                *call = format!("{what}{name}:{line}");
            }
        }
        if let Some(span) = &mut diagnostic.span
            && *span.source == *SOURCE
        {
            let (name, line, text) = self.input_at(text, span.line);
            span.source = name.into();
            span.line = line;
            span.text = text.into();
        }
        diagnostic
    }

    /// Where an operation stands, if in an input: the input's name unless it is the last one, the line in it, and its text.
    pub(super) fn line<'a>(
        &'a self,
        text: &'a str,
        origin: &Origin,
    ) -> Option<(Option<String>, usize, &'a str)> {
        if origin.source.as_deref() != Some(SOURCE) {
            return None;
        }
        let (name, line, text) = self.input_at(text, origin.line);
        let name = Some(name.to_string()).filter(|name| name != SOURCE);
        Some((name, line, text))
    }

    /// The input that a line of all of them belongs to: its name, the line in it, and its text.
    fn input_at<'a>(&'a self, text: &'a str, line: usize) -> (&'static str, usize, &'a str) {
        if line > self.lines() {
            return (SOURCE, line - self.lines(), text);
        }
        match self.counted().iter().rfind(|input| input.before < line) {
            Some(input) => ("an earlier input", line - input.before, &input.text),
            None => (SOURCE, 1, text),
        }
    }

    /// Makes `_` the name of the last value, except as the last arm of a `switch`.
    pub(super) fn name_last_value(&self, engine: &mut Engine, text: &str) {
        let places = last_values(text).into_iter();
        let places = places.map(|token| (token.line + self.lines(), token.column));
        let places: HashSet<(usize, usize)> = places.collect();
        if places.is_empty() {
            return;
        }
        // The engine calls deprecated what may change in a later version; its version is pinned.
        #[allow(deprecated)]
        engine.on_parse_token(move |token, position, _| {
            let place = position.line().zip(position.position());
            match token {
                Token::Underscore if place.is_some_and(|place| places.contains(&place)) => {
                    Token::Identifier(Box::new(LAST.into()))
                }
                token => token,
            }
        });
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
                sites(&code).any(|site| site.calls(name) && ![".", "::"].contains(&site.text(-1)))
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

    /// The script of all inputs: imports, functions and, if no hook was typed, the statements as one.
    pub(super) fn script(&self, in_use: Option<&Recipe>) -> String {
        let (has_hook, value) = (self.has_hook(), self.value_name());
        let (mut imports, mut functions) = (Vec::new(), Vec::new());
        for item in self.completed().flat_map(|input| items(&input.text)) {
            match item {
                Item::Import(line) if !imports.contains(&line) => imports.push(line),
                Item::Function(name, parameters, text) => {
                    // A function that is typed again replaces the one before.
                    functions.retain(|(known, count, _)| (known, *count) != (&name, parameters));
                    functions.push((name, parameters, with_value_named(&text, &value)));
                }
                _ => {}
            }
        }
        let mut script = vec!["//! What was typed at the prompt.".to_string()];
        if !imports.is_empty() {
            script.push(imports.join("\n"));
        }
        let mut names = functions.iter().map(|(name, ..)| name);
        if !names.any(|name| name == Hook::Params.name()) {
            // A hook takes the settings of now; a formula was computed with those of then.
            script.extend(self.declared_params(in_use.filter(|_| has_hook)));
        }
        script.extend(functions.into_iter().map(|(.., text)| text));
        let body = self.statements(&value);
        if !has_hook && !body.is_empty() {
            let lines = body.lines().map(|line| format!("    {line}"));
            let lines: Vec<String> = lines.map(|line| line.trim_end().to_string()).collect();
            let body = lines.join("\n");
            script.push(format!("fn advantage(batch, p) {{\n{body}\n}}"));
        }
        script.join("\n\n") + "\n"
    }

    /// The statements up to the last whose value can be the advantage, which is the result; `value` is the name of the last
    /// value in them.
    fn statements(&self, value: &str) -> String {
        let declaration = format!("let {value} = ");
        let result = self.last_signal();
        let mut statements: Vec<String> = Vec::new();
        let mut last_value: Option<usize> = None;
        let inputs = self.completed();
        for input in inputs.take(result.map_or(usize::MAX, |last| last + 1)) {
            for item in items(&input.text) {
                let Item::Statement(text) = item else {
                    continue;
                };
                match last_value {
                    // A `_` before there was a value.
                    None if text == "_" => continue,
                    Some(index) if !last_values(&text).is_empty() => {
                        let before = &mut statements[index];
                        if !before.starts_with(&declaration) {
                            before.insert_str(0, &declaration);
                        }
                    }
                    _ => {}
                }
                statements.push(with_value_named(&text, value));
            }
            if input.has_value {
                last_value = statements.len().checked_sub(1);
            }
        }
        if result.is_none() && !statements.is_empty() {
            // Without a value that can be the advantage, the hook has no result.
            statements.push(String::new());
        }
        statements.join(";\n").trim_end().to_string()
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

/// An empty text has a line too.
fn line_count(text: &str) -> usize {
    text.matches('\n').count() + 1
}

pub(super) fn function_names(ast: &AST) -> Vec<String> {
    let functions = ast.iter_functions();
    functions
        .map(|function| function.name.to_string())
        .collect()
}

/// Where a name is first defined or used in an input.
pub(super) fn place_of_name(text: &str, name: &str) -> Option<Span> {
    let code = code(text);
    let site = sites(&code).find(|site| site.text(0) == name && site.text(-1) != ".")?;
    Some(code[site.index].span(&SOURCE.into(), &text.into()))
}
