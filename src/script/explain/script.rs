//! The sources of a recipe and the locations in them.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rhai::Position;

use crate::diagnostic::Span;
use crate::script::builtin::Sources;
use crate::script::error::line_column;
use crate::script::syntax::{Site, Token, code, sites};
use crate::tensor::Origin;

/// A script with the sources that it imports, for the diagnostics of its errors.
pub(crate) struct Script<'a> {
    pub(crate) name: &'a Arc<str>,
    pub(crate) sources: &'a Sources,
    pub(crate) parameters: Vec<String>,
    /// The names of all functions that the script can call.
    pub(crate) functions: Vec<String>,
    /// The tokens of each source by its name, read on first use.
    code: OnceCell<BTreeMap<&'a str, Vec<Token<'a>>>>,
}

impl<'a> Script<'a> {
    /// A script of which only the sources are known.
    pub(crate) fn new(name: &'a Arc<str>, sources: &'a Sources) -> Self {
        Script {
            name,
            sources,
            parameters: Vec::new(),
            functions: Vec::new(),
            code: OnceCell::new(),
        }
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
    pub fn code(&self, source: &str) -> &[Token<'a>] {
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
    pub(crate) fn definition(&self, function: &str) -> Option<Span> {
        self.first(|site| site.text(0) == function && site.text(-1) == "fn")
    }

    /// The tokens of the script itself that are keys of maps, by their texts. Of several the first that declares a
    /// parameter, or else the first.
    pub(crate) fn keys(&self) -> HashMap<&'a str, Token<'a>> {
        let mut keys: HashMap<&str, (bool, Token<'_>)> = HashMap::new();
        let code = self.code(self.name);
        for (index, two) in code.windows(2).enumerate().rev() {
            let declares = code.get(index + 2).is_some_and(|token| token.text == "#{");
            if two[1].text == ":" && (declares || !keys.get(two[0].text).is_some_and(|key| key.0)) {
                keys.insert(two[0].text, (declares, two[0]));
            }
        }
        keys.into_iter()
            .map(|(name, (_, key))| (name, key))
            .collect()
    }

    /// Where the script itself declares a parameter of that name, or else first writes the name as the key of a map.
    pub(in crate::script) fn key(&self, key: &str) -> Option<Span> {
        let key = *self.keys().get(key)?;
        Some(key.span(self.name, &self.text()))
    }

    /// Where the script itself first names a part of its state; all of it is the part "".
    pub(in crate::script) fn part_of_state(&self, key: &str) -> Option<Span> {
        self.first(|site| match key {
            "" => site.text(0) == "this" && site.text(1) == "=",
            key => [site.text(-2), site.text(-1), site.text(0)] == ["this", ".", key],
        })
    }

    /// Where an import is written, in the script or in one that it imports.
    pub(in crate::script) fn import(&self, path: &str) -> Option<Span> {
        let written = format!("\"{path}\"");
        self.all(|site| site.text(0) == written && site.text(-1) == "import")
            .next()
    }

    /// The loop that may have no end: the only one in all sources.
    pub(super) fn only_loop(&self) -> Option<Span> {
        let mut loops = self.all(|site| matches!(site.text(0), "loop" | "while"));
        loops.next().filter(|_| loops.next().is_none())
    }

    /// The first token of the script itself for which `is_it` holds.
    fn first(&self, is_it: impl Fn(&Site<'_, '_>) -> bool) -> Option<Span> {
        self.all(is_it).find(|span| span.source == *self.name)
    }

    /// The tokens of all sources for which `is_it` holds.
    fn all(&self, is_it: impl Fn(&Site<'_, '_>) -> bool) -> impl Iterator<Item = Span> {
        self.sources
            .iter()
            .flat_map(|(source, text)| {
                sites(self.code(source)).map(move |site| (site, source, text))
            })
            .filter(move |(site, ..)| is_it(site))
            .map(|(site, source, text)| site.code[site.index].span(source, text))
    }
}
