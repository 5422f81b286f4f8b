//! PPO's clipped loss, its gradient and the fraction of clipped tokens, computed in one pass over the tokens.
//!
//! The gradient has the same bits as the gradient of the script's graph, because all values are rounded at the same points. See
//! the derivatives of `min`, `clamp`, `exp` and `kl` in the op table.

use multiversion::multiversion;

use super::inputs::row;
use crate::script::{HookInputs, Outcome, ParamValue};
use crate::tensor::kernel::{Binary, Reduction};
use crate::tensor::op::FAR;
use crate::tensor::{Depth, Moments, Precision, TILE, finish, in_strides, k3};

pub(super) fn loss<T: Precision>(inputs: &HookInputs<'_>) -> Option<Outcome> {
    let is = |name, setting: ParamValue| inputs.params.get(name) == Some(&setting);
    if !is("dual_clip", ParamValue::Unset) || !is("kl_is", ParamValue::Bool(false)) {
        return None;
    }
    // If `by_token` is false, the loss is the mean over responses of each response's mean over tokens.
    let by_token = match inputs.text("aggregate")? {
        "token" => true,
        "response" => false,
        _ => return None,
    };
    let beta = inputs.number("kl_beta")?;
    let reference = match (beta > 0.0, inputs.text("kl")?) {
        (false, _) => None,
        (true, "k3") => Some(inputs.batch.token_column("ref_logp")?),
        _ => return None,
    };
    let (logp, mut reports) = inputs.logp()?;
    let (old, advantage) = (
        inputs.batch.token_column("old_logp")?,
        inputs.batch.token_column("advantage"),
    );
    let by_response = inputs.batch.response_column("advantage");
    if advantage.is_none() && by_response.is_none() {
        return None;
    }
    let bounds = (
        1.0 - inputs.number("clip_low")?,
        1.0 + inputs.number("clip_high")?,
    );
    let layout = &**inputs.batch.layout();
    let tokens = layout.tokens().max(1) as f64;
    let with_tokens = (0..layout.responses()).filter(|&r| !layout.tokens_of(r).is_empty());
    let cells = if by_token {
        tokens
    } else {
        with_tokens.count().max(1) as f64
    };
    let share = 1.0 / cells;
    // Memory for the ratios and losses of a tile.
    let scratch = || [(); 2].map(|()| vec![T::default(); TILE]);
    // Writes the gradient of a response, and returns the moments of its losses and the number of its clipped tokens.
    let compute = |[ratio, loss]: &mut [Vec<T>; 2], response: usize, out: &mut [T]| {
        // The derivative of the total loss with respect to a token's loss, which is the same for all tokens of a response.
        let count = if by_token { 1 } else { out.len() };
        let grad = T::narrow(share / count as f64);
        let of = |column| row::<T>(column, layout, response);
        let (logp, old) = (of(logp)?, of(old)?);
        let (mut moments, mut clipped) = (Moments::EMPTY, 0);
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let tile = tile * TILE..tile * TILE + out.len();
            let (logp, old) = (&logp[tile.clone()], &old[tile.clone()]);
            let (ratio, loss) = (&mut ratio[..tile.len()], &mut loss[..tile.len()]);
            in_strides(tile.len(), |part| {
                ratios(&logp[part.clone()], &old[part.clone()], &mut ratio[part]);
            });
            let into = (&mut *loss, &mut *out);
            clipped += if let Some(advantage) = advantage {
                let values = &of(advantage)?[tile.clone()];
                surrogate(ratio, |i| values[i].widen(), bounds, grad, into)
            } else {
                let value = by_response?[response];
                surrogate(ratio, |_| value, bounds, grad, into)
            };
            if let Some(reference) = reference {
                add_k3(beta, grad, (logp, &of(reference)?[tile]), (&mut *loss, out));
            }
            moments = moments.and(Moments::of_tile(loss, Depth::Extremes));
        }
        Some((moments, clipped))
    };
    let (gradient, summaries) = inputs.gradient(scratch, compute)?;
    // The moments of the losses of all tokens, or of the mean losses of all responses that have tokens.
    let tiles = summaries.chunks(TILE).map(|tile| {
        let losses = tile.iter().map(|(loss, _)| *loss);
        if by_token {
            return losses.collect::<Vec<Moments>>();
        }
        let means = losses.filter(|loss| loss.count > 0).map(|loss| loss.mean());
        vec![Moments::of_tile(
            &means.collect::<Vec<f64>>(),
            Depth::Extremes,
        )]
    });
    let losses = tiles.flatten().fold(Moments::EMPTY, Moments::and);
    let loss = finish(Reduction::Mean, &losses);
    let clipped: usize = summaries.iter().map(|(_, clipped)| clipped).sum();
    let clip_share = ("clip_share".to_string(), clipped as f64 / tokens);
    reports.metrics.push(clip_share);
    loss.is_finite().then(|| Outcome {
        loss: Some(loss),
        reports,
        ..Outcome::of(gradient)
    })
}

