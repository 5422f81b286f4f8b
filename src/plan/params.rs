//! Where the parameters of a recipe are in its formula: found by computing the formula again with other values.

use super::graph::{Graph, Normal, Use};
use crate::script::{ParamSpec, ParamValue, Recipe};

/// An expression of one or two parameters, and the first parameter's value at which one of a single parameter is a number.
type Pattern = (&'static str, fn(f64, f64) -> f64, Option<fn(f64) -> f64>);

/// The expressions that recipes have.
const PATTERNS: [Pattern; 13] = [
    ("{0}", |a, _| a, Some(|x| x)),
    ("-{0}", |a, _| -a, Some(|x| -x)),
    ("1 - {0}", |a, _| 1.0 - a, Some(|x| 1.0 - x)),
    ("1 + {0}", |a, _| 1.0 + a, Some(|x| x - 1.0)),
    ("{0} - 1", |a, _| a - 1.0, Some(|x| x + 1.0)),
    ("{0} + 1", |a, _| a + 1.0, Some(|x| x - 1.0)),
    ("{0} / 2", |a, _| a / 2.0, None),
    ("1 / {0}", |a, _| 1.0 / a, None),
    ("1 / (1 - {0})", |a, _| 1.0 / (1.0 - a), None),
    ("{0} * {1}", |a, b| a * b, None),
    ("{0} + {1}", |a, b| a + b, None),
    ("{0} - {1}", |a, b| a - b, None),
    ("{0} / {1}", |a, b| a / b, None),
];

impl Use {
    /// The parameter's value at which the number is this one, if the number follows from one parameter in a way that can be solved.
    pub(super) fn solved(&self, number: f64) -> Option<(String, f64)> {
        let (pattern, _, solved) = PATTERNS.iter().find(|(of, ..)| *of == self.pattern)?;
        let value = (*solved)?(number);
        // 1 - 0.8 is 0.2 but for the last digits.
        let digits = format!("{value:.12}").parse().ok();
        let digits = digits.filter(|rounded| *pattern != "{0}" && *rounded != 0.0);
        Some((self.names[0].clone(), digits.unwrap_or(value)))
    }
}

/// How the formulas depend on a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Numbers of the formulas follow from it.
    Number,
    /// Another value is another formula, or changes a number in a way that is no simple expression.
    Formula,
    /// It changes nothing.
    Unused,
}

/// A parameter that is a number, with the numbers of the formula at another value of it.
struct Moved {
    name: String,
    value: f64,
    other: f64,
    numbers: Vec<f64>,
}

fn is(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

/// How the number at an index follows from the parameters that move it.
fn used(moved: &[Moved], index: usize, number: f64) -> Option<Use> {
    let by = moved.iter().filter(|of| !is(of.numbers[index], number));
    let by: Vec<&Moved> = by.collect();
    // The value of a parameter, with the parameter at a place moved.
    let value = |at: usize, place: usize| {
        let of = by.get(at);
        of.map_or(0.0, |of| if at == place { of.other } else { of.value })
    };
    let pattern = PATTERNS.iter().find(|(pattern, of, _)| {
        let at = |place: usize| of(value(0, place), value(1, place));
        let count = if pattern.contains("{1}") { 2 } else { 1 };
        let mut places = by.iter().enumerate();
        count == by.len()
            && is(at(count), number)
            && places.all(|(place, of)| is(at(place), of.numbers[index]))
    });
    pattern.map(|(pattern, ..)| Use {
        pattern,
        names: by.iter().map(|of| of.name.clone()).collect(),
    })
}

/// The roles of the parameters. Notes in the graph how its numbers follow from them, found by `trace` at other values of each.
pub(super) fn dependence(
    recipe: &Recipe,
    graph: &mut Graph,
    trace: impl Fn(&Recipe) -> Option<Graph>,
) -> Vec<Role> {
    let own = Normal::of(graph);
    let (mut moved, mut unused) = (Vec::new(), Vec::new());
    for (parameter, setting) in recipe.params().iter() {
        let at = |other: &ParamValue| {
            let mut moved = recipe.clone();
            moved.set(&parameter.name, other.clone()).ok()?;
            trace(&moved)
        };
        let others = others(parameter, setting);
        let mut graphs: Vec<Option<Graph>> = others.iter().map(at).collect();
        let is_same =
            |of: &Option<Graph>| of.as_ref().is_some_and(|of| Normal::of(of).is_same(&own));
        if !others.is_empty() && graphs.iter().all(is_same) {
            unused.push(&parameter.name);
        }
        moved.extend(others.iter().zip(&mut graphs).find_map(|(other, graph)| {
            let graph = graph
                .as_mut()
                .filter(|graph| Normal::of(graph).has_shape_of(&own))?;
            Some(Moved {
                name: parameter.name.clone(),
                value: number(setting)?,
                other: number(other)?,
                numbers: graph.numbers().map(|(number, _)| number).collect(),
            })
        }));
    }
    for (index, (number, made_of)) in graph.numbers().enumerate() {
        *made_of = used(&moved, index, number);
    }
    // A parameter that also moves a number in another way cannot be an argument of a function.
    moved.retain(|of| {
        let numbers: Vec<_> = graph.numbers().collect();
        let mut uses = numbers.iter().filter_map(|(_, used)| used.as_ref());
        let mut all = numbers.iter().zip(&of.numbers);
        uses.any(|used| used.names.contains(&of.name))
            && all.all(|((a, used), b)| is(*a, *b) || used.is_some())
    });
    let is_free = |name: &String| moved.iter().any(|of| of.name == *name);
    for (_, used) in graph.numbers() {
        used.take_if(|used| !used.names.iter().all(is_free));
    }
    let roles = recipe
        .params()
        .iter()
        .map(|(parameter, _)| match &parameter.name {
            name if is_free(name) => Role::Number,
            name if unused.contains(&name) => Role::Unused,
            _ => Role::Formula,
        });
    roles.collect()
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
    let mut all = match setting {
        ParamValue::Integer(whole) => [whole + 1, whole - 1].map(ParamValue::Integer).to_vec(),
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
    all.retain(|other| {
        other != setting && number(other).is_none_or(|number| bounds.contains(&number))
    });
    all
}
