//! The inputs of a session: makes a script of them, and finds the locations of errors in them.
//!
//! An error may be in a function of a much earlier input. The engine knows a position only as a line and a column, and a function
//! keeps the positions in the text from which it was compiled. So each input is compiled with as many lines before it as the
//! earlier inputs have, and therefore a line number identifies the input. These lines are empty, except the first, which contains
//! the imports so far, because the engine forgets imports after each input.

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

/// The variable that holds the last value. The engine rejects `_` as a name; [`Inputs::name_last_value`] makes `_` usable.
pub(super) const LAST: &str = "_";
/// The name of this variable in a saved script.
const SAVED_LAST: &str = "last_value";

/// The name of an input in messages.
pub(super) const SOURCE: &str = "input";

/// The number of lines after which counting begins again, because the engine counts lines in 16 bits.
const LINES: usize = 50_000;

/// The inputs of a session that ran without an error, in order.
#[derive(Default)]
pub struct Inputs {
    all: Vec<Input>,
    imports: Vec<String>,
    /// The texts of the inputs whose lines are counted, each followed by a line break.
    counted: String,
    pub(super) signal: Option<Computed>,
}

struct Input {
    text: String,
    /// The number of counted lines before the input.
    lines_before: usize,
    /// The names of the functions that the input defines.
    functions: Vec<String>,
    /// Whether the input had a value, to which `_` in the next input refers.
    has_value: bool,
    /// Whether the value can be an advantage, because it is a response or token tensor.
    is_signal: bool,
    /// The recipe that was in use when the input ran, with its settings.
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
        // An import inside a function is not kept, because it is visible only in that function.
        for (path, alias) in imports_of(ast) {
            let line = format!("import \"{path}\" as {alias}; ");
            if !alias.is_empty() && !self.imports.contains(&line) {
                self.imports.push(line);
            }
        }
        if self.lines() > LINES {
            // From now on, an error in an earlier function is shown in the wrong input, which is better than ending the session.
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

    /// Returns the last value on the current batch that can be an advantage.
    pub fn signal(&self) -> Option<&Computed> {
        self.signal.as_ref()
    }

    /// Returns whether an input defines the hook `advantage` or `loss`, or has a value that can be an advantage.
    pub fn has_advantage(&self) -> bool {
        self.has_hook() || self.all.iter().any(|input| input.is_signal)
    }

    /// Returns whether an input defines a function.
    pub fn has_function(&self) -> bool {
        self.all.iter().any(|input| !input.functions.is_empty())
    }

    /// Returns whether an input defines the hook `advantage` or `loss`.
    pub fn has_hook(&self) -> bool {
        let is_hook = |name: &String| ["advantage", "loss"].contains(&name.as_str());
        let mut functions = self.all.iter().flat_map(|input| &input.functions);
        functions.any(is_hook)
    }

    /// Finds the first input that calls a hook of a recipe, and returns the hook (if it calls several, the hook that comes
    /// first in a step) and the recipe's name. Inputs after the last value that can be an advantage are ignored. Returns
    /// `None` if there is no such value, if no input up to it calls a hook, or if an input defines `advantage` or `loss`.
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

    /// Returns the index of the last input whose value can be an advantage.
    fn last_signal(&self) -> Option<usize> {
        self.all.iter().rposition(|input| input.is_signal)
    }

    /// Makes a script of all inputs: imports, functions and, unless an input defines `advantage` or `loss`, a hook `advantage`
    /// with the statements up to the last value that can be an advantage.
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
                    // A function that is typed again replaces the earlier function.
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

    /// Makes a `params()` that returns the recipe's settings, if an input reads a parameter. If `in_use` is given, they are the
    /// settings of that recipe; otherwise, they are the settings with which the last such input was computed.
    fn params(&self, in_use: Option<&Recipe>) -> Option<String> {
        let reads = |input: &&Input| {
            let code = code(&input.text);
            sites(&code).any(|site| [site.text(0), site.text(1)] == ["p", "."])
        };
        let then = self.all.iter().rfind(reads)?.recipe.as_ref();
        let params = written(&in_use.or(then)?.params().to_map().into());
        (params != "#{}").then(|| format!("fn params() {{\n    {params}\n}}"))
    }

    /// Returns the number of lines before the next input, including the line of the imports.
    fn lines(&self) -> usize {
        1 + self.counted.matches('\n').count()
    }

    /// Returns an input as it is compiled: the imports, empty lines, and the text.
    pub(super) fn padded(&self, text: &str) -> String {
        let (imports, lines) = (self.imports.concat(), "\n".repeat(self.lines()));
        format!("{imports}{lines}{text}")
    }

    /// Returns the text of the counted inputs and of the next input. Each line has the number by which the engine refers to it.
    pub(super) fn whole(&self, text: &str) -> String {
        format!("\n{}{text}", self.counted)
    }

    /// Converts a diagnostic's line numbers from lines of the whole text to lines of the input that they refer to.
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

    /// Finds the input of a line of the whole text. Returns the input's name, the line's number in the input, and the input's
    /// text.
    fn input_at<'a>(&'a self, text: &'a str, line: usize) -> (&'static str, usize, &'a str) {
        // The first line, which contains the imports, is taken for a line of the first input.
        let is_before = |input: &&Input| input.lines_before < line.max(2);
        let earlier = self.all.iter().rfind(is_before);
        let (name, before, text) = match earlier.filter(|_| line <= self.lines()) {
            Some(input) => ("an earlier input", input.lines_before, input.text.as_str()),
            None => (SOURCE, self.lines(), text),
        };
        (name, line.saturating_sub(before), text)
    }

    /// Makes `_` the name of the last value, except in the default arm of a `switch`.
    pub(super) fn name_last_value(&self, engine: &mut Engine, text: &str) {
        let place = |token: Token<'_>| (token.line + self.lines(), token.column);
        let places: HashSet<(usize, usize)> = last_values(text).into_iter().map(place).collect();
        // The engine marks every unstable API as deprecated. We may use this API, because we pin the engine's version.
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

/// A part of an input, such as a statement or a function, without its semicolon.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputPart {
    pub(super) text: String,
    /// The name and the number of parameters of the function, if the part defines a function.
    pub(super) function: Option<(String, usize)>,
    is_import: bool,
}

/// Splits an input into parts, each with the comments before it. A statement ends at a semicolon, a function at its last brace.
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

/// Returns the name and the number of parameters of the function that the tokens define; `None` if they define no function.
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

/// Makes a part from the given tokens and from the comments between `from` and these tokens.
fn item(text: &str, from: usize, code: &[Token<'_>]) -> Option<InputPart> {
    // A comment after the last token is dropped, because a semicolon that is added later would belong to the comment.
    let (first, last) = (code.first()?, code.last()?);
    Some(InputPart {
        text: text[from..last.end()].trim().to_string(),
        function: function(code),
        is_import: first.text == "import",
    })
}

/// Returns the uses of the last value: every `_`, except in the default arm of a `switch`, `_ => ...`.
fn last_values(text: &str) -> Vec<Token<'_>> {
    let code = code(text);
    let values = sites(&code).filter(|site| site.text(0) == LAST && site.text(1) != "=>");
    values.map(|site| *site.token()).collect()
}

/// Returns the text with each use of the last value, `_`, replaced by its name in a saved script.
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
