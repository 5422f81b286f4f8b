//! Finds terms and tokens that seem to train the policy but do not: terms whose gradient, or expected gradient, is 0, and
//! tokens with advantage 0 in a response whose other tokens have an advantage.

use super::batches::{
    on_policy, wave, with_responses, with_rewards, with_scaled_advantage, with_tokens,
};
use super::findings::CheckResult::{Holds, Note};
use super::findings::{Checks, EXACT, largest};
use crate::batch::{Batch, Computed, Level, TokenValues};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Loss, Outcome};

/// Columns whose value at a token depends only on the tokens before it, and not on the sampled token itself. This is also true of
/// `value`, which is not in this list because it is a baseline, whose expected gradient is meant to be 0.
const BEFORE_THE_TOKEN: [&str; 2] = ["entropy", "sum_pi_squared"];
/// Columns that the check of a loss's terms does not vary: the policy's own log-probs, the signals that the loss must follow, and
/// numbers that identify trajectories and turns.
const OF_ANY_LOSS: [&str; 6] = [
    "logp",
    "old_logp",
    "advantage",
    "weight",
    "trajectory",
    "turn",
];
/// If the log-probs at the first token differ by less than this, the sampled tokens may be the same.
const SAME_TOKEN: f64 = 1e-2;
/// The relative difference up to which values count as equal for one prompt, because an inference engine computes them in
/// different batches, and so with different rounding.
const SAME_PROMPT: f64 = 1e-3;

impl Checks<'_> {
    /// Reports terms of an advantage, or of a loss's gradient, that are the same whatever token is sampled.
    pub(super) fn terms(&mut self, batch: &Batch, has_loss: bool) {
        const CHECK: &str = "terms follow the tokens";
        let names = before_the_token(batch);
        let (mut alone, mut has_effect) = (Vec::new(), false);
        for name in &names {
            // An error is ignored, because the other checks report a recipe that fails on such batches.
            if let Ok(Some(is_alone)) = self.enters_alone(batch, name, &names, has_loss) {
                has_effect = true;
                alone.extend(is_alone.then_some(*name));
            }
        }
        if has_effect {
            let names = quoted(&alone);
            let why = format!(
                "a term made of {names} does not depend on which token is sampled: its expected gradient is 0, so it acts as a baseline, not as a bonus or a penalty"
            );
            self.holds_or(CHECK, alone.is_empty(), Note, why);
        }
    }

    /// Returns whether a column is a separate term: its effect does not depend on the other columns, and it has no effect on
    /// earlier tokens. Returns `None` if the column has no effect, or if the signal is not at token level.
    fn enters_alone(
        &self,
        batch: &Batch,
        name: &str,
        kept: &[&str],
        has_loss: bool,
    ) -> Result<Option<bool>, Diagnostics> {
        let effect = |batch: &Batch, at: &dyn Fn(usize, usize) -> bool| {
            let by = |i, t| f64::from(u8::from(at(i, t))) * (0.5 + wave(i, t, 12));
            let moved = with_tokens(batch, name, |i, t, x| x + by(i, t));
            let after = self.followed(&moved, has_loss)?;
            Ok::<_, Diagnostics>(minus(&after, &self.followed(batch, has_loss)?))
        };
        let own = effect(batch, &|_, _| true)?;
        let most = largest(own.buffer().iter());
        if own.level() != Level::Token || most <= EXACT {
            return Ok(None);
        }
        let mut others = with_rewards(batch, |i, _| f64::from(u8::from(wave(i, 0, 13) > 0.5)));
        if !self.recipe.has(Hook::Advantage) && others.has("advantage") {
            // A recipe with only a loss takes the advantage from the batch.
            others = with_scaled_advantage(&others, 2.0);
        }
        for (column, _) in batch.token_columns() {
            if !kept.contains(&column) {
                others = with_tokens(&others, column, |i, t, x| x * (0.6 + 0.8 * wave(i, t, 14)));
            }
        }
        let with_others = effect(&others, &|_, _| true)?;
        let layout = own.layout();
        let length = |response: usize| layout.tokens_of(response).len();
        let longest = (0..layout.responses()).max_by_key(|&response| length(response));
        let longest = longest.unwrap_or_default();
        let last = length(longest).saturating_sub(1);
        let late = effect(batch, &|i, t| (i, t) == (longest, last))?;
        let earlier = largest((0..last).map(|t| late.at(longest, t)));
        let differs = largest(minus(&own, &with_others).buffer().iter());
        Ok(Some(differs.max(earlier) <= EXACT * most.max(1.0)))
    }

    /// Returns the signal that the policy follows: the advantage, or the gradient of a loss at logp = old_logp.
    fn followed(&self, batch: &Batch, has_loss: bool) -> Result<Computed, Diagnostics> {
        if has_loss {
            Ok(self.loss_on(&on_policy(batch), 1.0)?.0.gradient)
        } else {
            Ok(self.advantage(batch)?.advantage)
        }
    }

    /// Reports columns that change the value of a loss but not its gradient, such as entropies, or `ref_logp` in the KL estimator
    /// k1.
    pub(super) fn terms_of_the_loss(&mut self, batch: &Batch) {
        const CHECK: &str = "terms of the loss";
        match self.without_gradient(batch) {
            Ok(names) if names.is_empty() => self.add(CHECK, Holds, "each term has a gradient"),
            Ok(names) => {
                let names = quoted(&names);
                let why = format!(
                    "the loss depends on {names}, but its gradient does not: the gradient of that term is 0, or 0 on average (as for the KL estimator k1)"
                );
                self.add(CHECK, Note, why);
            }
            // The check of the loss's gradient reports the error.
            Err(_) => {}
        }
    }

    fn without_gradient<'b>(&self, batch: &'b Batch) -> Result<Vec<&'b str>, Diagnostics> {
        // The advantage is computed only once, so that a column's effect on the advantage does not hide its effect on the loss.
        let outcome = if self.recipe.has(Hook::Advantage) {
            let mut state = self.recipe.init()?;
            Some(self.recipe.advantage(batch, &mut state)?)
        } else {
            None
        };
        let loss = |batch: &Batch| {
            let mut state = self.recipe.init()?;
            match &outcome {
                Some(outcome) => {
                    let weighted = outcome.weighted(batch)?;
                    self.recipe
                        .loss(&weighted, Some(&outcome.advantage), &mut state)
                }
                None => self.recipe.loss(batch, None, &mut state),
            }
        };
        let bases = [loss(batch)?, loss(&on_policy(batch))?];
        let is_flat = |base: &Loss, moved: &Batch| {
            // An error is ignored, because a recipe may refuse such values.
            loss(moved).is_ok_and(|moved| {
                let pairs = base.gradient.buffer().iter();
                let mut pairs = pairs.zip(moved.gradient.buffer().iter());
                (moved.value - base.value).abs() > EXACT * base.value.abs().max(1.0)
                    && pairs.all(|(a, b)| a == b)
            })
        };
        // The on-policy batch is tried too, because for clipped tokens a column may change only the value and not the gradient.
        let is_flat =
            |moved: &Batch| is_flat(&bases[0], moved) && is_flat(&bases[1], &on_policy(moved));
        let tokens = batch.token_columns().map(|(name, _)| {
            let moved = with_tokens(batch, name, |i, t, x| x + 2.0 * wave(i, t, 15) - 1.0);
            (name, moved)
        });
        let responses = batch.response_columns().map(|(name, values)| {
            let moved = with_responses(batch, name, |i| values[i] + wave(i, 0, 15));
            (name, moved)
        });
        let all = tokens.chain(responses);
        let varied = all.filter(|(name, _)| !OF_ANY_LOSS.contains(name));
        Ok(varied
            .filter(|(_, moved)| is_flat(moved))
            .map(|(name, _)| name)
            .collect())
    }

    /// Reports tokens whose advantage is 0 with two sets of rewards, although another token of the response has an advantage.
    pub(super) fn silent_tokens(&mut self, batch: &Batch, base: &Outcome) {
        let (advantage, layout) = (&base.advantage, base.advantage.layout());
        // The equivalent advantage of a loss is skipped, because it is 0 at tokens that the loss clips.
        if advantage.level() != Level::Token || base.loss.is_some() {
            return;
        }
        // With other rewards, an advantage that is 0 by chance is not 0. Errors are ignored, because a recipe may refuse them.
        let Ok(other) = self.advantage(&with_rewards(batch, |i, _| 0.2 + wave(i, 0, 16))) else {
            return;
        };
        let silent = |response: usize| {
            let is_zero = |token: &usize| advantage.at(response, *token) == 0.0;
            let zeros = || (0..layout.tokens_of(response).len()).filter(is_zero);
            if zeros().count() == layout.tokens_of(response).len() {
                return 0;
            }
            let zeros = zeros().filter(|&token| other.advantage.at(response, token) == 0.0);
            zeros.count()
        };
        let counting = (0..layout.responses()).filter(|&response| base.counts(response) != 0.0);
        let silent: usize = counting.map(silent).sum();
        let tokens = layout.tokens();
        let why = format!(
            "{silent} of {tokens} tokens have advantage 0, although other tokens of the same response do not"
        );
        self.holds_or("signal on every token", silent == 0, Note, why);
    }
}

