//! The check of a document whose text has not changed for a while: compiles the text, runs the script on the batch, sends the
//! diagnostics, and then stores the values of the script's names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use advlab::check::dry_run;
use advlab::diagnostic::{ProblemKind, Severity};
use advlab::script::{Hook, Host, Limits, Recipe};
use advlab::tensor::Stopped;
use advlab::{Diagnostic, Diagnostics};
use lsp_server::{Message, Request};
use serde_json::{Value, json};

use super::batch::{Held, Source, Tried};
use super::code::Code;
use super::text::Text;
use super::{Document, Server};
use crate::report::study::{with_advantage, with_neutral};

/// The limits of a check: the default time limit of a save in a run, and a lower memory limit, because the editor needs memory
/// too.
pub(super) const LIMITS: Limits = Limits {
    time: Duration::from_secs(2),
    memory: 1 << 30,
};
/// The largest number of checks of one text. Before each further check, fixes of the errors found so far are applied, because a
/// check ends at the first error of a hook.
const ROUNDS: usize = 10;

pub(super) struct Checked {
    pub(super) found: Vec<Found>,
    /// The values of names and operators; the keys are the bytes at which the names and operators begin.
    pub(super) held: BTreeMap<usize, Held>,
}

/// A diagnostic, and the byte range of the document that it is about; the range is `None` if the diagnostic is about another
/// source or has no span.
pub(super) struct Found {
    pub(super) diagnostic: Diagnostic,
    pub(super) bytes: Option<Range<usize>>,
}

impl Server<'_> {
    /// Checks a document. A check that is stopped because of a message is started again later.
    pub(super) fn check(&mut self, uri: &str, host: &Host) {
        let Some(mut document) = self.documents.remove(uri) else {
            return;
        };
        let guard = host.guard();
        let is_stopped = || guard.check() == Err(Stopped::Cancelled);
        // The time limit begins here, because the server has waited for messages since the guard was made.
        guard.begin_run();
        let place = document.tried.as_ref().map(Tried::place);
        let (found, recipe) = self.find(&mut document, host);
        if !is_stopped() {
            self.publish(uri, &document, &found);
            let tried = document.tried.as_ref();
            if let Some(tried) = tried.filter(|tried| place.as_ref() != Some(&tried.place())) {
                let name = document.path.file_name().unwrap_or_default().display();
                let line = format!("{name} is checked on {}", tried.about);
                self.tell("window/showMessage", json!({ "type": 3, "message": line }));
            }
            let mut held = BTreeMap::new();
            // Observing the values has a time limit of its own.
            guard.begin_run();
            if let (Some(recipe), Some(tried)) = (&recipe, tried)
                && let Ok((batch, _)) = with_advantage(recipe, &tried.batch)
            {
                recipe.observe(&batch, &mut |at, answer| {
                    drop(held.insert(at, Held::of(&answer)))
                });
            }
            if !is_stopped() {
                document.recipe = recipe.or(document.recipe);
                (document.due, document.checked) = (None, Some(Checked { found, held }));
            }
        }
        let is_done = document.due.is_none();
        self.documents.insert(uri.to_string(), document);
        if is_done {
            self.answer_waiting();
            self.refreshes += 1;
            let method = "workspace/inlayHint/refresh".to_string();
            let request = Request::new(self.refreshes.into(), method, Value::Null);
            if self.can_refresh {
                (self.send)(Message::Request(request));
            }
        }
    }

    /// Returns the diagnostics of a document, and its recipe if the text compiles. Because a check ends at the first error of a
    /// hook, the text is checked again (at most `ROUNDS` times in all) after the fix of each error that has exactly one fix is
    /// applied.
    fn find(&self, document: &mut Document, host: &Host) -> (Vec<Found>, Option<Recipe>) {
        let (source, path) = (self.source(&document.path), document.path.clone());
        let (name, folder) = (path.display().to_string(), path.parent().unwrap_or(&path));
        let (mut found, mut recipe) = (Vec::<Found>::new(), None);
        let (mut text, mut edits) = (document.text.clone(), Vec::new());
        for round in 0..ROUNDS {
            let compiled = host.compile_beside(&name, &text.all, folder);
            let tried = document.batch(&source, compiled.as_ref().ok());
            let mut diagnostics = tried.unread.clone();
            if round == 0 {
                // The time limit begins here, because reading a large batch may take a long time.
                host.guard().begin_run();
            }
            match compiled {
                // A script without a hook is not an error: it may still be empty, or other scripts may import it.
                Err(errors) if errors[0].kind == ProblemKind::NoHook => {}
                Err(errors) => diagnostics.extend(errors.iter().cloned()),
                Ok(mut compiled) => {
                    tried.run.iter().for_each(|run| compiled.keep_settings(run));
                    let compiled = compiled.on(&host.clone().with_seed(tried.seed));
                    diagnostics.extend(compiled.warnings().iter().cloned());
                    diagnostics.extend(slips(&compiled, tried));
                    recipe = recipe.or((round == 0).then_some(compiled));
                }
            }
            if round > 0 && host.guard().check().is_err() {
                // All rounds share the time limit, so an error may only mean that the earlier rounds used up the time.
                break;
            }
            let (code, mut fixes) = (Code::of(&text.all), BTreeMap::new());
            for mut diagnostic in diagnostics {
                let span = diagnostic.span.as_ref();
                let own = span.filter(|span| Path::new(&*span.source) == path);
                let bytes = own.map(|span| text.bytes(span));
                if let (Severity::Error, [fix], Some(bytes)) =
                    (diagnostic.severity, &*diagnostic.fixes, &bytes)
                {
                    let place = code.place(fix, bytes.start);
                    fixes.extend(place.map(|at| (at.start, (at.end, fix.right.clone()))));
                }
                let bytes = bytes.map(|at| original(&edits, at.start)..original(&edits, at.end));
                let is_known = |known: &Found| {
                    known.bytes == bytes && known.diagnostic.message == diagnostic.message
                };
                if !found.iter().any(is_known) {
                    let note = "found after the suggested fixes of the other errors were applied";
                    diagnostic
                        .notes
                        .extend((round > 0).then(|| note.to_string()));
                    found.push(Found { diagnostic, bytes });
                }
            }
            if fixes.is_empty() {
                break;
            }
            let mut fixed = text.all.to_string();
            for (start, (end, right)) in fixes.into_iter().rev() {
                fixed.replace_range(start..end, &right);
                edits.push((start, end - start, right.len()));
            }
            text = Text::new(fixed);
        }
        (found, recipe)
    }

    fn publish(&self, uri: &str, document: &Document, found: &[Found]) {
        let shown = found.iter().map(|one| self.shown(document, one));
        let (version, shown) = (&document.version, shown.collect::<Vec<Value>>());
        let all = json!({ "uri": uri, "version": version, "diagnostics": shown });
        self.tell("textDocument/publishDiagnostics", all);
    }

    /// Converts a diagnostic to the protocol's form. A diagnostic in an imported script is shown at the import, with a reference
    /// to its position in that script; a diagnostic without a position is shown on the first line.
    fn shown(&self, document: &Document, found: &Found) -> Value {
        let (text, diagnostic) = (&document.text, &found.diagnostic);
        let first = 0..text.all.lines().next().map_or(0, str::len);
        let mut bytes = found.bytes.clone().unwrap_or(first);
        let mut related = Vec::new();
        if let (None, Some(span)) = (&found.bytes, &diagnostic.span) {
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
        // The message keeps the file name of a batch, but not the script position, which `range` gives; the help is added below.
        let mut plain = diagnostic.clone();
        (plain.span, plain.help) = (None, None);
        let mut message = plain.to_string();
        message.extend(diagnostic.help.iter().map(|help| format!("\nhelp: {help}")));
        let notes = diagnostic.notes.iter();
        message.extend(notes.map(|note| format!("\nnote: {note}")));
        // In the protocol, severity 1 is an error, 2 a warning, and 3 information.
        json!({
            "range": text.range(bytes), "severity": diagnostic.severity as u8 + 1, "source": "advlab",
            "message": message, "relatedInformation": related,
        })
    }
}

