//! What a hook returned: whether it is what it has to be, and finite; else what to do, and which line made it so.

use std::sync::Arc;

use rhai::Dynamic;

use super::Run;
use crate::batch::Computed;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::bind;
use crate::script::blame::blame;
use crate::script::error::Problem;
use crate::script::recipe::Hook;
use crate::tensor::{Frame, Level, Tensor, TensorError, Value};

impl Run<'_> {
    /// A hook that gives a value to each response or token, computed and checked.
    pub(super) fn signal(&mut self, hook: Hook) -> Result<(Tensor, Computed), Diagnostics> {
        let batch = self.batch();
        let result = self.hook(hook, batch)?;
        let name = hook.name();
        let tensor = result.read_lock::<Tensor>().map(|tensor| tensor.clone());
        let level = tensor.as_ref().map(Tensor::level);
        let help = match level {
            None => instead(&result),
            Some(Level::Response | Level::Token) => "",
            Some(Level::Position) => {
                "the same for all responses of a group is `x.expand(\"token\")`, if that is meant"
            }
            Some(_) => {
                "was a `batch.reward - ` forgotten? The same for all responses is `x.expand(\"response\")`, if that is meant"
            }
        };
        let Some(tensor) = tensor.filter(|_| help.is_empty()) else {
            let found = bind::kind(&result);
            let message =
                format!("`{name}` must return a response or token tensor, it returned {found}");
            let diagnostic = Diagnostic::error(message).with_help(help);
            return Err(self.recipe.at_hook(hook, diagnostic));
        };
        let is_foreign = |frame: &Arc<Frame>| frame.responses != self.frame.responses;
        if tensor.frame().is_some_and(is_foreign) {
            let message =
                format!("`{name}` returned a tensor of one group, not of the whole batch");
            let help = "`batch.map_groups(|g| ...)` puts the groups' results together";
            let diagnostic = Diagnostic::error(message).with_help(help);
            return Err(self.recipe.at_hook(hook, diagnostic));
        }
        let value = tensor
            .evaluate()
            .map_err(|error| self.failed(hook, error))?;
        self.finite(hook, &tensor, &value, &format!("the {name}"))?;
        let computed = value.over(self.input.layout());
        Ok((tensor, computed))
    }

    /// A failure of a computation that happened after the hook returned.
    pub(super) fn failed(&self, hook: Hook, error: TensorError) -> Diagnostics {
        let raised: Box<rhai::EvalAltResult> = Problem::from(error).into();
        self.recipe.failed_in(hook, &raised)
    }

    /// Whether a result is finite; else where it is not, and which line of the script made it so.
    pub(super) fn finite(
        &self,
        hook: Hook,
        tensor: &Tensor,
        value: &Value,
        what: &str,
    ) -> Result<(), Diagnostics> {
        let Some((index, found)) = value.first_not_finite() else {
            return Ok(());
        };
        let message = match value.level() {
            Level::Batch => format!("{what} is {found}"),
            level => {
                let cell = self.input.layout().describe(level, index);
                format!("{what} is {found} at {cell}")
            }
        };
        let diagnostic = Diagnostic::error(message);
        let Some(culprit) = blame(tensor) else {
            return Err(self.recipe.at_hook(hook, diagnostic));
        };
        let diagnostic = culprit.told(diagnostic, &self.recipe.about());
        let diagnostic = match (self.column_of(culprit.tensor()), what) {
            (Some(column), _) => diagnostic.with_help(column),
            (None, GRADIENT) => diagnostic.with_help(
                "the derivative of this is not finite here: that of a root, a power or a std is infinite at 0; `max(x, 1e-12)` keeps away from it",
            ),
            (None, _) => diagnostic,
        };
        Err(match diagnostic.span {
            Some(_) => diagnostic.into(),
            None => self.recipe.at_hook(hook, diagnostic),
        })
    }

    /// The help where the tensor is a column of the batch; `None` for any other.
    fn column_of(&self, tensor: &Tensor) -> Option<String> {
        let value = tensor.evaluate().ok()?;
        let (index, found) = value.first_not_finite()?;
        let names = self.input.column_names();
        let name = names.into_iter().find(|name| {
            let column = self
                .batch()
                .column(name)
                .and_then(|column| Ok(column.evaluate()?));
            // Each hook has tensors of its own for a column: what they hold is the same.
            column.is_ok_and(|column| same_bits(&column, &value))
        })?;
        let cell = self.input.layout().describe(value.level(), index);
        Some(format!("the column `{name}` is {found} at {cell}"))
    }
}

fn same_bits(a: &Value, b: &Value) -> bool {
    let bits = |value: &Value| value.iter().map(f64::to_bits).collect::<Vec<_>>();
    a.level() == b.level() && bits(a) == bits(b)
}

pub(super) const GRADIENT: &str = "dloss/dlogp";

pub(super) const NOTHING: &str = "the last line of the hook is its result: without a `;` after it, and with an `else` to an `if`";

/// The help for a result that is no tensor.
fn instead(result: &Dynamic) -> &'static str {
    if result.is_unit() {
        NOTHING
    } else if bind::number(result).is_some() {
        "a number for all responses is `x + 0 * batch.reward`"
    } else if result.is_array() {
        "arrays cannot be made tensors again: compute with the tensors themselves, without `values()`; `batch.map_groups(|g| ...)` goes group by group"
    } else {
        "return a tensor, such as `batch.reward - batch.reward.mean(\"group\")`"
    }
}
