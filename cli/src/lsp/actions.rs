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
        if code.named(index, name).next().is_some() {
            return refused("this name is used already");
        }
        let same = code.same(index).into_iter();
        let edits = same.map(|at| json!({ "range": text.range(code.bytes(at)), "newText": name }));
        Ok(json!({ "changes": { self.uri: edits.collect::<Vec<Value>>() } }))
    }

    /// The code actions for a range: replacements that a diagnostic in the range suggests, missing signs, and declarations of
    /// parameters.
    pub(super) fn actions(&self, checked: &Checked, asked: Range<usize>) -> Vec<Value> {
        let (code, text) = (self.code, &self.document.text);
        let touches = |bytes: &Range<usize>| bytes.start <= asked.end && bytes.end >= asked.start;
        let edit = |title: String, bytes: Range<usize>, new: String| {
            let edit = json!({ "range": text.range(bytes), "newText": new });
            json!({ "title": title, "kind": "quickfix", "edit": { "changes": { self.uri: [edit] } } })
        };
        let diagnostics = checked.diagnostics.iter();
        let own = diagnostics.filter(|one| is_own(self.document, one));
        let mends = own.filter_map(|diagnostic| {
            let mut bytes = text.bytes(diagnostic.span.as_ref()?);
            let (help, message) = (diagnostic.help.as_deref(), diagnostic.sentence());
            let missing = message
                .strip_suffix("` is missing after this")
                .filter(|_| touches(&bytes));
            if let Some(sign) = missing.and_then(|before| before.strip_prefix("a `")) {
                return Some(edit(
                    format!("insert `{sign}`"),
                    bytes.start..bytes.start,
                    sign.to_string(),
                ));
            }
            let named = help.and_then(replacement).filter(|_| touches(&bytes));
            let name = named.or_else(|| replacement(&message).filter(|_| touches(&bytes)))?;
            if named.is_none() {
                // Messages such as `there is no level "grop": did you mean ...` have the place of the call that contains the
                // string.
                let wrong = format!("\"{}\"", message.split('"').nth(1)?);
                let mut after = code
                    .tokens
                    .iter()
                    .skip_while(|token| token.start < bytes.start);
                let string = after.find(|token| token.text == wrong)?;
                bytes = string.start..string.end();
            }
            let is_string = text.all[bytes.clone()].starts_with('"');
            let new = if is_string {
                format!("\"{name}\"")
            } else {
                name.to_string()
            };
            Some(edit(format!("replace by `{name}`"), bytes, new))
        });
        let map = code.parameters();
        let indices = map.iter().flat_map(|(_, keys)| keys);
        let keys: Vec<&str> = indices.map(|at| code.tokens[*at].text).collect();
        let undeclared = (0..code.tokens.len()).filter(|&at| {
            let is_read = code.meaning(at) == Meaning::Member("p") && touches(&code.bytes(at));
            is_read && !keys.contains(&code.tokens[at].text)
        });
        let declare = undeclared.map(|at| {
            let name = code.tokens[at].text;
            let entry = format!("{name}: #{{ value: 1.0, doc: \"\" }}");
            let mut at = self.above_functions();
            let mut new = format!("fn params() {{\n    #{{ {entry} }}\n}}\n\n");
            if let Some((start, keys)) = &map {
                let more = if keys.is_empty() { " " } else { "," };
                (at, new) = (*start, format!(" {entry}{more}"));
            }
            edit(format!("declare `{name}` as a parameter"), at..at, new)
        });
        mends.chain(declare).collect()
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
