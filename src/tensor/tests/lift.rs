//! A formula over a view of all groups at once gives the same as a loop over the groups.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::properties::{grow, picks, spread, worlds};
use super::world::{OnThreads, Steps, World, bits, leaf, narrow_leaf, values};
use crate::tensor::op::{self, Argument, Op};
use crate::tensor::plan::Plan;
use crate::tensor::{Frame, Guard, Level, Tensor, TensorError, grad};

static EXECUTORS: LazyLock<[OnThreads; 3]> = LazyLock::new(|| {
    [
        OnThreads::new(Steps::OneByOne, 1),
        OnThreads::new(Steps::Fused, 1),
        OnThreads::new(Steps::Fused, 2),
    ]
});

/// The bits of a tensor's values, computed by an executor.
fn run(tensor: &Tensor, executor: &OnThreads) -> Result<Vec<u64>, TensorError> {
    let plan = Plan::new(std::slice::from_ref(tensor));
    let values = executor.run(&plan, &Guard::unlimited())?;
    Ok(bits(values[plan.outputs()[0]].as_ref().unwrap()))
}

/// A batch's tensors, one per level; the token tensor is f32 or f64.
fn columns(frame: &Arc<Frame>, is_f64: bool) -> Vec<Tensor> {
    let leaf = if is_f64 { leaf } else { narrow_leaf };
    let column = |(salt, level): (usize, Level)| {
        let of = spread(frame, level, salt).evaluate().unwrap();
        leaf(frame, level, of.iter().collect())
    };
    Level::ALL.into_iter().enumerate().map(column).collect()
}

fn row(name: &str) -> &'static Op {
    op::table().find(|op| op.name == name).unwrap()
}

/// The gradient, with respect to a column, of the mean of the squared values.
fn gradient(result: &Tensor, column: &Tensor) -> Result<Tensor, TensorError> {
    let squared = op::mul(result, result)?;
    let arguments = [Argument::Tensor(squared), Argument::Level(Level::Batch)];
    grad(&row("mean").apply(&arguments)?, column)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn all_groups_at_once_are_the_groups_one_by_one(
        world in worlds(),
        is_f64: bool,
        picks in picks(6),
    ) {
        let frame = world.frame_with(is_f64, Guard::unlimited());
        let (columns, view) = (columns(&frame, is_f64), frame.view());
        let home = |group: usize| frame.group(group);
        let homes: Vec<Arc<Frame>> = (0..frame.layout().groups()).map(home).collect();
        // The nodes so far, of each group; and the same nodes over the view.
        let number = Tensor::number(0.7);
        let with_number = |mut nodes: Vec<Tensor>| {
            nodes.push(number.clone());
            nodes
        };
        let mut groups: Vec<Vec<Tensor>> = (homes.iter().enumerate())
            .map(|(group, home)| {
                let own = columns.iter().map(|column| column.select(group, home).unwrap());
                with_number(own.collect())
            })
            .collect();
        let own = columns.iter().map(|column| column.rehomed(&view).unwrap());
        let mut at_once = with_number(own.collect());
        for pick in &picks {
            let pick = std::slice::from_ref(pick);
            let grown: Vec<Vec<Tensor>> =
                groups.iter().map(|nodes| grow(nodes, pick, &Level::ALL)).collect();
            // Levels that do not fit in a group's own batch may fit in a view.
            if grown[0].is_empty() {
                continue;
            }
            let made = grow(&at_once, pick, &Level::ALL);
            // Over a view, the gradient of a group's loss is an error, after which a script runs group by group. So is a sum of
            // values of the whole batch, which no script has within `map_groups`.
            let is_one_by_one = pick[0].is_row("grad")
                || grown[0].iter().all(|node| node.level() == Level::Batch);
            if made.is_empty() && is_one_by_one {
                continue;
            }
            prop_assert!(!made.is_empty(), "not at once: {:?}", grown[0]);
            groups.iter_mut().zip(grown).for_each(|(nodes, own)| nodes.extend(own));
            at_once.extend(made);
        }
        prop_assert!(view.close_view());
        for index in columns.len() + 1..at_once.len() {
            // A node made only of values of the whole batch belongs to no group.
            let is_of_group = |(nodes, home): (&Vec<Tensor>, &Arc<Frame>)| {
                let (level, frame) = (nodes[index].level(), nodes[index].frame());
                level == Level::Batch || frame.is_none_or(|own| own.responses == home.responses)
            };
            if !groups.iter().zip(&homes).all(is_of_group) {
                continue;
            }
            let level = groups[0][index].level().join(Level::Group);
            let part = |(group, home): (usize, &Arc<Frame>)| {
                (group, groups[group][index].expanded(level, home).unwrap())
            };
            let parts = homes.iter().enumerate().map(part).collect();
            let looped = Tensor::assemble(&frame, level, parts).unwrap();
            let at_once = at_once[index].expanded(level, &frame).unwrap();
            prop_assert_eq!(at_once.is_f64(), looped.is_f64());
            for executor in EXECUTORS.iter() {
                prop_assert_eq!(run(&at_once, executor), run(&looped, executor));
            }
            for column in &columns {
                let (Ok(at_once), Ok(looped)) =
                    (gradient(&at_once, column), gradient(&looped, column))
                else {
                    continue;
                };
                let (at_once, looped) = (values(&at_once), values(&looped));
                let largest = looped.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
                for (a, b) in at_once.iter().zip(&looped) {
                    let is_close = (a - b).abs() <= 1e-5 * largest;
                    prop_assert!(is_close || !a.is_finite() || !b.is_finite(), "{} {}", a, b);
                }
            }
        }
    }
}

/// Interleaved groups with more values than a tile holds; some values are selected.
#[test]
fn selections_of_large_groups_go_by_the_same_tiles() {
    let world = World {
        groups: (0..5000).map(|response| response % 2).collect(),
        mask: vec![vec![true]; 5000],
    };
    let frame = world.frame();
    let column = spread(&frame, Level::Response, 1);
    let total = |x: &Tensor| {
        let is_positive = op::greater(x, &Tensor::number(0.0)).unwrap();
        let [x, level, of] = [
            Argument::Tensor(x.clone()),
            Argument::Level(Level::Batch),
            Argument::Tensor(is_positive),
        ];
        row("sum").apply(&[x, level, of]).unwrap()
    };
    let view = frame.view();
    let at_once = total(&column.rehomed(&view).unwrap());
    assert!(view.close_view());
    let part = |group: usize| {
        let home = frame.group(group);
        let part = total(&column.select(group, &home).unwrap());
        (group, part.expanded(Level::Group, &home).unwrap())
    };
    let looped = Tensor::assemble(&frame, Level::Group, (0..2).map(part).collect()).unwrap();
    for executor in EXECUTORS.iter() {
        assert_eq!(run(&at_once, executor), run(&looped, executor));
    }
}

/// In a view, no value of a group can be read, and a tensor of the batch cannot be combined with it.
#[test]
fn a_view_tells_that_it_was_looked_at_or_mixed() {
    let frame = World::small().frame();
    let column = spread(&frame, Level::Response, 1);
    let view = frame.view();
    let own = column.rehomed(&view).unwrap();
    assert!(own.evaluate().is_err());
    assert!(!view.close_view());
    assert_eq!(values(&own), values(&column));
    let view = frame.view();
    assert!(op::mul(&column.rehomed(&view).unwrap(), &column).is_err());
    assert!(!view.close_view());
}
