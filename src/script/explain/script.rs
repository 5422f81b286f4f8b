//! A recipe's texts with the places in them: what every diagnostic of a script is made with.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::{EvalAltResult, Position};

use super::{CLOSURE, parse, problem, runtime, stopped};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::error::line_column;
use crate::script::library::Sources;
use crate::script::syntax::{Token, TokenKind, code};
use crate::tensor::Origin;

/// Tokens of a function that are searched for its head.
const FUNCTION_TOKENS: usize = 1000;

pub(in crate::script) struct Script<'a> {
    pub(in crate::script) name: &'a Arc<str>,
    pub(in crate::script) sources: &'a Sources,
    pub(in crate::script) parameters: Vec<String>,
    /// The names of all functions that the script can call.
    pub(in crate::script) functions: Vec<String>,
    /// The tokens of each source by its name, made when they are first asked for.
    code: OnceCell<BTreeMap<&'a str, Vec<Token<'a>>>>,
}

/// A location in a script, with the code around it.
pub(super) struct Site<'a> {
    pub(super) span: &'a Span,
    pub(super) code: &'a [Token<'a>],
    /// The first token that does not begin before the location.
    index: usize,
}

impl<'a> Script<'a> {
    /// A script of which no more is known than its sources.
    pub(in crate::script) fn new(name: &'a Arc<str>, sources: &'a Sources) -> Self {
        Script {
            name,
            sources,
            parameters: Vec::new(),
            functions: Vec::new(),
            code: OnceCell::new(),
        }
    }

    pub(in crate::script) fn knowing(
        self,
        parameters: Vec<String>,
        functions: Vec<String>,
    ) -> Self {
        Script {
            parameters,
            functions,
            ..self
        }
    }

    pub(in crate::script) fn explain(&self, error: &EvalAltResult) -> Diagnostic {
        let mut source: Arc<str> = self.name.clone();
        let mut trace = Vec::new();
        let mut innermost = error;
        // Each layer says in which function, or which module, the next one happened.
        loop {
            match innermost {
                EvalAltResult::ErrorInFunctionCall(function, of, inner, position) => {
                    if let Some((line, _)) = line_column(*position) {
                        let function = if function.starts_with(CLOSURE) {
                            "a closure".to_string()
                        } else {
                            format!("`{function}`")
                        };
                        trace.insert(0, format!("in {function}, called at {source}:{line}"));
                    }
                    if !of.is_empty() {
                        source = of.as_str().into();
                    }
                    innermost = inner;
                }
                EvalAltResult::ErrorInModule(module, inner, _) => {
                    source = module.as_str().into();
                    innermost = inner;
                }
                _ => break,
            }
        }
        let place = match origin(innermost) {
            // The tensor at fault was made elsewhere than where its value was asked for: that is the line to look at.
            Some(origin) => self.place_of(&origin),
            None => self.place(&source, innermost.position()),
        };
        if let EvalAltResult::ErrorParsing(kind, _) = innermost {
            return parse::not_parsed(self, kind, place);
        }
        let diagnostic = match stopped::stopped(self, innermost) {
            Some((diagnostic, suspect)) => diagnostic.at(place.or(suspect)),
            None => runtime::failed(self, innermost, place.as_ref()).at(place),
        };
        trace.into_iter().fold(diagnostic, Diagnostic::with_note)
    }

    /// `None` where the origin is in no source of the script.
    pub(in crate::script) fn place_of(&self, origin: &Origin) -> Option<Span> {
        let source = origin.source.as_ref().unwrap_or(self.name);
        self.span(source, origin.line, origin.column)
    }

    /// `None` where the position is none, or in no source of the script.
    pub(in crate::script) fn place(&self, source: &Arc<str>, position: Position) -> Option<Span> {
        let (line, column) = line_column(position)?;
        self.span(source, line, column)
    }

    fn span(&self, source: &Arc<str>, line: usize, column: usize) -> Option<Span> {
        let text = self.sources.get(source)?;
        let span = Span {
            source: source.clone(),
            text: text.clone(),
            line,
            column,
            length: 1,
        };
        let site = self.site(&span);
        let token = match site.after(0) {
            // A property is reported at its dot: the name comes after it.
            Some(dot) if dot.text == "." => site.after(1),
            token => token,
        };
        Some(token.map_or(span.clone(), |token| token.span(source, text)))
    }

    pub(super) fn site<'s>(&'s self, span: &'s Span) -> Site<'s> {
        let code = self.code(&span.source);
        let place = (span.line, span.column);
        Site {
            span,
            code,
            index: code.partition_point(|token| (token.line, token.column) < place),
        }
    }

    /// The tokens of a source without its comments.
    pub(in crate::script) fn code(&self, source: &str) -> &[Token<'a>] {
        let all = self.code.get_or_init(|| {
            let sources = self.sources.iter();
            sources.map(|(name, text)| (&**name, code(text))).collect()
        });
        all.get(source).map_or(&[], Vec::as_slice)
    }

    pub(in crate::script) fn text(&self) -> Arc<str> {
        self.sources.get(self.name).cloned().unwrap_or_default()
    }

    /// Where the script itself defines a function.
    pub(in crate::script) fn definition(&self, function: &str) -> Option<Span> {
        self.first(|code, index| code[index].text == function && before(code, index) == "fn")
    }

