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

pub(super) fn loss(inputs: &Inputs<'_>, rows: Option<Rows<'_>>) -> Option<Computation> {
    if *inputs.params.get("dual_clip")? != Setting::Nothing || inputs.truth("kl_is")? {
        return None;
    }
    let (logp, notes) = inputs.logp()?;
    let beta = inputs.number("kl_beta")?;
    let kl = match beta > 0.0 {
        true => Some((kl_kind(inputs.text("kl")?)?, inputs.tokens("ref_logp")?)),
        false => None,
    };
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

#[derive(Clone, Copy)]
enum Kl {
    K1,
    K2,
    K3,
    Abs,
}

fn kl_kind(name: &str) -> Option<Kl> {
    match name {
        "k1" => Some(Kl::K1),
        "k2" => Some(Kl::K2),
        "k3" => Some(Kl::K3),
        "abs" => Some(Kl::Abs),
        _ => None,
    }
}

struct Clip<'a> {
    logp: &'a TokenValues,
    old: &'a TokenValues,
    advantage: Advantage,
    kl: Option<(Kl, &'a TokenValues)>,
    beta: f64,
    low: f64,
    high: f64,
    /// Whether the loss is a mean over tokens, else over the responses' means.
    by_token: bool,
}

/// The values of a response.
struct Response<'a, T> {
    logp: &'a [T],
    old: &'a [T],
    kl: Option<(Kl, &'a [T])>,
    /// One per token, or one for the response.
    advantage: Result<&'a [T], f64>,
}

/// Summary of a response.
struct Summary {
    loss: Moments,
    clipped: usize,
    is_finite: bool,
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
            let mut summary = Summary {
                loss: Moments::EMPTY,
                clipped: 0,
                is_finite: true,
            };
            for start in (0..out.len()).step_by(TILE) {
                let tile = start..out.len().min(start + TILE);
                let (out, loss) = (&mut out[tile.clone()], &mut loss[..tile.len()]);
                summary.clipped += self.tile(&values, tile, grad, ratio, (&mut *loss, &mut *out));
                summary.is_finite &= scale(out, inputs.factor);
                summary.loss = summary.loss.and(Moments::of_tile(loss, Depth::Extremes));
            }
            Some(summary)
        };
        let (gradient, summaries) = inputs.gradient(rows, scratch, compute)?;
        let loss = finish(Reduction::Mean, &self.moments(&summaries));
        let clipped: usize = summaries.iter().map(|one| one.clipped).sum();
        let is_finite = loss.is_finite() && summaries.iter().all(|one| one.is_finite);
        is_finite.then(|| (loss, gradient, clipped as f64 / tokens))
    }

    /// The moments of the losses of all tokens, or of the mean losses of all responses that have tokens.
    fn moments(&self, summaries: &[Summary]) -> Moments {
        let losses = summaries.iter().map(|one| one.loss);
        if self.by_token {
            return losses.fold(Moments::EMPTY, Moments::and);
        }
        let tiles = summaries.chunks(TILE).map(|tile| {
            let losses = tile.iter().map(|one| one.loss);
            let means = losses.filter(|loss| loss.count > 0).map(|loss| loss.mean());
            Moments::of_tile(&means.collect::<Vec<f64>>(), Depth::Extremes)
        });
        tiles.fold(Moments::EMPTY, Moments::and)
    }

    fn response<T: Token>(&self, layout: &Layout, response: usize) -> Option<Response<'_, T>> {
        let of = |column| row::<T>(column, layout, response);
        Some(Response {
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
        response: &Response<'_, T>,
        tile: Range<usize>,
        grad: T,
        ratio: &mut [T],
        (loss, out): (&mut [T], &mut [T]),
    ) -> usize {
        let (logp, old) = (&response.logp[tile.clone()], &response.old[tile.clone()]);
        let kl = response
            .kl
            .map(|(kind, values)| (kind, &values[tile.clone()]));
        let advantage = response.advantage.map(|values| &values[tile.clone()]);
        let bounds = Bounds::new(self.low, self.high);
        let mut count = 0;
        in_strides(tile.len(), |own, before| {
            let (logp, ratio) = (&logp[own.clone()], &mut ratio[own.clone()]);
            ratios(logp, &old[own.clone()], ratio);
            let (loss, out) = (&mut loss[own.clone()], &mut out[own.clone()]);
            let into = (&mut *loss, &mut *out);
            count += match advantage {
                Ok(values) => {
                    let values = &values[own.clone()];
                    surrogate(ratio, |i| values[i].widen(), bounds, grad, into, before)
                }
                Err(value) => surrogate(ratio, |_| value, bounds, grad, into, before),
            };
            if let Some((kind, reference)) = kl {
                add_kl(kind, self.beta, grad, (logp, &reference[own]), (loss, out));
            }
        });
        count
    }
}

