//! The session: text in, outcome out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::command::{self, Watched, lock};
use super::data::Data;
use super::show;
use crate::batch::Mapping;
use crate::diagnostic::Diagnostics;
use crate::doc;
use crate::paint::{Paint, wrapped};
use crate::script::{Defines, Hook, Host, Recipe, Session as Script, Version, is_typed};
use crate::tensor::Guard;
use crate::train::Kept;

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
    /// The version that was loaded with a run's batch.
    run_version: Option<Version>,
    /// Whether a typed hook is no recipe yet: a function that is typed may be what it lacks.
    lacks_helper: bool,
    /// The scripts that the session itself wrote, with what it wrote.
    pub(super) saved: BTreeMap<PathBuf, String>,
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
            run_version: None,
            lacks_helper: false,
            saved: BTreeMap::new(),
            watched: None,
            is_over: false,
        }
    }

    /// Goes on with the batch of a path: a file of rollouts, whose fields may have other names, a run's folder, or a
    /// script with a test batch.
    ///
    /// # Errors
    /// [`Diagnostics`] says what is wrong with it.
    pub fn open(&mut self, path: &Path, map: &[Mapping]) -> Result<(), Diagnostics> {
        let data = Data::open(&self.plain, path, map)?;
        self.use_data(data)
    }

    /// Makes a recipe the one in use, as `:recipe` does.
    pub fn use_recipe(&mut self, recipe: Recipe) {
        self.choose(Some(recipe));
    }

    /// What the batch is and where it is from, in a line; what was read otherwise than it stands there follows.
    pub fn about_data(&self) -> String {
        let shape = show::shape(self.data.batch.layout());
        let name = &self.data.name;
        let is_long = name.chars().count() + 2 + shape.chars().count() > self.paint.width;
        let space = if is_long { "\n  " } else { " " };
        let mut lines = vec![format!("{}:{space}{shape}", self.paint.bold(name))];
        if let Some((kept, _)) = &self.data.run {
            lines.extend(self.about_run(kept));
        }
        lines.extend(
            self.data
                .notes
                .iter()
                .map(|note| format!("note: {note}"))
                .map(|note| self.paint.dim(&wrapped("", &note, self.paint.width))),
        );
        lines.join("\n")
    }

    fn about_run(&self, kept: &Kept) -> [String; 2] {
        let batches = kept.batches();
        let steps = match batches {
            [(only, _)] => format!("the only batch that the run has kept, of step {only}"),
            _ => format!(
                "one of {} batches of the run, of steps {} to {}: `:batch {}`",
                batches.len(),
                batches[0].0,
                kept.last().0,
                batches[0].0
            ),
        };
        let recipe = match self.script.recipe() {
            Some(recipe) if self.is_of_run(recipe) => {
                format!("its recipe is loaded: {}", command::title(recipe))
            }
            _ => format!("`:recipe {}` loads its recipe", kept.folder().display()),
        };
        [steps, recipe].map(|line| wrapped("  ", &line, self.paint.width))
    }

    /// Whether a recipe is the one that the run used.
    fn is_of_run(&self, recipe: &Recipe) -> bool {
        self.run_version.as_ref() == Some(recipe.version())
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
        is_script && self.script.is_incomplete(text)
    }

    /// Evaluates an input: a piece of script, a command, or a question.
    pub fn submit(&mut self, text: &str) -> Outcome {
        self.take_up_version();
        let input = text.trim();
        let answered = match (input.strip_prefix(':'), input.strip_prefix('?')) {
            (Some(command), _) => self.command(command),
            (_, Some("")) => self.command("help"),
            (_, Some(name)) => self.explain(name.trim()),
            _ if self.is_plain_word(input) => self.command(input.trim_end_matches("()")),
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
        let word = input.trim_end_matches("()");
        ["help", "quit", "exit"].contains(&word) && !self.script.has_variable(word)
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
    pub(super) fn evaluated(&mut self, text: &str) -> Result<String, Diagnostics> {
        let evaluated = self.script.evaluate(text)?;
        let mut lines = evaluated.prints;
        let note = |note: &String| self.paint.dim(&format!("note: {note}"));
        lines.extend(evaluated.notes.iter().map(note));
        let metric = |(name, value): &(String, f64)| {
            format!("metric {name} {}", crate::figures::value(*value))
        };
        lines.extend(evaluated.metrics.iter().map(metric));
        lines.extend(show::answer(&evaluated.answer, self.paint));
        lines.extend(self.take_up_typed(Defines::of(text)));
        Ok(lines.join("\n"))
    }

    /// Makes what was typed the recipe in use, where the last input is a part of it: what was defined last counts. Says
    /// so where that is news.
    fn take_up_typed(&mut self, defines: Defines) -> Option<String> {
        let in_use = self.script.recipe();
        let was_typed = in_use.is_some_and(is_typed);
        let before = in_use.map(|recipe| match (&self.data.run, self.is_of_run(recipe)) {
            (Some((kept, _)), true) => kept.folder().display().to_string(),
            _ => recipe.name().to_string(),
        });
        match defines {
            Defines::Hook if !self.script.inputs().has_hook() => {
                let text = "a recipe has an `advantage(batch, p)` or a `loss(batch, p)` too";
                return Some(self.paint.dim(text));
            }
            Defines::Hook => {}
            Defines::Helpers if was_typed || self.lacks_helper => {}
            _ => return None,
        }
        let recipe = match self.script.typed_recipe() {
            Ok(recipe) => recipe,
            // What is still missing has been told.
            Err(_) if self.lacks_helper && defines == Defines::Helpers => return None,
            Err(error) => {
                self.lacks_helper = true;
                let stays = match before {
                    Some(name) => format!("{name} stays the recipe, as this is none yet"),
                    None => "this is no recipe yet".to_string(),
                };
                let rendered = error.render(self.paint.color);
                return Some(format!("{stays}\n{}", rendered.trim_end()));
            }
        };
        let hooks = [Hook::Advantage, Hook::Loss].into_iter();
        let calls: Vec<String> = hooks
            .filter(|&hook| recipe.has(hook))
            .map(|hook| format!("{}()", hook.name()))
            .collect();
        let unwatched = self.choose(Some(recipe));
        if was_typed {
            return unwatched;
        }
        let back = match before {
            Some(name) => format!("; `:recipe {name}` goes back"),
            None => String::new(),
        };
        let calls = calls.join(", ");
        let text = format!("what you typed is the recipe now, for {calls}, :run, :curve{back}");
        let lines: Vec<String> = [self.paint.dim(&text)]
            .into_iter()
            .chain(unwatched)
            .collect();
        Some(lines.join("\n"))
    }

    /// Makes a recipe the one in use in place of whichever was. Says which script is not watched any more.
    pub(super) fn choose(&mut self, recipe: Option<Recipe>) -> Option<String> {
        self.script.use_recipe(recipe);
        self.lacks_helper = false;
        let watched = self.watched.take()?;
        let line = format!("{} is not watched any more", lock(&watched).name());
        Some(self.paint.dim(&line))
    }

    /// What a name is: a command, a function, or a recipe.
    pub(super) fn explain(&mut self, name: &str) -> Result<String, Diagnostics> {
        if ["functions", "all", "doc", "topics", "recipes"].contains(&name) {
            return Ok(doc::overview(self.paint));
        }
        let bare = name.trim_start_matches(':');
        let command = command::COMMANDS.iter().find(|row| row.name == bare);
        let about_command = command.map(|command| {
            let call = format!(":{} {}", command.name, command.arguments);
            let call = self.paint.bold(call.trim_end());
            format!("{call}\n{}", wrapped("  ", command.doc, self.paint.width))
        });
        match about_command {
            Some(text) if name.starts_with(':') || !doc::is_known(name) => Ok(text),
            Some(text) => {
                let other = doc::explain(&self.plain, name, self.paint)?;
                Ok(format!("{other}\n\n{text}"))
            }
            None => doc::explain(&self.plain, name, self.paint),
        }
    }

    /// Goes on with other data.
    pub(super) fn use_data(&mut self, mut data: Data) -> Result<(), Diagnostics> {
        if let Some(script) = &data.script {
            let recipe = self.plain.load(script)?;
            data.notes.extend(self.choose(Some(recipe)));
        }
        if let Some(watched) = &self.watched {
            lock(watched).set_batch(data.batch.clone())?;
        }
        let old = self.script.tensor_names();
        if !old.is_empty() {
            let names = old.join(", ");
            let note = format!("of the batch before, and made anew by typing them again: {names}");
            data.notes.push(note);
        }
        self.script.set_batch(&data.batch);
        data.notes.extend(self.use_recipe_of_run(&data));
        self.data = data;
        Ok(())
    }

    /// Goes on with the version that the run used at the batch's step, unless a recipe was chosen otherwise. Gives why that
    /// cannot be: the batch is worth having all the same.
    fn use_recipe_of_run(&mut self, data: &Data) -> Option<String> {
        let (kept, step) = data.run.as_ref()?;
        let in_use = self.script.recipe();
        if in_use.is_some_and(|recipe| !self.is_of_run(recipe)) {
            return None;
        }
        let mut recipe = match kept.recipe_at(&self.plain, *step) {
            Ok(recipe) => recipe,
            Err(error) => return Some(format!("its recipe is not loaded: {error}")),
        };
        if let Some(in_use) = in_use {
            recipe.keep_settings(in_use);
        }
        self.run_version = Some(recipe.version().clone());
        self.script.use_recipe(Some(recipe));
        None
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
