//! The naive executor: each node computed in full, one after the other. It stays as the oracle.

use std::sync::Arc;

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use super::Executor;
use super::elementwise::{Operand, column, expand, map};
use super::fused::why_in_full;
use super::kind::{reduction_of, scan_of};
use super::reduce::{Reduced, within};
use super::scan::{Running, at_last_token, scan};
use super::{Precision, cells};
use crate::batch::{FloatBuffer, Layout};
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Node, Prim, Tensor};
use crate::tensor::op::Kernel;
use crate::tensor::plan::Step;
use crate::tensor::profile::{Operation, Profile, Stage, StageKind};
use crate::tensor::{Context, Guard, Level, Plan, Value};

/// Computes each node in full, one after the other, its rows in parallel.
pub(super) fn run(plan: &Plan, context: &Context) -> Result<Vec<Option<Arc<Value>>>, TensorError> {
    let mut values: Vec<Option<Arc<Value>>> = Vec::with_capacity(plan.steps().len());
    for step in plan.steps() {
        values.push(Some(value(step, &values, context)?));
        for &done in &step.frees {
            values[done] = None;
        }
    }
    Ok(values)
}

/// The value of a step whose arguments are there.
pub(super) fn value(
    step: &Step,
    values: &[Option<Arc<Value>>],
    context: &Context,
) -> Result<Arc<Value>, TensorError> {
    if let Some(value) = step.tensor.known() {
        return Ok(value.clone());
    }
    let started = context.profile().map(Profile::clock);
    let value =
        compute(step, values, &context.guard).map_err(|error| error.or_at(step.tensor.origin()))?;
    if let Some((profile, started)) = context.profile().zip(started) {
        profile.note(noted(
            step,
            values,
            &value,
            started,
            profile.clock(),
            context,
        ));
    }
    Ok(value)
}

/// What a step that took some time is in a profile.
fn noted(
    step: &Step,
    values: &[Option<Arc<Value>>],
    value: &Value,
    started: f64,
    ended: f64,
    context: &Context,
) -> Stage {
    let tensor = &step.tensor;
    let args = step.args.iter().filter_map(|&arg| values[arg].as_ref());
    let read = args.map(|arg| arg.buffer().bytes()).sum::<usize>()
        + match &tensor.inner().prim {
            Prim::Column(_) => value.buffer().bytes(),
            _ => 0,
        };
    let (seconds, written) = (ended - started, value.buffer().bytes());
    let is_naive = context.executor == Executor::Naive;
    Stage {
        kind: StageKind::InFull(why_in_full(tensor).filter(|_| !is_naive)),
        started,
        seconds,
        read,
        written,
        operations: vec![Operation {
            name: tensor.inner().prim.name(),
            origin: tensor.origin().cloned(),
            seconds,
            read,
            written,
        }],
        blocks: Vec::new(),
    }
}

/// The largest f32 below 1: what is above would become 1 as an f32, which uniform numbers in [0, 1) are not.
const BELOW_ONE: f64 = 1.0 - f32::EPSILON as f64 / 2.0;

fn compute(
    step: &Step,
    values: &[Option<Arc<Value>>],
    guard: &Arc<Guard>,
) -> Result<Arc<Value>, TensorError> {
    let tensor = &step.tensor;
    let node = tensor.inner();
    let name = node.prim.name();
    guard
        .check()
        .map_err(|stopped| TensorError::new(name, stopped))?;
    let args: Vec<&Arc<Value>> = step
        .args
        .iter()
        .map(|&arg| match &values[arg] {
            Some(value) => value,
            None => unreachable!("a plan frees no value that a later step needs"),
        })
        .collect();
    let Some(frame) = &node.frame else {
        return Ok(Value::number(tensor.alone()));
    };
    let bytes = frame.size(node.level) * if node.is_f64 { 8 } else { 4 };
    let reservation = guard
        .reserve(bytes)
        .map_err(|stopped| TensorError::new(name, stopped))?;
    let buffer = if node.is_f64 {
        compute_as::<f64>(node, &frame.layout, &args, guard)
    } else {
        compute_as::<f32>(node, &frame.layout, &args, guard)
    }?;
    Ok(Value::new(node.level, buffer, Some(reservation)))
}

