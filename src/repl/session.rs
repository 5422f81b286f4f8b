//! The session: text in, replies out.

mod for_commands;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::command::{self, Watched, lock};
use super::data::Data;
use super::show;
use crate::batch::Mapping;
use crate::diagnostic::Diagnostics;
use crate::paint::{Paint, width, wrapped};
use crate::script::{Defines, Hook, Host, Recipe, Session as Script, Version, is_typed};
use crate::tensor::Guard;
use crate::train::Kept;

/// The reply to an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Lines without a line break at the end; empty where there is nothing to show.
    pub text: String,
    /// Whether the input was wrong.
    pub is_error: bool,
}

/// Lets somebody edit a file, and returns when they are done.
type Editor = Box<dyn FnMut(&Path) -> io::Result<()>>;

/// A session at a prompt: a batch, a recipe, what was typed, and the commands.
///
/// It knows no terminal: text goes in, text comes out.
///
/// ```
/// use advlab::repl::{Paint, Session};
/// use advlab::Host;
///
/// let mut session = Session::new(&Host::new(), Paint::PLAIN);
/// let reply = session.submit("batch.reward.mean(\"batch\").value() > 0.3");
/// assert_eq!(reply.text, "true");
/// ```
pub struct Session {
    pub(super) script: Script,
    pub(super) paint: Paint,
    /// The host that was given: bounded call by call, for what goes on beside the inputs.
    host: Host,
    data: Data,
    /// The version that was loaded with a run's batch.
    run_version: Option<Version>,
    /// Whether a typed hook is no recipe yet: a function that is typed may be what it lacks.
    lacks_helper: bool,
    /// The last piece of script, right or wrong.
    last_input: String,
    /// The scripts that the session itself wrote, with their text.
    saved: BTreeMap<PathBuf, String>,
    watched: Option<Arc<Mutex<Watched>>>,
    editor: Option<Editor>,
    is_over: bool,
}

impl Session {
    /// A session on the built-in batch.
    pub fn new(host: &Host, paint: Paint) -> Session {
        let data = Data::builtin();
        Session {
            script: Script::new(host, &data.batch),
            paint,
            host: host.clone(),
            data,
            run_version: None,
            lacks_helper: false,
            last_input: String::new(),
            saved: BTreeMap::new(),
            watched: None,
            editor: None,
            is_over: false,
        }
    }

    /// Gives `:edit` an editor: a function that returns when the file has been edited. Without one it is refused.
    pub fn set_editor(&mut self, edit: impl FnMut(&Path) -> io::Result<()> + 'static) {
        self.editor = Some(Box::new(edit));
    }

    /// Goes on with the batch of a path: a file of rollouts, whose fields may have other names, a run's folder, or a
    /// script with a test batch.
    ///
    /// # Errors
    /// [`Diagnostics`] of what cannot be read.
    pub fn open(&mut self, path: &Path, map: &[Mapping]) -> Result<(), Diagnostics> {
        let data = Data::open(&self.host, path, map)?;
        self.use_data(data)
    }

    /// Makes a recipe the one in use, as `:recipe` does.
    pub fn use_recipe(&mut self, recipe: Recipe) {
        self.choose(Some(recipe));
    }

    /// The batch's name and shape in a line; what was read otherwise than it stands in the file follows.
    pub fn about_data(&self) -> String {
        let shape = show::shape(self.data.batch.layout());
        let name = &self.data.name;
        let is_long = width(name) + 2 + width(&shape) > self.paint.width;
        let space = if is_long { "\n  " } else { " " };
        let mut lines = vec![format!("{}:{space}{shape}", self.paint.bold(name))];
        if let Some((kept, _)) = &self.data.run {
            lines.extend(self.about_run(kept).map(|line| self.wrapped("  ", &line)));
        }
        let notes = self.data.notes.iter();
        lines.extend(notes.map(|note| self.note(note)));
        lines.join("\n")
    }

    fn about_run(&self, kept: &Kept) -> [String; 2] {
        let steps = match kept.batches() {
            [(only, _)] => format!("the only batch that the run has kept, of step {only}"),
            batches => format!(
                "one of {} batches of the run, of steps {first} to {}: `:batch {first}`",
                batches.len(),
                kept.last().0,
                first = batches[0].0
            ),
        };
        let recipe = match self.script.recipe() {
            Some(recipe) if self.is_of_run(recipe) => {
                format!("its recipe is loaded: {}", command::title(recipe))
            }
            _ => format!("`:recipe {}` loads its recipe", kept.folder().display()),
        };
        [steps, recipe]
    }

    fn wrapped(&self, start: &str, text: &str) -> String {
        wrapped(start, text, self.paint.width)
    }

