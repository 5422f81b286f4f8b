//! The thread that checks each document when its text has not changed for a while: compiles the text, runs it on the batch, sends
//! the diagnostics, and then keeps the values of the script's names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use advlab::check::dry_run;
use advlab::diagnostic::Severity;
use advlab::script::{Host, Limits, Recipe};
use advlab::{Diagnostic, Diagnostics};
use lsp_server::{Message, Request};
use serde_json::{Value, json};

use super::batch::{Held, Tried, source};
use super::code::Code;
use super::text::Text;
use super::{Checked, Document, Server, Shared};
use crate::report::study::with_advantage;

/// The time limit is that of a save in a run; the limit of memory suits the machine of an editor.
const LIMITS: Limits = Limits {
    time: Duration::from_secs(2),
    memory: 1 << 30,
};
/// How often the thread looks for new batches of runs.
const LOOK: Duration = Duration::from_secs(2);

/// Checks documents until the server ends.
pub(super) fn run(shared: &Shared) {
    let (mut server, mut looked) = (shared.lock(), Instant::now());
    while !server.is_over {
        let all = server.documents.iter();
        let due = all.filter_map(|(uri, own)| Some((own.due?, uri.clone())));
        let first = due.min();
        let until = first
            .as_ref()
            .map_or(Instant::now() + LOOK, |(due, _)| *due);
        let wait = until.duration_since(Instant::now()).min(LOOK);
        if let Some((_, uri)) = first.filter(|_| wait.is_zero()) {
            drop(server);
            check(shared, &uri);
            server = shared.lock();
        } else if looked.elapsed() >= LOOK {
            looked = Instant::now();
            server.check_all();
        } else {
            let woken = shared.bell.wait_timeout(server, wait);
            server = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

/// Checks a document, unless neither its text nor its batch has changed since the last check.
fn check(shared: &Shared, uri: &str) {
    let mut server = shared.lock();
    let (folders, batch) = (server.folders.clone(), server.batch());
    let Some(document) = server.documents.get_mut(uri) else {
        return;
    };
    let (serial, path) = (document.serial, document.path.clone());
    let (text, old) = (document.text.all.clone(), document.tried.clone());
    let (host, is_checked) = (Host::new().with_limits(LIMITS), document.checked.is_some());
    (document.due, document.guard) = (None, host.guard());
    let host = host.with_guard(document.guard.clone());
    drop(server);

    let source = source(&path, &folders, batch.as_deref());
    if is_checked && old.as_ref().is_some_and(|old| old.source == source) {
        return;
    }
    let folder = path.parent().unwrap_or(&path);
    let compiled = host.compile_beside(&path.display().to_string(), &text, folder);
    let last = compiled.as_ref().ok();
    let known = old.clone().filter(|old| old.serves(&source, last));
    let opened = known.map_or_else(|| Tried::open(&source, last).map(Arc::new), Ok);
    let opened = opened.or_else(|error| {
        let noted = |one: &Diagnostic| one.clone().with_note("so the built-in batch is used");
        let (source, unread) = (source.clone(), error.iter().map(noted).collect());
        let opened = Tried::open(&None, last)?;
        Ok::<_, Diagnostics>(Arc::new(Tried {
            source,
            unread,
            ..opened
        }))
    });
    let Ok(tried) = opened else { return };
    match shared.lock().document(uri, serial) {
        Some(document) => document.tried = Some(tried.clone()),
        None => return,
    }
    let (mut ran, mut diagnostics) = (None, tried.unread.clone());
    match compiled {
        // A script without a hook is empty yet, or only imported by other scripts.
        Err(error) if error[0].message.contains(" defines neither ") => {}
        Err(error) => diagnostics.extend(error.iter().cloned()),
        Ok(mut recipe) => {
            tried.run.iter().for_each(|run| recipe.keep_settings(run));
            recipe = recipe.on(&host.with_seed(tried.seed));
            diagnostics.extend(recipe.warnings().iter().cloned());
            diagnostics.extend(try_on(&recipe, &tried).err());
            ran = Some(recipe);
        }
    }

    let mut server = shared.lock();
    let Some(document) = server.document(uri, serial) else {
        return;
    };
    document.recipe = ran.clone().or(document.recipe.take());
    server.publish(uri, &diagnostics);
    let place = |tried: &Arc<Tried>| tried.source.as_ref().map(|(path, _)| path.clone());
    if old.as_ref().map(place) != Some(place(&tried)) {
        let name = path.file_name().unwrap_or_default().display();
        let line = format!("{name} is tried on {}", tried.about);
        server.tell("window/showMessage", json!({ "type": 3, "message": line }));
    }
    drop(server);
    let mut held = BTreeMap::new();
    if let Some(recipe) = ran
        && let Ok((batch, _)) = with_advantage(&recipe, &tried.batch)
    {
        let keep = &mut |at, answer| drop(held.insert(at, Held::of(&answer)));
        recipe.observe(&batch, keep);
    }
    let mut server = shared.lock();
    if let Some(document) = server.document(uri, serial) {
        document.checked = Some(Checked { diagnostics, held });
        server.answer_waiting();
        if server.can_refresh {
            server.serial += 1;
            let (id, method) = (server.serial.to_string(), "workspace/inlayHint/refresh");
            let request = Request::new(id.into(), method.to_string(), Value::Null);
            (server.send)(Message::Request(request));
        }
    }
}

/// Runs a recipe on the batch. A missing column is only a warning if the batch is not from the user and no column has a similar
/// name, because the batches of a run may have the column.
fn try_on(recipe: &Recipe, tried: &Tried) -> Result<(), Diagnostic> {
    let tries = || -> Result<(), Diagnostics> {
        let (batch, _) = with_advantage(recipe, &tried.batch)?;
        dry_run(recipe, &batch, &recipe.init()?, true).map(drop)
    };
    tries().map_err(|error| {
        let help = error[0].help.as_deref().unwrap_or_default();
        let is_slip = help.starts_with("did you mean") || tried.source.is_some();
        let mut error = error[0].clone();
        if error.missing_column().is_some() && !is_slip {
            error.severity = Severity::Warning;
        }
        error.with_note(format!("in a dry run on {}", tried.about))
    })
}

impl Server {
    /// A document, if its current text is still the text with this number.
    fn document(&mut self, uri: &str, serial: u64) -> Option<&mut Document> {
        let document = self.documents.get_mut(uri);
        document.filter(|document| document.serial == serial)
    }

    fn publish(&self, uri: &str, diagnostics: &[Diagnostic]) {
        let Some(document) = self.documents.get(uri) else {
            return;
        };
        let shown = diagnostics.iter().map(|one| self.shown(document, one));
        let (version, shown) = (&document.version, shown.collect::<Vec<Value>>());
        let all = json!({ "uri": uri, "version": version, "diagnostics": shown });
        self.tell("textDocument/publishDiagnostics", all);
    }

    /// A diagnostic in the form of the protocol. A diagnostic in an imported script is shown at the import, with a reference to
    /// its own place; a diagnostic without a place is shown on the first line.
    fn shown(&self, document: &Document, diagnostic: &Diagnostic) -> Value {
        let (text, mut related) = (&document.text, Vec::new());
        let mut bytes = 0..text.all.lines().next().map_or(0, str::len);
        match &diagnostic.span {
            Some(span) if is_own(document, diagnostic) => bytes = text.bytes(span),
            Some(span) => {
                let code = Code::of(&text.all);
                let stem = Path::new(&*span.source).file_stem().unwrap_or_default();
                let all: Vec<_> = code.imports().collect();
                let import = all.iter().find(|(name, ..)| *name == stem).or(all.first());
                bytes = import.map_or(bytes, |(.., at)| code.bytes(*at));
                let there = Text::new(span.text.clone());
                let range = there.range(there.bytes(span));
                let location = json!({ "uri": self.uri_of_source(&span.source), "range": range });
                related.push(json!({ "location": location, "message": diagnostic.sentence() }));
            }
            None => {}
        }
        // A batch's file is named; the place in a script is the range, and the help follows below.
        let mut plain = diagnostic.clone();
        (plain.span, plain.help) = (None, None);
        let mut message = plain.to_string();
        message.extend(diagnostic.help.iter().map(|help| format!("\nhelp: {help}")));
        message.extend(
            diagnostic
                .notes
                .iter()
                .map(|note| format!("\nnote: {note}")),
        );
        // In the protocol, severity 1 is an error, 2 a warning, and 3 information.
        json!({
            "range": text.range(bytes), "severity": diagnostic.severity as u8 + 1, "source": "advlab",
            "message": message, "relatedInformation": related,
        })
    }
}

/// Whether the place of a diagnostic is in the document itself.
pub(super) fn is_own(document: &Document, diagnostic: &Diagnostic) -> bool {
    let span = diagnostic.span.as_ref();
    span.is_some_and(|span| Path::new(&*span.source) == document.path)
}
