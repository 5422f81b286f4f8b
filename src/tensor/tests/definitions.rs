//! Every row against its definition, written with plain loops over explicit (group, response, token) triples.

use std::cmp::Ordering;

use super::cases::{Case, Slot, cases, is_condition};
use super::world::{Cell, World, alone, leaf};
use crate::tensor::Level;
use crate::tensor::op::{self, Class, Op};

/// A tensor as the definitions see it.
#[derive(Clone, Debug)]
struct Known {
    level: Level,
    cells: Vec<Cell>,
    values: Vec<f64>,
}

impl Known {
    fn new(world: &World, level: Level, values: Vec<f64>) -> Known {
        let cells = world.cells(level);
        assert_eq!(cells.len(), values.len());
        Known {
            level,
            cells,
            values,
        }
    }

    /// The value that a finer cell sees.
    fn seen_from(&self, cell: Cell) -> f64 {
        let own = cell.at(self.level);
        let place = self.cells.iter().position(|&other| other == own);
        self.values[place.unwrap()]
    }
}

/// A case over known tensors, and what its row says of them.
struct Defined<'a> {
    world: &'a World,
    case: &'a Case,
    args: Vec<Known>,
}

impl Defined<'_> {
    fn level(&self) -> Level {
        self.args
            .iter()
            .fold(Level::Batch, |join, arg| join.join(arg.level))
    }

    fn to(&self) -> Level {
        let named = |slot: &Slot| match slot {
            Slot::Level(level) => Some(*level),
            _ => None,
        };
        self.case.slots.iter().find_map(named).unwrap()
    }

    fn number(&self) -> Option<f64> {
        let named = |slot: &Slot| match slot {
            Slot::Number(number) => Some(*number),
            _ => None,
        };
        self.case.slots.iter().find_map(named)
    }

    /// `f` of what each cell of the join sees of all arguments.
    fn each(&self, f: impl Fn(&[f64]) -> f64) -> (Level, Vec<f64>) {
        let level = self.level();
        let cells = self.world.cells(level).into_iter();
        let seen =
            |cell: Cell| -> Vec<f64> { self.args.iter().map(|arg| arg.seen_from(cell)).collect() };
        (level, cells.map(|cell| f(&seen(cell))).collect())
    }

    /// The selected values of the first argument that lie in a cell of `to`.
    fn in_cell(&self, to: Level, cell: Cell) -> Vec<f64> {
        let mut inside = Vec::new();
        for finer in self.world.cells(self.level()) {
            let selected = self
                .args
                .get(1)
                .is_none_or(|selection| selection.seen_from(finer) != 0.0);
            if finer.at(to) == cell && selected {
                inside.push(self.args[0].seen_from(finer));
            }
        }
        inside
    }

    fn reduced(&self, f: impl Fn(&[f64]) -> f64) -> (Level, Vec<f64>) {
        let to = self.to();
        let cells = self.world.cells(to).into_iter();
        (to, cells.map(|cell| f(&self.in_cell(to, cell))).collect())
    }

    /// Each value of the join with those selected in its cell of `to`, and whether it is selected itself.
    fn beside(&self, f: impl Fn(f64, &[f64], bool) -> f64) -> (Level, Vec<f64>) {
        let to = self.to();
        let level = self.level();
        let cells = self.world.cells(level).into_iter();
        let value = |cell: Cell| {
            let selected = self
                .args
                .get(1)
                .is_none_or(|selection| selection.seen_from(cell) != 0.0);
            let inside = self.in_cell(to, cell.at(to));
            f(self.args[0].seen_from(cell), &inside, selected)
        };
        (level, cells.map(value).collect())
    }

    /// For each value, how many in its cell of `to` come before it.
    fn placed(&self, before: impl Fn(f64, f64, bool) -> bool) -> (Level, Vec<f64>) {
        let (to, level) = (self.to(), self.level());
        let cells = self.world.cells(level);
        let value = |at: usize| self.args[0].seen_from(cells[at]);
        let rank = |at: usize| {
            let others = (0..cells.len()).filter(|&other| cells[other].at(to) == cells[at].at(to));
            others
                .filter(|&other| before(value(other), value(at), other < at))
                .count() as f64
        };
        (level, (0..cells.len()).map(rank).collect())
    }

    /// For each value the sum of those in its cell of `to` whose key comes no later.
    fn cumsum_by(&self) -> (Level, Vec<f64>) {
        let (to, level) = (self.to(), self.level());
        let cells = self.world.cells(level);
        let key = |at: usize| self.args[1].seen_from(cells[at]);
        let sum = |at: usize| {
            let no_later = |other: &usize| {
                let order = ascending(key(*other), key(at)).then(other.cmp(&at));
                cells[*other].at(to) == cells[at].at(to) && order.is_le()
            };
            let x = (0..cells.len()).filter(no_later);
            x.map(|other| self.args[0].seen_from(cells[other])).sum()
        };
        (level, (0..cells.len()).map(sum).collect())
    }

    /// 1 for the first selected value of each cell of `to` that is the extreme of those selected.
    fn first_of(&self, extreme: fn(&[f64]) -> f64) -> (Level, Vec<f64>) {
        let (to, level) = (self.to(), self.level());
        let cells = self.world.cells(level);
        let is_it = |cell: &Cell| {
            let selected = self.args.get(1).is_none_or(|by| by.seen_from(*cell) != 0.0);
            let most = extreme(&self.in_cell(to, cell.at(to)));
            selected && self.args[0].seen_from(*cell) == most
        };
        let first = |cell: &Cell| {
            let mut peers = cells.iter().filter(|other| other.at(to) == cell.at(to));
            truth(peers.find(|other| is_it(other)) == Some(cell))
        };
        (level, cells.iter().map(first).collect())
    }

    fn correlation(&self) -> (Level, Vec<f64>) {
        let to = self.to();
        let of_cell = |cell: Cell| {
            let cells = self.world.cells(self.level()).into_iter();
            let inside: Vec<Cell> = cells.filter(|finer| finer.at(to) == cell).collect();
            let [x, y] = [0, 1].map(|arg: usize| -> Vec<f64> {
                let of = |finer: &Cell| self.args[arg].seen_from(*finer);
                inside.iter().map(of).collect()
            });
            let deviations = (variance(&x, 0.0) * variance(&y, 0.0)).sqrt();
            let products: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x * y).collect();
            match inside.is_empty() || deviations < 1e-12 {
                true => 0.0,
                false => (mean(&products) - mean(&x) * mean(&y)) / deviations,
            }
        };
        (to, self.world.cells(to).into_iter().map(of_cell).collect())
    }

    /// For each token, `f` of its response's tokens, of its own index and of its place; for each response, of its trajectory's.
    fn along(&self, f: impl Fn(&[f64], usize, Cell) -> f64) -> (Level, Vec<f64>) {
        let Known {
            level,
            cells,
            values,
        } = &self.args[0];
        let of = match level {
            Level::Response => Level::Trajectory,
            _ => Level::Response,
        };
        let value = |at: usize| {
            let beside = |&other: &usize| cells[other].at(of) == cells[at].at(of);
            let all: Vec<usize> = (0..cells.len()).filter(beside).collect();
            let along: Vec<f64> = all.iter().map(|&other| values[other]).collect();
            let own = all.iter().position(|&other| other == at);
            f(&along, own.unwrap(), cells[at])
        };
        (*level, (0..cells.len()).map(value).collect())
    }

    fn at_last_token(&self) -> (Level, Vec<f64>) {
        let cells = self.world.cells(Level::Token);
        let value = |cell: &Cell| {
            let later = |other: &&Cell| other.response == cell.response && other.token > cell.token;
            match cells.iter().find(later) {
                Some(_) => 0.0,
                None => self.args[0].seen_from(*cell),
            }
        };
        let values = cells.iter().map(value).collect();
        (Level::Token, values)
    }

    fn value(&self) -> (Level, Vec<f64>) {
        let op = self.case.op;
        match (op.class, op.name) {
            (Class::Reduction, "expand") => {
                let cells = self.world.cells(self.to()).into_iter();
                let values = cells.map(|cell| self.args[0].seen_from(cell)).collect();
                (self.to(), values)
            }
            (Class::Reduction, "others_mean") => self.beside(|x, inside, selected| match inside {
                [] => 0.0,
                [_] => mean(inside),
                _ if selected => (sum(inside) - x) / (inside.len() as f64 - 1.0),
                _ => mean(inside),
            }),
            (Class::Reduction, "others_std") => self.beside(|x, inside, selected| {
                let mut others = inside.to_vec();
                if selected {
                    others.remove(inside.iter().position(|&other| other == x).unwrap());
                }
                reduction("std")(&others)
            }),
            (Class::Reduction, "correlation") => self.correlation(),
            (Class::Reduction, "quantile") => {
                let q = self.number().unwrap();
                self.reduced(|x| quantile(x, q))
            }
            (Class::Reduction, name) => self.reduced(reduction(name)),
            (Class::Field, "whiten") => self
                .beside(|x, inside, _| (x - mean(inside)) / variance(inside, 0.0).max(1e-8).sqrt()),
            (Class::Order, "rank") if matches!(self.case.slots.last(), Some(Slot::Choice(1))) => {
                self.beside(|x, inside, _| {
                    let are = |ordering| {
                        let others = inside
                            .iter()
                            .filter(|&&other| ascending(other, x) == ordering);
                        others.count() as f64
                    };
                    are(Ordering::Less) + (are(Ordering::Equal) - 1.0) / 2.0
                })
            }
            (Class::Order, "rank") => {
                self.placed(|other, own, earlier| match ascending(other, own) {
                    Ordering::Less => true,
                    Ordering::Equal => earlier,
                    Ordering::Greater => false,
                })
            }
            (Class::Order, "index") => self.placed(|_, _, earlier| earlier),
            (Class::Order, "cumsum_by") => self.cumsum_by(),
            (Class::Order, "argmax") => self.first_of(reduction("max")),
            (Class::Order, "argmin") => self.first_of(reduction("min")),
            (Class::Order, "softmax") => self.beside(|x, inside, selected| {
                let sum: f64 = inside.iter().map(|x| x.exp()).sum();
                if selected && sum != 0.0 {
                    x.exp() / sum
                } else {
                    0.0
                }
            }),
            (Class::Scan, "at_last_token") => self.at_last_token(),
            (Class::Scan, name) => {
                let number = |cell| match (self.args.get(1), self.number()) {
                    (Some(by), _) => by.seen_from(cell),
                    (None, number) => number.unwrap_or(1.0),
                };
                self.along(|x, t, cell| scan(name, x, t, number(cell)))
            }
            (Class::Field, "grad") => (self.args[1].level, vec![0.0; self.args[1].values.len()]),
            _ => self.each(elementwise(op, &self.case.slots)),
        }
    }
}

