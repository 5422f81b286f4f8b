//! The fused executor: token values are computed tile by tile, through all operations between two reductions at once,
//! and only what is asked for is ever held whole.
//!
//! A plan is cut into passes over the tokens. Values of coarser levels are there before the pass that reads them, and a
//! reduction of tokens ends a pass. What a later pass needs of an earlier one is computed again where that is cheap and
//! stored where it is not. Operations that do not go by tiles (ranks, medians, positions, groups taken apart) are left to
//! the naive executor, as are all values that are no tokens. Sums and scans are those of the naive executor, so that the
//! two agree bit for bit.

mod kernels;
mod stage;
mod tiles;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use self::stage::{Code, Input, Operand, Reduce, Slot, Stage};
use self::tiles::Written;
use super::moments::Moments;
use super::naive;
use super::reduce::{depth, finish, of_responses};
use super::scan::Running;
use crate::batch::FloatBuffer;
use crate::tensor::error::TensorError;
use crate::tensor::graph::Prim;
use crate::tensor::guard::Reservation;
use crate::tensor::op::{Binary, Kernel, Op, Reduction, Scan, Unary};
use crate::tensor::plan::Step;
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

/// The operations that it is cheaper to do again in a later pass than to store their results.
const CHEAP: usize = 6;

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
    /// The last pass that reads a step's values from memory.
    last_use: Vec<usize>,
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

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Run<'a> {
        let steps = plan.steps();
        let home = (steps.iter().rev()).find_map(|step| {
            let node = step.tensor.inner();
            node.frame.as_ref().filter(|_| node.level == Level::Token)
        });
        let home = home.or_else(|| {
            let tokens = steps
                .iter()
                .rev()
                .filter(|step| step.tensor.level() == Level::Token);
            tokens.filter_map(|step| step.tensor.frame()).next()
        });
        let mut run = Run {
            plan,
            home,
            kind: Vec::with_capacity(steps.len()),
            pass: Vec::with_capacity(steps.len()),
            uniform: Vec::with_capacity(steps.len()),
            direction: BTreeMap::new(),
            stored: vec![false; steps.len()],
            private: vec![true; steps.len()],
            last_use: vec![0; steps.len()],
            values: vec![None; steps.len()],
            temporary: HashMap::new(),
        };
        for step in steps {
            run.place(step);
        }
        run
    }

    /// Decides how and when a step is computed. All before it are decided.
    fn place(&mut self, step: &Step) {
        let kind = self.kind_of(step);
        let level = |arg: usize| self.plan.steps()[arg].tensor.level();
        let ready = |arg: &usize| match self.kind[*arg] {
            // In full only after the pass that stores it.
            Kind::Token if kind == Kind::Whole => self.pass[*arg] + 1,
            _ => self.pass[*arg],
        };
        let mut pass = step.args.iter().map(ready).max().unwrap_or(0);
        let prim = &step.tensor.inner().prim;
        let mut uniform = false;
        match (kind, prim) {
            (Kind::Reduced(_), _) => pass += 1,
            (Kind::Token, Prim::Scan(op, number)) => {
                let scan = scan_of(op);
                // The sum from the end of a value on the last token is that value, everywhere.
                let of = &self.plan.steps()[step.args[0]].tensor.inner().prim;
                uniform = scan == Scan::SuffixSum
                    && *number == 1.0
                    && matches!(of, Prim::AtLastToken)
                    && self.kind[step.args[0]] == Kind::Token;
                if !uniform {
                    let from_the_end = Running::from_the_end(scan);
                    while *self.direction.entry(pass).or_insert(from_the_end) != from_the_end {
                        pass += 1;
                    }
                }
            }
            (Kind::Token, Prim::Map(_) | Prim::Expand) => {
                uniform =
                    (step.args.iter()).all(|&arg| level(arg) != Level::Token || self.uniform[arg]);
            }
            _ => {}
        }
        self.kind.push(kind);
        self.pass.push(pass);
        self.uniform.push(uniform);
    }

    fn kind_of(&self, step: &Step) -> Kind {
        let node = step.tensor.inner();
        let (Some(home), Some(frame)) = (self.home, &node.frame) else {
            return Kind::Whole;
        };
        let level = |arg: usize| self.plan.steps()[arg].tensor.level();
        let same_tokens = |arg: &usize| {
            let frame = self.plan.steps()[*arg].tensor.frame();
            frame.is_none_or(|frame| frame.responses == home.responses)
        };
        let is_by_tiles = step.tensor.known().is_none()
            && frame.responses == home.responses
            && step.args.iter().all(|arg| {
                level(*arg) != Level::Position && (level(*arg) == Level::Batch || same_tokens(arg))
            });
        if !is_by_tiles {
            return Kind::Whole;
        }
        match (&node.prim, node.level) {
            (Prim::Column(_) | Prim::AtLastToken | Prim::Scan(..) | Prim::Expand, Level::Token) => {
                Kind::Token
            }
            (Prim::Map(op), Level::Token) if !matches!(op.kernel, Kernel::Checked(_)) => {
                Kind::Token
            }
            (Prim::Reduce(op), Level::Response | Level::Group | Level::Batch)
                if level(step.args[0]) == Level::Token =>
            {
                match op.kernel {
                    Kernel::Reduce(Reduction::Median) => Kind::Whole,
                    Kernel::Reduce(reduction) => Kind::Reduced(reduction),
                    _ => unreachable!("{op:?} is a reduction"),
                }
            }
            _ => Kind::Whole,
        }
    }

    /// The number of operations that computing a token step takes, as far as anybody wants to know.
    fn cost(&self, step: usize) -> usize {
        let mut cost = 0;
        let mut stack = vec![step];
        while let (Some(step), true) = (stack.pop(), cost <= CHEAP) {
            if self.kind[step] != Kind::Token || self.stored[step] || self.uniform[step] {
                continue;
            }
            cost += match &self.plan.steps()[step].tensor.inner().prim {
                Prim::Scan(..) => CHEAP + 1,
                Prim::Map(op) => match op.kernel {
                    Kernel::One(
                        Unary::Neg | Unary::Abs | Unary::Square | Unary::Detach | Unary::Not,
                    ) => 1,
                    Kernel::One(_) | Kernel::Two(Binary::Pow | Binary::Rem) => CHEAP + 1,
                    _ => 1,
                },
                _ => 0,
            };
            stack.extend(&self.plan.steps()[step].args);
        }
        cost
    }

    fn is_reduced_after(&self, step: usize, pass: usize) -> bool {
        matches!(self.kind[step], Kind::Reduced(_)) && self.pass[step] == pass + 1
    }

    /// Whether a pass reads a token step from memory. One number a response is as fast computed.
    fn is_loaded(&self, step: usize, pass: usize) -> bool {
        self.stored[step] && self.pass[step] < pass && !self.uniform[step]
    }

    /// For each pass the steps that it computes, in order. Decides on the way what is stored.
    fn passes(&mut self) -> Vec<Vec<usize>> {
        let steps = self.plan.steps();
        let is_token = |run: &Run<'_>, step: usize| run.kind[step] == Kind::Token;
        for &output in self.plan.outputs() {
            self.stored[output] |= is_token(self, output);
            self.private[output] = false;
            self.last_use[output] = usize::MAX;
        }
        for (index, step) in steps.iter().enumerate() {
            if self.kind[index] == Kind::Whole {
                for &arg in &step.args {
                    self.stored[arg] |= is_token(self, arg);
                    self.private[arg] = false;
                    self.last_use[arg] = self.last_use[arg].max(self.pass[index]);
                }
            }
        }
        let last = self.pass.iter().max().map_or(0, |&last| last);
        let mut passes = vec![Vec::new(); last + 1];
        for pass in (0..=last).rev() {
            let mut computed = vec![false; steps.len()];
            let mut stack: Vec<usize> = Vec::new();
            for (index, step) in steps.iter().enumerate() {
                match self.kind[index] {
                    Kind::Reduced(_) if self.pass[index] == pass + 1 => stack.extend(&step.args),
                    Kind::Token if self.stored[index] && self.pass[index] == pass => {
                        stack.push(index)
                    }
                    _ => {}
                }
            }
            while let Some(step) = stack.pop() {
                if !is_token(self, step) || self.is_loaded(step, pass) {
                    self.last_use[step] = self.last_use[step].max(pass);
                }
                if !is_token(self, step) || computed[step] {
                    continue;
                }
                if self.pass[step] < pass && !self.stored[step] && self.cost(step) > CHEAP {
                    self.stored[step] = true;
                    self.last_use[step] = self.last_use[step].max(pass);
                }
                computed[step] = true;
                let is_scan = matches!(steps[step].tensor.inner().prim, Prim::Scan(..));
                let ends = self.is_loaded(step, pass) || self.uniform[step] && is_scan;
                if !ends {
                    stack.extend(&steps[step].args);
                }
            }
            passes[pass] = (0..steps.len()).filter(|&step| computed[step]).collect();
        }
        passes
    }

    fn run(mut self, context: &Context) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
        let passes = self.passes();
        for (pass, computed) in passes.iter().enumerate() {
            for (index, step) in self.plan.steps().iter().enumerate() {
                if self.kind[index] == Kind::Whole && self.pass[index] == pass {
                    self.values[index] = Some(naive::value(step, &self.values, context)?);
                }
            }
            let reduces = (0..self.kind.len()).any(|step| self.is_reduced_after(step, pass));
            if let (true, Some(home)) = (reduces || !computed.is_empty(), self.home) {
                self.sweep(pass, computed, home, context)?;
            }
            // Coarser values are small, and kept for later plans.
            for (index, step) in self.plan.steps().iter().enumerate() {
                let is_large = matches!(step.tensor.level(), Level::Token | Level::Position);
                if is_large && self.last_use[index] <= pass && self.pass[index] <= pass {
                    self.values[index] = None;
                    self.temporary.remove(&index);
                }
            }
        }
        Ok(self.values)
    }

    /// One pass over the tokens.
    fn sweep(
        &mut self,
        pass: usize,
        computed: &[usize],
        home: &Frame,
        context: &Context,
    ) -> Result<(), TensorError> {
        let (started, guard) = (Instant::now(), &context.guard);
        let steps = self.plan.steps();
        let (layout, tokens) = (&home.layout, home.layout.tokens());
        let is_f64 = |step: usize| steps[step].tensor.is_f64();
        let stopped = |step: usize| {
            move |stopped| TensorError::new(steps[step].tensor.inner().prim.name(), stopped)
        };
        let written: Vec<usize> = (computed.iter().copied())
            .filter(|&step| self.stored[step] && self.pass[step] == pass)
            .collect();
        // What is read for the last time makes room for what is written.
        let mut reused: HashMap<usize, usize> = HashMap::new();
        let mut outputs: Vec<Temporary> = Vec::with_capacity(written.len());
        for (output, &step) in written.iter().enumerate() {
            let last_read = (computed.iter().copied()).find(|other| {
                self.last_use[*other] == pass
                    && is_f64(*other) == is_f64(step)
                    && self.temporary.contains_key(other)
            });
            let old = last_read.and_then(|other| Some((other, self.temporary.remove(&other)?)));
            outputs.push(match old {
                Some((other, old)) => {
                    reused.insert(other, output);
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
        let mut program = Program {
            run: self,
            pass,
            stage: Stage::default(),
            operands: HashMap::new(),
            slots: HashMap::new(),
        };
        for (&step, &output) in &reused {
            program.reuse(step, output);
        }
        for &step in computed {
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
        for (index, step) in steps.iter().enumerate() {
            let Kind::Reduced(reduction) = self.kind[index] else {
                continue;
            };
            if self.pass[index] == pass + 1 {
                let next = program.stage.reduces.len();
                let at = *by_args.entry(&step.args).or_insert(next);
                if at == next {
                    program.stage.step = index;
                    program.reduce(&step.args, reduction);
                }
                let reduce = &mut program.stage.reduces[at];
                reduce.depth = reduce.depth.max(depth(reduction));
                reductions.push((index, reduction, at));
            }
        }
        let mut stage = program.stage;
        stage.assign_registers();
        stage.from_the_end = self.direction.get(&pass).copied().unwrap_or(false);
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
        let any = (written.first().copied()).or(reductions.first().map(|(step, ..)| *step));
        let times = tiles::run(&stage, layout, context, memory, &not_finite)
            .map_err(stopped(any.unwrap_or(0)))?;
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

fn scan_of(op: &'static Op) -> Scan {
    match op.kernel {
        Kernel::Scan(scan) => scan,
        _ => unreachable!("{op:?} is a scan"),
    }
}

/// A pass's program while it is made.
struct Program<'r, 'a> {
    run: &'r Run<'a>,
    pass: usize,
    stage: Stage<'r>,
    /// Where the token steps are, by step.
    operands: HashMap<usize, Operand>,
    /// The slots of values of coarser levels, by step.
    slots: HashMap<usize, usize>,
}

impl<'r> Program<'r, '_> {
    /// A step as an argument of an operation in a precision.
    fn argument(&mut self, step: usize, is_f64: bool) -> Operand {
        let tensor = &self.run.plan.steps()[step].tensor;
        if tensor.level() != Level::Token {
            return Operand::Slot(self.slot(step));
        }
        let operand = self.token(step);
        match operand {
            Operand::Slot(_) => operand,
            _ => self.stage.values(operand, tensor.is_f64(), is_f64),
        }
    }

    /// A token step's operand: computed in this pass, or in memory.
    fn token(&mut self, step: usize) -> Operand {
        if let Some(operand) = self.operands.get(&step) {
            return *operand;
        }
        let run: &'r Run<'_> = self.run;
        let input = match (run.temporary.get(&step), &run.values[step]) {
            (Some(temporary), _) => match &temporary.memory {
                Memory::F32(values) => Input::F32(values),
                Memory::F64(values) => Input::F64(values),
            },
            (None, Some(value)) => match value.buffer() {
                FloatBuffer::F32(values) => Input::F32(values),
                FloatBuffer::F64(values) => Input::F64(values),
            },
            (None, None) => unreachable!("a step's arguments are computed before it"),
        };
        let is_f64 = run.plan.steps()[step].tensor.is_f64();
        let operand = self.stage.input(input, is_f64);
        self.operands.insert(step, operand);
        operand
    }

    /// The slot of a coarser step, or of a token step with one value a response.
    fn slot(&mut self, step: usize) -> usize {
        if let Some(Operand::Slot(slot)) = self.operands.get(&step) {
            return *slot;
        }
        if let Some(slot) = self.slots.get(&step) {
            return *slot;
        }
        let tensor = &self.run.plan.steps()[step].tensor;
        let value: &'r Option<Arc<Value>> = &self.run.values[step];
        let slot = match (tensor.frame(), value) {
            (Some(frame), Some(value)) => Slot::Cell(value.buffer(), tensor.level(), &frame.layout),
            (None, _) => Slot::Number(tensor.alone()),
            _ => unreachable!("coarser values are computed before the pass that reads them"),
        };
        let slot = self.stage.slot(slot, true);
        self.slots.insert(step, slot);
        slot
    }

    /// A step of an earlier pass whose memory an output gets: read before that is written.
    fn reuse(&mut self, step: usize, output: usize) {
        let is_f64 = self.run.plan.steps()[step].tensor.is_f64();
        let code = Code::Unary(Unary::Detach);
        let operand = self.stage.push(code, vec![Operand::Output(output)], is_f64);
        self.operands.insert(step, operand);
    }

    fn store(&mut self, step: usize) {
        let operand = self.operands[&step];
        let is_f64 = self.run.plan.steps()[step].tensor.is_f64();
        self.stage.store(operand, is_f64);
    }

    fn add(&mut self, index: usize) {
        let (run, step) = (self.run, &self.run.plan.steps()[index]);
        if run.is_loaded(index, self.pass) {
            self.token(index);
            return;
        }
        let is_f64 = step.tensor.is_f64();
        let operand = if run.uniform[index] {
            Operand::Slot(self.uniform(step, is_f64))
        } else {
            self.varying(step, is_f64)
        };
        self.operands.insert(index, operand);
    }

    fn uniform(&mut self, step: &'r Step, is_f64: bool) -> usize {
        let args: Vec<usize> = match &step.tensor.inner().prim {
            // Of the value on the last token; the sum makes a 0 of -0.
            Prim::Scan(..) => {
                let on_last = step.args[0];
                let value = self.run.plan.steps()[on_last].args[0];
                let narrow = self.run.plan.steps()[on_last].tensor.is_f64();
                let value = self.slot(value);
                let value = self.stage.slot(Slot::Unary(Unary::Detach, value), narrow);
                let zero = self.stage.slot(Slot::Number(0.0), true);
                return self
                    .stage
                    .slot(Slot::Binary(Binary::Add, [value, zero]), is_f64);
            }
            _ => step.args.iter().map(|&arg| self.slot(arg)).collect(),
        };
        let slot = match &step.tensor.inner().prim {
            Prim::Map(op) => match (op.kernel, &args[..]) {
                (Kernel::One(op), &[a]) => Slot::Unary(op, a),
                (Kernel::Two(op), &[a, b]) => Slot::Binary(op, [a, b]),
                (Kernel::Three(op), &[a, b, c]) => Slot::Ternary(op, [a, b, c]),
                _ => unreachable!("{op:?} has as many arguments as its kernel takes"),
            },
            _ => Slot::Unary(Unary::Detach, args[0]),
        };
        self.stage.slot(slot, is_f64)
    }

    fn varying(&mut self, step: &'r Step, is_f64: bool) -> Operand {
        let prim = &step.tensor.inner().prim;
        if let Prim::Column(column) = prim {
            return self.stage.input(Input::Column(column), is_f64);
        }
        let mut args: Vec<Operand> = (step.args.iter())
            .map(|&arg| self.argument(arg, is_f64))
            .collect();
        let code = match prim {
            Prim::Map(op) => match op.kernel {
                Kernel::One(op) => Code::Unary(op),
                Kernel::Two(op) => Code::Binary(op),
                Kernel::Three(op) => Code::Ternary(op),
                _ => unreachable!("{op:?} is elementwise"),
            },
            Prim::Expand => Code::Unary(Unary::Detach),
            Prim::AtLastToken => Code::AtLastToken,
            Prim::Scan(op, number) => {
                let running = Running {
                    scan: scan_of(op),
                    number: *number,
                };
                args[0] = self.stage.values(args[0], is_f64, is_f64);
                self.stage.carries.push(running.start());
                Code::Scan(running, self.stage.carries.len() - 1)
            }
            other => unreachable!("{} does not go by tiles", other.name()),
        };
        self.stage.push(code, args, is_f64)
    }

    /// A reduction of a step's values, with the selection that may follow.
    fn reduce(&mut self, args: &[usize], reduction: Reduction) {
        let mut values = |step: usize| {
            let is_f64 = self.run.plan.steps()[step].tensor.is_f64();
            let operand = self.token(step);
            (self.stage.values(operand, is_f64, is_f64), is_f64)
        };
        let reduce = Reduce {
            values: values(args[0]),
            selection: args.get(1).map(|&selection| values(selection)),
            depth: depth(reduction),
            step: self.stage.step,
        };
        self.stage.reduces.push(reduce);
    }
}
