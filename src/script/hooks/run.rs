//! Runs the hooks of one call of a recipe, and checks and computes their results.

use std::sync::Arc;

use rhai::{CallFnOptions, Dynamic, Engine, FuncArgs, Scope};

use crate::batch::{Batch, Computed};
use crate::diagnostic::{Diagnostic, Diagnostics, ProblemKind};
use crate::script::bindings::batch::ScriptBatch;
use crate::script::error::{CallError, Raised};
use crate::script::hook::Hook;
use crate::script::recipe::Recipe;
use crate::script::sandbox::{guarded, without_panic};
use crate::script::state::State;
use crate::script::value::{describe, number};
use crate::tensor::{Level, Origin, Tensor, Value, depends_on, grad, op};

/// The running hooks of one call: an engine, the batch, and the state, which the hooks change.
pub(super) struct HookRun<'a> {
    pub(super) recipe: &'a Recipe,
    engine: Engine,
    /// The batch of the call, without changes by hooks.
    pub(super) input: ScriptBatch,
    /// The batch with the columns that replace its own: the results of earlier hooks, and the advantage that a loss gets.
    pub(super) batch: ScriptBatch,
    state: Dynamic,
    /// The hook that is running or whose result is being computed. An error without a location is shown at this hook.
    hook: Hook,
}

const NOTHING: &str = "the last line of the hook is its result: an expression without a `;` after it, not a `let`; an `if` needs an `else`";

const WEIGHT: &str = "a weight says how much a response counts in the loss: 0 takes the response out, as in `batch.reward > 0`";

const GRADIENT: &str = "dloss/dlogp";

impl Recipe {
    /// Runs hooks on a batch. If advlab itself panics outside of a hook's call, the message says that it was computing `hook`; an
    /// error without a location is shown at the hook that was running.
    pub(super) fn with_hooks<'a, T: Send>(
        &'a self,
        hook: Hook,
        input: ScriptBatch,
        state: &State,
        run: impl FnOnce(&mut HookRun<'a>) -> Raised<T> + Send,
    ) -> Result<T, Diagnostics> {
        guarded(&format!("to compute the {}", hook.name()), || {
            input.call().effects().tables = state.tables.clone();
            let mut hooks = HookRun {
                recipe: self,
                engine: self.engine(input.call()),
                batch: input.clone(),
                input,
                state: state.to_dynamic(),
                hook: Hook::Advantage,
            };
            let done = run(&mut hooks);
            let done = hooks.input.call().unless_failed(done);
            done.map_err(|error| hooks.recipe.failed_in(hooks.hook, &error))
        })?
    }
}