fn sum(x: &[f64]) -> f64 {
    x.iter().sum()
}

fn mean(x: &[f64]) -> f64 {
    sum(x) / x.len() as f64
}

fn variance(x: &[f64], ddof: f64) -> f64 {
    let mean = mean(x);
    x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (x.len() as f64 - ddof)
}

/// NaN last.
fn ascending(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    }
}

fn truth(test: bool) -> f64 {
    f64::from(u8::from(test))
}

fn reduction(name: &str) -> fn(&[f64]) -> f64 {
    // Of nothing, each is 0, but `all` is 1.
    match name {
        "sum" => sum,
        "count" => |x| x.len() as f64,
        "any" => |x| truth(x.iter().any(|&x| x != 0.0)),
        "all" => |x| truth(x.iter().all(|&x| x != 0.0)),
        "mean" => |x| if x.is_empty() { 0.0 } else { mean(x) },
        "min" => |x| least(x.to_vec()),
        "max" => |x| -least(x.iter().map(|x| -x).collect()),
        "std" => |x| {
            if x.len() < 2 {
                0.0
            } else {
                variance(x, 1.0).sqrt()
            }
        },
        "population_std" => |x| {
            if x.is_empty() {
                0.0
            } else {
                variance(x, 0.0).sqrt()
            }
        },
        "variance" => |x| if x.len() < 2 { 0.0 } else { variance(x, 1.0) },
        "median" => |x| quantile(x, 0.5),
        "logsumexp" => |x| match x {
            [] => 0.0,
            x => x.iter().map(|x| x.exp()).sum::<f64>().ln(),
        },
        "last" => |x| x.last().copied().unwrap_or(0.0),
        _ => panic!("write down what `{name}` is"),
    }
}

