//! The inputs of a session: the script that they form, and the locations of errors in them.
//!
//! An error may be in a function of a much earlier input. The engine knows a position only as a line and a column, and a
//! function keeps the positions of the text that it was compiled from. So each input is compiled after as many empty lines as
//! the earlier inputs have lines, and a line number identifies the input. The first of these lines is not empty: it has the
//! imports so far, which the engine forgets after each input.

use std::collections::HashSet;

use rhai::{AST, Engine, Token as EngineToken};

use super::answer::Answer;
use crate::batch::Computed;
use crate::diagnostic::Diagnostic;
use crate::script::engine::own_token;
use crate::script::imports::imports_of;
use crate::script::syntax::{CodeSite, Token, TokenKind, code, sites};
use crate::script::value::written;
use crate::script::{Hook, Recipe};
use crate::tensor::Level;

/// The variable of the last value. The engine does not accept it as a name; [`Inputs::name_last_value`] makes it usable.
pub(super) const LAST: &str = "_";
/// The name of the last value in a saved script.
const SAVED_LAST: &str = "last_value";

/// The name of the inputs in messages.
pub(super) const SOURCE: &str = "input";

/// After this many lines, the count begins again, because the engine counts lines in 16 bits.
const LINES: usize = 50_000;

/// The inputs of a session that ran, in order.
#[derive(Default)]
pub struct Inputs {
    all: Vec<Input>,
    imports: Vec<String>,
    /// The texts of the inputs whose lines are counted, each with an end of line.
    counted: String,
    pub(super) signal: Option<Computed>,
}

struct Input {
    text: String,
    /// The number of lines that are counted before the input.
    lines_before: usize,
    /// The names of its functions.
    functions: Vec<String>,
    /// Whether the input had a value, which the next `_` refers to.
    has_value: bool,
    /// Whether the value can be an advantage: a response or token tensor.
    is_signal: bool,
    /// The recipe that was in use, with its settings.
    recipe: Option<Recipe>,
}

impl Inputs {
    pub(super) fn push(
        &mut self,
        text: &str,
        ast: &AST,
        functions: &[String],
        answer: &Answer,
        recipe: Option<&Recipe>,
    ) {
        // An import inside a function is not kept, because it applies only inside the function.
        for (path, alias) in imports_of(ast) {
            let line = format!("import \"{path}\" as {alias}; ");
            if !alias.is_empty() && !self.imports.contains(&line) {
                self.imports.push(line);
            }
        }
        if self.lines() > LINES {
            // An error in an earlier function is then shown in the wrong input, which is better than ending the session.
            self.counted.clear();
        }
        let lines_before = self.lines();
        self.counted.extend([text, "\n"]);
        let is_signal =
            |values: &Computed| matches!(values.level(), Level::Response | Level::Token);
        let signal = match answer {
            Answer::Tensor(values) if is_signal(values) => Some(values.clone()),
            _ => None,
        };
        self.all.push(Input {
            text: text.to_string(),
            lines_before,
            functions: functions.to_vec(),
            has_value: !matches!(answer, Answer::Nothing),
            is_signal: signal.is_some(),
            recipe: recipe.cloned(),
        });
        self.signal = signal.or(self.signal.take());
    }

