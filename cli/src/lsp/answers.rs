//! The answers about a place of a text: what is there, what may be typed there, and what is shown beside it.

use std::path::Path;

use advlab::script::{Builtin, Host, TokenKind, unfinished};
use advlab::session::{Name, Session};
use lsp_server::{ErrorCode, Request};
use serde_json::{Value, json};

use super::batch::{Held, PLAIN};
use super::code::{Code, Meaning};
use super::{Answer, Checked, Document, Server};
use crate::{complete, doc};

pub(super) fn capabilities() -> Value {
    json!({
        "textDocumentSync": { "openClose": true, "change": 2, "save": true },
        "hoverProvider": true, "inlayHintProvider": true, "definitionProvider": true, "renameProvider": true,
        "documentSymbolProvider": true, "codeActionProvider": true,
        "completionProvider": { "triggerCharacters": [".", "\"", ":"] },
        "signatureHelpProvider": { "triggerCharacters": ["(", ","] },
    })
}

/// A place in a document.
pub(super) struct Here<'a> {
    pub(super) uri: &'a str,
    pub(super) document: &'a Document,
    pub(super) code: &'a Code<'a>,
    pub(super) byte: usize,
    /// The token there.
    pub(super) index: Option<usize>,
}

impl Server {
    /// The answer to a request; `None` if it waits for the check of the present text.
    pub(super) fn answer(&self, request: &Request) -> Option<Answer> {
        let (method, params) = (&*request.method, &request.params);
        let name = method.strip_prefix("textDocument/").unwrap_or_default();
        let known =
            "completion signatureHelp documentSymbol rename definition hover inlayHint codeAction";
        if !known.split(' ').any(|known| known == name) {
            let error = (
                ErrorCode::MethodNotFound,
                format!("there is no {method} here"),
            );
            return Some(Err(error));
        }
        let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
        let Some(document) = self.documents.get(uri) else {
            return Some(Ok(Value::Null));
        };
        let (text, code) = (&document.text, Code::of(&document.text.all));
        let range = text.byte(&params["range"]["start"])..text.byte(&params["range"]["end"]);
        let byte = text.byte(&params["position"]);
        let (code, index) = (&code, code.at(byte));
        let here = Here {
            uri,
            document,
            code,
            byte,
            index,
        };
        let checked = document.checked.as_ref();
        Some(match name {
            "completion" => Ok(here.completions().into()),
            "signatureHelp" => Ok(here.signatures().into()),
            "documentSymbol" => Ok(here.symbols().into()),
            "rename" => here.rename(params["newName"].as_str().unwrap_or_default()),
            "definition" => {
                let found = here.definition();
                Ok(found
                    .map(|(source, range)| match source {
                        Some(source) => {
                            json!({ "uri": self.uri_of_source(&source), "range": range })
                        }
                        None => json!({ "uri": uri, "range": range }),
                    })
                    .into())
            }
            "hover" => Ok(here.hover(checked?).into()),
            "codeAction" => Ok(here.actions(checked?, range).into()),
            _ if self.settings["inlayHints"] == false => Ok(Value::Null),
            _ => {
                let all = checked?
                    .held
                    .range(range.start..=range.end.max(range.start));
                let is_set = |at: usize| code.at(at).is_some_and(|at| code.text(at, -1) == "let");
                let shown = all.filter(|(at, held)| !held.level.is_empty() && is_set(**at));
                let hint = |(at, held): (&usize, &Held)| {
                    let end = code.at(*at).map_or(*at, |at| code.bytes(at).end);
                    json!({ "position": text.place(end), "label": format!(": {}", held.level), "kind": 1 })
                };
                Ok(shown.map(hint).collect())
            }
        })
    }
}