fn quantile(x: &[f64], q: f64) -> f64 {
    let mut x = x.to_vec();
    x.sort_by(|&a, &b| ascending(a, b));
    if x.is_empty() || x.iter().any(|x| x.is_nan()) {
        return if x.is_empty() { 0.0 } else { f64::NAN };
    }
    let place = q * (x.len() as f64 - 1.0);
    let (low, high, share) = (
        x[place.floor() as usize],
        x[place.ceil() as usize],
        place.fract(),
    );
    if low == high {
        low
    } else {
        low * (1.0 - share) + high * share
    }
}

fn least(x: Vec<f64>) -> f64 {
    let first = x.first().copied().unwrap_or(0.0);
    let less = |a: f64, b: f64| if a.is_nan() || a < b { a } else { b };
    x.into_iter().fold(first, |least, x| {
        if least.is_nan() {
            least
        } else {
            less(x, least)
        }
    })
}

fn scan(name: &str, x: &[f64], t: usize, number: f64) -> f64 {
    let discounted = |terms: &mut dyn Iterator<Item = &f64>| -> f64 {
        terms
            .enumerate()
            .map(|(i, x)| number.powi(i as i32) * x)
            .sum()
    };
    match name {
        "cumsum" => discounted(&mut x[..=t].iter().rev()),
        "suffix_sum" => discounted(&mut x[t..].iter()),
        "next" => x.get(t + 1).copied().unwrap_or(number),
        "prev" => t.checked_sub(1).map_or(number, |before| x[before]),
        _ => panic!("write down what `{name}` is"),
    }
}

