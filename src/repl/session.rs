//! The session: text in, outcome out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::command::{Typed, Watched, lock};
use super::data::Data;
use super::{pieces, show};
use crate::doc;
use crate::paint::Paint;
use crate::script::{Answer, Host, Recipe, ScriptError, Session as Script};
use crate::tensor::{Guard, Level};

/// What an input gave, as text to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The text, lines without a line break at the end; empty where there is nothing to show.
    pub text: String,
    /// Whether the input was wrong.
    pub is_error: bool,
}

/// A session at a prompt: a batch, a recipe, what was typed, and the commands.
///
/// It knows no terminal: text goes in, text comes out.
///
/// ```
/// use advlab::repl::{Paint, Session};
/// use advlab::Host;
///
/// let mut session = Session::new(&Host::new(), Paint::PLAIN);
/// let outcome = session.submit("batch.reward.mean(\"batch\").value() > 0.3");
/// assert_eq!(outcome.text, "true");
/// ```
pub struct Session {
    pub(super) script: Script,
    /// The host that was given: bounded call by call, for what goes on beside the inputs.
    pub(super) plain: Host,
    pub(super) paint: Paint,
    pub(super) data: Data,
    pub(super) typed: Vec<Typed>,
    /// The files that the session itself wrote.
    pub(super) saved: BTreeSet<PathBuf>,
    pub(super) watched: Option<Arc<Mutex<Watched>>>,
    pub(super) is_over: bool,
}

impl Session {
    /// A session on the built-in batch.
    pub fn new(host: &Host, paint: Paint) -> Session {
        let data = Data::builtin();
        Session {
            script: Script::new(host, &data.batch),
            plain: host.clone(),
            paint,
            data,
            typed: Vec::new(),
            saved: BTreeSet::new(),
            watched: None,
            is_over: false,
        }
    }

    /// Goes on with the batch of a path: a file of rollouts, a run's folder, or a script with a test batch.
    ///
    /// # Errors
    /// [`ScriptError`] says what is wrong with it.
    pub fn open(&mut self, path: &Path) -> Result<(), ScriptError> {
        let data = Data::open(&self.plain, path)?;
        self.use_data(data)
    }

    /// Makes a recipe the one in use, as `:recipe` does.
    pub fn use_recipe(&mut self, recipe: Recipe) {
        self.script.use_recipe(Some(recipe));
    }

    /// What the batch is and where it is from, in a line; what was read otherwise than it stands there follows.
    pub fn about_data(&self) -> String {
        let shape = show::shape(self.data.batch.layout());
        let mut lines = vec![format!("{}: {shape}", self.paint.bold(&self.data.name))];
        if let (Some((first, _)), Some((last, _))) = (self.data.kept.first(), self.data.kept.last())
        {
            lines.push(format!(
                "  one of {} batches of the run, of steps {first} to {last}: `:batch {first}`",
                self.data.kept.len()
            ));
        }
        lines.extend(
            self.data
                .notes
                .iter()
                .map(|note| self.paint.dim(&format!("note: {note}"))),
        );
        lines.join("\n")
    }

    /// What bounds the input that is being evaluated: whoever holds it can cancel that.
    pub fn guard(&self) -> &Arc<Guard> {
        self.script.guard()
    }

    /// Whether an input has ended the session.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the text is the beginning of an input that goes on in the next line.
    pub fn is_incomplete(&self, text: &str) -> bool {
        let is_script = !text.trim_start().starts_with([':', '?']);
        is_script && (pieces::is_open(text) || self.script.is_incomplete(text))
    }

    /// Evaluates an input: a piece of script, a command, or a question.
    pub fn submit(&mut self, text: &str) -> Outcome {
        self.take_up_version();
        let input = text.trim();
        let answered = match (input.strip_prefix(':'), input.strip_prefix('?')) {
            (Some(command), _) => self.command(command),
            (_, Some("")) => self.command("help"),
            (_, Some(name)) => self.explain(name.trim()),
            _ if self.is_plain_word(input) => self.command(input),
            _ => self.evaluated(text.trim_end()),
        };
        match answered {
            Ok(text) => Outcome {
                text,
                is_error: false,
            },
            Err(error) => Outcome {
                text: error.render(self.paint.color).trim_end().to_string(),
                is_error: true,
            },
        }
    }

    /// Whether an input is a command that people type without its colon.
    fn is_plain_word(&self, input: &str) -> bool {
        ["help", "quit", "exit"].contains(&input) && !self.script.has_variable(input)
    }

    /// What has happened beside the inputs since the last call: a script that is watched was saved.
    pub fn news(&self) -> Option<String> {
        lock(self.watched.as_ref()?).poll()
    }

    /// What tells news from another thread, while the session waits for an input.
    pub(super) fn teller(&self) -> Option<Arc<Mutex<Watched>>> {
        self.watched.clone()
    }

    /// A piece of script with its answer.
    pub(super) fn evaluated(&mut self, text: &str) -> Result<String, ScriptError> {
        let evaluated = self.script.evaluate(text)?;
        let is_signal = |answer: &Answer| match answer {
            Answer::Tensor(computed) => matches!(computed.level(), Level::Response | Level::Token),
            _ => false,
        };
        if !text.trim().is_empty() {
            self.typed.push(Typed {
                text: text.to_string(),
                has_value: !matches!(evaluated.answer, Answer::Nothing),
                is_signal: is_signal(&evaluated.answer),
            });
        }
        let mut lines = evaluated.prints;
        let note = |note: &String| self.paint.dim(&format!("note: {note}"));
        lines.extend(evaluated.notes.iter().map(note));
        let metric = |(name, value): &(String, f64)| {
            format!("metric {name} {}", crate::figures::value(*value))
        };
        lines.extend(evaluated.metrics.iter().map(metric));
        lines.extend(show::answer(&evaluated.answer, self.paint));
        Ok(lines.join("\n"))
    }

    /// What a name is: a command, a function, or a recipe.
    pub(super) fn explain(&mut self, name: &str) -> Result<String, ScriptError> {
        let bare = name.trim_start_matches(':');
        if let Some(command) = super::command::COMMANDS.iter().find(|row| row.name == bare)
            && (name.starts_with(':') || !doc::is_known(name))
        {
            let call = format!(":{} {}", command.name, command.arguments);
            return Ok(format!(
                "{}\n  {}",
                self.paint.bold(call.trim_end()),
                command.doc
            ));
        }
        doc::explain(&self.plain, name, self.paint)
    }

    /// Goes on with other data.
    pub(super) fn use_data(&mut self, data: Data) -> Result<(), ScriptError> {
        if let Some(script) = &data.script {
            let recipe = self.plain.load(script)?;
            self.script.use_recipe(Some(recipe));
        }
        if let Some(watched) = &self.watched {
            lock(watched).set_batch(data.batch.clone())?;
        }
        self.script.set_batch(&data.batch);
        self.data = data;
        Ok(())
    }

    /// Makes the newest version of a watched script the recipe in use.
    fn take_up_version(&mut self) {
        let Some(watched) = &self.watched else { return };
        let newest = lock(watched).recipe().clone();
        let in_use = self.script.recipe().map(Recipe::version);
        if in_use != Some(newest.version()) {
            self.script.use_recipe(Some(newest));
        }
    }
}
