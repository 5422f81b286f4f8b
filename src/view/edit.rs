//! The editor of a run's recipe: the file's text, what would be said of another one, and saving that.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::http::Answer;
use crate::batch::Replacement;
use crate::diagnostic::{Diagnostic, Severity};
use crate::script::{CheckResult, Host, Limits, check};
use crate::train::Config;

/// Who types does not wait longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file that a run follows; none where its recipe is a built-in.
pub(super) fn file(config: Option<&Config>) -> Option<PathBuf> {
    let path = PathBuf::from(&config?.recipe);
    let is_script = path.extension().is_some_and(|ending| ending == "rhai");
    (is_script && path.is_file()).then_some(path)
}

/// The text of the file, and what tells whether it has become another one.
pub(super) fn text(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    Some(json!({ "path": path, "seal": crc32c::crc32c(text.as_bytes()), "text": text }))
}

/// What is said of a text in the place of the file: `[severity, line, column, message]` each.
pub(super) fn said(path: &Path, text: &str) -> Value {
    let host = Host::new();
    let limits = Limits {
        time: PATIENCE,
        ..host.limits()
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let recipe = host.with_limits(limits).compile_beside(&name, text, folder);
    let problems: Vec<Diagnostic> = match recipe {
        Err(errors) => errors.to_vec(),
        Ok(recipe) => {
            let failed = check(&recipe, None)
                .into_iter()
                .filter(|one| one.result == CheckResult::Fails);
            let failed = failed.flat_map(|one| match one.error {
                Some(errors) => errors.to_vec(),
                None => vec![Diagnostic::error(format!("{}: {}", one.check, one.detail))],
            });
            let mut all = recipe.warnings().to_vec();
            for problem in failed {
                // One slip fails many checks.
                if !all.iter().any(|other| other.message == problem.message) {
                    all.push(problem);
                }
            }
            all
        }
    };
    let of = |problem: &Diagnostic| {
        let severity = match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let place = problem.span.as_ref().map(|span| (span.line, span.column));
        let (line, column) = place.unzip();
        let help = problem.help.as_ref().map(|help| format!(" ({help})"));
        json!([
            severity,
            line,
            column,
            format!("{}{}", problem.message, help.unwrap_or_default())
        ])
    };
    problems.iter().map(of).collect()
}

/// Saves the file, unless it is no longer the one that was read.
pub(super) fn save(path: &Path, seal: Option<u64>, text: &str) -> Answer {
    let now = fs::read(path).map(|bytes| crc32c::crc32c(&bytes).into());
    if now.ok() != seal {
        return Answer::refusal("409 Conflict");
    }
    match Replacement::write(path, text.as_bytes()) {
        Ok(()) => Answer::json(&json!({ "seal": crc32c::crc32c(text.as_bytes()) })),
        Err(error) => Answer::json(&json!({ "error": error.to_string() })),
    }
}
