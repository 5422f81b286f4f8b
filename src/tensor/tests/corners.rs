//! Corner cases: no values, a single value, values that are not finite, huge graphs, and the guard.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cases::cases;
use super::world::{OnThreads, Steps, World, alone, leaf, number, regrouped, values};
use crate::batch::{Buffer, FloatBuffer};
use crate::tensor::error::TensorErrorKind;
use crate::tensor::kernel::Kernel;
use crate::tensor::op::{self, Argument, Class, Derivative, Op};
use crate::tensor::plan::Plan;
use crate::tensor::{Frame, Guard, Level, Stopped, Tensor, grad};

fn named(name: &str, class: Class) -> &'static Op {
    op::table()
        .find(|op| op.name == name && op.class == class)
        .unwrap()
}

fn reduce(name: &str, x: &Tensor, to: Level, selection: Option<&Tensor>) -> Tensor {
    let mut arguments = vec![Argument::Tensor(x.clone()), Argument::Level(to)];
    arguments.extend(selection.map(|s| Argument::Tensor(s.clone())));
    named(name, Class::Reduction).apply(&arguments).unwrap()
}

fn reductions() -> impl Iterator<Item = &'static Op> {
    let is_selective = |op: &&Op| op.params.len() == 3 && op.params[2].name == "selection";
    op::table().filter(move |op| op.class == Class::Reduction && is_selective(op))
}

/// Responses of these lengths in one group; all their tokens count.
pub(super) fn lengths(lengths: &[usize]) -> World {
    let width = lengths.iter().copied().max().unwrap_or(0);
    World {
        groups: vec![0; lengths.len()],
        mask: lengths
            .iter()
            .map(|&length| (0..width).map(|token| token < length).collect())
            .collect(),
    }
}

#[test]
fn every_row_works_on_a_batch_without_tokens() {
    alone(|| {
        for world in [lengths(&[0]), lengths(&[0, 0, 0])] {
            let frame = world.frame();
            for case in op::table().flat_map(cases) {
                let (_, result) = case.apply(&frame, case.inputs(&frame, 7), leaf).unwrap();
                assert_eq!(
                    values(&result).len(),
                    frame.size(result.level()),
                    "{case:?}"
                );
            }
        }
    });
}

#[test]
fn a_reduction_of_nothing_is_0_and_all_is_1() {
    let frame = World::small().frame();
    for op in reductions() {
        let nothing = if op.name == "all" { 1.0 } else { 0.0 };
        let tokens = leaf(&frame, Level::Token, vec![3.0; frame.size(Level::Token)]);
        if !op.name.starts_with("others") {
            let responses = values(&reduce(op.name, &tokens, Level::Response, None));
            assert_eq!((responses[1], responses[6]), (nothing, nothing), "{op:?}");
            assert_eq!(
                values(&reduce(op.name, &tokens, Level::Group, None))[3],
                nothing
            );
        }
        for to in Level::ALL {
            let none = Tensor::number(0.0);
            let reduced = reduce(op.name, &tokens, to, Some(&none));
            assert!(values(&reduced).iter().all(|&x| x == nothing), "{op:?}");
            let slopes = grad(&reduce("sum", &reduced, Level::Batch, None), &tokens).unwrap();
            assert!(values(&slopes).iter().all(|&x| x == 0.0), "{op:?}");
        }
    }
}

#[test]
fn one_alone_is_its_own_mean_and_has_no_deviation() {
    let frame = lengths(&[1]).frame();
    let x = leaf(&frame, Level::Response, vec![0.7]);
    for (name, expected) in [
        ("mean", 0.7),
        ("others_mean", 0.7),
        ("median", 0.7),
        ("logsumexp", 0.7),
        ("std", 0.0),
        ("population_std", 0.0),
        ("variance", 0.0),
        ("others_std", 0.0),
    ] {
        let reduced = reduce(name, &x, Level::Group, None);
        assert_eq!(values(&reduced), [expected], "{name}");
        let slope = grad(&reduce("sum", &reduced, Level::Batch, None), &x).unwrap();
        let expected = if expected == 0.0 { 0.0 } else { 1.0 };
        assert_eq!(values(&slope), [expected], "{name}");
    }
}

