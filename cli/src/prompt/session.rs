//! The state of a session: its batch, the recipe in use, and the typed inputs. A new command belongs elsewhere: it needs a line
//! in `mod.rs` and in `help.txt`, and a function in `recipe.rs`, `look.rs` or `source.rs`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::watch::Watching;
use crate::loaded::LoadedBatch;
use crate::number_text::value;
use crate::paint::{Paint, wrapped};
use crate::report::show;
use crate::report::show::shape;
use crate::report::study::{Trial, recipes_of, title};
use crate::{Result, lock, wrong};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{Mapping, ReadOptions, Tokenize, Unscored};
use advlab::script::{Hook, Host, Recipe, unfinished};
use advlab::session::{Answer, Session, is_typed};
use advlab::tensor::Guard;
use advlab_train::RunFolder;

/// The reply to an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The lines of the reply, without a final line break; empty if there is nothing to show.
    pub text: String,
    /// Whether the input caused an error.
    pub is_error: bool,
}

/// The text of a reply.
pub(super) type Answered = Result<String>;

type Editor = Box<dyn FnMut(&Path) -> io::Result<()>>;

/// A session at a prompt: a batch, a recipe, the typed script, and the commands.
///
/// The session does not use a terminal: its inputs and replies are texts.
///
/// ```
/// use advlab_cli::prompt::{Paint, PromptSession};
/// use advlab::Host;
///
/// let mut session = PromptSession::new(&Host::new(), Paint::PLAIN);
/// let reply = session.submit("batch.reward.mean(\"batch\").value() > 0.3");
/// assert_eq!(reply.text, "true");
/// ```
pub struct PromptSession {
    pub(super) script: Session,
    pub(super) paint: Paint,
    /// The height of the window in lines, without the line of the prompt.
    pub(super) height: usize,
    /// The host that loads recipes. Its limits apply to each call, including the calls made by the thread that watches a script.
    pub(super) host: Host,
    pub(super) data: LoadedBatch,
    /// The seed of `batch.random` that the user gave, if any; it also replaces the seeds of runs.
    seed: Option<u64>,
    /// Whether the typed hooks are not a recipe yet, for example because they call a function that the user may type next.
    pub(super) is_unfinished: bool,
    /// The last piece of script that was typed, even if it caused an error.
    pub(super) last_input: String,
    /// The text that `:save` last wrote to each file.
    pub(super) saved: BTreeMap<PathBuf, String>,
    pub(super) watched: Watching,
    /// The editor of `:edit`: a function that returns when the user has edited the file.
    pub editor: Option<Editor>,
    /// The tokenizer that counts the tokens of completions in files that are opened later.
    pub tokenizer: Option<Arc<dyn Tokenize>>,
    /// The treatment of responses whose `reward` or `correct` is null, NaN or missing in files that are opened later.
    pub unscored: Unscored,
    /// Whether an input has ended the session.
    pub is_over: bool,
}

impl PromptSession {
    /// Returns a session on the built-in batch.
    pub fn new(host: &Host, paint: Paint) -> PromptSession {
        let data = LoadedBatch::builtin();
        PromptSession {
            script: Session::new(host, &data.batch),
            paint,
            height: usize::MAX,
            host: host.clone(),
            data,
            seed: None,
            is_unfinished: false,
            last_input: String::new(),
            saved: BTreeMap::new(),
            watched: Watching::default(),
            editor: None,
            tokenizer: None,
            unscored: Unscored::Error,
            is_over: false,
        }
    }

