//! `map_groups`: a function of each group's batch, called once for all groups where that gives the same.
//!
//! The function is called for the first group as for any. If that call has looked at no value of the group, has reported
//! and drawn nothing and has left what it captured as it was, every other call would do the same over again on another
//! group: the graph that it made stands for all. Else the calls go on with the second group, as if nothing were.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use rhai::{Array, Dynamic, FnPtr, INT, ImmutableString, Map, NativeCallContext};

use super::ScriptBatch;
use crate::script::bind::{describe, number};
use crate::script::call::{Reports, Turns};
use crate::script::error::{CallError, Raised, origin, raise};
use crate::tensor::{Frame, Level, NotLifted, Origin, Tensor, TensorError, by_form};

/// A call of `map_groups` in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapGroups {
    /// The place of the call.
    pub origin: Origin,
    /// Why its function was called for each group; `None` where one call was enough for all.
    pub by_group: Option<ByGroup>,
}

/// Why a function of `map_groups` has to be called for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ByGroup {
    /// It looks at values of the group, or at its shape: what it does may depend on them.
    Looks,
    /// It reports metrics, or prints.
    Reports,
    /// It draws random numbers.
    Draws,
    /// It changes a variable from outside.
    Writes,
    /// It computes with tensors that are neither the group's nor single numbers.
    Mixes,
    /// One of its operations refused a value, maybe of another group.
    Refuses,
}

impl fmt::Display for ByGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ByGroup::Looks => "its function looks at values, or at the group's shape",
            ByGroup::Reports => "its function reports a metric or prints",
            ByGroup::Draws => "its function draws random numbers",
            ByGroup::Writes => "its function changes a variable from outside",
            ByGroup::Mixes => "its function computes with what is not the group's own",
            ByGroup::Refuses => "an operation of its function refused a value",
        })
    }
}

impl fmt::Display for MapGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by_group {
            None => f.write_str("by one call for all groups"),
            Some(why) => write!(f, "group by group: {why}"),
        }
    }
}

/// What a call may change beside its result.
struct Effects {
    draws: u64,
    said: u64,
    captured: Option<Vec<Held>>,
}

impl Effects {
    fn so_far(batch: &ScriptBatch, f: &FnPtr) -> Effects {
        let mut captured = Vec::new();
        let is_known = f.iter_curry().all(|value| hold(value, 0, &mut captured));
        Effects {
            draws: batch.call().draws(),
            said: batch.call().report(|reports| reports.said),
            captured: is_known.then_some(captured),
        }
    }

    /// What has changed since `self`.
    fn until(&self, now: &Effects) -> Option<ByGroup> {
        if now.draws != self.draws {
            Some(ByGroup::Draws)
        } else if now.said != self.said {
            Some(ByGroup::Reports)
        } else if self.captured.is_none() || now.captured != self.captured {
            Some(ByGroup::Writes)
        } else {
            None
        }
    }
}

impl ScriptBatch {
    /// The results of `f` for each group's batch, put together over the whole batch.
    pub(super) fn map_groups(&self, context: &NativeCallContext, f: &FnPtr) -> Raised<Tensor> {
        let before = Effects::so_far(self, f);
        let made = self.call().guard().counted();
        let mut parts: Vec<(Tensor, Arc<Frame>)> = Vec::new();
        let _turns = Turns::begin(self.call());
        for batch in self.groups() {
            let frame = batch.frame().clone();
            self.call().report(Reports::next_group);
            let result: Dynamic = f.call_within_context(context, (batch,))?;
            parts.push((part_of(context, &result)?, frame));
            if let [(part, frame)] = &parts[..] {
                let lifted = match before.until(&Effects::so_far(self, f)) {
                    Some(effect) => Err(effect),
                    None if frame.is_looked_at() => Err(ByGroup::Looks),
                    None => match Tensor::lifted(part, frame, made) {
                        Ok(tensor) => Ok(tensor),
                        Err(NotLifted::Mixes) => Err(ByGroup::Mixes),
                        Err(NotLifted::Refused) => Err(ByGroup::Refuses),
                        Err(NotLifted::Stopped(error)) => return Err(raise(context, error)),
                    },
                };
                self.call().report(|reports| {
                    let by_group = lifted.as_ref().err().copied();
                    let origin = origin(context);
                    reports.map_groups(MapGroups { origin, by_group });
                });
                if let Ok(tensor) = lifted {
                    tensor.mark(&origin(context));
                    return Ok(tensor);
                }
            }
        }
        let looped = self
            .assembled(&parts)
            .map_err(|error| raise(context, error))?;
        looped.mark(&origin(context));
        let tensor = by_form(&looped, &parts).unwrap_or(looped);
        tensor.mark(&origin(context));
        Ok(tensor)
    }

