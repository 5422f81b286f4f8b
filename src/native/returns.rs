//! Kernels of advantages that are returns along the tokens, whitened over the batch: REINFORCE++ and GAE.

use multiversion::multiversion;

use super::columns::{Columns, TokenReward};
use super::kl::{KINDS, Kl};
use super::tokens::{Output, Tile};
use crate::batch::{Rows, TokenValues};
use crate::script::Placed;
use crate::tensor::op::{Binary, Reduction, Scan, Ternary, VARIANCE_FLOOR};
use crate::tensor::{Depth, Moments, Precision, Running, TILE, Token, finish};

/// REINFORCE++, also behind the reward of its variant with a baseline.
pub(super) fn reinforce_pp(columns: &Columns<'_>, rows: Option<Rows<'_>>) -> Option<Placed> {
    let reward = columns.token_reward()?;
    let mut read = Vec::new();
    if let TokenReward::Column(column) = reward {
        read.push(column);
    }
    let beta = columns.number("kl_beta")?;
    let penalty = match beta > 0.0 {
        true => Some(Penalty {
            beta,
            kind: columns.choice("kl", &KINDS)?,
            clamp: columns.number("kl_clamp")?,
            old: columns.tokens("old_logp")?,
            reference: columns.tokens("ref_logp")?,
        }),
        false => None,
    };
    read.extend(
        penalty
            .iter()
            .flat_map(|penalty| [penalty.old, penalty.reference]),
    );
    let shaped = Shaped {
        reward,
        clip: columns.optional("reward_clip")?,
        penalty,
        gamma: columns.number("gamma")?,
    };
    let is_scaled = columns.truth("std")?;
    if columns.is_f64(&read)? {
        shaped.advantage::<f64>(columns, rows, is_scaled)
    } else {
        shaped.advantage::<f32>(columns, rows, is_scaled)
    }
}

/// The rewards of REINFORCE++.
struct Shaped<'a> {
    reward: TokenReward<'a>,
    clip: Option<f64>,
    penalty: Option<Penalty<'a>>,
    gamma: f64,
}

struct Penalty<'a> {
    beta: f64,
    kind: Kl,
    clamp: f64,
    old: &'a TokenValues,
    reference: &'a TokenValues,
}

impl Shaped<'_> {
    fn advantage<T: Token>(
        &self,
        columns: &Columns<'_>,
        rows: Option<Rows<'_>>,
        is_scaled: bool,
    ) -> Option<Placed> {
        match (&self.reward, &self.penalty) {
            // The return is the reward at every token.
            (TokenReward::Last(rewards), None) if self.gamma == 1.0 => {
                equal_returns::<T>(columns, rows, rewards, self.clip, is_scaled)
            }
            _ => whitened::<T>(
                columns,
                rows,
                self.gamma,
                Some(is_scaled),
                |tile, scratch, out| {
                    let [a, b] = &mut scratch.gathered;
                    self.reward.read(tile, a, out);
                    if let Some(clip) = self.clip {
                        clamp(out, clip);
                    }
                    if let Some(penalty) = &self.penalty {
                        let columns = (tile.read(penalty.old, a), tile.read(penalty.reference, b));
                        let numbers = (penalty.beta, penalty.clamp);
                        less_penalty(penalty.kind, numbers, columns, out);
                    }
                },
            ),
        }
    }
}

/// GAE on a critic's values.
pub(super) fn gae(columns: &Columns<'_>, rows: Option<Rows<'_>>) -> Option<Placed> {
    let (reward, value) = (columns.token_reward()?, columns.tokens("value")?);
    let mut read = vec![value];
    if let TokenReward::Column(column) = reward {
        read.push(column);
    }
    if columns.is_f64(&read)? {
        gae_of::<f64>(columns, rows, &reward, value)
    } else {
        gae_of::<f32>(columns, rows, &reward, value)
    }
}

fn gae_of<T: Token>(
    columns: &Columns<'_>,
    rows: Option<Rows<'_>>,
    reward: &TokenReward<'_>,
    value: &TokenValues,
) -> Option<Placed> {
    let (gamma, lambda) = (columns.number("gamma")?, columns.number("lambda")?);
    let whiten = columns.truth("whiten")?.then_some(true);
    whitened::<T>(
        columns,
        rows,
        gamma * lambda,
        whiten,
        |tile, scratch, out| {
            reward.read(tile, &mut scratch.gathered[1], out);
            let values = tile.read(value, &mut scratch.gathered[0]);
            if tile.is_last {
                scratch.next = T::default();
            }
            deltas(values, scratch.next, gamma, out);
            scratch.next = values[0];
        },
    )
}

impl TokenReward<'_> {
    /// The rewards of a tile.
    fn read<T: Token>(&self, tile: Tile<'_>, gathered: &mut Vec<T>, out: &mut [T]) {
        match self {
            TokenReward::Column(column) => {
                let values = tile.read(column, gathered);
                out.copy_from_slice(values);
            }
            TokenReward::Last(rewards) => {
                out.fill(T::default());
                if let (Some(last), true) = (out.last_mut(), tile.is_last) {
                    *last = T::narrow(rewards[tile.response]);
                }
            }
        }
    }
}

/// A thread's own memory.
struct Scratch<T> {
    /// Columns that do not lie in one stretch.
    gathered: [Vec<T>; 2],
    rewards: Vec<T>,
    tiles: Vec<Moments>,
    /// The value of the token after the tile.
    next: T,
}

