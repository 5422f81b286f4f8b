//! A recipe's texts with the places in them: what every diagnostic of a script is made with.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::{EvalAltResult, Position};

use super::{CLOSURE, parse, problem, runtime, stopped};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::error::line_column;
use crate::script::kernels::AROUND;
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

/// A token of a script, with the code around it.
#[derive(Clone, Copy)]
pub(super) struct Site<'s, 'a> {
    pub(super) code: &'s [Token<'a>],
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

    pub(in crate::script) fn explain(&self, error: &EvalAltResult) -> Diagnostic {
        let mut source: Arc<str> = self.name.clone();
        let mut trace = Vec::new();
        let mut innermost = error;
        // Each layer says in which function, or which module, the next one happened.
        loop {
            match innermost {
                EvalAltResult::ErrorInFunctionCall(function, of, inner, position) => {
                    if let Some((line, _)) = line_column(*position).filter(|_| *source != *AROUND) {
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
        let diagnostic = stopped::stopped(self, innermost)
            .unwrap_or_else(|| runtime::failed(self, innermost, place.as_ref()));
        trace
            .into_iter()
            .fold(diagnostic.at(place), Diagnostic::with_note)
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
        let Site { code, index } = self.site(&span);
        let here = code.get(index);
        let is_here = |token: &&Token<'_>| (token.line, token.column) == (line, column);
        let token = match here.filter(is_here) {
            // A property is reported at its dot: the name comes after it.
            Some(dot) if dot.text == "." => code.get(index + 1),
            token => token,
        };
        Some(token.map_or(span, |token| token.span(source, text)))
    }

    /// The first token that does not begin before the location.
    pub(super) fn site(&self, span: &Span) -> Site<'_, 'a> {
        let code = self.code(&span.source);
        let place = (span.line, span.column);
        let index = code.partition_point(|token| (token.line, token.column) < place);
        Site { code, index }
    }

    /// The tokens of the location's line.
    pub(super) fn line(&self, span: &Span) -> &[Token<'a>] {
        let code = self.code(&span.source);
        let start = code.partition_point(|token| token.line < span.line);
        let end = code.partition_point(|token| token.line <= span.line);
        &code[start..end]
    }

    /// The location right after the token before this one: where something is missing.
    pub(super) fn end_before(&self, span: &Span) -> Span {
        let Some(last) = self.site(span).before().last() else {
            return span.clone();
        };
        let before = &span.text[..last.end()];
        let line = before.rsplit('\n').next().unwrap_or("");
        Span {
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
            length: 1,
            ..span.clone()
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
        self.own(|site| site.text(0) == function && site.text(-1) == "fn")
    }

    /// Where the script itself declares a parameter of that name, or else first writes the name as the key of a map.
    pub(in crate::script) fn key(&self, key: &str) -> Option<Span> {
        let is_key = |site: &Site<'_, '_>| site.text(0) == key && site.is_key();
        let declared = self.own(|site| is_key(site) && site.text(2) == "#{");
        declared.or_else(|| self.own(is_key))
    }

    /// Where the script itself first names a part of its state; all of it is the part "".
    pub(in crate::script) fn part_of_state(&self, key: &str) -> Option<Span> {
        self.own(|site| match key {
            "" => site.text(0) == "this" && site.text(1) == "=",
            key => [site.text(-2), site.text(-1), site.text(0)] == ["this", ".", key],
        })
    }

    /// Where an import is written, in the script or in one that it imports.
    pub(in crate::script) fn import(&self, path: &str) -> Option<Span> {
        let written = format!("\"{path}\"");
        let is_it = |site: &Site<'_, '_>| site.text(0) == written && site.text(-1) == "import";
        self.all(is_it).next()
    }

    /// The first token of the script itself that `is_it` holds for.
    fn own(&self, is_it: impl Fn(&Site<'_, '_>) -> bool) -> Option<Span> {
        self.all(is_it).find(|span| span.source == *self.name)
    }

    /// The tokens of all sources that `is_it` holds for.
    fn all(&self, is_it: impl Fn(&Site<'_, '_>) -> bool) -> impl Iterator<Item = Span> {
        let sources = self.sources.iter();
        let sites = sources.flat_map(|(source, text)| {
            let sites = sites(self.code(source));
            sites.map(move |site| (site, source, text))
        });
        sites
            .filter(move |(site, ..)| is_it(site))
            .map(|(site, source, text)| site.code[site.index].span(source, text))
    }

    /// The only token in all sources that `is_it` holds for; `None` where there is none or another.
    fn only(&self, is_it: impl Fn(&Site<'_, '_>) -> bool) -> Option<Span> {
        let mut found = self.all(is_it);
        found.next().filter(|_| found.next().is_none())
    }

    /// The loop that may have no end, where there is one alone.
    pub(super) fn only_loop(&self) -> Option<Span> {
        self.only(|site| matches!(site.text(0), "loop" | "while"))
    }

    pub(super) fn only_call(&self, function: &str) -> Option<Span> {
        self.only(|site| site.text(0) == function && site.is_call())
    }

    pub(super) fn only_recursion(&self) -> Option<Span> {
        self.only(|site| {
            let before = &site.before()[site.index.saturating_sub(FUNCTION_TOKENS)..];
            let head = before.iter().rposition(|token| token.text == "fn");
            let name = head.and_then(|head| before.get(head + 1));
            site.is_call() && name.is_some_and(|name| name.text == site.text(0))
        })
    }
}

fn sites<'s, 'a>(code: &'s [Token<'a>]) -> impl Iterator<Item = Site<'s, 'a>> {
    (0..code.len()).map(move |index| Site { code, index })
}

impl<'s, 'a> Site<'s, 'a> {
    /// The text of the token so many after this one, or before it; empty where there is none.
    pub(super) fn text(&self, offset: isize) -> &'a str {
        let index = self.index.checked_add_signed(offset);
        let token = index.and_then(|index| self.code.get(index));
        token.map_or("", |token| token.text)
    }

    pub(super) fn before(&self) -> &'s [Token<'a>] {
        &self.code[..self.index]
    }

    fn is_call(&self) -> bool {
        matches!(self.text(1), "(" | "()")
    }

    fn is_key(&self) -> bool {
        self.text(1) == ":"
    }

    /// Whether it is the name of a variable, a parameter or a function where that is declared.
    fn is_declared(&self) -> bool {
        let (before, after) = (self.text(-1), self.text(1));
        let is_parameter = ["(", ",", "|"].contains(&before) && [",", ")", "|"].contains(&after);
        let is_declared = ["let", "const", "for", "fn"].contains(&before);
        self.code[self.index].kind == TokenKind::Name && (is_declared || is_parameter)
    }
}

fn texts<'a>(code: &[Token<'a>], is_it: impl Fn(&Site<'_, 'a>) -> bool) -> Vec<&'a str> {
    let found = sites(code).filter(is_it);
    found.map(|site| site.text(0)).collect()
}

/// The keys of map literals.
pub(super) fn keys<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |site| site.is_key())
}

/// The parameters that a script declares: keys whose values are maps.
pub(super) fn parameters<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |site| site.is_key() && site.text(2) == "#{")
}

/// The names that are given to variables, parameters and functions.
pub(in crate::script) fn names<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |site| site.is_declared())
}

fn origin(error: &EvalAltResult) -> Option<Origin> {
    let (EvalAltResult::ErrorRuntime(value, _) | EvalAltResult::ErrorTerminated(value, _)) = error
    else {
        return None;
    };
    problem(value)?.tensor?.origin
}
