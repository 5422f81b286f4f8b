//! The recipe in use: a loaded one, a run's, a watched one, or what was typed.

use super::command::{self, Watched, lock, wrong};
use super::data::Data;
use super::session::{Session, join};
use crate::report::study::with_advantage;
use advlab::diagnostic::Diagnostics;
use advlab::script::{Hook, Outcome, Recipe, State};
use advlab::session::is_typed;
use advlab_train::RunFolder;

impl Session {
    /// Makes a recipe the one in use, as `:recipe` does.
    pub fn use_recipe(&mut self, recipe: Recipe) {
        self.choose(Some(recipe));
    }

    /// The recipe in use; without one, what was typed: its last value per response or token is the advantage.
    pub(super) fn recipe(&self) -> Result<Recipe, Diagnostics> {
        if let Some(recipe) = self.script.recipe() {
            return Ok(recipe.clone());
        }
        if self.script.inputs().has_advantage() {
            return self.script.typed_recipe();
        }
        let help =
            "`:recipe grpo` loads one; a formula with a value per response or token counts too";
        Err(wrong("no recipe is loaded", help))
    }

    /// The recipe that words name, with its settings, `passk k=4`; the recipe in use if there are no words.
    pub(super) fn recipe_of(&self, words: &str) -> Result<Recipe, Diagnostics> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.split_first() {
            Some((name, settings)) => command::named(self, name, settings),
            None => self.recipe(),
        }
    }

    /// Runs a recipe on the batch, from the state that `init` makes.
    pub(super) fn try_recipe(&self, recipe: &Recipe) -> Result<(Outcome, State), Diagnostics> {
        self.script.guard().rearm();
        let mut state = recipe.init()?;
        let (batch, _) = with_advantage(recipe, &self.data.batch)?;
        let outcome = recipe.advantage(&batch, &mut state)?;
        Ok((outcome, state))
    }

    /// Makes a recipe the one in use, or none. Returns a line if that ends the watching of a script.
    pub(super) fn choose(&mut self, recipe: Option<Recipe>) -> Option<String> {
        self.script.use_recipe(recipe);
        self.lacks_helper = false;
        let unwatched = self.unwatch()?;
        Some(self.paint.dim(&unwatched))
    }

    /// Changes the settings of the recipe in use.
    pub(super) fn change_settings(&mut self, recipe: Recipe) {
        if let Some(watched) = lock(&self.watched).as_mut() {
            watched.last = recipe.clone();
        }
        self.script.use_recipe(Some(recipe));
    }

    /// Follows a script, whose newest version becomes the recipe in use.
    pub(super) fn watch(&mut self, watched: Watched) {
        self.choose(Some(watched.last.clone()));
        *lock(&self.watched) = Some(watched);
    }

    /// Ends the watching of a script. Returns a line with its name.
    pub(super) fn unwatch(&mut self) -> Option<String> {
        let watched = lock(&self.watched).take()?;
        Some(format!("{} is not watched any more", watched.name))
    }

    /// Makes the newest version of a watched script the recipe in use.
    pub(super) fn take_up_version(&mut self) {
        let newest = lock(&self.watched).as_ref().map(|one| one.last.clone());
        let Some(newest) = newest else { return };
        let in_use = self.script.recipe().map(Recipe::version);
        if in_use != Some(newest.version()) {
            self.script.use_recipe(Some(newest));
        }
    }

    /// Whether a recipe is the version that the run used.
    pub(super) fn is_of_run(&self, recipe: &Recipe) -> bool {
        self.run_version.as_ref() == Some(recipe.version())
    }

    /// Loads the version that the run used at the batch's step, unless the user chose a recipe. Returns a note if that fails: the
    /// batch can be used all the same.
    pub(super) fn use_recipe_of_run(&mut self, data: &Data) -> Option<String> {
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
        let note = RunFolder::state_note(&recipe);
        self.run_version = Some(recipe.version().clone());
        self.script.use_recipe(Some(recipe));
        note
    }

    /// Uses the loss of the batch's run, or the default one. Returns a note if it cannot be read.
    pub(super) fn use_loss_of_run(&mut self, data: &Data) -> Option<String> {
        let loss = data.run.as_ref().map(|(kept, _)| kept.loss(&self.host));
        let (loss, note) = match loss.transpose() {
            Ok(loss) => (loss, None),
            Err(error) => (
                None,
                Some(format!("its loss recipe is not loaded: {error}")),
            ),
        };
        self.script.set_loss(loss);
        note
    }

    /// Makes what was typed the recipe in use, where the last input is a part of it: what was defined last counts. Says
    /// so where that is news.
    pub(super) fn take_up_typed(&mut self, functions: &[String]) -> Option<String> {
        let in_use = self.script.recipe();
        let was_typed = in_use.is_some_and(is_typed);
        let is_hook = |name: &String| Hook::ALL.iter().any(|hook| hook.name() == name);
        let has_hook = functions.iter().any(is_hook);
        if functions.is_empty() || !(has_hook || was_typed || self.lacks_helper) {
            return None;
        }
        if !self.script.inputs().has_hook() {
            let text = "a recipe has an `advantage(batch, p)` or a `loss(batch, p)` too";
            return Some(self.dimmed(text));
        }
        let before = in_use.map(|recipe| match (&self.data.run, self.is_of_run(recipe)) {
            (Some((kept, _)), true) => kept.folder().display().to_string(),
            _ => recipe.name().to_string(),
        });
        let recipe = match self.script.typed_recipe() {
            Ok(recipe) => recipe,
            // The user has been told what is still missing.
            Err(_) if self.lacks_helper && !has_hook => return None,
            Err(error) => {
                self.lacks_helper = true;
                let stays = match before {
                    Some(name) => format!("not used yet: the recipe is still {name}"),
                    None => "not a recipe yet".to_string(),
                };
                let rendered = error.render_within(self.paint);
                return Some(format!("{stays}\n{}", rendered.trim_end()));
            }
        };
        let hooks = Hook::OF_BATCH.into_iter().filter(|&hook| recipe.has(hook));
        let calls: String = hooks.map(|hook| format!("{}(), ", hook.name())).collect();
        let unwatched = self.choose(Some(recipe));
        if was_typed {
            return unwatched;
        }
        let back = before.map(|name| format!("; `:recipe {name}` goes back"));
        let back = back.unwrap_or_default();
        let news = format!("what you typed is the recipe now, for {calls}:run, :curve{back}");
        Some(join(self.dimmed(&news), unwatched))
    }
}
