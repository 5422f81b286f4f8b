//! Splitting a batch into groups, joining groups, and regrouping: values and gradients are the same as over the whole batch.

use std::sync::Arc;

use super::world::{World, alone, leaf, number, regrouped, values};
use crate::tensor::op::{self, Argument, Op};
use crate::tensor::{Frame, Level, Tensor, TensorError, grad};

fn row(name: &str) -> &'static Op {
    op::table().find(|op| op.name == name).unwrap()
}

fn reduce(name: &str, x: &Tensor, to: Level) -> Tensor {
    let named = |op: &&Op| op.name == name && op.class == op::Class::Reduction;
    let arguments = [Argument::Tensor(x.clone()), Argument::Level(to)];
    op::table().find(named).unwrap().apply(&arguments).unwrap()
}

fn two(name: &str, a: &Tensor, b: &Tensor) -> Tensor {
    try_two(name, a, b).unwrap()
}

fn try_two(name: &str, a: &Tensor, b: &Tensor) -> Result<Tensor, TensorError> {
    row(name).apply(&[Argument::Tensor(a.clone()), Argument::Tensor(b.clone())])
}

fn inputs(frame: &Arc<Frame>, level: Level) -> Tensor {
    let value = |i: usize| (i as f64 * 0.618).fract() - 0.3;
    leaf(frame, level, (0..frame.size(level)).map(value).collect())
}

/// The results of a formula for each group, joined.
fn by_group(
    frame: &Arc<Frame>,
    level: Level,
    inputs: &[&Tensor],
    formula: impl Fn(&[Tensor]) -> Tensor,
) -> Tensor {
    let part = |group: usize| {
        let home = frame.group(group);
        let own: Vec<Tensor> = inputs
            .iter()
            .map(|x| x.select(group, &home).unwrap())
            .collect();
        (group, formula(&own))
    };
    let parts = (0..frame.layout().groups()).map(part).collect();
    Tensor::assemble(frame, level, parts).unwrap()
}

/// GRPO's advantage with a KL penalty, from tensors at response, token and position level.
fn advantage(inputs: &[Tensor]) -> Tensor {
    let [reward, kl, weight] = inputs else {
        panic!("three inputs");
    };
    let spread = two(
        "+",
        &reduce("std", reward, Level::Group),
        &Tensor::number(0.1),
    );
    let score = two(
        "/",
        &two("-", reward, &reduce("mean", reward, Level::Group)),
        &spread,
    );
    two("*", &two("-", &score, &two("*", kl, kl)), weight)
}

#[test]
fn a_formula_over_groups_is_that_over_the_batch_and_so_is_its_gradient() {
    alone(|| {
        let frame = World::small().frame();
        let [reward, kl, weight] =
            [Level::Response, Level::Token, Level::Position].map(|level| inputs(&frame, level));
        let whole = advantage(&[reward.clone(), kl.clone(), weight.clone()]);
        let parts = by_group(&frame, Level::Token, &[&reward, &kl, &weight], advantage);
        assert_eq!(values(&parts), values(&whole));
        let scale = inputs(&frame, Level::Token);
        let loss = |x: &Tensor| reduce("mean", &two("*", x, &scale), Level::Batch);
        for x in [&reward, &kl, &weight] {
            let of_whole = values(&grad(&loss(&whole), x).unwrap());
            let of_parts = values(&grad(&loss(&parts), x).unwrap());
            assert!(of_whole.iter().any(|slope| slope.abs() > 1e-3));
            for (a, b) in of_whole.iter().zip(&of_parts) {
                assert!((a - b).abs() <= 1e-14, "{of_whole:?} {of_parts:?}");
            }
        }
    });
}

/// A value that all groups share gets the sum of all groups' gradients.
#[test]
fn a_batch_tensor_within_groups_gets_the_gradient_of_all() {
    let frame = World::small().frame();
    let reward = inputs(&frame, Level::Response);
    let shared = inputs(&frame, Level::Batch);
    let total = |own: &[Tensor]| two("*", &shared, &reduce("sum", &own[0], Level::Batch));
    let by_group = by_group(&frame, Level::Group, &[&reward], total);
    let whole = two("*", &shared, &reduce("sum", &reward, Level::Group));
    assert_eq!(values(&by_group), values(&whole));
    for x in [&shared, &reward] {
        let slopes = |y: &Tensor| {
            let loss = reduce("sum", &two("*", y, y), Level::Batch);
            values(&grad(&loss, x).unwrap())
        };
        for (a, b) in slopes(&by_group).iter().zip(slopes(&whole)) {
            assert!((a - b).abs() <= 1e-15 * b.abs(), "{a} {b}");
        }
    }
}

