//! PPO's clipped loss, with its gradient and the share of clipped tokens, in one pass over the tokens.
//!
//! The gradient is that of the script's graph, step by step with the same roundings: see the derivatives of `min`, `clamp`,
//! `exp` and `kl` in the op table.

use std::ops::Range;

use multiversion::multiversion;

use super::columns::Advantage;
use super::kl::{KINDS, Kl};
use super::tokens::{by_response, row, tiles};
use super::{Columns, LossAnswer};
use crate::batch::{Layout, Rows, TokenValues};
use crate::script::Placed;
use crate::tensor::op::{Binary, Reduction};
use crate::tensor::{Depth, Moments, Precision, TILE, Token, finish, in_strides};

pub(super) fn loss(
    columns: &Columns<'_>,
    factor: Option<f64>,
    rows: Option<Rows<'_>>,
) -> Option<LossAnswer> {
    let (logp, note) = columns.logp()?;
    let advantage = columns.advantage()?;
    if !columns.is_unset("dual_clip") || columns.truth("kl_is")? {
        return None;
    }
    let beta = columns.number("kl_beta")?;
    let kl = match beta > 0.0 {
        true => Some((columns.choice("kl", &KINDS)?, columns.tokens("ref_logp")?)),
        false => None,
    };
    let by_token = columns.choice("aggregate", &[("token", true), ("response", false)])?;
    let clip = Clip {
        logp,
        old: columns.tokens("old_logp")?,
        advantage: &advantage,
        kl,
        beta,
        low: 1.0 - columns.number("clip_low")?,
        high: 1.0 + columns.number("clip_high")?,
        by_token,
        factor,
    };
    let (value, gradient, share) = if columns.batch.is_f64() {
        clip.loss::<f64>(columns, rows)
    } else {
        clip.loss::<f32>(columns, rows)
    }?;
    let metrics = vec![("clip_share".to_string(), share)];
    let notes = note.into_iter().map(str::to_string).collect();
    Some((value, gradient, metrics, notes))
}

struct Clip<'a> {
    logp: &'a TokenValues,
    old: &'a TokenValues,
    advantage: &'a Advantage,
    kl: Option<(Kl, &'a TokenValues)>,
    beta: f64,
    low: f64,
    high: f64,
    by_token: bool,
    /// What the gradient is multiplied with.
    factor: Option<f64>,
}

/// A thread's own memory, of a tile.
struct Scratch<T> {
    ratio: Vec<T>,
    loss: Vec<T>,
    kl: Vec<T>,
    slope: Vec<T>,
}

/// A response's values.
struct Read<'a, T> {
    logp: &'a [T],
    old: &'a [T],
    kl: Option<(Kl, &'a [T])>,
    /// By token, or one for the response.
    advantage: Result<&'a [T], f64>,
}

/// What is known of a response.
struct Seen {
    loss: Moments,
    clipped: usize,
    is_finite: bool,
}

