//! Renders problems for people: the script's line with a caret under the span, or the location in the file.

use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};

use super::{Diagnostic, Diagnostics, Severity, Span};
use crate::paint::{self, Paint, visible, wrapped};

impl Diagnostic {
    /// The problem in lines of text, as long as its sentences are.
    pub fn render(&self, color: bool) -> String {
        let width = usize::MAX;
        self.render_within(Paint { color, width })
    }

    /// The problem in lines of text that are no longer than the paint's width, but for the script's own.
    pub fn render_within(&self, paint: Paint) -> String {
        let Some(span) = self.span() else {
            return self.without_span(paint);
        };
        let kind = match self.severity {
            Severity::Error => ReportKind::Error,
            Severity::Warning => ReportKind::Warning,
            Severity::Note => ReportKind::Advice,
        };
        let id = (span.source.to_string(), characters(span));
        let config = Config::default()
            .with_color(paint.color)
            .with_index_type(IndexType::Char);
        let mut report = Report::build(kind, id.clone())
            .with_config(config)
            .with_message(fitted(&self.sentence(), paint.width, "Warning: "))
            .with_label(Label::new(id).with_message("here"));
        // Behind the line's number and a bar.
        let margin = format!("  {} | Note 1: ", span.line);
        if let Some(help) = &self.help {
            report.set_help(fitted(help, paint.width, &margin));
        }
        for note in &self.notes {
            report.add_note(fitted(note, paint.width, &margin));
        }
        let mut out = Vec::new();
        let source = (span.source.to_string(), Source::from(span.text.to_string()));
        match report.finish().write(source, &mut out) {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(_) => format!("{self}\n"),
        }
    }

    /// In the words and colours of those with a span.
    fn without_span(&self, paint: Paint) -> String {
        let word = match self.severity {
            Severity::Error => paint.red("Error:"),
            Severity::Warning => paint.yellow("Warning:"),
            Severity::Note => paint.dim("Note:"),
        };
        let sentence = match &self.location {
            Some(location) => format!("{location}: {}", self.sentence()),
            None => self.sentence(),
        };
        let mut text = format!("{word} {}\n", fitted(&sentence, paint.width, "Warning: "));
        let helps = self.help.iter().map(|help| ("Help", help));
        for (word, line) in helps.chain(self.notes.iter().map(|note| ("Note", note))) {
            let line = fitted(line, paint.width, "  Help: ").replace('\n', "\n        ");
            text.push_str(&format!("  {word}: {line}\n"));
        }
        text
    }
}

/// Text in lines that end before a width, behind a margin as wide as another string.
fn fitted(text: &str, width: usize, margin: &str) -> String {
    let room = width.saturating_sub(margin.len());
    let fit = |line: &str| {
        // A name may come from a file, and a file may hold what a terminal obeys.
        let line = visible(line);
        if paint::width(&line) > room {
            wrapped("", &line, room)
        } else {
            line
        }
    };
    text.lines().map(fit).collect::<Vec<_>>().join("\n")
}

impl Diagnostics {
    /// All problems, one after the other, each as long as its sentences are.
    pub fn render(&self, color: bool) -> String {
        let width = usize::MAX;
        self.render_within(Paint { color, width })
    }

    /// All problems, one after the other, in lines that are no longer than the paint's width.
    pub fn render_within(&self, paint: Paint) -> String {
        self.iter()
            .map(|diagnostic| diagnostic.render_within(paint))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In a terminal no line is longer than it; in a file each sentence is one line.
    #[test]
    fn sentences_fit_the_width() {
        let sentence = "a sentence of many words, such as that which says what to do about it";
        let span = Span {
            source: "mine.rhai".into(),
            text: "let x = 1;\n".repeat(100).into(),
            line: 100,
            column: 5,
            length: 1,
        };
        let plain = Diagnostic::error(sentence)
            .with_help(sentence)
            .with_note(sentence);
        for diagnostic in [plain.clone(), plain.at(Some(span)).with_note(sentence)] {
            let paint = Paint {
                color: false,
                width: 40,
            };
            let text = diagnostic.render_within(paint);
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(40), "{text}");
            assert!(diagnostic.render(false).matches(sentence).count() >= 3);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        let diagnostic = Diagnostic::error("group \"a\u{1b}[31m\" is odd").with_help("\u{7}");
        let rendered = diagnostic.render(false);
        assert!(rendered.contains("a\\u{1b}[31m") && rendered.contains("Help: \\u{7}"));
    }
}
