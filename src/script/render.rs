//! Renders a diagnostic for people: the script's line with a caret under the place.

use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};

use super::error::{Diagnostic, Place, ScriptError, Severity};
use crate::paint::Paint;

impl Diagnostic {
    /// The diagnostic with the script's line and a caret under the place; `color` for a terminal.
    pub fn render(&self, color: bool) -> String {
        let kind = match self.severity {
            Severity::Error => ReportKind::Error,
            Severity::Warning => ReportKind::Warning,
        };
        let Some(place) = &self.place else {
            return self.without_place(color);
        };
        let span = (place.source.to_string(), span(place));
        let config = Config::default()
            .with_color(color)
            .with_index_type(IndexType::Char);
        let mut report = Report::build(kind, span.clone())
            .with_config(config)
            .with_message(&self.message)
            .with_label(Label::new(span).with_message("here"));
        if let Some(help) = &self.help {
            report.set_help(help);
        }
        for call in &self.trace {
            report.add_note(call);
        }
        let mut out = Vec::new();
        let source = (
            place.source.to_string(),
            Source::from(place.text.to_string()),
        );
        match report.finish().write(source, &mut out) {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(_) => format!("{self}\n"),
        }
    }
}

impl Diagnostic {
    /// In the words and colours of those with a place.
    fn without_place(&self, color: bool) -> String {
        let paint = Paint { color };
        let word = match self.severity {
            Severity::Error => paint.red("Error:"),
            Severity::Warning => paint.yellow("Warning:"),
        };
        let mut lines = vec![format!("{word} {}", self.message)];
        let helps = self.help.iter().map(|help| format!("  Help: {help}"));
        lines.extend(helps.chain(self.trace.iter().map(|call| format!("  Note: {call}"))));
        lines.join("\n") + "\n"
    }
}

impl ScriptError {
    /// All diagnostics, one after the other.
    pub fn render(&self, color: bool) -> String {
        self.diagnostics
            .iter()
            .map(|diagnostic| diagnostic.render(color))
            .collect()
    }
}

/// The characters of the whole text that a place covers.
fn span(place: &Place) -> std::ops::Range<usize> {
    let before: usize = place
        .text
        .split_inclusive('\n')
        .take(place.line - 1)
        .map(|line| line.chars().count())
        .sum();
    let length = place.text.chars().count();
    let start = (before + place.column - 1).min(length);
    start..(start + place.length).min(length).max(start)
}
