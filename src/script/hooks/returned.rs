//! Checks the result of a hook: its type, its level, and that it is finite; else which line made it so, and what to do.

use std::sync::Arc;

use ndarray::ArrayViewMut2;
use rhai::Dynamic;

use super::{Placed, Run};
use crate::batch::Rows;
use crate::diagnostic::{Diagnostic, Diagnostics, ProblemKind};
use crate::script::error::Problem;
use crate::script::recipe::Hook;
use crate::script::{bind, explain};
use crate::tensor::{Level, Origin, Tensor, TensorError, Value};

/// A tensor that a hook is to give, not yet computed.
#[derive(Clone, Copy)]
pub(super) struct Returned<'a> {
    hook: Hook,
    pub(super) tensor: &'a Tensor,
    /// The loss whose gradient it is.
    loss: Option<&'a Tensor>,
}

impl<'a> Returned<'a> {
    pub(super) fn of(hook: Hook, tensor: &'a Tensor) -> Self {
        let loss = None;
        Returned { hook, tensor, loss }
    }

    pub(super) fn gradient(loss: &'a Tensor, tensor: &'a Tensor) -> Self {
        let (hook, loss) = (Hook::Loss, Some(loss));
        Returned { hook, tensor, loss }
    }

    /// As messages call it.
    fn what(&self) -> String {
        match self.loss {
            Some(_) => GRADIENT.to_string(),
            None => format!("the {}", self.hook.name()),
        }
    }
}

impl Run<'_> {
    /// A hook that gives a value to each response or token, not yet computed.
    pub(super) fn signal(&mut self, hook: Hook) -> Result<Tensor, Diagnostics> {
        let batch = self.batch();
        let result = self.hook(hook, batch)?;
        let name = hook.name();
        let tensor = result.read_lock::<Tensor>().map(|tensor| tensor.clone());
        let is_weight = hook == Hook::Weight;
        let frame = tensor.as_ref().and_then(Tensor::frame);
        if frame.is_some_and(|frame| frame.responses != self.input.frame().responses) {
            let message =
                format!("`{name}` returned a tensor of one group, not of the whole batch");
            let help = "`batch.map_groups(|g| ...)` puts the groups' results together";
            return Err(self.error(hook, message, help));
        }
        let tensor = match tensor {
            Some(tensor) if tensor.level() == Level::Response => tensor,
            Some(tensor) if tensor.level() == Level::Token && !is_weight => tensor,
            // A number is what one branch of a function gives: no group may have taken the other one. What filters say of
            // a group, they say of its responses.
            Some(tensor)
                if tensor.is_number_of_each_group()
                    || tensor.level() == Level::Trajectory
                    || is_weight && tensor.level().contains(Level::Response) =>
            {
                let spread = tensor.expanded(Level::Response, self.input.frame());
                spread.map_err(|error| self.failed(hook, error))?
            }
            other => {
                let (wanted, help) = match is_weight {
                    true => ("response", WEIGHT.to_string()),
                    false => (
                        "response or token",
                        instead(&result, other.map(|x| x.level())),
                    ),
                };
                let found = bind::kind(&result);
                let message =
                    format!("`{name}` must return a {wanted} tensor, it returned {found}");
                return Err(self.error(hook, message, &help));
            }
        };
        Ok(tensor)
    }

    /// Computes what a hook returned, its loss, and the metrics that it reported in one go: what they share, once. Checks
    /// that the loss is finite.
    fn compute<R>(
        &self,
        returned: &Returned<'_>,
        run: impl FnOnce(&[Tensor]) -> Result<R, TensorError>,
    ) -> Result<R, Diagnostics> {
        let failed = |error| self.failed(returned.hook, error);
        let mut all = vec![returned.tensor.clone()];
        all.extend(returned.loss.cloned());
        self.input
            .call()
            .report(|reports| all.extend(reports.metric_tensors().cloned()));
        let result = run(&all).map_err(failed)?;
        if let Some(loss) = returned.loss {
            let value = loss.evaluate().map_err(failed)?;
            self.finite(returned.hook, loss, &value, "the loss")?;
        }
        Ok(result)
    }

    /// What a hook returned: its values, or written into an array of their shape.
    pub(super) fn place(
        &self,
        returned: &Returned<'_>,
        array: Option<&mut ArrayViewMut2<'_, f32>>,
    ) -> Result<Placed, Diagnostics> {
        let Some(array) = array else {
            let value = self.value(returned)?;
            return Ok(Placed::Values(value.over(self.input.frame().layout())));
        };
        self.write(returned, array)?;
        Ok(Placed::Written(returned.tensor.level()))
    }

    /// The values of what a hook returned.
    pub(super) fn value(&self, returned: &Returned<'_>) -> Result<Arc<Value>, Diagnostics> {
        let Returned { hook, tensor, .. } = *returned;
        self.compute(returned, Tensor::evaluate_together)?;
        let value = tensor.evaluate();
        let value = value.map_err(|error| self.failed(hook, error))?;
        self.finite(hook, tensor, &value, &returned.what())?;
        Ok(value)
    }

    /// Writes the values of what a hook returned into a padded array of their shape.
    fn write(
        &self,
        returned: &Returned<'_>,
        array: &mut ArrayViewMut2<'_, f32>,
    ) -> Result<(), Diagnostics> {
        let is_written = match Rows::of(array) {
            Some(rows) => self.compute(returned, |all| Tensor::evaluate_into(all, rows))?,
            None => false,
        };
        if !is_written {
            let value = self.value(returned)?;
            value.over(self.input.frame().layout()).write_into(array)?;
        }
        Ok(())
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
        let layout = self.input.frame().layout();
        let message = match value.level() {
            Level::Batch => format!("{what} is {found}"),
            level => format!("{what} is {found} at {}", layout.describe(level, index)),
        };
        let diagnostic = Diagnostic::error(message).of_kind(ProblemKind::NotFinite);
        let Some((culprit, origin)) = culprit(tensor) else {
            return Err(self.recipe.at_hook(hook, diagnostic));
        };
        let help = match self.column_of(&culprit) {
            Some(column) => column,
            None if what == GRADIENT => help_of("gradient"),
            None => help_of(culprit.inner().prim.name()),
        };
        let diagnostic = diagnostic.with_help(help);
        Err(
            match origin.and_then(|origin| self.recipe.about().place_of(&origin)) {
                Some(span) => diagnostic.at(Some(span)).into(),
                None => self.recipe.at_hook(hook, diagnostic),
            },
        )
    }

    /// The help where the tensor is a column of the batch; `None` for any other.
    fn column_of(&self, tensor: &Tensor) -> Option<String> {
        let value = tensor.evaluate().ok()?;
        let (index, found) = value.first_not_finite()?;
        let name = self.input.column_names().0.into_iter().find(|name| {
            let column = self.batch().column(name);
            let column = column.and_then(|column| Ok(column.evaluate()?));
            // Each hook has tensors of its own for a column: what they hold is the same.
            column.is_ok_and(|column| same_bits(&column, &value))
        })?;
        let cell = self.input.frame().layout().describe(value.level(), index);
        Some(format!("the column `{name}` is {found} at {cell}"))
    }
}

