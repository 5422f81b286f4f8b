//! The fused executor: token values are computed tile by tile, through all operations between two reductions at once,
//! and only what is asked for is ever held whole.
//!
//! A plan is cut into passes over the tokens. Values of coarser levels are there before the pass that reads them, and a
//! reduction of tokens ends a pass. What a later pass needs of an earlier one is computed again where that is cheap and
//! stored where it is not. Operations that do not go by tiles (ranks, medians, positions, groups taken apart) are left to
//! the naive executor, as are all values that are no tokens. Sums and scans are those of the naive executor, so that the
//! two agree bit for bit.

mod assembler;
mod bank;
mod kernels;
mod noted;
mod passes;
mod program;
mod tile;
mod tiles;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::assembler::Assembler;
pub(super) use self::kernels::Loop;
use self::noted::Clock;
pub(super) use self::noted::why_in_full;
use self::program::Program;
use self::tiles::{PaddedOutput, Written};
use super::kind::Kind;
use super::moments::Moments;
use super::reduce::{depth, finish, of_responses};
use super::{Sink, naive};
use crate::batch::{FloatBuffer, Zeros};
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::guard::Reservation;
use crate::tensor::op::Reduction;
use crate::tensor::{Context, Frame, Guard, Level, Plan, Stopped, Value};

/// Computes token values tile by tile, and all others as [`super::naive`].
pub(super) fn run(
    plan: &Plan,
    context: &Context,
    sink: Option<&mut Sink<'_>>,
) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
    Schedule::new(plan).run(context, sink)
}

/// Stands for the tokens' part of a pass, which comes after all that is computed in full.
const SWEEP: usize = usize::MAX;

/// What one pass computes, by steps.
#[derive(Default)]
struct Pass {
    /// In full, before the tokens.
    whole: Vec<usize>,
    /// Token steps, in order: computed by tiles, or read from memory.
    computed: Vec<usize>,
    /// What is read from memory.
    read: Vec<usize>,
    /// The reductions at its end.
    reduced: Vec<(usize, Reduction)>,
}

impl Pass {
    fn is_empty(&self) -> bool {
        self.computed.is_empty() && self.reduced.is_empty()
    }
}

struct Schedule<'a> {
    plan: &'a Plan,
    /// The frame whose tokens are computed tile by tile; those of others are left to the naive executor.
    home: Option<&'a Arc<Frame>>,
    kind: Vec<Kind>,
    /// The pass before which a whole value is there, and the first in which a token value can be.
    pass: Vec<usize>,
    /// Whether a token step has one value for all tokens of a response.
    uniform: Vec<bool>,
    /// The passes that go from the last token to the first, or the other way round.
    direction: BTreeMap<usize, bool>,
    /// The token steps that are written to memory.
    stored: Vec<bool>,
    /// Whether only later passes read a step that is stored: not an output of the plan, nor of the naive executor.
    private: Vec<bool>,
    /// What reads a step's values from memory last: the pass, and the step that is computed in full, or [`SWEEP`].
    last_use: Vec<(usize, usize)>,
    values: Vec<Option<Arc<Value>>>,
    /// The values of private steps.
    temporary: HashMap<usize, Temporary>,
    /// The output that goes into the caller's padded array, if any does.
    padded: Option<usize>,
    /// The private step whose values wait in that array for the output that overwrites them.
    waiting: Option<usize>,
}

/// Token values that a later pass reads, and may write over.
struct Temporary {
    memory: Memory,
    reservation: Reservation,
}

/// The tokens of an output.
enum Memory {
    F32(Zeros<f32>),
    F64(Zeros<f64>),
    /// In the caller's padded array.
    Padded,
}