impl Here<'_> {
    fn before(&self) -> &str {
        &self.document.text.all[..self.byte]
    }

    /// The name of a recipe's source, and its text: of a file beside the script, or a built-in.
    pub(super) fn imported(&self, recipe: &str) -> Option<(String, String)> {
        let file = self.document.path.with_file_name(format!("{recipe}.rhai"));
        if let Ok(text) = advlab::regular_file::read_to_string(&file) {
            return Some((file.display().to_string(), text));
        }
        let builtin = Builtin::importable().find(|builtin| builtin.name == recipe)?;
        Some((builtin.name.to_string(), builtin.text.to_string()))
    }

    /// The same of an import by its alias.
    pub(super) fn module(&self, alias: &str) -> Option<(String, String)> {
        let mut imports = self.code.imports();
        self.imported(imports.find(|(_, own, _)| *own == alias)?.0)
    }

    /// What a token held: a variable what it was set to last before.
    fn held<'c>(&self, index: usize, checked: &'c Checked) -> Option<&'c Held> {
        let held = |at: &usize| checked.held.get(&self.code.tokens[*at].start);
        let same = self.code.same(index);
        let before = same.iter().rev().filter(|at| **at <= index).find_map(held);
        held(&index)
            .or(before)
            .or_else(|| same.iter().find_map(held))
    }

    fn hover(&self, checked: &Checked) -> Option<Value> {
        let index = self.index?;
        let name = self.code.tokens[index].text;
        let held = self.held(index, checked).map(|held| held.shown.clone());
        let tried = self.document.tried.as_ref()?;
        let column = || tried.columns.iter().find(|(own, ..)| own == name);
        let own = |code: &Code<'_>, of: &str| {
            let function = code.function(name)?;
            Some(format!("{}{of}", function.call))
        };
        let about = match self.code.meaning(index) {
            Meaning::Variable if name == "batch" => tried.about.clone(),
            Meaning::Variable => format!("{name}\n{}", held?),
            Meaning::Function => own(self.code, "")?,
            Meaning::Imported(alias) => {
                let (source, text) = self.module(alias)?;
                own(&Code::of(&text), &format!(" of {source}"))?
            }
            Meaning::Recipe(recipe) => {
                let (source, text) = self.imported(recipe)?;
                let folder = self.document.path.parent().unwrap_or(Path::new("."));
                let recipe = Host::new().compile_beside(&source, &text, folder);
                recipe.map_or_else(
                    |error| error.to_string(),
                    |recipe| doc::recipe(&recipe, PLAIN),
                )
            }
            Meaning::Member("p") | Meaning::Key => {
                let params = self.document.recipe.as_ref()?.params();
                let (own, value) = params.iter().find(|(own, _)| own.name == name)?;
                let (takes, default, doc) = (own.takes(), &own.default, &own.doc);
                format!("p.{name} = {value}\n{doc}\n{takes}; default {default}")
            }
            Meaning::Member(_) if !self.code.is_call(index) && column().is_some() => {
                let (_, held, is_derived) = column()?;
                let from = if *is_derived {
                    "follows from other columns of"
                } else {
                    "a column of"
                };
                format!("batch.{name}: {from} {}\n{}", tried.about, held.shown)
            }
            _ if doc::forms(name).next().is_some() => {
                let about = doc::explain(&Host::new(), name, PLAIN).ok()?;
                held.map_or(about.clone(), |held| format!("{about}\n\nhere: {held}"))
            }
            _ => held?,
        };
        let contents = json!({ "kind": "markdown", "value": format!("```text\n{about}\n```") });
        let range = self.document.text.range(self.code.bytes(index));
        Some(json!({ "contents": contents, "range": range }))
    }

    fn completions(&self) -> Option<Vec<Value>> {
        let (tried, code) = (self.document.tried.as_ref()?, self.code);
        let session = Session::new(&Host::new(), &tried.batch);
        let (start, mut names) = complete::of_script(&session, self.before());
        let at = code
            .tokens
            .partition_point(|token| token.end() <= start && token.start < start);
        let value = |name: &str| Name {
            text: name.to_string(),
            call: String::new(),
        };
        let is_string = code
            .tokens
            .get(at)
            .is_some_and(|token| token.kind == TokenKind::String);
        match (code.text(at, -2), code.text(at, -1)) {
            _ if is_string => {}
            ("p", ".") => {
                let params = self
                    .document
                    .recipe
                    .iter()
                    .flat_map(|recipe| recipe.params().iter());
                names = params.map(|(own, _)| value(&own.name)).collect();
            }
            (_, ".") => {}
            (alias, "::") => {
                let (_, text) = self.module(alias)?;
                names = functions(&Code::of(&text)).collect();
            }
            _ => {
                let around = code.function_around(at.saturating_sub(1));
                let local = around.map_or(0..0, |function| function.tokens.clone());
                let local = local.filter(|own| *own != at && code.declares(*own));
                let local = local.filter(|own| code.meaning(*own) == Meaning::Variable);
                names.extend(local.map(|own| value(code.tokens[own].text)));
                names.extend(functions(code));
                names.sort();
                names.dedup_by(|b, a| a.text == b.text);
            }
        }
        let range = self.document.text.range(start..self.byte);
        let is_closed = self.document.text.all[self.byte..].starts_with(['(', '"']);
        let item = |name: Name| {
            let label = name.text.trim_end_matches(['(', ')', '"']);
            let is_call = name.text.ends_with(['(', ')']);
            let column = tried
                .columns
                .iter()
                .find(|(own, ..)| *own == label && !is_call);
            let detail = column.map_or(&*name.call, |(_, held, _)| held.level);
            let doc = doc::forms(label)
                .next()
                .filter(|_| is_call)
                .map_or("", |(_, doc)| doc);
            // The editor may have closed the bracket or the string already.
            let text = if is_closed { label } else { &*name.text };
            json!({
                "label": label, "kind": if is_call { 3 } else { 6 }, "detail": detail, "documentation": doc,
                "textEdit": { "range": range, "newText": text },
            })
        };
        Some(names.into_iter().map(item).collect())
    }

    fn signatures(&self) -> Option<Value> {
        let open = unfinished(self.before());
        let (head, start) = open.call()?;
        let (name, before) = head.split_last()?;
        let (mut depth, mut count) = (0, 0);
        for token in open.code.iter().filter(|token| token.start >= start) {
            depth += token.nesting();
            count += isize::from(token.text == "," && depth == 0);
        }
        let [.., alias, sign] = before else {
            return None;
        };
        let module = self.module(alias.text).filter(|_| sign.text == "::");
        let code = module.as_ref().map(|(_, text)| Code::of(text));
        let own = code.as_ref().unwrap_or(self.code).function(name.text);
        let own = own.map(|function| (function.call.clone(), ""));
        let known = doc::forms(name.text).filter(|_| code.is_none());
        let known = known.map(|(call, doc)| (call.to_string(), doc));
        let forms = own.into_iter().chain(known);
        let signatures = forms.filter_map(|(call, doc)| {
            let (receiver, inside) = call.split_once('(')?;
            let inside = inside.trim_end_matches(')').split(", ");
            let inside = inside.map(|parameter| json!({ "label": parameter }));
            // The receiver of a method is the first argument of a function.
            let active =
                count + isize::from(sign.text == ".") - isize::from(receiver.contains('.'));
            Some(json!({
                "label": call, "documentation": doc, "parameters": inside.collect::<Vec<Value>>(),
                "activeParameter": active.max(0),
            }))
        });
        let signatures: Vec<Value> = signatures.collect();
        let active = signatures.first()?["activeParameter"].clone();
        Some(json!({ "signatures": signatures, "activeSignature": 0, "activeParameter": active }))
    }

    fn symbols(&self) -> Vec<Value> {
        let (code, text) = (self.code, &self.document.text);
        let symbol = |function: &super::code::Function<'_>| {
            let (first, last) = (
                code.bytes(function.tokens.start),
                code.bytes(function.tokens.end - 1),
            );
            json!({
                "name": function.name, "detail": function.call, "kind": 12, "range": text.range(first.start..last.end),
                "selectionRange": text.range(code.bytes(function.tokens.start + 1)),
            })
        };
        code.functions.iter().map(symbol).collect()
    }
}

/// The functions of a script, as they are typed.
fn functions(code: &Code<'_>) -> impl Iterator<Item = Name> {
    let functions = code.functions.iter();
    functions.map(|one| Name {
        text: format!("{}(", one.name),
        call: one.call.clone(),
    })
}
