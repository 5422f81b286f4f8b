//! Rows that are made of several operations are compared with their definitions. The oracle defines the single operations.

use std::sync::Arc;

use super::cases::{Case, Slot, cases, is_condition};
use super::oracle::{Cells, check, reduce, sum};
use super::world::{ALONE, World, alone, leaf};
use crate::tensor::kernel::Kernel;
use crate::tensor::op::{self, Class, Op, ParamKind};
use crate::tensor::{Frame, Level};

/// The values of a row by its definition; `None` for a row of a single operation.
fn defined(case: &Case, cells: &Cells, args: &[Vec<f64>]) -> Option<Vec<f64>> {
    let levels: Vec<Level> = case.tensors().map(|(_, level)| level).collect();
    let join = levels
        .iter()
        .fold(Level::Batch, |join, level| join.join(*level));
    let seen = |arg: usize, cell: usize| args[arg][cells.parents(join, levels[arg])[cell]];
    let named = |slot: &Slot| match slot {
        Slot::Level(level) => Some(*level),
        _ => None,
    };
    let members = || match case.slots.iter().find_map(named) {
        Some(to) => cells.members(join, to),
        None => panic!("`{}` has a level", case.op.name),
    };
    let is_selected = |cell: usize| levels.len() < 2 || seen(1, cell) != 0.0;
    let inside = |members: &[usize]| -> Vec<f64> {
        let selected = members.iter().filter(|&&cell| is_selected(cell));
        selected.map(|&cell| seen(0, cell)).collect()
    };
    // `f` of the selected values of each cell.
    let reduced = |f: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
        let cells = members().into_iter();
        cells.map(|members| f(&inside(&members))).collect()
    };
    // `f` of each value, of the selected values of its cell, and of whether the value itself is selected.
    let beside = |f: &dyn Fn(f64, &[f64], bool) -> f64| -> Vec<f64> {
        let mut out = vec![0.0; cells.size(join)];
        for members in members() {
            let others = inside(&members);
            for cell in members {
                out[cell] = f(seen(0, cell), &others, is_selected(cell));
            }
        }
        out
    };
    // 1 for the first selected value that equals the extreme of its cell.
    let first_of = |extreme: &str| -> Vec<f64> {
        let mut out = vec![0.0; cells.size(join)];
        for members in members() {
            let most = reduce(extreme, &inside(&members)).0;
            let is_it = |cell: &&usize| is_selected(**cell) && seen(0, **cell) == most;
            if let Some(&first) = members.iter().find(is_it) {
                out[first] = 1.0;
            }
        }
        out
    };
    let each = |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        let cells = 0..cells.size(join);
        cells.map(|cell| f(seen(0, cell), seen(1, cell))).collect()
    };
    Some(match (case.op.name, case.slots.last()) {
        ("any", _) => reduced(&|x| truth(x.iter().any(|&x| x != 0.0))),
        ("all", _) => reduced(&|x| truth(x.iter().all(|&x| x != 0.0))),
        ("last", _) => reduced(&|x| x.last().copied().unwrap_or(0.0)),
        ("variance", _) => reduced(&|x| reduce("std", x).0.powi(2)),
        ("median", _) => reduced(&|x| quantile(x, 0.5)),
        ("quantile", _) => {
            let number = |slot: &Slot| match slot {
                Slot::Number(number) => Some(*number),
                _ => None,
            };
            let q = case.slots.iter().find_map(number)?;
            reduced(&|x| quantile(x, q))
        }
        ("logsumexp", _) => reduced(&|x| match x {
            [] => 0.0,
            x => x.iter().map(|x| x.exp()).sum::<f64>().ln(),
        }),
        ("correlation", _) => {
            let of = |members: Vec<usize>| {
                let column = |arg| members.iter().map(|&cell| seen(arg, cell)).collect();
                let [x, y]: [Vec<f64>; 2] = [column(0), column(1)];
                let [mean_x, mean_y] = [&x, &y].map(|x| reduce("mean", x).0);
                let products = x.iter().zip(&y).map(|(x, y)| (x - mean_x) * (y - mean_y));
                let [std_x, std_y] = [&x, &y].map(|x| reduce("population_std", x).0);
                match std_x * std_y < 1e-12 {
                    true => 0.0,
                    false => sum(&products.collect::<Vec<_>>()) / x.len() as f64 / (std_x * std_y),
                }
            };
            members().into_iter().map(of).collect()
        }
        ("others_mean", _) => beside(&|x, inside, is_selected| match inside {
            [] => 0.0,
            [one] => *one,
            _ if is_selected => (sum(inside) - x) / (inside.len() as f64 - 1.0),
            _ => reduce("mean", inside).0,
        }),
        ("whiten", _) => beside(&|x, inside, _| {
            let variance = reduce("population_std", inside).0.powi(2);
            (x - reduce("mean", inside).0) / variance.max(1e-8).sqrt()
        }),
        ("softmax", _) => beside(&|x, inside, is_selected| {
            let sum: f64 = inside.iter().map(|x| x.exp()).sum();
            let share = if sum == 0.0 { 0.0 } else { x.exp() / sum };
            if is_selected { share } else { 0.0 }
        }),
        // Ties have the mean of their ranks; NaN values come last, as ties.
        ("rank", Some(Slot::Choice(1))) => beside(&|x, inside, _| {
            let is_before = |y: f64| y < x || x.is_nan() && !y.is_nan();
            let is_tied = |y: f64| y == x || x.is_nan() && y.is_nan();
            let count = |is: &dyn Fn(f64) -> bool| inside.iter().filter(|y| is(**y)).count() as f64;
            count(&is_before) + (count(&is_tied) - 1.0) / 2.0
        }),
        ("argmax", _) => first_of("max"),
        ("argmin", _) => first_of("min"),
        ("bce_with_logits", _) => each(&|x, label| {
            let right = 1.0 / (1.0 + (-x).exp());
            -label * right.ln() - (1.0 - label) * (1.0 - right).ln()
        }),
        ("kl", Some(&Slot::Choice(choice))) => {
            let Some(ParamKind::Choice(kinds)) = case.op.params.last().map(|param| param.kind)
            else {
                panic!("the kind of `kl` is its last parameter");
            };
            let kl: fn(f64) -> f64 = match kinds[choice] {
                "k1" => |d| d,
                "k2" => |d| d * d / 2.0,
                "k3" => |d| (-d).exp() - 1.0 + d,
                "abs" => f64::abs,
                other => panic!("write down what kl's `{other}` is"),
            };
            each(&|x, y| kl(x - y))
        }
        ("grad", _) => vec![0.0; args[1].len()],
        (name, _) => {
            let is_single = !matches!(case.op.kernel, Kernel::Composed)
                || ["expand", "at_last_token"].contains(&name);
            assert!(is_single, "write down what `{name}` is");
            return None;
        }
    })
}