    pub(super) fn texts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.all.iter().map(|input| input.text.as_str())
    }

    /// The last value that can be an advantage, on the current batch.
    pub fn signal(&self) -> Option<&Computed> {
        self.signal.as_ref()
    }

    /// Whether the inputs contain an advantage or a loss as a hook, or a value that can be an advantage.
    pub fn has_advantage(&self) -> bool {
        self.has_hook() || self.all.iter().any(|input| input.is_signal)
    }

    /// Whether a function was typed.
    pub fn has_function(&self) -> bool {
        self.all.iter().any(|input| !input.functions.is_empty())
    }

    /// Whether an advantage or a loss was typed as a function.
    pub fn has_hook(&self) -> bool {
        let is_hook = |name: &String| ["advantage", "loss"].contains(&name.as_str());
        let mut functions = self.all.iter().flat_map(|input| &input.functions);
        functions.any(is_hook)
    }

    /// The first hook of a recipe that the inputs call, up to the last value that can be an advantage, and the recipe's name.
    /// `None` if they call none, or if a hook was typed.
    pub fn called_hook(&self) -> Option<(&'static str, &str)> {
        let inputs = self.all[..=self.last_signal()?].iter();
        inputs.filter(|_| !self.has_hook()).find_map(|input| {
            let (recipe, code) = (input.recipe.as_ref()?, code(&input.text));
            let is_own = |site: &CodeSite<'_, '_>| ![".", "::"].contains(&site.text(-1));
            let called: Vec<&str> = sites(&code)
                .filter(|site| ["(", "()"].contains(&site.text(1)))
                .filter(is_own)
                .map(|site| site.text(0))
                .collect();
            let mut hooks = Hook::OF_BATCH.into_iter().map(Hook::name);
            Some((hooks.find(|name| called.contains(name))?, recipe.name()))
        })
    }

    /// The index of the last input whose value can be an advantage.
    fn last_signal(&self) -> Option<usize> {
        self.all.iter().rposition(|input| input.is_signal)
    }

    /// The script of all inputs: imports, functions and, if no hook was typed, the statements up to the last value that can be an
    /// advantage, as the hook `advantage`.
    pub(super) fn script(&self, in_use: Option<&Recipe>) -> String {
        let result = self.last_signal().filter(|_| !self.has_hook());
        let (mut imports, mut functions, mut body) =
            (Vec::new(), Vec::<InputPart>::new(), Vec::new());
        let uses_last = self.texts().any(|text| !last_values(text).is_empty());
        body.extend(uses_last.then(|| format!("let {SAVED_LAST} = ()")));
        for (index, input) in self.all.iter().enumerate() {
            let mut statements = Vec::new();
            for item in items(&input.text) {
                if item.function.is_some() {
                    // A function that is typed again replaces the earlier one.
                    functions.retain(|known| known.function != item.function);
                    functions.push(item);
                } else if item.is_import {
                    let line = item.text + ";";
                    if !imports.contains(&line) {
                        imports.push(line);
                    }
                } else {
                    statements.push(with_value_named(&item.text));
                }
            }
            if let Some(last) = statements.last_mut()
                && uses_last
                && input.has_value
                && result != Some(index)
            {
                last.insert_str(0, &format!("let {SAVED_LAST} = "));
            }
            if result.is_some_and(|result| index <= result) {
                body.extend(statements);
            }
        }
        let mut script = vec!["//! What was typed at the prompt.".to_string()];
        script.extend((!imports.is_empty()).then(|| imports.join("\n")));
        let is_params =
            |item: &InputPart| matches!(&item.function, Some((name, _)) if name == "params");
        if !functions.iter().any(is_params) {
            script.extend(self.params(in_use.filter(|_| result.is_none())));
        }
        script.extend(functions.into_iter().map(|function| function.text));
        if result.is_some() {
            let body = body.join(";\n").replace('\n', "\n    ");
            script.push(format!("fn advantage(batch, p) {{\n    {body}\n}}"));
        }
        let script = script.join("\n\n");
        let lines = script.lines().map(|line| format!("{}\n", line.trim_end()));
        lines.collect()
    }

    /// `params()` with the recipe's settings, if an input reads a parameter. A hook gets the present settings, and a formula gets
    /// the settings with which it was computed.
    fn params(&self, in_use: Option<&Recipe>) -> Option<String> {
        let reads = |input: &&Input| {
            let code = code(&input.text);
            sites(&code).any(|site| [site.text(0), site.text(1)] == ["p", "."])
        };
        let then = self.all.iter().rfind(reads)?.recipe.as_ref();
        let params = written(&in_use.or(then)?.params().to_map().into());
        (params != "#{}").then(|| format!("fn params() {{\n    {params}\n}}"))
    }

    /// The number of lines before the next input, including the line of the imports.
    fn lines(&self) -> usize {
        1 + self.counted.matches('\n').count()
    }

    /// An input as it is compiled: the imports, then empty lines, then the text.
    pub(super) fn padded(&self, text: &str) -> String {
        let (imports, lines) = (self.imports.concat(), "\n".repeat(self.lines()));
        format!("{imports}{lines}{text}")
    }

    /// The text of all inputs and of the next one, in which each line has the number that the engine gives it.
    pub(super) fn whole(&self, text: &str) -> String {
        format!("\n{}{text}", self.counted)
    }

    /// The diagnostic with its location counted within its input, instead of within the text of all inputs.
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
            (span.source, span.line, span.text) = (name.into(), line, text.into());
        }
        diagnostic
    }

    /// The input of a line of the whole text: its name, the line within it, and its text.
    fn input_at<'a>(&'a self, text: &'a str, line: usize) -> (&'static str, usize, &'a str) {
        // The first line, which has the imports, counts as a line of the first input.
        let is_before = |input: &&Input| input.lines_before < line.max(2);
        let earlier = self.all.iter().rfind(is_before);
        let (name, before, text) = match earlier.filter(|_| line <= self.lines()) {
            Some(input) => ("an earlier input", input.lines_before, input.text.as_str()),
            None => (SOURCE, self.lines(), text),
        };
        (name, line.saturating_sub(before), text)
    }

    /// Makes `_` the name of the last value, except as the default arm of a `switch`.
    pub(super) fn name_last_value(&self, engine: &mut Engine, text: &str) {
        let place = |token: Token<'_>| (token.line + self.lines(), token.column);
        let places: HashSet<(usize, usize)> = last_values(text).into_iter().map(place).collect();
        // The engine marks as deprecated any API that may change in a later version; we pin the version.
        #[allow(deprecated)]
        engine.on_parse_token(move |token, position, _| {
            let place = position.line().zip(position.position());
            match token {
                EngineToken::Underscore if place.is_some_and(|place| places.contains(&place)) => {
                    EngineToken::Identifier(Box::new(LAST.into()))
                }
                token => own_token(token),
            }
        });
    }
}

