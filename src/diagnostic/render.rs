//! Renders problems for people: the script's line with a caret under the span, or the location in the file.

use std::ops::Range;

use ariadne::{Config, Label, Report, ReportKind, Source};

use super::{Diagnostic, Diagnostics, Severity, Span};
use crate::paint::{self, Paint, cut, visible, wrapped};

impl Diagnostic {
    /// The problem in lines of text that are no longer than the paint's width, but for the script's own.
    pub fn render_within(&self, paint: Paint) -> String {
        let Some(span) = &self.span else {
            return self.without_span(paint);
        };
        let kind = match self.severity {
            Severity::Error => ReportKind::Error,
            Severity::Warning => ReportKind::Warning,
            Severity::Note => ReportKind::Advice,
        };
        // The line's number and a bar, and the word that stands before a note.
        let margin = format!("  {} │ ", span.line);
        let before_note = format!("{margin}Note 1: ");
        let room = paint.width.saturating_sub(paint::width(&margin));
        let (line, covered, cut) = snippet(span, room.min(QUOTED));
        let id = (span.source.to_string(), covered);
        let config = Config::default().with_color(paint.color);
        let mut report = Report::build(kind, id.clone())
            .with_config(config)
            .with_message(fitted(&self.sentence(), paint.width, "Warning: "))
            .with_label(Label::new(id).with_message("here"));
        if let Some(help) = &self.help {
            report.set_help(fitted(help, paint.width, &before_note));
        }
        for note in &self.notes {
            report.add_note(fitted(note, paint.width, &before_note));
        }
        let mut out = Vec::new();
        let source = (span.source.to_string(), Source::from(line));
        match report.finish().write(source, &mut out) {
            Ok(()) => {
                // The report counts the columns of what it was given.
                let text = String::from_utf8_lossy(&out);
                let place = |column| format!("{}:{}:{column}", span.source, span.line);
                text.replacen(&place(span.column - cut), &place(span.column), 1)
            }
            Err(_) => format!("{self}\n"),
        }
    }

    /// In the words and colours of those with a span.
    fn without_span(&self, paint: Paint) -> String {
        let word = match self.severity {
            Severity::Error => paint.with("31", "Error:"),
            Severity::Warning => paint.with("33", "Warning:"),
            Severity::Note => paint.dim("Note:"),
        };
        let sentence = match self.location() {
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
    let room = width.saturating_sub(paint::width(margin));
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

/// The most columns of a script's line that are quoted.
const QUOTED: usize = 120;
/// The characters before a span that are shown of a line that is cut there.
const BEFORE: usize = 40;

/// The span's line, as a source in which nothing else stands, the characters of it that the span covers, and by how many it
/// is shorter at its beginning. A line that is longer than there is room ends there; one whose span would be beyond the
/// room begins a little before the span.
fn snippet(span: &Span, room: usize) -> (String, Range<usize>, usize) {
    let column = span.column.saturating_sub(1);
    let is_within = column + span.length < room;
    let cut_before = if is_within {
        0
    } else {
        column.saturating_sub(BEFORE.min(room / 3))
    };
    let mut line: String = span.line().chars().skip(cut_before).collect();
    if cut_before > 0 {
        line = line.replacen(|_: char| true, "…", 1);
    }
    let source = format!("{}{}\n", "\n".repeat(span.line - 1), cut(&line, room));
    let length = source.chars().count();
    let start = (span.line - 1 + column - cut_before).min(length);
    (source, start..(start + span.length).min(length), cut_before)
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
            let whole = Diagnostics::from(diagnostic).render(false);
            assert!(whole.matches(sentence).count() >= 3);
        }
    }

    /// A script's line is cut around what is wrong in it, to the terminal's width or to what a reader takes in.
    #[test]
    fn a_long_line_of_a_script_is_cut() {
        let line = "let a = batch.reward; let b = batch.rewrad; // and so on";
        let long = format!("{}{line}{}", " ".repeat(1000), "a, ".repeat(100_000));
        for (text, width, column, shown) in [
            (line, 34, 9, "let a = batch.reward; let b…"),
            (line, 34, 31, "…let b = batch.rewrad; // a…"),
            (
                &long,
                usize::MAX,
                1031,
                "…         let a = batch.reward; let b = batch.rewrad; // and so ona, ",
            ),
        ] {
            let span = Span {
                source: "mine.rhai".into(),
                text: text.into(),
                line: 1,
                column,
                length: 12,
            };
            let color = false;
            let diagnostic = Diagnostic::error("").at(Some(span));
            let text = diagnostic.render_within(Paint { color, width });
            assert!(text.contains(shown), "{text}");
            assert!(text.contains(&format!("mine.rhai:1:{column} ")), "{text}");
            assert!(text.len() < 1000);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        let diagnostic = Diagnostic::error("group \"a\u{1b}[31m\" is odd").with_help("\u{7}");
        let rendered = Diagnostics::from(diagnostic).render(false);
        assert!(rendered.contains("a\\u{1b}[31m") && rendered.contains("Help: \\u{7}"));
    }
}
