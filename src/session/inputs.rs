//! The inputs of a session, recorded for the locations of errors and for the script that they make.
//!
//! An error may be in a function of a much earlier input. The engine knows a position as a line and a column only, and a
//! function keeps those of the text that it was compiled from. So each input is compiled behind as many empty lines as the
//! inputs before it have, and a line tells which input it belongs to. The first of these lines is not empty: it has the
//! imports so far, which the engine forgets after each input.

use std::collections::HashSet;

use rhai::{AST, Engine, ParseError, ParseErrorType, Token};

use super::items::last_values;
use super::{Answer, LAST};
use crate::batch::Computed;
use crate::diagnostic::Diagnostic;
use crate::script::Recipe;
use crate::script::library::imports_of;
use crate::tensor::{Level, Origin};

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
            // A failure in an earlier function is then shown in the wrong input: better than no session any more.
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
