//! The findings of the checks, and the functions that run a recipe to make them.

use CheckResult::{Fails, Holds, Note};

use super::batches::with_rewards;
use crate::batch::Batch;
use crate::diagnostic::{Diagnostics, ProblemKind};
use crate::script::{Hook, Outcome, Recipe, State};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckResult {
    /// The property holds.
    Holds,
    /// The property does not hold. It need not hold, but the user may want to know.
    Note,
    /// The property must hold, but does not.
    Fails,
}

impl CheckResult {
    /// Returns the result as a word: `holds`, `fails` or `note`.
    pub fn name(self) -> &'static str {
        match self {
            Holds => "holds",
            Fails => "fails",
            Note => "note",
        }
    }
}

/// One check and its result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the check, such as `groups are independent`.
    pub check: &'static str,
    /// The result of the check.
    pub result: CheckResult,
    /// The details, in one line; empty if there are none.
    pub detail: String,
    /// The recipe's error, if the check reports it; the detail is then its message.
    pub error: Option<Diagnostics>,
}

/// The detail of a check whose property holds except in groups of one.
pub(super) const ALONE_GET: &str = "except in groups of one (see above)";
/// The name of the check on an ordinary batch.
pub(super) const MIXED: &str = "mixed groups";
/// The name of the check that runs the loss on an ordinary batch, if the recipe also has an advantage.
pub(super) const LOSS: &str = "the loss";
/// The largest difference that counts as rounding.
pub(super) const EXACT: f64 = 1e-9;

pub(super) struct Checks<'a> {
    pub(super) recipe: &'a Recipe,
    /// Whether each run of the recipe computes the loss after the advantage.
    pub(super) runs_loss: bool,
    pub(super) findings: Vec<Finding>,
    /// The largest absolute value of a response's mean advantage in groups of one; 0 if the recipe fails on such groups.
    pub(super) alone: f64,
}

impl<'a> Checks<'a> {
    pub(super) fn new(recipe: &'a Recipe) -> Self {
        Checks {
            recipe,
            runs_loss: false,
            findings: Vec::new(),
            alone: 0.0,
        }
    }

    pub(super) fn add(
        &mut self,
        check: &'static str,
        result: CheckResult,
        detail: impl Into<String>,
    ) {
        self.findings.push(Finding {
            check,
            result,
            detail: detail.into(),
            error: None,
        });
    }

    /// Adds the result `Holds` if `holds` is true, and otherwise the result `otherwise` with the detail `why`.
    pub(super) fn holds_or(
        &mut self,
        check: &'static str,
        holds: bool,
        otherwise: CheckResult,
        why: String,
    ) {
        if holds {
            self.add(check, Holds, "")
        } else {
            self.add(check, otherwise, why)
        }
    }

    pub(super) fn refused(&mut self, check: &'static str, result: CheckResult, error: Diagnostics) {
        self.findings.push(Finding {
            check,
            result,
            detail: error[0].message.clone(),
            error: Some(error),
        });
    }

    pub(super) fn advantage(&self, batch: &Batch) -> Result<Outcome, Diagnostics> {
        dry_run(self.recipe, batch, &self.recipe.init()?, self.runs_loss)
    }

    /// Runs the recipe on a batch, and adds a finding. Returns `None` if the recipe fails.
    pub(super) fn runs(
        &mut self,
        check: &'static str,
        detail: impl Into<String>,
        batch: &Batch,
    ) -> Option<Outcome> {
        match self.advantage(batch) {
            Ok(outcome) => {
                self.add(check, Holds, detail);
                Some(outcome)
            }
            Err(error) => {
                // A result that is not finite, or an error on an ordinary batch, fails the check; any other error is only a note.
                let must = error[0].kind == ProblemKind::NotFinite || matches!(check, MIXED | LOSS);
                self.refused(check, if must { Fails } else { Note }, error);
                None
            }
        }
    }

    pub(super) fn groups_of_one(&mut self, outcome: &Outcome) {
        self.alone = largest(outcome.advantage.by_response().into_iter());
        if let Some(last) = self.findings.last_mut() {
            last.detail = match self.alone {
                0.0 => "they get 0".to_string(),
                most => format!("the largest |A| is {most:.3}"),
            };
        }
    }

    pub(super) fn equal_rewards(&mut self, batch: &Batch) {
        const CHECK: &str = "equal rewards give 0";
        let rewards = [0.7, 0.1, 1.0 / 3.0, -2.3, 0.0];
        let equal = with_rewards(batch, |_, group| rewards[group % rewards.len()]);
        let Ok(outcome) = self.advantage(&equal) else {
            return self.add(CHECK, Note, "the recipe fails on such a batch (see above)");
        };
        match largest(outcome.advantage.buffer().iter()) {
            0.0 if self.alone > EXACT => self.add(CHECK, Note, ALONE_GET),
            0.0 => self.add(CHECK, Holds, "exactly 0, whatever the reward is"),
            // A rounding error is never intended, but a larger value may be.
            x if x < 1e-6 => self.add(CHECK, Fails, format!("rounding leaves up to {x:.1e}")),
            x => {
                let detail = format!("with equal rewards, the largest |A| is {x:.3}");
                self.add(CHECK, Note, detail);
            }
        }
    }
}

/// Runs every hook of a step, with a copy of the state. If the recipe has both an advantage and a loss, the loss runs only if
/// `runs_loss` is true.
///
/// # Errors
/// [`Diagnostics`] of the first hook that fails.
pub fn dry_run(
    recipe: &Recipe,
    batch: &Batch,
    state: &State,
    runs_loss: bool,
) -> Result<Outcome, Diagnostics> {
    recipe.returns(batch, state)?;
    let mut state = state.clone();
    let outcome = recipe.advantage(batch, &mut state)?;
    // If a recipe has only a loss, the loss has run already, because the advantage is computed from it.
    if runs_loss && recipe.has(Hook::Loss) && recipe.has(Hook::Advantage) {
        let (weighted, advantage) = (outcome.weighted(batch)?, Some(&outcome.advantage));
        recipe.loss(&weighted, advantage, &mut state)?;
    }
    Ok(outcome)
}

/// Returns the largest absolute value; 0 if there are no values.
pub(super) fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, x| most.max(x.abs()))
}