    /// Where the script itself declares a parameter of that name, or else first writes the name as the key of a map.
    pub(in crate::script) fn key(&self, key: &str) -> Option<Span> {
        let is_key =
            |code: &[Token<'_>], index: usize| code[index].text == key && is_key(code, index);
        let declared =
            self.first(|code, index| is_key(code, index) && after(code, index + 1) == "#{");
        declared.or_else(|| self.first(is_key))
    }

    /// Where the script itself first names a part of its state; all of it is the part "".
    pub(in crate::script) fn part_of_state(&self, key: &str) -> Option<Span> {
        self.first(|code, index| match key {
            "" => code[index].text == "this" && after(code, index) == "=",
            key => {
                let of = index.checked_sub(2).map(|of| code[of].text);
                code[index].text == key && before(code, index) == "." && of == Some("this")
            }
        })
    }

    /// Where an import is written, in the script or in one that it imports.
    pub(in crate::script) fn import(&self, path: &str) -> Option<Span> {
        let written = format!("\"{path}\"");
        let is_it = |code: &[Token<'_>], index: usize| {
            code[index].text == written && before(code, index) == "import"
        };
        self.sources
            .keys()
            .find_map(|source| self.first_in(source, is_it))
    }

    fn first(&self, is_it: impl Fn(&[Token<'_>], usize) -> bool) -> Option<Span> {
        self.first_in(self.name, is_it)
    }

    fn first_in(
        &self,
        source: &Arc<str>,
        is_it: impl Fn(&[Token<'_>], usize) -> bool,
    ) -> Option<Span> {
        let (text, code) = (self.sources.get(source)?, self.code(source));
        let index = (0..code.len()).find(|&index| is_it(code, index))?;
        Some(code[index].span(source, text))
    }

    /// The only location in all sources that `is_it` holds for; `None` where there is none or another.
    fn only(&self, is_it: impl Fn(&[Token<'_>], usize) -> bool) -> Option<Span> {
        let mut found = self.sources.iter().flat_map(|(source, text)| {
            let code = self.code(source);
            let places = (0..code.len()).filter(|&index| is_it(code, index));
            places
                .map(move |index| code[index].span(source, text))
                .take(2)
        });
        let first = found.next();
        first.filter(|_| found.next().is_none())
    }

    /// The loop that may have no end, where there is one alone.
    pub(super) fn only_loop(&self) -> Option<Span> {
        self.only(|code, index| matches!(code[index].text, "loop" | "while"))
    }

    pub(super) fn only_call(&self, function: &str) -> Option<Span> {
        self.only(|code, index| code[index].text == function && is_call(code, index))
    }

    pub(super) fn only_recursion(&self) -> Option<Span> {
        self.only(|code, index| {
            let before = &code[index.saturating_sub(FUNCTION_TOKENS)..index];
            let head = before.iter().rposition(|token| token.text == "fn");
            let name = head.and_then(|head| before.get(head + 1));
            is_call(code, index) && name.is_some_and(|name| name.text == code[index].text)
        })
    }
}

impl<'a> Site<'a> {
    /// The token `count` after the one at the location; `None` where no token begins there.
    pub(super) fn after(&self, count: usize) -> Option<&'a Token<'a>> {
        let here = self.code.get(self.index)?;
        let is_here = (here.line, here.column) == (self.span.line, self.span.column);
        self.code.get(self.index + count).filter(|_| is_here)
    }

    /// As [`Site::after`]; empty where there is no such token.
    pub(super) fn text(&self, count: usize) -> &'a str {
        self.after(count).map_or("", |token| token.text)
    }

    pub(super) fn before(&self) -> &'a [Token<'a>] {
        &self.code[..self.index]
    }

    pub(super) fn line(&self) -> &'a [Token<'a>] {
        let start = self
            .code
            .partition_point(|token| token.line < self.span.line);
        let end = self
            .code
            .partition_point(|token| token.line <= self.span.line);
        &self.code[start..end]
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.index == self.code.len()
    }

    /// The location right after the token before this one: where something is missing.
    pub(super) fn end_of_token_before(&self) -> Span {
        let Some(last) = self.before().last() else {
            return self.span.clone();
        };
        let before = &self.span.text[..last.end()];
        let line = before.rsplit('\n').next().unwrap_or("");
        Span {
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
            length: 1,
            ..self.span.clone()
        }
    }
}

fn before<'a>(code: &[Token<'a>], index: usize) -> &'a str {
    index.checked_sub(1).map_or("", |index| code[index].text)
}

fn after<'a>(code: &[Token<'a>], index: usize) -> &'a str {
    code.get(index + 1).map_or("", |token| token.text)
}

fn is_call(code: &[Token<'_>], index: usize) -> bool {
    code.get(index + 1).is_some_and(Token::opens_call)
}

fn is_key(code: &[Token<'_>], index: usize) -> bool {
    after(code, index) == ":"
}

/// The keys of map literals.
pub(super) fn keys<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let keys = (0..code.len()).filter(|&index| is_key(code, index));
    keys.map(|index| code[index].text).collect()
}

/// The parameters that a script declares: keys whose values are maps.
pub(super) fn parameters<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let declares = |&index: &usize| is_key(code, index) && after(code, index + 1) == "#{";
    (0..code.len())
        .filter(declares)
        .map(|index| code[index].text)
        .collect()
}

/// The names that are given to variables, parameters and functions.
pub(super) fn names<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let names = (0..code.len()).filter(|&index| {
        let (before, after) = (before(code, index), after(code, index));
        let is_parameter = ["(", ",", "|"].contains(&before) && [",", ")", "|"].contains(&after);
        let is_declared = ["let", "const", "for", "fn"].contains(&before);
        code[index].kind == TokenKind::Name && (is_declared || is_parameter)
    });
    names.map(|index| code[index].text).collect()
}

fn origin(error: &EvalAltResult) -> Option<Origin> {
    let (EvalAltResult::ErrorRuntime(value, _) | EvalAltResult::ErrorTerminated(value, _)) = error
    else {
        return None;
    };
    problem(value)?.tensor?.origin
}