    /// A note on an answer, in lines.
    pub(super) fn note(&self, note: &str) -> String {
        let text = self.wrapped("", &format!("note: {note}"));
        self.paint.dim(&text)
    }

    /// Whether a recipe is the one that the run used.
    fn is_of_run(&self, recipe: &Recipe) -> bool {
        self.run_version.as_ref() == Some(recipe.version())
    }

    /// Bounds the input that is being evaluated: whoever holds it can cancel that.
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
    pub fn submit(&mut self, text: &str) -> Reply {
        self.take_up_version();
        let input = text.trim();
        let answered = if let Some(command) = input.strip_prefix(':') {
            command::run(self, command)
        } else if let Some(name) = input.strip_prefix("??") {
            command::source(self, name.trim())
        } else if let Some(name) = input.strip_prefix('?') {
            command::help(self, name.trim())
        } else if self.is_plain_word(input) {
            command::run(self, input.trim_end_matches("()"))
        } else {
            self.evaluated(text.trim_end())
        };
        match answered {
            Ok(text) => Reply {
                text,
                is_error: false,
            },
            Err(error) => Reply {
                text: error.render_within(self.paint).trim_end().to_string(),
                is_error: true,
            },
        }
    }

    /// Whether an input is a command that people type without its colon.
    fn is_plain_word(&self, input: &str) -> bool {
        let word = input.trim_end_matches("()");
        let is_command = ["help", "quit", "exit"].contains(&word) || input == "q()";
        is_command && !self.script.has_variable(word)
    }

    /// The news since the last call: a script that is watched was saved.
    pub fn news(&self) -> Option<String> {
        lock(self.watched.as_ref()?).poll()
    }

    /// Tells news from another thread, while the session waits for an input.
    pub(super) fn teller(&self) -> Option<Arc<Mutex<Watched>>> {
        self.watched.clone()
    }

    /// Makes what was typed the recipe in use, where the last input is a part of it: what was defined last counts. Says
    /// so where that is news.
    fn take_up_typed(&mut self, defines: Defines) -> Option<String> {
        let in_use = self.script.recipe();
        let was_typed = in_use.is_some_and(is_typed);
        let is_part = match defines {
            Defines::Hook => true,
            Defines::Helpers => was_typed || self.lacks_helper,
            Defines::Nothing => false,
        };
        if !is_part {
            return None;
        }
        if !self.script.inputs().has_hook() {
            let text = "a recipe has an `advantage(batch, p)` or a `loss(batch, p)` too";
            return Some(self.paint.dim(text));
        }
        let before = in_use.map(|recipe| match (&self.data.run, self.is_of_run(recipe)) {
            (Some((kept, _)), true) => kept.folder().display().to_string(),
            _ => recipe.name().to_string(),
        });
        let recipe = match self.script.typed_recipe() {
            Ok(recipe) => recipe,
            // The user has been told what is still missing.
            Err(_) if self.lacks_helper && defines == Defines::Helpers => return None,
            Err(error) => {
                self.lacks_helper = true;
                let stays = match before {
                    Some(name) => format!("{name} stays the recipe, as this is none yet"),
                    None => "this is no recipe yet".to_string(),
                };
                let rendered = error.render_within(self.paint);
                return Some(format!("{stays}\n{}", rendered.trim_end()));
            }
        };
        let hooks = [Hook::Advantage, Hook::Loss].into_iter();
        let calls: String = hooks
            .filter(|&hook| recipe.has(hook))
            .map(|hook| format!("{}(), ", hook.name()))
            .collect();
        let unwatched = self.choose(Some(recipe));
        if was_typed {
            return unwatched;
        }
        let back = before.map(|name| format!("; `:recipe {name}` goes back"));
        let back = back.unwrap_or_default();
        let text = format!("what you typed is the recipe now, for {calls}:run, :curve{back}");
        let news = self.paint.dim(&self.wrapped("", &text));
        Some(join(news, unwatched))
    }

    /// Goes on with the version that the run used at the batch's step, unless a recipe was chosen otherwise. Gives why
    /// that cannot be: the batch is worth having all the same.
    fn use_recipe_of_run(&mut self, data: &Data) -> Option<String> {
        let (kept, step) = data.run.as_ref()?;
        let in_use = self.script.recipe();
        if in_use.is_some_and(|recipe| !self.is_of_run(recipe)) {
            return None;
        }
        let mut recipe = match kept.recipe_at(&self.host, *step) {
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

/// A string, and a line below it where there is one.
pub(super) fn join(text: String, line: Option<String>) -> String {
    [text]
        .into_iter()
        .chain(line)
        .collect::<Vec<_>>()
        .join("\n")
}
