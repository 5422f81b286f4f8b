//! Checks a recipe on degenerate batches: tests properties that every advantage and every loss must have, and reports notable
//! properties of the recipe. New checks of an advantage go into `invariants.rs`, new checks of a loss into `loss.rs`, and new
//! batches into `batches.rs`.

mod batches;
mod findings;
mod invariants;
mod loss;
mod terms;

use CheckResult::{Fails, Holds};

pub(crate) use self::batches::without;
use self::batches::{ALONE, REJECTED, in_precision, wave, with_what_losses_need};
pub use self::batches::{DEGENERATE, on_policy, regrouped, shortened, usual, with_rewards};
pub use self::findings::{CheckResult, Finding, dry_run};
use self::findings::{Checks, EXACT, LOSS, MIXED};
use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics, ProblemKind};
use crate::number_text::counted;
use crate::script::{Hook, Recipe};

/// Runs the recipe on degenerate batches, and compares the results.
///
/// The batches are made from `input` or, if that is `None`, from a batch with all usual columns. The time and memory limits of
/// one call ([`Limits`](crate::script::Limits) of the recipe's host) apply to all checks together. If the time is used up, the
/// remaining checks are skipped, and a finding says so.
pub fn check(recipe: &Recipe, input: Option<&Batch>) -> Vec<Finding> {
    let recipe = &recipe.for_step();
    let mut checks = Checks::new(recipe);
    let (batch, origin) = input.map_or_else(|| (usual(), String::new()), first_of);
    let Some(base) = checks.runs(MIXED, origin, &batch) else {
        let failed = checks.findings.last_mut().filter(|_| input.is_none());
        let error = failed.and_then(|finding| finding.error.as_mut());
        if let Some(error) = error.map(Diagnostics::first_mut) {
            // The help is replaced because it lists the columns of our own batch, which the user does not know.
            if error
                .help
                .as_ref()
                .is_some_and(|help| help.starts_with("it has"))
            {
                let name = recipe.name();
                error.help = Some(format!(
                    "give rollouts that have this column: `advlab check {name} FILE`"
                ));
            } else if error.kind == ProblemKind::Values {
                let note = "the check's own groups have 4 to 8 responses: `advlab check RECIPE FILE` uses the groups of a file";
                error.notes.push(note.to_string());
            }
        }
        return checks.findings;
    };
    let mut loss_runs = recipe.has(Hook::Loss);
    // If the recipe has only a loss, the loss has run already, because the advantage is computed from it.
    if loss_runs && recipe.has(Hook::Advantage) {
        checks.runs_loss = true;
        loss_runs = checks.runs(LOSS, "", &batch).is_some();
        checks.runs_loss = loss_runs;
    }
    let stages: [&dyn Fn(&mut Checks<'_>); 7] = [
        &|checks| {
            for (check, _, of) in DEGENERATE {
                let batch = of(&batch);
                match checks.runs(check, "", &batch) {
                    Some(outcome) if check == ALONE => checks.groups_of_one(&outcome),
                    Some(outcome) if check == REJECTED => checks.rejected(&batch, &outcome),
                    _ => {}
                }
            }
        },
        &|checks| checks.equal_rewards(&batch),
        &|checks| checks.invariant(&batch, &base),
        &|checks| checks.worth_knowing(&batch, &base),
        &|checks| checks.silent_tokens(&batch, &base),
        &|checks| checks.terms(&batch, loss_runs),
        &|checks| {
            if loss_runs {
                checks.loss(&batch);
                checks.terms_of_the_loss(&batch);
            }
        },
    ];
    let guard = recipe.host().guard();
    for stage in &stages {
        let known = checks.findings.len();
        stage(&mut checks);
        if let Err(stopped) = guard.check() {
            // All findings of the stage are dropped, because the limit that was reached may have caused any of them.
            checks.findings.truncate(known);
            let why = format!("{stopped}: the remaining checks are skipped");
            checks.add("time for all checks", Fails, why);
            break;
        }
    }
    checks.findings
}

/// Returns one line for each check whose result on a batch is worse with a new version of a recipe than with the old version,
/// except checks that report an error, or one line that says that the time was used up. Both versions must have the same guard.
pub(crate) fn worse(old: &Recipe, new: &Recipe, batch: &Batch) -> Vec<String> {
    let guard = new.host().guard();
    let [old, new] = [old, new].map(|recipe| check(recipe, Some(batch)));
    if guard.check().is_err() {
        return vec![
            "the versions' properties were not compared, because the time for the check was used up"
                .to_string(),
        ];
    }
    // Checks that report an error of the new version are skipped, because the dry runs report these errors.
    let told = new.iter().filter(|now| now.error.is_none());
    let line = |now: &Finding| {
        let was = old.iter().find(|was| was.check == now.check)?;
        let what = match was.result {
            Holds => "no longer holds",
            _ => "now fails",
        };
        (was.result < now.result).then(|| format!("{what}: {}: {}", now.check, now.detail))
    };
    told.filter_map(line).collect()
}

/// Returns whether `column` is a usual column without which the recipe, with its current settings, fails on a batch with all
/// other usual columns.
pub fn needs(recipe: &Recipe, column: &str) -> bool {
    let usual = usual();
    let is_there = usual.has(column) || usual.text(column).is_some();
    let without = || dry_run(recipe, &without(&usual, column), &recipe.init()?, true);
    is_there && without().is_err()
}

/// The checks run the recipe dozens of times, so they use only the first groups of a batch: two groups, and then further groups
/// until the groups together have this number of responses or of tokens.
const RESPONSES: usize = 1024;
const TOKENS: usize = 1 << 16;
/// The maximum number of tokens of all responses together, unless there are so many responses that 8 tokens of each exceed it.
/// Longer responses are cut, because a `length` column may claim more tokens than memory can hold.
const CELLS: usize = 1 << 21;

/// Returns the first groups of a batch, in f64 and with the columns that losses need, and a description of the selection.
fn first_of(batch: &Batch) -> (Batch, String) {
    let layout = batch.layout();
    let length = |response: &usize| layout.tokens_of(*response).len();
    let (mut groups, mut taken) = (0, Vec::new());
    while groups < layout.groups()
        && (groups < 2
            || taken.len() < RESPONSES && taken.iter().map(length).sum::<usize>() < TOKENS)
    {
        taken.extend(layout.members(groups).iter().map(|&i| i as usize));
        groups += 1;
    }
    taken.sort_unstable();
    let most = (CELLS / taken.len().max(1)).max(8);
    let first = in_precision(&batch.select(&taken), true);
    let first = shortened(&first, &|_| most);
    let mut origin = if groups == layout.groups() {
        format!("the batch's {}", counted(groups, "group"))
    } else {
        format!(
            "the first {groups} of the batch's {} groups",
            layout.groups()
        )
    };
    if taken.iter().map(length).any(|length| length > most) {
        origin.push_str(&format!(", the first {most} tokens of each response"));
    }
    (with_what_losses_need(&first), origin)
}

/// Returns a warning if descent on the recipe's loss moves the probabilities against its advantage or the reward.
pub fn flipped_loss(recipe: &Recipe) -> Option<Diagnostic> {
    // An error is ignored, because the sign cannot be checked if the recipe fails on this batch.
    let sign = Checks::new(recipe).sign(&on_policy(&usual()));
    let (_, detail) = sign.ok().filter(|(result, _)| *result == Fails)?;
    let message = format!("sign of the loss: {detail}");
    Some(Diagnostic::warning(message).with_note(format!("in {}", recipe.name())))
}

/// Returns whether a group keeps its advantages when it is the whole batch. This is tried on the first groups of `batch`, with
/// their own rewards and with other rewards, and on a batch with all usual columns.
///
/// # Errors
/// [`Diagnostics`] if the recipe fails on the batch.
pub fn groups_are_independent(recipe: &Recipe, batch: &Batch) -> Result<bool, Diagnostics> {
    let checks = Checks::new(recipe);
    let (batch, _) = first_of(batch);
    // The groups get different fractions of right responses, because otherwise a mean over the batch would equal the mean over
    // each group.
    let unlike = with_rewards(&batch, |response, group| {
        let share = 1.0 + (group % 3) as f64;
        f64::from(u8::from(wave(response, group, 6) * 4.0 < share))
    });
    let influence = |batch: &Batch| -> Result<f64, Diagnostics> {
        let base = checks.advantage(batch)?;
        // A recipe that fails only if a group is the whole batch depends on the other groups.
        Ok(checks.influence(batch, &base).unwrap_or(f64::INFINITY))
    };
    let mut most = influence(&batch)?;
    // An error here is ignored, because the recipe may refuse these batches.
    for batch in [unlike, usual()] {
        most = most.max(influence(&batch).unwrap_or(0.0));
    }
    Ok(most <= EXACT)
}
