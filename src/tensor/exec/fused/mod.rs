//! The fused executor: token values are computed tile by tile, through all operations between two reductions at once,
//! and only what is asked for is ever held whole.
//!
//! A plan is cut into passes over the tokens. Values of coarser levels are there before the pass that reads them, and a
//! reduction of tokens ends a pass. What a later pass needs of an earlier one is computed again where that is cheap and
//! stored where it is not. Operations that do not go by tiles (ranks, medians, positions, groups taken apart) are left to
//! the naive executor, as are all values that are no tokens. Sums and scans are those of the naive executor, so that the
//! two agree bit for bit.

mod bank;
mod kernels;
mod passes;
mod program;
mod stage;
mod tiles;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use self::program::Program;
use self::tiles::Written;
use super::moments::Moments;
use super::naive;
use super::reduce::{depth, finish, of_responses};
use crate::batch::FloatBuffer;
use crate::tensor::error::TensorError;
use crate::tensor::guard::Reservation;
use crate::tensor::op::Reduction;
use crate::tensor::profile::{self, Operation};
use crate::tensor::{Context, Frame, Level, Plan, Value};

/// Computes token values tile by tile, and all others as [`super::naive`].
pub(super) fn run(plan: &Plan, context: &Context) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
    Run::new(plan).run(context)
}

/// How a step's values come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By the naive executor, in full; or they are there already.
    Whole,
    /// Tile by tile.
    Token,
    /// As a reduction of tokens at the end of a pass.
    Reduced(Reduction),
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

struct Run<'a> {
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
}

/// Token values that a later pass reads, and may write over.
struct Temporary {
    memory: Memory,
    reservation: Reservation,
}

/// The tokens of an output.
enum Memory {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Memory {
    fn bytes(&self) -> usize {
        match self {
            Memory::F32(values) => size_of_val(&values[..]),
            Memory::F64(values) => size_of_val(&values[..]),
        }
    }

