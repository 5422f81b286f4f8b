//! The dry runs that a version must pass before a step uses it.

use std::sync::Arc;

use super::follow::Observed;
use crate::batch::Batch;
use crate::check::{DEGENERATE, Variant, usual};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::script::{Hook, Host, Recipe, State};
use crate::tensor::Guard;

/// Groups of a small batch: more than one, so that a mean over the batch is not one over the group.
const GROUPS: usize = 3;
/// Responses per group of a small batch. The groups of most runs keep their size, as `k` is chosen for it.
const GROUP_SIZE: usize = 256;
/// Tokens per response of a small batch.
const TOKENS: usize = 8;

/// The dry runs of a new version, all under one guard.
pub(super) struct DryRuns<'a> {
    /// The new version, on `host`.
    pub(super) candidate: &'a Recipe,
    pub(super) host: &'a Host,
    pub(super) guard: &'a Guard,
    pub(super) last: Option<Arc<Observed>>,
    pub(super) failed_on: Option<Arc<Observed>>,
}

impl DryRuns<'_> {
    /// Returns warnings.
    pub(super) fn run(&self) -> Result<Vec<Diagnostic>, Diagnostics> {
        let initial = self.candidate.init()?;
        let Some(last) = &self.last else {
            // Nothing is known of the run's columns and groups yet, so only a script without an end is sure to be wrong.
            return match dry_run(self.candidate, &usual(), &initial) {
                Err(error) if self.guard.check().is_err() => Err(on(error, "a small batch")),
                _ => Ok(Vec::new()),
            };
        };
        let state = self.state_after(last)?;
        dry_run(self.candidate, &last.batch, &state)
            .map_err(|error| on(error, "the last batch"))?;
        if let Some(other) = &self.failed_on
            && !Arc::ptr_eq(last, other)
        {
            let state = self.state_after(other)?;
            let what = "the batch on which a version failed at a step";
            self.compare(what, &other.batch, &state, other)?;
        }
        let small = small(&last.batch);
        let mut warnings = Vec::new();
        for (name, is_common, of) in DEGENERATE {
            let batch = of(&small);
            let name = if is_common {
                format!("a batch whose responses are {name}")
            } else {
                name.to_string()
            };
            let Err(error) = self.compare(&name, &batch, &state, last) else {
                continue;
            };
            if is_common || self.guard.check().is_err() {
                return Err(error);
            }
            // The batch may never come.
            let mut warning = error[0].clone();
            warning.severity = Severity::Warning;
            warning.message = format!("this would fail on {name}: {}", warning.message);
            warnings.push(warning);
        }
        Ok(warnings)
    }

    /// The state of the run, migrated to the new version.
    fn state_after(&self, observed: &Observed) -> Result<State, Diagnostics> {
        if self.candidate.version() == observed.in_use.loaded.version() {
            return Ok(observed.in_use.state.clone());
        }
        self.candidate
            .migrate(&observed.in_use.state)
            .map_err(|error| on(error, "the run's state"))
    }

    /// An error of the new version, if the version in use has none on the same batch.
    fn compare(
        &self,
        what: &str,
        batch: &Batch,
        state: &State,
        observed: &Observed,
    ) -> Result<(), Diagnostics> {
        let Err(error) = dry_run(self.candidate, batch, state) else {
            return Ok(());
        };
        let in_use = observed.in_use.loaded.recipe.on(self.host);
        let is_new = self.guard.check().is_err()
            || dry_run(&in_use, batch, &observed.in_use.state).is_ok()
            // The version in use used up the remaining time: that does not excuse the new one.
            || self.guard.check().is_err();
        if is_new { Err(on(error, what)) } else { Ok(()) }
    }
}

/// The first responses of a run's batch, for degenerate ones in its likeness.
fn small(batch: &Batch) -> Batch {
    let layout = batch.layout();
    let groups = 0..layout.groups().min(GROUPS);
    let taken = groups.flat_map(|group| layout.members(group).iter().take(GROUP_SIZE));
    let taken: Vec<usize> = taken.map(|&response| response as usize).collect();
    Variant::of(&batch.select(&taken)).lengths(&|_| TOKENS)
}

/// All that a step calls, in a copy of the state.
fn dry_run(recipe: &Recipe, batch: &Batch, state: &State) -> Result<(), Diagnostics> {
    recipe.returns(batch, state)?;
    let mut state = state.clone();
    let outcome = recipe.advantage(batch, &mut state)?;
    // A recipe that only has a loss has computed it already, for its advantage.
    if recipe.has(Hook::Advantage) && recipe.has(Hook::Loss) {
        recipe.loss(
            &outcome.weighted(batch),
            Some(&outcome.advantage),
            &mut state,
        )?;
    }
    Ok(())
}

fn on(mut error: Diagnostics, what: &str) -> Diagnostics {
    let notes = &mut error.first_mut().notes;
    notes.push(format!("in a dry run on {what}"));
    error
}