/// If a group's results are coarser than the level at which they are joined, each result fills its finer cells.
#[test]
fn numbers_and_batch_values_of_groups_fill_their_responses() {
    let frame = World::small().frame();
    let reward = inputs(&frame, Level::Response);
    let most = |own: &[Tensor]| reduce("max", &own[0], Level::Batch);
    let filled = by_group(&frame, Level::Response, &[&reward], most);
    let expected = reduce("max", &reward, Level::Group)
        .expanded(Level::Response, &frame)
        .unwrap();
    assert_eq!(values(&filled), values(&expected));
    let constant = by_group(&frame, Level::Token, &[], |_| Tensor::number(2.0));
    assert!(values(&constant).iter().all(|&x| x == 2.0));
}

#[test]
fn a_group_that_no_part_was_given_for_has_zeros() {
    let frame = World::small().frame();
    let reward = inputs(&frame, Level::Response);
    let part = reward.select(1, &frame.group(1)).unwrap();
    let only = Tensor::assemble(&frame, Level::Response, vec![(1, part)]).unwrap();
    let all = values(&reward);
    let expected: Vec<f64> = (0..all.len())
        .map(|r| {
            if frame.layout().group_of(r) == 1 {
                all[r]
            } else {
                0.0
            }
        })
        .collect();
    assert_eq!(values(&only), expected);
}

/// Tensors of two groupings are combined at response or token level; the gradient of each is summed over its own groups.
#[test]
fn gradients_find_the_groups_of_each_grouping() {
    alone(|| {
        let world = World::small();
        let frame = world.frame();
        let finer = regrouped(&frame, &[0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
        assert_eq!(finer.layout().groups(), 6);
        let reward = inputs(&frame, Level::Response);
        let kl = inputs(&frame, Level::Token);
        for level in [Level::Group, Level::Position] {
            let (coarse, fine) = (inputs(&frame, level), inputs(&finer, level));
            let loss = |coarse: &Tensor, fine: &Tensor| {
                let mixed = two("*", &two("*", &two("*", &reward, coarse), fine), &kl);
                reduce("sum", &two("*", &mixed, &mixed), Level::Batch)
            };
            let total = loss(&coarse, &fine);
            for (x, of_fine) in [(&coarse, false), (&fine, true)] {
                let slopes = values(&grad(&total, x).unwrap());
                for (i, slope) in slopes.iter().enumerate() {
                    let moved = |step: f64| {
                        let mut there = values(x);
                        there[i] += step;
                        let there = leaf(x.frame().unwrap(), level, there);
                        number(&if of_fine {
                            loss(&coarse, &there)
                        } else {
                            loss(&there, &fine)
                        })
                    };
                    let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                    assert!((slope - expected).abs() <= 1e-8, "{level} {of_fine} {i}");
                }
            }
        }
    });
}

#[test]
fn tensors_of_other_groups_meet_at_finer_levels_and_single_numbers_anywhere() {
    let world = World::small();
    let (one, other) = (world.frame(), world.frame());
    let finer = regrouped(&one, &[0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    let [response, batch] = [Level::Response, Level::Batch].map(|level| inputs(&one, level));
    assert!(try_two("+", &response, &inputs(&finer, Level::Group)).is_ok());
    assert!(try_two("+", &batch, &inputs(&other, Level::Batch)).is_ok());
    assert!(try_two("+", &response, &inputs(&other, Level::Batch)).is_ok());
}

#[test]
fn groups_draw_random_numbers_of_their_own_and_again_the_same() {
    let frame = World::small().frame();
    let draw = |frame: &Arc<Frame>| values(&Tensor::random(frame, Level::Response, 11));
    let (first, second) = (frame.group(0), frame.group(1));
    assert_eq!(draw(&first), draw(&frame.group(0)));
    assert_ne!(draw(&first)[..2], draw(&second)[..2]);
    assert_ne!(draw(&first)[..2], draw(&frame)[..2]);
    assert_ne!(draw(&first.group(0))[..2], draw(&first)[..2]);
    assert!(draw(&frame).iter().all(|x| (0.0..1.0).contains(x)));
}