    fn new(tokens: usize, is_f64: bool) -> Memory {
        if is_f64 {
            Memory::F64(vec![0.0; tokens])
        } else {
            Memory::F32(vec![0.0; tokens])
        }
    }
}

impl Run<'_> {
    fn run(mut self, context: &Context) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
        let stopped = |stopped| TensorError::new("plan", stopped);
        let passes = self.passes(&context.guard).map_err(stopped)?;
        for (at, pass) in passes.iter().enumerate() {
            for &index in &pass.whole {
                let step = &self.plan.steps()[index];
                self.values[index] = Some(naive::value(step, &self.values, context)?);
                step.args
                    .iter()
                    .for_each(|&arg| self.free(arg, (at, index)));
            }
            if let (false, Some(home)) = (pass.is_empty(), self.home) {
                self.sweep(at, pass, home, context)?;
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
    ) -> Result<(), TensorError> {
        let (started, guard) = (Instant::now(), &context.guard);
        let steps = self.plan.steps();
        let (layout, tokens) = (&home.layout, home.layout.tokens());
        let is_f64 = |step: usize| steps[step].tensor.is_f64();
        let stopped = |step: usize| {
            move |stopped| {
                let tensor = &steps[step].tensor;
                TensorError::new(tensor.inner().prim.name(), stopped).or_at(tensor.origin())
            }
        };
        let written: Vec<usize> = (pass.computed.iter().copied())
            .filter(|&step| self.stored[step] && self.pass[step] == at)
            .collect();
        // What is read for the last time makes room for what is written.
        let mut reused: Vec<(usize, usize)> = Vec::new();
        let mut outputs: Vec<Temporary> = Vec::with_capacity(written.len());
        for (output, &step) in written.iter().enumerate() {
            let last_read = (pass.computed.iter().copied()).find(|other| {
                self.last_use[*other] == (at, SWEEP)
                    && is_f64(*other) == is_f64(step)
                    && self.temporary.contains_key(other)
            });
            let old = last_read.and_then(|other| Some((other, self.temporary.remove(&other)?)));
            outputs.push(match old {
                Some((other, old)) => {
                    reused.push((other, output));
                    old
                }
                None => {
                    let bytes = tokens * if is_f64(step) { 8 } else { 4 };
                    Temporary {
                        reservation: guard.reserve(bytes).map_err(stopped(step))?,
                        memory: Memory::new(tokens, is_f64(step)),
                    }
                }
            });
        }
        let mut program = Program::new(self, at);
        for (step, output) in reused {
            program.stage.step = step;
            program.reuse(step, output);
        }
        for &step in &pass.computed {
            program.stage.step = step;
            program.add(step);
        }
        for &step in &written {
            program.stage.step = step;
            program.store(step);
        }
        // Reductions of the same values share what is found out about them.
        let mut reductions: Vec<(usize, Reduction, usize)> = Vec::new();
        let mut by_args: HashMap<&[usize], usize> = HashMap::new();
        for &(index, reduction) in &pass.reduced {
            let args = &steps[index].args[..];
            let next = program.stage.reduces.len();
            let reduce = *by_args.entry(args).or_insert(next);
            if reduce == next {
                program.stage.step = index;
                program.reduce(args, reduction);
            }
            let shared = &mut program.stage.reduces[reduce];
            shared.depth = shared.depth.max(depth(reduction));
            reductions.push((index, reduction, reduce));
        }
        let mut stage = program.stage;
        stage.assign_registers();
        stage.from_the_end = self.direction.get(&at).copied().unwrap_or(false);
        let any = (written.first().copied()).or(reductions.first().map(|(step, ..)| *step));
        let any = any.unwrap_or(0);
        let scratch = stage.scratch_bytes() * rayon::current_num_threads();
        let bytes = stage.reduces.len() * layout.responses() * size_of::<Moments>();
        let _scratch = guard.reserve(bytes + scratch).map_err(stopped(any))?;
        let mut moments = vec![vec![Moments::EMPTY; layout.responses()]; stage.reduces.len()];
        let not_finite: Vec<AtomicBool> = written.iter().map(|_| AtomicBool::new(false)).collect();
        let (mut f32s, mut f64s) = (Vec::new(), Vec::new());
        for output in &mut outputs {
            match &mut output.memory {
                Memory::F32(values) => f32s.push(&mut values[..]),
                Memory::F64(values) => f64s.push(&mut values[..]),
            }
        }
        let memory = Written {
            f32s,
            f64s,
            moments: moments.iter_mut().map(|reduced| &mut reduced[..]).collect(),
        };
        let times =
            tiles::run(&stage, layout, context, memory, &not_finite).map_err(stopped(any))?;
        if let Some(profile) = &context.profile {
            let seconds = started.elapsed().as_secs_f64();
            let all: f64 = times.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            let operation = |(&step, time): (&usize, f64)| Operation {
                name: steps[step].tensor.inner().prim.name(),
                origin: steps[step].tensor.origin().cloned(),
                seconds: seconds * time / all,
            };
            profile.note(profile::Stage {
                is_pass: true,
                level: Level::Token,
                started: 0.0,
                seconds,
                read: stage
                    .inputs
                    .iter()
                    .map(|(input, _)| input.bytes(tokens))
                    .sum(),
                written: outputs.iter().map(|output| output.memory.bytes()).sum(),
                operations: stage.steps().zip(times).map(operation).collect(),
            });
        }
        for ((step, output), not_finite) in written.into_iter().zip(outputs).zip(not_finite) {
            if self.private[step] {
                self.temporary.insert(step, output);
                continue;
            }
            let buffer = match output.memory {
                Memory::F32(values) => FloatBuffer::from(values),
                Memory::F64(values) => values.into(),
            };
            let value = Value::checked(
                Level::Token,
                buffer,
                output.reservation,
                !not_finite.into_inner(),
            );
            self.values[step] = Some(value);
        }
        for (step, reduction, at) in reductions {
            let tensor = &steps[step].tensor;
            let layout = tensor.frame().map_or(layout, |frame| &frame.layout);
            let cells = of_responses(layout, &moments[at], tensor.level());
            let values: Vec<f64> = cells.iter().map(|cell| finish(reduction, cell)).collect();
            let reservation = guard.reserve(values.len() * 8).map_err(stopped(step))?;
            self.values[step] = Some(Value::new(tensor.level(), values.into(), Some(reservation)));
        }
        Ok(())
    }
}