/// A group of equal rewards, with the statistics of GRPO's and RLOO's advantages.
#[test]
fn equal_values_have_an_advantage_of_exactly_0() {
    for (value, count) in [
        (0.7, 8),
        (0.1, 3),
        (1.0 / 3.0, 5),
        (1e300, 9),
        (f64::MAX, 33),
        (-f64::MAX, 7),
        (5e-324, 5),
        (-0.0, 4),
        (0.1, 20000),
    ] {
        let frame = lengths(&vec![1; count]).frame();
        for level in [Level::Response, Level::Token] {
            let x = leaf(&frame, level, vec![value; count]);
            for to in [Level::Batch, Level::Group] {
                let one = |name| values(&reduce(name, &x, to, None))[0];
                assert_eq!(one("mean"), value, "{value} x {count}");
                assert_eq!(one("std").to_bits(), 0);
                assert_eq!(one("population_std").to_bits(), 0);
                assert_eq!(one("variance").to_bits(), 0);
                assert_eq!(one("others_std").to_bits(), 0);
                let others = reduce("others_mean", &x, to, None);
                let left = op::sub(&others, &x).unwrap();
                assert!(values(&left).iter().all(|&x| x == 0.0), "{value} x {count}");
            }
        }
    }
}

#[test]
fn nan_and_infinities_reach_their_own_cells_and_no_others() {
    let world = World {
        groups: vec![0, 1, 0, 1],
        mask: vec![vec![true]; 4],
    };
    let frame = world.frame();
    let group = |name, x: [f64; 4]| {
        let x = leaf(&frame, Level::Response, x.to_vec());
        values(&reduce(name, &x, Level::Group, None))
    };
    let nan = f64::NAN;
    let names = "sum mean min max std population_std variance median logsumexp";
    for name in names.split(' ') {
        for first in [[nan, 1.0], [1.0, nan]] {
            let found = group(name, [first[0], 5.0, first[1], 5.0]);
            assert!(found[0].is_nan(), "{name}");
            assert_eq!(found[1], group(name, [0.0, 5.0, 0.0, 5.0])[1], "{name}");
        }
    }
    let inf = f64::INFINITY;
    assert_eq!(group("mean", [inf, -inf, inf, 0.0]), [inf, -inf]);
    assert!(group("mean", [inf, 0.0, -inf, 0.0])[0].is_nan());
    assert_eq!(group("min", [inf, -inf, inf, inf]), [inf, -inf]);
    assert_eq!(group("max", [-inf, -inf, -inf, inf]), [-inf, inf]);
    assert_eq!(group("median", [inf, 1.0, inf, 3.0]), [inf, 2.0]);
    assert_eq!(group("any", [nan, 0.0, 0.0, 0.0]), [1.0, 0.0]);
    assert_eq!(group("count", [nan, inf, 0.0, 0.0]), [2.0, 2.0]);
}

