//! PACS's loss with its gradient for the default settings: two passes over the tokens, with computations per response
//! between them.
//!
//! The gradient equals the gradient of the script's graph, with the same order of sums: see the derivatives in the op table.

use super::groups::{each_group, others_mean};
use super::inputs::{HookInputs, row};
use crate::batch::{Computed, FloatBuffer, Level, TokenValues};
use crate::parallel::try_each_with;
use crate::script::Outcome;
use crate::tensor::op::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, Precision, finish};

pub fn loss(inputs: &HookInputs<'_>) -> Option<Outcome> {
    let usual = ["rloo", "sum", "question"].map(Some);
    if ["adv_estimator", "reward_method", "weight_mode"].map(|name| inputs.text(name)) != usual {
        return None;
    }
    let (logp, notes) = inputs.logp()?;
    let (loss, advantage) = match inputs.batch.is_f64() {
        true => loss_of::<f64>(inputs, logp),
        false => loss_of::<f32>(inputs, logp),
    }?;
    Some(Outcome {
        loss: Some(loss),
        notes,
        ..Outcome::of(advantage)
    })
}

fn loss_of<T: Precision>(inputs: &HookInputs<'_>, logp: &TokenValues) -> Option<(f64, Computed)> {
    let (layout, old) = (&**inputs.layout(), inputs.tokens("old_logp")?);
    let beta = inputs.number("beta")?;
    let score = |differences: &mut Vec<T>, response| {
        let logp = row::<T>(logp, layout, response)?;
        let pairs = logp.iter().zip(row::<T>(old, layout, response)?);
        differences.clear();
        differences.extend(pairs.map(|(logp, old)| T::narrow(logp.widen() - old.widen())));
        Some(beta * Moments::of(differences, Depth::Sum).sum)
    };
    let scores = try_each_with(
        layout.responses(),
        1,
        &Vec::new,
        &|differences, response| score(differences, response).ok_or(()),
    );
    let scores: Vec<f64> = scores.ok()?;
    let (loss, by_score) = of_scores(inputs, &scores)?;
    let by_token = by_score.iter().map(|by_score| {
        let gradient = T::narrow(by_score * beta).widen();
        let scaled = inputs.factor.map(|factor| T::narrow(gradient * factor));
        scaled.map_or(gradient, T::widen)
    });
    let by_token: Vec<f64> = by_token.collect();
    let is_finite = loss.is_finite() && by_token.iter().all(|gradient| gradient.is_finite());
    let gradient = FloatBuffer::uniform(inputs.layout(), by_token, inputs.batch.is_f64());
    let gradient = Computed::new(inputs.layout().clone(), Level::Token, gradient);
    is_finite.then_some((loss, gradient))
}

/// The loss, and its derivative with respect to each score.
fn of_scores(inputs: &HookInputs<'_>, scores: &[f64]) -> Option<(f64, Vec<f64>)> {
    let right = inputs.response("correct")?;
    let share = Binary::SafeDiv.of(1.0, scores.len() as f64);
    let mut losses = vec![0.0; scores.len()];
    let mut by_score = vec![0.0; scores.len()];
    each_group(inputs, scores, Depth::Extremes, |members, group| {
        let members = members.iter().map(|&member| member as usize);
        let n = members.len() as f64;
        let rights: f64 = members.clone().map(|member| right[member]).sum();
        let mut by_logit = Vec::with_capacity(members.len());
        for member in members.clone() {
            let same = if right[member] != 0.0 {
                rights
            } else {
                n - rights
            };
            // Balances right and wrong responses, if the group has both.
            let weight = if same < n { n / (2.0 * same) } else { 1.0 };
            let logit = scores[member] - others_mean(scores[member], &group);
            let (loss, slope) = cross_entropy(logit, right[member], weight, share);
            losses[member] = loss;
            by_logit.push(slope);
        }
        let to_others = (by_logit.iter()).map(|slope| Binary::SafeDiv.of(-slope, n - 1.0));
        let to_others: Vec<f64> = to_others.collect();
        let negated: Vec<f64> = by_logit.iter().map(|slope| -slope).collect();
        let sum = |values: &[f64]| Moments::of(values, Depth::Sum).sum;
        let by_mean = Binary::SafeDiv.of(sum(&negated) + sum(&to_others), n);
        for ((member, slope), share) in members.zip(by_logit).zip(to_others) {
            by_score[member] = (slope + -share) + by_mean;
        }
        Some(())
    })?;
    let loss = finish(Reduction::Mean, &Moments::of(&losses, Depth::Extremes));
    Some((loss, by_score))
}

/// A response's weighted cross entropy, and its derivative with respect to the logit in a mean where each has `share`.
fn cross_entropy(logit: f64, label: f64, weight: f64, share: f64) -> (f64, f64) {
    let log_sigmoid = |x: f64| Unary::LogSigmoid.of(x);
    let sigmoid = |x: f64| Unary::Sigmoid.of(x);
    let entropy = -(label * log_sigmoid(logit) + (1.0 - label) * log_sigmoid(-logit));
    let grad = -(share * weight);
    let by_right = (grad * label) * sigmoid(-logit);
    let by_wrong = -((grad * (1.0 - label)) * sigmoid(logit));
    (weight * entropy, by_right + by_wrong)
}
