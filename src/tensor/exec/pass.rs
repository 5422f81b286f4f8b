//! A pass over the tokens: jobs in the order of the plan's steps, run tile by tile, blocks of responses in parallel.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::moments::{Depth, Moments};
use super::reduce::depth;
use super::run::{Execution, Method};
use super::tile::{Scratch, Share, Tile, first};
use super::tokens::Location;
use super::{BLOCK, Failure};
use crate::batch::{FloatBuffer, Layout, TokenValues};
use crate::parallel::{each_with, lock};
use crate::tensor::Level;
use crate::tensor::graph::Prim;
use crate::tensor::op::{Kernel, Scan, Unary};

/// Responses of at most this many tokens share a tile: longer ones are read and written in place.
const SHORT: usize = 1024;
/// The most tokens of a tile of several responses.
const TOGETHER: usize = 4096;

/// The place of a job's argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg<'a> {
    /// The values of an earlier job.
    Tile(usize),
    /// One value for each cell of a coarser level, in a layout.
    Cell(&'a [f64], Level, &'a Layout),
    Number(f64),
}

impl Arg<'_> {
    /// The value for all tokens of a response.
    pub(super) fn of_response(&self, response: usize) -> f64 {
        match self {
            Arg::Number(number) => *number,
            Arg::Cell(values, Level::Response, _) => values[response],
            Arg::Cell(values, Level::Group, layout) => values[layout.group_of(response)],
            Arg::Cell(values, Level::Trajectory, layout) => values[layout.trajectory_of(response)],
            _ => unreachable!("tokens and positions have more than one"),
        }
    }

    /// Whether both have the same values in memory.
    fn is_same(&self, other: &Arg<'_>) -> bool {
        match (self, other) {
            (Arg::Tile(a), Arg::Tile(b)) => a == b,
            (Arg::Cell(a, ..), Arg::Cell(b, ..)) => std::ptr::eq(*a, *b),
            _ => false,
        }
    }
}

pub(super) enum Code<'a> {
    Column(&'a TokenValues),
    Values(&'a FloatBuffer),
    Map(Kernel),
    /// An elementwise kernel whose arguments are all f64; its result may be f32.
    MapF64(Kernel),
    /// f32 values as f64.
    Widen,
    /// A coarser value for each token.
    Fill,
    AtLastToken,
    Scan(Scan, f64),
    /// The number of the reduction, and the moments that it needs.
    Reduce(usize, Depth),
}

pub(super) struct Job<'a> {
    pub(super) step: usize,
    pub(super) code: Code<'a>,
    pub(super) args: Vec<Arg<'a>>,
    pub(super) is_f64: bool,
    /// The memory that keeps its values after the pass.
    pub(super) memory: Option<usize>,
    /// Whether to check that all values are finite, and whether one was not.
    pub(super) is_checked: bool,
    pub(super) not_finite: AtomicBool,
    /// The jobs whose values are not needed after this job.
    pub(super) frees: Vec<usize>,
    /// Nanoseconds in all threads.
    pub(super) time: AtomicU64,
}

impl Job<'_> {
    pub(super) fn reads_no_tile(&self) -> bool {
        !self.args.iter().any(|arg| matches!(arg, Arg::Tile(_)))
    }
}

pub(super) struct Pass<'a> {
    pub(super) execution: &'a Execution<'a>,
    pub(super) jobs: Vec<Job<'a>>,
    pub(super) reductions: usize,
    job_of: HashMap<usize, usize>,
    /// By job of f32 values: the job that widens them.
    widened: HashMap<usize, usize>,
}

