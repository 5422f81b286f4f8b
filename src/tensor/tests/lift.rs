//! What is made of all groups at once is what a loop makes of one after the other, with its gradients, bit for bit.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::properties::{Pick, grow, picks, spread, worlds};
use super::world::{OnThreads, World, bits, leaf, narrow_leaf};
use crate::tensor::alike::NODES;
use crate::tensor::graph::Prim;
use crate::tensor::op::{self, Argument, Op};
use crate::tensor::{Executor, Frame, Guard, Level, Plan, Tensor, TensorError, by_form, grad};

static EXECUTORS: LazyLock<[OnThreads; 3]> = LazyLock::new(|| {
    [
        OnThreads::new(Executor::Naive, 1),
        OnThreads::new(Executor::Fused, 1),
        OnThreads::new(Executor::Fused, 2),
    ]
});

/// The bits of all that is computed together, or what the executor says instead.
fn run(tensors: &[Tensor], executor: &OnThreads) -> Result<Vec<Vec<u64>>, TensorError> {
    let framed: Vec<Tensor> = (tensors.iter().filter(|x| x.frame().is_some()).cloned()).collect();
    let plan = Plan::new(&framed);
    let values = executor.run(&plan, &Guard::unlimited())?;
    let value = |&output: &usize| values[output].as_ref().unwrap();
    Ok(plan
        .outputs()
        .iter()
        .map(|output| bits(value(output)))
        .collect())
}

/// A batch's tensors, one a level, the token tensor in f32 or f64.
fn columns(frame: &Arc<Frame>, is_f64: bool) -> Vec<Tensor> {
    let leaf = if is_f64 { leaf } else { narrow_leaf };
    let column = |(salt, level): (usize, Level)| {
        let of = spread(frame, level, salt).evaluate().unwrap();
        leaf(frame, level, of.iter().collect())
    };
    Level::ALL.into_iter().enumerate().map(column).collect()
}

/// All that some picks make of the columns in each group, group by group. The batch's own value is the same in each.
fn by_group(
    frame: &Arc<Frame>,
    columns: &[Tensor],
    picks: &[Pick],
) -> Vec<(Arc<Frame>, Vec<Tensor>)> {
    let of_group = |group: usize| {
        let home = frame.group(group);
        let select = |column: &Tensor| column.select(group, &home).unwrap();
        let mut leaves: Vec<Tensor> = columns.iter().map(select).collect();
        leaves.push(Tensor::number(0.7));
        let grown = grow(&leaves, picks, &Level::ALL);
        (home, grown)
    };
    (0..frame.layout().groups()).map(of_group).collect()
}

/// The results at an index put together as a loop does it.
fn looped(frame: &Arc<Frame>, groups: &[(Arc<Frame>, Vec<Tensor>)], index: usize) -> Tensor {
    let level = groups[0].1[index].level().join(Level::Group);
    let part = |(group, (home, parts)): (usize, &(Arc<Frame>, Vec<Tensor>))| {
        (group, parts[index].expanded(level, home).unwrap())
    };
    let parts = groups.iter().enumerate().map(part).collect();
    Tensor::assemble(frame, level, parts).unwrap()
}

fn row(name: &str) -> &'static Op {
    op::table().find(|op| op.name == name).unwrap()
}

/// The gradients by each column of a loss that weighs each value by its own square.
fn gradients(result: &Tensor, columns: &[Tensor]) -> Result<Vec<Tensor>, TensorError> {
    let squared = op::mul(result, result)?;
    let arguments = [Argument::Tensor(squared), Argument::Level(Level::Batch)];
    let loss = row("mean").apply(&arguments)?;
    columns.iter().map(|column| grad(&loss, column)).collect()
}