    fn assembled(&self, parts: &[(Tensor, Arc<Frame>)]) -> Result<Tensor, TensorError> {
        let levels = parts.iter().map(|(part, _)| part.level());
        let level = levels.fold(Level::Group, Level::join);
        let expanded = parts.iter().enumerate().map(|(group, (part, frame))| {
            let is_foreign = part.level() != Level::Batch
                && part
                    .frame()
                    .is_some_and(|own| own.responses != frame.responses);
            if is_foreign {
                let (op, of) = ("map_groups", part.level());
                return Err(TensorError::different_batches(op, of, level));
            }
            Ok((group, part.expanded(level, frame)?))
        });
        let expanded = expanded.collect::<Result<Vec<_>, _>>()?;
        Tensor::assemble(self.frame(), level, expanded)
    }
}

fn part_of(context: &NativeCallContext, result: &Dynamic) -> Raised<Tensor> {
    match (result.read_lock::<Tensor>(), number(result)) {
        (Some(tensor), _) => Ok(tensor.clone()),
        (None, Some(number)) => Ok(Tensor::number(number)),
        _ => {
            let found = describe(result);
            let message = format!(
                "the function of `map_groups` must give a tensor or a number, it gave {found}"
            );
            let help = "the last line of the function is its result, without a semicolon";
            Err(raise(context, CallError::new(message).help(help)))
        }
    }
}

/// A part of a captured value. Tensors and batches, which do not change, are equal where they are the same.
enum Held {
    Unit,
    /// An integer, a character or a truth.
    Whole(i64),
    Float(u64),
    Text(ImmutableString),
    Tensor(Tensor),
    Batch(ScriptBatch),
    Array(usize),
    Map(usize),
    Closure(usize),
    /// At work in a call: nobody can change it before that ends.
    Locked,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        match (self, other) {
            (Held::Unit, Held::Unit) | (Held::Locked, Held::Locked) => true,
            (Held::Whole(a), Held::Whole(b)) => a == b,
            (Held::Float(a), Held::Float(b)) => a == b,
            (Held::Text(a), Held::Text(b)) => a == b,
            (Held::Tensor(a), Held::Tensor(b)) => a.same(b),
            (Held::Batch(a), Held::Batch(b)) => Arc::ptr_eq(&a.0, &b.0),
            (Held::Array(a), Held::Array(b))
            | (Held::Map(a), Held::Map(b))
            | (Held::Closure(a), Held::Closure(b)) => a == b,
            _ => false,
        }
    }
}

/// Arrays, maps and closures within one another: a closure may hold itself.
const DEPTH: usize = 32;

/// Adds all parts of a value; false where there are some that cannot be compared.
fn hold(value: &Dynamic, depth: usize, parts: &mut Vec<Held>) -> bool {
    if depth > DEPTH {
        return false;
    }
    if value.is_shared() {
        // One lock at a time: what is in it may be shared again.
        let Some(inner) = value.read_lock::<Dynamic>() else {
            parts.push(Held::Locked);
            return true;
        };
        return hold_inside(&inner, depth, parts);
    }
    hold_inside(value, depth, parts)
}

fn hold_inside(value: &Dynamic, depth: usize, parts: &mut Vec<Held>) -> bool {
    if let Some(array) = value.read_lock::<Array>() {
        parts.push(Held::Array(array.len()));
        return array.iter().all(|value| hold(value, depth + 1, parts));
    }
    if let Some(map) = value.read_lock::<Map>() {
        parts.push(Held::Map(map.len()));
        return map.iter().all(|(key, value)| {
            parts.push(Held::Text(key.as_str().into()));
            hold(value, depth + 1, parts)
        });
    }
    if let Some(closure) = value.read_lock::<FnPtr>() {
        parts.push(Held::Closure(closure.curry().len()));
        parts.push(Held::Text(closure.fn_name().into()));
        return closure
            .iter_curry()
            .all(|value| hold(value, depth + 1, parts));
    }
    if let Some(range) = value.read_lock::<Range<INT>>() {
        parts.extend([range.start, range.end].map(Held::Whole));
        return true;
    }
    if let Some(range) = value.read_lock::<RangeInclusive<INT>>() {
        parts.extend([*range.start(), *range.end()].map(Held::Whole));
        return true;
    }
    let simple = if let Some(tensor) = value.read_lock::<Tensor>() {
        Held::Tensor(tensor.clone())
    } else if let Some(batch) = value.read_lock::<ScriptBatch>() {
        Held::Batch(batch.clone())
    } else if let Some(text) = value.read_lock::<ImmutableString>() {
        Held::Text(text.clone())
    } else if let Ok(number) = value.as_float() {
        Held::Float(number.to_bits())
    } else if let Ok(whole) = value.as_int() {
        Held::Whole(whole)
    } else if let Ok(truth) = value.as_bool() {
        Held::Whole(i64::from(truth))
    } else if let Ok(character) = value.as_char() {
        Held::Whole(i64::from(u32::from(character)))
    } else if value.is_unit() {
        Held::Unit
    } else {
        return false;
    };
    parts.push(simple);
    true
}
