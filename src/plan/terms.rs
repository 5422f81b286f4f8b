//! The summands of an advantage or a reward, and how much each of them has to say.

use super::formula::{Arg, Formula};
use super::names;
use super::read::{Form, Traced};
use super::text::written;
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Recipe, State, Statistics};
use crate::tensor::{Tensor, TensorError};

/// A summand of the advantage, or of the reward that the recipe gives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summand {
    /// The hook whose result it is a part of.
    pub hook: Hook,
    /// The variable of the script, or the expression.
    pub name: String,
    /// The standard deviation of its values.
    pub std: f64,
    /// The sum of its absolute values, as a share of that of all summands.
    pub share: f64,
}

impl Summand {
    /// Its numbers as metrics: `advantage/x/std`, `advantage/x/share`.
    pub fn metrics(&self) -> [(String, f64); 2] {
        let name = |what: &str| format!("{}/{}/{what}", self.hook.name(), self.name);
        [(name("std"), self.std), (name("share"), self.share)]
    }
}

/// The summands of the advantage and of the reward that the recipe gives, from a state; none of what is no sum.
///
/// # Errors
/// [`Diagnostics`] if a hook or a summand fails.
pub fn terms(recipe: &Recipe, batch: &Batch, state: &State) -> Result<Vec<Summand>, Diagnostics> {
    let traced = Traced::of(recipe, batch, state, Form::Short)?;
    let mut all = Vec::new();
    for mut formula in traced.formulas {
        if let Hook::Reward | Hook::Advantage = formula.hook {
            names::name(recipe, &mut formula.nodes);
            let terms = of_formula(&formula);
            all.extend(terms.map_err(|error| recipe.failed_by(formula.hook, error))?);
        }
    }
    Ok(all)
}

fn of_formula(formula: &Formula) -> Result<Vec<Summand>, TensorError> {
    let summands = summands(formula);
    let (Some(result), true) = (formula.result.node(), summands.len() > 1) else {
        return Ok(Vec::new());
    };
    let (texts, result) = (formula.inlined().0, &formula.nodes[result].tensor);
    let Some(frame) = result.frame() else {
        return Ok(Vec::new());
    };
    let mut terms = Vec::new();
    for (sign, arg) in summands {
        let tensor = match arg {
            Arg::Number(number, _) => Tensor::number(*number),
            arg => arg
                .node()
                .map_or(result, |node| &formula.nodes[node].tensor)
                .clone(),
        };
        let values: Vec<f64> = tensor
            .expanded(result.level(), frame)?
            .evaluate()?
            .iter()
            .collect();
        let size: f64 = values.iter().map(|value| value.abs()).sum();
        terms.push(Summand {
            hook: formula.hook,
            name: format!("{sign}{}", written(arg, &texts)),
            std: Statistics::of(values.into_iter()).std,
            share: size,
        });
    }
    let all: f64 = terms.iter().map(|term| term.share).sum();
    terms
        .iter_mut()
        .for_each(|term| term.share /= if all > 0.0 { all } else { 1.0 });
    Ok(terms)
}

/// The summands of a result with their signs, in the order of the script.
fn summands(formula: &Formula) -> Vec<(&'static str, &Arg)> {
    let (mut found, mut open) = (Vec::new(), vec![("", &formula.result)]);
    let negated = |sign: &str| if sign.is_empty() { "-" } else { "" };
    while let Some((sign, arg)) = open.pop() {
        let node = arg.node().map(|node| &formula.nodes[node]);
        match node.map(|node| (node.row, &node.args[..])) {
            Some(("+", [a, b])) => open.extend([(sign, b), (sign, a)]),
            Some(("-", [a, b])) => open.extend([(negated(sign), b), (sign, a)]),
            Some(("neg", [a])) => open.push((negated(sign), a)),
            _ => found.push((sign, arg)),
        }
    }
    found
}
