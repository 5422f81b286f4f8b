//! The computation of a tile, which is one or several responses: the pass's jobs run on the tile in order. A job that computes
//! token values writes them into a buffer from a free list, or directly into the output that keeps them.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::columns::{Location, gather, in_place};
use super::execution::Arg;
use super::kernels::{Loop, Operand, binary, is_finite, ternary, unary};
use super::output::{Part, Parts};
use super::pass::{Code, Job, Pass};
use super::sums::{Depth, Moments};
use crate::batch::Level;
use crate::tensor::error::Stopped;
use crate::tensor::kernel::Kernel;
use crate::tensor::precision::Precision;

/// The number of jobs between two checks of the guard, so that a long plan can be stopped within a tile. Checking the clock takes
/// as long as a job on a few hundred tokens.
const JOBS_PER_CHECK: usize = 64;

/// A thread's buffers that are not in use.
#[derive(Default)]
pub(super) struct Scratch {
    f32s: Vec<Vec<f32>>,
    f64s: Vec<Vec<f64>>,
}

/// A slice of numbers: the first numbers of a buffer, a part of an output, or a part of memory that is only read.
pub(super) enum Slice<'t, T> {
    Buffer(Vec<T>, usize),
    Out(&'t mut [T]),
    Shared(&'t [T]),
}

impl<T> Deref for Slice<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Slice::Buffer(values, length) => &values[..*length],
            Slice::Out(values) => values,
            Slice::Shared(values) => values,
        }
    }
}

impl<T> DerefMut for Slice<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Slice::Buffer(values, length) => &mut values[..*length],
            Slice::Out(values) => values,
            Slice::Shared(_) => unreachable!("shared values are not written"),
        }
    }
}

/// Numbers in one of the two precisions.
pub(super) enum Floats<'t> {
    F32(Slice<'t, f32>),
    F64(Slice<'t, f64>),
}

impl Floats<'_> {
    fn are_finite(&self) -> bool {
        match self {
            Floats::F32(values) => is_finite(values),
            Floats::F64(values) => is_finite(values),
        }
    }

    fn free(self, scratch: &mut Scratch) {
        match self {
            Floats::F32(Slice::Buffer(buffer, _)) => scratch.f32s.push(buffer),
            Floats::F64(Slice::Buffer(buffer, _)) => scratch.f64s.push(buffer),
            _ => {}
        }
    }
}

