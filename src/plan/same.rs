//! Compares two recipes by the normal forms of their graphs, which do not depend on the order of a sum's or product's arguments.

use similar::{Algorithm, ChangeTag, capture_diff_slices};

use super::graph::{Normal, VALUES};
use super::read::{Form, graph_of};
use super::{Plan, params};
use crate::script::{BUILTINS, ParamValue, Recipe};

/// The maximum number of combinations of a built-in's choices that are tried.
const COMBINATIONS: usize = 64;

impl Plan {
    /// Returns whether both plans compute the same numbers for every batch: their formulas must be equal step by step, and depend
    /// only on the columns and the parameters.
    pub fn is_same(&self, other: &Plan) -> bool {
        let is_same = || Normal::of(&self.graph).is_same(&Normal::of(&other.graph));
        self.is_of_every_batch() && other.is_of_every_batch() && is_same()
    }

    /// Returns whether the formula holds for every batch, step and state, and has no values computed outside of tensors.
    fn is_of_every_batch(&self) -> bool {
        let mut nodes = self.graph.nodes.iter();
        !nodes.any(|node| node.row == VALUES) && self.of_every_batch().is_ok()
    }

    /// Returns another built-in that computes the same numbers, if one is found, and its parameters that differ from the
    /// defaults.
    pub fn kin(&self) -> Option<(&'static str, Vec<(String, ParamValue)>)> {
        if !self.is_of_every_batch() {
            return None;
        }
        let own = Normal::of(&self.graph);
        let mut others = BUILTINS
            .iter()
            .filter(|builtin| builtin.name != self.recipe.name());
        others.find_map(|builtin| {
            let recipe = self.recipe.host().load(builtin.name).ok()?;
            let mut hooks = self.graph.results.iter();
            if !hooks.all(|(hook, _)| recipe.has(*hook)) {
                return None;
            }
            let all = combinations(&recipe);
            let found = all
                .iter()
                .find_map(|recipe| self.at_parameters(recipe, &own))?;
            let changed = found.params().iter();
            let changed = changed.filter(|(parameter, setting)| **setting != parameter.default);
            let changed = changed.map(|(of, setting)| (of.name.clone(), setting.clone()));
            Some((builtin.name, changed.collect()))
        })
    }

    /// Returns the recipe with parameters for which its normal form is `wanted`, if such parameters are found.
    fn at_parameters(&self, recipe: &Recipe, wanted: &Normal) -> Option<Recipe> {
        let trace = |recipe: &Recipe| graph_of(recipe, &self.batch, Form::Short);
        let mut graph = trace(recipe)?;
        let own = Normal::of(&graph);
        if !own.has_shape_of(wanted) || own.is_same(wanted) {
            return own.is_same(wanted).then(|| recipe.clone());
        }
        params::dependence(recipe, &mut graph, trace);
        let (own, mut found) = (Normal::of(&graph), recipe.clone());
        for ((own, used), (number, _)) in own.numbers.into_iter().zip(&wanted.numbers) {
            if own.to_bits() != number.to_bits() {
                let (name, value) = used?.solved(*number)?;
                let setting = match recipe.params().get(&name)? {
                    ParamValue::Integer(_) => ParamValue::Integer(value as i64),
                    _ => ParamValue::Number(value),
                };
                found.set(&name, setting).ok()?;
            }
        }
        Normal::of(&trace(&found)?).is_same(wanted).then_some(found)
    }

    /// Compares the statements of two plans line by line: a line that only this plan has begins with `-`, and a line that only
    /// the other plan has begins with `+`.
    pub fn difference(&self, other: &Plan) -> String {
        let (a, b) = (self.statements(), other.statements());
        let changes = capture_diff_slices(Algorithm::Lcs, &a, &b);
        let changes = changes
            .iter()
            .flat_map(|change| change.iter_changes(&a, &b));
        let lines = changes.map(|change| {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            format!("{sign} {}\n", change.value())
        });
        lines.collect()
    }
}

/// Returns copies of a recipe with all combinations of its choices, beginning with the given settings. If there are too many
/// combinations, some parameters keep their settings.
fn combinations(recipe: &Recipe) -> Vec<Recipe> {
    let mut all = vec![recipe.clone()];
    for (parameter, setting) in recipe.params().iter() {
        let is_choice = params::number(setting).is_none() && *setting != ParamValue::Unset;
        let others = params::others(parameter, setting);
        if !is_choice || all.len() * (others.len() + 1) > COMBINATIONS {
            continue;
        }
        let with = |recipe: &Recipe, other: &ParamValue| {
            let mut recipe = recipe.clone();
            recipe.set(&parameter.name, other.clone()).ok()?;
            Some(recipe)
        };
        let recipes = all.iter();
        let more = recipes.flat_map(|recipe| others.iter().filter_map(|other| with(recipe, other)));
        let more: Vec<Recipe> = more.collect();
        all.extend(more);
    }
    all
}