impl HookRun<'_> {
    /// Makes the result of a hook a column, which later hooks see.
    pub(super) fn give(&mut self, hook: Hook, tensor: Tensor) -> Raised<()> {
        let name = match (hook, tensor.level()) {
            (Hook::Reward, Level::Token) => "token_reward",
            _ => hook.name(),
        };
        self.batch = self.batch.with([(name.to_string(), tensor)].into())?;
        Ok(())
    }

    /// Returns the state after the hooks' changes.
    pub(super) fn finished_state(&mut self) -> Raised<State> {
        let tables = std::mem::take(&mut self.input.call().effects().tables);
        let mut hooks = Hook::OF_BATCH.into_iter();
        let first = hooks.find(|hook| self.recipe.has(*hook));
        self.hook = first.unwrap_or(Hook::Init);
        let state = State::from_dynamic(self.state.take()).map_err(|unfit| {
            let help = "the state lasts over steps: keep numbers, strings, arrays and maps";
            CallError::new(unfit, help)
        })?;
        Ok(state.with_tables(tables))
    }

    fn call(&mut self, hook: Hook) -> Raised<Dynamic> {
        self.hook = hook;
        self.input.call().effects().hook = Some(hook);
        let args = (self.batch.clone(), self.recipe.params.to_map());
        invoke(self.recipe, &self.engine, hook, &mut self.state, args)
    }

    /// Runs the `reward` hook, if there is one. For later hooks, its result replaces the batch's own reward at both levels.
    pub(super) fn reward(&mut self) -> Raised<Option<Computed>> {
        if !self.recipe.has(Hook::Reward) {
            return Ok(None);
        }
        let (tensor, value) = self.signal_value(Hook::Reward)?;
        self.give(Hook::Reward, tensor)?;
        Ok(Some(value))
    }

    /// Returns the weight of each response, from the `weight` hook or, if there is none, from the column `weight`. Later hooks
    /// see the weights as `batch.weight`. Fails if the hook gives a negative weight.
    pub(super) fn weight(&mut self) -> Raised<Option<Computed>> {
        self.hook = Hook::Weight;
        let layout = self.input.frame().layout().clone();
        if !self.recipe.has(Hook::Weight) {
            if !self.input.has("weight") {
                return Ok(None);
            }
            let own = self.input.column("weight")?.evaluate()?;
            return Ok(Some(own.over(&layout)));
        }
        let (tensor, value) = self.signal_value(Hook::Weight)?;
        if let Some(index) = value.buffer().iter().position(|weight| weight < 0.0) {
            let at = layout.describe(Level::Response, index);
            let found = value.buffer().get(index);
            let help = "0 takes a response out of the loss, and 2 counts it twice";
            return Err(CallError::new(format!("the weight is {found} at {at}"), help).into());
        }
        self.give(Hook::Weight, tensor)?;
        Ok(Some(value))
    }

    /// Adds the advantage to the batch for the loss. Fails if the recipe has a `weight` hook and the batch has no `weight`.
    pub(super) fn prepare_loss(
        &mut self,
        batch: &Batch,
        advantage: Option<&Computed>,
    ) -> Raised<()> {
        if self.recipe.has(Hook::Weight) && !batch.has("weight") {
            // The loss must not silently be computed without weights.
            self.hook = Hook::Weight;
            let message = "the recipe has weights, but the batch has no column `weight`";
            let help = "the weights come with the advantage: pass them as the column `weight`, as `outcome.weighted(&batch)` does";
            return Err(CallError::new(message, help).into());
        }
        if let Some(advantage) = advantage {
            let (level, values) = (advantage.level(), advantage.buffer().clone());
            let tensor = Tensor::from_buffer(self.input.frame(), level, values)?;
            self.give(Hook::Advantage, tensor)?;
        }
        Ok(())
    }

    pub(super) fn loss_tensor(&mut self) -> Raised<Tensor> {
        let result = self.call(Hook::Loss)?;
        let tensor = result.read_lock::<Tensor>().map(|tensor| tensor.clone());
        let help = match tensor {
            Some(loss) if loss.level() == Level::Batch => return Ok(loss),
            Some(_) => {
                "say how to average it: `x.mean(\"batch\")` weights tokens equally, `x.mean(\"response\").mean(\"batch\")` weights responses equally"
            }
            None if result.is_unit() => NOTHING,
            None => {
                "compute the loss from `batch.logp` without `value()`, because its gradient is needed"
            }
        };
        let found = describe(&result);
        let message = format!("`loss` must return a batch tensor, but it returned {found}");
        Err(CallError::new(message, help).into())
    }

    /// Calls the `loss` hook, and returns dloss/dlogp and the loss, not yet computed.
    pub(super) fn loss(&mut self) -> Raised<(Tensor, Option<Tensor>)> {
        let loss = self.loss_tensor()?;
        let logp = self.batch.column("logp").map_err(|problem| {
            let problem = problem.diagnostic.message.clone();
            CallError::new(problem, "a loss needs the policy's log-probs")
        })?;
        if !depends_on(&loss, &logp) {
            let help = "its gradient is 0 everywhere: is there a `detach` or a comparison between `batch.logp` and the loss?";
            let message = "the loss does not depend on `batch.logp`";
            return Err(CallError::new(message, help).into());
        }
        Ok((grad(&loss, &logp)?, Some(loss)))
    }

    /// Returns the advantage, not yet computed. If the recipe has only a loss, the advantage is -M dloss/dlogp, where M is the
    /// number of tokens, because a policy-gradient loss with this advantage, averaged over tokens, has the same gradient as the
    /// recipe's loss. In this case, the loss is returned too.
    pub(super) fn advantage(&mut self) -> Raised<(Tensor, Option<Tensor>)> {
        if self.recipe.has(Hook::Advantage) {
            return Ok((self.signal(Hook::Advantage)?, None));
        }
        let (gradient, loss) = self.loss()?;
        let tokens = self.input.frame().layout().tokens() as f64;
        Ok((op::mul(&gradient, &Tensor::number(-tokens))?, loss))
    }

    /// Calls a hook that gives a value to each response or token, and computes these values.
    pub(super) fn signal_value(&mut self, hook: Hook) -> Raised<(Tensor, Computed)> {
        let tensor = self.signal(hook)?;
        let value = self.compute(&tensor, None)?;
        Ok((tensor, value))
    }

    /// Calls a hook that gives a value to each response or token, and returns its tensor, not yet computed.
    pub(super) fn signal(&mut self, hook: Hook) -> Raised<Tensor> {
        let result = self.call(hook)?;
        let name = hook.name();
        let tensor = result.read_lock::<Tensor>().map(|tensor| tensor.clone());
        let is_weight = hook == Hook::Weight;
        let frame = tensor.as_ref().and_then(Tensor::frame);
        if frame.is_some_and(|frame| frame.responses != self.input.frame().responses) {
            let message =
                format!("`{name}` returned a tensor of one group, not of the whole batch");
            let help = "`batch.map_groups(|g| ...)` puts the groups' results together";
            return Err(CallError::new(message, help).into());
        }
        let level = tensor.as_ref().map(Tensor::level);
        match (tensor, level) {
            (Some(tensor), Some(Level::Response)) => return Ok(tensor),
            (Some(tensor), Some(Level::Token)) if !is_weight => return Ok(tensor),
            // If the function passed to `map_groups` returned numbers, the result is one number per group. A filter's weight for
            // a group applies to all responses of the group.
            (Some(tensor), Some(level))
                if tensor.is_number_of_each_group()
                    || level == Level::Trajectory
                    || is_weight && level.contains(Level::Response) =>
            {
                return Ok(tensor.expanded(Level::Response, self.input.frame())?);
            }
            _ => {}
        }
        let wanted = if is_weight {
            "response or group"
        } else {
            "response or token"
        };
        let help = match level {
            _ if result.is_unit() => NOTHING,
            _ if is_weight => WEIGHT,
            Some(Level::Position) => {
                "`x.expand(\"token\")` gives each token the value at its position"
            }
            Some(_) => {
                "return `batch.reward - x` if x is a baseline; `x.expand(\"response\")` repeats its value for each response, `x.expand(\"token\")` for each token"
            }
            None if number(&result).is_some() => {
                "to give all responses the number `x`, return `x + 0 * batch.reward`"
            }
            None => {
                "return a tensor, such as `batch.reward - batch.reward.mean(\"group\")`, without `values()`; \
                 `batch.map_groups(|g| ...)` goes group by group"
            }
        };
        let found = describe(&result);
        let message = format!("`{name}` must return a {wanted} tensor, but it returned {found}");
        Err(CallError::new(message, help).into())
    }

    /// Computes the values of a hook's tensor, or of the gradient of a loss. The tensor, the loss and the reported metrics are
    /// computed together, so that the parts that they share are computed only once.
    pub(super) fn compute(&self, tensor: &Tensor, loss: Option<&Tensor>) -> Raised<Computed> {
        let metrics = self.input.call().effects().metrics.clone();
        let metrics = metrics.into_iter().flat_map(|(_, values)| values);
        let results = [tensor].into_iter().chain(loss).cloned();
        Tensor::evaluate_result(&results.chain(metrics).collect::<Vec<_>>())?;
        let what = match loss {
            Some(loss) => {
                self.finite(loss, "the loss")?;
                GRADIENT.to_string()
            }
            None => format!("the {}", self.hook.name()),
        };
        let value = self.finite(tensor, &what)?;
        Ok(value.over(self.input.frame().layout()))
    }

    /// Computes the value of a result. If a value is not finite, the error says where it is in the batch and, if this is known,
    /// which line of the script caused it.
    fn finite(&self, tensor: &Tensor, what: &str) -> Raised<Arc<Value>> {
        let value = tensor.evaluate()?;
        let Some((index, found)) = value.first_not_finite() else {
            return Ok(value);
        };
        let layout = self.input.frame().layout();
        let message = match value.level() {
            Level::Batch => format!("{what} is {found}"),
            level => format!("{what} is {found} at {}", layout.describe(level, index)),
        };
        let diagnostic = Diagnostic::error(message).of_kind(ProblemKind::NotFinite);
        let Some((operation, origin)) = culprit(tensor) else {
            return Err(CallError::from(diagnostic).into());
        };
        let columns = self.input.known_columns();
        let mut columns = columns.iter().filter_map(|(name, column)| {
            let (index, found) = column.evaluate().ok()?.first_not_finite()?;
            let cell = layout.describe(column.level(), index);
            Some(format!("the column `{name}` is {found} at {cell}"))
        });
        let of_operation = || match operation {
            _ if what == GRADIENT => {
                "the derivative of a root, a power or a std is infinite at 0: `max(x, 1e-12)` avoids 0"
            }
            "/" => "something is divided by 0 here: `safe_div(a, b)` is 0 if b is 0",
            OTHERS => {
                "n - 1 is 0 here, as in a group of one: `where(n > 1, r - a / (n - 1), 0)` gives such a group 0; `safe_div` alone would give its response the whole reward"
            }
            "ln" | "log1p" | "ln_binomial" => {
                "the logarithm of 0 or less is taken here: `ln(max(x, 1e-12))` avoids that"
            }
            _ => {
                "all inputs of this operation are finite, but its result is not: limit the inputs, as in `x.clamp(-20, 20)` or `max(x, 1e-12)`"
            }
        };
        let help = columns.next().unwrap_or_else(|| of_operation().to_string());
        let span = origin.and_then(|origin| self.recipe.about().place_of(&origin));
        Err(CallError::from(diagnostic.with_help(help).at(span)).into())
    }
}

