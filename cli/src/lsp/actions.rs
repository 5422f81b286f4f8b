//! Answers that lead to another place or change the text: definitions, renaming, and edits that fix what a diagnostic reports.

use std::ops::Range;

use advlab::script::{Hook, TokenKind, lex};
use advlab::suggest::replacement;
use lsp_server::ErrorCode;
use serde_json::{Value, json};

use super::answers::Here;
use super::check::is_own;
use super::code::{Code, Meaning};
use super::text::Text;
use super::{Answer, Checked};
use crate::doc;

impl Here<'_> {
    /// Where the name is defined: the source (`None` for the document itself) and the range in this source.
    pub(super) fn definition(&self) -> Option<(Option<String>, Value)> {
        let (code, index) = (self.code, self.index?);
        let name = code.tokens[index].text;
        let inside = |(source, text): (String, String)| {
            let code = Code::of(&text);
            let function = code.function(name);
            let bytes = function.map_or(0..0, |one| code.bytes(one.tokens.start + 1));
            (Some(source), Text::new(&*text).range(bytes))
        };
        let here = |at: usize| (None, self.document.text.range(code.bytes(at)));
        match code.meaning(index) {
            Meaning::Recipe(recipe) => self.imported(recipe).map(inside),
            Meaning::Imported(alias) => self.module(alias).map(inside),
            Meaning::Other => self.module(name).map(inside),
            Meaning::Member("p") => {
                let (_, keys) = code.parameters()?;
                let mut keys = keys.into_iter();
                keys.find(|at| code.tokens[*at].text == name).map(here)
            }
            _ => code.definition(index).map(here),
        }
    }

    pub(super) fn rename(&self, name: &str) -> Answer {
        let (code, text) = (self.code, &self.document.text);
        let refused = |why: &str| Err((ErrorCode::InvalidParams, why.to_string()));
        let Some(index) = self.index.filter(|at| code.definition(*at).is_some()) else {
            return refused("there is no variable or function of this script here");
        };
        let (meaning, old) = (code.meaning(index), code.tokens[index].text);
        if meaning == Meaning::Function && Hook::ALL.iter().any(|hook| hook.name() == old) {
            return refused("this is a hook: a step calls it by its name");
        }
        let is_name = matches!(lex(name)[..], [token] if token.kind == TokenKind::Name);
        if !is_name || !name.is_ascii() {
            return refused("a name has letters, digits and `_`, and is no word of the language");
        }
        let is_builtin = meaning == Meaning::Function && doc::forms(name).next().is_some();
        if is_builtin || code.named(index, name).next().is_some() {
            return refused("this name is used already");
        }
        let same = code.same(index).into_iter();
        let edits = same.map(|at| json!({ "range": text.range(code.bytes(at)), "newText": name }));
        Ok(json!({ "changes": { self.uri: edits.collect::<Vec<Value>>() } }))
    }

    /// The code actions for the lines of a range, because many editors ask about the cursor's place: replacements that a
    /// diagnostic suggests, missing signs, and declarations of parameters.
    pub(super) fn actions(&self, checked: &Checked, asked: Range<usize>) -> Vec<Value> {
        let (code, text) = (self.code, &self.document.text);
        let edit = |title: String, bytes: Range<usize>, new: String| {
            let edit = json!({ "range": text.range(bytes), "newText": new });
            json!({ "title": title, "kind": "quickfix", "edit": { "changes": { self.uri: [edit] } } })
        };
        let line = |byte: usize| text.place(byte)["line"].as_u64();
        let (first, last) = (line(asked.start), line(asked.end));
        let diagnostics = checked.diagnostics.iter();
        let own = diagnostics.filter(|one| is_own(self.document, one));
        let placed = own.filter_map(|one| Some((one, text.bytes(one.span.as_ref()?))));
        let here = placed.filter(|(_, at)| line(at.start) <= last && line(at.end) >= first);
        here.flat_map(|(diagnostic, bytes)| {
            let message = diagnostic.sentence();
            let missing = message.strip_suffix("` is missing after this");
            if let Some(signs) = missing.and_then(|before| before.strip_prefix("a `")) {
                let (signs, at) = (signs.split("` or a `"), bytes.start);
                let insert = |sign| edit(format!("insert `{sign}`"), at..at, String::from(sign));
                return signs.map(insert).collect();
            }
            let declare = self.undeclared(&message, bytes.end).map(|(name, at, new)| {
                edit(format!("declare `{name}` as a parameter"), at..at, new)
            });
            let named = diagnostic.help.as_deref().and_then(replacement);
            // Messages such as `there is no level "grop": did you mean ...` have the place of the call that contains the string.
            let wrong = message.split('"').nth(1).unwrap_or_default();
            let at = code
                .tokens
                .partition_point(|token| token.start < bytes.start);
            let mut after = code.tokens[at..].iter();
            let replaced = named.map(|name| (name, bytes.clone())).or_else(|| {
                let string = after.find(|token| token.text == format!("\"{wrong}\""))?;
                Some((replacement(&message)?, string.start..string.end()))
            });
            let replace = replaced.map(|(name, at)| {
                let quote = usize::from(text.all[at.clone()].starts_with('"'));
                let inside = at.start + quote..at.end - quote;
                edit(format!("replace by `{name}`"), inside, name.to_string())
            });
            replace.into_iter().chain(declare).collect::<Vec<Value>>()
        })
        .collect()
    }

    /// The parameter that the map `p` lacks according to a diagnostic that ends at a byte; and where the declaration is inserted,
    /// with its text. `None` if `p` is a map of the script, or if `params()` has no map of its own: a second `params()` would
    /// replace the first.
    fn undeclared(&self, message: &str, end: usize) -> Option<(&str, usize, String)> {
        let code = self.code;
        let is_read = |at: &usize| code.meaning(*at) == Meaning::Member("p");
        let read = code.at(end).filter(is_read)?;
        let is_local = code.text(code.definition(read - 2)?, -1) == "let";
        let (name, map) = (code.tokens[read].text, code.parameters());
        let is_fixed = map.is_none() && code.function("params").is_some();
        if is_local || is_fixed || message != format!("`p` has no `{name}`") {
            return None;
        }
        let entry = format!("{name}: #{{ value: 1.0, doc: \"\" }}");
        Some(match map {
            Some((start, keys)) if keys.is_empty() => (name, start, format!(" {entry} ")),
            Some((start, _)) => (name, start, format!(" {entry},")),
            None => {
                let new = format!("fn params() {{\n    #{{ {entry} }}\n}}\n\n");
                (name, self.above_functions(), new)
            }
        })
    }

    /// The byte at which the first function begins, or the comment above the function if there is one.
    fn above_functions(&self) -> usize {
        let first = self.code.functions.first();
        let first = first.map_or(0, |one| self.code.tokens[one.tokens.start].start);
        let lines = self.document.text.all[..first].split_inclusive('\n').rev();
        let is_comment = |line: &&str| line.starts_with("//") && !line.starts_with("//!");
        first - lines.take_while(is_comment).map(str::len).sum::<usize>()
    }
}
