//! Steps that are computed in full, from all values of their arguments: steps at levels coarser than the token, whose arguments
//! are broadcast to the step's level, and token steps that no pass computes, such as ranks and random numbers. Uniform token
//! steps are computed here once per response.

use std::borrow::Cow;
use std::sync::Arc;

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use super::cells::{self, BLOCK};
use super::execution::{Arg, Execution};
use super::kernels::{Operand, binary, ternary, unary};
use super::reduce::{reduce, within};
use super::scan::along_rows;
use crate::batch::{Computed, FloatBuffer, Layout, Level};
use crate::parallel::by_parts;
use crate::tensor::error::{Stopped, TensorErrorKind};
use crate::tensor::graph::{Node, Prim};
use crate::tensor::guard::Guard;
use crate::tensor::kernel::{Kernel, Unary};
use crate::tensor::precision::Precision;
use crate::tensor::value::Value;

/// Computes a step whose arguments are already computed.
pub(super) fn value(execution: &Execution<'_>, step: usize) -> Result<Arc<Value>, TensorErrorKind> {
    let (tensor, guard) = (execution.tensor(step), &execution.context.guard);
    let node = tensor.inner();
    let Some(frame) = &node.frame else {
        return Ok(Arc::new(Value::number(tensor.alone())));
    };
    guard.check()?;
    let reserved = guard.reserve(frame.size(node.level) * if node.is_f64 { 8 } else { 4 })?;
    let args = execution.args(step).iter();
    let args: Vec<&Value> = args
        .filter_map(|&arg| execution.values[arg].as_deref())
        .collect();
    let values = match &node.prim {
        Prim::Map(op) => map(op.kernel(), node, &args, guard)?,
        _ => compute(node, &frame.layout, &args, guard)?,
    };
    let buffer = if node.is_f64 {
        FloatBuffer::from(values)
    } else {
        FloatBuffer::F32(values.iter().map(|&value| f32::narrow(value)).collect())
    };
    let values = Computed::new(frame.layout.clone(), node.level, buffer);
    Ok(Arc::new(Value::new(values, Some(reserved))))
}

/// Computes a uniform token step: one value per response, rounded to the precision of the step's tokens.
pub(super) fn uniform(execution: &Execution<'_>, step: usize) -> Vec<f64> {
    if execution.tensor(step).is_f64() {
        uniform_as::<f64>(execution, step)
    } else {
        uniform_as::<f32>(execution, step)
    }
}

fn uniform_as<T: Precision>(execution: &Execution<'_>, step: usize) -> Vec<f64> {
    let args = execution.args(step).iter();
    let args: Vec<Arg<'_>> = args.map(|&arg| execution.coarser(arg)).collect();
    let tensor = execution.tensor(step);
    let kernel = match &tensor.inner().prim {
        Prim::Map(op) => op.kernel(),
        _ => Kernel::One(Unary::Detach),
    };
    let of_response = |response: usize| {
        let x = |arg: usize| args[arg].of_response(response);
        let value = match kernel {
            Kernel::One(op) => op.eval_for::<T>(x(0)),
            Kernel::Two(op) => op.eval_for::<T>(x(0), x(1)),
            Kernel::Three(op) => op.eval_for::<T>(x(0), x(1), x(2)),
            _ => unreachable!("the kernel is elementwise"),
        };
        T::narrow(value).widen()
    };
    let responses = tensor.frame().map_or(0, |frame| frame.layout.responses());
    (0..responses).map(of_response).collect()
}

fn compute(
    node: &Node,
    layout: &Layout,
    args: &[&Value],
    guard: &Arc<Guard>,
) -> Result<Vec<f64>, Stopped> {
    Ok(match &node.prim {
        Prim::Expand => match &*spread(node, 0, args[0]) {
            [number] => vec![*number; layout.size(node.level)],
            values => values.to_vec(),
        },
        Prim::Reduce(op) => reduce(op.kernel().reduction(), args, layout, node.level, guard)?,
        Prim::Count(of) => {
            let count = |cell| cells::count(layout, *of, node.level, cell) as f64;
            (0..layout.size(node.level)).map(count).collect()
        }
        Prim::Within(op, to) => {
            let Kernel::Within(kind) = op.kernel() else {
                unreachable!("{op:?} is computed within cells");
            };
            let buffers: Vec<&FloatBuffer> = args.iter().map(|value| value.buffer()).collect();
            within(kind, &buffers, layout, node.level, *to, guard)?
        }
        Prim::Scan(op, number) => {
            let number = |response| args.get(1).map_or(*number, |by| by.get(response));
            let values: Vec<f64> = args[0].iter().collect();
            along_rows(op.kernel().scan(), number, &values, layout)
        }
        Prim::Random(key) => random(*key, node, layout),
        Prim::Select(group) => {
            let whole = node.args[0].frame().map_or(layout, |frame| &frame.layout);
            let own = cells::indices(whole, args[0].level(), Level::Group, *group);
            let values = args[0].buffer().reader();
            own.into_iter().map(values).collect()
        }
        // The result is 0 for every group that is not listed.
        Prim::Assemble(groups) => {
            let mut out = vec![0.0; layout.size(node.level)];
            for (&group, part) in groups.iter().zip(args) {
                let own = cells::indices(layout, node.level, Level::Group, group);
                for (index, value) in own.into_iter().zip(part.iter()) {
                    out[index] = value;
                }
            }
            out
        }
        other => unreachable!("{} is not computed here", other.name()),
    })
}

