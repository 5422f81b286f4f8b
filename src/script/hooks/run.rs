//! One call of a recipe's hooks, with their results checked and computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ndarray::ArrayViewMut2;
use rhai::{CallFnOptions, Dynamic, Engine, FuncArgs, Scope};

use crate::batch::{Batch, Computed};
use crate::diagnostic::{Diagnostic, Diagnostics, ProblemKind};
use crate::script::batch_type::ScriptBatch;
use crate::script::error::CallError;
use crate::script::hook::Hook;
use crate::script::recipe::Recipe;
use crate::script::sandbox::guarded;
use crate::script::state::State;
use crate::script::value::{describe, number};
use crate::tensor::op;
use crate::tensor::{Guard, Level, Origin, Tensor, TensorError, Value, depends_on, grad};

/// The caller's padded array [B, T] that a result is written into.
pub(super) type Array<'a, 'b> = Option<&'a mut ArrayViewMut2<'b, f32>>;

/// One call of a recipe's hooks: an engine, the batch, and the state as it changes.
pub(super) struct Run<'a> {
    pub(super) recipe: &'a Recipe,
    engine: Engine,
    /// The batch as it was given.
    pub(super) input: ScriptBatch,
    /// Columns that replace the batch's own.
    pub(super) given: BTreeMap<String, Tensor>,
    state: Dynamic,
}

const NOTHING: &str = "the last line of the hook is its result: without a `;` after it, and with an `else` to an `if`";

const WEIGHT: &str =
    "a weight is how much a response counts in the loss: 0 takes it out, as in `batch.reward > 0`";

const GRADIENT: &str = "dloss/dlogp";

impl<'a> Run<'a> {
    /// `update` is the index of the step's loss that is computed; `None` before the losses.
    pub(super) fn new(
        recipe: &'a Recipe,
        batch: &Batch,
        update: Option<u64>,
        state: &State,
        guard: &Arc<Guard>,
    ) -> Self {
        let call = recipe.host.call_within(guard, batch.step(), update);
        let input = ScriptBatch::new(call, batch);
        Run::on(recipe, input, state)
    }

    pub(super) fn on(recipe: &'a Recipe, input: ScriptBatch, state: &State) -> Self {
        input
            .call()
            .tables(|tables| tables.clone_from(&state.tables));
        Run {
            recipe,
            engine: recipe.engine(input.call()),
            input,
            given: BTreeMap::new(),
            state: state.to_dynamic(),
        }
    }

    pub(super) fn batch(&self) -> ScriptBatch {
        self.input.with(self.given.clone())
    }

    /// The state as the hooks left it.
    pub(super) fn finished_state(&mut self) -> Result<State, Diagnostics> {
        let tables = self.input.call().tables(std::mem::take);
        let state = State::from_dynamic(self.state.take()).map_err(|unfit| {
            let mut hooks = Hook::OF_BATCH.into_iter();
            let hook = hooks.find(|hook| self.recipe.has(*hook));
            let help = "the state lasts over steps: keep numbers, strings, arrays and maps";
            self.error(hook.unwrap_or(Hook::Init), unfit.to_string(), help)
        })?;
        Ok(state.with_tables(tables))
    }

    fn call(&mut self, hook: Hook, batch: ScriptBatch) -> Result<Dynamic, Diagnostics> {
        let args = (batch, self.recipe.params.to_map());
        self.input
            .call()
            .report(|reports| reports.hook = Some(hook));
        invoke(self.recipe, &self.engine, hook, &mut self.state, args)
    }

    /// Runs the `reward` hook, if there is one. Its result replaces the batch's own reward from here on, at both levels.
    pub(super) fn reward(&mut self) -> Result<Option<Computed>, Diagnostics> {
        if !self.recipe.has(Hook::Reward) {
            return Ok(None);
        }
        let tensor = self.signal(Hook::Reward)?;
        let value = self.value(Hook::Reward, &tensor, None)?;
        let name = match value.level() {
            Level::Token => "token_reward",
            _ => "reward",
        };
        self.given.insert(name.to_string(), tensor);
        ScriptBatch::complete_rewards(&mut self.given)
            .map_err(|error| self.failed(Hook::Reward, error))?;
        Ok(Some(value))
    }

