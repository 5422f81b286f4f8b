//! Whether every batch, step and state has the same formula. A plan is of one call, so a branch on values would be missed.

use std::sync::Arc;

use super::Plan;
use super::formula::Normal;
use super::read::{Form, Traced};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::tensor::{Frame, Tensor};

const LOOKED: &str = "decides here what is computed, so another batch may have another formula";
const USE_WHERE: &str = "`where(condition, a, b)` chooses value by value, and `max(x, 1)` and others work without `value()`";

/// Functions that look at values, what they do that a function of tensors does not, and what to do instead.
const LOOKS: [(&[&str], &str, &str); 3] = [
    (
        &["running", "recall", "remember"],
        "remembers values from step to step, and a function of tensors remembers nothing",
        "give the batch what is remembered as a column of its own",
    ),
    (
        &["regroup", "group_by"],
        "makes groups of the values of the batch, which has no form in PyTorch yet",
        REGROUPED,
    ),
    (&["value", "values", "len", "print"], LOOKED, USE_WHERE),
];

const NUMBER_HELP: &str = "make the number that depends on it a parameter";

pub(super) const REGROUPED: &str =
    "give the batch those groups, and write a file for each grouping";
pub(super) const GROUPS_HELP: &str = "a function that looks at no value is called once for all groups: use `where(condition, a, b)` in it instead of `if`, and no \
    `metric` or `print`";

impl Plan {
    /// The plan in which the rows are nodes that have a form in PyTorch.
    ///
    /// # Errors
    /// [`Diagnostics`] if another batch, step or state would have another formula.
    pub(super) fn of_every_batch(&self) -> Result<Plan, Diagnostics> {
        let plan = Plan::in_form(&self.recipe, self.batch.clone(), Form::Torch)?;
        plan.is_one_formula()?;
        Ok(plan)
    }

    /// Refuses a formula that another batch, step or state would not have.
    fn is_one_formula(&self) -> Result<(), Diagnostics> {
        if let Some(tensor) = self.looked_at.first() {
            return Err(self.looked_at(tensor).into());
        }
        let refused = |what: &str, name: &str, help: &str| {
            let message =
                format!("the formula depends on {what}, which a function of tensors does not know");
            let span = self.recipe.about().use_of(name);
            Err(Diagnostic::error(message).with_help(help).at(span).into())
        };
        // Numbers, not tensors: a branch on them may come at any step and with any batch, so that no trace shows it.
        for (name, what, help) in [
            ("step", "`batch.step`", NUMBER_HELP),
            (
                "groups",
                "the size of the batch",
                "`x.count(level)` counts as a tensor",
            ),
        ] {
            if self.recipe.about().use_of(name).is_some() {
                return refused(what, name, help);
            }
        }
        let later = Traced::of(&self.recipe, &self.batch, &self.state, Form::Torch);
        let own = Normal::of(&self.formulas);
        if !later.is_ok_and(|later| Normal::of(&later.formulas).is_same(&own)) {
            return refused("the state that a step leaves", "this", NUMBER_HELP);
        }
        Ok(())
    }

    /// The error for a tensor whose values the script looked at. A column has no line of its own: it is the line of what looks.
    fn looked_at(&self, tensor: &Tensor) -> Diagnostic {
        let about = self.recipe.about();
        let of_tensor = tensor.origin().and_then(|origin| about.place_of(origin));
        let looks = LOOKS
            .iter()
            .flat_map(|(names, message, help)| names.iter().map(move |name| (name, message, help)));
        let found = looks
            .filter(|_| of_tensor.is_none())
            .find_map(|(name, message, help)| {
                Some((about.use_of(name)?, format!("`{name}` {message}"), help))
            });
        let of_group = self.is_of_group(tensor).then(|| {
            let message = "`map_groups` calls its function group by group here, because it looks at values, reports or draws";
            (of_tensor.clone(), message.to_string(), &GROUPS_HELP)
        });
        let found = of_group.or(found.map(|(span, message, help)| (Some(span), message, help)));
        let (span, message, help) = match found {
            Some((span, message, help)) => (span, message, *help),
            None => (
                of_tensor,
                format!("a value of the batch {LOOKED}"),
                USE_WHERE,
            ),
        };
        Diagnostic::error(message).with_help(help).at(span)
    }

    /// Whether a tensor is of a single group's batch.
    fn is_of_group(&self, tensor: &Tensor) -> bool {
        let layout = self.batch.layout();
        let own = |frame: &Arc<Frame>| frame.layout.responses() < layout.responses();
        layout.groups() > 1 && tensor.frame().is_some_and(own)
    }
}
