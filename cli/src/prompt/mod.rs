//! The prompt: a session that turns text into replies, and the terminal around it.

mod command;
mod complete;
mod data;
mod diff;
mod look;
mod recipe;
mod show;
mod source;
mod study;
mod terminal;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use advlab::diagnostic::Diagnostics;
use advlab::figures::{shape, value};
use advlab::files::{Mapping, Tokenize};
pub use advlab::paint::Paint;
use advlab::paint::wrapped;
use advlab::script::{Host, unfinished};
use advlab::session::Session as Script;
use advlab::tensor::Guard;

use self::data::Data;
pub use self::data::builtin;
pub use self::terminal::{piped, terminal};
use self::watch::{Watching, lock};

/// The reply to an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Lines without a line break at the end; empty if there is nothing to show.
    pub text: String,
    /// Whether the input was wrong.
    pub is_error: bool,
}

/// The text of a reply.
type Answered = Result<String, Diagnostics>;

/// Lets the user edit a file, and returns when they are done.
type Editor = Box<dyn FnMut(&Path) -> io::Result<()>>;

/// A session at a prompt: a batch, a recipe, what was typed, and the commands.
///
/// It knows no terminal: text goes in, text comes out.
///
/// ```
/// use advlab_cli::prompt::{Paint, Session};
/// use advlab::Host;
///
/// let mut session = Session::new(&Host::new(), Paint::PLAIN);
/// let reply = session.submit("batch.reward.mean(\"batch\").value() > 0.3");
/// assert_eq!(reply.text, "true");
/// ```
pub struct Session {
    script: Script,
    paint: Paint,
    /// The lines of the window, without the one of the prompt.
    height: usize,
    /// Limits each call, also those of the thread that watches a script.
    host: Host,
    data: Data,
    /// The seed of `batch.random`, if it was given: it also holds for the batches of runs.
    seed: Option<u64>,
    /// Whether a typed hook did not compile: the next function that is typed may be the one that it lacks.
    lacks_function: bool,
    /// The last piece of script, right or wrong.
    last_input: String,
    /// The text of each script that `:save` wrote.
    saved: BTreeMap<PathBuf, String>,
    watched: Watching,
    editor: Option<Editor>,
    tokenizer: Option<Arc<dyn Tokenize>>,
    is_over: bool,
}

impl Session {
    /// A session on the built-in batch.
    pub fn new(host: &Host, paint: Paint) -> Session {
        let data = Data::builtin();
        Session {
            script: Script::new(host, &data.batch),
            paint,
            height: usize::MAX,
            host: host.clone(),
            data,
            seed: None,
            lacks_function: false,
            last_input: String::new(),
            saved: BTreeMap::new(),
            watched: Watching::default(),
            editor: None,
            tokenizer: None,
            is_over: false,
        }
    }

    /// Gives `:edit` an editor: a function that returns when the file has been edited.
    pub fn set_editor(&mut self, edit: impl FnMut(&Path) -> io::Result<()> + 'static) {
        self.editor = Some(Box::new(edit));
    }

    /// Counts the tokens of completions with this tokenizer, in files that are opened later.
    pub fn set_tokenizer(&mut self, tokenizer: Option<Arc<dyn Tokenize>>) {
        self.tokenizer = tokenizer;
    }

