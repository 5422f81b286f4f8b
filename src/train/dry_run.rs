//! The recipes of a run on its first batch, before there is a folder: a column that the run never has is found here.

use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Builtin, Hook, Recipe, State};

/// A recipe and the loss recipe, each with its state.
pub(super) struct DryRun<'a> {
    pub(super) recipe: (&'a Recipe, &'a State),
    pub(super) loss: (&'a Recipe, &'a State),
}

impl DryRun<'_> {
    /// All that the first step calls, in a copy of the states.
    ///
    /// # Errors
    /// What a hook fails with, with where it happened and what to do: no other version could do the step.
    pub(super) fn on(&self, first: &Batch) -> Result<(), Diagnostics> {
        let (recipe, mut state) = (self.recipe.0, self.recipe.1.clone());
        let outcome = recipe
            .advantage(first, &mut state)
            .map_err(|error| refused(error, recipe))?;
        // A recipe with a loss alone has computed it already: its advantage is made of the loss.
        if !recipe.has(Hook::Advantage) {
            return Ok(());
        }
        let (loss, mut state) = match recipe.has(Hook::Loss) {
            true => (recipe, state),
            false => (self.loss.0, self.loss.1.clone()),
        };
        loss.loss(first, Some(&outcome.advantage), &mut state)
            .map_err(|error| refused(error, loss))?;
        Ok(())
    }
}

/// The error, with where it happened and what to do about it.
fn refused(mut error: Diagnostics, recipe: &Recipe) -> Diagnostics {
    let name = recipe.name();
    let notes = &mut error.first_mut().notes;
    notes.push("in a dry run on the run's first batch".to_string());
    notes.push(match Builtin::find(name) {
            Some(_) => format!(
                "no run was begun: `advlab recipes` lists other recipes, `advlab new FILE --from {name}` copies this one to edit"
            ),
            None => "no run was begun: mend the script, and begin again".to_string(),
    });
    error
}