/// At ties, all values equal to the maximum or minimum share its gradient; the median's gradient goes to the values in the middle
/// by rank.
#[test]
fn ties_share_their_gradient() {
    let frame = lengths(&[1; 4]).frame();
    let x = leaf(&frame, Level::Response, vec![2.0, 1.0, 2.0, 1.0]);
    let slopes = |name| {
        let reduced = reduce(name, &x, Level::Batch, None);
        values(&grad(&reduced, &x).unwrap())
    };
    assert_eq!(slopes("max"), [0.5, 0.0, 0.5, 0.0]);
    assert_eq!(slopes("min"), [0.0, 0.5, 0.0, 0.5]);
    assert_eq!(slopes("median"), [0.5, 0.0, 0.0, 0.5]);
    let larger = named("max", Class::Elementwise);
    let (a, b) = (x.clone(), leaf(&frame, Level::Response, vec![2.0; 4]));
    let both = [a.clone(), b].map(Argument::Tensor);
    let total = reduce("sum", &larger.apply(&both).unwrap(), Level::Batch, None);
    assert_eq!(values(&grad(&total, &a).unwrap()), [0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn an_infinite_value_may_be_the_selected_middle() {
    let frame = lengths(&[1; 3]).frame();
    let x = leaf(&frame, Level::Response, vec![1.0, 2.0, f64::INFINITY]);
    let last = leaf(&frame, Level::Response, vec![0.0, 0.0, 1.0]);
    let median = reduce("median", &x, Level::Batch, Some(&last));
    assert_eq!(values(&grad(&median, &x).unwrap()), [0.0, 0.0, 1.0]);
}

#[test]
fn powers_have_a_slope_at_0() {
    let frame = lengths(&[1; 4]).frame();
    let base = leaf(&frame, Level::Response, vec![0.0; 4]);
    let exponent = leaf(&frame, Level::Response, vec![0.0, 1.0, 2.0, 3.0]);
    let power = named("**", Class::Elementwise);
    let both = [base.clone(), exponent.clone()].map(Argument::Tensor);
    let total = reduce("sum", &power.apply(&both).unwrap(), Level::Batch, None);
    assert_eq!(values(&grad(&total, &base).unwrap()), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(values(&grad(&total, &exponent).unwrap()), [0.0; 4]);
}

#[test]
fn rows_on_numbers_alone_are_numbers() {
    for op in op::table() {
        let numbers: Vec<Argument> = op.params.iter().map(|_| Argument::Number(2.0)).collect();
        let elementwise = op
            .params
            .iter()
            .all(|param| param.kind == op::ParamKind::Tensor && !param.optional);
        if !elementwise || matches!(op.name, "grad" | "at_last_token") {
            continue;
        }
        let result = op.apply(&numbers).unwrap();
        assert!(result.as_number().is_some(), "{op:?}");
        assert!(!number(&result).is_nan(), "{op:?}");
    }
    let choose = |n, k| {
        let both = [Argument::Number(n), Argument::Number(k)];
        named("binomial", Class::Combinatorics).apply(&both)
    };
    assert_eq!(number(&choose(5.0, 2.0).unwrap()), 10.0);
    assert_eq!(
        choose(5.5, 2.0).unwrap_err().to_string(),
        "`binomial`: n = 5.5 is not a whole number, for these arguments"
    );
}

#[test]
fn a_chain_of_50000_nodes_evaluates_differentiates_and_drops() {
    alone(|| {
        let guard = Guard::unlimited();
        let frame = lengths(&[1]).frame_with(true, guard.clone());
        let x = leaf(&frame, Level::Response, vec![1.0]);
        let half = Tensor::number(0.5);
        let mut y = x.clone();
        for step in 0..50_000 {
            y = if step % 2 == 0 {
                op::add(&y, &x)
            } else {
                op::mul(&y, &half)
            }
            .unwrap();
        }
        let loss = reduce("sum", &y, Level::Batch, None);
        assert!((number(&loss) - 1.0).abs() < 1e-12);
        let slope = grad(&loss, &x).unwrap();
        assert!((values(&slope)[0] - 1.0).abs() < 1e-12);
        drop((loss, slope, y, x));
        assert_eq!(guard.used(), 0, "all nodes and values were given back");
    });
}

/// The number of different nodes in a graph.
fn nodes(of: &[Tensor]) -> usize {
    Plan::new(of).steps().len()
}

#[test]
fn a_gradient_grows_with_the_graph_and_not_with_its_ways() {
    let frame = lengths(&[1]).frame();
    let slope = |depth: usize| {
        let x = leaf(&frame, Level::Response, vec![1.5]);
        let mut y = x.clone();
        for _ in 0..depth {
            y = op::add(&y, &y).unwrap();
            y = op::mul(&y, &Tensor::number(0.5)).unwrap();
        }
        (grad(&reduce("sum", &y, Level::Batch, None), &x).unwrap(), y)
    };
    let (first, _) = slope(60);
    assert_eq!(values(&first), [1.0], "2^60 ways, each by 2^-60");
    let (single, double) = (nodes(&[slope(60).0]), nodes(&[slope(120).0]));
    assert!(double <= 2 * single, "{single} nodes, then {double}");
    assert!(single <= 60 * 4 + 10, "{single} nodes for a graph of 120");
    // The second derivative too: of x^(2^5), whose derivative has shared nodes of its own.
    let x = leaf(&frame, Level::Response, vec![1.01]);
    let mut y = x.clone();
    for _ in 0..5 {
        y = op::mul(&y, &y).unwrap();
    }
    let first = grad(&reduce("sum", &y, Level::Batch, None), &x).unwrap();
    let second = grad(&reduce("sum", &first, Level::Batch, None), &x).unwrap();
    let expected = 32.0 * 31.0 * 1.01f64.powi(30);
    assert!((values(&second)[0] - expected).abs() <= 1e-12 * expected);
    assert!(nodes(&[second]) < 200);
}

fn doubled(frame: &Arc<Frame>, times: usize) -> Tensor {
    let level = Level::Token;
    let mut x = leaf(frame, level, vec![1.0; frame.size(level)]);
    for _ in 0..times {
        x = op::add(&x, &x).unwrap();
    }
    x
}

/// The number of values that [`CANCELS`] has computed, and the guard that it cancels.
static ASKED: Mutex<(usize, Option<Arc<Guard>>)> = Mutex::new((0, None));

/// [`CANCELS`] cancels the guard from this value on.
const LAST: usize = 10;

static CANCELS: Op = Op {
    name: "cancels",
    class: Class::Combinatorics,
    params: &[],
    doc: "",
    source: "",
    example: "",
    shows: &[],
    kernel: Kernel::Fallible(|x| {
        let mut asked = ASKED.lock().unwrap();
        asked.0 += 1;
        if let Some(guard) = asked.1.as_ref().filter(|_| asked.0 >= LAST) {
            guard.cancel();
        }
        Ok(x[0])
    }),
    derivative: Derivative::Zero,
    build: |_, _| unreachable!("it is built by hand"),
};

#[test]
fn a_cancel_stops_values_that_may_take_long_at_once() {
    let responses = lengths(&[1; 100]);
    for threads in [1, 4] {
        let guard = Guard::unlimited();
        let frame = responses.frame_with(true, guard.clone());
        let size = frame.size(Level::Response);
        let x = leaf(&frame, Level::Response, vec![0.0; size]);
        let long = Tensor::map(&CANCELS, vec![x]).unwrap();
        *ASKED.lock().unwrap() = (0, Some(guard.clone()));
        let ran = OnThreads::new(Steps::Fused, threads).run(&Plan::new(&[long]), &guard);
        let stopped = TensorErrorKind::Stopped(Stopped::Cancelled);
        assert_eq!(ran.unwrap_err().kind, stopped);
        // Each thread may have been computing a value.
        let asked = ASKED.lock().unwrap().0;
        assert!((LAST..LAST + threads).contains(&asked), "{asked} of {size}");
    }
}

/// Values that cancel the guard when they are read, and count the reads.
struct Cancels(Vec<f64>, Arc<Guard>, Arc<AtomicUsize>);

impl AsRef<[f64]> for Cancels {
    fn as_ref(&self) -> &[f64] {
        self.1.cancel();
        self.2.fetch_add(1, Ordering::Relaxed);
        &self.0
    }
}

#[test]
fn a_cancel_in_the_middle_of_a_long_plan_stops_it_there() {
    for (steps, threads) in [(Steps::OneByOne, 1), (Steps::Fused, 1), (Steps::Fused, 4)] {
        let guard = Guard::unlimited();
        let frame = World::large().frame_with(true, guard.clone());
        let size = frame.size(Level::Token);
        let column = |reads: &Arc<AtomicUsize>| {
            let owner = Cancels(vec![0.0; size], guard.clone(), reads.clone());
            Tensor::column(&frame, FloatBuffer::F64(Buffer::new(owner)).into())
        };
        let (first, last) = (Arc::default(), Arc::default());
        let many = (0..1000).fold(column(&first), |x, _| op::add(&x, &x).unwrap());
        let plan = Plan::new(&[op::add(&many, &column(&last)).unwrap()]);
        let ran = OnThreads::new(steps, threads).run(&plan, &guard);
        let stopped = TensorErrorKind::Stopped(Stopped::Cancelled);
        assert_eq!(ran.unwrap_err().kind, stopped);
        let reads = [first, last].map(|reads: Arc<AtomicUsize>| reads.load(Ordering::Relaxed));
        assert!(
            reads[0] > 0 && reads[1] == 0,
            "{steps:?} {threads}: {reads:?}"
        );
    }
}

#[test]
fn a_deadline_that_is_over_stops_everything() {
    let time = Duration::from_nanos(1);
    let frame = World::large().frame_with(true, Guard::new(Some(time), usize::MAX));
    let x = doubled(&frame, 1);
    while frame.context.guard.check().is_ok() {}
    let stopped = TensorErrorKind::Stopped(Stopped::Deadline(time));
    assert_eq!(x.evaluate().unwrap_err().kind, stopped);
}

#[test]
fn the_memory_limit_stops_a_large_value_and_everything_comes_back() {
    let (world, tokens) = (lengths(&[1000; 7]), 7000);
    let limit = tokens * 8 * 4;
    let guard = Guard::new(None, limit);
    let frame = world.frame_with(true, guard.clone());
    let few = doubled(&frame, 50);
    assert!(
        few.evaluate().is_ok(),
        "50 values, two of which live at once"
    );
    assert!(guard.peak() <= limit);
    // These values stay in memory, because each is kept with its tensor.
    let many: Vec<Tensor> = (0..10).map(|_| doubled(&frame, 2)).collect();
    let stopped = many.iter().find_map(|x| x.evaluate().err()).unwrap();
    assert_eq!(
        stopped.kind,
        TensorErrorKind::Stopped(Stopped::Memory { limit })
    );
    drop((few, many));
    assert_eq!(guard.used(), 0);
    // Nodes count too, even if nothing is computed.
    let small = Guard::new(None, 1 << 16);
    let frame = World::small().frame_with(true, small.clone());
    let mut x = leaf(&frame, Level::Response, vec![1.0; 7]);
    let stopped = loop {
        match op::add(&x, &x) {
            Ok(next) => x = next,
            Err(error) => break error,
        }
    };
    assert_eq!(stopped.op, "+");
    drop(x);
    assert_eq!(small.used(), 0);
}

#[test]
fn what_sorts_counts_its_copies() {
    let tokens = World::large().layout().tokens();
    for (name, class) in [("rank", Class::Order), ("median", Class::Reduction)] {
        // There is room for the values and the result, but not for the copies that sorting makes.
        let guard = Guard::new(None, tokens * (8 + 8) + 4096);
        let frame = World::large().frame_with(true, guard.clone());
        let tensor = op::add(
            &leaf(&frame, Level::Token, vec![1.0; tokens]),
            &Tensor::number(1.0),
        );
        let arguments = [
            Argument::Tensor(tensor.unwrap()),
            Argument::Level(Level::Batch),
        ];
        let outcome = named(name, class).apply(&arguments).unwrap().evaluate();
        assert!(outcome.is_err(), "{name}: some 48 bytes a token");
        drop((outcome, arguments));
        assert_eq!(guard.used(), 0);
    }
}

/// f32 has no odd numbers beyond 2^24, and a batch can have more tokens than that.
#[test]
fn ranks_indices_and_coarse_values_are_f64_whatever_they_are_made_from() {
    let frame = World::small().frame_with(false, Guard::unlimited());
    let ones = |level| {
        let buffer = FloatBuffer::from(vec![1.0f32; frame.size(level)]);
        Tensor::from_buffer(&frame, level, buffer).unwrap()
    };
    let (tokens, responses) = (ones(Level::Token), ones(Level::Response));
    for name in ["rank", "index"] {
        let arguments = [
            Argument::Tensor(tokens.clone()),
            Argument::Level(Level::Batch),
        ];
        let places = named(name, Class::Order).apply(&arguments).unwrap();
        assert!(places.is_f64() && !tokens.is_f64());
        let expected = (0..frame.size(Level::Token)).map(|place| place as f64);
        assert_eq!(values(&places), expected.collect::<Vec<_>>());
    }
    let found = responses.evaluate().unwrap();
    assert!(responses.is_f64() && found.buffer().is_f64());
}

#[test]
fn a_cancelled_computation_stops_on_all_threads() {
    let guard = Guard::unlimited();
    let frame = World::large().frame_with(true, guard.clone());
    let x = doubled(&frame, 3);
    guard.cancel();
    let plan = Plan::new(&[x]);
    let error = OnThreads::new(Steps::Fused, 4)
        .run(&plan, &guard)
        .unwrap_err();
    assert_eq!(error.kind, TensorErrorKind::Stopped(Stopped::Cancelled));
}

/// A mean is infinite, and not the largest value, if the sum is too large for f64; but the mean of equal values is always their
/// value.
#[test]
fn a_sum_beyond_f64_is_no_mean() {
    let frame = lengths(&[1, 1, 1]).frame();
    let mean = |values: [f64; 3]| {
        let x = leaf(&frame, Level::Response, values.to_vec());
        number(&reduce("mean", &x, Level::Batch, None))
    };
    assert_eq!(mean([1e308, 0.5e308, 1e308]), f64::INFINITY);
    assert_eq!(mean([-1e308, -0.5e308, -1e308]), f64::NEG_INFINITY);
    assert_eq!(mean([1.7e308; 3]), 1.7e308);
    assert_eq!(mean([1.0, f64::INFINITY, 1.0]), f64::INFINITY);
}

#[test]
fn equal_nodes_are_computed_once() {
    let frame = World::small().frame();
    let reward = leaf(&frame, Level::Response, vec![1.0; 7]);
    let mean = || reduce("mean", &reward, Level::Group, None);
    let twice = op::add(&mean(), &mean()).unwrap();
    assert_eq!(nodes(&[twice]), 3, "the reward, its mean once, and the sum");
    // The same formula over other groups is another node.
    let finer = regrouped(&frame, &[0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    let spread = |frame: &Arc<Frame>| Tensor::number(1.0).expanded(Level::Group, frame).unwrap();
    assert_eq!(nodes(&[spread(&frame), spread(&finer)]), 3);
    assert_eq!(values(&spread(&finer)).len(), 6);
}