    /// Draws `batch.random` from this seed, also on the batch of a run that has another.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
        self.use_data(self.data.clone());
    }

    /// Opens the batch of a path: a file of rollouts, a run's folder, or a script with a test batch.
    pub fn open(&mut self, path: &Path, map: &[Mapping]) -> Result<(), Diagnostics> {
        let data = Data::open(&self.host, path, map, self.tokenizer.as_ref())?;
        self.use_data(data);
        Ok(())
    }

    /// Opens the batch that the run has kept of a step. The recipe stays in its settings.
    pub fn go_to(&mut self, step: u64) -> Result<(), Diagnostics> {
        let mut data = self.data.at_step(&self.host, step)?;
        if let (Some(recipe), Some(in_use)) = (&mut data.recipe, self.script.recipe()) {
            recipe.keep_settings(in_use);
        }
        self.use_data(data);
        Ok(())
    }

    /// Treats the batch as one of another step.
    pub fn set_step(&mut self, step: u64) {
        let batch = self.data.batch.as_ref().clone().at_step(step);
        self.use_data(Data {
            batch: Arc::new(batch),
            ..self.data.clone()
        });
    }

    /// Replaces the batch, and the recipe if one comes with the batch; the user's own choice stays beside a run's batch.
    fn use_data(&mut self, data: Data) {
        if let Some(watched) = lock(&self.watched).as_mut() {
            watched.set_batch(data.batch.clone());
        }
        let seed = self.seed.or_else(|| data.run.as_ref()?.0.seed());
        self.host = self.host.clone().with_seed(seed.unwrap_or_default());
        let (seed, loss) = (self.host.seed(), data.loss.clone());
        self.script.set_batch(&data.batch, seed, loss);
        let is_free = self.script.recipe().is_none_or(|own| self.data.has(own));
        if let Some(recipe) = data.recipe.clone()
            && (is_free || data.run.is_none())
        {
            self.use_recipe(recipe);
        }
        self.data = data;
    }

    /// The batch's name and shape, the recipe that came with it, and notes on how it was read.
    pub fn about_data(&self) -> String {
        let (name, shape) = (&self.data.name, shape(self.data.batch.layout()));
        let is_long = name.len() + 2 + shape.len() > self.paint.width;
        let space = if is_long { "\n  " } else { " " };
        let mut lines = vec![format!("{}:{space}{shape}", self.paint.bold(name))];
        if let Some((run, _)) = &self.data.run {
            let (first, count) = (run.batches()[0].0, run.batches().len());
            let last = run.last().0;
            let mut about =
                format!("one of {count} batches, steps {first} to {last}: `:batch {first}`");
            if let Some(recipe) = &self.data.recipe {
                about += &format!("; its recipe: {}", recipe::title(recipe));
            }
            lines.push(wrapped("  ", &about, self.paint.width));
        }
        lines.extend(self.data.notes.iter().map(|note| self.note(note)));
        lines.join("\n")
    }

    /// A dimmed note in lines of the terminal's width.
    fn note(&self, note: &str) -> String {
        let text = wrapped("", &format!("note: {note}"), self.paint.width);
        self.paint.dim(&text)
    }

    /// Limits the input that is being evaluated, and can cancel it from another thread.
    pub fn guard(&self) -> &Arc<Guard> {
        self.script.guard()
    }

    /// Whether an input has ended the session.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the text is an incomplete input, which goes on in the next line.
    pub fn is_incomplete(&self, text: &str) -> bool {
        !is_command(text) && unfinished(text).goes_on()
    }

    /// Evaluates an input: a piece of script, a command, or a question; or several of them that were pasted together, with
    /// each command and question on its own line.
    pub fn submit(&mut self, text: &str) -> Reply {
        let (mut texts, mut is_error) = (Vec::new(), false);
        let mut rest = text;
        while !rest.trim().is_empty() && !self.is_over {
            let (input, more) = rest.split_at(self.first_input(rest));
            rest = more;
            match self.answer(input) {
                Ok(text) => texts.push(text),
                Err(error) => {
                    is_error = true;
                    texts.push(error.render_within(self.paint).trim_end().to_string());
                }
            }
        }
        texts.retain(|text| !text.is_empty());
        let text = texts.join("\n");
        Reply { text, is_error }
    }

    /// Where the first of several inputs ends: before or after a line that is a command.
    fn first_input(&self, text: &str) -> usize {
        let mut end = 0;
        for line in text.split_inclusive('\n') {
            let before = &text[..end];
            let is_next = || is_command(before) || is_command(line) && !self.is_incomplete(before);
            if !before.trim().is_empty() && is_next() {
                break;
            }
            end += line.len();
        }
        end
    }

    fn answer(&mut self, text: &str) -> Answered {
        self.take_up_version();
        let input = text.trim();
        let word = input.trim_end_matches("()");
        if let Some(command) = input.strip_prefix(':') {
            command::run(self, command)
        } else if let Some(name) = input.strip_prefix("??") {
            self.source(name.trim())
        } else if let Some(name) = input.strip_prefix('?') {
            self.help(name.trim())
        } else if ["help", "quit", "exit"].contains(&word) && !self.script.has_variable(word) {
            // Many type these without the colon.
            command::run(self, word)
        } else {
            self.evaluate(text.trim_end())
        }
    }

    /// Evaluates a piece of script.
    fn evaluate(&mut self, text: &str) -> Answered {
        self.last_input = text.to_string();
        let evaluated = self.script.evaluate(text)?;
        let mut lines = evaluated.prints;
        lines.extend(evaluated.notes.iter().map(|note| self.note(note)));
        let metrics = evaluated.metrics.iter();
        lines.extend(metrics.map(|(name, number)| format!("metric {name} {}", value(*number))));
        lines.extend(show::answer(&evaluated.answer, self.paint));
        lines.extend(self.take_up_functions(&evaluated.functions));
        Ok(lines.join("\n"))
    }

    /// What changed since the last call because a watched script was saved.
    pub fn news(&self) -> Option<String> {
        lock(&self.watched).as_mut()?.poll()
    }
}

/// Whether an input is a command or a question.
fn is_command(text: &str) -> bool {
    text.trim_start().starts_with([':', '?'])
}
