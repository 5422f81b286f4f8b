//! PPO's clipped loss with its gradient and the share of clipped tokens, in one pass over the tokens.
//!
//! The gradient is that of the script's graph, step by step with the same roundings: see the derivatives of `min`, `clamp`,
//! `exp` and `kl` in the op table.

use std::ops::Range;

use multiversion::multiversion;

use super::inputs::{Advantage, Inputs, row};
use crate::batch::{Computed, Layout, Rows, TokenValues};
use crate::script::{Computation, Setting};
use crate::tensor::op::{Binary, FAR, Reduction, Unary};
use crate::tensor::{Depth, Moments, Precision, TILE, Token, finish, in_strides, k3};

pub fn loss(inputs: &Inputs<'_>, rows: Option<Rows<'_>>) -> Option<Computation> {
    if *inputs.params.get("dual_clip")? != Setting::Nothing || inputs.truth("kl_is")? {
        return None;
    }
    let (logp, notes) = inputs.logp()?;
    let beta = inputs.number("kl_beta")?;
    let kl = match beta > 0.0 {
        true => Some((inputs.text("kl")?, inputs.tokens("ref_logp")?)),
        false => None,
    };
    if kl.is_some_and(|(kind, _)| !["k1", "k2", "k3", "abs"].contains(&kind)) {
        return None;
    }
    let clip = Clip {
        logp,
        old: inputs.tokens("old_logp")?,
        advantage: inputs.advantage()?,
        kl,
        beta,
        low: 1.0 - inputs.number("clip_low")?,
        high: 1.0 + inputs.number("clip_high")?,
        by_token: match inputs.text("aggregate")? {
            "token" => true,
            "response" => false,
            _ => return None,
        },
    };
    let (loss, values, clip_share) = if inputs.batch.is_f64() {
        clip.loss::<f64>(inputs, rows)
    } else {
        clip.loss::<f32>(inputs, rows)
    }?;
    Some(Computation {
        advantage: values,
        loss: Some(loss),
        metrics: vec![("clip_share".to_string(), clip_share)],
        notes,
        ..Computation::default()
    })
}

struct Clip<'a> {
    logp: &'a TokenValues,
    old: &'a TokenValues,
    advantage: Advantage,
    kl: Option<(&'a str, &'a TokenValues)>,
    beta: f64,
    low: f64,
    high: f64,
    /// Whether the loss is a mean over tokens, else over the responses' means.
    by_token: bool,
}

/// The values of some tokens of a response.
struct Tokens<'a, T> {
    logp: &'a [T],
    old: &'a [T],
    kl: Option<(&'a str, &'a [T])>,
    /// One per token, or one for all.
    advantage: Result<&'a [T], f64>,
}

impl<'a, T> Tokens<'a, T> {
    fn slice(&self, range: Range<usize>) -> Tokens<'a, T> {
        Tokens {
            logp: &self.logp[range.clone()],
            old: &self.old[range.clone()],
            kl: (self.kl).map(|(kind, reference)| (kind, &reference[range.clone()])),
            advantage: self.advantage.map(|values| &values[range]),
        }
    }
}