impl<'a> Pass<'a> {
    /// A pass through some steps, each after its arguments.
    pub(super) fn new(execution: &'a Execution<'a>, steps: &[usize]) -> Pass<'a> {
        let mut pass = Pass {
            execution,
            jobs: Vec::new(),
            reductions: 0,
            job_of: HashMap::new(),
            widened: HashMap::new(),
        };
        for &step in steps {
            let job = match execution.method(step) {
                _ if pass.job_of.contains_key(&step) => continue,
                _ if execution.is_readable(step) => pass.load(step),
                Method::Reduced(reduction) => pass.reduce(step, depth(reduction)),
                _ => pass.compute(step),
            };
            pass.job_of.insert(step, job);
        }
        pass
    }

    fn push(&mut self, step: usize, code: Code<'a>, args: Vec<Arg<'a>>, is_f64: bool) -> usize {
        self.jobs.push(Job {
            step,
            code,
            args,
            is_f64,
            memory: None,
            is_checked: false,
            not_finite: AtomicBool::new(false),
            frees: Vec::new(),
            time: AtomicU64::new(0),
        });
        self.jobs.len() - 1
    }

    /// Values that are there before the pass.
    fn load(&mut self, step: usize) -> usize {
        let execution = self.execution;
        let (code, args) = match &execution.values[step] {
            Some(value) if execution.method(step) != Method::Uniform => {
                (Code::Values(value.buffer()), Vec::new())
            }
            _ => (
                Code::Map(Kernel::One(Unary::Detach)),
                vec![execution.coarser(step)],
            ),
        };
        self.push(step, code, args, execution.tensor(step).is_f64())
    }

    /// The job of a token step; widened if f64 is needed.
    fn tile(&mut self, step: usize, is_f64: bool) -> Arg<'a> {
        let job = match self.job_of.get(&step) {
            Some(&job) => job,
            None => self.load(step),
        };
        self.job_of.insert(step, job);
        if !is_f64 || self.jobs[job].is_f64 {
            return Arg::Tile(job);
        }
        if let Some(&widened) = self.widened.get(&job) {
            return Arg::Tile(widened);
        }
        let widened = self.push(step, Code::Widen, vec![Arg::Tile(job)], true);
        self.widened.insert(job, widened);
        Arg::Tile(widened)
    }

    fn compute(&mut self, step: usize) -> usize {
        let execution = self.execution;
        let level = |&arg: &usize| execution.tensor(arg).level();
        let (node, args) = (execution.tensor(step).inner(), execution.args(step));
        let kernel = match &node.prim {
            Prim::Map(op) => op.kernel,
            _ => Kernel::One(Unary::Detach),
        };
        let is_map = matches!(node.prim, Prim::Map(_) | Prim::Expand);
        let has_positions = args.iter().any(|arg| level(arg) == Level::Position);
        let is_wide = is_map && (has_positions || matches!(kernel, Kernel::Checked(_)));
        let is_f64 = node.is_f64;
        // A scan needs all tokens of its argument, but not of its discounts.
        let scanned = args.first().filter(|_| matches!(node.prim, Prim::Scan(..)));
        let mut found = Vec::with_capacity(args.len());
        for arg in args {
            let is_uniform = execution.method(*arg) == Method::Uniform && scanned != Some(arg);
            let value = match level(arg) {
                Level::Token if !is_uniform => self.tile(*arg, is_f64 || is_wide),
                _ if is_wide => {
                    let value = execution.coarser(*arg);
                    Arg::Tile(self.push(step, Code::Fill, vec![value], true))
                }
                _ => execution.coarser(*arg),
            };
            found.push(value);
        }
        let code = match &node.prim {
            Prim::Column(column) => Code::Column(column),
            Prim::Map(_) | Prim::Expand if is_wide => Code::MapF64(kernel),
            Prim::Map(_) | Prim::Expand => Code::Map(kernel),
            Prim::AtLastToken => Code::AtLastToken,
            Prim::Scan(op, number) => Code::Scan(op.kernel.scan(), *number),
            other => unreachable!("{} does not go by tiles", other.name()),
        };
        self.push(step, code, found, is_f64)
    }

    /// Reductions of the same values share their moments.
    fn reduce(&mut self, step: usize, depth: Depth) -> usize {
        let execution = self.execution;
        let is_uniform_f32 = |arg: usize| {
            execution.method(arg) == Method::Uniform && !execution.tensor(arg).is_f64()
        };
        let args: Vec<Arg<'a>> = match *execution.args(step) {
            // The sum of equal f32s is exact, in any order.
            [arg] if is_uniform_f32(arg) => vec![execution.coarser(arg)],
            ref args => args.iter().map(|&arg| self.tile(arg, false)).collect(),
        };
        for (index, job) in self.jobs.iter_mut().enumerate() {
            let mut pairs = job.args.iter().zip(&args);
            if let Code::Reduce(_, known) = &mut job.code
                && job.args.len() == args.len()
                && pairs.all(|(a, b)| a.is_same(b))
            {
                *known = depth.max(*known);
                return index;
            }
        }
        self.reductions += 1;
        self.push(step, Code::Reduce(self.reductions - 1, depth), args, false)
    }

    /// Keeps a step's values in memory.
    pub(super) fn store(&mut self, step: usize, memory: usize, is_checked: bool) {
        let job = &mut self.jobs[self.job_of[&step]];
        (job.memory, job.is_checked) = (Some(memory), is_checked);
    }

    /// Whether all values of a stored step are known to be finite.
    pub(super) fn is_finite(&self, step: usize) -> bool {
        let job = &self.jobs[self.job_of[&step]];
        job.is_checked && !job.not_finite.load(Ordering::Relaxed)
    }

    /// The number of the reduction that computes a step.
    pub(super) fn reduction_of(&self, step: usize) -> usize {
        match self.jobs[self.job_of[&step]].code {
            Code::Reduce(reduction, _) => reduction,
            _ => unreachable!("is a reduction"),
        }
    }

    /// The steps of all jobs, each with the share of the pass's time that the job took.
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, f64)> {
        // Nanoseconds of a pass are far below 2^53.
        let time = |job: &Job<'_>| job.time.load(Ordering::Relaxed) as f64;
        let all: f64 = self.jobs.iter().map(time).sum();
        self.jobs
            .iter()
            .map(move |job| (job.step, time(job) / all.max(1.0)))
    }

    /// Finds the job that is the last to read each value. Returns the most bytes of a thread's tiles at once.
    pub(super) fn free(&mut self, layout: &Layout) -> usize {
        let mut last: Vec<usize> = (0..self.jobs.len()).collect();
        for (index, job) in self.jobs.iter().enumerate() {
            for arg in &job.args {
                if let Arg::Tile(read) = arg {
                    last[*read] = index;
                }
            }
        }
        for (job, &last) in last.iter().enumerate() {
            self.jobs[last].frees.push(job);
        }
        let responses = 0..layout.responses();
        let longest = responses
            .map(|response| layout.tokens_of(response).len())
            .max();
        let tokens = longest.unwrap_or(0).max(TOGETHER);
        let bytes = |job: &Job<'_>| tokens * if job.is_f64 { 8 } else { 4 };
        let (mut now, mut most) = (0, 0);
        for job in &self.jobs {
            now += bytes(job);
            most = most.max(now);
            let freed = job.frees.iter().map(|&done| bytes(&self.jobs[done]));
            now -= freed.sum::<usize>();
        }
        most
    }

    /// Computes all tiles, blocks of neighbouring responses in parallel. If several fail, the first one's error counts, for any
    /// number of threads.
    pub(super) fn run(&self, layout: &Layout, mut written: Written<'_>) -> Result<(), Failure> {
        let guard = &self.execution.context.guard;
        let is_short = |response: usize| layout.tokens_of(response).len() <= SHORT;
        // Reductions with one value per response store no tokens: a tile may be as long as a block.
        let is_reduction = |job: &Job<'_>| matches!(job.code, Code::Reduce(..));
        let holds_no_tokens =
            (self.jobs.iter()).all(|job| is_reduction(job) && job.reads_no_tile());
        let block = |scratch: &mut Scratch, responses: Range<usize>, mut written: Written<'_>| {
            let mut first = responses.start;
            while first < responses.end {
                let start = layout.tokens_of(first).start;
                let is_within = |end: usize| {
                    let is_together = layout.tokens_of(end).end - start <= TOGETHER;
                    holds_no_tokens || is_short(end - 1) && is_short(end) && is_together
                };
                let mut end = first + 1;
                while end < responses.end && is_within(end) {
                    end += 1;
                }
                let tokens = start..layout.tokens_of(end - 1).end;
                let own = written.split(end - first, tokens.len(), layout.width());
                let location = Location {
                    layout,
                    responses: first..end,
                    tokens,
                };
                Tile::run(self, location, scratch, own)?;
                guard.check()?;
                first = end;
            }
            Ok(())
        };
        let (mut blocks, mut first, responses) = (Vec::new(), 0, layout.responses());
        while first < responses {
            let start = layout.tokens_of(first).start;
            // Responses without tokens count as well.
            let size = |end: usize| layout.tokens_of(end).end - start + (end - first);
            let mut end = first + 1;
            while end < responses && size(end) < BLOCK {
                end += 1;
            }
            let tokens = layout.tokens_of(end - 1).end - start;
            let own = written.split(end - first, tokens, layout.width());
            blocks.push(Mutex::new(Some((first..end, own))));
            first = end;
        }
        let done = each_with(blocks.len(), 1, &Scratch::default, &|scratch, index| {
            guard.check()?;
            match lock(&blocks[index]).take() {
                Some((responses, own)) => block(scratch, responses, own),
                None => unreachable!("a block is computed once"),
            }
        });
        done.into_iter().collect()
    }
}

/// The outputs of a pass, or a share of them.
pub(super) struct Written<'a> {
    pub(super) memory: Vec<Share<'a>>,
    /// By reduction: the moments of each response's tokens.
    pub(super) moments: Vec<&'a mut [Moments]>,
}

impl Written<'_> {
    /// Splits off the share of the first responses.
    fn split(&mut self, responses: usize, tokens: usize, width: usize) -> Self {
        let memory = self.memory.iter_mut();
        let memory = memory.map(|share| share.split(responses, tokens, width));
        let moments = self.moments.iter_mut();
        let moments = moments.map(|of| first(of, responses));
        Written {
            memory: memory.collect(),
            moments: moments.collect(),
        }
    }
}