/// Whether a tensor over the whole batch takes part that is no single number.
fn reads_the_whole(part: &Tensor, whole: &Frame) -> bool {
    let is_whole = |x: &Tensor| {
        x.frame()
            .is_some_and(|frame| frame.responses == whole.responses)
    };
    let mut stack = vec![part];
    while let Some(tensor) = stack.pop() {
        if tensor.level() != Level::Batch && is_whole(tensor) {
            return true;
        }
        if !matches!(tensor.inner().prim, Prim::Select(_)) {
            stack.extend(&tensor.inner().args);
        }
    }
    false
}

/// How many nodes a group's graph has.
fn nodes(part: &Tensor) -> usize {
    let (mut seen, mut stack) = (HashSet::new(), vec![part]);
    while let Some(tensor) = stack.pop() {
        if seen.insert(tensor.id()) && !matches!(tensor.inner().prim, Prim::Select(_)) {
            stack.extend(&tensor.inner().args);
        }
    }
    seen.len()
}

fn check(world: &World, is_f64: bool, picks: &[Pick]) -> Result<(), TestCaseError> {
    let frame = world.frame_with(is_f64, Guard::unlimited());
    let columns = columns(&frame, is_f64);
    let made = frame.context.guard.counted();
    let groups = by_group(&frame, &columns, picks);
    let (home, first) = &groups[0];
    for (index, part) in first.iter().enumerate() {
        let at_once = Tensor::lifted(part, home, made);
        let Ok(at_once) = at_once else {
            prop_assert!(reads_the_whole(part, &frame), "not lifted: {:?}", part);
            continue;
        };
        let one_by_one = looped(&frame, &groups, index);
        for executor in EXECUTORS.iter() {
            let found = run(std::slice::from_ref(&at_once), executor);
            prop_assert_eq!(found, run(std::slice::from_ref(&one_by_one), executor));
        }
        match (
            gradients(&at_once, &columns),
            gradients(&one_by_one, &columns),
        ) {
            (Ok(at_once), Ok(one_by_one)) => {
                let found = run(&at_once, &EXECUTORS[1]);
                prop_assert_eq!(found, run(&one_by_one, &EXECUTORS[0]), "by {:?}", part);
            }
            (at_once, one_by_one) => {
                prop_assert_eq!(at_once.unwrap_err().kind, one_by_one.unwrap_err().kind)
            }
        }
    }
    Ok(())
}

/// All that one of two scripts makes of each group, with a number of the group's own: an odd group may have the other.
fn of_two_forms(
    frame: &Arc<Frame>,
    columns: &[Tensor],
    picks: [&[Pick]; 2],
    index: usize,
) -> Vec<(Tensor, Arc<Frame>)> {
    let of_group = |(group, home): (usize, Arc<Frame>)| {
        let select = |column: &Tensor| column.select(group, &home).unwrap();
        let mut leaves: Vec<Tensor> = columns.iter().map(select).collect();
        leaves.push(Tensor::number(0.3 + group as f64 / 7.0));
        leaves.push(Tensor::number(0.3));
        let mut grown = grow(&leaves, picks[group % 2], &Level::ALL);
        let part = grown.drain(..).rev().nth(index);
        (part.unwrap_or(leaves.swap_remove(1)), home)
    };
    frame.groups().enumerate().map(of_group).collect()
}

