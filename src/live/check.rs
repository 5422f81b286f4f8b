//! The dry runs that a version must pass before a step uses it.

use std::sync::Arc;

use super::InUse;
use super::follow::Observed;
use crate::batch::Batch;
use crate::check::{DEGENERATE, dry_run, shortened, usual};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::script::{Recipe, State};

/// Groups of a small batch: more than one, so that a mean over the batch differs from one over the group.
const GROUPS: usize = 3;
/// Responses per group of a small batch. The groups of most runs keep their size, as `k` is chosen for it.
const GROUP_SIZE: usize = 256;
/// Tokens per response of a small batch.
const TOKENS: usize = 8;

/// The dry runs of a new version, all under the guard of its host: on the last batch, on the last one on which a version failed
/// at a step, and on small ones. Returns warnings.
pub(super) fn dry_runs(
    candidate: &Recipe,
    last: Option<&Arc<Observed>>,
    failed_on: Option<&Arc<Observed>>,
) -> Result<Vec<Diagnostic>, Diagnostics> {
    let (guard, initial) = (candidate.host().guard(), candidate.init()?);
    let Some(last) = last else {
        // The run's columns and groups are still unknown, so only a script that does not terminate is certainly wrong.
        return match dry_run(candidate, &usual(), &initial, true) {
            Err(error) if guard.check().is_err() => Err(on(error, "a small batch")),
            _ => Ok(Vec::new()),
        };
    };
    let state = state_after(candidate, last)?;
    dry_run(candidate, &last.batch, &state, true).map_err(|error| on(error, "the last batch"))?;
    if let Some(other) = failed_on.filter(|other| !Arc::ptr_eq(last, other)) {
        let state = state_after(candidate, other)?;
        let what = "the batch on which a version failed at a step";
        compare(candidate, what, &other.batch, &state, other)?;
    }
    let small = small(&last.batch);
    let mut warnings = Vec::new();
    for (name, is_common, of) in DEGENERATE {
        let name = match is_common {
            true => format!("a batch whose responses are {name}"),
            false => name.to_string(),
        };
        let Err(error) = compare(candidate, &name, &of(&small), &state, last) else {
            continue;
        };
        if is_common || guard.check().is_err() {
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

/// The state of the run after migration to the new version.
fn state_after(candidate: &Recipe, observed: &Observed) -> Result<State, Diagnostics> {
    let InUse { loaded, state } = &observed.in_use;
    if candidate.version() == loaded.version() {
        return Ok(state.clone());
    }
    let migrated = candidate.migrate(state);
    migrated.map_err(|error| on(error, "the run's state"))
}

/// The new version's error on a batch, if the version in use succeeds on the same batch.
fn compare(
    candidate: &Recipe,
    what: &str,
    batch: &Batch,
    state: &State,
    observed: &Observed,
) -> Result<(), Diagnostics> {
    let Err(error) = dry_run(candidate, batch, state, true) else {
        return Ok(());
    };
    let guard = candidate.host().guard();
    let in_use = observed.in_use.loaded.recipe.on(candidate.host());
    let is_new = guard.check().is_err()
        || dry_run(&in_use, batch, &observed.in_use.state, true).is_ok()
        // If the version in use took all the remaining time, the new version's error still counts.
        || guard.check().is_err();
    if is_new { Err(on(error, what)) } else { Ok(()) }
}

/// The first responses of a run's batch, from which degenerate batches are made.
fn small(batch: &Batch) -> Batch {
    let layout = batch.layout();
    let groups = 0..layout.groups().min(GROUPS);
    let taken = groups.flat_map(|group| layout.members(group).iter().take(GROUP_SIZE));
    let taken: Vec<usize> = taken.map(|&response| response as usize).collect();
    shortened(&batch.select(&taken), &|_| TOKENS)
}

fn on(mut error: Diagnostics, what: &str) -> Diagnostics {
    let notes = &mut error.first_mut().notes;
    notes.push(format!("in a dry run on {what}"));
    error
}
