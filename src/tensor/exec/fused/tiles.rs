//! Runs a program: blocks of responses in parallel, each tile by tile, each tile through the whole program.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::bank::Bank;
use super::noted::Clock;
use super::program::Program;
use super::tile::{Segment, Tile, fill_slots};
use crate::batch::{Layout, Rows};
use crate::tensor::exec::moments::{Moments, TILE};
use crate::tensor::exec::tokens::{Location, Share, by_blocks};
use crate::tensor::{Guard, Level, Stopped};

/// A padded array that an output goes into.
pub(super) struct PaddedOutput<'a> {
    pub(super) rows: Rows<'a>,
    /// Whether the values stay, with zeros around them.
    pub(super) is_last: bool,
}

/// The memory that a pass writes, an entry an output or a reduction.
#[derive(Default)]
pub(super) struct Written<'a> {
    pub(super) f32s: Vec<&'a mut [f32]>,
    pub(super) f64s: Vec<&'a mut [f64]>,
    /// The last f32 output, where it goes into a padded array.
    pub(super) padded: Option<PaddedOutput<'a>>,
    /// What is known of each response, by reduction.
    pub(super) moments: Vec<&'a mut [Moments]>,
}

impl<'a> Share for Written<'a> {
    fn split(&mut self, responses: usize, tokens: usize) -> Written<'a> {
        fn cut<'a, T: Send>(slices: &mut [&'a mut [T]], at: usize) -> Vec<&'a mut [T]> {
            slices.iter_mut().map(|slice| slice.split(0, at)).collect()
        }
        Written {
            f32s: cut(&mut self.f32s, tokens),
            f64s: cut(&mut self.f64s, tokens),
            padded: self.padded.as_mut().map(|padded| PaddedOutput {
                rows: padded.rows.split(responses),
                is_last: padded.is_last,
            }),
            moments: cut(&mut self.moments, responses),
        }
    }
}

/// Runs a program.
pub(super) fn run(
    program: &Program<'_>,
    layout: &Layout,
    guard: &Guard,
    written: Written<'_>,
    not_finite: &[Option<AtomicBool>],
    clock: &Clock<'_>,
) -> Result<(), Stopped> {
    let scratch = || Scratch::new(program);
    by_blocks(
        (layout, Level::Token),
        guard,
        written,
        scratch,
        |scratch, responses, written| {
            let mut block = Block {
                program,
                layout,
                scratch,
                start: layout.tokens_of(responses.start).start,
                first: responses.start,
                written,
                not_finite,
                clock,
            };
            clock.block(|| block.run(responses, guard))
        },
    )
    .map(drop)
}

/// A thread's own memory.
struct Scratch {
    f32s: Vec<Vec<f32>>,
    f64s: Vec<Vec<f64>>,
    /// Inputs that have to be gathered first.
    gathered32: Vec<Vec<f32>>,
    gathered64: Vec<Vec<f64>>,
    /// The tile of a padded output that does not lie in one stretch.
    padded: Vec<f32>,
    slots: Vec<f64>,
    carries: Vec<f64>,
    /// Of the tiles of one response, by reduction.
    tiles: Vec<Vec<Moments>>,
}

impl Scratch {
    fn new(program: &Program<'_>) -> Scratch {
        let inputs = program.inputs.len();
        Scratch {
            f32s: vec![vec![0.0; TILE]; program.registers[0]],
            f64s: vec![vec![0.0; TILE]; program.registers[1]],
            gathered32: vec![Vec::new(); inputs],
            gathered64: vec![Vec::new(); inputs],
            padded: vec![0.0; TILE],
            slots: Vec::new(),
            carries: program.carries.clone(),
            tiles: vec![Vec::new(); program.reduces.len()],
        }
    }
}

/// A run of responses that one thread computes.
struct Block<'a, 's> {
    program: &'a Program<'a>,
    layout: &'a Layout,
    scratch: &'s mut Scratch,
    /// The first token and response.
    start: usize,
    first: usize,
    written: Written<'a>,
    /// By output: set where one of its values is not finite; `None` where nobody asks.
    not_finite: &'a [Option<AtomicBool>],
    clock: &'a Clock<'a>,
}

