//! Executors agree on every row and level, bit for bit.

use std::sync::Arc;

use super::cases::{Case, pairwise_cases, some_cases};
use super::corners::lengths;
use super::world::{OnThreads, World, bits, leaf, narrow_leaf};
use crate::tensor::graph::Tensor;
use crate::tensor::op::{Argument, Op, Param};
use crate::tensor::{
    Executor, Frame, Guard, Level, Origin, Plan, TensorError, TensorErrorKind, op,
};

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
pub(super) fn inputs(
    frame: &Arc<Frame>,
    param: &Param,
    level: Level,
    whole: bool,
    seed: usize,
) -> Vec<f64> {
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

/// All rows on a batch of several blocks.
fn agree(world: World, is_f64: bool, cases: fn(&'static Op) -> Vec<Case>) {
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
    agree(World::large(), true, pairwise_cases);
}

#[test]
fn executors_give_the_same_bits_of_few_groups_in_f32() {
    agree(World::of_two_groups(), false, some_cases);
}

/// What the naive executor gives back after an operation, the fused one must not hold for a whole pass.
#[test]
fn what_goes_by_no_tiles_takes_as_much_memory_by_either_executor() {
    let frame = World::large().frame();
    let x = leaf(&frame, Level::Token, vec![0.5; frame.size(Level::Token)]);
    let number = |value: f64| Tensor::number(value);
    let median = op::table().find(|op| op.name == "median").unwrap();
    let medians = |mut sum: Tensor| {
        for i in 1..60 {
            let scaled = op::mul(&x, &number(f64::from(i))).unwrap();
            let args = [Argument::Tensor(scaled), Argument::Level(Level::Response)];
            sum = op::add(&sum, &median.apply(&args).unwrap()).unwrap();
        }
        sum
    };
    let positions = |mut value: Tensor| {
        for i in 1..60 {
            value = op::mul(&value, &number(1.0 + f64::from(i))).unwrap();
        }
        value
    };
    let at = leaf(
        &frame,
        Level::Position,
        vec![1.0; frame.size(Level::Position)],
    );
    for tensor in [medians(number(0.0)), positions(at)] {
        let [naive, fused] = [Executor::Naive, Executor::Fused].map(|executor| {
            let guard = Guard::unlimited();
            let plan = Plan::new(std::slice::from_ref(&tensor));
            OnThreads::new(executor, 1).run(&plan, &guard).unwrap();
            guard.peak()
        });
        assert!(fused <= 2 * naive, "naive {naive} bytes, fused {fused}");
    }
}

/// Of two errors in one plan, that of the first operation; and a stop is told of an operation's line.
#[test]
fn executors_tell_the_same_error_of_the_same_line() {
    let line = |line| Origin {
        source: None,
        line,
        column: 1,
    };
    let frame = World::large().frame();
    let tokens = leaf(&frame, Level::Token, vec![0.3; frame.size(Level::Token)]);
    let binomial = |n: &Tensor, at: usize| {
        let row = op::table().find(|op| op.name == "binomial").unwrap();
        let value = row
            .apply(&[Argument::Tensor(n.clone()), Argument::Number(1.0)])
            .unwrap();
        value.mark(&line(at));
        value
    };
    let responses = leaf(
        &frame,
        Level::Response,
        vec![0.7; frame.size(Level::Response)],
    );
    let sum = op::sum(&tokens, Level::Response).unwrap();
    let both = op::add(&binomial(&sum, 2), &binomial(&responses, 3)).unwrap();
    let doubled = op::mul(&tokens, &Tensor::number(2.0)).unwrap();
    doubled.mark(&line(7));
    for (tensor, memory, at) in [(both, usize::MAX, 2), (doubled, 1 << 10, 7)] {
        let errors = [Executor::Naive, Executor::Fused].map(|executor| {
            let plan = Plan::new(std::slice::from_ref(&tensor));
            let guard = Guard::new(None, memory);
            OnThreads::new(executor, 1).run(&plan, &guard).unwrap_err()
        });
        assert_eq!(errors[0], errors[1]);
        assert_eq!(errors[1].origin, Some(line(at)));
    }
}

/// The values of a plan that fails are computed again in full to find the first error; memory for that is not there.
#[test]
fn an_error_of_values_is_told_where_the_naive_executor_has_no_memory() {
    let frame = lengths(&[1000; 7]).frame();
    let size = frame.size(Level::Token);
    let mut tokens = leaf(&frame, Level::Token, vec![0.3; size]);
    for _ in 0..4 {
        tokens = op::mul(&tokens, &Tensor::number(1.5)).unwrap();
    }
    let sum = op::sum(&tokens, Level::Response).unwrap();
    let binomial = op::table().find(|op| op.name == "binomial").unwrap();
    let result = binomial.apply(&[Argument::Tensor(sum), Argument::Number(1.0)]);
    let plan = Plan::new(&[result.unwrap()]);
    let guard = || Guard::new(None, size * size_of::<f64>() * 3 / 2);
    let naive = OnThreads::new(Executor::Naive, 1).run(&plan, &guard());
    assert!(matches!(
        naive.unwrap_err().kind,
        TensorErrorKind::Stopped(_)
    ));
    let error = OnThreads::new(Executor::Fused, 1).run(&plan, &guard());
    let error = error.unwrap_err();
    assert!(matches!(error.kind, TensorErrorKind::Value(_)), "{error}");
}
