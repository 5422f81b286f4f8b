//! Checks that equivalent batches give the same advantages, and reports notable properties of the recipe.

use rayon::ThreadPoolBuilder;

use super::batches::{in_precision, with_rewards};
use super::findings::CheckResult::{self, Fails, Holds, Note};
use super::findings::{ALONE_GET, Checks, EXACT, largest};
use crate::batch::{Batch, Computed, Layout, Level};
use crate::deep_stack;
use crate::diagnostic::Diagnostics;
use crate::number_text::counted;
use crate::script::{Outcome, Summary};

/// At most this many groups are tried alone: the recipe is run on each of them as if it were the whole batch.
const ALONE: usize = 16;

impl Checks<'_> {
    pub(super) fn invariant(&mut self, batch: &Batch, base: &Outcome) {
        // The reverse order is used because it changes, for any two equal responses, which of them comes first.
        let reversed: Vec<usize> = (0..batch.layout().responses()).rev().collect();
        self.same("permuted responses", base, (batch, &reversed), |off| {
            let why = format!("the order of the responses changes advantages by up to {off:.3}");
            (off <= EXACT, Note, why)
        });
        let scale = largest(base.advantage.buffer().iter()).max(1.0);
        let narrow = in_precision(batch, false);
        let all: Vec<usize> = (0..batch.layout().responses()).collect();
        self.same("f32 and f64", base, (&narrow, &all), |off| {
            let why = format!("the results differ by up to {off:.1e}");
            (off <= 1e-3 * scale, Fails, why)
        });
        const AGAIN: &str = "again, on one thread";
        let alone = deep_stack::pool(ThreadPoolBuilder::new().num_threads(1)).build();
        let again = alone
            .ok()
            .and_then(|pool| pool.install(|| self.advantage(batch)).ok());
        if again.is_some_and(|again| bits(&again) == bits(base)) {
            self.add(AGAIN, Holds, "the same bits");
        } else {
            self.add(AGAIN, Fails, "the results differ");
        }
    }

    /// Puts a batch's responses into the given order, and compares their advantages with the advantages in `base`.
    fn same(
        &mut self,
        check: &'static str,
        base: &Outcome,
        (batch, order): (&Batch, &[usize]),
        judge: impl Fn(f64) -> (bool, CheckResult, String),
    ) {
        match self.advantage(&batch.select(order)) {
            Ok(other) => {
                let off = differences(&base.advantage, order, &other.advantage, 1.0);
                let (holds, otherwise, why) = judge(off);
                self.holds_or(check, holds, otherwise, why);
            }
            Err(error) => self.add(check, Fails, error.to_string()),
        }
    }

    /// Adds to the last finding by how much the responses without tokens change the advantages of the other responses.
    pub(super) fn rejected(&mut self, batch: &Batch, base: &Outcome) {
        let layout = batch.layout();
        let has_tokens = |&response: &usize| !layout.tokens_of(response).is_empty();
        let rest: Vec<usize> = (0..layout.responses()).filter(has_tokens).collect();
        let without = self.advantage(&batch.select(&rest));
        let off = without.map(|other| differences(&base.advantage, &rest, &other.advantage, 1.0));
        if let (Some(last), Ok(off)) = (self.findings.last_mut(), off) {
            last.detail = match off {
                off if off <= EXACT => "the response does not affect its group".to_string(),
                off => {
                    format!(
                        "the response affects its group: the other advantages change by up to {off:.3}"
                    )
                }
            };
        }
    }

    pub(super) fn worth_knowing(&mut self, batch: &Batch, base: &Outcome) {
        let layout = base.advantage.layout();
        let means = base.advantage.by_response();
        let sum_of = |group: usize| {
            let members = layout.members(group).iter();
            members.map(|&response| means[response as usize]).sum()
        };
        let sum = largest((0..layout.groups()).map(sum_of));
        let why = if sum <= EXACT {
            ALONE_GET.to_string()
        } else {
            format!("the largest |sum| of a group is {sum:.3}")
        };
        const SUMS: &str = "sums to 0 in a group";
        let start = Summary::of(base)
            .loss_at_start
            .filter(|start| start.is_zero(start.over_responses));
        match start.filter(|_| sum.max(self.alone) <= EXACT) {
            Some(start) => {
                let mass = format!("the mean of |A| is {:.3}", start.gradient_mass);
                self.add(
                    SUMS,
                    Holds,
                    format!("a loss averaged over responses is 0 at ratio 1, but its gradient is not 0: {mass}"),
                );
            }
            None => self.holds_or(SUMS, sum.max(self.alone) <= EXACT, Note, why),
        }
        let (holds, why) = match self.influence(batch, base) {
            Ok(off) => {
                let why = format!("groups change each other's advantages by up to {off:.3}");
                (off <= EXACT, why)
            }
            Err(_) => (false, "the recipe fails on a single group".to_string()),
        };
        self.holds_or("groups are independent", holds, Note, why);
        self.raises_right_ones(batch, base);
    }

    fn raises_right_ones(&mut self, batch: &Batch, base: &Outcome) {
        const SIGN: &str = "right up, wrong down";
        let Some(right) = &base.correct else {
            return;
        };
        let (layout, means) = (base.advantage.layout(), base.advantage.by_response());
        if largest(means.iter().copied()) == 0.0 {
            // Pass@k by blocks, for example, gives 0 if each block has a right response.
            let is_first = |response, group| layout.members(group)[0] as usize == response;
            let seldom = with_rewards(batch, |i, group| f64::from(is_first(i, group)));
            return match self.advantage(&seldom) {
                Ok(own) if largest(own.advantage.buffer().iter()) > 0.0 => {
                    self.raises_right_ones(&seldom, &own)
                }
                _ => self.add(
                    SIGN,
                    Note,
                    "every advantage is 0: this recipe gives no learning signal",
                ),
            };
        }
        let count = |label: f64, is_off: fn(f64) -> bool| {
            let means = means.iter().enumerate();
            let off = means.filter(|(i, mean)| right.at(*i, 0) == label && is_off(**mean));
            off.count()
        };
        let wrong_up = count(0.0, |mean| mean > EXACT);
        let right_down = count(1.0, |mean| mean < -EXACT);
        let raised = counted(wrong_up, "wrong response");
        let lowered = counted(right_down, "right response");
        let all = layout.responses();
        let why = format!("raises {raised} and lowers {lowered}, of {all} in total");
        // If a recipe has only a loss, another check reports the sign of the loss.
        if base.loss.is_some() || !prefers_wrong(layout, right, &means) {
            return self.holds_or(SIGN, wrong_up + right_down == 0, Note, why);
        }
        // This run shows whether the advantages stay the same when right and wrong responses are swapped.
        let turned = self.advantage(&with_rewards(batch, |i, _| 1.0 - right.at(i, 0)));
        if turned.is_ok_and(|turned| bits(&turned) == bits(base)) {
            self.add(
                SIGN,
                Note,
                format!("{why}: the recipe takes its reward from other columns"),
            )
        } else {
            let why = format!("{why}, and so favours wrong responses: is a sign reversed?");
            self.add(SIGN, Fails, why);
        }
    }

    /// Runs the recipe on each of the first 16 groups alone, and returns the largest change of an advantage or a weight.
    pub(super) fn influence(&self, batch: &Batch, base: &Outcome) -> Result<f64, Diagnostics> {
        let layout = base.advantage.layout();
        let mut most = 0.0f64;
        for group in 0..layout.groups().min(ALONE) {
            let members: Vec<usize> = layout.members(group).iter().map(|&i| i as usize).collect();
            let alone = self.advantage(&batch.select(&members))?;
            let off = |scale| differences(&base.advantage, &members, &alone.advantage, scale);
            // The advantage of a loss that is averaged over responses has a factor that depends on the batch's number of tokens
            // per response, so this factor differs when the group is alone.
            let per_token = |computed: &Computed| {
                computed.layout().responses() as f64 / computed.layout().tokens() as f64
            };
            let weight = per_token(&alone.advantage) / per_token(&base.advantage);
            most = most.max(match alone.loss {
                Some(_) => off(1.0).min(off(weight)),
                None => off(1.0),
            });
            let rows = members.iter().enumerate();
            let counts = rows.map(|(row, &response)| base.counts(response) - alone.counts(row));
            most = most.max(largest(counts));
        }
        Ok(most)
    }
}

