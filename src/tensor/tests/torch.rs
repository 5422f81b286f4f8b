//! The executor on libtorch agrees with the naive one to rounding, on every row and on random graphs, and uses columns where
//! they lie.

use std::sync::Arc;
use std::time::Duration;

use ndarray::Array2;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tch::Kind;

use super::agreement::inputs;
use super::cases::cases;
use super::properties::{grow, leaves, picks, worlds};
use super::world::{OnThreads, World, bits, leaf, narrow_leaf};
use crate::batch::{FloatBuffer, TokenValues};
use crate::tensor::graph::Tensor;
use crate::tensor::op::{Class, Op};
use crate::tensor::{
    Context, Executor, Frame, Guard, Level, Origin, Plan, Stopped, TensorErrorKind, op,
};
use crate::torch::{OnDevice, column};

/// Far above rounding, far below any other operation's result: of f64 tokens, and of f32s.
const NEAR: [f64; 2] = [1e-9, 1e-5];

/// Some roundings of an input.
const OFF: [f64; 2] = [1e-12, 3e-7];

fn computed(executor: &OnThreads, outputs: &[Tensor]) -> Vec<Vec<f64>> {
    let plan = Plan::new(outputs);
    let found = executor.run(&plan, &Guard::unlimited()).unwrap();
    let of = |&step: &usize| found[step].as_ref().unwrap().iter().collect();
    plan.outputs().iter().map(of).collect()
}

fn is_near(found: f64, wanted: f64, near: f64) -> bool {
    found == wanted
        || found.is_nan() && wanted.is_nan()
        || (found - wanted).abs() <= near * (1.0 + wanted.abs())
}

/// All of some rows' cases over a batch.
fn agree(world: World, is_f64: bool, rows: impl Iterator<Item = &'static Op>) {
    let (naive, torch) = (
        OnThreads::new(Executor::Naive, 1),
        OnThreads::new(Executor::Torch, 1),
    );
    let frame = world.frame_with(is_f64, Guard::unlimited());
    let leaf = if is_f64 { leaf } else { narrow_leaf };
    for op in rows {
        let whole = matches!(op.class, Class::Combinatorics);
        for case in cases(op) {
            let draw = |(seed, (param, level))| inputs(&frame, param, level, whole, seed);
            let inputs = case.tensors().enumerate().map(draw).collect();
            let (_, result) = case.apply(&frame, inputs, leaf).unwrap();
            let result = std::slice::from_ref(&result);
            let (found, wanted) = (computed(&torch, result), computed(&naive, result));
            for (&found, &wanted) in found[0].iter().zip(&wanted[0]) {
                let is_near = is_near(found, wanted, NEAR[usize::from(!is_f64)]);
                assert!(is_near, "{case:?}: {found} for {wanted}");
            }
        }
    }
}

#[test]
fn all_rows_agree_with_the_oracle() {
    agree(World::small(), true, op::table());
    agree(World::small(), false, op::table());
    // Several blocks of a scan, and blocks of blocks.
    let mut long = World::of_two_groups();
    long.mask.iter_mut().for_each(|row| row.extend(row.clone()));
    let scans = || op::table().filter(|op| op.class == Class::Scan);
    agree(long.clone(), true, scans());
    agree(long, false, scans());
}

/// Where a result jumps (a comparison of what is almost equal, a floor) rounding decides. Such values are told by the oracle
/// itself, which gives others of inputs that are a little off; they are left out, and must be few.
#[test]
fn random_graphs_agree_with_the_oracle() {
    let (naive, torch) = (
        OnThreads::new(Executor::Naive, 1),
        OnThreads::new(Executor::Torch, 1),
    );
    let mut runner = TestRunner::new(Config {
        cases: 1000,
        failure_persistence: None,
        ..Config::default()
    });
    let counts = std::cell::Cell::new((0usize, 0usize));
    let property = |(world, picks, is_f64): (World, Vec<_>, bool)| {
        let frame = world.frame_with(is_f64, Guard::unlimited());
        let (near, off) = (NEAR[usize::from(!is_f64)], OFF[usize::from(!is_f64)]);
        let of = |off: f64| {
            let mut leaves = leaves(&world, &frame, is_f64, off);
            // The last is of f32s in any case.
            leaves.truncate(leaves.len() - usize::from(is_f64));
            grow(&leaves, &picks, &Level::ALL)
        };
        let outputs = of(0.0);
        let (found, wanted) = (computed(&torch, &outputs), computed(&naive, &outputs));
        let shaken = [off, -off].map(|off| computed(&naive, &of(off)));
        for (node, tensor) in outputs.iter().enumerate() {
            for (at, (&found, &wanted)) in found[node].iter().zip(&wanted[node]).enumerate() {
                let (all, left_out) = counts.get();
                let is_steady =
                    (shaken.iter()).all(|shaken| is_near(shaken[node][at], wanted, near));
                counts.set((all + 1, left_out + usize::from(!is_steady)));
                prop_assert!(
                    !is_steady || is_near(found, wanted, near),
                    "{tensor:?} [{at}]: {found} for {wanted}: {outputs:?}"
                );
            }
        }
        Ok(())
    };
    let ran = runner.run(&(worlds(), picks(12), any::<bool>()), property);
    ran.unwrap_or_else(|error| panic!("{error}"));
    let (all, left_out) = counts.get();
    println!("{left_out} of {all} left out");
    assert!(
        all > 10_000 && left_out * 200 < all,
        "{left_out} of {all} left out"
    );
}