/// Computes the ratios exp(logp - old_logp).
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn ratios<T: Precision>(logp: &[T], old: &[T], out: &mut [T]) {
    for ((out, logp), old) in out.iter_mut().zip(logp).zip(old) {
        *out = T::narrow(T::exp(T::narrow(logp.widen() - old.widen()).widen()));
    }
}

/// Computes the tokens' losses and the gradient from the ratios. Returns the number of clipped tokens.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn surrogate<T: Precision>(
    ratio: &[T],
    advantage: impl Fn(usize) -> f64 + Copy,
    (low, high): (f64, f64),
    grad: T,
    (loss, out): (&mut [T], &mut [T]),
) -> usize {
    let length = ratio.len();
    let (loss, out) = (&mut loss[..length], &mut out[..length]);
    // A ratio in the precision of tokens is outside the bounds if and only if it is below `from` or above `to`.
    let (from, to) = (T::at_least(low), T::narrow(-T::at_least(-high).widen()));
    let (low, high) = (T::narrow(low), T::narrow(high));
    let times = |a: T, b: f64| T::narrow(a.widen() * b);
    let less = T::narrow(-grad.widen());
    let half = times(less, 0.5);
    let zero = times(less, 0.0);
    let mut clipped = 0u32;
    for i in 0..length {
        let (ratio, advantage) = (ratio[i], advantage(i));
        let is_outside = (ratio < from) | (ratio > to);
        let inside = if ratio < from { low } else { ratio };
        let inside = if ratio > to { high } else { inside };
        let (free, held) = (times(ratio, advantage), times(inside, advantage));
        loss[i] = T::narrow(-Binary::Min.eval(free.widen(), held.widen()));
        clipped += u32::from(held < free);
        // The gradient goes to the smaller of `free` and `held`; if they are equal, each gets half of it.
        let to_free = if free < held { less } else { zero };
        let to_free = if free == held { half } else { to_free };
        let to_held = T::narrow(less.widen() - to_free.widen());
        let to_held = times(to_held, advantage);
        let to_held = if is_outside { T::default() } else { to_held };
        let by_ratio = T::narrow(times(to_free, advantage).widen() + to_held.widen());
        out[i] = times(by_ratio, ratio.widen());
    }
    clipped as usize
}

/// Adds beta times the KL estimate k3 to the losses, and the derivative of this term with respect to logp to the gradient.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn add_k3<T: Precision>(
    beta: f64,
    grad: T,
    (logp, reference): (&[T], &[T]),
    (loss, out): (&mut [T], &mut [T]),
) {
    let times = |a: T, b: T| T::narrow(a.widen() * b.widen());
    let grad = T::narrow(grad.widen() * beta);
    let columns = logp.iter().zip(reference);
    for ((loss, out), (logp, reference)) in loss.iter_mut().zip(out).zip(columns) {
        let d = T::narrow(logp.widen() - reference.widen()).widen();
        let kl = T::narrow(k3(d));
        let near = T::narrow(d - kl.widen());
        let slope = if FAR < d { T::narrow(1.0) } else { near };
        let (kl, slope) = (T::narrow(beta * kl.widen()), times(grad, slope));
        *loss = T::narrow(loss.widen() + kl.widen());
        *out = T::narrow(out.widen() + slope.widen());
    }
}