    /// Sets the seed of `batch.random`, which is used even if the batch comes from a run with another seed.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
        self.use_data(self.data.clone());
    }

    /// Opens the batch of a path: a file of rollouts, a folder of such files (the last is read), a run's folder, or a script,
    /// which is used with the built-in batch.
    pub fn open(&mut self, path: &Path, map: &[Mapping]) -> Result<()> {
        let options = ReadOptions {
            map,
            unscored: self.unscored,
            tokenizer: self.tokenizer.as_ref(),
            ..ReadOptions::default()
        };
        let data = LoadedBatch::open(&self.host, path, &options)?;
        self.use_data(data);
        Ok(())
    }

    /// Opens the batch that the run saved at a step, with the recipe's version at that step. Parameters that the user changed
    /// keep their values.
    pub fn go_to(&mut self, step: u64) -> Result<()> {
        let mut data = self.data.at_step(&self.host, step)?;
        if let (Some(recipe), Some(in_use)) = (&mut data.recipe, self.script.recipe()) {
            recipe.keep_settings(in_use);
        }
        self.use_data(data);
        Ok(())
    }

    /// Returns whether the batch is from a run's folder.
    pub fn has_run(&self) -> bool {
        self.data.run.is_some()
    }

    /// Sets the batch's step, `batch.step`.
    pub fn set_step(&mut self, step: u64) {
        let mut data = self.data.clone();
        data.batch = Arc::new((*data.batch).clone().at_step(step));
        self.use_data(data);
    }

    /// Replaces the batch, and also the recipe if a recipe comes with the batch. However, a recipe that the user chose stays in
    /// use if the batch is from a run.
    pub(super) fn use_data(&mut self, mut data: LoadedBatch) {
        let is_tensor = |value| matches!(value, Ok(Answer::Tensor(_)));
        let old = self.script.variables().into_iter();
        let old = old.filter_map(|(name, value)| is_tensor(value).then_some(name));
        let old: Vec<String> = old.collect();
        if !old.is_empty() {
            let note = "these variables hold tensors of the previous batch; define them again for the new batch";
            data.notes.push(format!("{note}: {}", old.join(", ")));
        }
        if let Some(watched) = lock(&self.watched).as_mut() {
            watched.set_batch(data.batch.clone());
        }
        let seed = self.seed.or_else(|| data.run.as_ref()?.0.seed());
        self.host = self.host.clone().with_seed(seed.unwrap_or_default());
        let (seed, loss) = (self.host.seed(), data.loss.clone());
        self.script.set_batch(&data.batch, seed, loss);
        let came = self.data.recipe.as_ref().map(Recipe::version);
        let in_use = self.script.recipe();
        let is_free = in_use.is_none_or(|own| came == Some(own.version()));
        if let Some(recipe) = data.recipe.clone()
            && (is_free || data.run.is_none())
        {
            self.use_recipe(recipe);
        }
        self.data = data;
    }

    /// Returns a text with the batch's name and shape, the recipe that came with the batch, and notes on how the batch was read.
    pub fn about_data(&self) -> String {
        let (name, shape) = (&self.data.name, shape(self.data.batch.layout()));
        let is_long = name.len() + 2 + shape.len() > self.paint.width;
        let space = if is_long { "\n  " } else { " " };
        let mut lines = vec![format!("{}:{space}{shape}", self.paint.bold(name))];
        if let Some((run, _)) = &self.data.run {
            let (first, count) = (run.batches()[0].0, run.batches().len());
            let last = run.last().0;
            let mut about = format!(
                "one of {count} batches, steps {first} to {last} (`:batch N` loads another)"
            );
            if let Some(recipe) = &self.data.recipe {
                about += &format!("; recipe: {}", title(recipe));
            }
            lines.push(wrapped("  ", &about, self.paint.width));
        }
        lines.extend(self.data.notes.iter().map(|note| self.note(note)));
        lines.join("\n")
    }

    /// Dims a note, and wraps it to the terminal's width.
    pub(super) fn note(&self, note: &str) -> String {
        let text = wrapped("", &format!("note: {note}"), self.paint.width);
        self.paint.dim(&text)
    }

    /// Formats an error for the prompt.
    pub(super) fn rendered(&self, error: &Diagnostics) -> String {
        error.render_within(self.paint).trim_end().to_string()
    }

    /// Returns the guard, which limits the input that is being evaluated, and can cancel it from another thread.
    pub fn guard(&self) -> &Arc<Guard> {
        self.script.guard()
    }

    /// Returns whether the text is an incomplete input, so that the next line belongs to it.
    pub fn is_incomplete(&self, text: &str) -> bool {
        !is_command(text) && unfinished(text).goes_on()
    }

    /// Describes the events (for example saves) of a watched script since the last call. Returns `None` if there were no events.
    pub fn news(&self) -> Option<String> {
        lock(&self.watched).as_mut()?.poll()
    }

    /// Evaluates a piece of script.
    pub(super) fn evaluate(&mut self, text: &str) -> Answered {
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

    /// Makes a recipe the recipe in use, as `:recipe` does.
    pub fn use_recipe(&mut self, recipe: Recipe) {
        self.script.use_recipe(Some(recipe));
        self.is_unfinished = false;
    }

    /// Returns the recipe in use. If there is none, returns the typed script as a recipe; its advantage is the last value at
    /// response or token level.
    pub(super) fn recipe(&self) -> Result<Recipe> {
        match self.script.recipe() {
            Some(recipe) => Ok(recipe.clone()),
            None if self.script.inputs().has_advantage() => self.script.typed_recipe(),
            None => Err(wrong(
                "no recipe is loaded",
                "`:recipe grpo` loads one; a formula with a value per response or token is a recipe too",
            )),
        }
    }

    /// Returns the recipes that words name, each name followed by settings, as in `passk k=2 grpo`. Without words, returns the
    /// recipe in use.
    pub(super) fn recipes(&self, words: &str) -> Result<Vec<Recipe>> {
        let words: Vec<&str> = words.split_whitespace().collect();
        if words.is_empty() {
            return Ok(vec![self.recipe()?]);
        }
        let named = recipes_of(&words)?.into_iter();
        let recipes = named.map(|(name, settings)| self.named(name, &settings));
        recipes.collect()
    }

    /// Returns the recipe that words name, with its settings, as in `passk k=4`. Without words, returns the recipe in use.
    pub(super) fn recipe_of(&self, words: &str) -> Result<Recipe> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.split_first() {
            Some((name, settings)) => self.named(name, settings),
            None => self.recipe(),
        }
    }

    /// Returns a recipe by its name: a built-in, a script's path, a version of the batch's run such as `8cdb4e`, or a run's
    /// folder, which selects the version that was used at the run's last batch.
    fn named(&self, name: &str, settings: &[&str]) -> Result<Recipe> {
        let host = self.script.host();
        let is_version = name.len() >= 4 && name.chars().all(|c| c.is_ascii_hexdigit());
        let version = match &self.data.run {
            Some((run, _)) if is_version => run.recipe_named(host, name)?,
            _ => None,
        };
        let mut recipe = match version {
            Some(recipe) => recipe,
            None if Path::new(name).is_dir() => {
                let run = RunFolder::open(Path::new(name))?;
                run.recipe_at(host, run.last().0)?
            }
            None => host.load(name)?,
        };
        for setting in settings {
            assign(&mut recipe, setting)?;
        }
        Ok(recipe)
    }

    /// Runs a recipe on the batch, from the state that `init` makes.
    pub(super) fn trial(&self, recipe: &Recipe) -> Result<Trial> {
        Trial::of(recipe, &self.data.batch)
    }

    /// Uses the newest version of a watched script, if the recipe in use is that script.
    pub(super) fn take_up_version(&mut self) {
        let newest = lock(&self.watched).as_ref().map(|one| one.last.clone());
        if let (Some(mut newest), Some(own)) = (newest, self.script.recipe())
            && own.name() == newest.name()
            && own.version() != newest.version()
        {
            newest.keep_settings(own);
            self.script.use_recipe(Some(newest));
        }
    }

    /// Makes the typed script the recipe in use if the input defined a hook, or a function of the typed recipe. Returns a note
    /// when the script becomes the recipe, or the reason why it cannot; the reason is not repeated after an input that defines no
    /// hook.
    fn take_up_functions(&mut self, functions: &[String]) -> Option<String> {
        let was_typed = self.script.recipe().is_some_and(is_typed);
        let is_hook = |name: &String| Hook::ALL.iter().any(|hook| hook.name() == name);
        let has_hook = functions.iter().any(is_hook);
        let is_part = !functions.is_empty() && (has_hook || was_typed || self.is_unfinished);
        if !is_part || !self.script.inputs().has_hook() {
            return None;
        }
        match self.script.typed_recipe() {
            Ok(recipe) => {
                self.use_recipe(recipe);
                let news =
                    "what you typed is the recipe now; try advantage(), loss(), :run or :curve";
                (!was_typed).then(|| self.paint.dim(news))
            }
            Err(error) => {
                let is_known = std::mem::replace(&mut self.is_unfinished, true) && !has_hook;
                (!is_known).then(|| {
                    format!(
                        "what you typed is not a recipe yet:\n{}",
                        self.rendered(&error)
                    )
                })
            }
        }
    }
}

/// Returns whether an input is a command (`:run`) or a question (`?mean`).
pub(super) fn is_command(text: &str) -> bool {
    text.trim_start().starts_with([':', '?'])
}

/// Sets a parameter, as in `k=8`.
pub(super) fn assign(recipe: &mut Recipe, setting: &str) -> Result<()> {
    let Some((name, text)) = setting.split_once('=') else {
        let message = format!("`{setting}` is not of the form name=value, such as k=8");
        return Err(Diagnostic::error(message).into());
    };
    Ok(recipe.set_text(name.trim(), text.trim())?)
}

/// Parses the number of a step.
pub(super) fn step(text: &str) -> Result<u64> {
    let wrong = |_| Diagnostic::error(format!("`{text}` is not the number of a step"));
    Ok(text.parse().map_err(wrong)?)
}