    /// The weight of each response, by the `weight` hook or the column; hooks from here on see it as `batch.weight`.
    pub(super) fn weight(&mut self) -> Result<Option<Computed>, Diagnostics> {
        let layout = self.input.frame().layout().clone();
        if !self.recipe.has(Hook::Weight) {
            let own = self.input.column("weight").ok();
            let own = own.map(|own| self.evaluate(Hook::Weight, &own));
            return Ok(own.transpose()?.map(|own| own.over(&layout)));
        }
        let tensor = self.signal(Hook::Weight)?;
        let value = self.value(Hook::Weight, &tensor, None)?;
        if let Some(index) = value.buffer().iter().position(|weight| weight < 0.0) {
            let at = layout.describe(Level::Response, index);
            let found = value.buffer().get(index);
            let help = "0 takes a response out of the loss, 2 counts it twice";
            return Err(self.error(Hook::Weight, format!("the weight is {found} at {at}"), help));
        }
        self.given.insert("weight".to_string(), tensor);
        Ok(Some(value))
    }

    /// Puts the advantage that a loss is given into the batch.
    pub(super) fn give(
        &mut self,
        batch: &Batch,
        advantage: Option<&Computed>,
    ) -> Result<(), Diagnostics> {
        if self.recipe.has(Hook::Weight) && !batch.has("weight") {
            // Never silently without them.
            let message = "the batch has no column `weight`, and the recipe has weights";
            let help = "they come with the advantage: give them as that column, as `outcome.weighted(&batch)` does";
            return Err(self.error(Hook::Weight, message.to_string(), help));
        }
        if let Some(advantage) = advantage {
            let (level, values) = (advantage.level(), advantage.buffer().clone());
            let tensor = Tensor::from_buffer(self.input.frame(), level, values)
                .map_err(|_| Diagnostic::error("the advantage is not one of this batch"))?;
            self.given.insert("advantage".to_string(), tensor);
        }
        Ok(())
    }

    pub(super) fn loss_tensor(&mut self, batch: ScriptBatch) -> Result<Tensor, Diagnostics> {
        let result = self.call(Hook::Loss, batch)?;
        let tensor = result.read_lock::<Tensor>().map(|tensor| tensor.clone());
        let help = match tensor {
            Some(loss) if loss.level() == Level::Batch => return Ok(loss),
            Some(_) => {
                "say how to average it: `x.mean(\"batch\")` weighs tokens alike, `x.mean(\"response\").mean(\"batch\")` responses"
            }
            None if result.is_unit() => NOTHING,
            None => {
                "a loss is made of `batch.logp`, without `value()`: its gradient has to be found"
            }
        };
        let found = describe(&result);
        let message = format!("`loss` must return a batch tensor, it returned {found}");
        Err(self.error(Hook::Loss, message, help))
    }

    /// The loss and dloss/dlogp, not yet computed.
    pub(super) fn loss(&mut self) -> Result<(Tensor, Tensor), Diagnostics> {
        let batch = self.batch();
        let loss = self.loss_tensor(batch.clone())?;
        let logp = batch.column("logp").map_err(|problem| {
            let help = "a loss needs the policy's log-probs";
            self.error(Hook::Loss, problem.diagnostic.message.clone(), help)
        })?;
        if !depends_on(&loss, &logp) {
            let message = "the loss does not depend on `batch.logp`".to_string();
            let help =
                "its gradient is 0 everywhere: is there a `detach`, or a comparison, on the way?";
            return Err(self.error(Hook::Loss, message, help));
        }
        let gradient = grad(&loss, &logp).map_err(|error| self.failed(Hook::Loss, error))?;
        Ok((loss, gradient))
    }

