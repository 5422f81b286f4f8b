//! Where the parameters of a recipe are in its formula: found by computing the formula again with other values.

use super::Role;
use super::formula::{Formula, Normal, Use};
use crate::diagnostic::Diagnostics;
use crate::script::{ParamSpec, ParamValue, Recipe};

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

/// A parameter that is a number, with the numbers of the formulas at another value of it.
struct Moved {
    name: String,
    value: f64,
    other: f64,
    numbers: Vec<f64>,
}

/// The roles of the parameters, and how each number of the normal form follows from them, found by `trace` at other values of each.
pub(super) fn dependence(
    recipe: &Recipe,
    own: &Normal,
    trace: impl Fn(&Recipe) -> Result<Vec<Formula>, Diagnostics>,
) -> (Vec<Role>, Vec<Option<Use>>) {
    let (mut moved, mut unused) = (Vec::new(), Vec::new());
    for (parameter, setting) in recipe.params().iter() {
        let at = |other: &ParamValue| {
            let mut moved = recipe.clone();
            moved.set(&parameter.name, other.clone()).ok()?;
            Some(Normal::of(&trace(&moved).ok()?))
        };
        let others = others(parameter, setting);
        let normals: Vec<Option<Normal>> = others.iter().map(at).collect();
        let is_same = |of: &Option<Normal>| of.as_ref().is_some_and(|of| of.is_same(own));
        if !others.is_empty() && normals.iter().all(is_same) {
            unused.push(parameter.name.clone());
        }
        let alike = others.iter().zip(normals).find_map(|(other, normal)| {
            let normal = normal.filter(|normal| normal.has_shape_of(own))?;
            Some(Moved {
                name: parameter.name.clone(),
                value: number(setting)?,
                other: number(other)?,
                numbers: normal.numbers().collect(),
            })
        });
        moved.extend(alike);
    }
    let numbers: Vec<f64> = own.numbers().collect();
    let is = |got: f64, expected: f64| got.to_bits() == expected.to_bits();
    let made_of = |index: usize| {
        let number = numbers[index];
        let by = moved.iter().filter(|of| !is(of.numbers[index], number));
        let by: Vec<&Moved> = by.collect();
        let pattern = match by[..] {
            [a] => OF_ONE.iter().find(|(_, of)| {
                is(of(a.value, 0.0), number) && is(of(a.other, 0.0), a.numbers[index])
            }),
            [a, b] => OF_TWO.iter().find(|(_, of)| {
                is(of(a.value, b.value), number)
                    && is(of(a.other, b.value), a.numbers[index])
                    && is(of(a.value, b.other), b.numbers[index])
            }),
            _ => None,
        };
        let names = by.iter().map(|of| of.name.clone()).collect();
        pattern.map(|(pattern, _)| Use { pattern, names })
    };
    let uses: Vec<Option<Use>> = (0..numbers.len()).map(made_of).collect();
    let of_name = |used: &Option<Use>, name: &String| {
        let used = used.as_ref();
        used.is_some_and(|used| used.names.contains(name))
    };
    // A parameter that also moves a number in another way cannot be a constant of the file.
    let is_free = |of: &&Moved| {
        let mut all = of.numbers.iter().zip(&numbers).zip(&uses);
        uses.iter().any(|used| of_name(used, &of.name))
            && all.all(|((a, b), used)| is(*a, *b) || used.is_some())
    };
    let free = moved.iter().filter(is_free);
    let free: Vec<&String> = free.map(|of| &of.name).collect();
    let of_free = |used: &Use| used.names.iter().all(|name| free.contains(&name));
    let uses = uses.into_iter().map(|used| used.filter(of_free)).collect();
    let role = |name: &String| match (free.contains(&name), unused.contains(name)) {
        (true, _) => Role::Number,
        (_, true) => Role::Unused,
        _ => Role::Formula,
    };
    let roles = recipe
        .params()
        .iter()
        .map(|(parameter, _)| role(&parameter.name));
    (roles.collect(), uses)
}

pub(super) fn number(setting: &ParamValue) -> Option<f64> {
    match setting {
        ParamValue::Number(number) => Some(*number),
        ParamValue::Integer(whole) => Some(*whole as f64),
        _ => None,
    }
}

/// Other values of a parameter: of a number within its bounds, and all other choices.
pub(super) fn others(parameter: &ParamSpec, setting: &ParamValue) -> Vec<ParamValue> {
    let bounds = parameter.min.unwrap_or(f64::MIN)..=parameter.max.unwrap_or(f64::MAX);
    let all = match setting {
        ParamValue::Integer(whole) => vec![
            ParamValue::Integer(whole + 1),
            ParamValue::Integer(whole - 1),
        ],
        ParamValue::Number(number) => [number * 1.25 + 0.0625, number * 0.75, number * 0.5 + 0.25]
            .map(ParamValue::Number)
            .to_vec(),
        ParamValue::Bool(truth) => vec![ParamValue::Bool(!truth)],
        ParamValue::Text(_) => parameter
            .choices
            .iter()
            .cloned()
            .map(ParamValue::Text)
            .collect(),
        ParamValue::Unset => vec![ParamValue::Integer(3)],
        ParamValue::List(_) => Vec::new(),
    };
    let is_other = |other: &ParamValue| {
        other != setting && number(other).is_none_or(|number| bounds.contains(&number))
    };
    all.into_iter().filter(is_other).collect()
}
