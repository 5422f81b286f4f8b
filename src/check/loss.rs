//! Checks that a loss's gradient agrees with finite differences, and that a step that lowers the loss raises the probability of
//! responses that the advantage favours.

use super::batches::{on_policy, wave, with_responses, with_scaled_advantage, with_tokens};
use super::findings::CheckResult::{self, Fails, Holds, Note};
use super::findings::{Checks, largest};
use crate::batch::{Batch, Computed, Level};
use crate::diagnostic::Diagnostics;
use crate::script::syntax::code;
use crate::script::{Hook, Loss};

/// Half the step of a finite difference. This size suits log-probs of the order of 1 and losses with a rounding error of 1e-16.
const STEP: f64 = 1e-5;
const DIRECTIONS: usize = 3;
/// The largest relative difference allowed between the slope from finite differences and the slope from the gradient.
const SLOPE: f64 = 1e-4;

/// The result of a check, and its explanation in one line.
type ResultLine = (CheckResult, String);

/// The absolute value up to which a correlation counts as no correlation.
const WEAK: f64 = 0.1;

impl Checks<'_> {
    pub(super) fn loss(&mut self, batch: &Batch) {
        for (check, found) in [
            ("gradient of the loss", self.slope(batch)),
            ("sign of the loss", self.sign(&on_policy(batch))),
        ] {
            match found {
                Ok((result, detail)) => self.add(check, result, detail),
                Err(error) => self.refused(check, Fails, error),
            }
        }
        // An error is ignored, because the other checks report it.
        if self.ignores_weights(batch).unwrap_or(false) {
            let why = "the size of a weight has no effect: the loss either ignores weights or only distinguishes 0 from other weights";
            self.add("weights of the loss", Note, why);
        }
    }

    /// Returns whether the loss treats every weight, or every weight above 0, as 1, although other weights occur.
    fn ignores_weights(&self, batch: &Batch) -> Result<bool, Diagnostics> {
        let mut state = self.recipe.init()?;
        let outcome = self.recipe.advantage(batch, &mut state)?;
        let Some(weight) = &outcome.weight else {
            return Ok(false);
        };
        let advantage = (outcome.loss.is_none()).then_some(&outcome.advantage);
        let gradient = |of: &dyn Fn(f64) -> f64| -> Result<Vec<f64>, Diagnostics> {
            let batch = with_responses(batch, "weight", |i| of(weight.at(i, 0)));
            let loss = self
                .recipe
                .loss(&batch, advantage, &mut self.recipe.init()?)?;
            Ok(loss.gradient.buffer().iter().collect())
        };
        let own = gradient(&|size| size)?;
        let is_same = |of: &dyn Fn(f64) -> f64| -> Result<bool, Diagnostics> {
            let mut sizes = (0..batch.layout().responses()).map(|i| weight.at(i, 0));
            let is_other = sizes.any(|size| of(size) != size);
            Ok(is_other && gradient(of)? == own)
        };
        let counts = |size: f64| f64::from(size > 0.0);
        let is_silent = largest(own.iter().copied()) == 0.0;
        Ok(!is_silent && (is_same(&counts)? || is_same(&|_| 1.0)?))
    }

    /// Computes the loss on a batch whose advantage is multiplied by `sign`, and returns the loss and that advantage.
    pub(super) fn loss_on(
        &self,
        batch: &Batch,
        sign: f64,
    ) -> Result<(Loss, Computed), Diagnostics> {
        let batch = with_scaled_advantage(batch, sign);
        let (layout, mut state) = (batch.layout().clone(), self.recipe.init()?);
        if self.recipe.has(Hook::Advantage) {
            let outcome = self.recipe.advantage(&batch, &mut state)?;
            let (batch, advantage) = (outcome.weighted(&batch)?, outcome.advantage);
            let values: Vec<f64> = advantage.buffer().iter().map(|x| sign * x).collect();
            let advantage = Computed::new(layout, advantage.level(), values);
            let loss = self.recipe.loss(&batch, Some(&advantage), &mut state)?;
            return Ok((loss, advantage));
        }
        let loss = self.recipe.loss(&batch, None, &mut state)?;
        let by_response = batch.response_column("advantage").map(<[f64]>::to_vec);
        let advantage = match batch.token_column("advantage") {
            Some(column) => {
                let rows = (0..layout.responses()).flat_map(|i| column.of_response(&layout, i));
                Computed::new(layout.clone(), Level::Token, rows.collect::<Vec<f64>>())
            }
            // If there is no response column `advantage` either, every advantage is 0, because no response is known to be good.
            None => {
                let values = by_response.unwrap_or_else(|| vec![0.0; layout.responses()]);
                Computed::new(layout, Level::Response, values)
            }
        };
        Ok((loss, advantage))
    }

    /// Compares the gradient with finite differences, at the batch's `logp`, which may be so far from `old_logp` that ratios are
    /// clipped.
    fn slope(&self, batch: &Batch) -> Result<ResultLine, Diagnostics> {
        let (loss, _) = self.loss_on(batch, 1.0)?;
        let layout = loss.gradient.layout().clone();
        let mut worst = 0.0f64;
        for salt in 0..DIRECTIONS {
            let direction = |response, token| wave(response, token, 7 + salt) - 0.5;
            let at = |step: f64| {
                let moved = with_tokens(batch, "logp", |i, t, logp| logp + step * direction(i, t));
                self.loss_on(&moved, 1.0).map(|(loss, _)| loss.value)
            };
            let slope = (at(STEP)? - at(-STEP)?) / (2.0 * STEP);
            let (mut expected, mut scale) = (0.0, slope.abs());
            for response in 0..layout.responses() {
                for token in 0..layout.tokens_of(response).len() {
                    let part = loss.gradient.at(response, token) * direction(response, token);
                    expected += part;
                    scale += part.abs();
                }
            }
            if scale > 0.0 {
                worst = worst.max((slope - expected).abs() / scale);
            }
        }
        let calls_detach = |text| code(text).iter().any(|token| token.is_name("detach"));
        let mut sources = self.recipe.sources();
        let detaches = worst > SLOPE && sources.any(|(_, text)| calls_detach(text));
        let (result, line) = if (worst <= SLOPE || detaches) && self.is_flat(batch, &loss) {
            let line =
                "is 0 both at logp = old_logp and near it: the loss gives no learning signal";
            (Fails, line.to_string())
        } else if worst <= SLOPE {
            (
                Holds,
                "agrees with finite differences of the loss".to_string(),
            )
        } else if detaches {
            let line = "differs from finite differences of the loss, because something between `logp` and the loss is detached";
            (Note, line.to_string())
        } else {
            let off = 100.0 * worst;
            let why = "does the loss use a number from `value()`, which the gradient treats as a constant?";
            (
                Fails,
                format!("differs from finite differences of the loss by {off:.0} %: {why}"),
            )
        };
        Ok((result, line))
    }

    /// Returns whether the gradient is 0 both on `batch`, where the loss is `loss`, and at logp = old_logp, where nothing is
    /// clipped, although the advantage is not 0.
    fn is_flat(&self, batch: &Batch, loss: &Loss) -> bool {
        let is_zero = |loss: &Loss| largest(loss.gradient.buffer().iter()) == 0.0;
        let has_advantage = |advantage: &Computed| largest(advantage.buffer().iter()) > 0.0;
        let on_policy = || self.loss_on(&on_policy(batch), 1.0);
        is_zero(loss) && on_policy().is_ok_and(|(loss, own)| is_zero(&loss) && has_advantage(&own))
    }

    /// Checks whether -dloss/dlogp correlates positively with the advantage; if so, descent on the loss makes good responses more
    /// likely.
    pub(super) fn sign(&self, on_policy: &Batch) -> Result<ResultLine, Diagnostics> {
        let (loss, advantage) = self.loss_on(on_policy, 1.0)?;
        let (turned, _) = self.loss_on(on_policy, -1.0)?;
        let (slopes, turned) = (loss.gradient.buffer(), turned.gradient.buffer());
        // This is -2 times the part of the gradient that changes its sign with the advantage; a KL term or an entropy bonus
        // cancels out.
        let odd: Vec<f64> = slopes
            .iter()
            .zip(turned.iter())
            .map(|(slope, turned)| turned - slope)
            .collect();
        let reads_advantage = odd.iter().any(|&x| x != 0.0);
        let (pull, what) = if reads_advantage {
            (odd, "the advantage")
        } else {
            (slopes.iter().map(|slope| -slope).collect(), "the reward")
        };
        let pull = Computed::new(loss.gradient.layout().clone(), Level::Token, pull);
        let along = correlation(&pull, &advantage);
        Ok(if largest(advantage.buffer().iter()) == 0.0 {
            let line = "every advantage is 0 on this batch, so the sign cannot be tested";
            (Note, line.to_string())
        } else if !reads_advantage && self.recipe.has(Hook::Advantage) {
            (Note, "the loss does not use `batch.advantage`".to_string())
        } else if along < -WEAK {
            let line = format!(
                "lowering the loss lowers the probability of responses that {what} favours: is a minus sign missing?"
            );
            (Fails, format!("{line} (correlation {along:.2})"))
        } else if along <= WEAK {
            let line = format!("at logp = old_logp, -dloss/dlogp hardly correlates with {what}");
            (Note, format!("{line} (correlation {along:.2})"))
        } else {
            let mass: f64 = loss.gradient.buffer().iter().map(f64::abs).sum();
            let zero = if loss.value.abs() <= 1e-9 * mass {
                format!(
                    "; at logp = old_logp, the loss is 0 by construction (sum of |dloss/dlogp| {mass:.3})"
                )
            } else {
                String::new()
            };
            (Holds, format!("follows {what}{zero}"))
        })
    }
}

/// Returns the correlation over tokens. The values are not centred, because their signs matter.
fn correlation(a: &Computed, b: &Computed) -> f64 {
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.per_token().zip(b.per_token()) {
        both += a * b;
        of_a += a * a;
        of_b += b * b;
    }
    both / (of_a * of_b).sqrt().max(f64::MIN_POSITIVE)
}
