//! PACS's loss with its gradient: two passes over the tokens, and the formulas of the responses between them.
//!
//! The gradient is that of the script's graph, its sums in the same order: see the derivatives in the op table.

use std::ops::Range;

use rayon::prelude::*;

use super::groups::{each_group, others_mean};
use super::tokens::{by_response, row, tiles};
use super::{Columns, LossAnswer};
use crate::batch::{Rows, TokenValues};
use crate::script::Placed;
use crate::tensor::op::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, TILE, Token, finish};

/// How scores become logits.
#[derive(Clone, Copy, PartialEq)]
enum Estimator {
    Rloo,
    Grpo,
    Naive,
}

/// How responses are weighed.
#[derive(Clone, Copy)]
enum Weights {
    Question,
    Right,
    Wrong,
    Equal,
}

pub(super) fn loss(
    columns: &Columns<'_>,
    factor: Option<f64>,
    rows: Option<Rows<'_>>,
) -> Option<LossAnswer> {
    let (logp, note) = columns.logp()?;
    let old = match columns.choice("reward_method", &[("sum", true), ("mean", false)])? {
        true => Some(columns.tokens("old_logp")?),
        false => None,
    };
    let (value, gradient) = if columns.batch.is_f64() {
        loss_of::<f64>(columns, logp, old, factor, rows)
    } else {
        loss_of::<f32>(columns, logp, old, factor, rows)
    }?;
    let notes = note.into_iter().map(str::to_string).collect();
    Some((value, gradient, Vec::new(), notes))
}

fn loss_of<T: Token>(
    columns: &Columns<'_>,
    logp: &TokenValues,
    old: Option<&TokenValues>,
    factor: Option<f64>,
    rows: Option<Rows<'_>>,
) -> Option<(f64, Placed)> {
    let beta = columns.number("beta")?;
    let sums = sums::<T>(columns, logp, old)?;
    let scores: Vec<f64> = sums.iter().map(|sum| beta * sum).collect();
    let (value, by_score) = of_scores(columns, &scores)?;
    let fill = |_: &mut (), response: usize, out: &mut [T]| {
        let by_sum = by_score[response] * beta;
        // A mean shares it among the tokens.
        let by_token = match old {
            Some(_) => by_sum,
            None => Binary::SafeDiv.of(by_sum, out.len() as f64),
        };
        let mut slope = T::narrow(by_token);
        if let Some(factor) = factor {
            slope = T::narrow(slope.widen() * factor);
        }
        out.fill(slope);
        (slope.widen().is_finite() || out.is_empty()).then_some(())
    };
    let (gradient, _) = by_response(columns, rows, || (), fill)?;
    value.is_finite().then_some((value, gradient))
}

/// The sum of logp - old_logp of each response, or the mean of its logp.
fn sums<T: Token>(
    columns: &Columns<'_>,
    logp: &TokenValues,
    old: Option<&TokenValues>,
) -> Option<Vec<f64>> {
    let layout = &**columns.layout;
    let of_response = |response: usize| {
        let logp = row::<T>(logp, layout, response)?;
        let old = match old {
            Some(old) => Some(row::<T>(old, layout, response)?),
            None => None,
        };
        let mut difference = [T::default(); TILE];
        let of_tile = |tile: Range<usize>| {
            let logp = &logp[tile.clone()];
            let Some(old) = old else {
                return Moments::of_tile(logp, Depth::Extremes);
            };
            let difference = &mut difference[..tile.len()];
            for ((out, logp), old) in difference.iter_mut().zip(logp).zip(&old[tile]) {
                *out = T::narrow(logp.widen() - old.widen());
            }
            Moments::of_tile(difference, Depth::Sum)
        };
        let moments = tiles(logp.len()).map(of_tile);
        let moments = moments.fold(Moments::EMPTY, Moments::and);
        let kind = match old {
            Some(_) => Reduction::Sum,
            None => Reduction::Mean,
        };
        Some(finish(kind, &moments))
    };
    let responses = (0..layout.responses()).into_par_iter();
    responses.map(of_response).collect()
}