    /// -M dloss/dlogp: the advantage with which the policy gradient, averaged over tokens, is that of the loss.
    pub(super) fn equivalent(&self, gradient: &Tensor) -> Result<Tensor, Diagnostics> {
        let tokens = self.input.frame().layout().tokens() as f64;
        op::mul(gradient, &Tensor::number(-tokens)).map_err(|error| self.failed(Hook::Loss, error))
    }

    pub(super) fn evaluate(&self, hook: Hook, tensor: &Tensor) -> Result<Arc<Value>, Diagnostics> {
        tensor.evaluate().map_err(|error| self.failed(hook, error))
    }

    /// Calls a hook that gives a value to each response or token, not yet computed.
    pub(super) fn signal(&mut self, hook: Hook) -> Result<Tensor, Diagnostics> {
        let batch = self.batch();
        let result = self.call(hook, batch)?;
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
        let level = tensor.as_ref().map(Tensor::level);
        match (tensor, level) {
            (Some(tensor), Some(Level::Response)) => return Ok(tensor),
            (Some(tensor), Some(Level::Token)) if !is_weight => return Ok(tensor),
            // A number is the result of one branch of a function if no group took the other one. What a filter says of
            // a group, it says of the group's responses.
            (Some(tensor), Some(level))
                if tensor.is_number_of_each_group()
                    || level == Level::Trajectory
                    || is_weight && level.contains(Level::Response) =>
            {
                let spread = tensor.expanded(Level::Response, self.input.frame());
                return spread.map_err(|error| self.failed(hook, error));
            }
            _ => {}
        }
        let wanted = if is_weight {
            "response"
        } else {
            "response or token"
        };
        let help = match level {
            _ if result.is_unit() => NOTHING,
            _ if is_weight => WEIGHT,
            Some(_) => {
                "was a `batch.reward - ` forgotten? The same for all is `x.expand(\"response\")` or `x.expand(\"token\")`"
            }
            None if number(&result).is_some() => {
                "a number for all responses is `x + 0 * batch.reward`"
            }
            None => {
                "return a tensor, such as `batch.reward - batch.reward.mean(\"group\")`, without `values()`; \
                 `batch.map_groups(|g| ...)` goes group by group"
            }
        };
        let found = describe(&result);
        let message = format!("`{name}` must return a {wanted} tensor, it returned {found}");
        Err(self.error(hook, message, help))
    }

    /// Computes a hook's tensor, the loss whose gradient it is, and the reported metrics together: what they share is
    /// computed once. Checks that the loss is finite.
    fn compute<R>(
        &self,
        hook: Hook,
        tensor: &Tensor,
        loss: Option<&Tensor>,
        run: impl FnOnce(&[Tensor]) -> Result<R, TensorError>,
    ) -> Result<R, Diagnostics> {
        let mut all = vec![tensor.clone()];
        all.extend(loss.cloned());
        self.input
            .call()
            .report(|reports| all.extend(reports.metric_tensors().cloned()));
        let result = run(&all).map_err(|error| self.failed(hook, error))?;
        if let Some(loss) = loss {
            let value = self.evaluate(hook, loss)?;
            self.finite(hook, loss, &value, "the loss")?;
        }
        Ok(result)
    }

    /// The values of a hook's tensor, or of the gradient of a loss.
    pub(super) fn value(
        &self,
        hook: Hook,
        tensor: &Tensor,
        loss: Option<&Tensor>,
    ) -> Result<Computed, Diagnostics> {
        self.compute(hook, tensor, loss, Tensor::evaluate_together)?;
        let value = self.evaluate(hook, tensor)?;
        let what = match loss {
            Some(_) => GRADIENT.to_string(),
            None => format!("the {}", hook.name()),
        };
        self.finite(hook, tensor, &value, &what)?;
        Ok(value.over(self.input.frame().layout()))
    }