/// f32s within the rows of a mask with holes, NaN elsewhere, as a tensor and as an array.
fn column_of(world: &World, kind: Kind) -> (TokenValues, TokenValues) {
    let shape = (world.groups.len(), world.width());
    let array = Array2::from_shape_fn(shape, |(row, token)| match world.mask[row][token] {
        true => ((row * 31 + token) as f32 * 0.618).fract() - 0.5,
        false => f32::NAN,
    });
    let tensor = tch::Tensor::from_slice(array.as_slice().unwrap());
    let tensor = tensor.view([shape.0 as i64, shape.1 as i64]).to_kind(kind);
    (column(&tensor).unwrap(), array.into())
}

fn owner(values: &FloatBuffer) -> &OnDevice<f32> {
    match values {
        FloatBuffer::F32(values) => values.owner().expect("a tensor's memory"),
        FloatBuffer::F64(_) => panic!("f32 tokens"),
    }
}

/// What a column that is a tensor is computed to stays one, and is read by the next plan as it is.
#[test]
fn columns_and_results_stay_where_they_lie() {
    let context = |executor| Context {
        executor,
        guard: Guard::unlimited(),
        profile: None,
    };
    for world in [World::small(), World::of_two_groups()] {
        let (column, array) = column_of(&world, Kind::Float);
        let frame = Frame::new(Arc::new(world.layout()), false, context(Executor::Torch));
        let doubled = |frame: &Arc<Frame>, column: &TokenValues| {
            let x = Tensor::column(frame, column.clone());
            op::mul(&x, &Tensor::number(2.0)).unwrap()
        };
        let twice = doubled(&frame, &column);
        let value = twice.evaluate().unwrap();
        assert!(value.first_not_finite().is_none());
        let sum = op::sum(&twice, Level::Response)
            .unwrap()
            .evaluate()
            .unwrap();
        assert!(!owner(value.buffer()).is_read());
        let TokenValues::F32(padded) = &column else {
            panic!("{column:?}");
        };
        let of_column = padded
            .as_buffer()
            .unwrap()
            .owner::<OnDevice<f32>>()
            .unwrap();
        assert!(!of_column.is_read());
        // Read on the host, they are what the same column in the host's memory gives.
        let frame = Frame::new(Arc::new(world.layout()), false, context(Executor::Auto));
        for column in [&column, &array] {
            let wanted = doubled(&frame, column);
            assert_eq!(bits(&value), bits(&wanted.evaluate().unwrap()));
            let wanted = op::sum(&wanted, Level::Response)
                .unwrap()
                .evaluate()
                .unwrap();
            let pairs = sum.iter().zip(wanted.iter());
            pairs.for_each(|(sum, wanted)| assert!(is_near(sum, wanted, 1e-12)));
        }
        assert!(of_column.is_read() && owner(value.buffer()).is_read());
    }
}

/// Halves and bfloat16 are f32s once they are read, on the device as on the host.
#[test]
fn short_floats_are_widened() {
    let (naive, torch) = (
        OnThreads::new(Executor::Naive, 1),
        OnThreads::new(Executor::Torch, 1),
    );
    let world = World::small();
    let frame = world.frame_with(false, Guard::unlimited());
    for kind in [Kind::Half, Kind::BFloat16] {
        let x = Tensor::column(&frame, column_of(&world, kind).0);
        let cubed = op::mul(&x, &op::mul(&x, &x).unwrap()).unwrap();
        let cubed = std::slice::from_ref(&cubed);
        assert_eq!(computed(&torch, cubed), computed(&naive, cubed));
    }
}

#[test]
fn a_stop_is_told_as_everywhere_and_gives_all_memory_back() {
    let frame = World::large().frame();
    let tokens = leaf(&frame, Level::Token, vec![0.3; frame.size(Level::Token)]);
    let doubled = op::mul(&tokens, &Tensor::number(2.0)).unwrap();
    let origin = Origin {
        source: None,
        line: 7,
        column: 1,
    };
    doubled.mark(&origin);
    let plan = Plan::new(&[doubled]);
    let torch = OnThreads::new(Executor::Torch, 1);
    let cancelled = Guard::unlimited();
    cancelled.cancel();
    for (guard, stopped) in [
        (
            Guard::new(None, 1 << 10),
            Stopped::Memory { limit: 1 << 10 },
        ),
        (
            Guard::new(Some(Duration::ZERO), usize::MAX),
            Stopped::Deadline(Duration::ZERO),
        ),
        (cancelled, Stopped::Cancelled),
    ] {
        let error = torch.run(&plan, &guard).unwrap_err();
        assert_eq!(error.kind, TensorErrorKind::Stopped(stopped));
        let is_memory = matches!(stopped, Stopped::Memory { .. });
        assert_eq!(error.origin, is_memory.then(|| origin.clone()));
        assert_eq!(guard.used(), 0);
    }
}

/// Hooks run on whichever thread: each gives the same, and leaves gradients of libtorch as they were.
#[test]
fn any_thread_may_compute() {
    let frame = World::large().frame();
    let x = leaf(&frame, Level::Token, vec![0.3; frame.size(Level::Token)]);
    let sum = op::sum(&op::mul(&x, &x).unwrap(), Level::Group).unwrap();
    let compute = || {
        let plan = Plan::new(std::slice::from_ref(&sum));
        let context = Context {
            executor: Executor::Torch,
            guard: Guard::unlimited(),
            profile: None,
        };
        let found = context.run(&plan, None).unwrap();
        let weight = tch::Tensor::from(1.0f32).set_requires_grad(true);
        assert!((&weight * 2.0).requires_grad());
        bits(found[plan.outputs()[0]].as_ref().unwrap())
    };
    let here = compute();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(compute)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), here);
        }
    });
}
