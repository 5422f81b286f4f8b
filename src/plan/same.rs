//! Whether two recipes compute the same: formulas in a normal form, in which the order of equal summands does not count.

use super::formula::{Normal, VALUES};
use super::read::Form;
use super::{Plan, formulas_of, params};
use crate::script::{BUILTINS, ParamValue, Recipe};

/// The most combinations of a built-in's choices that are tried.
const COMBINATIONS: usize = 64;

impl Plan {
    /// Whether both plans compute the same numbers on every batch: their formulas are equal step by step, and follow from the
    /// columns and the parameters alone.
    pub fn is_same(&self, other: &Plan) -> bool {
        let is_same = || Normal::of(&self.formulas).is_same(&Normal::of(&other.formulas));
        self.is_of_every_batch() && other.is_of_every_batch() && is_same()
    }

    /// Whether every batch, step and state has this formula, without values that the script made.
    fn is_of_every_batch(&self) -> bool {
        let mut nodes = self.formulas.iter().flat_map(|formula| &formula.nodes);
        !nodes.any(|node| node.row == VALUES) && self.of_every_batch().is_ok()
    }

    /// The built-in that computes the same, and its parameters that are not at their defaults; none for a built-in itself.
    pub fn kin(&self) -> Option<(&'static str, Vec<(String, ParamValue)>)> {
        if !self.is_of_every_batch() {
            return None;
        }
        let own = Normal::of(&self.formulas);
        let others = BUILTINS.iter();
        let mut others = others.filter(|builtin| builtin.name != self.recipe.name());
        others.find_map(|builtin| {
            let recipe = self.recipe.host().load(builtin.name).ok()?;
            let mut hooks = self.formulas.iter().map(|formula| formula.hook);
            if !hooks.all(|hook| recipe.has(hook)) {
                return None;
            }
            let found = combinations(&recipe);
            let found = found
                .iter()
                .find_map(|recipe| self.at_parameters(recipe, &own))?;
            let changed = found.params().iter();
            let changed = changed.filter(|(parameter, setting)| **setting != parameter.default);
            let changed =
                changed.map(|(parameter, setting)| (parameter.name.clone(), setting.clone()));
            Some((builtin.name, changed.collect()))
        })
    }

    /// A recipe with the parameters at which it has this normal form, if there are such.
    fn at_parameters(&self, recipe: &Recipe, wanted: &Normal) -> Option<Recipe> {
        let trace = |recipe: &Recipe| formulas_of(recipe, &self.batch, Form::Short);
        let own = Normal::of(&trace(recipe).ok()?);
        if !own.has_shape_of(wanted) || own.is_same(wanted) {
            return own.is_same(wanted).then(|| recipe.clone());
        }
        let uses = params::dependence(recipe, &own, trace).1;
        let mut found = recipe.clone();
        for ((own, number), used) in own.numbers().zip(wanted.numbers()).zip(uses) {
            if own.to_bits() == number.to_bits() {
                continue;
            }
            let (name, value) = used?.solved(number)?;
            let setting = match recipe.params().get(&name)? {
                ParamValue::Integer(_) => ParamValue::Integer(value as i64),
                _ => ParamValue::Number(value),
            };
            found.set(&name, setting).ok()?;
        }
        let is_found = Normal::of(&trace(&found).ok()?).is_same(wanted);
        is_found.then_some(found)
    }

    /// The statements of both plans, line by line: equal ones, those of this plan alone with `-`, those of the other with `+`.
    pub fn difference(&self, other: &Plan) -> String {
        let (a, b) = (self.statements(), other.statements());
        // The lengths of the longest common rests.
        let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in (0..a.len()).rev() {
            for j in (0..b.len()).rev() {
                common[i][j] = match a[i] == b[j] {
                    true => common[i + 1][j + 1] + 1,
                    false => common[i + 1][j].max(common[i][j + 1]),
                };
            }
        }
        let (mut i, mut j, mut text) = (0, 0, String::new());
        while i < a.len() || j < b.len() {
            let (sign, line) = if i < a.len() && j < b.len() && a[i] == b[j] {
                (i, j) = (i + 1, j + 1);
                (' ', &a[i - 1])
            } else if j == b.len() || i < a.len() && common[i + 1][j] >= common[i][j + 1] {
                i += 1;
                ('-', &a[i - 1])
            } else {
                j += 1;
                ('+', &b[j - 1])
            };
            text += &format!("{sign} {line}\n");
        }
        text
    }
}

/// A recipe with each combination of its choices, the defaults first.
fn combinations(recipe: &Recipe) -> Vec<Recipe> {
    let mut all = vec![recipe.clone()];
    for (parameter, setting) in recipe.params().iter() {
        let is_choice = params::number(setting).is_none() && *setting != ParamValue::Unset;
        let others = params::others(parameter, setting);
        let others: Vec<ParamValue> = others.into_iter().filter(|_| is_choice).collect();
        if all.len() * (others.len() + 1) > COMBINATIONS {
            continue;
        }
        let with = |recipe: &Recipe, other: &ParamValue| {
            let mut recipe = recipe.clone();
            recipe.set(&parameter.name, other.clone()).ok()?;
            Some(recipe)
        };
        let more: Vec<Recipe> = all
            .iter()
            .flat_map(|recipe| others.iter().filter_map(|other| with(recipe, other)))
            .collect();
        all.extend(more);
    }
    all
}
