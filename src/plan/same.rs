//! Whether two recipes compute the same: formulas in a normal form, in which the order of equal summands does not count.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::formula::{Arg, Formula, VALUES};
use super::{Plan, params, traced_formulas};
use crate::script::{BUILTINS, ParamValue, Recipe};

/// Rows whose two arguments may change places.
const COMMUTATIVE: [&str; 8] = ["+", "*", "min", "max", "==", "!=", "&", "|"];
/// The most combinations of a built-in's choices that are tried.
const COMBINATIONS: usize = 64;

impl Formula {
    /// The same formula with its nodes in an order that follows from the formula alone.
    fn normal(&self) -> Formula {
        let mut of_nodes: Vec<u64> = Vec::new();
        let mut sorted = self.nodes.clone();
        for node in &mut sorted {
            let of_arg = |arg: &Arg| {
                let mut hash = DefaultHasher::new();
                match arg {
                    Arg::Node(node, level) => (of_nodes[*node], *level).hash(&mut hash),
                    Arg::Number(..) => 0.hash(&mut hash),
                    other => format!("{other:?}").hash(&mut hash),
                }
                hash.finish()
            };
            // A level as the second argument makes `min` and `max` reductions, which have no order to change.
            if COMMUTATIVE.contains(&node.row) && !matches!(node.args[1], Arg::Level(_)) {
                node.args.sort_by_key(of_arg);
            }
            let args: Vec<u64> = node.args.iter().map(of_arg).collect();
            let mut hash = DefaultHasher::new();
            let name = node
                .name
                .as_ref()
                .filter(|_| node.row == super::formula::COLUMN);
            (node.row, args, node.level, node.has_own_groups, name).hash(&mut hash);
            of_nodes.push(hash.finish());
        }
        let (mut places, mut order) = (vec![None; sorted.len()], Vec::new());
        let mut stack: Vec<(usize, bool)> = self
            .result
            .node()
            .map(|node| (node, false))
            .into_iter()
            .collect();
        while let Some((node, is_ready)) = stack.pop() {
            if places[node].is_some() {
                continue;
            }
            if is_ready {
                places[node] = Some(order.len());
                order.push(node);
                continue;
            }
            stack.push((node, true));
            let args: Vec<usize> = sorted[node].nodes().collect();
            stack.extend(args.into_iter().rev().map(|arg| (arg, false)));
        }
        let moved = |arg: &Arg| match arg {
            Arg::Node(node, level) => Arg::Node(places[*node].unwrap_or(0), *level),
            other => other.clone(),
        };
        let nodes = order.iter().map(|&node| {
            let mut node = sorted[node].clone();
            node.args = node.args.iter().map(moved).collect();
            node
        });
        Formula {
            hook: self.hook,
            nodes: nodes.collect(),
            result: moved(&self.result),
        }
    }
}

/// The formulas in normal form: all but their numbers, and these.
fn normal(formulas: &[Formula]) -> (String, Vec<f64>) {
    let normal: Vec<Formula> = formulas.iter().map(Formula::normal).collect();
    (
        Plan::shape_of(&normal),
        normal.iter().flat_map(Formula::numbers).collect(),
    )
}

impl Plan {
    /// Whether both plans compute the same numbers on every batch: their formulas are equal step by step, and follow from the
    /// columns and the parameters alone.
    pub fn is_same(&self, other: &Plan) -> bool {
        if !self.is_of_every_batch() || !other.is_of_every_batch() {
            return false;
        }
        let (shape, numbers) = normal(&self.formulas);
        let (other_shape, others) = normal(&other.formulas);
        shape == other_shape && is_equal(&numbers, &others)
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
        let (shape, numbers) = normal(&self.formulas);
        let hooks: Vec<_> = self.formulas.iter().map(|formula| formula.hook).collect();
        let others = BUILTINS
            .iter()
            .filter(|builtin| builtin.name != self.recipe.name());
        for builtin in others {
            let Ok(recipe) = self.recipe.host().load(builtin.name) else {
                continue;
            };
            if !hooks.iter().all(|hook| recipe.has(*hook)) {
                continue;
            }
            for recipe in combinations(&recipe) {
                if let Some(found) = self.at_parameters(&recipe, &shape, &numbers) {
                    let settings = found.params().iter();
                    let changed =
                        settings.filter(|(parameter, setting)| **setting != parameter.default);
                    let changed = changed
                        .map(|(parameter, setting)| (parameter.name.clone(), setting.clone()));
                    return Some((builtin.name, changed.collect()));
                }
            }
        }
        None
    }

    /// A recipe with the parameters at which it has these numbers in a formula of this shape.
    fn at_parameters(&self, recipe: &Recipe, shape: &str, numbers: &[f64]) -> Option<Recipe> {
        let trace = |recipe: &Recipe| traced_formulas(recipe, &self.batch, &|_, _| true);
        let mut formulas = trace(recipe).ok()?;
        let (own_shape, own) = normal(&formulas);
        if own_shape != shape {
            return None;
        }
        if is_equal(&own, numbers) {
            return Some(recipe.clone());
        }
        params::mark(recipe, &mut formulas, trace);
        let mut normal_forms: Vec<Formula> = formulas.iter().map(Formula::normal).collect();
        let made_of = normal_forms.iter_mut().flat_map(Formula::numbers_mut);
        let mut found = recipe.clone();
        for ((own, made_of), number) in made_of.zip(numbers) {
            if own.to_bits() == number.to_bits() {
                continue;
            }
            let (name, value) = made_of.as_ref()?.solved(*number)?;
            let setting = match recipe.params().get(&name)? {
                ParamValue::Integer(_) => ParamValue::Integer(value as i64),
                _ => ParamValue::Number(value),
            };
            found.set(&name, setting).ok()?;
        }
        let (found_shape, own) = normal(&trace(&found).ok()?);
        (found_shape == shape && is_equal(&own, numbers)).then_some(found)
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

fn is_equal(a: &[f64], b: &[f64]) -> bool {
    let mut pairs = a.iter().zip(b);
    a.len() == b.len() && pairs.all(|(a, b)| a.to_bits() == b.to_bits())
}

/// A recipe with each combination of its choices, the defaults first.
fn combinations(recipe: &Recipe) -> Vec<Recipe> {
    let mut all = vec![recipe.clone()];
    for (parameter, setting) in recipe.params().iter() {
        let others: Vec<ParamValue> = match setting {
            ParamValue::Bool(truth) => vec![ParamValue::Bool(!truth)],
            ParamValue::Text(_) => parameter
                .choices
                .iter()
                .cloned()
                .map(ParamValue::Text)
                .collect(),
            _ => Vec::new(),
        };
        let others: Vec<ParamValue> = others
            .into_iter()
            .filter(|other| other != setting)
            .collect();
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