/// Discounted returns of the rewards that `rewards` gives, tile by tile from the last one on; less their mean over the
/// batch, and divided by their standard deviation, or left as they are.
fn whitened<T: Token>(
    columns: &Columns<'_>,
    rows: Option<Rows<'_>>,
    gamma: f64,
    whiten: Option<bool>,
    rewards: impl Fn(Tile<'_>, &mut Scratch<T>, &mut [T]) + Sync,
) -> Option<Placed> {
    let running = Running {
        scan: Scan::SuffixSum,
        number: gamma,
    };
    let scratch = || Scratch {
        gathered: [Vec::new(), Vec::new()],
        rewards: vec![T::default(); TILE],
        tiles: Vec::new(),
        next: T::default(),
    };
    let mut output = Output::new(columns, rows)?;
    let moments = output.fill(columns, scratch, |scratch, response, out| {
        let mut carry = running.start();
        for tile in Tile::all(columns.layout, response).rev() {
            let mut own = std::mem::take(&mut scratch.rewards);
            rewards(tile, scratch, &mut own[..tile.len]);
            let out = &mut out[tile.range()];
            running.tile(&own[..tile.len], &mut carry, out);
            scratch.rewards = own;
            scratch.tiles.push(Moments::of_tile(out, Depth::Squares));
        }
        scratch
            .tiles
            .drain(..)
            .rev()
            .fold(Moments::EMPTY, Moments::and)
    })?;
    let normal = whiten.map(|is_scaled| Normal::of(&moments, is_scaled));
    let is_finite = output.change(columns, |values| normalised(values, normal));
    is_finite.then(|| output.placed(columns))
}

/// As [`whitened`], of returns that are one value for all tokens of a response.
fn equal_returns<T: Token>(
    columns: &Columns<'_>,
    rows: Option<Rows<'_>>,
    rewards: &[f64],
    clip: Option<f64>,
    is_scaled: bool,
) -> Option<Placed> {
    let layout = &**columns.layout;
    let value = |response: usize| {
        let mut value = [T::narrow(rewards[response])];
        if let Some(clip) = clip {
            clamp(&mut value, clip);
        }
        // A sum that starts from 0 is never -0.
        T::narrow(value[0].widen() + 0.0)
    };
    let moments = (0..layout.responses()).map(|response| {
        let value = value(response);
        let tiles = Tile::all(layout, response);
        let tiles = tiles.map(|tile| Moments::of_equal(value, tile.len, Depth::Squares));
        tiles.fold(Moments::EMPTY, Moments::and)
    });
    let normal = Normal::of(&moments.collect::<Vec<_>>(), is_scaled);
    let mut output = Output::new(columns, rows)?;
    let is_finite = output.fill(
        columns,
        || (),
        |(), response, out| {
            let mut value = [value(response)];
            let is_finite = normalised(&mut value, Some(normal));
            out.fill(value[0]);
            is_finite || out.is_empty()
        },
    )?;
    let is_finite = is_finite.into_iter().all(|finite| finite);
    is_finite.then(|| output.placed(columns))
}

/// What values are brought to mean 0 and standard deviation 1 with.
#[derive(Clone, Copy)]
struct Normal {
    mean: f64,
    scale: Option<f64>,
}

impl Normal {
    /// Of all tokens, from what is known of each response's.
    fn of(responses: &[Moments], is_scaled: bool) -> Normal {
        let all = responses.iter().copied().fold(Moments::EMPTY, Moments::and);
        let std = finish(Reduction::PopulationStd, &all);
        Normal {
            mean: finish(Reduction::Mean, &all),
            scale: is_scaled.then(|| Binary::Max.of(std, VARIANCE_FLOOR.sqrt())),
        }
    }
}

/// Brings values to mean 0, and says whether all are finite.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn normalised<T: Precision>(values: &mut [T], normal: Option<Normal>) -> bool {
    let mut is_finite = true;
    for values in values.chunks_mut(TILE) {
        if let Some(Normal { mean, scale }) = normal {
            for value in values.iter_mut() {
                *value = T::narrow(value.widen() - mean);
            }
            if let Some(scale) = scale {
                for value in values.iter_mut() {
                    *value = T::narrow(value.widen() / scale);
                }
            }
        }
        for value in values.iter() {
            is_finite &= value.widen().is_finite();
        }
    }
    is_finite
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn clamp<T: Precision>(values: &mut [T], bound: f64) {
    for value in values {
        *value = T::narrow(Ternary::Clamp.of(value.widen(), -bound, bound));
    }
}

/// reward + gamma next value - value, from the rewards in `out`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn deltas<T: Precision>(values: &[T], after: T, gamma: f64, out: &mut [T]) {
    #[inline(always)]
    fn delta<T: Precision>(reward: T, value: T, next: T, gamma: f64) -> T {
        let next = T::narrow(gamma * next.widen());
        T::narrow(T::narrow(reward.widen() + next.widen()).widen() - value.widen())
    }
    let Some((&last, others)) = values.split_last() else {
        return;
    };
    let (others_out, last_out) = out.split_at_mut(others.len());
    for ((out, &value), &next) in others_out.iter_mut().zip(others).zip(&values[1..]) {
        *out = delta(*out, value, next, gamma);
    }
    last_out[0] = delta(last_out[0], last, after, gamma);
}

/// reward - beta clamp(KL), from the rewards in `out`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn less_penalty<T: Precision>(
    kind: Kl,
    (beta, clamp): (f64, f64),
    columns: (&[T], &[T]),
    out: &mut [T],
) {
    let out = &mut out[..columns.0.len()];
    kind.each(
        T::default(),
        columns,
        #[inline(always)]
        |index, kl, _| {
            let kl = T::narrow(Ternary::Clamp.of(kl.widen(), -clamp, clamp));
            out[index] = T::narrow(out[index].widen() - T::narrow(beta * kl.widen()).widen());
        },
    );
}