/// Returns whether the right responses have a lower mean advantage than the wrong responses in some group, and do not have a
/// higher mean advantage than the wrong responses in any group.
fn prefers_wrong(layout: &Layout, right: &Computed, advantage: &[f64]) -> bool {
    let lead = |group: usize| {
        let members = layout.members(group).iter().map(|&i| i as usize);
        let mean = |label: f64| {
            let alike = members.clone().filter(|&i| right.at(i, 0) == label);
            let (sum, count) = alike.fold((0.0, 0.0), |(sum, n), i| (sum + advantage[i], n + 1.0));
            sum / count
        };
        // This is NaN if the group has only right or only wrong responses.
        mean(1.0) - mean(0.0)
    };
    let leads: Vec<f64> = (0..layout.groups()).map(lead).collect();
    leads.iter().any(|&lead| lead < -EXACT) && !leads.iter().any(|&lead| lead > EXACT)
}

/// Returns the largest difference between the values of `a` for `responses` and `scale` times the values of `b`, which has only
/// these responses, in this order; infinity if the levels differ.
fn differences(a: &Computed, responses: &[usize], b: &Computed, scale: f64) -> f64 {
    if a.level() != b.level() {
        return f64::INFINITY;
    }
    let cells = responses.iter().enumerate().flat_map(|(row, &response)| {
        let tokens = match a.level() {
            Level::Token => a.layout().tokens_of(response).len(),
            _ => 1,
        };
        (0..tokens).map(move |token| (row, response, token))
    });
    largest(cells.map(|(row, response, token)| a.at(response, token) - scale * b.at(row, token)))
}

fn bits(outcome: &Outcome) -> Vec<u64> {
    let counts = (0..outcome.advantage.layout().responses()).map(|i| outcome.counts(i));
    let values = outcome.advantage.buffer().iter().chain(counts);
    values.map(f64::to_bits).collect()
}
