//! The dry runs that a version must pass before a step uses it.

use std::sync::Arc;

use super::options::LiveOptions;
use super::version::{InUse, Observed};
use crate::batch::{Batch, Column, Computed, Level};
use crate::check::{DEGENERATE, dry_run, shortened, usual, without, worse};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::number_text::value;
use crate::script::{Outcome, Recipe, State, Statistics, guarded};

/// The maximum number of groups of a small batch. It exceeds 1, so that a mean over the batch differs from a mean over the group.
const GROUPS: usize = 3;
/// The maximum number of groups of the batch on which two versions are compared. The comparison takes dozens of runs.
const COMPARED: usize = 32;
/// The maximum number of responses per group of a small batch. Most runs have smaller groups, which are not cut, because a
/// parameter such as `k` is chosen for their size.
const GROUP_SIZE: usize = 256;
/// The maximum number of tokens per response of a small batch.
const TOKENS: usize = 8;

/// The report on a version that passed: its warnings and its effect.
pub(super) type Passed = (Vec<Diagnostic>, Vec<String>);
pub(super) type DryRuns =
    fn(&Recipe, [Option<&Arc<Observed>>; 2], &LiveOptions) -> Result<Passed, Diagnostics>;

/// Runs a new version on the last batch, on the last batch on which a version failed at a step, and on small batches, all under
/// the guard of its host. In the time that remains, computes the version's effect.
pub(super) fn dry_runs(
    candidate: &Recipe,
    [last, failed_on]: [Option<&Arc<Observed>>; 2],
    options: &LiveOptions,
) -> Result<Passed, Diagnostics> {
    let (guard, initial) = (candidate.host().guard(), candidate.init()?);
    // If no batch of the run has a column `advantage`, the run does not call the loss with an advantage.
    let runs_loss = options.why_lacking("advantage").is_none();
    let compare = |what: &str, batch: &Batch, state: &State, observed: &Observed| {
        compare(candidate, what, (batch, state), observed, runs_loss)
    };
    let on_last = |last: &Arc<Observed>| -> Result<_, Diagnostics> {
        let state = state_after(candidate, last)?;
        let outcome = dry_run(candidate, &last.batch, &state, runs_loss);
        let outcome = outcome.map_err(|error| on(error, "the last batch"))?;
        Ok((last.clone(), state, outcome))
    };
    let tried = last.map(on_last).transpose()?;
    let is_other = |other: &&Arc<Observed>| last.is_none_or(|last| !last.is_same_batch(other));
    if let Some(other) = failed_on.filter(is_other) {
        let state = state_after(candidate, other)?;
        let what = "the batch on which a version failed at a step";
        compare(what, &other.batch, &state, other)?;
    }
    let Some((last, state, outcome)) = &tried else {
        // The run's columns and groups are still unknown, so an error counts only if the time is used up.
        return match dry_run(candidate, &usual(), &initial, runs_loss) {
            Err(error) if guard.check().is_err() => Err(on(error, "a small batch")),
            _ => Ok(Passed::default()),
        };
    };
    let small = small(&last.batch);
    let mut warnings = Vec::new();
    for (name, is_common, of) in DEGENERATE {
        let name = if is_common {
            format!("a batch whose responses are {name}")
        } else {
            name.to_string()
        };
        let Err(error) = compare(&name, &of(&small), state, last) else {
            continue;
        };
        if is_common || guard.check().is_err() {
            return Err(error);
        }
        // This is only a warning, because the run may never meet such a batch.
        let mut warning = error[0].clone();
        warning.severity = Severity::Warning;
        warning.message = format!("this version would fail on {name}: {}", warning.message);
        warnings.push(warning);
    }
    // An error is ignored, because a failed comparison is no reason to reject the version.
    let effect = || effect(candidate, outcome, last);
    let effect = guarded("to compare two versions", effect)
        .and_then(|effect| effect)
        .unwrap_or_default();
    Ok((warnings, effect))
}

