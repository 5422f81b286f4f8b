//! One tile: its program's instructions and reductions on buffers that stay in the nearest cache.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bank::{Bank, Banked, read};
use super::kernels::{Source, binary, is_finite, ternary, unary};
use super::noted::Clock;
use super::program::{Arg, Code, Instruction, Program, Reduce, Slot};
use crate::tensor::Level;
use crate::tensor::exec::Precision;
use crate::tensor::exec::moments::Moments;
use crate::tensor::exec::tokens::Location;

/// The part of a tile that belongs to one response.
pub(super) struct Segment {
    pub(super) response: usize,
    /// Within the tile.
    pub(super) range: Range<usize>,
    /// Whether it ends with the response's last token.
    pub(super) is_last: bool,
}

/// Appends the slots of a response.
pub(super) fn fill_slots(program: &Program<'_>, response: usize, slots: &mut Vec<f64>) {
    let base = slots.len();
    for (slot, is_f64) in &program.slots {
        let at = |index: usize| slots[base + index];
        let value = match slot {
            Slot::Number(number) => *number,
            Slot::Cell(values, Level::Batch, _) => values.get(0),
            Slot::Cell(values, Level::Group, own) => values.get(own.group_of(response)),
            Slot::Cell(values, ..) => values.get(response),
            // In the precision of the tokens that it stands for.
            Slot::Unary(op, a) if *is_f64 => op.of(at(*a)),
            Slot::Unary(op, a) => op.to::<f32>(at(*a)),
            Slot::Binary(op, [a, b]) => op.of(at(*a), at(*b)),
            Slot::Ternary(op, [a, b, c]) => op.of(at(*a), at(*b), at(*c)),
        };
        // Rounded as the tokens that it stands for.
        slots.push(if *is_f64 {
            value
        } else {
            f64::from(value as f32)
        });
    }
}

/// All that a program works on in one tile.
pub(super) struct Tile<'t> {
    pub(super) f32s: Bank<'t, f32>,
    pub(super) f64s: Bank<'t, f64>,
    /// Segment by segment.
    pub(super) slots: &'t [f64],
    pub(super) segments: &'t [Segment],
}

impl<'t> Tile<'t> {
    /// Gets at the tiles of the program's inputs.
    pub(super) fn read(
        &mut self,
        program: &'t Program<'_>,
        location: &Location<'_>,
        gathered32: &'t mut [Vec<f32>],
        gathered64: &'t mut [Vec<f64>],
        clock: &Clock<'_>,
    ) {
        let gathered = gathered32.iter_mut().zip(gathered64);
        let timed = program.code.len() + program.reduces.len();
        let inputs = program.inputs.iter().zip(gathered).enumerate();
        for (index, ((input, is_f64), (narrow, wide))) in inputs {
            clock.timed(timed + index, || {
                if *is_f64 {
                    self.f64s.inputs.push(read(input, location, wide));
                    self.f32s.inputs.push(&[]);
                } else {
                    self.f32s.inputs.push(read(input, location, narrow));
                    self.f64s.inputs.push(&[]);
                }
            });
        }
    }

    /// Runs the instructions.
    pub(super) fn run(&mut self, program: &Program<'_>, carries: &mut [f64], clock: &Clock<'_>) {
        for (index, instruction) in program.code.iter().enumerate() {
            clock.timed(index, || {
                if instruction.is_f64 {
                    self.step::<f64>(instruction, carries);
                } else {
                    self.step::<f32>(instruction, carries);
                }
            });
        }
    }

