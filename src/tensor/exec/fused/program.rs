//! A program: one pass over the tokens, in instructions that runs tile by tile.

use std::collections::HashMap;

use crate::batch::{FloatBuffer, Layout, TokenValues};
use crate::tensor::Level;
use crate::tensor::exec::moments::{Depth, TILE};
use crate::tensor::exec::scan::Running;
use crate::tensor::op::{Binary, Ternary, Unary};

/// Where a program's instruction finds an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arg {
    /// A buffer of the argument's precision: a register, or an output's tile. While a program is built, its number in
    /// the order of instructions.
    Buffer(usize),
    /// A tile of memory that is only read.
    Input(usize),
    /// One number for a response's tokens.
    Slot(usize),
    /// What an output's memory holds before it is written.
    Output(usize),
}

/// Memory that a pass reads.
pub(super) enum Input<'a> {
    Column(&'a TokenValues),
    F32(&'a [f32]),
    F64(&'a [f64]),
}

impl Input<'_> {
    /// The bytes of its values for some tokens.
    pub(super) fn bytes(&self, tokens: usize) -> usize {
        tokens
            * match self {
                Input::Column(TokenValues::F16(_) | TokenValues::Bf16(_)) => 2,
                Input::Column(column) if column.is_f64() => 8,
                Input::Column(_) | Input::F32(_) => 4,
                Input::F64(_) => 8,
            }
    }
}

/// How a response's number comes about, from those before it.
pub(super) enum Slot<'a> {
    Number(f64),
    /// A value of a coarser level.
    Cell(&'a FloatBuffer, Level, &'a Layout),
    Unary(Unary, usize),
    Binary(Binary, [usize; 2]),
    Ternary(Ternary, [usize; 3]),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Code {
    Unary(Unary),
    Binary(Binary),
    Ternary(Ternary),
    /// A slot's number for all tokens.
    Fill,
    /// A slot's number on the last token of each response, 0 on the others.
    AtLastToken,
    /// A scan, with the index of its carry.
    Scan(Running, usize),
    /// f32 tokens as f64.
    Widen,
}

pub(super) struct Instruction {
    pub(super) code: Code,
    pub(super) args: Vec<Arg>,
    pub(super) out: usize,
    pub(super) is_f64: bool,
    /// Whether it is run response by response, not over a tile of several at once.
    pub(super) by_response: bool,
    /// The plan's step that it belongs to.
    step: usize,
}

/// A reduction of tokens to what is known of each response.
pub(super) struct Reduce {
    pub(super) values: (Arg, bool),
    pub(super) selection: Option<(Arg, bool)>,
    pub(super) depth: Depth,
    pub(super) step: usize,
}

/// One pass over the tokens.
#[derive(Default)]
pub(super) struct Program<'a> {
    pub(super) inputs: Vec<(Input<'a>, bool)>,
    pub(super) slots: Vec<(Slot<'a>, bool)>,
    /// Whether a slot differs between responses.
    varies: Vec<bool>,
    pub(super) code: Vec<Instruction>,
    pub(super) reduces: Vec<Reduce>,
    /// What scans start from.
    pub(super) carries: Vec<f64>,
    /// Registers by precision, f32 first; the buffers after them are the outputs.
    pub(super) registers: [usize; 2],
    /// The precision of each output.
    pub(super) outputs: Vec<bool>,
    pub(super) from_the_end: bool,
    /// The plan's step that is being added.
    pub(super) step: usize,
    filled: HashMap<(usize, bool), Arg>,
    /// The output that an instruction writes to, by the instruction.
    pinned: HashMap<usize, usize>,
}

impl<'a> Program<'a> {
    pub(super) fn input(&mut self, input: Input<'a>, is_f64: bool) -> Arg {
        self.inputs.push((input, is_f64));
        Arg::Input(self.inputs.len() - 1)
    }

    /// A number for each response; narrowed to f32 as tokens are, unless `is_f64`.
    pub(super) fn slot(&mut self, slot: Slot<'a>, is_f64: bool) -> usize {
        let of = |args: &[usize]| args.iter().any(|&arg| self.varies[arg]);
        let varies = match &slot {
            Slot::Number(_) => false,
            Slot::Cell(_, level, _) => *level != Level::Batch,
            Slot::Unary(_, arg) => of(&[*arg]),
            Slot::Binary(_, args) => of(args),
            Slot::Ternary(_, args) => of(args),
        };
        self.varies.push(varies);
        self.slots.push((slot, is_f64));
        self.slots.len() - 1
    }

    /// Adds an instruction and returns where its result is.
    pub(super) fn push(&mut self, code: Code, args: Vec<Arg>, is_f64: bool) -> Arg {
        let by_response = match code {
            Code::AtLastToken | Code::Scan(..) => true,
            _ => (args.iter()).any(|arg| matches!(arg, Arg::Slot(slot) if self.varies[*slot])),
        };
        self.code.push(Instruction {
            code,
            args,
            out: self.code.len(),
            is_f64,
            by_response,
            step: self.step,
        });
        Arg::Buffer(self.code.len() - 1)
    }

    /// An operand as a tile of values in a precision.
    pub(super) fn values(&mut self, operand: Arg, from_f64: bool, is_f64: bool) -> Arg {
        match operand {
            Arg::Slot(slot) => match self.filled.get(&(slot, is_f64)) {
                Some(filled) => *filled,
                None => {
                    let filled = self.push(Code::Fill, vec![operand], is_f64);
                    self.filled.insert((slot, is_f64), filled);
                    filled
                }
            },
            _ if is_f64 && !from_f64 => self.push(Code::Widen, vec![operand], true),
            _ => operand,
        }
    }

    /// Has values written out; the index of the output.
    pub(super) fn store(&mut self, operand: Arg, is_f64: bool) -> usize {
        let output = self.outputs.len();
        self.outputs.push(is_f64);
        let values = self.values(operand, is_f64, is_f64);
        let instruction = match values {
            Arg::Buffer(instruction) if !self.pinned.contains_key(&instruction) => instruction,
            other => match self.push(Code::Unary(Unary::Detach), vec![other], is_f64) {
                Arg::Buffer(instruction) => instruction,
                _ => unreachable!("`push` gives a buffer"),
            },
        };
        self.pinned.insert(instruction, output);
        output
    }

    /// The bytes of a thread's registers, and of the tiles that it gathers.
    pub(super) fn scratch_bytes(&self) -> usize {
        let wide = self.inputs.iter().filter(|(_, is_f64)| *is_f64).count();
        let narrow = self.inputs.len() - wide;
        // One more for the tile of a padded output.
        let f32s = self.registers[0] + narrow + 1;
        TILE * (f32s * size_of::<f32>() + (self.registers[1] + wide) * size_of::<f64>())
    }

    /// The plan's steps of instructions, then of reductions, then of what reads the inputs.
    pub(super) fn steps(&self) -> impl Iterator<Item = usize> {
        let reduces = self.reduces.iter().map(|reduce| reduce.step);
        let code = self.code.iter().map(|instruction| instruction.step);
        let inputs = (0..self.inputs.len()).map(|input| self.reader(input));
        code.chain(reduces).chain(inputs)
    }

    /// The plan's step that reads an input first.
    pub(super) fn reader(&self, input: usize) -> usize {
        let input = Arg::Input(input);
        let mut code = self.code.iter();
        let first = code.find(|instruction| instruction.args.contains(&input));
        let is_read = |reduce: &&Reduce| {
            let selection = reduce.selection.map(|(operand, _)| operand);
            reduce.values.0 == input || selection == Some(input)
        };
        let reduce = || self.reduces.iter().find(is_read);
        (first.map(|instruction| instruction.step))
            .or_else(|| reduce().map(|reduce| reduce.step))
            .unwrap_or(self.step)
    }

    /// The buffer of an output, once registers are assigned.
    pub(super) fn buffer_of_output(&self, output: usize) -> usize {
        let is_f64 = self.outputs[output];
        let before = self.outputs[..output]
            .iter()
            .filter(|&&other| other == is_f64);
        self.registers[usize::from(is_f64)] + before.count()
    }

    /// Gives each result a register, which is free again after the result's last use.
    pub(super) fn assign_registers(&mut self) {
        let last_use = self.last_uses();
        let in_place = self.read_in_place(&last_use);
        let mut register: Vec<usize> = Vec::with_capacity(self.code.len());
        let mut free: [Vec<usize>; 2] = Default::default();
        let is_fixed =
            |result: usize| self.pinned.contains_key(&result) || in_place.contains_key(&result);
        for (index, instruction) in self.code.iter().enumerate() {
            let bank = usize::from(instruction.is_f64);
            register.push(if is_fixed(index) {
                usize::MAX
            } else {
                free[bank].pop().unwrap_or_else(|| {
                    self.registers[bank] += 1;
                    self.registers[bank] - 1
                })
            });
            // A result that nobody reads, and arguments that nobody reads after this.
            let mut done: Vec<usize> = (instruction.args.iter())
                .filter_map(|arg| match arg {
                    Arg::Buffer(result) if last_use[*result] == index => Some(*result),
                    _ => None,
                })
                .collect();
            done.sort_unstable();
            done.dedup();
            if last_use[index] == index {
                done.push(index);
            }
            for result in done.into_iter().filter(|&result| !is_fixed(result)) {
                free[usize::from(self.code[result].is_f64)].push(register[result]);
            }
        }
        for (&instruction, &output) in self.pinned.iter().chain(&in_place) {
            register[instruction] = self.buffer_of_output(output);
        }
        self.rename(&register);
        let mut index = 0;
        self.code.retain(|_| {
            index += 1;
            !in_place.contains_key(&(index - 1))
        });
    }

    /// The last instruction that reads each result: its own where none does, one past the last for a reduction.
    fn last_uses(&self) -> Vec<usize> {
        let mut last_use: Vec<usize> = (0..self.code.len()).collect();
        for (index, instruction) in self.code.iter().enumerate() {
            for arg in &instruction.args {
                if let Arg::Buffer(result) = arg {
                    last_use[*result] = index;
                }
            }
        }
        let reduced = |reduce: &Reduce| {
            let selection = reduce.selection.map(|(operand, _)| operand);
            [Some(reduce.values.0), selection]
        };
        for operand in self.reduces.iter().flat_map(reduced).flatten() {
            if let Arg::Buffer(result) = operand {
                last_use[result] = self.code.len();
            }
        }
        last_use
    }

    /// The copies of what outputs hold that are not needed, with the outputs: all that read them come before the
    /// instruction that writes the output.
    fn read_in_place(&self, last_use: &[usize]) -> HashMap<usize, usize> {
        let copies = self
            .code
            .iter()
            .enumerate()
            .filter_map(
                |(index, instruction)| match (instruction.code, &instruction.args[..]) {
                    (Code::Unary(Unary::Detach), &[Arg::Output(output)]) => Some((index, output)),
                    _ => None,
                },
            );
        let is_early = |&(copy, output): &(usize, usize)| {
            let mut writers = self.pinned.iter().filter(|(_, pinned)| **pinned == output);
            !self.pinned.contains_key(&copy) && writers.all(|(writer, _)| last_use[copy] < *writer)
        };
        copies.filter(is_early).collect()
    }

    /// Turns the numbers of results into those of buffers.
    fn rename(&mut self, register: &[usize]) {
        let outputs: Vec<usize> = (0..self.outputs.len())
            .map(|output| self.buffer_of_output(output))
            .collect();
        let rename = |operand: &mut Arg| match operand {
            Arg::Buffer(result) => *result = register[*result],
            Arg::Output(output) => *operand = Arg::Buffer(outputs[*output]),
            Arg::Input(_) | Arg::Slot(_) => {}
        };
        for (index, instruction) in self.code.iter_mut().enumerate() {
            instruction.out = register[index];
            instruction.args.iter_mut().for_each(rename);
        }
        for reduce in &mut self.reduces {
            rename(&mut reduce.values.0);
            if let Some((operand, _)) = &mut reduce.selection {
                rename(operand);
            }
        }
    }
}
