//! PACS's loss with its gradient: two passes over the tokens, and the formulas of the responses between them.
//!
//! The gradient is that of the script's graph, with its sums in the same order: see the derivatives in the op table.

use rayon::prelude::*;

use super::groups::{each_group, others_mean};
use super::inputs::{Inputs, row};
use crate::batch::{Computed, Rows, TokenValues};
use crate::script::Computation;
use crate::tensor::op::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, Token, finish};

pub(super) fn loss(inputs: &Inputs<'_>, rows: Option<Rows<'_>>) -> Option<Computation> {
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
        let mut slope = T::narrow(match old {
            Some(_) => by_sum,
            None => Binary::SafeDiv.of(by_sum, out.len() as f64),
        });
        if let Some(factor) = inputs.factor {
            slope = T::narrow(slope.widen() * factor);
        }
        out.fill(slope);
        (slope.widen().is_finite() || out.is_empty()).then_some(())
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
    let estimator = inputs.text("adv_estimator")?;
    let eps = match inputs.truth("std")? {
        true => Some(inputs.number("eps")?),
        false => None,
    };
    let right = inputs.response("correct")?;
    let weights = weights(inputs, &right)?;
    let share = Binary::SafeDiv.of(1.0, scores.len() as f64);
    let mut losses = vec![0.0; scores.len()];
    let mut by_score = vec![0.0; scores.len()];
    each_group(inputs, scores, Depth::Squares, |members, group| {
        let own: Vec<f64> = members.iter().map(|&m| scores[m as usize]).collect();
        let logit = |score: f64| match (estimator, eps) {
            ("rloo", _) => score - others_mean(score, &group),
            ("grpo", None) => score - group.mean(),
            ("grpo", Some(eps)) => {
                Binary::SafeDiv.of(score - group.mean(), finish(Reduction::Std, &group) + eps)
            }
            _ => score,
        };
        let mut by_logit = Vec::with_capacity(own.len());
        for (&member, &score) in members.iter().zip(&own) {
            let member = member as usize;
            let (loss, slope) = cross_entropy(logit(score), right[member], weights[member], share);
            losses[member] = loss;
            by_logit.push(slope);
        }
        let slopes = match (estimator, eps) {
            ("rloo", _) => less_others(&by_logit),
            ("grpo", None) => less_mean(&by_logit),
            ("grpo", Some(eps)) => normalised(&own, &group, eps, &by_logit),
            ("naive", _) => by_logit,
            _ => return None,
        };
        for (&member, slope) in members.iter().zip(slopes) {
            by_score[member as usize] = slope;
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

fn sum(values: impl Iterator<Item = f64>) -> f64 {
    Moments::of(&values.collect::<Vec<f64>>(), Depth::Sum).sum
}

/// Through score - mean of the others.
fn less_others(by_logit: &[f64]) -> Vec<f64> {
    let n = by_logit.len() as f64;
    let share = |slope: &f64| Binary::SafeDiv.of(-slope, n - 1.0);
    let by_mean = sum(by_logit.iter().map(|slope| -slope)) + sum(by_logit.iter().map(share));
    let of_mean = Binary::SafeDiv.of(by_mean, n);
    let slopes = by_logit.iter();
    slopes
        .map(|slope| (slope + -share(slope)) + of_mean)
        .collect()
}

/// Through score - mean.
fn less_mean(by_logit: &[f64]) -> Vec<f64> {
    let by_mean = sum(by_logit.iter().map(|slope| -slope));
    let of_mean = Binary::SafeDiv.of(by_mean, by_logit.len() as f64);
    by_logit.iter().map(|slope| slope + of_mean).collect()
}

/// Through (score - mean) / (std + eps).
fn normalised(scores: &[f64], group: &Moments, eps: f64, by_logit: &[f64]) -> Vec<f64> {
    let (n, std) = (scores.len() as f64, finish(Reduction::Std, group));
    let scale = std + eps;
    let by_top = |slope: f64| Binary::SafeDiv.of(slope, scale);
    let centred = |score: f64| score - group.mean();
    let pairs = || scores.iter().copied().zip(by_logit.iter().copied());
    let by_std =
        sum(pairs()
            .map(|(score, slope)| -Binary::SafeDiv.of(by_top(slope) * centred(score), scale)));
    let of_mean = Binary::SafeDiv.of(sum(by_logit.iter().map(|&slope| -by_top(slope))), n);
    let slopes = pairs().map(|(score, slope)| {
        let of_std = Binary::SafeDiv.of(centred(score), (n - 1.0) * std);
        (by_std * of_std + by_top(slope)) + of_mean
    });
    slopes.collect()
}
