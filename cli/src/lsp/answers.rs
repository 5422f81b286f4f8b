//! Answers to requests about a position in a text: hover, completions, signatures, symbols and inlay hints.

use std::ops::Range;
use std::path::Path;

use advlab::script::{Builtin, Hook, Host, unfinished};
use advlab::session::{Name, Session};
use lsp_server::{ErrorCode, Request};
use serde_json::{Value, json};

use super::batch::{Held, PLAIN};
use super::check::Checked;
use super::code::{Code, Function, Meaning};
use super::{Answer, Document, Server, document_of};
use crate::{complete, doc};

pub(super) fn capabilities() -> Value {
    json!({
        "textDocumentSync": { "openClose": true, "change": 1, "save": true },
        "hoverProvider": true, "inlayHintProvider": true, "definitionProvider": true, "renameProvider": true,
        "documentSymbolProvider": true, "codeActionProvider": true,
        "completionProvider": { "triggerCharacters": [".", "\"", ":"] },
        "signatureHelpProvider": { "triggerCharacters": ["(", ","] },
    })
}

/// A position in a document.
pub(super) struct Here<'a> {
    pub(super) uri: &'a str,
    pub(super) document: &'a Document,
    pub(super) code: &'a Code<'a>,
    pub(super) byte: usize,
    /// The index of the token at the position.
    pub(super) index: Option<usize>,
}

/// Returns whether the answer to a request depends on the check of the text.
pub(super) fn needs_check(method: &str) -> bool {
    let name = method.strip_prefix("textDocument/").unwrap_or_default();
    ["hover", "codeAction", "inlayHint"].contains(&name)
}

impl Server<'_> {
    /// Returns the answer to a request, or `None` if the answer must wait for the check of the current text.
    pub(super) fn answer(&self, request: &Request) -> Option<Answer> {
        let (method, params) = (&*request.method, &request.params);
        let name = method.strip_prefix("textDocument/").unwrap_or_default();
        if capabilities().get(format!("{name}Provider")).is_none() {
            let message = format!("this server does not support {method}");
            return Some(Err((ErrorCode::MethodNotFound, message)));
        }
        let uri = document_of(params);
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
                let found = here.definition().map(|(source, range)| {
                    let uri = source.map_or(uri.to_string(), |source| self.uri_of_source(&source));
                    json!({ "uri": uri, "range": range })
                });
                Ok(found.into())
            }
            "hover" => Ok(here.hover(checked?, self.reads_markdown).into()),
            "codeAction" => Ok(here.actions(checked?, range).into()),
            "inlayHint" if self.settings["inlayHints"] == false => Ok(Value::Null),
            // The method is `inlayHint`, because all other capabilities are handled above.
            _ => Ok(here.hints(checked?, range).into()),
        })
    }
}

