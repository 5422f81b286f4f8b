//! Computes a plan: first all steps that can be computed in full; then one pass goes over the tokens, tile by tile, through all
//! steps that are ready; this repeats until the outputs are computed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::moments::Moments;
use super::pass::{Arg, Pass, Written};
use super::reduce::{finish, of_responses};
use super::tile::Memory;
use super::{Failure, coarse};
use crate::batch::{FloatBuffer, Layout};
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::graph::Prim;
use crate::tensor::guard::Reservation;
use crate::tensor::op::{Kernel, Reduction};
use crate::tensor::{Context, Frame, Level, Plan, Tensor, Value};

/// The most token values that one pass stores for steps that are computed in full: bounds the memory.
const STORED_FOR_FULL: usize = 2;

/// How a step's values are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// All at once, from all values of its arguments.
    InFull,
    /// Tile by tile, in a pass over the tokens.
    ByTile,
    /// All tokens of a response have the same value: computed and stored per response, rounded like tokens.
    Uniform,
    /// As a reduction of tokens, at the end of a pass.
    Reduced(Reduction),
}

/// What one pass computes.
#[derive(Default)]
struct Targets {
    stored: Vec<usize>,
    reduced: Vec<usize>,
}

impl Targets {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.stored.iter().chain(&self.reduced).copied()
    }
}

/// A plan while it is computed.
pub(super) struct Execution<'a> {
    plan: &'a Plan,
    pub(super) context: &'a Context,
    methods: Vec<Method>,
    /// By step: the steps that read it.
    readers: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    /// The step whose f32 token values are written as the rows of an array [B, T].
    rows_of: Option<usize>,
    pub(super) values: Vec<Option<Arc<Value>>>,
    /// By uniform step: its values by response.
    uniform: Vec<Option<Vec<f64>>>,
}

/// Computes a plan. If fused, one pass computes as many steps as it can; otherwise each step is computed separately, in order.
pub(super) fn run(
    plan: &Plan,
    context: &Context,
    is_fused: bool,
) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
    let frame = main_frame(plan).filter(|_| is_fused);
    let mut execution = Execution::new(plan, context, frame);
    loop {
        let is_stopped = context.guard.check();
        is_stopped.map_err(|stopped| execution.error(plan.outputs()[0], stopped.into()))?;
        let needed = execution.needed();
        execution.free(&needed);
        execution.compute_in_full(&needed)?;
        let targets = execution.targets(&needed);
        match frame {
            Some(frame) if targets.all().next().is_some() => {
                execution.pass(&targets, frame)?;
            }
            _ => return Ok(execution.values),
        }
    }
}

/// The frame with the most token values to compute. Token steps of other frames are computed one at a time.
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

