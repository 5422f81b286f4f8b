//! Checks a recipe on degenerate batches: what must hold of any advantage, and what is worth knowing of this one.

mod rollouts;

use std::collections::BTreeMap;

use self::rollouts::Rollouts;
use super::computed::Computed;
use super::error::ScriptError;
use super::hooks::Outcome;
use super::recipe::{Hook, Recipe};
use crate::batch::Batch;

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
    pub error: Option<ScriptError>,
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

    fn advantage(&self, batch: &Batch<'_>) -> Result<Outcome, ScriptError> {
        let mut state = self.recipe.init()?;
        self.recipe.advantage(batch, &mut state)
    }

    /// Whether the recipe runs on the batch at all.
    fn runs(&mut self, check: Check, batch: &Batch<'_>) -> Option<Outcome> {
        match self.advantage(batch) {
            Ok(outcome) => {
                self.add(check, Verdict::Holds, "");
                Some(outcome)
            }
            Err(error) => {
                let text = error
                    .diagnostics
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
            .floats()
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

    fn invariant(&mut self, mixed: &Rollouts, base: &Outcome) {
        let nan = Rollouts {
            padding: f64::NAN,
            ..mixed.clone()
        };
        self.same(Check::Padding, base, &nan.whole(), 0.0);

        let order: Vec<usize> = (0..mixed.groups.len())
            .map(|i| (i * 7 + 3) % mixed.groups.len())
            .collect();
        match self.advantage(&mixed.batch(&order, true)) {
            Ok(permuted) => {
                let largest = order
                    .iter()
                    .enumerate()
                    .fold(0.0f64, |most, (row, &response)| {
                        most.max(difference(
                            &base.advantage,
                            response,
                            &permuted.advantage,
                            row,
                        ))
                    });
                match largest <= 1e-9 {
                    true => self.add(Check::Permutation, Verdict::Holds, ""),
                    false => self.add(
                        Check::Permutation,
                        Verdict::Note,
                        format!("the order of responses matters: by up to {largest:.3}"),
                    ),
                }
            }
            Err(error) => self.add(Check::Permutation, Verdict::Fails, error.to_string()),
        }

        let in_pool = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .ok()?;
            pool.install(|| self.advantage(&mixed.whole())).ok()
        };
        match (in_pool(1), in_pool(4)) {
            (Some(one), Some(four)) if bits(&one) == bits(&four) => {
                self.add(Check::Threads, Verdict::Holds, "the same bits")
            }
            _ => self.add(Check::Threads, Verdict::Fails, "the results differ"),
        }
        let narrow = mixed.batch(&(0..mixed.groups.len()).collect::<Vec<_>>(), false);
        self.same(Check::Precision, base, &narrow, 1e-3);
        self.same(Check::Repetition, base, &mixed.whole(), 0.0);
    }

    fn same(&mut self, check: Check, base: &Outcome, batch: &Batch<'_>, tolerance: f64) {
        match self.advantage(batch) {
            Ok(other) => {
                let responses = base.advantage.layout().responses();
                let largest = (0..responses).fold(0.0f64, |most, i| {
                    most.max(difference(&base.advantage, i, &other.advantage, i))
                });
                match largest <= tolerance {
                    true => self.add(
                        check,
                        Verdict::Holds,
                        if tolerance == 0.0 {
                            "the same bits"
                        } else {
                            ""
                        },
                    ),
                    false => self.add(
                        check,
                        Verdict::Fails,
                        format!("differs by up to {largest:.1e}"),
                    ),
                }
            }
            Err(error) => self.add(check, Verdict::Fails, error.to_string()),
        }
    }

    fn worth_knowing(&mut self, mixed: &Rollouts, base: &Outcome) {
        let layout = base.advantage.layout();
        let mean = |response: usize| {
            let tokens = layout.tokens_of(response).len().max(1);
            (0..layout.tokens_of(response).len())
                .map(|token| base.advantage.at(response, token))
                .sum::<f64>()
                / tokens as f64
        };
        let largest = (0..layout.groups()).fold(0.0f64, |most, group| {
            let sum: f64 = layout
                .members(group)
                .iter()
                .map(|&response| mean(response as usize))
                .sum();
            most.max(sum.abs())
        });
        match largest <= 1e-9 {
            true => self.add(Check::GroupSum, Verdict::Holds, ""),
            false => self.add(
                Check::GroupSum,
                Verdict::Note,
                format!("a group's advantages sum to up to {largest:.3}"),
            ),
        }

        let alone = (0..layout.groups()).try_fold(0.0f64, |most, group| {
            let members: Vec<usize> = layout
                .members(group)
                .iter()
                .map(|&response| response as usize)
                .collect();
            let outcome = self.advantage(&mixed.batch(&members, true)).ok()?;
            let differs = |scale: f64| {
                members
                    .iter()
                    .enumerate()
                    .fold(0.0f64, |most, (row, &response)| {
                        most.max(scaled_difference(
                            &base.advantage,
                            response,
                            &outcome.advantage,
                            row,
                            scale,
                        ))
                    })
            };
            // A loss averaged over responses gives each group alone another weight by its number of tokens.
            let per_token = |computed: &Computed| {
                computed.layout().responses() as f64 / computed.layout().tokens() as f64
            };
            let weight = per_token(&outcome.advantage) / per_token(&base.advantage);
            Some(most.max(if outcome.loss.is_some() {
                differs(1.0).min(differs(weight))
            } else {
                differs(1.0)
            }))
        });
        match alone {
            Some(largest) if largest <= 1e-9 => self.add(Check::GroupAlone, Verdict::Holds, ""),
            Some(largest) => self.add(
                Check::GroupAlone,
                Verdict::Note,
                format!("groups influence each other: by up to {largest:.3}"),
            ),
            None => self.add(
                Check::GroupAlone,
                Verdict::Note,
                "refused for a group alone",
            ),
        }

        let wrong_up = (0..layout.responses())
            .filter(|&i| mixed.rewards[i] == 0.0 && mean(i) > 1e-9)
            .count();
        let right_down = (0..layout.responses())
            .filter(|&i| mixed.rewards[i] == 1.0 && mean(i) < -1e-9)
            .count();
        match (wrong_up, right_down) {
            (0, 0) => self.add(Check::Sign, Verdict::Holds, ""),
            _ => {
                let detail = format!(
                    "{wrong_up} wrong responses are raised, {right_down} right ones lowered, of {}",
                    layout.responses()
                );
                self.add(Check::Sign, Verdict::Note, detail);
            }
        }
    }

    /// A loss whose gradient is far larger where logp = old_logp, as it is at every step's first update.
    fn on_policy(&mut self, mixed: &Rollouts) {
        let largest = |rollouts: &Rollouts| {
            let outcome = self.advantage(&rollouts.whole()).ok()?;
            Some(
                outcome
                    .advantage
                    .floats()
                    .iter()
                    .fold(0.0f64, |most, x| most.max(x.abs())),
            )
        };
        let on = largest(&Rollouts {
            on_policy: true,
            ..mixed.clone()
        });
        match (on, largest(mixed)) {
            (Some(on), Some(off)) if on > 1e3 * off.max(1e-12) => {
                let detail = format!(
                    "{:.0e} times larger than beside it: is something divided by a std of 0?",
                    on / off.max(1e-12)
                );
                self.add(Check::OnPolicy, Verdict::Note, detail);
            }
            (Some(0.0), _) => self.add(
                Check::OnPolicy,
                Verdict::Note,
                "0: the first update of each step does nothing",
            ),
            (Some(_), Some(_)) => self.add(Check::OnPolicy, Verdict::Holds, ""),
            _ => self.add(Check::OnPolicy, Verdict::Note, "refused"),
        }
    }
}

/// The largest difference between two responses' advantages, token by token.
fn difference(a: &Computed, i: usize, b: &Computed, j: usize) -> f64 {
    scaled_difference(a, i, b, j, 1.0)
}

/// As [`difference`], with the second response's advantages scaled.
fn scaled_difference(a: &Computed, i: usize, b: &Computed, j: usize, scale: f64) -> f64 {
    if a.level() != b.level() {
        return f64::INFINITY;
    }
    let tokens = match a.level() {
        crate::tensor::Level::Token => a.layout().tokens_of(i).len(),
        _ => 1,
    };
    (0..tokens).fold(0.0f64, |most, token| {
        most.max((a.at(i, token) - scale * b.at(j, token)).abs())
    })
}

fn bits(outcome: &Outcome) -> Vec<u64> {
    outcome
        .advantage
        .floats()
        .iter()
        .map(f64::to_bits)
        .collect()
}