impl Here<'_> {
    fn before(&self) -> &str {
        &self.document.text.all[..self.byte]
    }

    /// Returns the name and the text of an imported recipe's source, which is a file beside the script or a built-in.
    pub(super) fn imported(&self, recipe: &str) -> Option<(String, String)> {
        let file = self.document.path.with_file_name(format!("{recipe}.rhai"));
        if let Ok(text) = advlab::regular_file::read_to_string(&file) {
            return Some((file.display().to_string(), text));
        }
        let builtin = Builtin::importable().find(|builtin| builtin.name == recipe)?;
        Some((builtin.name.to_string(), builtin.text.to_string()))
    }

    /// Returns the name and the text of the source that the script imports under this alias.
    pub(super) fn module(&self, alias: &str) -> Option<(String, String)> {
        let mut imports = self.code.imports();
        self.imported(imports.find(|(_, own, _)| *own == alias)?.0)
    }

    /// Returns the value of a token's name in the last check. For a variable without a value at the token, this is the last value
    /// before the token or, if there is none, the first value after it.
    fn held<'c>(&self, index: usize, checked: &'c Checked) -> Option<&'c Held> {
        let held = |at: &usize| checked.held.get(&self.code.tokens[*at].start);
        let same = self.code.same(index);
        let before = same.iter().rev().filter(|at| **at <= index).find_map(held);
        let any = || same.iter().find_map(held);
        held(&index).or(before).or_else(any)
    }

    fn hover(&self, checked: &Checked, is_markdown: bool) -> Option<Value> {
        let index = self.index?;
        let name = self.code.tokens[index].text;
        let held = self.held(index, checked).map(|held| held.shown.clone());
        let tried = self.document.tried.as_ref()?;
        let column = || tried.columns.iter().find(|(own, ..)| own == name);
        let own = |code: &Code<'_>| Some(code.function(name)?.call.clone());
        let about = match self.code.meaning(index) {
            Meaning::Variable if name == "batch" => tried.about.clone(),
            Meaning::Variable => format!("{name}\n{}", held?),
            Meaning::Function => own(self.code)?,
            Meaning::Imported(alias) => {
                let (source, text) = self.module(alias)?;
                format!("{} of {source}", own(&Code::of(&text))?)
            }
            Meaning::Recipe(recipe) => {
                let (source, text) = self.imported(recipe)?;
                let folder = self.document.path.parent().unwrap_or(Path::new("."));
                let compiled = Host::new().compile_beside(&source, &text, folder);
                doc::recipe(&compiled.ok()?, PLAIN)
            }
            Meaning::Member("p") | Meaning::Key => {
                let params = self.document.recipe.as_ref()?.params();
                let (own, value) = params.iter().find(|(own, _)| own.name == name)?;
                let (takes, default, doc) = (own.takes(), &own.default, &own.doc);
                format!("p.{name} = {value}\n{doc}\n{takes}; default {default}")
            }
            Meaning::Member(_) if !self.code.is_call(index) && column().is_some() => {
                let (_, held, is_derived) = column()?;
                let from = ["a column of", "derived from columns of"][usize::from(*is_derived)];
                format!("batch.{name}: {from} {}\n{}", tried.about, held.shown)
            }
            _ if doc::forms(name).next().is_some() => {
                let about = doc::explain(&Host::new(), name, PLAIN).ok()?;
                held.map_or(about.clone(), |held| format!("{about}\n\nhere: {held}"))
            }
            _ => held?,
        };
        let contents = if is_markdown {
            json!({ "kind": "markdown", "value": format!("```text\n{about}\n```") })
        } else {
            json!({ "kind": "plaintext", "value": about })
        };
        let range = self.document.text.range(self.code.bytes(index));
        Some(json!({ "contents": contents, "range": range }))
    }

    fn hints(&self, checked: &Checked, asked: Range<usize>) -> Vec<Value> {
        let asked = checked.held.range(asked.start..asked.end.max(asked.start));
        let of_tensors = asked.filter(|(_, held)| !held.level.is_empty());
        let hint = |(start, held): (&usize, &Held)| {
            let at = self
                .code
                .at(*start)
                .filter(|at| self.code.text(*at, -1) == "let")?;
            let place = self.document.text.place(self.code.bytes(at).end);
            Some(json!({ "position": place, "label": format!(": {}", held.level), "kind": 1 }))
        };
        of_tensors.filter_map(hint).collect()
    }

    fn completions(&self) -> Option<Vec<Value>> {
        let (tried, code) = (self.document.tried.as_ref()?, self.code);
        let session = Session::new(&Host::new(), &tried.batch);
        let (start, mut names) = complete::of_script(&session, self.before());
        let at = code
            .tokens
            .partition_point(|token| token.end() <= start && token.start < start);
        let named = |text: &str, call: &str| Name {
            text: text.to_string(),
            call: call.to_string(),
        };
        let function = |one: &Function<'_>| named(&format!("{}(", one.name), &one.call);
        let is_open = unfinished(self.before()).last.is_some();
        match (code.text(at, -2), code.text(at, -1)) {
            // In a string or a comment, nothing is added to the completions of `of_script`.
            _ if is_open => {}
            ("p", ".") => {
                let recipe = self.document.recipe.iter();
                let params = recipe.flat_map(|recipe| recipe.params().iter());
                names = params.map(|(own, _)| named(&own.name, "")).collect();
            }
            (_, ".") => {}
            (alias, "::") => {
                let (_, text) = self.module(alias)?;
                names = Code::of(&text).functions.iter().map(function).collect();
            }
            (_, "fn") => {
                let call =
                    |hook: Hook| format!("{}({})", hook.name(), hook.parameters().join(", "));
                names = Hook::ALL
                    .map(|hook| named(&(call(hook) + " {"), &call(hook)))
                    .to_vec();
            }
            _ => {
                let around = code.function_around(at.saturating_sub(1));
                let tokens = around.map_or(0..0, |function| function.tokens.clone());
                let is_local = |own: &usize| {
                    *own != at && code.declares(*own) && code.meaning(*own) == Meaning::Variable
                };
                let local = tokens.filter(is_local);
                names.extend(local.map(|own| named(code.tokens[own].text, "")));
                names.extend(code.functions.iter().map(function));
                names.sort();
                names.dedup_by(|b, a| a.text == b.text);
            }
        }
        let range = self.document.text.range(start..self.byte);
        let is_closed = self.document.text.all[self.byte..].starts_with(['(', '"']);
        let item = |name: Name| {
            let label = name.text.trim_end_matches(['(', ')', '"']);
            let is_call = name.text.ends_with(['(', ')']);
            let mut columns = tried.columns.iter();
            let column = columns.find(|(own, ..)| *own == label && !is_call);
            let detail = column.map_or(&*name.call, |(_, held, _)| held.level);
            let form = doc::forms(label).next().filter(|_| is_call);
            let doc = form.map_or("", |(_, doc)| doc);
            // The editor may have inserted the closing bracket or quote already.
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
        let function = code.as_ref().unwrap_or(self.code).function(name.text);
        let own = function.map(|function| (function.call.clone(), ""));
        let known = doc::forms(name.text).filter(|_| code.is_none());
        let forms = own
            .into_iter()
            .chain(known.map(|(call, doc)| (call.to_string(), doc)));
        let shown = forms.filter_map(|(call, doc)| {
            let (receiver, inside) = call.split_once('(')?;
            let names = inside.trim_end_matches(')').split(", ");
            let parameters = names.map(|name| json!({ "label": name }));
            // The receiver of a method call is the function's first argument.
            let active =
                count + isize::from(sign.text == ".") - isize::from(receiver.contains('.'));
            Some(json!({
                "label": call, "documentation": doc, "parameters": parameters.collect::<Vec<Value>>(),
                "activeParameter": active.max(0),
            }))
        });
        let signatures: Vec<Value> = shown.collect();
        let active = signatures.first()?["activeParameter"].clone();
        Some(json!({ "signatures": signatures, "activeSignature": 0, "activeParameter": active }))
    }

    fn symbols(&self) -> Vec<Value> {
        let (code, text) = (self.code, &self.document.text);
        let symbol = |function: &Function<'_>| {
            let (first, last) = (function.tokens.start, function.tokens.end - 1);
            let all = code.tokens[first].start..code.tokens[last].end();
            json!({
                "name": function.name, "detail": function.call, "kind": 12, "range": text.range(all),
                "selectionRange": text.range(code.bytes(first + 1)),
            })
        };
        code.functions.iter().map(symbol).collect()
    }
}
