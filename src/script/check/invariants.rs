//! What must hold when the same batch is given in another way, and what is worth knowing beside it.

use super::rollouts::Rollouts;
use super::{Check, Checks, Verdict};
use crate::batch::Batch;
use crate::script::computed::Computed;
use crate::script::hooks::Outcome;

impl Checks<'_> {
    pub(super) fn invariant(&mut self, mixed: &Rollouts, base: &Outcome) {
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

    fn same(&mut self, check: Check, base: &Outcome, batch: &Batch, tolerance: f64) {
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

    pub(super) fn worth_knowing(&mut self, mixed: &Rollouts, base: &Outcome) {
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
        let is_silent = (0..layout.responses()).all(|i| mean(i) == 0.0);
        match (wrong_up, right_down) {
            (0, 0) if is_silent => {
                let detail = "every advantage is 0: this recipe teaches nothing";
                self.add(Check::Sign, Verdict::Note, detail);
            }
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
    pub(super) fn on_policy(&mut self, mixed: &Rollouts) {
        let largest = |rollouts: &Rollouts| {
            let outcome = self.advantage(&rollouts.whole()).ok()?;
            Some(
                outcome
                    .advantage
                    .buffer()
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
        .buffer()
        .iter()
        .map(f64::to_bits)
        .collect()
}
