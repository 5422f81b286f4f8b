//! Renders problems for people: the script's line with a caret under the span, or the place in the file.

use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};

use super::{Diagnostic, Diagnostics, Severity, Span};
use crate::paint::Paint;

impl Diagnostic {
    /// The problem in lines of text, for a terminal with `color`.
    pub fn render(&self, color: bool) -> String {
        let Some(span) = self.span() else {
            return self.without_span(color);
        };
        let kind = match self.severity {
            Severity::Error => ReportKind::Error,
            Severity::Warning => ReportKind::Warning,
            Severity::Note => ReportKind::Advice,
        };
        let id = (span.source.to_string(), characters(span));
        let config = Config::default()
            .with_color(color)
            .with_index_type(IndexType::Char);
        let mut report = Report::build(kind, id.clone())
            .with_config(config)
            .with_message(self.sentence())
            .with_label(Label::new(id).with_message("here"));
        if let Some(help) = &self.help {
            report.set_help(help);
        }
        for note in &self.notes {
            report.add_note(note);
        }
        let mut out = Vec::new();
        let source = (span.source.to_string(), Source::from(span.text.to_string()));
        match report.finish().write(source, &mut out) {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(_) => format!("{self}\n"),
        }
    }

    /// In the words and colours of those with a span.
    fn without_span(&self, color: bool) -> String {
        let paint = Paint {
            color,
            ..Paint::PLAIN
        };
        let word = match self.severity {
            Severity::Error => paint.red("Error:"),
            Severity::Warning => paint.yellow("Warning:"),
            Severity::Note => paint.dim("Note:"),
        };
        let location = self.location.iter().map(|location| format!("{location}: "));
        let location: String = location.collect();
        let mut lines = vec![format!("{word} {location}{}", self.sentence())];
        let helps = self.help.iter().map(|help| format!("  Help: {help}"));
        lines.extend(helps.chain(self.notes.iter().map(|note| format!("  Note: {note}"))));
        lines.join("\n") + "\n"
    }
}

impl Diagnostics {
    /// All problems, one after the other.
    pub fn render(&self, color: bool) -> String {
        self.iter()
            .map(|diagnostic| diagnostic.render(color))
            .collect()
    }
}

/// The characters of the whole text that a span covers.
fn characters(span: &Span) -> std::ops::Range<usize> {
    let before: usize = span
        .text
        .split_inclusive('\n')
        .take(span.line - 1)
        .map(|line| line.chars().count())
        .sum();
    let length = span.text.chars().count();
    let start = (before + span.column - 1).min(length);
    start..(start + span.length).min(length).max(start)
}