impl<'a> Execution<'a> {
    fn new(plan: &'a Plan, context: &'a Context, frame: Option<&Arc<Frame>>) -> Execution<'a> {
        let steps = plan.steps();
        let known = |step: usize| steps[step].tensor.known().cloned();
        let mut execution = Execution {
            plan,
            context,
            methods: Vec::with_capacity(steps.len()),
            readers: vec![Vec::new(); steps.len()],
            is_output: vec![false; steps.len()],
            rows_of: (context.by_rows && plan.has_result).then(|| plan.outputs()[0]),
            values: (0..steps.len()).map(known).collect(),
            uniform: vec![None; steps.len()],
        };
        for &output in plan.outputs() {
            execution.is_output[output] = true;
        }
        for index in 0..steps.len() {
            execution.methods.push(execution.method_of(index, frame));
            for &arg in execution.args(index) {
                execution.readers[arg].push(index);
            }
        }
        execution
    }

    fn method_of(&self, index: usize, main: Option<&Arc<Frame>>) -> Method {
        let tensor = self.tensor(index);
        let (Some(main), Some(frame), None) = (main, tensor.frame(), tensor.known()) else {
            return Method::InFull;
        };
        let is_of_main = |frame: &Arc<Frame>| frame.responses == main.responses;
        let is_within_main = |&arg: &usize| {
            let arg = self.tensor(arg);
            arg.level() == Level::Batch || arg.frame().is_none_or(is_of_main)
        };
        let args = self.args(index);
        if !is_of_main(frame) || !args.iter().all(is_within_main) {
            return Method::InFull;
        }
        let is_uniform = |&arg: &usize| match self.tensor(arg).level() {
            Level::Token => self.methods[arg] == Method::Uniform,
            level => level != Level::Position,
        };
        match (&tensor.inner().prim, tensor.level()) {
            (Prim::Map(op), Level::Token) if matches!(op.kernel, Kernel::Checked(_)) => {
                Method::ByTile
            }
            (Prim::Map(_) | Prim::Expand, Level::Token) if args.iter().all(is_uniform) => {
                Method::Uniform
            }
            (prim, Level::Token) if goes_by_tile(prim) => Method::ByTile,
            (Prim::Reduce(op), Level::Response | Level::Group | Level::Batch)
                if self.tensor(args[0]).level() == Level::Token =>
            {
                Method::Reduced(op.kernel.reduction())
            }
            _ => Method::InFull,
        }
    }

    pub(super) fn tensor(&self, step: usize) -> &'a Tensor {
        &self.plan.steps()[step].tensor
    }

    pub(super) fn args(&self, step: usize) -> &'a [usize] {
        &self.plan.steps()[step].args
    }

    pub(super) fn method(&self, step: usize) -> Method {
        self.methods[step]
    }

    /// Whether the next pass can read a step without computing it.
    pub(super) fn is_readable(&self, step: usize) -> bool {
        self.values[step].is_some() || self.uniform[step].is_some()
    }

    /// A step with one value per response or coarser cell, or per position.
    pub(super) fn coarser(&self, step: usize) -> Arg<'_> {
        let tensor = self.tensor(step);
        let Some(frame) = tensor.frame() else {
            return Arg::Number(tensor.alone());
        };
        if let Some(values) = &self.uniform[step] {
            return Arg::Cell(values, Level::Response, &frame.layout);
        }
        match self.values[step].as_ref().map(|value| value.buffer()) {
            Some(values) if tensor.level() == Level::Batch => Arg::Number(values.get(0)),
            Some(FloatBuffer::F64(values)) => Arg::Cell(values, tensor.level(), &frame.layout),
            _ => {
                unreachable!("coarser values are f64, and computed before the pass that reads them")
            }
        }
    }

    /// The steps that an output is or still waits for.
    fn needed(&self) -> Vec<bool> {
        let mut needed = self.is_output.clone();
        for step in (0..needed.len()).rev() {
            if needed[step] && self.values[step].is_none() {
                self.args(step).iter().for_each(|&arg| needed[arg] = true);
            }
        }
        needed
    }

    /// Frees memory. Coarser values are small, and kept for later plans.
    fn free(&mut self, needed: &[bool]) {
        for (step, value) in self.values.iter_mut().enumerate() {
            if !needed[step] && is_large(&self.plan.steps()[step].tensor) {
                *value = None;
            }
        }
    }

    /// Computes the steps in full, and the uniform steps, whose arguments are available.
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
                let alone = Targets {
                    stored: vec![step],
                    ..Targets::default()
                };
                self.pass(&alone, frame)?;
            } else {
                let started = Instant::now();
                let value = coarse::value(self, step);
                self.values[step] = Some(value.map_err(|failure| self.error(step, failure))?);
                if let Some(profile) = &self.context.profile {
                    profile.note(tensor.origin(), started.elapsed().as_secs_f64());
                }
            }
            for &arg in args {
                let is_read = |&reader: &usize| {
                    self.methods[reader] == Method::InFull && self.values[reader].is_some()
                };
                let is_free = is_large(self.tensor(arg)) && !self.is_output[arg];
                // Reversed, because the last reader is most often the one that has not run yet.
                if is_free && self.readers[arg].iter().rev().all(is_read) {
                    self.values[arg] = None;
                }
            }
        }
        Ok(())
    }

    /// Computes a uniform step; its tokens' values are spread out only if somebody reads them one by one.
    fn compute_uniform(&mut self, step: usize) -> Result<(), TensorError> {
        let (tensor, values) = (self.tensor(step), coarse::uniform(self, step));
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
            let buffer = FloatBuffer::uniform(layout, values.clone(), tensor.is_f64());
            self.values[step] = Some(Value::checked(Level::Token, buffer, share, is_finite));
        }
        self.uniform[step] = Some(values);
        Ok(())
    }

    /// The steps that a pass can compute now: reductions, outputs, and token values that a full step or a later pass reads.
    fn targets(&self, needed: &[bool]) -> Targets {
        let count = self.methods.len();
        // Steps that the pass can compute, and steps that others in the pass can read.
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
        // Whether a later step reads this one: a full step if `in_full`, otherwise a step of a later pass.
        let is_read = |step: usize, in_full: bool| {
            self.readers[step].iter().any(|&reader| {
                let is_in_full = self.methods[reader] == Method::InFull;
                is_due(reader) && !now[reader] && is_in_full == in_full
            })
        };
        let mut targets = Targets::default();
        let mut for_full = 0;
        for step in (0..count).filter(|&step| now[step] && is_due(step)) {
            if let Method::Reduced(_) = self.methods[step] {
                targets.reduced.push(step);
                continue;
            }
            let (is_for_full, is_for_later) = (is_read(step, true), is_read(step, false));
            for_full += usize::from(is_for_full && !self.is_output[step]);
            let prim = &self.tensor(step).inner().prim;
            // Columns can be read from their own memory again.
            let is_held = matches!(prim, Prim::Column(_) | Prim::AtLastToken);
            let is_kept = is_for_full && for_full <= STORED_FOR_FULL || is_for_later && !is_held;
            if self.is_output[step] || is_kept {
                targets.stored.push(step);
            }
        }
        targets
    }

    /// The steps of a pass, in the plan's order.
    fn steps(&self, targets: &Targets) -> Vec<usize> {
        let mut stack: Vec<usize> = targets.all().collect();
        let (mut steps, mut seen) = (Vec::new(), BTreeSet::new());
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

    /// For a profile, shares out the time since the start of a pass to the lines of its steps.
    fn note_times(&self, pass: &Pass<'_>, started: Instant) {
        if let Some(profile) = &self.context.profile {
            let seconds = started.elapsed().as_secs_f64();
            for (step, share) in pass.shares() {
                profile.note(self.tensor(step).origin(), seconds * share);
            }
        }
    }

    /// One pass over the tokens.
    fn pass(&mut self, targets: &Targets, frame: &Frame) -> Result<(), TensorError> {
        let (layout, guard) = (&*frame.layout, &self.context.guard);
        let started = Instant::now();
        let mut pass = Pass::new(self, &self.steps(targets));
        let mut memory: Vec<Memory> = Vec::new();
        let mut reserved = Vec::new();
        for (index, &step) in targets.stored.iter().enumerate() {
            pass.store(step, index, self.is_output[step]);
            let (values, share) = self.memory(step, layout)?;
            memory.push(values);
            reserved.push(share);
        }
        let any = targets.all().next().unwrap_or_default();
        let scratch = pass.free(layout) * rayon::current_num_threads();
        let bytes = scratch + pass.reductions * layout.responses() * size_of::<Moments>();
        let _scratch = (guard.reserve(bytes)).map_err(|stopped| self.error(any, stopped.into()))?;
        let mut moments = vec![vec![Moments::EMPTY; layout.responses()]; pass.reductions];
        let written = Written {
            memory: memory.iter_mut().map(Memory::share).collect(),
            moments: moments.iter_mut().map(|of| &mut of[..]).collect(),
        };
        (pass.run(layout, written)).map_err(|failure| self.error(any, failure))?;
        self.note_times(&pass, started);
        let mut values: Vec<(usize, Arc<Value>)> = Vec::new();
        for ((&step, memory), share) in targets.stored.iter().zip(memory).zip(reserved) {
            let is_finite = pass.is_finite(step);
            let buffer = memory.into_buffer(&frame.layout);
            let value = Value::checked(Level::Token, buffer, share, is_finite);
            values.push((step, value));
        }
        for &step in &targets.reduced {
            let moments = &moments[pass.reduction_of(step)];
            values.push((step, self.reduced(step, moments)?));
        }
        for (step, value) in values {
            self.values[step] = Some(value);
        }
        Ok(())
    }

    /// The value of a reduction, from the moments of the responses' tokens.
    fn reduced(&self, step: usize, moments: &[Moments]) -> Result<Arc<Value>, TensorError> {
        let tensor = self.tensor(step);
        let (Method::Reduced(reduction), Some(frame)) = (self.methods[step], tensor.frame()) else {
            unreachable!("a reduction of tokens has a frame");
        };
        let cells = of_responses(&frame.layout, moments, tensor.level());
        let values: Vec<f64> = cells.iter().map(|cell| finish(reduction, cell)).collect();
        let reserved = self.context.guard.reserve(values.len() * size_of::<f64>());
        let reserved = reserved.map_err(|stopped| self.error(step, stopped.into()))?;
        Ok(Value::new(tensor.level(), values.into(), Some(reserved)))
    }

    /// The error of a step, or of the step that the failure refers to.
    fn error(&self, step: usize, failure: Failure) -> TensorError {
        let (step, kind) = match failure {
            Failure::Stopped(stopped) => (step, stopped.into()),
            Failure::Value { step, index, why } => {
                let tensor = self.tensor(step);
                let place = |frame: &Arc<Frame>| frame.layout.describe(tensor.level(), index);
                let place = tensor
                    .frame()
                    .map_or(String::new(), |frame| place(frame).to_string());
                (step, TensorErrorKind::Value(format!("{why}, at {place}")))
            }
        };
        let tensor = self.tensor(step);
        TensorError::new(tensor.inner().prim.name(), kind).or_at(tensor.origin())
    }

    /// Counts the token values of a step by the guard.
    fn reserve(&self, step: usize, tokens: usize) -> Result<Reservation, TensorError> {
        let bytes = tokens * if self.tensor(step).is_f64() { 8 } else { 4 };
        let share = self.context.guard.reserve(bytes);
        share.map_err(|stopped| self.error(step, stopped.into()))
    }

    /// Memory for the token values of a step, counted by the guard.
    fn memory(&self, step: usize, layout: &Layout) -> Result<(Memory, Reservation), TensorError> {
        let (tensor, spare) = (self.tensor(step), self.context.guard.spare());
        let by_rows = self.rows_of == Some(step) && !tensor.is_f64() && layout.is_padded();
        let count = if by_rows {
            layout.responses() * layout.width()
        } else {
            layout.tokens()
        };
        let share = self.reserve(step, count)?;
        let memory = match (by_rows, tensor.is_f64()) {
            (true, _) => spare.numbers(count).map(Memory::Rows),
            (_, true) => spare.numbers(count).map(Memory::F64),
            (_, false) => spare.numbers(count).map(Memory::F32),
        };
        let memory = memory.map_err(|_| {
            let why = format!("the system has no memory left for its {count} values");
            TensorError::new(tensor.inner().prim.name(), TensorErrorKind::Machine(why))
                .or_at(tensor.origin())
        })?;
        Ok((memory, share))
    }
}

/// Whether a step on tokens is computed in a pass, separately if it cannot be fused with others.
fn goes_by_tile(prim: &Prim) -> bool {
    matches!(
        prim,
        Prim::Column(_) | Prim::AtLastToken | Prim::Map(_) | Prim::Expand | Prim::Scan(..)
    )
}

fn is_large(tensor: &Tensor) -> bool {
    matches!(tensor.level(), Level::Token | Level::Position)
}