fn compute_as<T: Precision>(
    node: &Node,
    layout: &Layout,
    args: &[&Arc<Value>],
    guard: &Arc<Guard>,
) -> Result<FloatBuffer, TensorError> {
    let stopped = |stopped| TensorError::new(node.prim.name(), stopped);
    let operand = |index: usize| Operand {
        value: args[index],
        layout: layout_of(&node.args[index], layout),
    };
    let wide = match &node.prim {
        Prim::Number(number) => vec![*number],
        Prim::Values(value) => return Ok(value.buffer().clone()),
        Prim::Column(store) => return column(store, layout, guard),
        Prim::Map(op) => {
            let operands: Vec<Operand<'_>> = (0..args.len()).map(operand).collect();
            return map::<T>(op, &operands, layout, node.level, guard);
        }
        Prim::Expand => return expand::<T>(&operand(0), layout, node.level, guard),
        Prim::Reduce(op) => {
            let reduced = Reduced {
                values: args[0].buffer(),
                selection: args.get(1).map(|value| value.buffer()),
                layout,
                from: args[0].level(),
                to: node.level,
            };
            // Reducing to the token level keeps each value, in its own precision.
            reduced.run(reduction_of(op), guard).map_err(stopped)?
        }
        Prim::Count(of) => {
            let count = |cell| cells::count(layout, *of, node.level, cell) as f64;
            (0..layout.size(node.level)).map(count).collect()
        }
        Prim::Within(op, to) => {
            let Kernel::Within(kind) = op.kernel else {
                unreachable!("{op:?} is computed within cells");
            };
            let buffers: Vec<&FloatBuffer> = args.iter().map(|value| value.buffer()).collect();
            within(kind, &buffers, layout, node.level, *to, guard).map_err(stopped)?
        }
        Prim::Scan(op, number) => {
            let running = |response| Running {
                scan: scan_of(op),
                number: args.get(1).map_or(*number, |by| by.get(response)),
            };
            return scan::<T>(running, args[0], layout, guard).map_err(stopped);
        }
        Prim::AtLastToken => return at_last_token::<T>(args[0], layout, guard).map_err(stopped),
        Prim::Random(key) => random(*key, node, layout),
        Prim::Select(group) => {
            let parent = layout_of(&node.args[0], layout);
            selected(args[0], parent, *group)
        }
        Prim::Assemble(groups) => assembled(groups, args, layout, node.level),
        Prim::OfGroups | Prim::Mapped(_) => {
            unreachable!("a plan has their argument in their place")
        }
    };
    Ok(T::wrap(wide.into_iter().map(T::narrow).collect()))
}

/// One group's values, in the order that the group's own layout has them.
fn selected(of: &Value, layout: &Layout, group: usize) -> Vec<f64> {
    let own = cells::stretches(layout, of.level(), Level::Group, group);
    let values = of.buffer().view();
    let own = own.into_iter().flatten();
    own.map(|index| values.get(index)).collect()
}

/// The groups' values put together; 0 where a group has none.
fn assembled(groups: &[usize], parts: &[&Arc<Value>], layout: &Layout, level: Level) -> Vec<f64> {
    let mut out = vec![0.0; layout.size(level)];
    for (&group, part) in groups.iter().zip(parts) {
        let own = cells::stretches(layout, level, Level::Group, group);
        let values = own.into_iter().flatten().zip(part.iter());
        values.for_each(|(index, value)| out[index] = value);
    }
    out
}

/// Uniform numbers in [0, 1), drawn in order by one stream: the same for any number of threads.
fn random(key: u64, node: &Node, layout: &Layout) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(key);
    rng.set_stream(node.frame.as_ref().map_or(0, |frame| frame.stream));
    // The 53 bits that an f64 has, from 0 to below 1.
    let draw = |_| {
        let value = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        value.min(BELOW_ONE)
    };
    (0..layout.size(node.level)).map(draw).collect()
}

/// The layout that an argument lies over; a number alone lies over any.
fn layout_of<'a>(arg: &'a Tensor, own: &'a Layout) -> &'a Layout {
    arg.frame().map_or(own, |frame| &frame.layout)
}