/// Returns the elementwise difference of two results on the same responses.
fn minus(a: &Computed, b: &Computed) -> Computed {
    let values = a.buffer().iter().zip(b.buffer().iter());
    let values: Vec<f64> = values.map(|(a, b)| a - b).collect();
    Computed::new(a.layout().clone(), a.level(), values)
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Returns the token columns that do not depend on the sampled token. Some are known by name; others have the same value at the
/// first token of all responses to a prompt, although the sampled tokens differ.
fn before_the_token(batch: &Batch) -> Vec<&str> {
    let names = batch.token_columns().filter(|(name, column)| {
        BEFORE_THE_TOKEN.contains(name) || *name != "value" && is_of_the_prompt(batch, column)
    });
    names.map(|(name, _)| name).collect()
}

fn is_of_the_prompt(batch: &Batch, column: &TokenValues) -> bool {
    let (layout, Some(logp)) = (batch.layout(), batch.token_column("old_logp")) else {
        return false;
    };
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for group in 0..layout.groups() {
        let members = layout.members(group).iter().map(|&i| i as usize);
        let range = |column: &TokenValues| {
            let first = members
                .clone()
                .filter_map(|i| column.of_response(layout, i).next());
            first.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
                (low.min(x), high.max(x))
            })
        };
        let (low, high) = range(logp);
        if high - low > SAME_TOKEN {
            let (low, high) = range(column);
            if high - low > SAME_PROMPT * low.abs().max(high.abs()) {
                return false;
            }
            (least, most) = (least.min(low), most.max(high));
        }
    }
    // A column whose first values are equal for all prompts, such as a reward on the last token, may depend on the sampled token.
    most - least > SAME_PROMPT * least.abs().max(most.abs())
}
