//! The executor on libtorch: token values as rows [B, L] on the CPU or a GPU, all others on the host by the naive executor's
//! steps.
//!
//! A plan is cut into stages. In each, the host computes what it can, the numbers that token operations need of it go to
//! the device in one array, these run, and what reductions have found of each response comes back in one array. Token
//! values stay on the device: those of columns that lie there, of results, and of what a later plan reads again; what is
//! read on the host is copied there then.
//!
//! Values agree with the other executors' to rounding: libtorch adds up in an order of its own, and functions of f32s are
//! f32s'. Any thread may call, but each gets a team of OpenMP threads of its own, so calls are best made from one;
//! nothing here calls libtorch from a thread of rayon's but a caller who is one.

mod elementwise;
mod grid;
mod moments;
mod noted;
mod scan;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind as Precision, Tensor};

use self::grid::Grid;
pub(super) use self::grid::of_column;
use self::noted::Clock;
use super::kind::{Kind, home, kind_of, scan_of};
use super::moments::Depth;
use super::reduce::{depth, finish, of_responses};
use super::{fused, naive};
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::graph::Prim;
use crate::tensor::guard::Reservation;
use crate::tensor::op::Reduction;
use crate::tensor::plan::Step;
use crate::tensor::{Context, Level, Plan, Value};
use crate::torch::{Result as TorchResult, TorchError, doubles, settle, to_vec};

type Result<T> = std::result::Result<T, TensorError>;

/// Whether token values that a plan reads lie on a GPU.
pub(super) fn reads_gpu(plan: &Plan) -> bool {
    device(plan).is_some_and(|device| device.is_cuda())
}

/// Where the token values lie that a plan reads and that are tensors.
fn device(plan: &Plan) -> Option<Device> {
    let mut tensors = plan
        .steps()
        .iter()
        .filter_map(|step| match step.tensor.known() {
            Some(value) => grid::of_buffer(value.buffer()),
            None => match &step.tensor.inner().prim {
                Prim::Column(values) => grid::of_column(values),
                _ => None,
            },
        });
    tensors.next().map(|tensor| tensor.device())
}

/// Computes token values by libtorch where they lie, or on the GPU where there is one.
pub(super) fn run(plan: &Plan, context: &Context) -> Result<Vec<Option<Arc<Value>>>> {
    let home = home(plan).filter(|home| home.size(Level::Token) > 0);
    let Some(home) = home else {
        return fused::run(plan, context, None);
    };
    // Of this thread; gradients are graphs of our own.
    let _guard = tch::no_grad_guard();
    let device = device(plan).unwrap_or_else(Device::cuda_if_available);
    let grid = settle().and_then(|()| Grid::new(&home.layout, device));
    let grid = grid.map_err(|error| refused("plan", error))?;
    let kinds = (plan.steps().iter()).map(|step| match &step.tensor.inner().prim {
        Prim::Scan(op, number) if !scan::is_for_libtorch(scan_of(op), *number) => Kind::Whole,
        _ => kind_of(plan, Some(home), step),
    });
    let mut run = Run {
        plan,
        context,
        grid,
        kinds: kinds.collect(),
        uses: uses(plan),
        values: vec![None; plan.steps().len()],
        tensors: plan.steps().iter().map(|_| None).collect(),
    };
    for stage in run.stages() {
        run.stage(&stage)?;
    }
    Ok(run.values)
}

fn refused(op: &'static str, error: TorchError) -> TensorError {
    TensorError::new(op, TensorErrorKind::Machine(error.to_string()))
}

/// How often a step's values are read; once more those that the plan is made for.
fn uses(plan: &Plan) -> Vec<usize> {
    let mut uses = vec![0; plan.steps().len()];
    let args = plan.steps().iter().flat_map(|step| &step.args);
    args.chain(plan.outputs()).for_each(|&step| uses[step] += 1);
    uses
}

/// What is computed between two transfers, by steps in the plan's order.
#[derive(Clone, Default)]
struct Stage {
    /// On the host, before the tokens.
    whole: Vec<usize>,
    tokens: Vec<usize>,
    reduced: Vec<(usize, Reduction)>,
}

struct Run<'a> {
    plan: &'a Plan,
    context: &'a Context,
    grid: Grid,
    kinds: Vec<Kind>,
    /// How many steps are still to read a step's values.
    uses: Vec<usize>,
    /// On the host, or to be had there.
    values: Vec<Option<Arc<Value>>>,
    /// On the device: [B, L], or [B, 1] of values that the tokens of a response share.
    tensors: Vec<Option<(Tensor, Reservation)>>,
}