impl Schedule<'_> {
    fn run(
        mut self,
        context: &Context,
        mut sink: Option<&mut Sink<'_>>,
    ) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
        let stopped = |stopped| TensorError::new("plan", stopped);
        let passes = self.passes(&context.guard).map_err(stopped)?;
        if sink.is_some() {
            self.find_padded(&passes);
        }
        for (at, pass) in passes.iter().enumerate() {
            for &index in &pass.whole {
                let step = &self.plan.steps()[index];
                self.values[index] = Some(naive::value(step, &self.values, context)?);
                step.args
                    .iter()
                    .for_each(|&arg| self.free(arg, (at, index)));
            }
            if let (false, Some(home)) = (pass.is_empty(), self.home) {
                self.sweep(at, pass, home, context, sink.as_deref_mut())?;
                pass.read
                    .iter()
                    .for_each(|&step| self.free(step, (at, SWEEP)));
            }
        }
        Ok(self.values)
    }

    /// Gives the memory of a step back where it was read for the last time. Coarser values are small, and kept for later
    /// plans.
    fn free(&mut self, step: usize, read: (usize, usize)) {
        let level = self.plan.steps()[step].tensor.level();
        if matches!(level, Level::Token | Level::Position) && self.last_use[step] == read {
            self.values[step] = None;
            self.temporary.remove(&step);
        }
    }

    /// One pass over the tokens.
    fn sweep(
        &mut self,
        at: usize,
        pass: &Pass,
        home: &Frame,
        context: &Context,
        sink: Option<&mut Sink<'_>>,
    ) -> Result<(), TensorError> {
        let (guard, layout) = (&context.guard, &home.layout);
        let mut clock = Clock::start(context);
        let mut written: Vec<usize> = (pass.computed.iter().copied())
            .filter(|&step| self.stored[step] && self.pass[step] == at)
            .collect();
        // The padded array comes after the outputs that lie in memory of their own.
        written.sort_by_key(|&step| self.is_padded(step));
        let (mut outputs, reused) = self.memory(at, pass, &written, layout.tokens(), guard)?;
        let (program, reductions) = self.program(at, pass, &written, &reused);
        clock.time(&program);
        let any = (written.first().copied()).or(reductions.first().map(|(step, ..)| *step));
        let any = any.unwrap_or(0);
        let scratch = program.scratch_bytes() * rayon::current_num_threads();
        let bytes = program.reduces.len() * layout.responses() * size_of::<Moments>();
        let reserved = guard.reserve(bytes + scratch);
        let _scratch = reserved.map_err(|stopped| self.stopped(any, stopped))?;
        let mut moments = vec![vec![Moments::EMPTY; layout.responses()]; program.reduces.len()];
        let is_read = |&step: &usize| (!self.private[step]).then(|| AtomicBool::new(false));
        let not_finite: Vec<Option<AtomicBool>> = written.iter().map(is_read).collect();
        let padded = written.last().filter(|&&step| self.is_padded(step));
        let mut sink = sink.filter(|_| padded.is_some());
        let mut memory = Written {
            padded: sink.as_mut().map(|sink| PaddedOutput {
                rows: sink.rows.reborrow(),
                is_last: padded.copied() == self.padded,
            }),
            moments: moments.iter_mut().map(|reduced| &mut reduced[..]).collect(),
            ..Written::default()
        };
        for output in &mut outputs {
            match &mut output.memory {
                Memory::F32(values) => memory.f32s.push(&mut values[..]),
                Memory::F64(values) => memory.f64s.push(&mut values[..]),
                Memory::Padded => {}
            }
        }
        tiles::run(&program, layout, guard, memory, &not_finite, &clock)
            .map_err(|stopped| self.stopped(any, stopped))?;
        let reused: Vec<usize> = reused.into_iter().map(|(step, _)| step).collect();
        self.note(clock, &program, layout, &written, &reused);
        for ((step, output), not_finite) in written.into_iter().zip(outputs).zip(not_finite) {
            let is_finite = not_finite.map(|not_finite| !not_finite.into_inner());
            if let (Some(sink), Memory::Padded) = (&mut sink, &output.memory) {
                sink.is_finite = is_finite;
            }
            self.keep(step, output, is_finite);
        }
        for (step, reduction, at) in reductions {
            let value = self.reduced(step, reduction, &moments[at], guard);
            self.values[step] = Some(value.map_err(|stopped| self.stopped(step, stopped))?);
        }
        Ok(())
    }

    /// The values of a reduction, from what is known of the responses' tokens.
    fn reduced(
        &self,
        step: usize,
        reduction: Reduction,
        moments: &[Moments],
        guard: &Arc<Guard>,
    ) -> Result<Arc<Value>, Stopped> {
        let tensor = &self.plan.steps()[step].tensor;
        let Some(frame) = tensor.frame() else {
            unreachable!("a reduction of tokens has the frame of a batch")
        };
        let cells = of_responses(&frame.layout, moments, tensor.level());
        let values: Vec<f64> = cells.iter().map(|cell| finish(reduction, cell)).collect();
        let reserved = guard.reserve(values.len() * size_of::<f64>())?;
        Ok(Value::new(tensor.level(), values.into(), Some(reserved)))
    }

    fn stopped(&self, step: usize, stopped: Stopped) -> TensorError {
        let tensor = &self.plan.steps()[step].tensor;
        TensorError::new(tensor.inner().prim.name(), stopped).or_at(tensor.origin())
    }

    /// The system has no memory for a step's values, whatever the guard allows.
    fn no_memory(&self, step: usize, bytes: usize) -> TensorError {
        let tensor = &self.plan.steps()[step].tensor;
        let why = format!("the system has no {} MiB left for its values", bytes >> 20);
        let kind = TensorErrorKind::Machine(why);
        TensorError::new(tensor.inner().prim.name(), kind).or_at(tensor.origin())
    }

    fn is_padded(&self, step: usize) -> bool {
        self.padded == Some(step) || self.waiting == Some(step)
    }

    /// The memory of what a pass writes. What is read for the last time makes room for it: those steps are told with the
    /// outputs that get their memory.
    #[allow(clippy::type_complexity)]
    fn memory(
        &mut self,
        at: usize,
        pass: &Pass,
        written: &[usize],
        tokens: usize,
        guard: &Arc<Guard>,
    ) -> Result<(Vec<Temporary>, Vec<(usize, usize)>), TensorError> {
        let mut reused: Vec<(usize, usize)> = Vec::new();
        let mut outputs: Vec<Temporary> = Vec::with_capacity(written.len());
        let is_f64 = |step: usize| self.plan.steps()[step].tensor.is_f64();
        for (output, &step) in written.iter().enumerate() {
            let last_read = (pass.computed.iter().copied()).find(|&other| {
                self.last_use[other] == (at, SWEEP)
                    && is_f64(other) == is_f64(step)
                    && self.is_padded(other) == self.is_padded(step)
                    && self.temporary.contains_key(&other)
            });
            let old = last_read.and_then(|other| Some((other, self.temporary.remove(&other)?)));
            outputs.push(match old {
                Some((other, old)) => {
                    reused.push((other, output));
                    old
                }
                None => {
                    let bytes = match (self.is_padded(step), is_f64(step)) {
                        (true, _) => 0,
                        (false, true) => size_of::<f64>(),
                        (false, false) => size_of::<f32>(),
                    };
                    let reserved = guard.reserve(tokens * bytes);
                    let reservation = reserved.map_err(|stopped| self.stopped(step, stopped))?;
                    let memory = match (self.is_padded(step), is_f64(step)) {
                        (true, _) => Ok(Memory::Padded),
                        (false, true) => Zeros::new(tokens).map(Memory::F64),
                        (false, false) => Zeros::new(tokens).map(Memory::F32),
                    };
                    Temporary {
                        memory: memory.map_err(|_| self.no_memory(step, tokens * bytes))?,
                        reservation,
                    }
                }
            });
        }
        Ok((outputs, reused))
    }

    /// A pass's program, and its reductions with the entry of the program that each is made of.
    fn program(
        &self,
        at: usize,
        pass: &Pass,
        written: &[usize],
        reused: &[(usize, usize)],
    ) -> (Program<'_>, Vec<(usize, Reduction, usize)>) {
        let mut assembler = Assembler::new(self, at);
        for &(step, output) in reused {
            assembler.program.step = step;
            assembler.reuse(step, output);
        }
        for &step in &pass.computed {
            assembler.program.step = step;
            assembler.add(step);
        }
        for &step in written {
            assembler.program.step = step;
            assembler.store(step);
        }
        // Reductions of the same values share what is found out about them.
        let mut reductions: Vec<(usize, Reduction, usize)> = Vec::new();
        let mut by_args: HashMap<&[usize], usize> = HashMap::new();
        for &(index, reduction) in &pass.reduced {
            let args = &self.plan.steps()[index].args[..];
            let next = assembler.program.reduces.len();
            let reduce = *by_args.entry(args).or_insert(next);
            if reduce == next {
                assembler.program.step = index;
                assembler.reduce(args, reduction);
            }
            let shared = &mut assembler.program.reduces[reduce];
            shared.depth = shared.depth.max(depth(reduction));
            reductions.push((index, reduction, reduce));
        }
        let mut program = assembler.program;
        program.assign_registers();
        program.from_the_end = self.direction.get(&at).copied().unwrap_or(false);
        (program, reductions)
    }

    /// Keeps what a pass has written.
    fn keep(&mut self, step: usize, output: Temporary, is_finite: Option<bool>) {
        let buffer: FloatBuffer = match (output.memory, is_finite) {
            (Memory::Padded, Some(_)) => return,
            (Memory::F32(values), Some(_)) => FloatBuffer::F32(values.into()),
            (Memory::F64(values), Some(_)) => FloatBuffer::F64(values.into()),
            (memory, None) => {
                self.temporary.insert(step, Temporary { memory, ..output });
                return;
            }
        };
        let is_finite = is_finite.unwrap_or(false);
        let value = Value::checked(Level::Token, buffer, output.reservation, is_finite);
        self.values[step] = Some(value);
    }
}