/// What is computed form by form is the loop's; what is looked at, group after group, is what each has by itself.
fn check_alike(world: &World, is_f64: bool, picks: [&[Pick]; 2]) -> Result<(), TestCaseError> {
    let frame = world.frame_with(is_f64, Guard::unlimited());
    let columns = columns(&frame, is_f64);
    for index in 0..picks[0].len() {
        let parts = of_two_forms(&frame, &columns, picks, index);
        if (parts.iter()).any(|(part, _)| reads_the_whole(part, &frame)) {
            continue;
        }
        let level = parts
            .iter()
            .map(|(part, _)| part.level())
            .fold(Level::Group, Level::join);
        let expanded = parts
            .iter()
            .enumerate()
            .map(|(group, (part, home))| (group, part.expanded(level, home).unwrap()));
        let looped = Tensor::assemble(&frame, level, expanded.collect()).unwrap();
        let Some(by_form) = by_form(&looped, &parts) else {
            let is_large = (parts.iter()).any(|(part, _)| nodes(part) > NODES);
            prop_assert!(is_large, "not by form: {:?}", parts[0].0);
            continue;
        };
        prop_assert_eq!(by_form.is_f64(), looped.is_f64());
        for executor in EXECUTORS.iter() {
            let found = run(std::slice::from_ref(&by_form), executor);
            prop_assert_eq!(found, run(std::slice::from_ref(&looped), executor));
        }
        for (part, _) in parts.iter().filter(|(part, _)| part.frame().is_some()) {
            let alone = run(std::slice::from_ref(part), &EXECUTORS[0]).unwrap();
            prop_assert_eq!(&bits(&part.evaluate().unwrap()), &alone[0]);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn all_groups_at_once_are_the_groups_one_by_one(
        world in worlds(),
        is_f64: bool,
        picks in picks(6),
    ) {
        check(&world, is_f64, &picks)?;
    }

    #[test]
    fn what_differs_by_forms_and_numbers_is_that_of_the_groups_one_by_one(
        world in worlds(),
        is_f64: bool,
        one in picks(6),
        other in picks(6),
        is_one: bool,
    ) {
        let other = if is_one { &one } else { &other };
        check_alike(&world, is_f64, [&one, other])?;
    }
}

/// Groups of more values than a tile holds, interleaved, of which some are selected.
#[test]
fn selections_of_large_groups_go_by_the_same_tiles() {
    let world = World {
        groups: (0..5000).map(|response| response % 2).collect(),
        mask: vec![vec![true]; 5000],
    };
    let frame = world.frame();
    let columns = [spread(&frame, Level::Response, 1)];
    let positive = |x: &Tensor| op::greater(x, &Tensor::number(0.0)).unwrap();
    let total = |x: &Tensor| {
        let [x, level, of] = [
            Argument::Tensor(x.clone()),
            Argument::Level(Level::Batch),
            Argument::Tensor(positive(x)),
        ];
        row("sum").apply(&[x, level, of]).unwrap()
    };
    let parts: Vec<(Arc<Frame>, Vec<Tensor>)> = (0..2)
        .map(|group| {
            let home = frame.group(group);
            let part = total(&columns[0].select(group, &home).unwrap());
            (home, vec![part])
        })
        .collect();
    let at_once = Tensor::lifted(&parts[0].1[0], &parts[0].0, 0).unwrap();
    let one_by_one = looped(&frame, &parts, 0);
    for executor in EXECUTORS.iter() {
        assert_eq!(
            run(std::slice::from_ref(&at_once), executor),
            run(std::slice::from_ref(&one_by_one), executor)
        );
    }
}

/// While a look waits for its tokens, its thread may be given another look at the same batch.
#[test]
fn looks_from_several_threads_at_once_come_to_an_end() {
    const GROUPS: usize = 16;
    let world = World {
        groups: (0..64).map(|response| response % GROUPS as i64).collect(),
        mask: vec![vec![true; 1024]; 64],
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
    let (pool, (done, all)) = (pool.build().unwrap(), std::sync::mpsc::channel());
    for _ in 0..100 {
        let frame = world.frame();
        let tokens = columns(&frame, true).pop().unwrap();
        for (group, home) in frame.groups().enumerate() {
            let own = tokens.select(group, &home).unwrap();
            let squares = op::mul(&own, &own).unwrap();
            let sum = op::sum(&squares, Level::Response).unwrap();
            let done = done.clone();
            pool.spawn(move || done.send(sum.evaluate().is_ok()).unwrap());
        }
    }
    for _ in 0..100 * GROUPS {
        let wait = std::time::Duration::from_secs(60);
        assert_eq!(all.recv_timeout(wait), Ok(true));
    }
}