pub(super) fn invoke(
    recipe: &Recipe,
    engine: &Engine,
    hook: Hook,
    state: &mut Dynamic,
    args: impl FuncArgs,
) -> Raised<Dynamic> {
    let name = hook.name();
    let (mut scope, ast) = (Scope::new(), &recipe.script.ast);
    let called = without_panic(&format!("in `{name}`"), || {
        let options = CallFnOptions::new().bind_this_ptr(state);
        engine.call_fn_with_options::<Dynamic>(options, &mut scope, ast, name, args)
    });
    let value = called.map_err(|error| CallError::from(error[0].clone()))??;
    Ok(value.flatten())
}

/// The name under which [`culprit`] reports a division by a difference, such as n - 1, the number of other responses in a group.
const OTHERS: &str = "/ (n - 1)";
/// The maximum number of operations that [`culprit`] goes back from the result; a formula has a few dozen.
const STEPS: usize = 1000;

/// Finds an operation that gave NaN or an infinity from finite arguments, and the line of the script that requested it or, if
/// that is unknown, an operation shortly after it. The search begins at the result, and goes from each tensor to its first
/// non-finite argument.
///
/// Returns `None` if an argument can no longer be computed, because time or memory has run out.
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
    let last = culprit.inner();
    let name_of = |arg: &Tensor| arg.inner().prim.name();
    let is_by_difference = last.args.get(1).map(name_of) == Some("-");
    match last.prim.name() {
        "/" if is_by_difference => Some((OTHERS, origin)),
        name => Some((name, origin)),
    }
}
