//! Kernels of advantages with one number per response, which is compared with those of its group.

use super::inputs::Inputs;
use crate::batch::{Computed, Rows};
use crate::script::{Computation, Setting};
use crate::tensor::op::{Binary, Reduction, Unary};
use crate::tensor::{Depth, Moments, binomial_ratio, finish};

/// The members of each group in turn, with the moments of their values.
pub(super) fn each_group(
    inputs: &Inputs<'_>,
    values: &[f64],
    depth: Depth,
    mut of: impl FnMut(&[u32], Moments) -> Option<()>,
) -> Option<()> {
    let mut gathered = Vec::new();
    for group in 0..inputs.layout().groups() {
        let members = inputs.layout().members(group);
        gathered.clear();
        gathered.extend(members.iter().map(|&member| values[member as usize]));
        of(members, Moments::of(&gathered, depth))?;
    }
    Some(())
}

/// An advantage computed from each response's reward and the moments of its group's rewards.
fn advantage(
    inputs: &Inputs<'_>,
    rewards: &[f64],
    depth: Depth,
    of: impl Fn(f64, &Moments) -> f64,
) -> Option<Computation> {
    let mut out = vec![0.0; rewards.len()];
    each_group(inputs, rewards, depth, |members, moments| {
        for &member in members {
            out[member as usize] = of(rewards[member as usize], &moments);
        }
        Some(())
    })?;
    Some(answer(None, inputs.finite(out)?))
}

fn answer(reward: Option<Computed>, advantage: Computed) -> Computation {
    Computation {
        reward,
        advantage: Some(advantage),
        ..Computation::default()
    }
}

pub(super) fn grpo(inputs: &Inputs<'_>, _: Option<Rows<'_>>) -> Option<Computation> {
    grpo_of(inputs, &inputs.response("reward")?)
}

fn grpo_of(inputs: &Inputs<'_>, rewards: &[f64]) -> Option<Computation> {
    let std = match inputs.text("std")? {
        "sample" => Reduction::Std,
        "population" => Reduction::PopulationStd,
        _ => return None,
    };
    let eps = inputs.number("eps")?;
    advantage(inputs, rewards, Depth::Squares, |reward, group| {
        Binary::SafeDiv.of(reward - group.mean(), finish(std, group) + eps)
    })
}

pub(super) fn dr_grpo(inputs: &Inputs<'_>, _: Option<Rows<'_>>) -> Option<Computation> {
    let rewards = inputs.response("reward")?;
    advantage(inputs, &rewards, Depth::Extremes, |reward, group| {
        reward - group.mean()
    })
}

pub(super) fn rloo(inputs: &Inputs<'_>, _: Option<Rows<'_>>) -> Option<Computation> {
    let rewards = inputs.response("reward")?;
    advantage(inputs, &rewards, Depth::Extremes, |reward, group| {
        reward - others_mean(reward, group)
    })
}

/// The mean of the others, as the op table computes it.
pub(super) fn others_mean(own: f64, group: &Moments) -> f64 {
    let mean = group.mean();
    mean + Binary::SafeDiv.of(mean - own, group.count as f64 - 1.0)
}

pub(super) fn passk(inputs: &Inputs<'_>, _: Option<Rows<'_>>) -> Option<Computation> {
    let Setting::Whole(k) = *inputs.params.get("k")? else {
        return None;
    };
    let right = inputs.response("correct")?;
    let mut out = vec![0.0; right.len()];
    each_group(inputs, &right, Depth::Sum, |members, moments| {
        let n = members.len() as i64;
        let rights = moments.sum;
        // The script explains a k that is larger than the group, or a response that is half right.
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
    Some(answer(None, inputs.finite(out)?))
}

pub(super) fn grpo_lambda(inputs: &Inputs<'_>, _: Option<Rows<'_>>) -> Option<Computation> {
    let (right, length) = (inputs.response("correct")?, inputs.response("length")?);
    let share = inputs.number("acc_top_lambda")?;
    let alpha = inputs.number("length_penalty_alpha")?;
    let eps = inputs.number("length_eps")?;
    let mut accuracy = Vec::with_capacity(inputs.layout().groups());
    each_group(inputs, &right, Depth::Extremes, |_, moments| {
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
        let members = inputs.layout().members(group).iter();
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
    let answer = grpo_of(inputs, &out)?;
    Some(Computation {
        reward: Some(inputs.finite(out)?),
        ..answer
    })
}
