//! PACS's loss with its gradient for the estimator "rloo": two passes over the tokens, and the formulas of the responses
//! between them.
//!
//! The gradient is that of the script's graph, with its sums in the same order: see the derivatives in the op table.

use rayon::prelude::*;

use super::groups::{each_group, others_mean};
use super::inputs::{Inputs, row};
use crate::batch::{Computed, Rows, TokenValues};
use crate::script::Computation;
use crate::tensor::op::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, Token, finish};

pub fn loss(inputs: &Inputs<'_>, rows: Option<Rows<'_>>) -> Option<Computation> {
    if inputs.text("adv_estimator")? != "rloo" {
        return None;
    }
    let (logp, notes) = inputs.logp()?;
    let old = match inputs.text("reward_method")? {
        "sum" => Some(inputs.tokens("old_logp")?),
        "mean" => None,
        _ => return None,
    };
    let (loss, advantage) = if inputs.batch.is_f64() {
        loss_of::<f64>(inputs, logp, old, rows)
    } else {
        loss_of::<f32>(inputs, logp, old, rows)
    }?;
    Some(Computation {
        advantage,
        loss: Some(loss),
        notes,
        ..Computation::default()
    })
}

fn loss_of<T: Token>(
    inputs: &Inputs<'_>,
    logp: &TokenValues,
    old: Option<&TokenValues>,
    rows: Option<Rows<'_>>,
) -> Option<(f64, Option<Computed>)> {
    let beta = inputs.number("beta")?;
    let scores: Vec<f64> = (sums::<T>(inputs, logp, old)?.iter())
        .map(|sum| beta * sum)
        .collect();
    let (loss, by_score) = of_scores(inputs, &scores)?;
    let fill = |_: &mut (), response: usize, out: &mut [T]| {
        let by_sum = by_score[response] * beta;
        // A mean shares it among the tokens.
        out.fill(T::narrow(match old {
            Some(_) => by_sum,
            None => Binary::SafeDiv.of(by_sum, out.len() as f64),
        }));
        Some(())
    };
    let (gradient, _) = inputs.gradient(rows, || (), fill)?;
    loss.is_finite().then_some((loss, gradient))
}

/// The sum of logp - old_logp over each response, or the mean of its logp.
fn sums<T: Token>(
    inputs: &Inputs<'_>,
    logp: &TokenValues,
    old: Option<&TokenValues>,
) -> Option<Vec<f64>> {
    let layout = &**inputs.layout();
    let responses = (0..layout.responses()).into_par_iter();
    let sum = |differences: &mut Vec<T>, response: usize| {
        let logp = row::<T>(logp, layout, response)?;
        let Some(old) = old else {
            let moments = Moments::of(logp, Depth::Extremes);
            return Some(finish(Reduction::Mean, &moments));
        };
        let pairs = logp.iter().zip(row::<T>(old, layout, response)?);
        differences.clear();
        differences.extend(pairs.map(|(logp, old)| T::narrow(logp.widen() - old.widen())));
        Some(Moments::of(differences, Depth::Sum).sum)
    };
    responses.map_init(Vec::new, sum).collect()
}

/// The loss, and its derivative with respect to each score.
fn of_scores(inputs: &Inputs<'_>, scores: &[f64]) -> Option<(f64, Vec<f64>)> {
    let right = inputs.response("correct")?;
    let weights = weights(inputs, &right)?;
    let share = Binary::SafeDiv.of(1.0, scores.len() as f64);
    let mut losses = vec![0.0; scores.len()];
    let mut by_score = vec![0.0; scores.len()];
    each_group(inputs, scores, Depth::Extremes, |members, group| {
        let mut by_logit = Vec::with_capacity(members.len());
        for member in members.iter().map(|&member| member as usize) {
            let logit = scores[member] - others_mean(scores[member], &group);
            let (loss, slope) = cross_entropy(logit, right[member], weights[member], share);
            losses[member] = loss;
            by_logit.push(slope);
        }
        let n = members.len() as f64;
        let to_others: Vec<f64> = (by_logit.iter())
            .map(|slope| Binary::SafeDiv.of(-slope, n - 1.0))
            .collect();
        let negated: Vec<f64> = by_logit.iter().map(|slope| -slope).collect();
        let sum = |values: &[f64]| Moments::of(values, Depth::Sum).sum;
        let by_mean = Binary::SafeDiv.of(sum(&negated) + sum(&to_others), n);
        for ((&member, slope), share) in members.iter().zip(by_logit).zip(to_others) {
            by_score[member as usize] = (slope + -share) + by_mean;
        }
        Some(())
    })?;
    let loss = finish(Reduction::Mean, &Moments::of(&losses, Depth::Extremes));
    Some((loss, by_score))
}

/// The weight of each response.
fn weights(inputs: &Inputs<'_>, right: &[f64]) -> Option<Vec<f64>> {
    let mode = inputs.text("weight_mode")?;
    let mut weights = vec![0.0; right.len()];
    each_group(inputs, right, Depth::Sum, |members, group| {
        let (n, rights) = (members.len() as f64, group.sum);
        for member in members.iter().map(|&member| member as usize) {
            let own = right[member];
            weights[member] = match mode {
                "question" if rights > 0.0 && rights < n => {
                    let same = if own != 0.0 { rights } else { n - rights };
                    n / (2.0 * same)
                }
                "only_positive" => own,
                "only_negative" => 1.0 - own,
                "question" | "none" => 1.0,
                _ => return None,
            };
        }
        Some(())
    })?;
    Some(weights)
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
