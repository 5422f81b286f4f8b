//! A recipe's plan: the formula that its hooks compute, as a derivation to read and as a file of PyTorch.
//!
//! ```
//! use advlab::{Host, plan::Plan};
//!
//! let grpo = Host::new().load("grpo")?;
//! let plan = Plan::of(&grpo, None, false)?;
//! assert!(plan.text().contains("reward.std(group)"));
//! assert!(plan.torch()?.contains("def advantage"));
//! # Ok::<(), advlab::Diagnostics>(())
//! ```

mod formula;
mod latex;
mod names;
mod params;
mod rows;
mod same;
mod text;
mod torch;

use std::collections::HashMap;
use std::sync::Arc;

use self::formula::{Formula, Reader};
use crate::batch::{Batch, Column, FloatBuffer, Level};
use crate::check::usual;
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Recipe, ScriptBatch, State};
use crate::tensor::op::Argument;
use crate::tensor::{Frame, Tensor, Trace};

/// The formulas of a recipe's hooks at its parameters.
pub struct Plan {
    recipe: Recipe,
    batch: Batch,
    /// The formulas for readers; composed rows are one node.
    formulas: Vec<Formula>,
    /// The parameters from which numbers of the formulas follow.
    free: Vec<String>,
    /// The tensors whose values the script looked at.
    looked_at: Vec<Tensor>,
    /// The state after one call of the hooks.
    state: State,
}

/// The formulas of one call of the hooks, the tensors that the script looked at, and the state after the call.
struct Traced {
    formulas: Vec<Formula>,
    looked_at: Vec<Tensor>,
    state: State,
}

impl Plan {
    /// The plan of a recipe over the columns of a batch; if none is given, over all columns that the recipe may read. `is_expanded`
    /// opens composed rows, such as `whiten`.
    ///
    /// # Errors
    /// [`Diagnostics`] if a hook fails.
    pub fn of(
        recipe: &Recipe,
        batch: Option<&Batch>,
        is_expanded: bool,
    ) -> Result<Plan, Diagnostics> {
        let batch = batch.map_or_else(|| columns_for(recipe), Batch::clone);
        Plan::kept(recipe, batch, &|_, _| !is_expanded)
    }

    /// The plan in which the composed rows are one node each that `keeps` accepts.
    fn kept(
        recipe: &Recipe,
        batch: Batch,
        keeps: &dyn Fn(&str, &[Argument]) -> bool,
    ) -> Result<Plan, Diagnostics> {
        let traced = traced(recipe, &recipe.init()?, &batch, keeps)?;
        let mut formulas = traced.formulas;
        let trace = |recipe: &Recipe| traced_formulas(recipe, &batch, keeps);
        let free = params::mark(recipe, &mut formulas, trace);
        for formula in &mut formulas {
            names::name(recipe, &mut formula.nodes);
        }
        Ok(Plan {
            recipe: recipe.clone(),
            batch,
            formulas,
            free,
            looked_at: traced.looked_at,
            state: traced.state,
        })
    }

    /// Whether a tensor is of a single group's batch.
    fn is_of_group(&self, tensor: &Tensor) -> bool {
        let layout = self.batch.layout();
        let own = |frame: &Arc<Frame>| frame.layout.responses() < layout.responses();
        layout.groups() > 1 && tensor.frame().is_some_and(own)
    }

    fn shape_of(formulas: &[Formula]) -> String {
        let shapes: Vec<String> = formulas.iter().map(Formula::shape).collect();
        shapes.join("\n")
    }
}

fn traced_formulas(
    recipe: &Recipe,
    batch: &Batch,
    keeps: &dyn Fn(&str, &[Argument]) -> bool,
) -> Result<Vec<Formula>, Diagnostics> {
    Ok(traced(recipe, &recipe.init()?, batch, keeps)?.formulas)
}

fn traced(
    recipe: &Recipe,
    state: &State,
    batch: &Batch,
    keeps: &dyn Fn(&str, &[Argument]) -> bool,
) -> Result<Traced, Diagnostics> {
    let trace = Arc::new(Trace::default());
    let host = recipe.host().clone().with_trace(&trace);
    let input = ScriptBatch::new(host.call(batch.step()), batch);
    let (hooks, state) = recipe.on(&host).traced(&input, state)?;
    let columns = input.known_columns().into_iter();
    // A derived column is the formula that it is derived by.
    let is_given = |name: &str, tensor: &Tensor| tensor.inner().args.is_empty() || batch.has(name);
    let (given, derived): (Vec<_>, Vec<_>) =
        columns.partition(|(name, tensor)| is_given(name, tensor));
    let by_id = |columns: Vec<(String, Tensor)>| -> HashMap<usize, String> {
        columns
            .into_iter()
            .map(|(name, tensor)| (tensor.id(), name))
            .collect()
    };
    let reader = Reader {
        trace: &trace,
        frame: input.frame(),
        columns: by_id(given),
        derived: by_id(derived),
        keeps,
    };
    let formulas = hooks
        .iter()
        .map(|(hook, tensor)| reader.formula(*hook, tensor));
    Ok(Traced {
        formulas: formulas.collect(),
        looked_at: trace.read(),
        state,
    })
}

/// The usual columns that a recipe may read, and those that losses are given: the advantage of each token, and the weights.
fn columns_for(recipe: &Recipe) -> Batch {
    let usual = usual();
    let reads = |name: &str| {
        recipe.reads().contains(name)
            || matches!(name, "reward" | "old_logp" | "logp" | "advantage")
    };
    let layout = usual.layout().clone();
    let unread: Vec<String> = usual
        .columns()
        .filter(|name| !reads(name) && usual.text(name).is_none())
        .map(str::to_string)
        .collect();
    let batch = unread
        .iter()
        .fold(usual, |batch, name| crate::check::without(&batch, name));
    let of_tokens =
        |value: f64| Column::Token(FloatBuffer::from(vec![value; layout.tokens()]).into());
    let batch = batch.replacing("advantage", of_tokens(0.5));
    if recipe.has(Hook::Weight) && recipe.has(Hook::Loss) {
        let ones = vec![1.0; layout.responses()];
        return batch.replacing("weight", Column::Response(ones.into()));
    }
    batch
}

/// How many values each cell of a level may have.
fn is_by_token(level: Level) -> bool {
    matches!(level, Level::Token | Level::Position)
}