fn same_bits(a: &Value, b: &Value) -> bool {
    let bits = |value: &Value| value.iter().map(f64::to_bits).collect::<Vec<_>>();
    a.level() == b.level() && bits(a) == bits(b)
}

/// Steps back from the result; a formula has some dozens.
const STEPS: usize = 1000;

/// The operation, or the column, that NaN or an infinity came up in first: goes back from a tensor that is not finite, each
/// time to an argument that is not. With it, the last line of the script on the way to it.
///
/// `None` where a value on the way cannot be computed any more: time or memory has run out.
fn culprit(result: &Tensor) -> Option<(Tensor, Option<Origin>)> {
    let mut culprit = result.clone();
    let mut origin = result.origin().cloned();
    for _ in 0..STEPS {
        let mut next = None;
        for arg in &culprit.inner().args {
            if arg.evaluate().ok()?.first_not_finite().is_some() {
                next = Some(arg.clone());
                break;
            }
        }
        let Some(arg) = next else {
            break;
        };
        origin = arg.origin().cloned().or(origin);
        culprit = arg;
    }
    Some((culprit, origin))
}

/// The help for an operation that makes what is not finite of what is.
fn help_of(op: &str) -> String {
    let known = explain::text("not_finite", op, &[]);
    known.unwrap_or_else(|| explain::text("not_finite", "other", &[op]).unwrap_or_default())
}

const WEIGHT: &str =
    "a weight is how much a response counts in the loss: 0 takes it out, as in `batch.reward > 0`";

pub(super) const GRADIENT: &str = "dloss/dlogp";

pub(super) const NOTHING: &str = "the last line of the hook is its result: without a `;` after it, and with an `else` to an `if`";

/// The help for a result that is no response or token tensor.
fn instead(result: &Dynamic, level: Option<Level>) -> String {
    let kind = match level {
        Some(Level::Position) => "position",
        Some(_) => "coarse",
        None if result.is_unit() => return NOTHING.to_string(),
        None if bind::number(result).is_some() => "number",
        None if result.is_array() => "array",
        None => "other",
    };
    explain::text("returned", kind, &[]).unwrap_or_default()
}