/// A part of an input, without its semicolon.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputPart {
    pub(super) text: String,
    /// The name of a function, and the number of its parameters.
    pub(super) function: Option<(String, usize)>,
    is_import: bool,
}

/// The parts of an input, with the comments before them: statements end at a semicolon, functions at their brace.
pub(super) fn items(text: &str) -> Vec<InputPart> {
    let all = code(text);
    let mut items = Vec::new();
    let (mut first, mut from, mut depth) = (0, 0, 0i32);
    for (index, token) in all.iter().enumerate() {
        depth += token.nesting();
        let last = match token.text {
            ";" if depth == 0 => index,
            "}" if depth == 0 && function(&all[first..]).is_some() => index + 1,
            _ => continue,
        };
        items.extend(item(text, from, &all[first..last]));
        (first, from) = (index + 1, token.end());
    }
    items.extend(item(text, from, &all[first..]));
    items
}

/// The name and the number of parameters of the function that these tokens define.
fn function(code: &[Token<'_>]) -> Option<(String, usize)> {
    let is_private = code.first().is_some_and(|token| token.text == "private");
    let [keyword, name, head @ ..] = &code[usize::from(is_private)..] else {
        return None;
    };
    let head = head
        .iter()
        .take_while(|token| !matches!(token.text, "()" | ")"));
    let parameters = head.filter(|token| token.kind == TokenKind::Name).count();
    (keyword.text == "fn").then(|| (name.text.to_string(), parameters))
}

/// The part that these tokens make, with the comments after `from`.
fn item(text: &str, from: usize, code: &[Token<'_>]) -> Option<InputPart> {
    // A comment after the last token is dropped, because it would hide a semicolon.
    let (first, last) = (code.first()?, code.last()?);
    Some(InputPart {
        text: text[from..last.end()].trim().to_string(),
        function: function(code),
        is_import: first.text == "import",
    })
}

/// The uses of the last value, `_`, except the `_` of a `switch`'s default arm, `_ => ...`.
fn last_values(text: &str) -> Vec<Token<'_>> {
    let code = code(text);
    let values = sites(&code).filter(|site| site.text(0) == LAST && site.text(1) != "=>");
    values.map(|site| *site.token()).collect()
}

/// The text with each `_` replaced by `last_value`, the name of the last value in a saved script, except the `_` of a default
/// arm.
fn with_value_named(text: &str) -> String {
    let (mut renamed, mut from) = (String::new(), 0);
    for value in last_values(text) {
        renamed.extend([&text[from..value.start], SAVED_LAST]);
        from = value.end();
    }
    renamed + &text[from..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "(fn |let |import |[a-z_;(){}\\[\\]=> ]|[\"'`\\\\]|\\$\\{|/\\*|\\*/|//|[\r\n\té]){0,40}") {
            let _ = (items(&text), with_value_named(&text));
        }
    }

    #[test]
    fn an_input_falls_into_its_items_whatever_stands_around_them() {
        let function = |name: &str, count, text: &'static str| (text, Some((name.into(), count)));
        let statement = |text: &'static str| (text, None);
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
                    statement("import \"grpo\" as g"),
                    function("h", 0, "private fn h() { `}`; (1) }"),
                    statement("if a { b }"),
                ],
            ),
            (" // nothing\n ;; /* here */", vec![]),
        ] {
            let item = |(text, function): (&str, _)| InputPart {
                text: text.to_string(),
                function,
                is_import: text.starts_with("import"),
            };
            let expected: Vec<InputPart> = expected.into_iter().map(item).collect();
            assert_eq!(items(text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_value_gets_a_name_except_in_a_switch() {
        let text = "switch _ { _ => `a ${_}` } + _x";
        let named = with_value_named(text);
        assert_eq!(named, "switch last_value { _ => `a ${last_value}` } + _x");
    }
}