impl Document {
    /// Returns the batch for a version of the text: the previous batch, if it can still be used, or a new batch.
    fn batch(&mut self, source: &Source, recipe: Option<&Recipe>) -> &Tried {
        let old = self.tried.take().filter(|old| old.serves(source, recipe));
        let new = || Tried::of(source.clone(), recipe);
        self.tried.insert(old.unwrap_or_else(new))
    }
}

/// Converts a byte offset in the edited text to the offset in the text before the edits. An edit is given by the byte offset
/// where it begins, and by the lengths of the old and the new text.
fn original(edits: &[(usize, usize, usize)], byte: usize) -> usize {
    edits.iter().rev().fold(byte, |byte, &(start, old, new)| {
        if byte >= start + new {
            byte - new + old
        } else {
            byte.min(start + old)
        }
    })
}

/// Returns the errors of dry runs on the batch: first of a whole step and, if the step fails, also of single hooks, because a
/// step ends at the first error. A missing column is only a warning if no run or setting gives the batch and no column has a
/// similar name, because a run's batches may have the column.
fn slips(recipe: &Recipe, tried: &Tried) -> Vec<Diagnostic> {
    let mut errors: Vec<Diagnostics> = Vec::new();
    let mut run = || -> Result<(), Diagnostics> {
        let (batch, _) = with_advantage(recipe, &tried.batch)?;
        let state = recipe.init()?;
        errors.extend(dry_run(recipe, &batch, &state, true).err());
        if errors.is_empty() || recipe.host().guard().check().is_err() {
            return Ok(());
        }
        errors.extend(recipe.advantage(&batch, &mut state.clone()).err());
        if recipe.has(Hook::Loss) && !recipe.has(Hook::Weight) {
            let batch = with_neutral(recipe, &batch)?;
            recipe.loss(&batch, None, &mut state.clone())?;
        }
        Ok(())
    };
    let last = run().err();
    errors.extend(last);
    let mut slips: Vec<Diagnostic> = Vec::new();
    for error in &errors {
        let mut error = error[0].clone();
        let may_be_there = error.fixes.is_empty() && tried.source.is_none();
        if error.missing_column().is_some() && may_be_there {
            error.severity = Severity::Warning;
        }
        if slips.iter().all(|slip| slip.message != error.message) {
            slips.push(error.with_note(format!("this happened in a dry run on {}", tried.about)));
        }
    }
    slips
}