/// Fails if a version cannot run a step without a column that the run's batches lack ([`LiveOptions::lacks`]). The version is
/// tried on different batches at different steps, because it may need the column only for some batches: it fails here only if it
/// asks for such a column on all of them. The batches have all other usual columns, and each further column for which the version
/// asks.
pub(super) fn refuse_lacking(recipe: &Recipe, options: &LiveOptions) -> Result<(), Diagnostics> {
    if options.lacks.is_empty() {
        return Ok(());
    }
    let all = usual();
    let names = all.columns().chain(all.texts().map(|(name, _)| name));
    let lacking = names.filter(|name| options.why_lacking(name).is_some());
    let given = lacking.fold(all.clone(), |batch, name| without(&batch, name));
    let variants = DEGENERATE.map(|(_, _, of)| of(&given));
    let fails = |(step, batch): (u64, Batch)| {
        let mut batch = batch.at_step(1000 * step);
        for _ in 0..=recipe.reads().len() {
            let mut error = dry_run(recipe, &batch, &recipe.init().ok()?, false).err()?;
            let name = error[0].missing_column()?.to_string();
            if let Some(why) = options.why_lacking(&name) {
                let first = error.first_mut();
                first.message = format!("no batch of this run has the column `{name}`");
                if first.fixes.is_empty() {
                    first.help = Some(why.to_string());
                }
                return Some(error);
            }
            let values = (0..batch.layout().responses()).map(|response| (response % 3) as f64);
            batch = batch.replacing(&name, Column::Response(values.collect()));
        }
        None
    };
    let batches = [given].into_iter().chain(variants);
    let errors: Option<Vec<Diagnostics>> = (0..).zip(batches).map(fails).collect();
    errors.map_or(Ok(()), |mut errors| Err(errors.swap_remove(0)))
}

fn state_after(candidate: &Recipe, observed: &Observed) -> Result<State, Diagnostics> {
    let InUse { loaded, state } = &observed.in_use;
    if candidate.version() == loaded.version() {
        return Ok(state.clone());
    }
    let migrated = candidate.migrate(state);
    migrated.map_err(|error| on(error, "the run's state"))
}

/// Fails if the new version fails on a batch on which the version in use succeeds, or if the time is used up. If the version in
/// use takes rows of another kind, it counts as successful, because it ran the step of that batch with its own rows.
fn compare(
    candidate: &Recipe,
    what: &str,
    (batch, state): (&Batch, &State),
    observed: &Observed,
    runs_loss: bool,
) -> Result<(), Diagnostics> {
    let Err(error) = dry_run(candidate, batch, state, runs_loss) else {
        return Ok(());
    };
    let guard = candidate.host().guard();
    let in_use = observed.in_use.loaded.recipe.on(candidate.host());
    let is_new = guard.check().is_err()
        || !observed.has_rows_of(&in_use)
        || dry_run(&in_use, batch, &observed.in_use.state, runs_loss).is_ok()
        // If the version in use ran out of time, the new version's error still counts.
        || guard.check().is_err();
    if is_new { Err(on(error, what)) } else { Ok(()) }
}

/// Returns the small batch from which degenerate batches are made: the first tokens of the first groups of a run's batch.
fn small(batch: &Batch) -> Batch {
    shortened(&first(batch, GROUPS), &|_| TOKENS)
}

fn first(batch: &Batch, groups: usize) -> Batch {
    let layout = batch.layout();
    let groups = 0..layout.groups().min(groups);
    let taken: Vec<usize> = groups
        .flat_map(|group| layout.members(group).iter().take(GROUP_SIZE))
        .map(|&response| response as usize)
        .collect();
    batch.select(&taken)
}

/// Describes how a version differs from the version of the last step on the last batch: the correlation and the standard
/// deviations of their advantages, and the checks with worse results. A difference does not reject a version, because it may be
/// intended.
fn effect(
    candidate: &Recipe,
    outcome: &Outcome,
    last: &Observed,
) -> Result<Vec<String>, Diagnostics> {
    let InUse { loaded, state } = &last.in_use;
    let before = loaded.recipe.on(candidate.host());
    if !last.has_rows_of(&before) {
        return Ok(Vec::new());
    }
    let old = before.advantage(&last.batch, &mut state.clone())?;
    let both = [&old.advantage, &outcome.advantage];
    let is_by_token = both.iter().any(|one| one.level() == Level::Token);
    let [a, b] = both.map(|advantage| {
        if is_by_token {
            advantage.per_token().collect()
        } else {
            advantage.by_response()
        }
    });
    let correlation = Statistics::correlation(&a, &b, &vec![1.0; a.len()])
        .map_or(String::new(), |r| format!("correlation {r:.2}, "));
    let [std, now] = both.map(|of: &Computed| value(Statistics::of(of.buffer().iter()).std));
    let numbers = format!(
        "advantage on the last batch compared with the last step's version: {correlation}std {std} -> {now}"
    );
    let worse = worse(&before, candidate, &first(&last.batch, COMPARED));
    Ok([numbers].into_iter().chain(worse).collect())
}

fn on(mut error: Diagnostics, what: &str) -> Diagnostics {
    let notes = &mut error.first_mut().notes;
    notes.push(format!("this happened in a dry run on {what}"));
    error
}
