//! Computes a plan in rounds, until its outputs are computed. A round first computes the needed steps that can be computed in
//! full; then one pass over the tokens computes, tile by tile, needed steps whose arguments are ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::execution::{Execution, Method, goes_by_tile};
use super::output::{Output, Parts};
use super::pass::Pass;
use super::reduce::{finish, of_responses};
use super::sums::Moments;
use super::{blocks, full};
use crate::batch::{Computed, Level};
use crate::tensor::error::TensorError;
use crate::tensor::frame::{Context, Frame};
use crate::tensor::graph::{Prim, Tensor};
use crate::tensor::plan::Plan;
use crate::tensor::value::Value;

/// The maximum number of token steps, other than outputs, that one pass stores only for steps that are computed in full. This
/// limits the memory in use.
const STORED_FOR_FULL: usize = 2;

type Values = Vec<Option<Arc<Value>>>;

/// Computes the values of a plan's steps. The value of a step that is not an output may be missing.
///
/// # Errors
/// [`TensorError`] if values do not allow an operation, if the guard stops the computation, or if the system has no memory left.
pub(crate) fn run(plan: &Plan, context: &Context) -> Result<Values, TensorError> {
    run_fused(plan, context, main_frame(plan))
}

/// Computes each step alone, in the plan's order. Tests compare the result with the result of [`run`], bit for bit.
#[cfg(test)]
pub(crate) fn run_step_by_step(plan: &Plan, context: &Context) -> Result<Values, TensorError> {
    run_fused(plan, context, None)
}

/// Computes a plan, with as many token steps of `frame` as possible in each pass, and other token steps one at a time.
fn run_fused(
    plan: &Plan,
    context: &Context,
    frame: Option<&Arc<Frame>>,
) -> Result<Values, TensorError> {
    let mut execution = Execution::new(plan, context, frame);
    loop {
        let may_go_on = context.guard.check();
        may_go_on.map_err(|stopped| execution.error(plan.outputs()[0], stopped))?;
        let needed = execution.needed();
        execution.free(&needed);
        execution.compute_in_full(&needed)?;
        let targets = execution.targets(&needed);
        match frame {
            Some(frame) if !targets.is_empty() => execution.pass(&targets, frame)?,
            _ => return Ok(execution.values),
        }
    }
}

/// Returns the frame with the most token values to compute. Token steps of other frames are computed one at a time.
fn main_frame(plan: &Plan) -> Option<&Arc<Frame>> {
    let mut sizes: BTreeMap<usize, (usize, &Arc<Frame>)> = BTreeMap::new();
    for step in plan.steps() {
        let tensor = &step.tensor;
        if let (Level::Token, Some(frame)) = (tensor.level(), tensor.frame()) {
            let entry = sizes.entry(frame.responses.address());
            let size = tensor.known().map_or(frame.size(Level::Token), |_| 0);
            entry.or_insert((0, frame)).0 += size;
        }
    }
    let largest = sizes.into_values().max_by_key(|(size, _)| *size);
    largest.map(|(_, frame)| frame)
}

