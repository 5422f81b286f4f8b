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

mod every_batch;
mod formula;
mod json;
mod latex;
mod names;
mod params;
mod read;
mod rows;
mod same;
mod steps;
mod terms;
mod text;
mod torch;

use self::formula::{Formula, Normal};
use self::read::{Form, Traced};
pub use self::steps::{Step, steps};
pub use self::terms::{Summand, terms};
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Recipe, State};
use crate::tensor::Tensor;

/// The formulas of a recipe's hooks at its parameters.
pub struct Plan {
    recipe: Recipe,
    batch: Batch,
    formulas: Vec<Formula>,
    /// The roles of the recipe's parameters, in their order.
    roles: Vec<Role>,
    /// The tensors whose values the script looked at.
    looked_at: Vec<Tensor>,
    /// The state after one call of the hooks.
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
        let batch = batch.map_or_else(|| read::columns_for(recipe), Batch::clone);
        let form = if is_expanded {
            Form::Expanded
        } else {
            Form::Short
        };
        Plan::in_form(recipe, batch, form)
    }

    fn in_form(recipe: &Recipe, batch: Batch, form: Form) -> Result<Plan, Diagnostics> {
        let Traced {
            mut formulas,
            looked_at,
            state,
        } = Traced::of(recipe, &batch, &recipe.init()?, form)?;
        let normal = Normal::of(&formulas);
        let (roles, uses) =
            params::dependence(recipe, &normal, |recipe| formulas_of(recipe, &batch, form));
        normal.note(&mut formulas, uses);
        for formula in &mut formulas {
            names::name(recipe, &mut formula.nodes);
        }
        Ok(Plan {
            recipe: recipe.clone(),
            batch,
            formulas,
            roles,
            looked_at,
            state,
        })
    }

    /// The parameters of a role, with their values: `eps = 1e-6, gamma = 1.0`.
    fn settings(&self, role: Role) -> String {
        let settings = self.recipe.params().iter().zip(&self.roles);
        let settings = settings.filter(|(_, own)| **own == role);
        let settings =
            settings.map(|((parameter, setting), _)| format!("{} = {setting}", parameter.name));
        settings.collect::<Vec<String>>().join(", ")
    }
}

/// How the formulas depend on a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Numbers of the formulas follow from it.
    Number,
    /// Another value is another formula, or changes a number in a way that is no simple expression.
    Formula,
    /// It changes nothing.
    Unused,
}

fn formulas_of(recipe: &Recipe, batch: &Batch, form: Form) -> Result<Vec<Formula>, Diagnostics> {
    Ok(Traced::of(recipe, batch, &recipe.init()?, form)?.formulas)
}
