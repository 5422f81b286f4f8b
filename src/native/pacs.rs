//! The loss of PACS and its gradient, for the default settings of how scores become weighted logits: one pass over the
//! tokens, then computations per response.
//!
//! The gradient has the same bits as the gradient of the script's graph, because all sums are computed in the same order. See the
//! derivatives in the op table.

use super::inputs::row;
use crate::batch::Computed;
use crate::parallel::try_each_with;
use crate::script::{HookInputs, Outcome};
use crate::tensor::kernel::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, Precision, finish};

pub(super) fn loss<T: Precision>(inputs: &HookInputs<'_>) -> Option<Outcome> {
    let usual = ["rloo", "sum", "question"].map(Some);
    if ["adv_estimator", "reward_method", "weight_mode"].map(|name| inputs.text(name)) != usual {
        return None;
    }
    let (logp, reports) = inputs.logp()?;
    let (layout, old) = (
        inputs.batch.layout(),
        inputs.batch.token_column("old_logp")?,
    );
    let beta = inputs.number("beta")?;
    let score = |differences: &mut Vec<T>, response| {
        let logp = row::<T>(logp, layout, response)?;
        let pairs = logp.iter().zip(row::<T>(old, layout, response)?);
        differences.clear();
        differences.extend(pairs.map(|(logp, old)| T::narrow(logp.widen() - old.widen())));
        Some(beta * Moments::of(differences, Depth::Sum).sum)
    };
    let scores = try_each_with(layout.responses(), 1, &Vec::new, &|scratch, response| {
        score(scratch, response).ok_or(())
    });
    let (loss, by_score) = of_scores(inputs, &scores.ok()?)?;
    let by_token = |by_score: &f64| {
        let gradient = T::narrow(by_score * beta).widen();
        let scaled = inputs.factor.map(|factor| T::narrow(gradient * factor));
        scaled.map_or(gradient, T::widen)
    };
    let by_token: Vec<f64> = by_score.iter().map(by_token).collect();
    let is_finite = loss.is_finite() && by_token.iter().all(|gradient| gradient.is_finite());
    let gradient = Computed::uniform(layout.clone(), by_token, inputs.batch.is_f64());
    is_finite.then(|| Outcome {
        loss: Some(loss),
        reports,
        ..Outcome::of(gradient)
    })
}

/// Returns the loss, and its derivative with respect to each score.
fn of_scores(inputs: &HookInputs<'_>, scores: &[f64]) -> Option<(f64, Vec<f64>)> {
    let right = inputs.script.response_values("correct")?;
    let (layout, share) = (
        inputs.batch.layout(),
        Binary::SafeDiv.eval(1.0, scores.len() as f64),
    );
    let (mut losses, mut by_score) = (vec![0.0; scores.len()], vec![0.0; scores.len()]);
    for group in 0..layout.groups() {
        let members = layout.members(group).iter().map(|&member| member as usize);
        let own: Vec<f64> = members.clone().map(|member| scores[member]).collect();
        let (mean, n) = (Moments::of(&own, Depth::Extremes).mean(), own.len() as f64);
        let rights: f64 = members.clone().map(|member| right[member]).sum();
        let mut by_logit = Vec::with_capacity(own.len());
        for member in members.clone() {
            let same = if right[member] != 0.0 {
                rights
            } else {
                n - rights
            };
            // The weight balances correct and incorrect responses, if the group has both kinds.
            let weight = if same < n { n / (2.0 * same) } else { 1.0 };
            // The mean of the other scores in the group, computed in the same way as by the operation `others_mean`.
            let others = mean + Binary::SafeDiv.eval(mean - scores[member], n - 1.0);
            let logit = scores[member] - others;
            let (loss, slope) = cross_entropy(logit, right[member], weight, share);
            losses[member] = loss;
            by_logit.push(slope);
        }
        let to_others = |slope: &f64| Binary::SafeDiv.eval(-slope, n - 1.0);
        let to_others: Vec<f64> = by_logit.iter().map(to_others).collect();
        let negated: Vec<f64> = by_logit.iter().map(|slope| -slope).collect();
        let sum = |values: &[f64]| Moments::of(values, Depth::Sum).sum;
        let by_mean = Binary::SafeDiv.eval(sum(&negated) + sum(&to_others), n);
        for ((member, slope), share) in members.zip(by_logit).zip(to_others) {
            by_score[member] = (slope + -share) + by_mean;
        }
    }
    let loss = finish(Reduction::Mean, &Moments::of(&losses, Depth::Extremes));
    Some((loss, by_score))
}

/// Returns a response's weighted cross-entropy, and `share` times its derivative with respect to the logit.
fn cross_entropy(logit: f64, label: f64, weight: f64, share: f64) -> (f64, f64) {
    let log_sigmoid = |x: f64| Unary::LogSigmoid.eval(x);
    let sigmoid = |x: f64| Unary::Sigmoid.eval(x);
    let entropy = -(label * log_sigmoid(logit) + (1.0 - label) * log_sigmoid(-logit));
    let grad = -(share * weight);
    let by_right = (grad * label) * sigmoid(-logit);
    let by_wrong = -((grad * (1.0 - label)) * sigmoid(logit));
    (weight * entropy, by_right + by_wrong)
}