    /// As [`Run::value`], but written into the array, if there is one.
    pub(super) fn place(
        &self,
        hook: Hook,
        tensor: &Tensor,
        loss: Option<&Tensor>,
        array: Array<'_, '_>,
    ) -> Result<Option<Computed>, Diagnostics> {
        let Some(array) = array else {
            return self.value(hook, tensor, loss).map(Some);
        };
        let is_written = match array.as_slice_mut() {
            Some(rows) => {
                self.compute(hook, tensor, loss, |all| Tensor::evaluate_into(all, rows))?
            }
            None => false,
        };
        if !is_written {
            self.value(hook, tensor, loss)?.write_into(array)?;
        }
        Ok(None)
    }

    fn error(&self, hook: Hook, message: String, help: &str) -> Diagnostics {
        let diagnostic = Diagnostic::error(message).with_help(help);
        self.recipe.at_hook(hook, diagnostic)
    }

    /// A failure of a computation that happened after the hook returned.
    pub(super) fn failed(&self, hook: Hook, error: impl Into<CallError>) -> Diagnostics {
        let raised: Box<rhai::EvalAltResult> = error.into().into();
        self.recipe.failed_in(hook, &raised)
    }

    /// An error if a result is not finite: where it is not, and which line of the script made it so.
    fn finite(
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
        let Some((operation, origin)) = culprit(tensor) else {
            return Err(self.recipe.at_hook(hook, diagnostic));
        };
        let columns = self.input.known_columns();
        let mut columns = columns.iter().filter_map(|(name, column)| {
            let (index, found) = column.evaluate().ok()?.first_not_finite()?;
            let cell = layout.describe(column.level(), index);
            Some(format!("the column `{name}` is {found} at {cell}"))
        });
        let of_operation = || match operation {
            _ if what == GRADIENT => {
                "the derivative of a root, a power or a std is infinite at 0: `max(x, 1e-12)` keeps away from it"
            }
            "/" => "something is divided by 0 here: `safe_div(a, b)` is 0 where b is 0",
            "ln" | "log1p" | "ln_binomial" => {
                "this is the logarithm of 0 or less here: `ln(max(x, 1e-12))`"
            }
            _ => {
                "every value that goes in is finite: limit them, as in `x.clamp(-20, 20)` or `max(x, 1e-12)`"
            }
        };
        let help = columns.next().unwrap_or_else(|| of_operation().to_string());
        let span = origin.and_then(|origin| self.recipe.about().place_of(&origin));
        let diagnostic = diagnostic.with_help(help).at(span);
        Err(match diagnostic.span {
            Some(_) => diagnostic.into(),
            None => self.recipe.at_hook(hook, diagnostic),
        })
    }
}

/// Calls a function of a recipe's script.
pub(super) fn invoke(
    recipe: &Recipe,
    engine: &Engine,
    hook: Hook,
    state: &mut Dynamic,
    args: impl FuncArgs,
) -> Result<Dynamic, Diagnostics> {
    let name = hook.name();
    let (mut scope, ast) = (Scope::new(), &recipe.script.ast);
    let called = guarded(&format!("in `{name}`"), || {
        let options = CallFnOptions::new().bind_this_ptr(state);
        engine.call_fn_with_options::<Dynamic>(options, &mut scope, ast, name, args)
    })?;
    let value = called.map_err(|error| recipe.failed_in(hook, &error))?;
    Ok(value.flatten())
}

/// Steps back from the result; a formula has some dozens.
const STEPS: usize = 1000;

/// The operation in which NaN or an infinity came up first, and the last line of the script on the way to it: goes back from a
/// tensor that is not finite, each time to an argument that is not.
///
/// `None` if a value on the way cannot be computed any more: time or memory has run out.
fn culprit(result: &Tensor) -> Option<(&'static str, Option<Origin>)> {
    let mut culprit = result.clone();
    let mut origin = result.origin().cloned();
    for _ in 0..STEPS {
        let mut next = None;
        for arg in &culprit.inner().args {
            if next.is_none() && arg.evaluate().ok()?.first_not_finite().is_some() {
                next = Some(arg.clone());
            }
        }
        let Some(arg) = next else {
            break;
        };
        origin = arg.origin().cloned().or(origin);
        culprit = arg;
    }
    Some((culprit.inner().prim.name(), origin))
}