impl Block<'_, '_> {
    fn run(&mut self, responses: Range<usize>, guard: &Guard) -> Result<(), Stopped> {
        let mut next = responses.start;
        while next < responses.end {
            let tokens = self.layout.tokens_of(next);
            if tokens.len() > TILE {
                self.long(next, tokens, guard)?;
                self.pad(next..next + 1);
                next += 1;
                continue;
            }
            // As many short responses as one tile holds.
            let mut segments = Vec::new();
            while next < responses.end {
                let own = self.layout.tokens_of(next);
                if own.end - tokens.start > TILE || segments.len() == TILE {
                    break;
                }
                segments.push(Segment {
                    response: next,
                    range: own.start - tokens.start..own.end - tokens.start,
                    is_last: true,
                });
                next += 1;
            }
            self.scratch.carries.copy_from_slice(&self.program.carries);
            self.tile(tokens.start, &segments);
            self.pad(segments.iter().map(|segment| segment.response));
            for index in 0..self.program.reduces.len() {
                let tiles = &mut self.scratch.tiles[index];
                let out = &mut self.written.moments[index][segments[0].response - self.first..];
                out[..tiles.len()].copy_from_slice(tiles);
                tiles.clear();
            }
        }
        Ok(())
    }

    /// A response of several tiles.
    fn long(
        &mut self,
        response: usize,
        tokens: Range<usize>,
        guard: &Guard,
    ) -> Result<(), Stopped> {
        let tiles = tokens.len().div_ceil(TILE);
        self.scratch.carries.copy_from_slice(&self.program.carries);
        for index in 0..tiles {
            let tile = if self.program.from_the_end {
                tiles - 1 - index
            } else {
                index
            };
            guard.check()?;
            let start = tokens.start + tile * TILE;
            let end = tokens.end.min(start + TILE);
            let segment = Segment {
                response,
                range: 0..end - start,
                is_last: end == tokens.end,
            };
            self.tile(start, &[segment]);
        }
        for index in 0..self.program.reduces.len() {
            let tiles = &mut self.scratch.tiles[index];
            if self.program.from_the_end {
                tiles.reverse();
            }
            let merged = tiles.drain(..).fold(Moments::EMPTY, Moments::and);
            self.written.moments[index][response - self.first] = merged;
        }
        Ok(())
    }

    /// Runs the program over the tile that starts at a token.
    fn tile(&mut self, start: usize, segments: &[Segment]) {
        let Some(last) = segments.last() else {
            return;
        };
        let (program, layout) = (self.program, self.layout);
        let tokens = start..start + last.range.end;
        let Scratch {
            f32s,
            f64s,
            gathered32,
            gathered64,
            padded: scattered,
            slots,
            carries,
            tiles,
        } = &mut *self.scratch;
        slots.clear();
        for segment in segments {
            fill_slots(program, segment.response, slots);
        }
        let own = tokens.start - self.start..tokens.end - self.start;
        let location = Location {
            layout,
            responses: segments[0].response..last.response + 1,
            tokens,
        };
        let (first, stretch) = (self.first, location.stretch());
        let is_scattered = stretch.is_none();
        let padded = self.written.padded.as_mut().map(|padded| match stretch {
            Some((response, columns)) => &mut padded.rows.row(response - first)[columns],
            None => {
                location.copy(&mut padded.rows, first, |row, tile| {
                    scattered[tile].copy_from_slice(row)
                });
                &mut scattered[..own.len()]
            }
        });
        let mut tile = Tile {
            f32s: Bank::new(f32s, &mut self.written.f32s, padded, &own),
            f64s: Bank::new(f64s, &mut self.written.f64s, None, &own),
            slots,
            segments,
        };
        tile.read(program, &location, gathered32, gathered64, self.clock);
        tile.run(program, carries, self.clock);
        tile.find_not_finite(program, self.not_finite);
        tile.reduce(program, tiles, self.clock);
        if let (true, Some(padded)) = (is_scattered, &mut self.written.padded) {
            location.copy(&mut padded.rows, first, |row, tile| {
                row.copy_from_slice(&scattered[tile])
            });
        }
    }

    /// Writes zeros around the tokens of responses that are done.
    fn pad(&mut self, responses: impl Iterator<Item = usize>) {
        if let Some(padded) = self.written.padded.as_mut().filter(|padded| padded.is_last) {
            for response in responses {
                let row = padded.rows.row(response - self.first);
                self.layout.clear_padding(response, row);
            }
        }
    }
}