impl Clip<'_> {
    fn loss<T: Token>(
        &self,
        columns: &Columns<'_>,
        rows: Option<Rows<'_>>,
    ) -> Option<(f64, Placed, f64)> {
        let layout = &**columns.layout;
        let with_tokens = (0..layout.responses()).filter(|&r| !layout.tokens_of(r).is_empty());
        let weight = 1.0 / with_tokens.count().max(1) as f64;
        let one = if self.by_token {
            1.0 / layout.tokens().max(1) as f64
        } else {
            weight
        };
        let tile = || vec![T::default(); TILE];
        let scratch = || Scratch {
            ratio: tile(),
            loss: tile(),
            kl: tile(),
            slope: tile(),
        };
        let (gradient, seen) = by_response(columns, rows, scratch, |scratch, response, out| {
            let read = self.read::<T>(layout, response)?;
            // dloss/dloss_t, the same for all tokens of a response.
            let grad = if self.by_token {
                one
            } else {
                one / out.len() as f64
            };
            let grad = T::narrow(grad);
            let mut seen = Seen {
                loss: Moments::EMPTY,
                clipped: 0,
                is_finite: true,
            };
            for tile in tiles(out.len()) {
                let out = &mut out[tile.clone()];
                let tokens = tile.len();
                seen.clipped += self.tile(&read, tile, grad, scratch, out);
                seen.is_finite &= finished(out, self.factor);
                let loss = Moments::of_tile(&scratch.loss[..tokens], Depth::Extremes);
                seen.loss = seen.loss.and(loss);
            }
            Some(seen)
        })?;
        let loss = finish(Reduction::Mean, &self.merged(&seen));
        let clipped: usize = seen.iter().map(|seen| seen.clipped).sum();
        let share = clipped as f64 / layout.tokens().max(1) as f64;
        let is_finite = loss.is_finite() && seen.iter().all(|seen| seen.is_finite);
        is_finite.then_some((loss, gradient, share))
    }

    /// The losses of all tokens, or the mean losses of all responses that have any.
    fn merged(&self, seen: &[Seen]) -> Moments {
        let losses = seen.iter().map(|seen| seen.loss);
        if self.by_token {
            return losses.fold(Moments::EMPTY, Moments::and);
        }
        let of_tile = |seen: &[Seen]| {
            let some = seen.iter().filter(|seen| seen.loss.count > 0);
            let means: Vec<f64> = some.map(|seen| seen.loss.mean()).collect();
            Moments::of_tile(&means, Depth::Extremes)
        };
        let tiles = seen.chunks(TILE).map(of_tile);
        tiles.fold(Moments::EMPTY, Moments::and)
    }

    fn read<T: Token>(&self, layout: &Layout, response: usize) -> Option<Read<'_, T>> {
        let of = |column| row::<T>(column, layout, response);
        Some(Read {
            logp: of(self.logp)?,
            old: of(self.old)?,
            kl: match self.kl {
                Some((kind, reference)) => Some((kind, of(reference)?)),
                None => None,
            },
            advantage: match self.advantage {
                Advantage::Tokens(values) => Ok(of(values)?),
                Advantage::Responses(values) => Err(values[response]),
            },
        })
    }

    /// The losses of a tile's tokens into the scratch, their gradient into `out`; how many are clipped.
    fn tile<T: Token>(
        &self,
        read: &Read<'_, T>,
        tile: Range<usize>,
        grad: T,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) -> usize {
        let Scratch {
            ratio,
            loss,
            kl,
            slope,
        } = scratch;
        let (logp, old) = (&read.logp[tile.clone()], &read.old[tile.clone()]);
        let penalty = read
            .kl
            .map(|(kind, reference)| (kind, &reference[tile.clone()]));
        let advantages = read.advantage.map(|values| &values[tile.clone()]);
        let bounds = Bounds::of(self.low, self.high);
        let mut count = 0;
        in_strides(tile.len(), |own, before| {
            let (logp, ratio) = (&logp[own.clone()], &mut ratio[own.clone()]);
            ratios(logp, &old[own.clone()], ratio);
            let kl = penalty.map(|(kind, reference)| {
                let (kl, slope) = (&mut kl[own.clone()], &mut slope[own.clone()]);
                // d(beta KL)/dlogp, but for the loss's own gradient.
                let grad = T::narrow(grad.widen() * self.beta);
                let columns = (logp, &reference[own.clone()]);
                penalties(kind, self.beta, grad, columns, (&mut *kl, &mut *slope));
                (&*kl, &*slope)
            });
            let (loss, out) = (&mut loss[own.clone()], &mut out[own.clone()]);
            count += match advantages {
                Ok(values) => {
                    let values = &values[own];
                    let value = |i: usize| values[i].widen();
                    clipped(ratio, value, bounds, grad, kl, (loss, out), before)
                }
                Err(value) => clipped(ratio, |_| value, bounds, grad, kl, (loss, out), before),
            };
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

/// beta KL, and its derivative by logp times `grad`, which has beta in it.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn penalties<T: Precision>(
    kind: Kl,
    beta: f64,
    grad: T,
    columns: (&[T], &[T]),
    (kl, slope): (&mut [T], &mut [T]),
) {
    let length = columns.0.len();
    let (kl, slope) = (&mut kl[..length], &mut slope[..length]);
    kind.each(
        grad,
        columns,
        #[inline(always)]
        |index, value, derivative| {
            kl[index] = T::narrow(beta * value.widen());
            slope[index] = derivative;
        },
    );
}

/// The bounds of a ratio in the precision of tokens: a token is below `low` where it is less than `from`, and above `high`
/// where it is more than `to`.
#[derive(Clone, Copy)]
struct Bounds<T> {
    low: T,
    high: T,
    from: T,
    to: T,
}

impl<T: Token> Bounds<T> {
    fn of(low: f64, high: f64) -> Bounds<T> {
        Bounds {
            low: T::narrow(low),
            high: T::narrow(high),
            from: T::at_least(low),
            to: T::narrow(-T::at_least(-high).widen()),
        }
    }
}

/// The losses of tokens and their gradient, from the ratios; how many are clipped, but for those before.
#[inline(always)]
fn clipped<T: Token>(
    ratio: &[T],
    advantage: impl Fn(usize) -> f64 + Copy,
    bounds: Bounds<T>,
    grad: T,
    kl: Option<(&[T], &[T])>,
    into: (&mut [T], &mut [T]),
    before: usize,
) -> usize {
    match kl {
        Some((kl, slope)) => surrogate(ratio, advantage, bounds, grad, (kl, slope), into, before),
        None => surrogate(ratio, advantage, bounds, grad, (), into, before),
    }
}

/// What a KL adds to a token's loss and gradient.
trait Added<T>: Copy {
    fn add(self, index: usize, loss: T, gradient: T) -> (T, T);
}

impl<T> Added<T> for () {
    #[inline(always)]
    fn add(self, _: usize, loss: T, gradient: T) -> (T, T) {
        (loss, gradient)
    }
}

impl<T: Precision> Added<T> for (&[T], &[T]) {
    #[inline(always)]
    fn add(self, index: usize, loss: T, gradient: T) -> (T, T) {
        let (kl, slope) = self;
        (
            T::narrow(loss.widen() + kl[index].widen()),
            T::narrow(gradient.widen() + slope[index].widen()),
        )
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn surrogate<T: Precision, A: Added<T>>(
    ratio: &[T],
    advantage: impl Fn(usize) -> f64 + Copy,
    bounds: Bounds<T>,
    grad: T,
    added: A,
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
        let least = Binary::Min.of(free.widen(), held.widen());
        clipped += u32::from((held < free) & (before <= i));
        // The gradient goes to the smaller of the two, and half to each at a tie.
        let to_free = if free < held { less } else { zero };
        let to_free = if free == held { half } else { to_free };
        let to_held = T::narrow(less.widen() - to_free.widen());
        let to_held = times(to_held, advantage);
        let to_held = if is_outside { T::default() } else { to_held };
        let by_ratio = T::narrow(times(to_free, advantage).widen() + to_held.widen());
        let gradient = times(by_ratio, ratio.widen());
        (loss[i], out[i]) = added.add(i, T::narrow(-least), gradient);
    }
    clipped as usize
}

/// Multiplies the gradient with a factor, if there is one, and says whether all of it is finite.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn finished<T: Precision>(values: &mut [T], factor: Option<f64>) -> bool {
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