    /// Notes down which outputs have a value that is not finite.
    pub(super) fn find_not_finite(&self, program: &Program<'_>, not_finite: &[Option<AtomicBool>]) {
        for (output, not_finite) in not_finite.iter().enumerate() {
            let Some(not_finite) = not_finite else {
                continue;
            };
            let buffer = program.buffer_of_output(output);
            let finite = if program.outputs[output] {
                is_finite(self.f64s.buffers[buffer])
            } else {
                is_finite(self.f32s.buffers[buffer])
            };
            if !finite {
                not_finite.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Appends what the reductions need to know of each segment.
    pub(super) fn reduce(
        &self,
        program: &Program<'_>,
        tiles: &mut [Vec<Moments>],
        clock: &Clock<'_>,
    ) {
        for (index, (reduce, tiles)) in program.reduces.iter().zip(tiles).enumerate() {
            clock.timed(program.code.len() + index, || {
                if reduce.values.1 {
                    self.reduce_as::<f64>(reduce, tiles);
                } else {
                    self.reduce_as::<f32>(reduce, tiles);
                }
            });
        }
    }

    fn step<T: Banked>(&mut self, instruction: &Instruction, carries: &mut [f64]) {
        // Taken out of its place: no operand can be it.
        let out = std::mem::take(&mut T::bank_mut(self).buffers[instruction.out]);
        if let Code::Widen = instruction.code {
            let narrow = self.f32s.values(instruction.args[0]);
            for (out, value) in out.iter_mut().zip(narrow) {
                *out = T::narrow(f64::from(*value));
            }
        } else if instruction.by_response {
            let slots = self.slots.len() / self.segments.len();
            for (index, segment) in self.segments.iter().enumerate() {
                let own = &mut out[segment.range.clone()];
                if let (Code::Scan(running, carry), true) = (instruction.code, index > 0) {
                    carries[carry] = running.start();
                }
                self.compute(instruction, segment, index * slots, carries, own);
            }
        } else if let Some(last) = self.segments.last() {
            let whole = Segment {
                range: 0..last.range.end,
                ..*last
            };
            self.compute(instruction, &whole, 0, carries, out);
        }
        T::bank_mut(self).buffers[instruction.out] = out;
    }

    /// An instruction on a segment, with its slots from an index on.
    fn compute<T: Banked>(
        &self,
        instruction: &Instruction,
        segment: &Segment,
        slots: usize,
        carries: &mut [f64],
        out: &mut [T],
    ) {
        let bank = T::bank(self);
        let values = |index: usize| &bank.values(instruction.args[index])[segment.range.clone()];
        let number = |slot: usize| self.slots[slots + slot];
        let source = |index: usize| match instruction.args[index] {
            Arg::Slot(slot) => Source::Number(number(slot)),
            _ => Source::Values(values(index)),
        };
        let number_of = || match instruction.args[0] {
            Arg::Slot(slot) => T::narrow(number(slot)),
            _ => unreachable!("only a slot is filled in"),
        };
        match instruction.code {
            Code::Unary(op) => unary(op, values(0), out),
            Code::Binary(op) => binary(op, source(0), source(1), out),
            Code::Ternary(op) => ternary(op, [source(0), source(1), source(2)], out),
            Code::Fill => out.fill(number_of()),
            Code::AtLastToken => {
                out.fill(T::default());
                if let (Some(last), true) = (out.last_mut(), segment.is_last) {
                    *last = number_of();
                }
            }
            Code::Scan(running, carry) => running.tile(values(0), &mut carries[carry], out),
            Code::Widen => unreachable!("reads the other bank"),
        }
    }

    fn reduce_as<T: Banked>(&self, reduce: &Reduce, tiles: &mut Vec<Moments>) {
        if let Arg::Slot(slot) = reduce.values.0 {
            let slots = self.slots.len() / self.segments.len();
            let segments = self.segments.iter().enumerate();
            tiles.extend(segments.map(|(index, segment)| {
                // Rounded already, as f32 tokens are.
                let value = self.slots[index * slots + slot] as f32;
                Moments::of_equal(value, segment.range.len(), reduce.depth)
            }));
            return;
        }
        let values = T::bank(self).values(reduce.values.0);
        for segment in self.segments {
            let own = &values[segment.range.clone()];
            tiles.push(match reduce.selection {
                None => Moments::of_tile(own, reduce.depth),
                Some((selection, true)) => {
                    let selection = &self.f64s.values(selection)[segment.range.clone()];
                    Moments::of_tile(&selected(own, selection), reduce.depth)
                }
                Some((selection, false)) => {
                    let selection = &self.f32s.values(selection)[segment.range.clone()];
                    Moments::of_tile(&selected(own, selection), reduce.depth)
                }
            });
        }
    }
}

fn selected<T: Precision, S: Precision>(values: &[T], selection: &[S]) -> Vec<T> {
    let pairs = values.iter().zip(selection);
    let taken = pairs.filter(|(_, selection)| selection.widen() != 0.0);
    taken.map(|(value, _)| *value).collect()
}