/// Returns an argument's value for each cell of the node's level, which is the argument's level or finer. For a batch tensor,
/// returns only its single value, which applies to all cells.
fn spread<'a>(node: &Node, arg: usize, value: &'a Value) -> Cow<'a, [f64]> {
    let level = node.level;
    let cell: fn(&Layout, usize) -> usize = match (level, value.level()) {
        (Level::Response, Level::Group) => Layout::group_of,
        (Level::Response, Level::Trajectory) => Layout::trajectory_of,
        (Level::Trajectory, Level::Group) => Layout::group_of_trajectory,
        (Level::Position, Level::Group) => |layout, index| layout.group_of_position(index).0,
        _ => |_, index| index,
    };
    let frame = node.args[arg].frame().or(node.frame.as_ref());
    match (value.buffer(), frame) {
        (FloatBuffer::F64(values), Some(frame))
            if value.level() != level && value.level() != Level::Batch =>
        {
            let layout = &frame.layout;
            (0..layout.size(level))
                .map(|index| values[cell(layout, index)])
                .collect()
        }
        (FloatBuffer::F64(values), _) => Cow::Borrowed(values),
        (FloatBuffer::F32(values), _) => values.iter().map(|&value| f64::from(value)).collect(),
    }
}

/// Computes an elementwise kernel, block by block.
fn map(
    kernel: Kernel,
    node: &Node,
    args: &[&Value],
    guard: &Guard,
) -> Result<Vec<f64>, TensorErrorKind> {
    let args = args.iter().enumerate();
    let args: Vec<Cow<'_, [f64]>> = args.map(|(arg, value)| spread(node, arg, value)).collect();
    let size = node
        .frame
        .as_ref()
        .map_or(1, |frame| frame.size(node.level));
    let mut all = vec![0.0; size];
    let block = |start: usize, out: &mut [f64]| -> Result<(), TensorErrorKind> {
        guard.check()?;
        let source = |arg: usize| match &*args[arg] {
            [number] => Operand::Number(*number),
            values => Operand::Values(&values[start..start + out.len()]),
        };
        match (kernel, source(0)) {
            (Kernel::One(op), Operand::Values(values)) => unary(op, values, out),
            (Kernel::One(op), Operand::Number(number)) => out.fill(op.eval(number)),
            (Kernel::Two(op), first) => binary(op, first, source(1), out),
            (Kernel::Three(op), first) => ternary(op, [first, source(1), source(2)], out),
            (Kernel::Fallible(f), _) => {
                for (out, index) in out.iter_mut().zip(start..) {
                    // The guard is checked for each value, because a single value may take milliseconds.
                    guard.check()?;
                    let x = args.iter().map(|values| values[index % values.len()]);
                    let value = f(&x.collect::<Vec<f64>>());
                    *out = value.map_err(|why| {
                        let frame = node.frame.as_ref();
                        let place = frame.map(|frame| frame.layout.describe(node.level, index));
                        let place = place.unwrap_or_default();
                        TensorErrorKind::Value(format!("{why}, at {place}"))
                    })?;
                }
            }
            _ => unreachable!("the kernel is elementwise"),
        }
        Ok(())
    };
    // If several blocks fail, the first block's error is returned, so that the error does not depend on the number of threads.
    let done = by_parts(&mut all, BLOCK, &block);
    done.into_iter().collect::<Result<(), TensorErrorKind>>()?;
    Ok(all)
}

/// The largest f32 below 1: a larger f64 could round to 1 as an f32, which is outside of [0, 1).
const BELOW_ONE: f64 = 1.0 - f32::EPSILON as f64 / 2.0;

/// Draws uniform numbers in [0, 1) from one stream, in order, so that they do not depend on the number of threads.
fn random(key: u64, node: &Node, layout: &Layout) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(key);
    rng.set_stream(node.frame.as_ref().map_or(0, |frame| frame.stream));
    // An f64 has 53 significant bits, so the quotient is exact and below 1.
    let draw = |_| {
        let value = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        value.min(BELOW_ONE)
    };
    (0..layout.size(node.level)).map(draw).collect()
}
