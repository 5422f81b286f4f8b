//! Checks a recipe on degenerate batches: what must hold of any advantage, and what is worth knowing of this one.

use std::collections::BTreeMap;

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

/// Responses from which batches of all kinds are made.
#[derive(Clone)]
struct Rollouts {
    groups: Vec<i64>,
    rewards: Vec<f64>,
    lengths: Vec<usize>,
    /// What stands where the mask is 0.
    padding: f64,
    /// Whether `logp` is `old_logp`.
    on_policy: bool,
}

/// The width of the padded rows, with holes.
const WIDTH: usize = 12;

impl Rollouts {
    /// Sizes, rewards and lengths with everything mixed; interleaved.
    fn mixed() -> Rollouts {
        let groups = vec![7, 3, 7, 5, 3, 7, 5, 3, 7, 3, 5, 7, 3, 5, 9, 9, 9, 9];
        let rewards = vec![
            1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0,
            1.0,
        ];
        let lengths = (0..groups.len()).map(|i| 1 + (i * 5) % 7).collect();
        Rollouts {
            groups,
            rewards,
            lengths,
            padding: 0.0,
            on_policy: false,
        }
    }

    fn with_rewards(mut self, reward: impl Fn(usize, i64) -> f64) -> Rollouts {
        self.rewards = self
            .groups
            .iter()
            .enumerate()
            .map(|(i, &group)| reward(i, group))
            .collect();
        self
    }

    fn with_groups(mut self, group: impl Fn(usize) -> i64) -> Rollouts {
        self.groups = (0..self.groups.len()).map(group).collect();
        self
    }

    fn with_lengths(mut self, length: impl Fn(usize) -> usize) -> Rollouts {
        self.lengths = (0..self.groups.len()).map(length).collect();
        self
    }

    /// The responses at these places, with the numbers of their tokens unchanged.
    fn batch(&self, places: &[usize], wide: bool) -> Batch<'static> {
        let rows = |value: &dyn Fn(usize, usize) -> f64| {
            let cell = |(row, column): (usize, usize)| {
                let response = places[row];
                if counts(response, column, self.lengths[response]) {
                    value(response, column)
                } else {
                    self.padding
                }
            };
            ndarray::Array2::from_shape_fn((places.len(), WIDTH), cell)
        };
        let mask = ndarray::Array2::from_shape_fn((places.len(), WIDTH), |(row, column)| {
            counts(places[row], column, self.lengths[places[row]])
        });
        let old = |response: usize, column: usize| -0.1 - wave(response, column, 1);
        let moved = if self.on_policy { 0.0 } else { 0.2 };
        let columns: [(&str, ndarray::Array2<f64>); 5] = [
            ("old_logp", rows(&old)),
            (
                "ref_logp",
                rows(&|r, c| old(r, c) + 0.2 * (wave(r, c, 2) - 0.5)),
            ),
            (
                "logp",
                rows(&|r, c| old(r, c) + moved * (wave(r, c, 3) - 0.5)),
            ),
            ("value", rows(&|r, c| wave(r, c, 4))),
            ("entropy", rows(&|r, c| wave(r, c, 5))),
        ];
        let of_responses = |value: &dyn Fn(usize) -> f64| -> Vec<f64> {
            places.iter().map(|&place| value(place)).collect()
        };
        let mut builder = Batch::builder()
            .groups(places.iter().map(|&place| self.groups[place]))
            .mask(mask.view())
            .response("reward", of_responses(&|place| self.rewards[place]))
            // For a loss on `batch.advantage`.
            .response(
                "advantage",
                of_responses(&|place| self.rewards[place] - 0.5),
            );
        for (name, values) in columns {
            builder = match wide {
                true => builder.token(name, values),
                false => builder.token(name, values.mapv(|value| value as f32)),
            };
        }
        match builder.build() {
            Ok(batch) => batch,
            Err(error) => unreachable!("the check's batches are right: {error}"),
        }
    }

    fn whole(&self) -> Batch<'static> {
        self.batch(&(0..self.groups.len()).collect::<Vec<_>>(), true)
    }
}

/// Whether a token counts: the first ones of the row do, but for a hole in every other response.
fn counts(response: usize, column: usize, length: usize) -> bool {
    match (response % 2 == 1 && length > 1, column) {
        (false, column) => column < length,
        // A tool's output after the first token.
        (true, 0) => true,
        (true, column) => column > 2 && column < length + 2,
    }
}

/// A number in [0, 1) that looks random and is the same everywhere.
fn wave(response: usize, column: usize, salt: usize) -> f64 {
    let x = (response * 31 + column * 17 + salt * 101) as f64;
    (x * 0.618_033_988_749_894_9).fract()
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
        });
    }

    fn advantage(&self, batch: &Batch<'_>) -> Result<Outcome, ScriptError> {
        let mut state = self.recipe.init()?;
        self.recipe.advantage(batch, &mut state)
    }

    /// Whether the recipe runs on the batch at all. That it refuses one with a message of an operation is worth knowing;
    /// that its result is not finite is a failure.
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
                let broken = check == Check::Mixed
                    || ["NaN", "inf"].iter().any(|what| {
                        text.contains(&format!("is {what}"))
                            || text.contains(&format!("is -{what}"))
                    });
                self.add(
                    check,
                    if broken {
                        Verdict::Fails
                    } else {
                        Verdict::Note
                    },
                    text,
                );
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