/// exp(logp - old_logp)
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn ratios<T: Precision>(logp: &[T], old: &[T], out: &mut [T]) {
    for ((out, logp), old) in out.iter_mut().zip(logp).zip(old) {
        *out = T::narrow(T::exp(T::narrow(logp.widen() - old.widen()).widen()));
    }
}

/// The bounds of a ratio in the precision of tokens: a ratio is below `low` if it is less than `from`, and above `high`
/// if it is more than `to`.
#[derive(Clone, Copy)]
struct Bounds<T> {
    low: T,
    high: T,
    from: T,
    to: T,
}

impl<T: Token> Bounds<T> {
    fn new(low: f64, high: f64) -> Bounds<T> {
        Bounds {
            low: T::narrow(low),
            high: T::narrow(high),
            from: T::at_least(low),
            to: T::narrow(-T::at_least(-high).widen()),
        }
    }
}

/// The losses of tokens and their gradient, from the ratios. Gives the number of clipped tokens, without the first `before`,
/// which another stride has counted.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn surrogate<T: Precision>(
    ratio: &[T],
    advantage: impl Fn(usize) -> f64 + Copy,
    bounds: Bounds<T>,
    grad: T,
    (loss, out): (&mut [T], &mut [T]),
    before: usize,
) -> usize {
    let length = ratio.len();
    let (loss, out) = (&mut loss[..length], &mut out[..length]);
    let times = |a: T, b: f64| T::narrow(a.widen() * b);
    let less = T::narrow(-grad.widen());
    let half = times(less, 0.5);
    let zero = times(less, 0.0);
    let mut clipped = 0u32;
    for i in 0..length {
        let (ratio, advantage) = (ratio[i], advantage(i));
        let is_outside = (ratio < bounds.from) | (ratio > bounds.to);
        let inside = if ratio < bounds.from {
            bounds.low
        } else {
            ratio
        };
        let inside = if ratio > bounds.to {
            bounds.high
        } else {
            inside
        };
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
    kind: Kl,
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
        Kl::K1 => each!(d => (T::narrow(d), grad)),
        Kl::K2 => {
            let half = T::narrow(grad.widen() / 2.0).widen();
            each!(d => {
                let square = T::narrow(d * d).widen();
                let slope = T::narrow(2.0 * d).widen();
                (T::narrow(square / 2.0), T::narrow(half * slope))
            });
        }
        Kl::K3 => each!(d => {
            let k3 = T::narrow(k3(d));
            let near = T::narrow(d - k3.widen());
            let slope = if FAR < d { T::narrow(1.0) } else { near };
            (k3, T::narrow(grad.widen() * slope.widen()))
        }),
        Kl::Abs => {
            each!(d => (T::narrow(d.abs()), T::narrow(grad.widen() * Unary::Sign.of(d))))
        }
    }
}

/// Multiplies a gradient by a factor, if there is one, and says whether all of it is finite.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn scale<T: Precision>(values: &mut [T], factor: Option<f64>) -> bool {
    if let Some(factor) = factor {
        for value in values.iter_mut() {
            *value = T::narrow(value.widen() * factor);
        }
    }
    let mut is_finite = true;
    for value in values {
        is_finite &= value.widen().is_finite();
    }
    is_finite
}