/// C(n, k) by Pascal's triangle.
fn choose(n: f64, k: f64) -> f64 {
    match (n, k) {
        _ if n < 0.0 || n < k => 0.0,
        (_, 0.0) => 1.0,
        (n, k) => choose(n - 1.0, k - 1.0) + choose(n - 1.0, k),
    }
}

fn kl(kind: &str, d: f64) -> f64 {
    match kind {
        "k1" => d,
        "k2" => d * d / 2.0,
        "k3" => (-d).exp() - 1.0 + d,
        "abs" => d.abs(),
        _ => panic!("write down what kl's `{kind}` is"),
    }
}

/// A formula for each name; nothing here needs to be exact where the row promises to be.
/// A function of the values that meet in one cell.
type OfValues = Box<dyn Fn(&[f64]) -> f64>;

fn elementwise(op: &'static Op, slots: &[Slot]) -> OfValues {
    let kind = || match (slots.last(), op.params.last().map(|param| param.kind)) {
        (Some(&Slot::Choice(choice)), Some(op::ParamKind::Choice(of))) => of[choice],
        _ => panic!("`{}` has a kind as its last parameter", op.name),
    };
    let f: fn(&[f64]) -> f64 = match (op.name, op.params.len()) {
        ("+", _) => |x| x[0] + x[1],
        ("-", 2) => |x| x[0] - x[1],
        ("*", _) => |x| x[0] * x[1],
        ("/", _) => |x| x[0] / x[1],
        ("%", _) => |x| x[0] - (x[0] / x[1]).trunc() * x[1],
        ("**", _) => |x| x[0].powf(x[1]),
        ("-" | "neg", 1) => |x| -x[0],
        ("abs", _) => |x| if x[0] < 0.0 { -x[0] } else { x[0] },
        ("sign", _) => |x| truth(x[0] > 0.0) - truth(x[0] < 0.0),
        ("exp", _) => |x| x[0].exp(),
        ("ln", _) => |x| x[0].ln(),
        ("log1p", _) => |x| (1.0 + x[0]).ln(),
        ("expm1", _) => |x| x[0].exp() - 1.0,
        ("sqrt", _) => |x| x[0].sqrt(),
        ("square", _) => |x| x[0] * x[0],
        ("sigmoid", _) => |x| 1.0 / (1.0 + (-x[0]).exp()),
        ("log_sigmoid", _) => |x| -(1.0 + (-x[0]).exp()).ln(),
        ("tanh", _) => |x| (x[0].exp() - (-x[0]).exp()) / (x[0].exp() + (-x[0]).exp()),
        ("floor", _) => |x| x[0].floor(),
        ("ceil", _) => |x| x[0].ceil(),
        ("round", _) => |x| x[0].round_ties_even(),
        ("clamp", _) => |x| {
            if x[0].max(x[1]) > x[2] {
                x[2]
            } else {
                x[0].max(x[1])
            }
        },
        ("min", _) => |x| if x[0] < x[1] { x[0] } else { x[1] },
        ("max", _) => |x| if x[0] > x[1] { x[0] } else { x[1] },
        ("where", _) => |x| if x[0] == 0.0 { x[2] } else { x[1] },
        ("is_finite", _) => |x| truth(x[0].abs() < f64::INFINITY),
        ("safe_div", _) => |x| if x[1] == 0.0 { 0.0 } else { x[0] / x[1] },
        ("detach", _) => |x| x[0],
        ("<", _) => |x| truth(x[0] < x[1]),
        ("<=", _) => |x| truth(x[0] <= x[1]),
        (">", _) => |x| truth(x[0] > x[1]),
        (">=", _) => |x| truth(x[0] >= x[1]),
        ("==", _) => |x| truth(x[0] == x[1]),
        ("!=", _) => |x| truth(x[0] != x[1]),
        ("&", _) => |x| truth(x[0] != 0.0) * truth(x[1] != 0.0),
        ("|", _) => |x| truth(x[0] != 0.0 || x[1] != 0.0),
        ("!", _) => |x| truth(x[0] == 0.0),
        ("binomial", _) => |x| choose(x[0], x[1]),
        ("ln_binomial", _) => |x| choose(x[0], x[1]).ln(),
        ("binomial_ratio", _) => |x| choose(x[0], x[2]) / choose(x[1], x[2]),
        ("kl", _) => {
            let kind = kind();
            return Box::new(move |x| kl(kind, x[0] - x[1]));
        }
        ("bce_with_logits", _) => |x| {
            let right = 1.0 / (1.0 + (-x[0]).exp());
            -x[1] * right.ln() - (1.0 - x[1]) * (1.0 - right).ln()
        },
        (name, _) => panic!("write down what `{name}` is"),
    };
    Box::new(f)
}