impl Execution<'_> {
    /// Returns, for each step, whether it is an output or is still needed for an output.
    fn needed(&self) -> Vec<bool> {
        let mut needed = self.is_output.clone();
        for step in (0..needed.len()).rev() {
            if needed[step] && self.values[step].is_none() {
                self.args(step).iter().for_each(|&arg| needed[arg] = true);
            }
        }
        needed
    }

    /// Frees the token and position values that are no longer needed. Coarser values are small, and kept for later plans.
    fn free(&mut self, needed: &[bool]) {
        for (step, value) in self.values.iter_mut().enumerate() {
            if !needed[step] && is_large(&self.plan.steps()[step].tensor) {
                *value = None;
            }
        }
    }

    /// Computes the uniform steps, and the steps to compute in full, if their arguments are available; then frees their token and
    /// position arguments that are not outputs and whose readers have all been computed in full.
    fn compute_in_full(&mut self, needed: &[bool]) -> Result<(), TensorError> {
        for step in (0..needed.len()).filter(|&step| needed[step]) {
            let (tensor, args) = (self.tensor(step), self.args(step));
            match self.methods[step] {
                Method::Uniform if self.uniform[step].is_none() => {
                    if args.iter().all(|&arg| self.is_readable(arg)) {
                        self.compute_uniform(step)?;
                    }
                    continue;
                }
                Method::InFull if self.values[step].is_none() => {}
                _ => continue,
            }
            if args.iter().any(|&arg| self.values[arg].is_none()) {
                continue;
            }
            let by_tile = tensor.level() == Level::Token && goes_by_tile(&tensor.inner().prim);
            if let Some(frame) = tensor.frame().filter(|_| by_tile) {
                self.pass(&[step], frame)?;
            } else {
                let started = Instant::now();
                let value = full::value(self, step);
                self.values[step] = Some(value.map_err(|kind| self.error(step, kind))?);
                if let Some(profile) = &self.context.profile {
                    profile.note(tensor.origin(), started.elapsed().as_secs_f64());
                }
            }
            for &arg in args {
                let is_read = |&reader: &usize| {
                    self.methods[reader] == Method::InFull && self.values[reader].is_some()
                };
                let is_free = is_large(self.tensor(arg)) && !self.is_output[arg];
                // The readers are tested in reverse, because a reader that has not run yet is most often the last of them.
                if is_free && self.readers[arg].iter().rev().all(is_read) {
                    self.values[arg] = None;
                }
            }
        }
        Ok(())
    }

    /// Computes a uniform step. Token values are made only if the step is an output, or if a step that is computed in full reads
    /// the values.
    fn compute_uniform(&mut self, step: usize) -> Result<(), TensorError> {
        let (tensor, values) = (self.tensor(step), full::uniform(self, step));
        let mut readers = self.readers[step].iter();
        let is_read_in_full = readers.any(|&reader| self.methods[reader] == Method::InFull);
        if let Some(frame) = tensor
            .frame()
            .filter(|_| self.is_output[step] || is_read_in_full)
        {
            let layout = &frame.layout;
            let share = self.reserve(step, layout.tokens())?;
            let has_tokens = |response: &usize| !layout.tokens_of(*response).is_empty();
            let mut responses = (0..values.len()).filter(has_tokens);
            let is_finite = responses.all(|response| values[response].is_finite());
            let value = Computed::uniform(layout.clone(), values.clone(), tensor.is_f64());
            let value = Value::new(value, Some(share));
            self.values[step] = Some(Arc::new(value.tested(is_finite)));
        }
        self.uniform[step] = Some(values);
        Ok(())
    }

    /// Returns the steps whose values the next pass must yield: reductions, outputs, and token steps that a step computed in full
    /// or a later pass reads.
    fn targets(&self, needed: &[bool]) -> Vec<usize> {
        let count = self.methods.len();
        // `now` marks steps that the pass can compute; `ready` marks steps whose values other steps of the pass can read.
        let (mut now, mut ready) = (vec![false; count], vec![false; count]);
        for step in 0..count {
            now[step] = match self.methods[step] {
                Method::InFull | Method::Uniform => false,
                _ => self.args(step).iter().all(|&arg| ready[arg]),
            };
            let is_by_tile = now[step] && self.methods[step] == Method::ByTile;
            ready[step] = self.is_readable(step) || is_by_tile;
        }
        let is_due = |step: usize| needed[step] && self.values[step].is_none();
        // Whether a later step reads `step`: a step computed in full if `in_full`, otherwise a step of a later pass.
        let is_read = |step: usize, in_full: bool| {
            self.readers[step].iter().any(|&reader| {
                let is_in_full = self.methods[reader] == Method::InFull;
                is_due(reader) && !now[reader] && is_in_full == in_full
            })
        };
        let (mut targets, mut for_full) = (Vec::new(), 0);
        for step in (0..count).filter(|&step| now[step] && is_due(step)) {
            if let Method::Reduced(_) = self.methods[step] {
                targets.push(step);
                continue;
            }
            let (is_for_full, is_for_later) = (is_read(step, true), is_read(step, false));
            for_full += usize::from(is_for_full && !self.is_output[step]);
            let prim = &self.tensor(step).inner().prim;
            // These values are not stored, because a later pass can read them again from the column or from the responses'
            // values.
            let is_held = matches!(prim, Prim::Column(_) | Prim::AtLastToken);
            let is_kept = is_for_full && for_full <= STORED_FOR_FULL || is_for_later && !is_held;
            if self.is_output[step] || is_kept {
                targets.push(step);
            }
        }
        targets
    }

    /// Returns the steps that a pass needs for its targets, in the plan's order.
    fn steps(&self, targets: &[usize]) -> Vec<usize> {
        let (mut stack, mut steps, mut seen) = (targets.to_vec(), Vec::new(), BTreeSet::new());
        while let Some(step) = stack.pop() {
            let is_coarser = self.tensor(step).level() != Level::Token;
            let is_reduced = matches!(self.methods[step], Method::Reduced(_));
            if is_coarser && (!is_reduced || self.values[step].is_some()) || !seen.insert(step) {
                continue;
            }
            if self.methods[step] == Method::Uniform {
                continue;
            }
            steps.push(step);
            if self.values[step].is_none() {
                stack.extend(self.args(step));
            }
        }
        steps.sort_unstable();
        steps
    }

    /// If there is a profile, divides the time since the start of a pass among the lines of the pass's steps.
    fn note_times(&self, pass: &Pass<'_>, started: Instant) {
        if let Some(profile) = &self.context.profile {
            let seconds = started.elapsed().as_secs_f64();
            for (step, share) in pass.shares() {
                profile.note(self.tensor(step).origin(), seconds * share);
            }
        }
    }

    /// Computes the targets, at least one, in one pass over the tokens.
    fn pass(&mut self, targets: &[usize], frame: &Frame) -> Result<(), TensorError> {
        let (layout, guard) = (&*frame.layout, &self.context.guard);
        let started = Instant::now();
        let is_reduced = |step: &usize| matches!(self.methods[*step], Method::Reduced(_));
        let (reduced, stored): (Vec<usize>, Vec<usize>) =
            targets.iter().copied().partition(is_reduced);
        let mut pass = Pass::new(self, &self.steps(targets));
        let mut outputs = Vec::new();
        for (index, &step) in stored.iter().enumerate() {
            pass.store(step, index, self.is_output[step]);
            outputs.push(Output::new(self, step, layout)?);
        }
        let any = *stored.first().unwrap_or(&targets[0]);
        let scratch = pass.free(layout) * rayon::current_num_threads();
        let bytes = scratch + pass.reductions * layout.responses() * size_of::<Moments>();
        let _scratch = (guard.reserve(bytes)).map_err(|stopped| self.error(any, stopped))?;
        let mut moments = vec![vec![Moments::EMPTY; layout.responses()]; pass.reductions];
        let parts = Parts {
            outputs: outputs.iter_mut().map(|(of, _)| of.whole()).collect(),
            moments: moments.iter_mut().map(|of| &mut of[..]).collect(),
        };
        blocks::run(&pass, layout, parts).map_err(|stopped| self.error(any, stopped))?;
        self.note_times(&pass, started);
        let mut values: Vec<(usize, Arc<Value>)> = Vec::new();
        for (&step, (output, reserved)) in stored.iter().zip(outputs) {
            let is_finite = pass.is_finite(step);
            let value = Value::new(output.computed(frame.layout.clone()), Some(reserved));
            values.push((step, Arc::new(value.tested(is_finite))));
        }
        for step in reduced {
            let moments = &moments[pass.reduction_of(step)];
            values.push((step, self.reduced(step, moments)?));
        }
        for (step, value) in values {
            self.values[step] = Some(value);
        }
        Ok(())
    }

    /// Computes the value of a reduction from the moments of each response's tokens.
    fn reduced(&self, step: usize, moments: &[Moments]) -> Result<Arc<Value>, TensorError> {
        let tensor = self.tensor(step);
        let (Method::Reduced(reduction), Some(frame)) = (self.methods[step], tensor.frame()) else {
            unreachable!("a reduction of tokens has a frame");
        };
        let cells = of_responses(&frame.layout, moments, tensor.level());
        let values: Vec<f64> = cells.iter().map(|cell| finish(reduction, cell)).collect();
        let reserved = self.context.guard.reserve(values.len() * size_of::<f64>());
        let reserved = reserved.map_err(|stopped| self.error(step, stopped))?;
        let values = Computed::new(frame.layout.clone(), tensor.level(), values);
        Ok(Arc::new(Value::new(values, Some(reserved))))
    }
}

fn is_large(tensor: &Tensor) -> bool {
    matches!(tensor.level(), Level::Token | Level::Position)
}