impl Clip<'_> {
    /// The loss, its gradient, and the share of clipped tokens.
    fn loss<T: Token>(
        &self,
        inputs: &Inputs<'_>,
        rows: Option<Rows<'_>>,
    ) -> Option<(f64, Option<Computed>, f64)> {
        let layout = &**inputs.layout();
        let with_tokens = (0..layout.responses()).filter(|&r| !layout.tokens_of(r).is_empty());
        let tokens = layout.tokens().max(1) as f64;
        let share = match self.by_token {
            true => 1.0 / tokens,
            false => 1.0 / with_tokens.count().max(1) as f64,
        };
        // The ratios and losses of a tile.
        let scratch = || [(); 2].map(|()| vec![T::default(); TILE]);
        let compute = |[ratio, loss]: &mut [Vec<T>; 2], response: usize, out: &mut [T]| {
            let values = self.response::<T>(layout, response)?;
            // dloss/dloss_t, equal for all tokens of a response.
            let grad = T::narrow(match self.by_token {
                true => share,
                false => share / out.len() as f64,
            });
            let (mut moments, mut clipped) = (Moments::EMPTY, 0);
            for start in (0..out.len()).step_by(TILE) {
                let tile = start..out.len().min(start + TILE);
                let (out, loss) = (&mut out[tile.clone()], &mut loss[..tile.len()]);
                clipped += self.tile(&values.slice(tile), grad, ratio, (&mut *loss, out));
                moments = moments.and(Moments::of_tile(loss, Depth::Extremes));
            }
            Some((moments, clipped))
        };
        let (gradient, summaries) = inputs.gradient(rows, scratch, compute)?;
        let loss = finish(Reduction::Mean, &self.moments(&summaries));
        let clipped: usize = summaries.iter().map(|(_, clipped)| clipped).sum();
        (loss.is_finite()).then(|| (loss, gradient, clipped as f64 / tokens))
    }

    /// The moments of the losses of all tokens, or of the mean losses of all responses that have tokens.
    fn moments(&self, summaries: &[(Moments, usize)]) -> Moments {
        let losses = summaries.iter().map(|(loss, _)| *loss);
        if self.by_token {
            return losses.fold(Moments::EMPTY, Moments::and);
        }
        let tiles = summaries.chunks(TILE).map(|tile| {
            let losses = tile.iter().map(|(loss, _)| *loss);
            let means = losses.filter(|loss| loss.count > 0).map(|loss| loss.mean());
            Moments::of_tile(&means.collect::<Vec<f64>>(), Depth::Extremes)
        });
        tiles.fold(Moments::EMPTY, Moments::and)
    }

    fn response<T: Token>(&self, layout: &Layout, response: usize) -> Option<Tokens<'_, T>> {
        let of = |column| row::<T>(column, layout, response);
        Some(Tokens {
            logp: of(self.logp)?,
            old: of(self.old)?,
            kl: match self.kl {
                Some((kind, reference)) => Some((kind, of(reference)?)),
                None => None,
            },
            advantage: match &self.advantage {
                Advantage::Tokens(values) => Ok(of(values)?),
                Advantage::Responses(values) => Err(values[response]),
            },
        })
    }

    /// Computes a tile's losses and their gradient; gives the number of clipped tokens.
    fn tile<T: Token>(
        &self,
        tokens: &Tokens<'_, T>,
        grad: T,
        ratio: &mut [T],
        (loss, out): (&mut [T], &mut [T]),
    ) -> usize {
        let mut clipped = 0;
        in_strides(out.len(), |stride, before| {
            let tokens = tokens.slice(stride.clone());
            let ratio = &mut ratio[stride.clone()];
            let (loss, out) = (&mut loss[stride.clone()], &mut out[stride]);
            ratios(tokens.logp, tokens.old, ratio);
            let (bounds, into) = ((self.low, self.high), (&mut *loss, &mut *out));
            clipped += match tokens.advantage {
                Ok(values) => surrogate(ratio, |i| values[i].widen(), bounds, grad, into, before),
                Err(value) => surrogate(ratio, |_| value, bounds, grad, into, before),
            };
            if let Some((kind, reference)) = tokens.kl {
                let columns = (tokens.logp, reference);
                add_kl(kind, self.beta, grad, columns, (loss, out));
            }
        });
        clipped
    }
}

/// exp(logp - old_logp)
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn ratios<T: Precision>(logp: &[T], old: &[T], out: &mut [T]) {
    for ((out, logp), old) in out.iter_mut().zip(logp).zip(old) {
        *out = T::narrow(T::exp(T::narrow(logp.widen() - old.widen()).widen()));
    }
}

/// The losses of tokens and their gradient, from the ratios. Gives the number of clipped tokens, without the first `before`,
/// which another stride has counted.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn surrogate<T: Precision>(
    ratio: &[T],
    advantage: impl Fn(usize) -> f64 + Copy,
    (low, high): (f64, f64),
    grad: T,
    (loss, out): (&mut [T], &mut [T]),
    before: usize,
) -> usize {
    let length = ratio.len();
    let (loss, out) = (&mut loss[..length], &mut out[..length]);
    // In the precision of tokens, a ratio is outside if it is less than `from` or more than `to`.
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
        loss[i] = T::narrow(-Binary::Min.of(free.widen(), held.widen()));
        clipped += u32::from((held < free) & (before <= i));
        // The gradient goes to the smaller of the two, and half to each at a tie.
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

/// Adds beta KL to the losses, and its derivative with respect to logp to their gradient.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn add_kl<T: Precision>(
    kind: &str,
    beta: f64,
    grad: T,
    (logp, reference): (&[T], &[T]),
    (loss, out): (&mut [T], &mut [T]),
) {
    let length = logp.len();
    let (reference, loss, out) = (
        &reference[..length],
        &mut loss[..length],
        &mut out[..length],
    );
    let grad = T::narrow(grad.widen() * beta);
    // Each estimator has a loop of its own, which the compiler vectorises.
    macro_rules! each {
        ($d:ident => $kl:expr) => {
            for i in 0..length {
                let $d = T::narrow(logp[i].widen() - reference[i].widen()).widen();
                let (kl, slope): (T, T) = $kl;
                let kl = T::narrow(beta * kl.widen());
                loss[i] = T::narrow(loss[i].widen() + kl.widen());
                out[i] = T::narrow(out[i].widen() + slope.widen());
            }
        };
    }
    match kind {
        "k1" => each!(d => (T::narrow(d), grad)),
        "k2" => {
            let half = T::narrow(grad.widen() / 2.0).widen();
            each!(d => {
                let square = T::narrow(d * d).widen();
                let slope = T::narrow(2.0 * d).widen();
                (T::narrow(square / 2.0), T::narrow(half * slope))
            });
        }
        "k3" => each!(d => {
            let k3 = T::narrow(k3(d));
            let near = T::narrow(d - k3.widen());
            let slope = if FAR < d { T::narrow(1.0) } else { near };
            (k3, T::narrow(grad.widen() * slope.widen()))
        }),
        _ => {
            each!(d => (T::narrow(d.abs()), T::narrow(grad.widen() * Unary::Sign.of(d))))
        }
    }
}