/// A precision in which jobs compute.
trait Lane: Precision {
    fn buffers(scratch: &mut Scratch) -> &mut Vec<Vec<Self>>;
    fn floats(values: Slice<'_, Self>) -> Floats<'_>;
    /// Returns the values. Panics unless their precision is `Self`.
    fn slice_of<'a, 't>(floats: &'a Floats<'t>) -> &'a Slice<'t, Self>;
    fn into_slice(floats: Floats<'_>) -> Slice<'_, Self>;
}

macro_rules! lane {
    ($type:ty, $variant:ident, $buffers:ident) => {
        impl Lane for $type {
            fn buffers(scratch: &mut Scratch) -> &mut Vec<Vec<Self>> {
                &mut scratch.$buffers
            }
            fn floats(values: Slice<'_, Self>) -> Floats<'_> {
                Floats::$variant(values)
            }
            fn slice_of<'a, 't>(floats: &'a Floats<'t>) -> &'a Slice<'t, Self> {
                match floats {
                    Floats::$variant(values) => values,
                    _ => unreachable!("an argument has the precision of its job"),
                }
            }
            fn into_slice(floats: Floats<'_>) -> Slice<'_, Self> {
                match floats {
                    Floats::$variant(values) => values,
                    _ => unreachable!("memory has the precision of its job"),
                }
            }
        }
    };
}
lane!(f32, F32, f32s);
lane!(f64, F64, f64s);

fn buffer<'t, T: Lane>(scratch: &mut Scratch, length: usize) -> Slice<'t, T> {
    let mut buffer = T::buffers(scratch).pop().unwrap_or_default();
    if buffer.len() < length {
        buffer.resize(length, T::default());
    }
    Slice::Buffer(buffer, length)
}

pub(super) struct Tile<'t> {
    pass: &'t Pass<'t>,
    location: Location<'t>,
    /// The values of each job, for as long as another job needs them.
    values: Vec<Option<Floats<'t>>>,
}

impl<'t> Tile<'t> {
    /// Computes the tile at `location`, and writes the tile's part of the outputs.
    pub(super) fn run(
        pass: &'t Pass<'t>,
        location: Location<'t>,
        scratch: &mut Scratch,
        parts: Parts<'t>,
    ) -> Result<(), Stopped> {
        let mut outputs: Vec<Option<Part<'t>>> = parts.outputs.into_iter().map(Some).collect();
        let mut moments = parts.moments;
        let mut values = Vec::with_capacity(pass.jobs.len());
        values.resize_with(pass.jobs.len(), || None);
        let mut tile = Tile {
            pass,
            location,
            values,
        };
        let is_timed = pass.execution.context.profile.is_some();
        for (index, job) in pass.jobs.iter().enumerate() {
            if index % JOBS_PER_CHECK == JOBS_PER_CHECK - 1 {
                pass.execution.context.guard.check()?;
            }
            let started = is_timed.then(Instant::now);
            let (out, rows) = match job.memory.and_then(|at| outputs[at].take()) {
                Some(Part::F32(out)) => (Some(Floats::F32(Slice::Out(out))), None),
                Some(Part::F64(out)) => (Some(Floats::F64(Slice::Out(out))), None),
                Some(Part::Rows(rows)) => match tile.location.only_run() {
                    // If the tile is one response whose mask has no holes, its tokens are written directly into its row.
                    Some(columns) => {
                        (tile.location.layout).clear_padding(tile.location.responses.start, rows);
                        (Some(Floats::F32(Slice::Out(&mut rows[columns]))), None)
                    }
                    None => (None, Some(rows)),
                },
                None => (None, None),
            };
            match &job.code {
                Code::Reduce(at, depth) => tile.reduce(job, *depth, moments[*at]),
                _ if job.is_f64 => tile.job::<f64>(index, out, scratch),
                _ => tile.job::<f32>(index, out, scratch),
            }
            let values = tile.values[index].as_ref();
            if job.tests_finite && !values.is_none_or(Floats::are_finite) {
                job.not_finite.store(true, Ordering::Relaxed);
            }
            if let (Some(rows), Some(Floats::F32(values))) = (rows, values) {
                tile.write_rows(values, rows);
            }
            for &done in &job.frees {
                if let Some(values) = tile.values[done].take() {
                    values.free(scratch);
                }
            }
            if let Some(started) = started {
                // A tile takes far less than 2^64 nanoseconds.
                let time = started.elapsed().as_nanos() as u64;
                job.time.fetch_add(time, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Returns the tile's responses, each with the range of its tokens within the tile.
    fn segments(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<'t> {
        let (layout, start) = (self.location.layout, self.location.tokens.start);
        self.location.responses.clone().map(move |response| {
            let own = layout.tokens_of(response);
            (response, own.start - start..own.end - start)
        })
    }

    fn write_rows(&self, values: &[f32], rows: &mut [f32]) {
        let (layout, start) = (self.location.layout, self.location.tokens.start);
        let rows = rows.chunks_mut(layout.width().max(1));
        for (row, response) in rows.zip(self.location.responses.clone()) {
            layout.clear_padding(response, row);
            for (tokens, columns) in layout.token_runs(response) {
                row[columns].copy_from_slice(&values[tokens.start - start..tokens.end - start]);
            }
        }
    }

    fn job<T: Lane>(&mut self, index: usize, out: Option<Floats<'t>>, scratch: &mut Scratch) {
        let job = &self.pass.jobs[index];
        let in_place = match &job.code {
            Code::Column(column) => in_place(column, &self.location),
            Code::Values(values) => T::slice(values).map(|all| &all[self.location.tokens.clone()]),
            _ => None,
        };
        let values = match (in_place, out) {
            (Some(values), None) => Slice::Shared(values),
            (Some(values), Some(out)) => {
                let mut out = T::into_slice(out);
                out.copy_from_slice(values);
                out
            }
            (None, out) => {
                let length = self.location.tokens.len();
                let mut out = out.map_or_else(|| buffer(scratch, length), T::into_slice);
                self.compute(job, &mut out);
                out
            }
        };
        self.values[index] = Some(T::floats(values));
    }

    fn compute<T: Lane>(&self, job: &Job<'t>, out: &mut [T]) {
        match &job.code {
            Code::Column(column) => gather(column, &self.location, out),
            Code::Map(kernel) => self.map(*kernel, &job.args, out),
            Code::MapF64(kernel) => self.map_f64(*kernel, &job.args, out),
            Code::Widen => {
                let narrow: &[f32] = self.tile(&job.args[0]);
                let pairs = out.iter_mut().zip(narrow);
                pairs.for_each(|(out, &value)| *out = T::narrow(value.into()));
            }
            Code::Fill => self.fill(&job.args[0], out),
            Code::AtLastToken => {
                out.fill(T::default());
                for (response, own) in self.segments() {
                    if let Some(last) = out[own].last_mut() {
                        *last = T::narrow(job.args[0].of_response(response));
                    }
                }
            }
            Code::Scan(scan, number) => {
                let x: &[T] = self.tile(&job.args[0]);
                for (response, own) in self.segments() {
                    let discount = job.args.get(1).map(|by| by.of_response(response));
                    let number = discount.unwrap_or(*number);
                    scan.run(number, &x[own.clone()], &mut out[own]);
                }
            }
            Code::Values(_) | Code::Reduce(..) => {
                unreachable!("values are read in place, and the result of a reduction has no tiles")
            }
        }
    }

    /// Returns the values of an argument that is a tile.
    fn floats(&self, arg: &Arg<'_>) -> &Floats<'t> {
        let values = match arg {
            Arg::Tile(job) => self.values[*job].as_ref(),
            _ => None,
        };
        values.unwrap_or_else(|| unreachable!("a job's tiles are computed before it"))
    }

    fn tile<T: Lane>(&self, arg: &Arg<'_>) -> &[T] {
        T::slice_of(self.floats(arg))
    }

    fn fill<T: Lane>(&self, arg: &Arg<'_>, out: &mut [T]) {
        for (response, own) in self.segments() {
            if let Arg::Cell(values, Level::Position, layout) = arg {
                let start = layout.positions_of(layout.group_of(response)).start;
                let pairs = out[own].iter_mut().zip(&values[start..]);
                pairs.for_each(|(out, &value)| *out = T::narrow(value));
            } else {
                out[own].fill(T::narrow(arg.of_response(response)));
            }
        }
    }

    /// Computes a kernel in one loop or, if an argument has a value per response or coarser cell, in one loop per response.
    fn map<T: Lane>(&self, kernel: Kernel, args: &[Arg<'_>], out: &mut [T]) {
        let is_by_response = args.iter().any(|arg| matches!(arg, Arg::Cell(..)));
        let responses = &self.location.responses;
        if !is_by_response || responses.len() == 1 {
            return self.map_of(responses.start, kernel, args, 0..out.len(), out);
        }
        for (response, own) in self.segments() {
            self.map_of(response, kernel, args, own.clone(), &mut out[own]);
        }
    }

    fn map_of<T: Lane>(
        &self,
        response: usize,
        kernel: Kernel,
        args: &[Arg<'_>],
        own: Range<usize>,
        out: &mut [T],
    ) {
        let source = |index: usize| match &args[index] {
            arg @ Arg::Tile(_) => Operand::Values(&self.tile::<T>(arg)[own.clone()]),
            arg => Operand::Number(arg.of_response(response)),
        };
        match kernel {
            Kernel::One(op) => match source(0) {
                Operand::Values(values) => unary(op, values, out),
                Operand::Number(number) => out.fill(T::narrow(op.eval_for::<T>(number))),
            },
            Kernel::Two(op) => binary(op, source(0), source(1), out),
            Kernel::Three(op) => ternary(op, [source(0), source(1), source(2)], out),
            _ => unreachable!("the kernel is elementwise"),
        }
    }

    fn map_f64<T: Lane>(&self, kernel: Kernel, args: &[Arg<'_>], out: &mut [T]) {
        let x = |arg: usize| self.tile::<f64>(&args[arg]);
        match kernel {
            Kernel::One(f) => f.visit(Loop(out, (x(0),))),
            Kernel::Two(f) => f.visit(Loop(out, (x(0), x(1)))),
            Kernel::Three(f) => f.visit(Loop(out, (x(0), x(1), x(2)))),
            _ => unreachable!("the kernel is elementwise, and cannot fail"),
        }
    }

    fn reduce(&self, job: &Job<'_>, depth: Depth, moments: &mut [Moments]) {
        let selection = job.args.get(1).map(|by| self.floats(by));
        for ((response, own), moments) in self.segments().zip(moments) {
            *moments = match &job.args[0] {
                arg @ Arg::Tile(_) => match self.floats(arg) {
                    Floats::F32(x) => moments_of(&x[own.clone()], selection, own, depth),
                    Floats::F64(x) => moments_of(&x[own.clone()], selection, own, depth),
                },
                // The value is already rounded to f32, so the cast is exact.
                arg => Moments::of_equal(arg.of_response(response) as f32, own.len(), depth),
            };
        }
    }
}

/// Computes the moments of a response's values or, if there is a selection, of the values for which the selection is not 0.
fn moments_of<T: Precision>(
    values: &[T],
    selection: Option<&Floats<'_>>,
    own: Range<usize>,
    depth: Depth,
) -> Moments {
    let values_of = values.iter().copied();
    match selection {
        None => Moments::of(values, depth),
        Some(Floats::F32(by)) => {
            let is_selected = by[own].iter().map(|&by| by != 0.0);
            Moments::of_selected(values_of.zip(is_selected), depth)
        }
        Some(Floats::F64(by)) => {
            let is_selected = by[own].iter().map(|&by| by != 0.0);
            Moments::of_selected(values_of.zip(is_selected), depth)
        }
    }
}