impl Run<'_> {
    fn stages(&self) -> Vec<Stage> {
        let mut at: Vec<usize> = Vec::with_capacity(self.kinds.len());
        let mut stages: Vec<Stage> = Vec::new();
        for (index, step) in self.plan.steps().iter().enumerate() {
            let ready = |&arg: &usize| {
                let waits = match (self.kinds[arg], self.kinds[index]) {
                    (Kind::Reduced(_), _) | (Kind::Token, Kind::Whole) => 1,
                    _ => 0,
                };
                at[arg] + waits
            };
            let stage = step.args.iter().map(ready).max().unwrap_or(0);
            at.push(stage);
            if stages.len() <= stage {
                stages.resize(stage + 1, Stage::default());
            }
            match self.kinds[index] {
                Kind::Whole => stages[stage].whole.push(index),
                Kind::Token => stages[stage].tokens.push(index),
                Kind::Reduced(reduction) => stages[stage].reduced.push((index, reduction)),
            }
        }
        stages
    }

    fn stage(&mut self, stage: &Stage) -> Result<()> {
        for &index in &stage.whole {
            self.on_host(index)?;
        }
        let mut clock = Clock::start(self.context.profile());
        self.lend(stage)?;
        for &index in &stage.tokens {
            let (tensor, moved) = (&self.plan.steps()[index].tensor, self.moved(index));
            clock.timed(tensor, moved, || self.on_device(index))?;
        }
        self.collect(stage, &mut clock)?;
        clock.end();
        Ok(())
    }

    /// The bytes of token values that a step reads and writes.
    fn moved(&self, index: usize) -> (usize, usize) {
        let bytes = |index: usize| {
            let tensor = &self.plan.steps()[index].tensor;
            match (tensor.level(), tensor.is_f64()) {
                (Level::Token, true) => self.grid.bytes(),
                (Level::Token, false) => self.grid.bytes() / 2,
                _ => 0,
            }
        };
        let step = self.step(index);
        let own = match step.tensor.inner().prim {
            Prim::Column(_) => bytes(index),
            _ => 0,
        };
        let args = step.args.iter().map(|&arg| bytes(arg));
        (own + args.sum::<usize>(), bytes(index))
    }

    fn step(&self, index: usize) -> &Step {
        &self.plan.steps()[index]
    }

    /// An error of libtorch in a step.
    fn refused(&self, index: usize) -> impl Fn(TorchError) -> TensorError {
        let tensor = self.step(index).tensor.clone();
        move |error| refused(tensor.inner().prim.name(), error).or_at(tensor.origin())
    }

    fn reserve(&self, index: usize, bytes: usize) -> Result<Reservation> {
        let tensor = &self.step(index).tensor;
        let guard = &self.context.guard;
        (guard.check().and_then(|()| guard.reserve(bytes)))
            .map_err(|stopped| TensorError::new(tensor.inner().prim.name(), stopped))
            .map_err(|error| error.or_at(tensor.origin()))
    }

    /// Gives up the values of a step's arguments that were read for the last time. Coarser ones are small, and kept for
    /// later plans.
    fn release(&mut self, index: usize) {
        for &arg in &self.plan.steps()[index].args {
            self.uses[arg] -= 1;
            if self.uses[arg] == 0 {
                self.tensors[arg] = None;
                let level = self.step(arg).tensor.level();
                if matches!(level, Level::Token | Level::Position) {
                    self.values[arg] = None;
                }
            }
        }
    }

    /// A step as the naive executor does it, once its arguments' tokens are on the host.
    fn on_host(&mut self, index: usize) -> Result<()> {
        for &arg in &self.plan.steps()[index].args {
            if self.values[arg].is_none() {
                self.values[arg] = Some(self.value(arg, false)?);
            }
            if let Some(value) = &self.values[arg] {
                grid::fetch(value.buffer()).map_err(self.refused(arg))?;
            }
        }
        let value = naive::value(self.step(index), &self.values, self.context)?;
        self.values[index] = Some(value);
        self.release(index);
        Ok(())
    }

    /// A token step's values, which stay on the device until somebody reads them.
    fn value(&self, index: usize, is_finite: bool) -> Result<Arc<Value>> {
        let Some((tensor, _)) = &self.tensors[index] else {
            unreachable!("a step's values are there before they are read");
        };
        let buffer = (self.grid.buffer(tensor)).map_err(self.refused(index))?;
        let reserved = self.reserve(index, buffer.bytes())?;
        Ok(Value::checked(Level::Token, buffer, reserved, is_finite))
    }

    /// Copies the coarser values that a stage's token steps read to the device, spread over the responses.
    fn lend(&mut self, stage: &Stage) -> Result<()> {
        let rows = self.grid.layout.responses();
        let (mut lent, mut numbers): (Vec<usize>, Vec<f64>) = (Vec::new(), Vec::new());
        let Some(&reader) = stage.tokens.first() else {
            return Ok(());
        };
        for arg in (stage.tokens.iter()).flat_map(|&index| &self.step(index).args) {
            let level = self.step(*arg).tensor.level();
            let is_spread = matches!(level, Level::Response | Level::Group);
            if is_spread && self.tensors[*arg].is_none() && !lent.contains(arg) {
                lent.push(*arg);
                numbers.extend(self.spread(*arg));
            }
        }
        if lent.is_empty() {
            return Ok(());
        }
        let shape = [lent.len() as i64, rows as i64, 1];
        let all = doubles(&numbers, &shape, self.grid.device).map_err(self.refused(reader))?;
        for (at, (&arg, own)) in lent.iter().zip(numbers.chunks(rows)).enumerate() {
            let reserved = self.reserve(reader, size_of_val(own))?;
            let own = (all.f_select(0, at as i64).map_err(TorchError::from))
                .and_then(|tensor| narrowest(tensor, own))
                .map_err(self.refused(reader))?;
            self.tensors[arg] = Some((own, reserved));
        }
        Ok(())
    }

    /// A response or group step's value for each response.
    fn spread(&self, index: usize) -> Vec<f64> {
        let tensor = &self.step(index).tensor;
        let (Some(value), Some(frame)) = (&self.values[index], tensor.frame()) else {
            unreachable!("coarser values are computed before the tokens that read them");
        };
        let (values, layout) = (value.buffer().view(), &frame.layout);
        let of = |response| match value.level() {
            Level::Group => values.get(layout.group_of(response)),
            _ => values.get(response),
        };
        (0..layout.responses()).map(of).collect()
    }

    /// A step's values on the device, for another step to read.
    fn argument(&mut self, index: usize, reader: usize) -> Result<Tensor> {
        if let Some((tensor, _)) = &self.tensors[index] {
            return Ok(tensor.shallow_clone());
        }
        let tensor = &self.step(index).tensor;
        let number = |value: &Option<Arc<Value>>| match value {
            Some(value) => value.get(0),
            None => tensor.alone(),
        };
        let (made, reserved) = match (&self.values[index], tensor.level()) {
            (Some(value), Level::Token) => {
                let reserved = self.reserve(reader, self.grid.bytes())?;
                (self.grid.tokens(value.buffer()), reserved)
            }
            (value, _) => {
                let options = (Precision::Double, self.grid.device);
                let made = Tensor::f_full([1, 1], number(value), options);
                let made = made.map_err(TorchError::from);
                let narrow = made.and_then(|made| narrowest(made, &[number(value)]));
                (narrow, self.reserve(reader, size_of::<f64>())?)
            }
        };
        let made = made.map_err(self.refused(reader))?;
        self.tensors[index] = Some((made.shallow_clone(), reserved));
        Ok(made)
    }

    /// A token step.
    fn on_device(&mut self, index: usize) -> Result<()> {
        let args = self.plan.steps()[index].args.iter();
        let args: Vec<Tensor> = args
            .map(|&arg| self.argument(arg, index))
            .collect::<Result<_>>()?;
        let node = self.step(index).tensor.inner();
        // What goes on between the arguments and the result is at most a few tensors of f64s.
        let scratch = match node.prim {
            Prim::Scan(..) => 4,
            _ => 1,
        };
        let _scratch = self.reserve(index, scratch * self.grid.bytes())?;
        let made = match &node.prim {
            Prim::Column(values) => self.grid.column(values, &self.context.guard)?,
            Prim::Map(op) => elementwise::map(op.kernel, &args),
            Prim::Expand => Ok(args[0].shallow_clone()),
            Prim::AtLastToken => self.grid.at_last_token(&args[0]),
            Prim::Scan(op, number) => scan::scan(scan_of(op), *number, &self.grid, &args[0]),
            other => unreachable!("{} does not go along tokens", other.name()),
        };
        let (precision, bytes) = match node.is_f64 {
            true => (Precision::Double, self.grid.bytes()),
            false => (Precision::Float, self.grid.bytes() / 2),
        };
        let made = made.and_then(|made| Ok(made.f_to_kind(precision)?));
        let made = made.map_err(self.refused(index))?;
        self.tensors[index] = Some((made, self.reserve(index, bytes)?));
        self.release(index);
        Ok(())
    }

    /// Brings back what a stage's reductions are made of, and whether its results are finite.
    fn collect(&mut self, stage: &Stage, clock: &mut Clock<'_>) -> Result<()> {
        let mut parts: Vec<Tensor> = Vec::new();
        let reduced = self.reduce(stage, &mut parts, clock)?;
        let is_output = |index: &&usize| self.plan.outputs().contains(index);
        let outputs: Vec<usize> = stage.tokens.iter().filter(is_output).copied().collect();
        let flags = parts.len();
        for &index in &outputs {
            let x = self.argument(index, index)?;
            parts.push(self.finite(&x).map_err(self.refused(index))?);
        }
        let any = (stage.reduced.first().map(|(index, _)| index)).or(outputs.first());
        let Some(&any) = any else {
            return Ok(());
        };
        let found = (Tensor::f_stack(&parts, 0).map_err(TorchError::from))
            .and_then(|parts| to_vec::<f64>(&parts))
            .map_err(self.refused(any))?;
        let rows = self.grid.layout.responses();
        for (index, reduction, own) in reduced {
            self.finish(index, reduction, &found[own.start * rows..own.end * rows])?;
        }
        for (&index, flags) in outputs.iter().zip(found[flags * rows..].chunks(rows)) {
            let is_finite = flags.iter().all(|&flag| flag == 1.0);
            self.values[index] = Some(self.value(index, is_finite)?);
        }
        Ok(())
    }

    /// Adds what a stage's reductions are made of to what is to be brought back, and says which of it each is made of.
    fn reduce(
        &mut self,
        stage: &Stage,
        parts: &mut Vec<Tensor>,
        clock: &mut Clock<'_>,
    ) -> Result<Vec<(usize, Reduction, Range<usize>)>> {
        let steps = self.plan.steps();
        // Reductions of the same values share what is found out about them.
        let mut depths: HashMap<&[usize], Depth> = HashMap::new();
        for &(index, reduction) in &stage.reduced {
            let shared = depths.entry(&steps[index].args).or_insert(Depth::Sum);
            *shared = (*shared).max(depth(reduction));
        }
        let mut made: HashMap<&[usize], Range<usize>> = HashMap::new();
        let mut reduced = Vec::with_capacity(stage.reduced.len());
        for &(index, reduction) in &stage.reduced {
            let args = &steps[index].args[..];
            if !made.contains_key(args) {
                let x = self.argument(args[0], index)?;
                let selection = args
                    .get(1)
                    .map(|&arg| self.argument(arg, index))
                    .transpose()?;
                let _scratch = self.reserve(index, 3 * self.grid.bytes())?;
                let own = clock.timed(&steps[index].tensor, self.moved(index), || {
                    moments::moments(&self.grid, &x, selection.as_ref(), depths[args])
                });
                let start = parts.len();
                parts.extend(own.map_err(self.refused(index))?);
                made.insert(args, start..parts.len());
            }
            reduced.push((index, reduction, made[args].clone()));
        }
        Ok(reduced)
    }

    /// 1 for each response whose values are all finite, else 0: [B].
    fn finite(&self, x: &Tensor) -> TorchResult<Tensor> {
        let is_finite = self.grid.masked(x, 0.0)?.f_isfinite()?;
        Ok(is_finite
            .f_all_dim(1, false)?
            .f_to_kind(Precision::Double)?)
    }

    fn finish(&mut self, index: usize, reduction: Reduction, parts: &[f64]) -> Result<()> {
        let tensor = &self.step(index).tensor;
        let layout = tensor
            .frame()
            .map_or(&self.grid.layout, |frame| &frame.layout);
        let rows = moments::read(parts, layout.responses());
        let cells = of_responses(layout, &rows, tensor.level());
        let values: Vec<f64> = cells.iter().map(|cell| finish(reduction, cell)).collect();
        let reserved = self.reserve(index, size_of_val(&values[..]))?;
        let value = Value::new(tensor.level(), values.into(), Some(reserved));
        self.values[index] = Some(value);
        self.release(index);
        Ok(())
    }
}

/// Numbers as f32s where they all are: what f32 tokens do with them gives the same bits in f32 as in f64, in half the
/// memory.
fn narrowest(tensor: Tensor, numbers: &[f64]) -> TorchResult<Tensor> {
    let is_narrow = |&number: &f64| f64::from(number as f32) == number || number.is_nan();
    match numbers.iter().all(is_narrow) {
        true => Ok(tensor.f_to_kind(Precision::Float)?),
        false => Ok(tensor),
    }
}
