//! Makes a pass's program of the plan's steps.

use std::collections::HashMap;
use std::sync::Arc;

use super::program::{Arg, Code, Input, Program, Reduce, Slot};
use super::{Memory, Schedule};
use crate::batch::FloatBuffer;
use crate::tensor::exec::kind::scan_of;
use crate::tensor::exec::reduce::depth;
use crate::tensor::exec::scan::Running;
use crate::tensor::graph::Prim;
use crate::tensor::op::{Binary, Kernel, Reduction, Ternary, Unary};
use crate::tensor::plan::Step;
use crate::tensor::{Level, Value};

/// A pass's program while it is made.
pub(super) struct Assembler<'r, 'a> {
    run: &'r Schedule<'a>,
    pass: usize,
    pub(super) program: Program<'r>,
    /// Where the token steps are, by step.
    operands: HashMap<usize, Arg>,
    /// The slots of values of coarser levels, by step.
    slots: HashMap<usize, usize>,
}

impl<'r, 'a> Assembler<'r, 'a> {
    pub(super) fn new(run: &'r Schedule<'a>, pass: usize) -> Self {
        Assembler {
            run,
            pass,
            program: Program::default(),
            operands: HashMap::new(),
            slots: HashMap::new(),
        }
    }

    /// A step as an argument of an operation in a precision.
    fn argument(&mut self, step: usize, is_f64: bool) -> Arg {
        let tensor = &self.run.plan.steps()[step].tensor;
        if tensor.level() != Level::Token {
            return Arg::Slot(self.slot(step));
        }
        let operand = self.token(step);
        match operand {
            Arg::Slot(_) => operand,
            _ => self.program.values(operand, tensor.is_f64(), is_f64),
        }
    }

    /// A token step's operand: computed in this pass, or in memory.
    fn token(&mut self, step: usize) -> Arg {
        if let Some(operand) = self.operands.get(&step) {
            return *operand;
        }
        let run: &'r Schedule<'_> = self.run;
        let input = match (run.temporary.get(&step), &run.values[step]) {
            (Some(temporary), _) => match &temporary.memory {
                Memory::F32(values) => Input::F32(values),
                Memory::F64(values) => Input::F64(values),
                Memory::Padded => unreachable!("is read by the output that overwrites it"),
            },
            (None, Some(value)) => match value.buffer() {
                FloatBuffer::F32(values) => Input::F32(values),
                FloatBuffer::F64(values) => Input::F64(values),
            },
            (None, None) => unreachable!("a step's arguments are computed before it"),
        };
        let is_f64 = run.plan.steps()[step].tensor.is_f64();
        let operand = self.program.input(input, is_f64);
        self.operands.insert(step, operand);
        operand
    }

    /// The slot of a coarser step, or of a token step with one value a response.
    fn slot(&mut self, step: usize) -> usize {
        if let Some(Arg::Slot(slot)) = self.operands.get(&step) {
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
        let slot = self.program.slot(slot, true);
        self.slots.insert(step, slot);
        slot
    }

    /// A step of an earlier pass whose memory an output gets: read before that is written.
    pub(super) fn reuse(&mut self, step: usize, output: usize) {
        let is_f64 = self.run.plan.steps()[step].tensor.is_f64();
        let code = Code::Unary(Unary::Detach);
        let operand = self.program.push(code, vec![Arg::Output(output)], is_f64);
        self.operands.insert(step, operand);
    }

    pub(super) fn store(&mut self, step: usize) {
        let operand = self.operands[&step];
        let is_f64 = self.run.plan.steps()[step].tensor.is_f64();
        self.program.store(operand, is_f64);
    }

    pub(super) fn add(&mut self, index: usize) {
        let (run, step) = (self.run, &self.run.plan.steps()[index]);
        if run.is_loaded(index, self.pass) {
            self.token(index);
            return;
        }
        let is_f64 = step.tensor.is_f64();
        let operand = if run.uniform[index] {
            Arg::Slot(self.uniform(step, is_f64))
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
                let is_f64_there = self.run.plan.steps()[on_last].tensor.is_f64();
                let value = self.slot(value);
                let value = self
                    .program
                    .slot(Slot::Unary(Unary::Detach, value), is_f64_there);
                let zero = self.program.slot(Slot::Number(0.0), true);
                return self
                    .program
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
        self.program.slot(slot, is_f64)
    }

    fn varying(&mut self, step: &'r Step, is_f64: bool) -> Arg {
        let prim = &step.tensor.inner().prim;
        if let Prim::Column(column) = prim {
            return self.program.input(Input::Column(column), is_f64);
        }
        let mut args: Vec<Arg> = (step.args.iter())
            .map(|&arg| self.argument(arg, is_f64))
            .collect();
        let code = match prim {
            Prim::Map(op) => match op.kernel {
                Kernel::One(op) => Code::Unary(op),
                Kernel::Two(op) => Code::Binary(op),
                // In two steps, each of which is done in f32 where the tokens are f32.
                Kernel::Three(Ternary::Clamp) => {
                    let most = Code::Binary(Binary::Max);
                    let raised = self.program.push(most, vec![args[0], args[1]], is_f64);
                    args = vec![raised, args[2]];
                    Code::Binary(Binary::Min)
                }
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
                args[0] = self.program.values(args[0], is_f64, is_f64);
                self.program.carries.push(running.start());
                Code::Scan(running, self.program.carries.len() - 1)
            }
            other => unreachable!("{} does not go by tiles", other.name()),
        };
        self.program.push(code, args, is_f64)
    }

    fn is_f64(&self, step: usize) -> bool {
        self.run.plan.steps()[step].tensor.is_f64()
    }

    /// A token step as a tile of values, and its precision.
    fn values(&mut self, step: usize) -> (Arg, bool) {
        let is_f64 = self.is_f64(step);
        let operand = self.token(step);
        (self.program.values(operand, is_f64, is_f64), is_f64)
    }

    /// A reduction of a step's values, with the selection that may follow.
    pub(super) fn reduce(&mut self, args: &[usize], reduction: Reduction) {
        let selection = args.get(1).map(|&selection| self.values(selection));
        let reduce = Reduce {
            values: match self.operands.get(&args[0]) {
                // One number for all tokens of a response: its sum is exact, where it is an f32.
                Some(&slot @ Arg::Slot(_)) if selection.is_none() && !self.is_f64(args[0]) => {
                    (slot, false)
                }
                _ => self.values(args[0]),
            },
            selection,
            depth: depth(reduction),
            step: self.program.step,
        };
        self.program.reduces.push(reduce);
    }
}