fn check(world: &World, case: &Case, inputs: Vec<Vec<f64>>) {
    let args = case
        .tensors()
        .zip(&inputs)
        .map(|((_, level), values)| Known::new(world, level, values.clone()))
        .collect();
    let (level, expected) = Defined { world, case, args }.value();
    let (_, result) = case.apply(&world.frame(), inputs.clone(), leaf).unwrap();
    assert_eq!(result.level(), level, "{case:?}");
    let found: Vec<f64> = result.evaluate().unwrap().iter().collect();
    assert_eq!(found.len(), expected.len(), "{case:?}");
    for (i, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
        let close = (found - expected).abs() <= 1e-12 * (1.0 + expected.abs());
        assert!(
            found == expected || close || found.is_nan() && expected.is_nan(),
            "{case:?} at {i}: {found}, by definition {expected}; {inputs:?}"
        );
    }
}

#[test]
fn every_row_is_what_its_definition_says() {
    alone(|| {
        let world = World::small();
        let frame = world.frame();
        for case in op::table().flat_map(cases) {
            check(&world, &case, case.inputs(&frame, 5));
        }
    });
}

/// Ties, zeros, NaN and infinities, for the rows whose definition stays exact there.
#[test]
fn ties_and_values_that_are_not_finite_follow_the_definitions_too() {
    let world = World::small();
    let frame = world.frame();
    let some = [
        2.0,
        0.0,
        f64::NAN,
        2.0,
        f64::INFINITY,
        -1.0,
        f64::NEG_INFINITY,
        2.0,
        -1.0,
    ];
    let exact = |op: &&Op| {
        let names = [
            "sum", "count", "any", "all", "min", "max", "mean", "median", "quantile",
        ];
        matches!(op.class, Class::Order | Class::Logic)
            || op.class == Class::Reduction && names.contains(&op.name)
            || ["where", "safe_div", "is_finite", "-", "+"].contains(&op.name)
    };
    alone(|| {
        for case in op::table().filter(exact).flat_map(cases) {
            for turn in 0..some.len() {
                // Each parameter at its own stride, so that all pairs of values meet.
                let draw = |(place, (param, level)): (usize, (&op::Param, Level))| {
                    let value = |i: usize| some[(turn + i * (2 * place + 1)) % some.len()];
                    let values = (0..frame.size(level)).map(value);
                    if is_condition(param) {
                        values.map(|x| truth(x > 0.0)).collect()
                    } else {
                        values.collect()
                    }
                };
                check(
                    &world,
                    &case,
                    case.tensors().enumerate().map(draw).collect(),
                );
            }
        }
    });
}
