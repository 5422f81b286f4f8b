//! A recipe step by step: the statements of its hooks with their values on a batch.

use super::names;
use super::read::{Form, Traced};
use super::text::{line_of, source_of};
use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Recipe};

/// A statement of a script that gave a tensor to a variable, or the result of a hook.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The hook that was called.
    pub hook: Hook,
    /// The statement's place and code, as in `line 17: let std = r.std("group");`.
    pub line: String,
    /// The variable; the hook's name for its result.
    pub name: String,
    /// The values.
    pub value: Computed,
}

/// The statements of the hooks that gave a tensor to a variable, line by line, and each hook's result.
///
/// # Errors
/// [`Diagnostics`] if a hook or a value fails.
pub fn steps(recipe: &Recipe, batch: &Batch) -> Result<Vec<Step>, Diagnostics> {
    let traced = Traced::of(recipe, batch, &recipe.init()?, Form::Short)?;
    let (mut steps, renamed) = (Vec::new(), names::renamed(recipe));
    for mut formula in traced.formulas {
        // Of columns, also of derived ones.
        let columns: Vec<Option<String>> =
            formula.nodes.iter().map(|node| node.name.clone()).collect();
        names::name(recipe, &mut formula.nodes);
        let sources = formula.nodes.iter().filter_map(|node| node.origin.as_ref());
        let sources: Vec<&str> = sources.map(|origin| source_of(recipe, origin)).collect();
        let mut shown = Vec::new();
        for (node, column) in formula.nodes.iter().zip(&columns) {
            if let (None, Some(origin), Some(name)) = (column, &node.origin, &node.name) {
                shown.push((source_of(recipe, origin), origin.line, name.as_str(), node));
            }
        }
        for (source, line, name, column) in &renamed {
            let node = formula
                .nodes
                .iter()
                .find(|node| node.name.as_deref() == Some(*column));
            shown.extend(node.map(|node| (*source, *line, *name, node)));
        }
        // The lines of a source together, the source that was computed first before the others.
        shown.sort_by_key(|(source, line, ..)| {
            (sources.iter().position(|first| first == source), *line)
        });
        let result = formula.result.node().map(|node| &formula.nodes[node]);
        let result = result.map(|node| {
            let origin = node.origin.as_ref();
            let (source, line) = origin.map_or(("", 0), |of| (source_of(recipe, of), of.line));
            (source, line, formula.gives(), node)
        });
        for (source, line, name, node) in shown.into_iter().chain(result) {
            let value = node.tensor.evaluate();
            let value = value.map_err(|error| recipe.failed_by(formula.hook, error))?;
            let frame = node.tensor.frame();
            let layout = frame.map_or(batch.layout(), |frame| &frame.layout);
            steps.push(Step {
                hook: formula.hook,
                line: line_of(recipe, source, line).unwrap_or_default(),
                name: name.to_string(),
                value: value.over(layout),
            });
        }
    }
    Ok(steps)
}
