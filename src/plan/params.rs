//! Where the parameters of a recipe are in its formula: found by computing the formula again with other values.

use super::Plan;
use super::formula::Formula;
use crate::diagnostic::Diagnostics;
use crate::script::{ParamSpec, ParamValue, Recipe};

/// How a number of a formula follows from parameters: `1 - {0}` of `clip_low`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Use {
    pub(super) pattern: &'static str,
    pub(super) names: Vec<String>,
}

impl Use {
    /// The pattern with the parameters' names, as `named` writes them.
    pub(super) fn written(&self, named: impl Fn(&str) -> String) -> String {
        let mut text = self.pattern.to_string();
        for (index, name) in self.names.iter().enumerate() {
            text = text.replace(&format!("{{{index}}}"), &named(name));
        }
        text
    }
}

impl Use {
    /// The parameter's value at which the number is this one, if the number follows from one parameter in a way that can be solved.
    pub(super) fn solved(&self, number: f64) -> Option<(String, f64)> {
        let [name] = &self.names[..] else {
            return None;
        };
        let value = match self.pattern {
            "{0}" => number,
            "-{0}" => -number,
            "1 - {0}" => 1.0 - number,
            "1 + {0}" | "{0} + 1" => number - 1.0,
            "{0} - 1" => number + 1.0,
            _ => return None,
        };
        // 1 - 0.8 is 0.2 but for the last digits.
        let digits = format!("{value:.12}")
            .parse()
            .ok()
            .filter(|rounded| self.pattern != "{0}" && *rounded != 0.0);
        Some((name.clone(), digits.unwrap_or(value)))
    }
}

type Pattern = (&'static str, fn(f64, f64) -> f64);

/// The expressions of one parameter that recipes have.
const OF_ONE: [Pattern; 9] = [
    ("{0}", |a, _| a),
    ("-{0}", |a, _| -a),
    ("1 - {0}", |a, _| 1.0 - a),
    ("1 + {0}", |a, _| 1.0 + a),
    ("{0} - 1", |a, _| a - 1.0),
    ("{0} + 1", |a, _| a + 1.0),
    ("{0} / 2", |a, _| a / 2.0),
    ("1 / {0}", |a, _| 1.0 / a),
    ("1 / (1 - {0})", |a, _| 1.0 / (1.0 - a)),
];

/// The expressions of two.
const OF_TWO: [Pattern; 4] = [
    ("{0} * {1}", |a, b| a * b),
    ("{0} + {1}", |a, b| a + b),
    ("{0} - {1}", |a, b| a - b),
    ("{0} / {1}", |a, b| a / b),
];

/// The parameters on which numbers of the formulas depend, each with those numbers at another value of it.
struct Moved {
    name: String,
    /// The other value.
    value: f64,
    numbers: Vec<f64>,
}

/// Marks the numbers that follow from parameters. Returns the parameters of which some numbers follow, all others are fixed:
/// another value changes the formula itself, or nothing, or a number in a way that is no simple expression.
pub(super) fn mark(
    recipe: &Recipe,
    formulas: &mut [Formula],
    trace: impl Fn(&Recipe) -> Result<Vec<Formula>, Diagnostics>,
) -> Vec<String> {
    let shape = Plan::shape_of(formulas);
    let numbers: Vec<f64> = formulas.iter().flat_map(Formula::numbers).collect();
    let moved = recipe.params().iter().filter_map(|(parameter, setting)| {
        others(parameter, setting)
            .into_iter()
            .find_map(|(value, other)| {
                let mut moved = recipe.clone();
                moved.set(&parameter.name, other).ok()?;
                let formulas = trace(&moved).ok()?;
                let same = Plan::shape_of(&formulas) == shape;
                same.then(|| Moved {
                    name: parameter.name.clone(),
                    value,
                    numbers: formulas.iter().flat_map(Formula::numbers).collect(),
                })
            })
    });
    let moved: Vec<Moved> = moved.collect();
    let value = |of: &Moved| {
        recipe
            .params()
            .get(&of.name)
            .and_then(number)
            .unwrap_or(f64::NAN)
    };
    let made_of = |index: usize| {
        let is_moved = |of: &&Moved| of.numbers[index].to_bits() != numbers[index].to_bits();
        let by: Vec<&Moved> = moved.iter().filter(is_moved).collect();
        let is = |got: f64, expected: f64| got.to_bits() == expected.to_bits();
        let pattern = match by[..] {
            [a] => OF_ONE.iter().find(|(_, of)| {
                is(of(value(a), 0.0), numbers[index]) && is(of(a.value, 0.0), a.numbers[index])
            }),
            [a, b] => OF_TWO.iter().find(|(_, of)| {
                is(of(value(a), value(b)), numbers[index])
                    && is(of(a.value, value(b)), a.numbers[index])
                    && is(of(value(a), b.value), b.numbers[index])
            }),
            _ => None,
        };
        let names = by.iter().map(|of| of.name.clone()).collect();
        pattern.map(|(pattern, _)| Use { pattern, names })
    };
    let uses: Vec<Option<Use>> = (0..numbers.len()).map(made_of).collect();
    // A parameter that also moves a number in another way cannot be a constant of the file.
    let is_free = |of: &&Moved| {
        let mut all = of.numbers.iter().zip(&numbers).zip(&uses);
        let is_used = |used: &Option<Use>| {
            used.as_ref()
                .is_some_and(|used| used.names.contains(&of.name))
        };
        uses.iter().any(is_used)
            && all.all(|((a, b), used)| a.to_bits() == b.to_bits() || used.is_some())
    };
    let free: Vec<String> = moved
        .iter()
        .filter(is_free)
        .map(|of| of.name.clone())
        .collect();
    let all = formulas.iter_mut().flat_map(Formula::numbers_mut);
    for ((_, made_of), used) in all.zip(uses) {
        *made_of = used.filter(|used| used.names.iter().all(|name| free.contains(name)));
    }
    free
}

pub(super) fn number(setting: &ParamValue) -> Option<f64> {
    match setting {
        ParamValue::Number(number) => Some(*number),
        ParamValue::Integer(whole) => Some(*whole as f64),
        _ => None,
    }
}

/// Other values of a parameter that is a number, within its bounds.
fn others(parameter: &ParamSpec, setting: &ParamValue) -> Vec<(f64, ParamValue)> {
    let (low, high) = (
        parameter.min.unwrap_or(f64::MIN),
        parameter.max.unwrap_or(f64::MAX),
    );
    let others: Vec<(f64, ParamValue)> = match setting {
        ParamValue::Integer(whole) => [whole + 1, whole - 1]
            .map(|other| (other as f64, ParamValue::Integer(other)))
            .to_vec(),
        ParamValue::Number(number) => [number * 1.25 + 0.0625, number * 0.75, number * 0.5 + 0.25]
            .map(|other| (other, ParamValue::Number(other)))
            .to_vec(),
        _ => Vec::new(),
    };
    others
        .into_iter()
        .filter(|(other, _)| (low..=high).contains(other))
        .collect()
}
