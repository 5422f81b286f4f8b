//! Invariants: a batch in another form has the same advantages; and properties that are worth knowing.

use super::CheckResult::{Fails, Holds, Note};
use super::batches::{Variant, with_rewards};
use super::{Checks, largest};
use crate::batch::{Batch, Computed, Layout, Level};
use crate::diagnostic::Diagnostics;
use crate::figures::counted;
use crate::script::Outcome;

/// The largest difference that rounding makes.
pub(super) const EXACT: f64 = 1e-9;
/// The most groups that are each run as a batch of their own.
const ALONE: usize = 16;

impl Checks<'_> {
    pub(super) fn invariant(&mut self, batch: &Batch, base: &Outcome) {
        let nan = Variant::of(batch).padding(f64::NAN);
        self.same("padding full of NaN", base, &nan, 0.0);

        const PERMUTED: &str = "permuted responses";
        // Reversed, ties of responses or of groups come in another order.
        let order: Vec<usize> = (0..base.advantage.layout().responses()).rev().collect();
        match self.advantage(&batch.select(&order)) {
            Ok(permuted) => {
                let off = differences(&base.advantage, &order, &permuted.advantage, 1.0);
                let why = format!("the order of responses matters: by up to {off:.3}");
                self.holds_or(PERMUTED, off <= EXACT, Note, why);
            }
            Err(error) => self.add(PERMUTED, Fails, error.to_string()),
        }

        const THREADS: &str = "one thread and four";
        let bits_with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let outcome = pool.build().ok()?.install(|| self.advantage(batch));
            outcome.ok().map(|outcome| bits(&outcome))
        };
        let (one, four) = (bits_with(1), bits_with(4));
        match one.is_some() && one == four {
            true => self.add(THREADS, Holds, "the same bits"),
            false => self.add(THREADS, Fails, "the results differ"),
        }
        let scale = largest(base.advantage.buffer().iter()).max(1.0);
        let f32 = Variant::of(batch).precision(false).batch();
        self.same("f32 and f64", base, &f32, 1e-3 * scale);
        self.same("the same batch twice", base, batch, 0.0);
    }

    fn same(&mut self, check: &'static str, base: &Outcome, batch: &Batch, tolerance: f64) {
        let all: Vec<usize> = (0..batch.layout().responses()).collect();
        let off = match self.advantage(batch) {
            Ok(other) => differences(&base.advantage, &all, &other.advantage, 1.0),
            Err(error) => return self.add(check, Fails, error.to_string()),
        };
        match off <= tolerance {
            true if tolerance == 0.0 => self.add(check, Holds, "the same bits"),
            true => self.add(check, Holds, ""),
            false => self.add(check, Fails, format!("differs by up to {off:.1e}")),
        }
    }

    pub(super) fn worth_knowing(&mut self, batch: &Batch, base: &Outcome) {
        let layout = base.advantage.layout();
        let means = base.advantage.by_response();
        let mean = |response: usize| means[response];
        let sums = (0..layout.groups()).map(|group| {
            let members = layout.members(group).iter();
            members.map(|&response| mean(response as usize)).sum()
        });
        let sum = largest(sums);
        let why = format!("a group's advantages sum to up to {sum:.3}");
        self.holds_or("sums to 0 in a group", sum <= EXACT, Note, why);

        match self.influence(batch, base) {
            Ok(off) => {
                let why = format!("groups influence each other: by up to {off:.3}");
                self.holds_or("groups are independent", off <= EXACT, Note, why);
            }
            Err(_) => self.add("groups are independent", Note, "refused for a group alone"),
        }

        let Some(right) = &base.correct else {
            return;
        };
        const SIGN: &str = "right up, wrong down";
        let of = |is_right: f64, is_off: fn(f64) -> bool| {
            let responses = 0..layout.responses();
            responses
                .filter(|&i| right.at(i, 0) == is_right && is_off(mean(i)))
                .count()
        };
        let (wrong_up, right_down) = (of(0.0, |mean| mean > EXACT), of(1.0, |mean| mean < -EXACT));
        if largest((0..layout.responses()).map(mean)) == 0.0 {
            let why = "every advantage is 0: this recipe teaches nothing";
            return self.add(SIGN, Note, why);
        }
        let why = format!(
            "{} raised, {} lowered, of {}",
            counted(wrong_up, "wrong response"),
            counted(right_down, "right one"),
            layout.responses()
        );
        // A recipe with a loss only has the check of the loss for that.
        if base.loss.is_none() && prefers_wrong(layout, right, mean) {
            if self.ignores_rewards(batch, base, right) {
                let why = format!("{why}: its reward is in other columns");
                return self.add(SIGN, Note, why);
            }
            let why = format!("{why}: each group prefers its wrong ones: is a sign turned?");
            return self.add(SIGN, Fails, why);
        }
        self.holds_or(SIGN, (wrong_up, right_down) == (0, 0), Note, why);
    }

    /// Whether the advantages stay the same when right and wrong change places.
    fn ignores_rewards(&self, batch: &Batch, base: &Outcome, right: &Computed) -> bool {
        let turned = with_rewards(batch, |i, _| 1.0 - right.at(i, 0));
        let turned = self.advantage(&turned);
        turned.is_ok_and(|turned| bits(&turned) == bits(base))
    }

    /// How much the advantages of a group, or the weights of its responses, change when it is alone in its batch.
    pub(super) fn influence(&self, batch: &Batch, base: &Outcome) -> Result<f64, Diagnostics> {
        let layout = base.advantage.layout();
        let mut most = 0.0f64;
        for group in 0..layout.groups().min(ALONE) {
            let members = layout.members(group).iter().map(|&i| i as usize);
            let members: Vec<usize> = members.collect();
            let alone = self.advantage(&batch.select(&members))?;
            let off = |scale| differences(&base.advantage, &members, &alone.advantage, scale);
            // Under a loss averaged over responses, a group's weight depends on its share of the tokens: it differs when the
            // group is alone.
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

/// Whether right responses have less than wrong ones in some group that has both, and more in none.
fn prefers_wrong(layout: &Layout, right: &Computed, advantage: impl Fn(usize) -> f64) -> bool {
    let lead = |group: usize| {
        let members = layout.members(group).iter().map(|&i| i as usize);
        let mean = |label: f64| {
            let alike = members.clone().filter(|&i| right.at(i, 0) == label);
            let (sum, count) = alike.fold((0.0, 0.0), |(sum, n), i| (sum + advantage(i), n + 1.0));
            sum / count
        };
        // NaN if the group has only right or only wrong responses.
        mean(1.0) - mean(0.0)
    };
    let leads: Vec<f64> = (0..layout.groups()).map(lead).collect();
    leads.iter().any(|&lead| lead < -EXACT) && !leads.iter().any(|&lead| lead > EXACT)
}

/// The largest difference, token by token, between responses of `a` and those of `b` in their order, whose values are
/// scaled.
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
