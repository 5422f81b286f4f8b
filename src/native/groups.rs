//! Kernels of advantages that are one number a response: they compare the responses of a group.

use super::{Columns, Signals};
use crate::tensor::op::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, binomial_ratio, finish};

/// The values of each group's responses in turn, with all that a reduction needs to know of them.
pub(super) fn each_group(
    columns: &Columns<'_>,
    values: &[f64],
    depth: Depth,
    mut of: impl FnMut(&[u32], Moments) -> Option<()>,
) -> Option<()> {
    let mut gathered = Vec::new();
    for group in 0..columns.layout.groups() {
        let members = columns.layout.members(group);
        gathered.clear();
        gathered.extend(members.iter().map(|&member| values[member as usize]));
        of(members, Moments::of(&gathered, depth))?;
    }
    Some(())
}

/// A value for each response, from its own reward and what is known of its group's.
fn by_group(
    columns: &Columns<'_>,
    rewards: &[f64],
    depth: Depth,
    of: impl Fn(f64, &Moments) -> f64,
) -> Option<Signals> {
    let mut out = vec![0.0; rewards.len()];
    each_group(columns, rewards, depth, |members, moments| {
        for &member in members {
            out[member as usize] = of(rewards[member as usize], &moments);
        }
        Some(())
    })?;
    Some((None, columns.finite(out)?))
}

pub(super) fn grpo(columns: &Columns<'_>) -> Option<Signals> {
    grpo_of(columns, &columns.response("reward")?)
}

fn grpo_of(columns: &Columns<'_>, rewards: &[f64]) -> Option<Signals> {
    let kinds = [
        ("sample", Reduction::Std),
        ("population", Reduction::PopulationStd),
    ];
    let (std, eps) = (columns.choice("std", &kinds)?, columns.number("eps")?);
    by_group(columns, rewards, Depth::Squares, |reward, group| {
        Binary::SafeDiv.of(reward - group.mean(), finish(std, group) + eps)
    })
}

pub(super) fn dr_grpo(columns: &Columns<'_>) -> Option<Signals> {
    let rewards = columns.response("reward")?;
    by_group(columns, &rewards, Depth::Extremes, |reward, group| {
        reward - group.mean()
    })
}

pub(super) fn rloo(columns: &Columns<'_>) -> Option<Signals> {
    let rewards = columns.response("reward")?;
    by_group(columns, &rewards, Depth::Extremes, |reward, group| {
        reward - others_mean(reward, group)
    })
}

/// The mean of the others, written as the op table has it.
pub(super) fn others_mean(own: f64, group: &Moments) -> f64 {
    let mean = group.mean();
    mean + Binary::SafeDiv.of(mean - own, group.count as f64 - 1.0)
}

pub(super) fn passk(columns: &Columns<'_>) -> Option<Signals> {
    let k = columns.whole("k")?;
    let right = columns.response("correct")?;
    let mut out = vec![0.0; right.len()];
    each_group(columns, &right, Depth::Sum, |members, moments| {
        let n = members.len() as i64;
        let rights = moments.sum;
        // The script says what is wrong with a k beyond the group, or a response that is half right.
        if k < 1 || n < k || rights.fract() != 0.0 {
            return None;
        }
        let wrong = n - rights as i64;
        let fail = binomial_ratio(wrong, n, k).ok()?;
        let fail_with_me = binomial_ratio(wrong - 1, n - 1, k - 1).ok()?;
        let scale = (fail * (1.0 - fail)).sqrt();
        let if_right = Binary::SafeDiv.of(fail - 0.0, scale);
        let if_wrong = Binary::SafeDiv.of(fail - fail_with_me, scale);
        for &member in members {
            let is_right = right[member as usize] != 0.0;
            out[member as usize] = if is_right { if_right } else { if_wrong };
        }
        Some(())
    })?;
    Some((None, columns.finite(out)?))
}

pub(super) fn grpo_lambda(columns: &Columns<'_>) -> Option<Signals> {
    let (right, length) = (columns.response("correct")?, columns.response("length")?);
    let share = columns.number("acc_top_lambda")?;
    let alpha = columns.number("length_penalty_alpha")?;
    let eps = columns.number("length_eps")?;
    let mut accuracy = Vec::with_capacity(columns.layout.groups());
    each_group(columns, &right, Depth::Extremes, |_, moments| {
        accuracy.push(moments.mean());
        Some(())
    })?;
    if accuracy.iter().any(|accuracy| accuracy.is_nan()) {
        return None;
    }
    let tops = Binary::Max.of(1.0, (share * accuracy.len() as f64 - 1e-9).ceil());
    // The best first; a stable sort, so that ties keep their order.
    let mut order: Vec<usize> = (0..accuracy.len()).collect();
    order.sort_by(|&a, &b| (-accuracy[a]).total_cmp(&(-accuracy[b])));
    let mut is_top = vec![false; accuracy.len()];
    for (rank, group) in order.into_iter().enumerate() {
        is_top[group] = (rank as f64) < tops;
    }
    let mut out = vec![0.0; right.len()];
    let mut selected = Vec::new();
    for (group, &is_top) in is_top.iter().enumerate() {
        let members = columns.layout.members(group).iter();
        let members = members.map(|&member| member as usize);
        selected.clear();
        let rights = members.clone().filter(|&r| right[r] != 0.0);
        selected.extend(rights.map(|r| length[r]));
        let lengths = Moments::of(&selected, Depth::Squares);
        let mean = finish(Reduction::Mean, &lengths);
        let std = finish(Reduction::PopulationStd, &lengths) + eps;
        for member in members {
            let z = Binary::SafeDiv.of(length[member] - mean, std);
            let penalised = 1.0 - alpha * Unary::Sigmoid.of(z);
            out[member] = right[member] * if is_top { penalised } else { 1.0 };
        }
    }
    let (_, advantage) = grpo_of(columns, &out)?;
    Some((Some(columns.finite(out)?), advantage))
}