fn truth(test: bool) -> f64 {
    f64::from(u8::from(test))
}

fn quantile(x: &[f64], q: f64) -> f64 {
    let mut x = x.to_vec();
    x.sort_by(f64::total_cmp);
    if x.is_empty() || x.iter().any(|x| x.is_nan()) {
        return if x.is_empty() { 0.0 } else { f64::NAN };
    }
    let place = q * (x.len() as f64 - 1.0);
    let [low, high] = [place.floor(), place.ceil()].map(|place| x[place as usize]);
    match low == high {
        true => low,
        false => low * (1.0 - place.fract()) + high * place.fract(),
    }
}

/// Checks a case by its definition, and each of its operations by the oracle.
fn check_case(frame: &Arc<Frame>, cells: &Cells, case: &Case, inputs: Vec<Vec<f64>>) {
    let (_, result) = case.apply(frame, inputs.clone(), leaf).unwrap();
    let checked = check(&ALONE, cells, &[result]);
    let found = checked.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let Some(expected) = defined(case, cells, &inputs) else {
        return;
    };
    let found = &found[0];
    assert_eq!(found.len(), expected.len(), "{case:?}");
    for (i, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
        let is_close = (found - expected).abs() <= 1e-12 * (1.0 + expected.abs());
        assert!(
            found == expected || is_close || found.is_nan() && expected.is_nan(),
            "{case:?} at {i}: {found}, by definition {expected}; {inputs:?}"
        );
    }
}

#[test]
fn every_row_is_what_its_definition_says() {
    alone(|| {
        let world = World::small();
        let (frame, cells) = (world.frame(), Cells::of(&world));
        for case in op::table().flat_map(cases) {
            check_case(&frame, &cells, &case, case.inputs(&frame, 5));
        }
    });
}

/// Ties, zeros, NaN and infinities, for the rows whose definition stays exact there.
#[test]
fn ties_and_values_that_are_not_finite_follow_the_definitions_too() {
    let world = World::small();
    let (frame, cells) = (world.frame(), Cells::of(&world));
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let some = [2.0, 0.0, nan, 2.0, inf, -1.0, -inf, nan, -1.0];
    let is_exact = |op: &&Op| {
        let names = [
            "sum",
            "count",
            "any",
            "all",
            "min",
            "max",
            "mean",
            "median",
            "quantile",
            "where",
            "safe_div",
            "is_finite",
            "-",
            "+",
        ];
        matches!(op.class, Class::Order | Class::Logic) || names.contains(&op.name)
    };
    alone(|| {
        for case in op::table().filter(is_exact).flat_map(cases) {
            for turn in 0..some.len() {
                // Each parameter has its own stride, so that all pairs of values occur at the tokens.
                let draw = |(place, (param, level)): (usize, (&op::Param, Level))| {
                    let value = |i: usize| some[(turn + i * (2 * place + 1)) % some.len()];
                    let values = (0..frame.size(level)).map(value);
                    match is_condition(param) {
                        true => values.map(|x| truth(x > 0.0)).collect(),
                        false => values.collect(),
                    }
                };
                let inputs = case.tensors().enumerate().map(draw).collect();
                check_case(&frame, &cells, &case, inputs);
            }
        }
    });
}
