//! The form in which problems are reported: what is wrong, where, what was found, what was expected, and what to do.

#[cfg(feature = "render")]
mod render;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::suggest::nearest;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// The task cannot be done.
    #[default]
    Error,
    /// The task is done, but perhaps not in the way that the user expects.
    Warning,
    /// The task is done, in a way that a reader of the numbers should know.
    Note,
}

/// The kind of a problem, for code that must distinguish problems, because messages may be reworded at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A problem that no code needs to distinguish from other problems.
    #[default]
    Other,
    /// A result is NaN or infinite.
    NotFinite,
    /// The values of the batch do not allow an operation, for example because k exceeds the size of a group.
    Values,
    /// The batch does not have the column of this name.
    MissingColumn(String),
    /// The recipe does not declare the parameter of this name.
    MissingParameter(String),
    /// The script has neither of the hooks that make it a recipe.
    NoHook,
}

/// A span of a script's text, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The script's file or name.
    pub source: Arc<str>,
    /// The script's whole text.
    pub text: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The number of characters that the span covers.
    pub length: usize,
}

/// A file of rollouts or settings, or a location in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilePosition {
    /// The file; empty if the problem is not in a file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
    /// The name of the line's field, or of the tensor, in the file.
    pub field: Option<String>,
}

/// An edit of a script that may solve a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// The text to replace, at its first occurrence as a name or string from the start of the problem's span on. If it is empty,
    /// `right` is inserted at the start of the span.
    pub wrong: String,
    /// The text that replaces the wrong text.
    pub right: String,
}

/// One problem; [`Problem`] documents its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic(
    // Boxed, so that a `Result` with this error stays small.
    Box<Problem>,
);

/// The parts of a [`Diagnostic`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// How bad the problem is.
    pub severity: Severity,
    /// The problem, in one sentence.
    pub message: String,
    /// The span of a script that causes the problem, shown with a caret.
    pub span: Option<Span>,
    /// The file that causes the problem, or a location in it.
    pub file: FilePosition,
    /// A description of what was found.
    pub found: Option<String>,
    /// A description of what was expected.
    pub expected: Option<String>,
    /// Advice on what to do.
    pub help: Option<String>,
    /// The edits that the message or the help suggests, each of which may solve the problem.
    pub fixes: Vec<Fix>,
    /// The causes, such as the calls in a script (innermost first, as ``in `advantage`, called at mine.rhai:12``), and other
    /// remarks.
    pub notes: Vec<String>,
    /// The kind of the problem.
    pub kind: ProblemKind,
}

impl Diagnostic {
    /// Makes an error without a location.
    pub fn error(message: impl Into<String>) -> Self {
        Diagnostic::new(Severity::Error, message.into())
    }

    /// Makes the error for a command that needs a part of advlab that this build lacks, such as `parquet`.
    pub fn not_built(part: &str) -> Self {
        let help = format!(
            "`cargo build --release --features full` builds it with {part}, and \
             `cargo install --path cli --features full` installs it"
        );
        Diagnostic::error(format!("this advlab was built without {part}")).with_help(help)
    }

    /// Makes a warning without a location.
    pub fn warning(message: impl Into<String>) -> Self {
        Diagnostic::new(Severity::Warning, message.into())
    }

    /// Makes a note without a location.
    pub fn note(message: impl Into<String>) -> Self {
        Diagnostic::new(Severity::Note, message.into())
    }

    fn new(severity: Severity, message: String) -> Self {
        Diagnostic(Box::new(Problem {
            severity,
            message,
            ..Problem::default()
        }))
    }

    fn set(mut self, set: impl FnOnce(&mut Problem)) -> Self {
        set(&mut self);
        self
    }

    /// Adds the span in a script; `None` leaves the location unchanged.
    pub fn at(self, span: Option<Span>) -> Self {
        self.set(|own| own.span = span.or(own.span.take()))
    }

    /// Adds the file.
    pub fn in_file(self, path: impl AsRef<Path>) -> Self {
        self.set(|own| own.file.path = path.as_ref().to_path_buf())
    }

    /// Adds the line of the file, counted from 1.
    pub fn on_line(self, line: usize) -> Self {
        self.set(|own| own.file.line = Some(line))
    }

    /// Adds the column within the line, counted from 1.
    pub fn at_column(self, column: usize) -> Self {
        self.set(|own| own.file.column = Some(column))
    }

