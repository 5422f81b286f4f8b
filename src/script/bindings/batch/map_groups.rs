//! `map_groups`: applies a function to the batch of each group, by one call for all groups if that gives the same results.
//!
//! The function first gets a view of the batch in which every group acts as a whole batch: the level "batch" means one group. If
//! the function looks at a value there, reports, prints, recalls or remembers something, draws random numbers, changes a captured
//! variable, fails, or returns a tensor of another batch, its effects are undone, and it is called once per group.

use std::mem::take;
use std::sync::Arc;

use rhai::{Array, Dynamic, FnPtr, Map, NativeCallContext};

use super::columns::ScriptBatch;
use crate::diagnostic::Diagnostic;
use crate::script::bindings::keys::Key;
use crate::script::error::{CallError, Raised, origin};
use crate::script::outcome::MapGroupsNote;
use crate::script::value::{as_tensor, describe};
use crate::tensor::{Frame, Level, Tensor, TensorError};

impl ScriptBatch {
    /// Returns the results of `f` for the batch of each group, joined into one tensor of this batch.
    pub(super) fn map_groups(&self, context: &NativeCallContext, f: &FnPtr) -> Raised<Tensor> {
        if self.frame().is_open_view() {
            self.frame().note_inspected();
            return Err(CallError::from(Diagnostic::error(
                "the batch of one group cannot be split into groups again",
            ))
            .into());
        }
        let call = self.call();
        let (before, held) = (call.effects().clone(), captured(f));
        let once = self.called_once(context, f);
        let now = captured(f);
        let is_written = now.iter().zip(&held).any(|(now, held)| !is_same(now, held));
        let once = once.filter(|_| !is_written && !call.has_effect_since(&before));
        let by_one_call = once.is_some();
        let tensor = match once {
            Some(tensor) => tensor,
            None => {
                call.restore(before);
                for (variable, held) in f.iter_curry().zip(held) {
                    if let Some(mut value) = variable.clone().write_lock::<Dynamic>() {
                        *value = held;
                    }
                }
                self.called_for_each(context, f)?
            }
        };
        let origin = origin(context);
        tensor.mark(&origin);
        let called = MapGroupsNote {
            origin,
            by_one_call,
        };
        call.effects().map_groups(called);
        Ok(tensor)
    }

    /// Computes the results of all groups by one call of the function. Returns `None` if the function looks at a value, fails, or
    /// does not return a number or a tensor of the view.
    fn called_once(&self, context: &NativeCallContext, f: &FnPtr) -> Option<Tensor> {
        let frame = self.frame().view();
        let batch = self.after(frame.clone());
        let result = f.call_within_context::<Dynamic>(context, (batch,));
        let part = result.and_then(|result| part_of(&result));
        if !frame.close_view() {
            return None;
        }
        let part = part.ok()?;
        let is_own = |own: &Arc<Frame>| own.is_of_view(&frame);
        if part.level() != Level::Batch && !part.frame().is_some_and(is_own) {
            return None;
        }
        let level = part.level().join(Level::Group);
        part.expanded(level, self.frame()).ok()
    }

    /// Calls the function once per group, and joins the results into one tensor.
    fn called_for_each(&self, context: &NativeCallContext, f: &FnPtr) -> Raised<Tensor> {
        let take_metrics = || take(&mut self.call().effects().metrics);
        let (before, mut metrics) = (take_metrics(), Vec::new());
        let parts = self.groups().map(|batch| {
            let frame = batch.frame().clone();
            let result = f.call_within_context::<Dynamic>(context, (batch,));
            metrics.extend(take_metrics());
            let part = part_of(&result?)?;
            // A small result is evaluated now, while its nodes are in the processor's cache. An error is ignored here, because it
            // is reported again when the joined tensor is computed.
            let is_large = matches!(part.level(), Level::Token | Level::Position);
            let _ = (!is_large).then(|| part.evaluate());
            Ok((part, frame))
        });
        let parts = parts.collect::<Raised<Vec<(Tensor, Arc<Frame>)>>>();
        let mut effects = self.call().effects();
        effects.metrics = before;
        effects.metrics_of_groups(metrics)?;
        drop(effects);
        let parts = parts?;
        let levels = parts.iter().map(|(part, _)| part.level());
        let level = levels.fold(Level::Group, Level::join);
        let expanded = parts
            .iter()
            .enumerate()
            .map(|(group, (part, frame))| {
                let own = part.frame().filter(|_| part.level() != Level::Batch);
                if own.is_some_and(|own| own.responses != frame.responses) {
                    let (op, of) = ("map_groups", part.level());
                    return Err(TensorError::different_batches(op, of, level));
                }
                Ok((group, part.expanded(level, frame)?))
            })
            .collect::<Result<Vec<_>, TensorError>>()?;
        Ok(Tensor::assemble(self.frame(), level, expanded)?)
    }
}

fn part_of(result: &Dynamic) -> Raised<Tensor> {
    as_tensor(result).ok_or_else(|| {
        let found = describe(result);
        let message = format!(
            "the function of `map_groups` must give a tensor or a number, but it gave {found}"
        );
        let help = "the last line of the function is its result, without a semicolon";
        CallError::new(message, help).into()
    })
}

/// Returns the values of the variables that a function has captured.
fn captured(f: &FnPtr) -> Vec<Dynamic> {
    f.iter_curry().map(Dynamic::flatten_clone).collect()
}

/// Returns whether a captured value is unchanged. A tensor, a key or a batch must be the same object, a map or an array must have
/// the same keys and unchanged elements, and any other value must have the same type and text.
fn is_same(a: &Dynamic, b: &Dynamic) -> bool {
    if let (Some(a), Some(b)) = (a.read_lock::<Tensor>(), b.read_lock::<Tensor>()) {
        return a.same(&b);
    }
    if let (Some(a), Some(b)) = (a.read_lock::<Key>(), b.read_lock::<Key>()) {
        return a.codes.same(&b.codes);
    }
    if let (Some(a), Some(b)) = (a.read_lock::<ScriptBatch>(), b.read_lock::<ScriptBatch>()) {
        return a.is_same(&b);
    }
    if let (Some(a), Some(b)) = (a.read_lock::<Map>(), b.read_lock::<Map>()) {
        let mut pairs = a.iter().zip(b.iter());
        return a.len() == b.len() && pairs.all(|(a, b)| a.0 == b.0 && is_same(a.1, b.1));
    }
    if let (Some(a), Some(b)) = (a.read_lock::<Array>(), b.read_lock::<Array>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(a, b));
    }
    a.type_id() == b.type_id() && a.to_string() == b.to_string()
}
