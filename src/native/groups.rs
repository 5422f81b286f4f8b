//! Kernels of advantages with one number per response, computed from the response's value and its group.

use super::inputs::HookInputs;
use crate::batch::{Computed, Level};
use crate::script::{Outcome, ParamValue};
use crate::tensor::op::{Binary, Reduction};
use crate::tensor::{Depth, Moments, binomial_ratio, finish};

/// The members of each group in turn, with the moments of their values.
pub(super) fn each_group(
    inputs: &HookInputs<'_>,
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

/// An advantage computed from each response's value and the values of its group: `of` returns the group's function of a
/// value, or declines.
fn advantage<F: Fn(f64) -> f64>(
    inputs: &HookInputs<'_>,
    values: &[f64],
    depth: Depth,
    of: impl Fn(Moments) -> Option<F>,
) -> Option<Outcome> {
    let mut out = vec![0.0; values.len()];
    each_group(inputs, values, depth, |members, moments| {
        let of = of(moments)?;
        for &member in members {
            out[member as usize] = of(values[member as usize]);
        }
        Some(())
    })?;
    let is_finite = out.iter().all(|value| value.is_finite());
    let advantage = Computed::new(inputs.layout().clone(), Level::Response, out);
    is_finite.then(|| Outcome::of(advantage))
}

pub(super) fn grpo(inputs: &HookInputs<'_>) -> Option<Outcome> {
    let rewards = inputs.response("reward")?;
    let std = match inputs.text("std")? {
        "sample" => Reduction::Std,
        "population" => Reduction::PopulationStd,
        _ => return None,
    };
    let eps = inputs.number("eps")?;
    advantage(inputs, &rewards, Depth::Squares, |group| {
        let (mean, scale) = (group.mean(), finish(std, &group) + eps);
        Some(move |reward| Binary::SafeDiv.of(reward - mean, scale))
    })
}

pub(super) fn rloo(inputs: &HookInputs<'_>) -> Option<Outcome> {
    let rewards = inputs.response("reward")?;
    advantage(inputs, &rewards, Depth::Extremes, |group| {
        Some(move |reward| reward - others_mean(reward, &group))
    })
}

/// The mean of the others, as the op table computes it.
pub(super) fn others_mean(own: f64, group: &Moments) -> f64 {
    let mean = group.mean();
    mean + Binary::SafeDiv.of(mean - own, group.count as f64 - 1.0)
}

pub(super) fn passk(inputs: &HookInputs<'_>) -> Option<Outcome> {
    let ParamValue::Integer(k) = *inputs.params.get("k")? else {
        return None;
    };
    let right = inputs.response("correct")?;
    advantage(inputs, &right, Depth::Sum, |group| {
        let (n, rights) = (group.count as i64, group.sum);
        // Falls back to the script, which explains a k larger than the group, or a response that is half right.
        if k < 1 || n < k || rights.fract() != 0.0 {
            return None;
        }
        let wrong = n - rights as i64;
        let fail = binomial_ratio(wrong, n, k).ok()?;
        let fail_with_me = binomial_ratio(wrong - 1, n - 1, k - 1).ok()?;
        let scale = (fail * (1.0 - fail)).sqrt();
        let if_right = Binary::SafeDiv.of(fail - 0.0, scale);
        let if_wrong = Binary::SafeDiv.of(fail - fail_with_me, scale);
        Some(move |right| if right != 0.0 { if_right } else { if_wrong })
    })
}
