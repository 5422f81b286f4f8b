//! The session as commands see it, beside the `script` session and the `paint` that they share with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::super::command::{self, Watched, lock};
use super::super::data::Data;
use super::super::show;
use super::Session;
use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::value;
use crate::script::{Defines, Host, Outcome, Recipe, State, is_typed};

impl Session {
    pub(in crate::repl) fn host(&self) -> &Host {
        &self.host
    }

    pub(in crate::repl) fn batch(&self) -> &Arc<Batch> {
        &self.data.batch
    }

    pub(in crate::repl) fn data(&self) -> &Data {
        &self.data
    }

    pub(in crate::repl) fn last_input(&self) -> &str {
        &self.last_input
    }

    pub(in crate::repl) fn saved(&mut self) -> &mut BTreeMap<PathBuf, String> {
        &mut self.saved
    }

    pub(in crate::repl) fn end(&mut self) {
        self.is_over = true;
    }

    pub(in crate::repl) fn edit(&mut self, file: &Path) -> Result<(), Diagnostics> {
        let Some(edit) = &mut self.editor else {
            let help = "write a file with your editor: `:watch FILE` follows it";
            let error = Diagnostic::error("`:edit` needs a terminal, and there is none here");
            return Err(error.with_help(help).into());
        };
        edit(file).map_err(|error| {
            Diagnostic::error(format!("the editor failed: {error}"))
                .with_help("$VISUAL or $EDITOR names the editor")
                .into()
        })
    }

    /// A piece of script with its answer.
    pub(in crate::repl) fn evaluated(&mut self, text: &str) -> Result<String, Diagnostics> {
        if !text.trim().is_empty() {
            self.last_input = text.to_string();
        }
        let evaluated = self.script.evaluate(text)?;
        let mut lines = evaluated.prints;
        lines.extend(evaluated.notes.iter().map(|note| self.note(note)));
        let metrics = evaluated.metrics.iter();
        lines.extend(metrics.map(|(name, number)| format!("metric {name} {}", value(*number))));
        lines.extend(show::answer(&evaluated.answer, self.paint));
        lines.extend(self.take_up_typed(Defines::of(text)));
        Ok(lines.join("\n"))
    }

    /// The recipe in use; without one, what was typed: its last value per response or token is the advantage.
    pub(in crate::repl) fn recipe(&self) -> Result<Recipe, Diagnostics> {
        if let Some(recipe) = self.script.recipe() {
            return Ok(recipe.clone());
        }
        if self.script.inputs().has_advantage() {
            return self.script.typed_recipe();
        }
        let help =
            "`:recipe grpo` loads one; a formula with a value per response or token counts too";
        let error = Diagnostic::error("no recipe is loaded");
        Err(error.with_help(help).into())
    }

    /// The recipe that words name, with its settings, `passk k=4`; the recipe in use where there are none.
    pub(in crate::repl) fn recipe_of(&self, words: &str) -> Result<Recipe, Diagnostics> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.split_first() {
            Some((name, settings)) => command::named(self, name, settings),
            None => self.recipe(),
        }
    }

    /// Runs a recipe on the batch, from the state that `init` makes.
    pub(in crate::repl) fn try_recipe(
        &self,
        recipe: &Recipe,
    ) -> Result<(Outcome, State), Diagnostics> {
        self.script.guard().rearm();
        let mut state = recipe.init()?;
        let outcome = recipe.advantage(&self.data.batch, &mut state)?;
        Ok((outcome, state))
    }

    /// Makes a recipe the one in use in place of whichever was. Says which script is not watched any more.
    pub(in crate::repl) fn choose(&mut self, recipe: Option<Recipe>) -> Option<String> {
        self.script.use_recipe(recipe);
        self.lacks_helper = false;
        let unwatched = self.unwatch()?;
        Some(self.paint.dim(&unwatched))
    }

    /// Gives the recipe in use other settings.
    pub(in crate::repl) fn change_settings(&mut self, recipe: Recipe) {
        if let Some(watched) = &self.watched {
            lock(watched).set(&recipe);
        }
        self.script.use_recipe(Some(recipe));
    }

    /// Follows a script, whose version is the recipe in use.
    pub(in crate::repl) fn watch(&mut self, watched: Watched) {
        self.choose(Some(watched.recipe().clone()));
        self.watched = Some(Arc::new(Mutex::new(watched)));
    }

    /// Says which script is not watched any more.
    pub(in crate::repl) fn unwatch(&mut self) -> Option<String> {
        let watched = self.watched.take()?;
        Some(format!("{} is not watched any more", lock(&watched).name()))
    }

    pub(in crate::repl) fn use_data(&mut self, mut data: Data) -> Result<(), Diagnostics> {
        if let Some(script) = &data.script {
            let recipe = self.host.load(script)?;
            data.notes.extend(self.choose(Some(recipe)));
        }
        if let Some(watched) = &self.watched {
            lock(watched).set_batch(data.batch.clone())?;
        }
        let old = self.script.tensor_names().join(", ");
        if !old.is_empty() {
            let note = format!(
                "these hold tensors of the batch before; define them again for this one: {old}"
            );
            data.notes.push(note);
        }
        self.script.set_batch(&data.batch);
        data.notes.extend(self.use_recipe_of_run(&data));
        self.data = data;
        Ok(())
    }

    /// Forgets what was typed, a typed recipe too. Says whether a recipe stays.
    pub(in crate::repl) fn reset(&mut self) -> bool {
        self.script.reset();
        self.last_input.clear();
        self.lacks_helper = false;
        let stays = self.script.recipe().is_some_and(|one| !is_typed(one));
        if !stays {
            self.choose(None);
        }
        stays
    }
}