    /// Adds the field of the line, or the tensor of the file.
    pub fn in_field(self, field: impl Into<String>) -> Self {
        self.set(|own| own.file.field = Some(field.into()))
    }

    /// Adds what was found.
    pub fn found(self, found: impl Into<String>) -> Self {
        self.set(|own| own.found = Some(found.into()))
    }

    /// Adds what was expected.
    pub fn expected(self, expected: impl Into<String>) -> Self {
        self.set(|own| own.expected = Some(expected.into()))
    }

    /// Adds the help: what to do about the problem.
    pub fn with_help(self, help: impl Into<String>) -> Self {
        self.set(|own| own.help = Some(help.into()))
    }

    /// Adds an edit that may solve the problem.
    pub fn with_fix(self, wrong: impl Into<String>, right: impl Into<String>) -> Self {
        let (wrong, right) = (wrong.into(), right.into());
        self.set(|own| own.fixes.push(Fix { wrong, right }))
    }

    /// Adds the edit that replaces a name with the nearest candidate, if a candidate is near. The message should contain the
    /// clause of [`did_you_mean`](crate::suggest::did_you_mean).
    pub(crate) fn with_nearest<'a>(
        self,
        wrong: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match nearest(wrong, candidates) {
            Some(near) => self.with_fix(wrong, near),
            None => self,
        }
    }

    /// Adds the edit that replaces the name `wrong` with `right`, and the help that suggests this edit.
    pub fn did_you_mean(self, wrong: &str, right: &str) -> Self {
        let help = format!("did you mean `{right}`?");
        self.with_help(help).with_fix(wrong, right)
    }

    /// Adds a cause of the problem, such as a call in the script.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        self.set(|own| own.notes.push(note.into()))
    }

    /// Sets the kind.
    pub fn of_kind(self, kind: ProblemKind) -> Self {
        self.set(|own| own.kind = kind)
    }

    /// Returns the name of the column that the batch does not have, if that is the problem.
    pub fn missing_column(&self) -> Option<&str> {
        match &self.kind {
            ProblemKind::MissingColumn(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the name of the parameter that the recipe does not declare, if that is the problem.
    pub fn missing_parameter(&self) -> Option<&str> {
        match &self.kind {
            ProblemKind::MissingParameter(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the location: `passk.rhai:12:8` in a script; ``rollouts.jsonl, line 3, column 7, `reward` `` in a file.
    fn location(&self) -> Option<String> {
        if let Some(span) = &self.span {
            return Some(format!("{}:{}:{}", span.source, span.line, span.column));
        }
        let file = &self.file;
        let parts = [
            Some(file.path.display().to_string()).filter(|path| !path.is_empty()),
            file.line.map(|line| format!("line {line}")),
            file.column.map(|column| format!("column {column}")),
            file.field.as_ref().map(|field| format!("`{field}`")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Returns the message, followed by what was found and what was expected.
    pub fn sentence(&self) -> String {
        let found = self.found.iter().map(|found| format!("found {found}"));
        let expected = self.expected.iter().map(|e| format!("expected {e}"));
        let values: Vec<String> = found.chain(expected).collect();
        match (&*self.message, &values[..]) {
            (message, []) => message.to_string(),
            ("", _) => values.join("; "),
            (message, _) => format!("{message}: {}", values.join("; ")),
        }
    }
}

impl std::ops::Deref for Diagnostic {
    type Target = Problem;

    fn deref(&self) -> &Problem {
        &self.0
    }
}

impl std::ops::DerefMut for Diagnostic {
    fn deref_mut(&mut self) -> &mut Problem {
        &mut self.0
    }
}

impl fmt::Display for Diagnostic {
    /// Writes one line: `passk.rhai:12:8: message (help)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = self.location() {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.sentence())?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// One or more problems, in order. This is the error type of the functions that read files, make batches, or load or run a
/// script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Returns problems as one error, or `None` if there are no problems.
    pub fn several(diagnostics: Vec<Diagnostic>) -> Option<Self> {
        (!diagnostics.is_empty()).then_some(Diagnostics(diagnostics))
    }

    /// Returns the first problem, which may be the cause of the other problems.
    pub fn first_mut(&mut self) -> &mut Diagnostic {
        &mut self.0[0]
    }
}

impl std::ops::Deref for Diagnostics {
    type Target = [Diagnostic];

    fn deref(&self) -> &[Diagnostic] {
        &self.0
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Diagnostics(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    /// Writes one line per problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Diagnostic::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Diagnostic {}

impl std::error::Error for Diagnostics {}
