//! Executors agree on every row and level, bit for bit.

use std::sync::Arc;

use super::cases::cases;
use super::world::{OnThreads, World, bits, leaf, narrow_leaf};
use crate::tensor::graph::Tensor;
use crate::tensor::op::Param;
use crate::tensor::{Executor, Frame, Guard, Level, Plan, TensorError, op};

/// The bits of a tensor's values, or what the executor says instead.
fn run(executor: &OnThreads, tensor: &Tensor) -> Result<(Level, Vec<u64>), TensorError> {
    let plan = Plan::new(std::slice::from_ref(tensor));
    let mut found = executor.run(&plan, &Guard::unlimited())?;
    let value = found[plan.outputs()[0]].take().unwrap();
    Ok((value.level(), bits(&value)))
}

fn check(a: &OnThreads, b: &OnThreads, tensor: &Tensor, what: &str) {
    assert!(
        run(a, tensor) == run(b, tensor),
        "{a:?} and {b:?} differ on {what}"
    );
}

/// Values of a wide range, with zeros and ties, the same for each seed; whole numbers where the row needs them.
fn inputs(frame: &Arc<Frame>, param: &Param, level: Level, whole: bool, seed: usize) -> Vec<f64> {
    let least = if param.name == "k" { 0.0 } else { 5.0 };
    let value = |i: usize| {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed * 0x1234_5678_9abc);
        let unit = (mixed >> 20) as f64 / (1u64 << 44) as f64;
        match (whole, i % 7) {
            (true, _) => least + (unit * 5.0).floor(),
            (false, 0) => 0.0,
            (false, 1) => 1.0,
            _ => (unit - 0.5) * 8.0,
        }
    };
    (0..frame.size(level)).map(value).collect()
}

/// All rows at all levels of a batch of several blocks.
fn agree(world: World, is_f64: bool) {
    let (naive, fused) = (
        OnThreads::new(Executor::Naive, 1),
        OnThreads::new(Executor::Fused, 2),
    );
    let frame = world.frame_with(is_f64, Guard::unlimited());
    let leaf = if is_f64 { leaf } else { narrow_leaf };
    for op in op::table() {
        let whole = matches!(op.class, op::Class::Combinatorics);
        for case in cases(op) {
            let draw = |(seed, (param, level))| inputs(&frame, param, level, whole, seed);
            let inputs = case.tensors().enumerate().map(draw).collect();
            let (_, result) = case.apply(&frame, inputs, leaf).unwrap();
            check(&naive, &fused, &result, &format!("{case:?}"));
        }
    }
}

#[test]
fn executors_give_the_same_bits_of_many_groups() {
    agree(World::large(), true);
}

#[test]
fn executors_give_the_same_bits_of_few_groups_in_f32() {
    agree(World::of_two_groups(), false);
}
