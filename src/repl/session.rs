//! The session: text in, outcome out.

use super::paint::Paint;
use super::show;
use crate::Batch;
use crate::script::{Diagnostic, Host, ScriptError, Session as Script};

/// What an input gave, as text to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The text, lines without a line break at the end; empty where there is nothing to show.
    pub text: String,
    /// Whether the input was wrong.
    pub is_error: bool,
}

/// A session at a prompt: a batch, a recipe, what was typed, and the commands.
pub struct Session {
    pub(super) script: Script,
    pub(super) paint: Paint,
}

impl Session {
    /// A session on a batch.
    pub fn new(host: &Host, batch: &Batch<'static>, paint: Paint) -> Session {
        Session {
            script: Script::new(host, batch),
            paint,
        }
    }

    /// Whether the text is the beginning of an input that goes on in the next line.
    pub fn is_incomplete(&self, text: &str) -> bool {
        self.script.is_incomplete(text)
    }

    /// Evaluates an input: a piece of script.
    pub fn submit(&mut self, text: &str) -> Outcome {
        match self.evaluate(text) {
            Ok(text) => Outcome {
                text,
                is_error: false,
            },
            Err(error) => self.failed(&error),
        }
    }

    fn evaluate(&mut self, text: &str) -> Result<String, ScriptError> {
        let evaluated = self.script.evaluate(text)?;
        let mut lines = evaluated.prints;
        lines.extend(
            evaluated
                .notes
                .iter()
                .map(|note| self.paint.dim(&format!("note: {note}"))),
        );
        let metric = |(name, value): &(String, f64)| {
            format!("metric {name} {}", crate::figures::value(*value))
        };
        lines.extend(evaluated.metrics.iter().map(metric));
        lines.extend(show::answer(&evaluated.answer, self.paint));
        Ok(lines.join("\n"))
    }

    /// An error with its caret.
    fn failed(&self, error: &ScriptError) -> Outcome {
        let rendered: Vec<String> = error
            .diagnostics
            .iter()
            .map(|diagnostic: &Diagnostic| diagnostic.render(self.paint.color))
            .collect();
        Outcome {
            text: rendered.concat().trim_end().to_string(),
            is_error: true,
        }
    }
}
