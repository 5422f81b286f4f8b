//! What a pass notes down in a profile: its bytes, and which operation took how much of its time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::Schedule;
use super::program::Program;
use crate::batch::Layout;
use crate::tensor::graph::{Prim, Tensor};
use crate::tensor::op::Kernel;
use crate::tensor::profile::{self, Busy, Operation, Profile, StageKind};
use crate::tensor::{Context, Level};

/// The times of a pass while it runs.
pub(super) struct Clock<'a> {
    profile: Option<&'a Profile>,
    started: f64,
    /// Nanoseconds of each instruction, reduction and input, all threads together; none where nobody asks.
    times: Vec<AtomicU64>,
    of_clock: u64,
    blocks: Mutex<Vec<Busy>>,
}

impl<'a> Clock<'a> {
    pub(super) fn start(context: &'a Context) -> Clock<'a> {
        let profile = context.profile();
        Clock {
            profile,
            started: profile.map_or(0.0, Profile::clock),
            times: Vec::new(),
            of_clock: 0,
            blocks: Mutex::default(),
        }
    }

    /// Makes room for the times of a pass's instructions, reductions and inputs, where they are asked for.
    pub(super) fn time(&mut self, program: &Program<'_>) {
        if let Some(of_clock) = self.profile.and_then(Profile::of_clock) {
            self.of_clock = of_clock;
            self.times = program.steps().map(|_| AtomicU64::new(0)).collect();
        }
    }

    /// Adds the time that something takes to the time at an index, where there are times.
    pub(super) fn timed<R>(&self, index: usize, run: impl FnOnce() -> R) -> R {
        let Some(time) = self.times.get(index) else {
            return run();
        };
        let started = Instant::now();
        let result = run();
        // Nanoseconds of a pass are far below 2^64.
        let own = (started.elapsed().as_nanos() as u64).saturating_sub(self.of_clock);
        time.fetch_add(own, Ordering::Relaxed);
        result
    }

    /// Notes when a thread was at work.
    pub(super) fn block<R>(&self, run: impl FnOnce() -> R) -> R {
        let Some(profile) = self.profile else {
            return run();
        };
        let started = profile.clock();
        let result = run();
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.push(Busy {
            thread: rayon::current_thread_index().unwrap_or(0),
            started,
            seconds: profile.clock() - started,
        });
        result
    }
}

impl Schedule<'_> {
    /// Notes down a pass that has just ended: what it wrote, and which memory it read first that it wrote then.
    pub(super) fn note(
        &self,
        clock: Clock<'_>,
        program: &Program<'_>,
        layout: &Layout,
        written: &[usize],
        reused: &[usize],
    ) {
        let Some(profile) = clock.profile else {
            return;
        };
        let seconds = profile.clock() - clock.started;
        let times = clock.times.into_iter().map(AtomicU64::into_inner);
        // Nanoseconds of a pass are far below 2^53.
        let times: Vec<f64> = times.map(|time| time as f64).collect();
        let all: f64 = times.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mut operations: BTreeMap<usize, Operation> = BTreeMap::new();
        let mut of = |step: usize, share: f64, read: usize, written: usize| {
            let tensor = &self.plan.steps()[step].tensor;
            let operation = operations.entry(step).or_insert_with(|| Operation {
                name: tensor.inner().prim.name(),
                origin: tensor.origin().cloned(),
                seconds: 0.0,
                read: 0,
                written: 0,
            });
            operation.seconds += seconds * share;
            operation.read += read;
            operation.written += written;
        };
        for (index, step) in program.steps().enumerate() {
            of(step, times.get(index).unwrap_or(&0.0) / all, 0, 0);
        }
        for (step, read, written) in self.moved(program, layout, written, reused) {
            of(step, 0.0, read, written);
        }
        let operations: Vec<Operation> = operations.into_values().collect();
        profile.note(profile::Stage {
            kind: StageKind::Pass,
            started: clock.started,
            seconds,
            read: operations.iter().map(|operation| operation.read).sum(),
            written: operations.iter().map(|operation| operation.written).sum(),
            operations,
            blocks: clock
                .blocks
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        });
    }

    /// The bytes that a pass reads and writes, by the steps that read them first and whose values they are.
    fn moved(
        &self,
        program: &Program<'_>,
        layout: &Layout,
        written: &[usize],
        reused: &[usize],
    ) -> Vec<(usize, usize, usize)> {
        let tokens = layout.tokens();
        let size = |step: usize| match self.plan.steps()[step].tensor.is_f64() {
            true => size_of::<f64>(),
            false => size_of::<f32>(),
        };
        let inputs = program.inputs.iter().enumerate();
        let inputs =
            inputs.map(|(index, (input, _))| (program.reader(index), input.bytes(tokens), 0));
        let reused = reused.iter().map(|&step| (step, tokens * size(step), 0));
        let written = written.iter().map(|&step| {
            // What stays in the padded array has zeros around it.
            let values = match self.padded == Some(step) {
                true => layout.responses() * layout.width(),
                false => tokens,
            };
            (step, 0, values * size(step))
        });
        inputs.chain(reused).chain(written).collect()
    }
}

/// Why an operation on token values or positions does not go by tiles; `None` of coarser values alone.
pub(in crate::tensor::exec) fn why_in_full(tensor: &Tensor) -> Option<&'static str> {
    let node = tensor.inner();
    let levels = || std::iter::once(node.level).chain(node.args.iter().map(Tensor::level));
    if !levels().any(|level| matches!(level, Level::Token | Level::Position)) {
        return None;
    }
    let is_of_group = tensor.frame().is_some_and(|frame| frame.stream != 0);
    Some(match &node.prim {
        Prim::Select(_) | Prim::Assemble(_) => "groups are taken apart",
        _ if is_of_group => "it is of one group",
        Prim::Scan(..) => "each response has a discount of its own",
        Prim::Map(op) if matches!(op.kernel, Kernel::Checked(_)) => {
            "its arguments are checked value by value"
        }
        Prim::Random(_) => "random numbers are drawn in order",
        _ if levels().any(|level| level == Level::Position) => {
            "a position goes through several responses"
        }
        _ if levels().any(|level| level == Level::Trajectory) => {
            "a trajectory goes through several responses"
        }
        Prim::Within(..) => "it needs all values of a cell at once",
        Prim::Count(_) => "it counts, and computes nothing of values",
        _ => "many operations in full read it",
    })
}
