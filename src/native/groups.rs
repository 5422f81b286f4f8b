//! Kernels of advantages with one number per response, which is compared with those of its group.

use super::inputs::Inputs;
use crate::script::{Computation, Setting};
use crate::tensor::op::{Binary, Reduction};
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
    inputs.advantage_of(out)
}

pub(super) fn grpo(inputs: &Inputs<'_>, _: Option<&mut [f32]>) -> Option<Computation> {
    let rewards = inputs.response("reward")?;
    let std = match inputs.text("std")? {
        "sample" => Reduction::Std,
        "population" => Reduction::PopulationStd,
        _ => return None,
    };
    let eps = inputs.number("eps")?;
    advantage(inputs, &rewards, Depth::Squares, |reward, group| {
        Binary::SafeDiv.of(reward - group.mean(), finish(std, group) + eps)
    })
}

pub(super) fn rloo(inputs: &Inputs<'_>, _: Option<&mut [f32]>) -> Option<Computation> {
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

pub(super) fn passk(inputs: &Inputs<'_>, _: Option<&mut [f32]>) -> Option<Computation> {
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
    inputs.advantage_of(out)
}