/// The loss, and its derivative by each score.
fn of_scores(columns: &Columns<'_>, scores: &[f64]) -> Option<(f64, Vec<f64>)> {
    let estimators = [
        ("rloo", Estimator::Rloo),
        ("grpo", Estimator::Grpo),
        ("naive", Estimator::Naive),
    ];
    let estimator = columns.choice("adv_estimator", &estimators)?;
    // The std with what is added to it.
    let eps = match columns.truth("std")? && estimator == Estimator::Grpo {
        true => Some(columns.number("eps")?),
        false => None,
    };
    let right = columns.response("correct")?;
    let weights = weights(columns, &right)?;
    let share = Binary::SafeDiv.of(1.0, scores.len() as f64);
    let mut losses = vec![0.0; scores.len()];
    let mut by_score = vec![0.0; scores.len()];
    let mut by_logit = Vec::new();
    each_group(columns, scores, Depth::Squares, |members, group| {
        by_logit.clear();
        for member in members.iter().map(|&member| member as usize) {
            let logit = match estimator {
                Estimator::Rloo => scores[member] - others_mean(scores[member], &group),
                Estimator::Grpo => {
                    let centred = scores[member] - group.mean();
                    let std = eps.map(|eps| finish(Reduction::Std, &group) + eps);
                    std.map_or(centred, |std| Binary::SafeDiv.of(centred, std))
                }
                Estimator::Naive => scores[member],
            };
            let (loss, slope) = cross_entropy(logit, right[member], weights[member], share);
            losses[member] = loss;
            by_logit.push(slope);
        }
        let own: Vec<f64> = members
            .iter()
            .map(|&member| scores[member as usize])
            .collect();
        let slopes = match (estimator, eps) {
            (Estimator::Rloo, _) => less_others(&by_logit),
            (Estimator::Grpo, Some(eps)) => normalised(&own, &group, eps, &by_logit),
            (Estimator::Grpo, None) => less_mean(&by_logit),
            (Estimator::Naive, _) => by_logit.clone(),
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
fn weights(columns: &Columns<'_>, right: &[f64]) -> Option<Vec<f64>> {
    let modes = [
        ("question", Weights::Question),
        ("only_positive", Weights::Right),
        ("only_negative", Weights::Wrong),
        ("none", Weights::Equal),
    ];
    let mode = columns.choice("weight_mode", &modes)?;
    let mut weights = vec![0.0; right.len()];
    each_group(columns, right, Depth::Sum, |members, group| {
        let (n, rights) = (members.len() as f64, group.sum);
        for member in members.iter().map(|&member| member as usize) {
            let own = right[member];
            weights[member] = match mode {
                Weights::Question if rights > 0.0 && rights < n => {
                    let same = if own != 0.0 { rights } else { n - rights };
                    n / (2.0 * same)
                }
                Weights::Right => own,
                Weights::Wrong => 1.0 - own,
                Weights::Question | Weights::Equal => 1.0,
            };
        }
        Some(())
    })?;
    Some(weights)
}

/// A response's weighted cross entropy, and its derivative by the logit in a mean where each has `share`.
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
    let shares = by_logit
        .iter()
        .map(|slope| Binary::SafeDiv.of(-slope, n - 1.0));
    let by_mean = sum(by_logit.iter().map(|slope| -slope)) + sum(shares.clone());
    let of_mean = Binary::SafeDiv.of(by_mean, n);
    let slopes = by_logit.iter().zip(shares);
    slopes
        .map(|(slope, share)| (slope + -share) + of_mean)
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
    let by_std = sum(scores
        .iter()
        .zip(by_logit)
        .map(|(score, &slope)| -Binary::SafeDiv.of(by_top(slope) * (score - group.mean()), scale)));
    let of_mean = Binary::SafeDiv.of(sum(by_logit.iter().map(|&slope| -by_top(slope))), n);
    let slopes = scores.iter().zip(by_logit).map(|(score, &slope)| {
        let of_std = Binary::SafeDiv.of(score - group.mean(), (n - 1.0) * std);
        (by_std * of_std + by_top(slope)) + of_mean
    });
    slopes.collect()
}
