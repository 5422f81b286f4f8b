//! The thread that checks each document once it is quiet: compiles its text, runs it on the batch, tells the diagnostics, and
//! then keeps what its names hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use advlab::Diagnostic;
use advlab::check::dry_run;
use advlab::diagnostic::Severity;
use advlab::script::{Limits, Recipe};
use lsp_server::{Message, Request};
use serde_json::{Value, json};

use super::batch::{Held, Tried, source};
use super::code::Code;
use super::text::Text;
use super::{Checked, Document, Server, Shared, host};
use crate::Result;
use crate::report::study::with_advantage;

/// The limits of a check: the time of a save in a run, and memory that an editor's machine has.
pub(super) const LIMITS: Limits = Limits {
    time: Duration::from_secs(2),
    memory: 1 << 30,
};
/// How often it is looked whether a run has written.
const LOOK: Duration = Duration::from_secs(2);

/// Checks until the server is over.
pub(super) fn run(shared: &Shared) {
    let (mut server, mut looked) = (shared.lock(), Instant::now());
    while !server.is_over {
        let all = server.documents.iter();
        let first = all
            .filter_map(|(uri, document)| Some((document.due?, uri.clone())))
            .min();
        let wait = first
            .as_ref()
            .map_or(LOOK, |(due, _)| due.duration_since(Instant::now()));
        if let Some((_, uri)) = first.filter(|_| wait.is_zero()) {
            drop(server);
            check(shared, &uri);
            server = shared.lock();
        } else if looked.elapsed() >= LOOK {
            drop(server);
            look(shared);
            (server, looked) = (shared.lock(), Instant::now());
        } else {
            let woken = shared.bell.wait_timeout(server, wait.min(LOOK));
            server = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }
}

/// Has each document checked again whose batch is no longer the last one.
fn look(shared: &Shared) {
    let server = shared.lock();
    let paths = server
        .documents
        .iter()
        .map(|(uri, own)| (uri.clone(), own.path.clone()));
    let paths: Vec<_> = paths.collect();
    let (folders, settings) = (server.folders.clone(), server.settings.clone());
    drop(server);
    for (uri, path) in paths {
        let now = source(&path, &folders, settings["batch"].as_str());
        if let Some(document) = shared.lock().documents.get_mut(&uri)
            && document
                .tried
                .as_ref()
                .is_some_and(|tried| tried.source != now)
        {
            document.due.get_or_insert_with(Instant::now);
        }
    }
}

fn check(shared: &Shared, uri: &str) {
    let mut server = shared.lock();
    let (folders, settings) = (server.folders.clone(), server.settings.clone());
    let Some(document) = server.documents.get_mut(uri) else {
        return;
    };
    let (serial, path, text) = (
        document.serial,
        document.path.clone(),
        document.text.all.clone(),
    );
    let (old, guard) = (document.tried.clone(), host().guard());
    (document.due, document.guard) = (None, guard.clone());
    drop(server);
    let of_job = |document: &&mut Document| document.serial == serial;

    let host = host().with_guard(guard);
    let (name, folder) = (path.display().to_string(), path.parent().unwrap_or(&path));
    let compiled = host.compile_beside(&name, &text, folder);
    let (source, mut diagnostics) = (
        source(&path, &folders, settings["batch"].as_str()),
        Vec::new(),
    );
    let last = compiled.as_ref().ok();
    let known = old.clone().filter(|old| old.serves(&source, last));
    let opened = known.map_or_else(|| Tried::open(&source, last).map(Arc::new), Ok);
    let opened = opened.or_else(|error| {
        let note = "so the built-in batch is used";
        diagnostics.extend(error.iter().map(|one| one.clone().with_note(note)));
        Tried::open(&None, last).map(Arc::new)
    });
    let Ok(tried) = opened else { return };
    let tries = |mut recipe: Recipe| {
        tried.run.iter().for_each(|run| recipe.keep_settings(run));
        recipe = recipe.on(&host.clone().with_seed(tried.seed));
        let done = with_advantage(&recipe, &tried.batch)
            .and_then(|(batch, _)| dry_run(&recipe, &batch, &recipe.init()?, true).map(drop));
        (
            recipe,
            done.map_err(|error| about_batch(error[0].clone(), &tried)),
        )
    };
    let ran = compiled.map(tries);
    match &ran {
        Err(error) => diagnostics.extend(error.iter().cloned()),
        Ok((recipe, done)) => {
            diagnostics.extend(recipe.warnings().iter().chain(done.as_ref().err()).cloned());
        }
    }
    let recipe = ran.ok().map(|(recipe, _)| recipe);
    let mut server = shared.lock();
    let document = server.documents.get_mut(uri).filter(of_job);
    let Some(document) = document else { return };
    document.tried = Some(tried.clone());
    document.recipe = recipe.clone().or(document.recipe.take());
    server.publish(uri, &diagnostics);
    let path_of = |tried: &Arc<Tried>| tried.source.as_ref().map(|(path, _)| path.clone());
    if old.as_ref().map(path_of) != Some(path_of(&tried)) {
        let name = path.file_name().unwrap_or_default().display();
        let message = format!("{name} is tried on {}", tried.about);
        server.tell(
            "window/showMessage",
            json!({ "type": 3, "message": message }),
        );
    }
    drop(server);
    let held = recipe.map_or_else(BTreeMap::new, |recipe| {
        held(&recipe, &tried).unwrap_or_default()
    });
    let mut server = shared.lock();
    if let Some(document) = server.documents.get_mut(uri).filter(of_job) {
        document.checked = Some(Checked { diagnostics, held });
        server.answer_waiting();
        if server.can_refresh {
            server.serial += 1;
            let (id, method) = (
                server.serial.to_string().into(),
                "workspace/inlayHint/refresh",
            );
            (server.send)(Message::Request(Request::new(
                id,
                method.to_string(),
                Value::Null,
            )));
        }
    }
}

/// What the names of a script hold on the batch.
fn held(recipe: &Recipe, tried: &Tried) -> Result<BTreeMap<usize, Held>> {
    let (batch, _) = with_advantage(recipe, &tried.batch)?;
    let mut held = BTreeMap::new();
    recipe.observe(&batch, &mut |at, answer| {
        drop(held.insert(at, Held::of(&answer)))
    });
    Ok(held)
}

/// The error of a dry run. A column that no similar one may stand for is missing for certain only in a run's batch.
fn about_batch(error: Diagnostic, tried: &Tried) -> Diagnostic {
    let is_slip = error
        .help
        .as_deref()
        .is_some_and(|help| help.starts_with("did you mean"));
    let is_sure = error.missing_column().is_none() || is_slip || tried.source.is_some();
    let mut error = error.with_note(format!("in a dry run on {}", tried.about));
    error.severity = if is_sure {
        error.severity
    } else {
        Severity::Warning
    };
    error
}

impl Server {
    fn publish(&self, uri: &str, diagnostics: &[Diagnostic]) {
        let Some(document) = self.documents.get(uri) else {
            return;
        };
        let shown = diagnostics.iter().map(|one| self.shown(document, one));
        let (version, shown) = (&document.version, shown.collect::<Vec<Value>>());
        let all = json!({ "uri": uri, "version": version, "diagnostics": shown });
        self.tell("textDocument/publishDiagnostics", all);
    }

    /// A diagnostic as the protocol has it. One in an imported script is shown at the import, with its own place beside it; one
    /// without a place on the first line.
    fn shown(&self, document: &Document, diagnostic: &Diagnostic) -> Value {
        let (text, mut related) = (&document.text, Vec::new());
        let mut bytes = 0..text.all.lines().next().map_or(0, str::len);
        if let Some(span) = &diagnostic.span {
            if is_own(document, diagnostic) {
                bytes = text.bytes(span);
            } else {
                let code = Code::of(&text.all);
                let stem = Path::new(&*span.source).file_stem().unwrap_or_default();
                let mut imports = code.imports();
                let import = imports
                    .find(|(name, ..)| *name == stem)
                    .or(code.imports().next());
                bytes = import.map_or(bytes, |(.., at)| {
                    code.tokens[at].start..code.tokens[at].end()
                });
                let there = Text::new(span.text.clone());
                let range = there.range(there.bytes(span));
                let location = json!({ "uri": self.uri_of_source(&span.source), "range": range });
                related.push(json!({ "location": location, "message": diagnostic.sentence() }));
            }
        }
        let help = diagnostic.help.iter().map(|help| format!("help: {help}"));
        let notes = diagnostic.notes.iter().map(|note| format!("note: {note}"));
        let lines = [diagnostic.sentence()].into_iter().chain(help).chain(notes);
        let severity = match diagnostic.severity {
            Severity::Error => 1,
            Severity::Warning => 2,
            Severity::Note => 3,
        };
        let message = lines.collect::<Vec<String>>().join("\n");
        json!({
            "range": text.range(bytes), "severity": severity, "source": "advlab", "message": message,
            "relatedInformation": related,
        })
    }
}

/// Whether a diagnostic has a place in the document itself.
pub(super) fn is_own(document: &Document, diagnostic: &Diagnostic) -> bool {
    let source = diagnostic
        .span
        .as_ref()
        .map(|span| Path::new(&*span.source));
    source == Some(&*document.path)
}
