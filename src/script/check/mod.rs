//! Checks a recipe on degenerate batches: what must hold of any advantage, and what is worth knowing of this one.

mod invariants;
mod rollouts;

use std::collections::BTreeMap;

use self::rollouts::Rollouts;
use super::hooks::Outcome;
use super::recipe::{Hook, Recipe};
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It must hold, and does not.
    Fails,
    /// It need not hold, and does not: worth knowing.
    Note,
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was checked, in a few words.
    pub check: Check,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen, in one line; empty where there is nothing to say.
    pub detail: String,
    /// The recipe's own error, where it had one.
    pub error: Option<Diagnostics>,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// Groups with right and wrong responses, of several sizes, interleaved.
    Mixed,
    /// Every response is right.
    AllRight,
    /// Every response is wrong.
    AllWrong,
    /// Every group has one response.
    GroupsOfOne,
    /// All responses are of one group.
    OneGroup,
    /// Every response has one token.
    OneToken,
    /// Some response has no token that counts.
    NoTokens,
    /// All rewards of a group are 0.7, 0.1 or 1/3.
    EqualRewards,
    /// Padding holds NaN.
    Padding,
    /// The responses in another order.
    Permutation,
    /// One thread and four.
    Threads,
    /// f32 and f64.
    Precision,
    /// The same batch twice.
    Repetition,
    /// The sum of a group's advantages.
    GroupSum,
    /// One group alone, without the others.
    GroupAlone,
    /// The sign of the advantage of right and wrong responses.
    Sign,
    /// The gradient at logp = old_logp, for a loss.
    OnPolicy,
}

impl Check {
    /// What is checked, in a few words.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Mixed => "mixed groups",
            Check::AllRight => "all right",
            Check::AllWrong => "all wrong",
            Check::GroupsOfOne => "groups of one",
            Check::OneGroup => "one group",
            Check::OneToken => "one-token responses",
            Check::NoTokens => "a response without tokens",
            Check::EqualRewards => "equal rewards give 0",
            Check::Padding => "padding full of NaN",
            Check::Permutation => "permuted responses",
            Check::Threads => "one thread and four",
            Check::Precision => "f32 and f64",
            Check::Repetition => "the same batch twice",
            Check::GroupSum => "sums to 0 in a group",
            Check::GroupAlone => "groups are independent",
            Check::Sign => "right up, wrong down",
            Check::OnPolicy => "gradient at logp = old_logp",
        }
    }
}

/// Runs the recipe on degenerate batches and compares what comes out.
pub fn check(recipe: &Recipe) -> Vec<Finding> {
    let mut checks = Checks {
        recipe,
        findings: Vec::new(),
    };
    let mixed = Rollouts::mixed();
    let Some(base) = checks.runs(Check::Mixed, &mixed.whole()) else {
        return checks.findings;
    };
    checks.degenerate(&mixed);
    checks.equal_rewards(&mixed);
    checks.invariant(&mixed, &base);
    checks.worth_knowing(&mixed, &base);
    if !recipe.has(Hook::Advantage) {
        checks.on_policy(&mixed);
    }
    checks.findings
}

struct Checks<'a> {
    recipe: &'a Recipe,
    findings: Vec<Finding>,
}

impl Checks<'_> {
    fn add(&mut self, check: Check, verdict: Verdict, detail: impl Into<String>) {
        self.findings.push(Finding {
            check,
            verdict,
            detail: detail.into(),
            error: None,
        });
    }

    fn advantage(&self, batch: &Batch) -> Result<Outcome, Diagnostics> {
        let mut state = self.recipe.init()?;
        self.recipe.advantage(batch, &mut state)
    }

    /// Whether the recipe runs on the batch at all.
    fn runs(&mut self, check: Check, batch: &Batch) -> Option<Outcome> {
        match self.advantage(batch) {
            Ok(outcome) => {
                self.add(check, Verdict::Holds, "");
                Some(outcome)
            }
            Err(error) => {
                let text = error
                    .first()
                    .map_or(String::new(), |first| first.message.clone());
                // That a message of an operation refuses the batch is worth knowing; that the result is not finite, or
                // that the recipe cannot do the ordinary case, is a failure.
                let not_finite = [" is NaN", " is inf", " is -inf"]
                    .iter()
                    .any(|what| text.contains(what));
                let verdict = match check == Check::Mixed || not_finite {
                    true => Verdict::Fails,
                    false => Verdict::Note,
                };
                self.findings.push(Finding {
                    check,
                    verdict,
                    detail: text,
                    error: Some(error),
                });
                None
            }
        }
    }

    fn degenerate(&mut self, mixed: &Rollouts) {
        let batches = [
            (Check::AllRight, mixed.clone().with_rewards(|_, _| 1.0)),
            (Check::AllWrong, mixed.clone().with_rewards(|_, _| 0.0)),
            (Check::GroupsOfOne, mixed.clone().with_groups(|i| i as i64)),
            (Check::OneGroup, mixed.clone().with_groups(|_| 0)),
            (Check::OneToken, mixed.clone().with_lengths(|_| 1)),
            (
                Check::NoTokens,
                mixed
                    .clone()
                    .with_lengths(|i| if i % 4 == 0 { 0 } else { 1 + i % 5 }),
            ),
        ];
        for (check, rollouts) in batches {
            self.runs(check, &rollouts.whole());
        }
    }

    fn equal_rewards(&mut self, mixed: &Rollouts) {
        let rewards = BTreeMap::from([(7, 0.7), (3, 0.1), (5, 1.0 / 3.0), (9, -2.3)]);
        let equal = mixed
            .clone()
            .with_rewards(|_, group| rewards.get(&group).copied().unwrap_or(0.0));
        let Ok(outcome) = self.advantage(&equal.whole()) else {
            return self.add(Check::EqualRewards, Verdict::Note, "refused, see above");
        };
        let largest = outcome
            .advantage
            .buffer()
            .iter()
            .fold(0.0f64, |most, x| most.max(x.abs()));
        match largest {
            0.0 => self.add(
                Check::EqualRewards,
                Verdict::Holds,
                "exactly, whatever the reward",
            ),
            // A rounding error is never meant; a real value may be.
            x if x < 1e-6 => self.add(
                Check::EqualRewards,
                Verdict::Fails,
                format!("off by rounding: up to {x:.1e}"),
            ),
            x => self.add(
                Check::EqualRewards,
                Verdict::Note,
                format!("groups without a difference get up to {x:.3}"),
            ),
        }
    }
}
