//! Runs a recipe's hooks on a batch: reward, advantage and loss, with what they return checked and computed.

mod at_prompt;
mod native;
mod outcome;
mod returned;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use at_prompt::tensor_of;
use ndarray::ArrayViewMut2;
use outcome::Array;
pub(crate) use outcome::Placed;
pub use outcome::{Loss, Outcome};
use returned::{NOTHING, Returned};
use rhai::{CallFnOptions, Dynamic, Engine, FuncArgs, Scope};

use super::batch_type::ScriptBatch;
use super::bind::describe;
use super::call::{Call, Reports};
use super::recipe::{Hook, Recipe};
use super::sandbox::{guarded, on_deep_stack, watch_variables};
use super::state::State;
use crate::batch::{Batch, Computed, has_shape_of};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::tensor::op;
use crate::tensor::{Guard, Level, Tensor, depends_on, grad};

/// One call of a recipe: an engine, the batch, and the state as it changes.
struct Run<'a> {
    recipe: &'a Recipe,
    engine: Engine,
    /// The batch as it was given.
    input: ScriptBatch,
    /// Columns that stand above the batch's own.
    given: BTreeMap<String, Tensor>,
    state: Dynamic,
}

impl Recipe {
    /// The state to start a run with: what `init(p)` returns, or an empty map.
    ///
    /// # Errors
    /// [`Diagnostics`] where `init` fails, or returns what cannot be a state.
    pub fn init(&self) -> Result<State, Diagnostics> {
        if !self.has(Hook::Init) {
            return Ok(State::default());
        }
        self.state_from(Hook::Init, (self.params.to_map(),))
    }

    /// The state that this version goes on with, after another version's: what `migrate(old, p)` returns. Without a
    /// `migrate`, it is the same, and what `init(p)` has beyond it is added.
    ///
    /// # Errors
    /// As [`Recipe::init`].
    pub fn migrate(&self, old: &State) -> Result<State, Diagnostics> {
        if !self.has(Hook::Migrate) {
            return Ok(old.with_missing_of(&self.init()?));
        }
        let state = self.state_from(Hook::Migrate, (old.to_dynamic(), self.params.to_map()))?;
        Ok(state.with_tables(old.tables.clone()))
    }

    /// An engine for one call of the recipe's hooks.
    fn engine(&self, call: &Arc<Call>) -> Engine {
        let mut engine = self.host.functions.engine(call);
        if !self.script.constants.is_empty() {
            watch_variables(&mut engine, &self.script.constants);
        }
        engine
    }

    fn state_from(&self, hook: Hook, args: impl FuncArgs) -> Result<State, Diagnostics> {
        on_deep_stack(|| {
            let engine = self.engine(&Call::new(&self.host, 0));
            let value = invoke(self, &engine, hook, &mut Dynamic::default(), args)?;
            State::from_dynamic(value).map_err(|unfit| {
                let name = hook.name();
                let message = format!("what `{name}` returns cannot be the state: {unfit}");
                let help = "it returns a map of numbers, strings, arrays and maps: `#{ count: 0 }`";
                self.at_hook(hook, Diagnostic::error(message).with_help(help))
            })
        })
    }

    /// Computes the advantage: `reward` and `weight`, if there are any, then `advantage`; for a recipe that has a loss alone, the
    /// equivalent -M dloss/dlogp, with M the number of tokens.
    ///
    /// `state` changes only where all of it succeeds.
    ///
    /// # Errors
    /// [`Diagnostics`] where a hook fails, runs out of time or memory, or returns what is no reward or advantage: not a
    /// tensor, of another level than response or token, or with values that are not finite.
    pub fn advantage(&self, batch: &Batch, state: &mut State) -> Result<Outcome, Diagnostics> {
        self.run_advantage(batch, state, None)
    }

    /// As [`Recipe::advantage`], with the advantage written into a padded array [B, T] of the caller's, 0 where the mask
    /// is 0: no other memory of its size is taken. Where an error is returned, the array may hold anything.
    ///
    /// # Errors
    /// As [`Recipe::advantage`]; also where the array has another shape.
    pub fn advantage_into(
        &self,
        batch: &Batch,
        state: &mut State,
        array: &mut ArrayViewMut2<'_, f32>,
    ) -> Result<Outcome<Level>, Diagnostics> {
        has_shape_of(array, batch.layout(), "an advantage")?;
        self.run_advantage(batch, state, Some(array))
    }

    /// The weight of each response, by the `reward` and `weight` hooks or the batch's column; `None` where there are none.
    /// What the hooks change in the state is not kept.
    ///
    /// # Errors
    /// As [`Recipe::advantage`].
    pub fn weights(&self, batch: &Batch, state: &State) -> Result<Option<Computed>, Diagnostics> {
        guarded("to compute the weights", || {
            let mut run = Run::new(self, batch, None, state, &self.host.guard());
            run.reward()?;
            run.weight()
        })?
    }

    /// The advantage by the script, its values or written into an array of the batch's shape.
    fn advantage_by_script<A: From<Placed>>(
        &self,
        batch: &Batch,
        state: &mut State,
        guard: &Arc<Guard>,
        array: Array<'_, '_>,
    ) -> Result<Outcome<A>, Diagnostics> {
        guarded("to compute the advantage", || {
            let started = Instant::now();
            let mut run = Run::new(self, batch, None, state, guard);
            let reward = run.reward()?;
            let weight = run.weight()?;
            let (advantage, loss) = if self.has(Hook::Advantage) {
                let tensor = run.signal(Hook::Advantage)?;
                let returned = Returned::of(Hook::Advantage, &tensor);
                (run.place(&returned, array)?, None)
            } else {
                let (loss, gradient) = run.loss()?;
                let advantage = run.equivalent(&gradient)?;
                let advantage = run.place(&Returned::gradient(&loss, &advantage), array)?;
                (advantage, Some(run.number(&loss)?))
            };
            let correct = correct(&run.input);
            let reports = run.input.call().take_reports();
            let metrics = run.metrics(&reports)?;
            *state = run.finished_state()?;
            Ok(Outcome {
                reward,
                weight,
                advantage: advantage.into(),
                loss,
                correct,
                metrics,
                notes: reports.notes,
                map_groups: reports.map_groups,
                prints: reports.prints,
                time: started.elapsed(),
                peak_bytes: run.input.call().guard.peak(),
                native: None,
            })
        })?
    }

    /// The target of a critic, where the recipe has the hook `returns`: at response or token level. What the hook changes in
    /// the state is not kept.
    ///
    /// # Errors
    /// As [`Recipe::advantage`].
    pub fn returns(&self, batch: &Batch, state: &State) -> Result<Option<Computed>, Diagnostics> {
        if !self.has(Hook::Returns) {
            return Ok(None);
        }
        guarded("to compute the returns", || {
            let mut run = Run::new(self, batch, None, state, &self.host.guard());
            run.reward()?;
            let tensor = run.signal(Hook::Returns)?;
            let value = run.value(&Returned::of(Hook::Returns, &tensor))?;
            Ok(Some(value.over(batch.layout())))
        })?
    }

    /// Computes the recipe's loss and its gradient by `logp`. `advantage` is what the hook sees as `batch.advantage`.
    ///
    /// # Errors
    /// As [`Recipe::advantage`]; also where the loss is not one value, or does not depend on `batch.logp`.
    pub fn loss(
        &self,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
    ) -> Result<Loss, Diagnostics> {
        self.run_loss(batch, advantage, state, None)
    }

    /// As [`Recipe::loss`], with the gradient written into a padded array [B, T] of the caller's, 0 where the mask is 0.
    /// Where an error is returned, the array may hold anything.
    ///
    /// # Errors
    /// As [`Recipe::loss`]; also where the array has another shape.
    pub fn loss_into(
        &self,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
        array: &mut ArrayViewMut2<'_, f32>,
    ) -> Result<Loss<()>, Diagnostics> {
        has_shape_of(array, batch.layout(), "a gradient")?;
        self.run_loss(batch, advantage, state, Some(array))
    }

    /// The loss by the script; its gradient's values, or written into an array of the batch's shape.
    fn loss_by_script<G: From<Placed>>(
        &self,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
        guard: &Arc<Guard>,
        array: Array<'_, '_>,
    ) -> Result<Loss<G>, Diagnostics> {
        guarded("to compute the loss", || {
            let started = Instant::now();
            let update = state.updates(batch.step());
            let mut run = Run::new(self, batch, Some(update), state, guard);
            if self.has(Hook::Weight) && !batch.has("weight") {
                // Never in silence without them.
                let message = "the batch has no column `weight`, and the recipe has weights";
                let help = "they come with the advantage: give them as that column, as `outcome.weighted(&batch)` does";
                return Err(run.error(Hook::Weight, message.to_string(), help));
            }
            if let Some(advantage) = advantage {
                let values = advantage.buffer().clone();
                let tensor = Tensor::from_buffer(run.input.frame(), advantage.level(), values)
                    .map_err(|_| Diagnostic::error("the advantage is not one of this batch"))?;
                run.given.insert("advantage".to_string(), tensor);
            }
            let (loss, gradient) = run.loss()?;
            let gradient = run.place(&Returned::gradient(&loss, &gradient), array)?;
            let value = run.number(&loss)?;
            let reports = run.input.call().take_reports();
            let metrics = run.metrics(&reports)?;
            *state = run.finished_state()?.updated(batch.step(), update + 1);
            Ok(Loss {
                value,
                gradient: gradient.into(),
                metrics,
                prints: reports.prints,
                notes: reports.notes,
                map_groups: reports.map_groups,
                time: started.elapsed(),
                native: None,
            })
        })?
    }
}

impl<'a> Run<'a> {
    /// `update` is which one of the step's losses it is, `None` of what comes before them.
    fn new(
        recipe: &'a Recipe,
        batch: &Batch,
        update: Option<u64>,
        state: &State,
        guard: &Arc<Guard>,
    ) -> Self {
        let (step, guard) = (batch.step(), guard.clone());
        let call = Call::within(&recipe.host, step, update, guard);
        let input = ScriptBatch::new(&recipe.host, call, batch);
        Run::on(recipe, input, state)
    }

    fn on(recipe: &'a Recipe, input: ScriptBatch, state: &State) -> Self {
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

    fn batch(&self) -> ScriptBatch {
        self.input.with(self.given.clone())
    }

    fn finished_state(&mut self) -> Result<State, Diagnostics> {
        let tables = self.input.call().tables(std::mem::take);
        let state = State::from_dynamic(self.state.take());
        state
            .map(|state| state.with_tables(tables))
            .map_err(|unfit| {
                let script = self.recipe.about();
                let span = script.part_of_state(unfit.part()).or_else(|| {
                    let hook = Hook::OF_BATCH.iter().find(|hook| self.recipe.has(**hook))?;
                    script.definition(hook.name())
                });
                Diagnostic::error(unfit.to_string())
                    .with_help("the state lasts over steps: keep numbers, strings, arrays and maps")
                    .at(span)
                    .into()
            })
    }

    fn hook(&mut self, hook: Hook, batch: ScriptBatch) -> Result<Dynamic, Diagnostics> {
        let args = (batch, self.recipe.params.to_map());
        self.input
            .call()
            .report(|reports| reports.hook = Some(hook));
        invoke(self.recipe, &self.engine, hook, &mut self.state, args)
    }

    /// Runs the `reward` hook, if there is one. Its result stands above the batch's own reward from here on, at both
    /// levels.
    fn reward(&mut self) -> Result<Option<Computed>, Diagnostics> {
        if !self.recipe.has(Hook::Reward) {
            return Ok(None);
        }
        let tensor = self.signal(Hook::Reward)?;
        let value = self.value(&Returned::of(Hook::Reward, &tensor))?;
        let (own, other, at_other_level) = if tensor.level() == Level::Token {
            ("token_reward", "reward", op::sum(&tensor, Level::Response))
        } else {
            ("reward", "token_reward", op::at_last_token(&tensor))
        };
        let at_other_level = at_other_level.map_err(|error| self.failed(Hook::Reward, error))?;
        let both = [(own, tensor), (other, at_other_level)];
        self.given
            .extend(both.map(|(name, tensor)| (name.to_string(), tensor)));
        Ok(Some(value.over(self.input.frame().layout())))
    }

    /// The weight of each response, by the `weight` hook or the column; hooks from here on see it as `batch.weight`.
    fn weight(&mut self) -> Result<Option<Computed>, Diagnostics> {
        let layout = self.input.frame().layout().clone();
        if !self.recipe.has(Hook::Weight) {
            let own = self.input.column("weight").ok().map(|own| own.evaluate());
            let own = own
                .transpose()
                .map_err(|error| self.failed(Hook::Weight, error))?;
            return Ok(own.map(|value| value.over(&layout)));
        }
        let tensor = self.signal(Hook::Weight)?;
        let value = self.value(&Returned::of(Hook::Weight, &tensor))?;
        if let Some((index, found)) = value.iter().enumerate().find(|(_, weight)| *weight < 0.0) {
            let at = layout.describe(Level::Response, index);
            let help = "0 takes a response out of the loss, 2 counts it twice";
            return Err(self.error(Hook::Weight, format!("the weight is {found} at {at}"), help));
        }
        self.given.insert("weight".to_string(), tensor);
        Ok(Some(value.over(&layout)))
    }

    fn loss_on(&mut self, batch: ScriptBatch) -> Result<Tensor, Diagnostics> {
        let result = self.hook(Hook::Loss, batch)?;
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

    fn error(&self, hook: Hook, message: String, help: &str) -> Diagnostics {
        let diagnostic = Diagnostic::error(message).with_help(help);
        self.recipe.at_hook(hook, diagnostic)
    }

    /// The loss and dloss/dlogp, not yet computed.
    fn loss(&mut self) -> Result<(Tensor, Tensor), Diagnostics> {
        let batch = self.batch();
        let loss = self.loss_on(batch.clone())?;
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
    fn equivalent(&self, gradient: &Tensor) -> Result<Tensor, Diagnostics> {
        let tokens = self.input.frame().layout().tokens() as f64;
        op::mul(gradient, &Tensor::number(-tokens)).map_err(|error| self.failed(Hook::Loss, error))
    }

    fn number(&self, loss: &Tensor) -> Result<f64, Diagnostics> {
        let value = loss.evaluate();
        let value = value.map_err(|error| self.failed(Hook::Loss, error))?;
        Ok(value.get(0))
    }

    fn metrics(&self, reports: &Reports) -> Result<Vec<(String, f64)>, Diagnostics> {
        let hook = reports.hook.unwrap_or(Hook::Advantage);
        reports.metrics().map_err(|error| self.failed(hook, error))
    }
}

/// Which responses are right, of the batch as it was given: that does not change with a shaped reward.
fn correct(input: &ScriptBatch) -> Option<Computed> {
    let value = input.column("correct").ok()?.evaluate().ok()?;
    Some(value.over(input.frame().layout()))
}

fn invoke(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Host;

    fn advantage(script: &str) -> Vec<f64> {
        let recipe = Host::new().compile("test", script).unwrap();
        let outcome = recipe.advantage(&Batch::example(), &mut recipe.init().unwrap());
        let outcome = outcome.unwrap_or_else(|error| panic!("{}", error.render(false)));
        outcome.advantage.buffer().iter().collect()
    }

    /// The engine locks a captured variable while a method of it runs; closures get the batch all the same.
    #[test]
    fn a_function_of_map_groups_may_use_the_whole_batch() {
        let by_groups = advantage(
            "fn advantage(batch, p) { batch.map_groups(|g| g.reward - batch.reward.mean(\"batch\")) }",
        );
        let at_once =
            advantage("fn advantage(batch, p) { batch.reward - batch.reward.mean(\"batch\") }");
        assert_eq!(by_groups, at_once);
    }

    fn column(batch: &Batch, name: &str, level: Level, values: Vec<f64>) -> Batch {
        let values = Computed::new(batch.layout().clone(), level, values);
        batch.clone().with(name, &values)
    }

    /// The loss of a built-in with some settings, such as `aggregate=token`.
    fn loss_of(name: &str, settings: &str, batch: &Batch) -> Loss {
        let (layout, value) = (batch.layout(), batch.token_column("value").unwrap());
        let values = |response| value.of_response(layout, response);
        let sums = (0..layout.responses()).map(|response| values(response).sum());
        let rollout = (0..layout.responses()).flat_map(|i| values(i).map(|value| -value));
        let with = column(batch, "advantage", Level::Response, sums.collect());
        let with = column(&with, "rollout_logp", Level::Token, rollout.collect());
        let entropy = (0..layout.responses()).flat_map(values);
        let with = column(&with, "entropy", Level::Token, entropy.collect());
        let mut recipe = Host::new().load(name).unwrap();
        for setting in settings.split_whitespace() {
            let (name, value) = setting.split_once('=').unwrap();
            recipe.set_text(name, value).unwrap();
        }
        let loss = recipe.loss(&with, None, &mut State::default());
        loss.unwrap_or_else(|error| panic!("{}", error.render(false)))
    }

    /// A response of weight 0 is in no sum and no count of any loss, and one of weight 2 counts as two; among others it is
    /// one.
    #[test]
    fn losses_honour_weights() {
        let example = Batch::example();
        for (twice, name, settings) in [
            (true, "ppo_clip", "aggregate=token"),
            (true, "ppo_clip", "aggregate=response"),
            (true, "ppo_clip", "aggregate=response_sum_norm horizon=8"),
            (true, "ppo_clip", "aggregate=token_sum"),
            (true, "ppo_clip", "aggregate=prompt"),
            (true, "gspo", "aggregate=response_sum"),
            (true, "gmpo", ""),
            (true, "opmd_loss", ""),
            (true, "tis", "normalize=true"),
            (true, "tis", "normalize=true level=sequence"),
            (true, "pacs", "adv_estimator=naive weight_mode=none"),
            (false, "kl_cov", "ratio=0.4"),
            (false, "clip_cov", "ratio=1.0 cov_low=-9.0 cov_high=0.0"),
            (false, "high_entropy", "top=0.5"),
            (false, "pacs", ""),
            (false, "pacs", "adv_estimator=grpo"),
            (false, "pacs", "adv_estimator=grpo std=false"),
        ] {
            let (alone, two) = match twice {
                true => (example.select(&[0, 2, 2, 3]), 2.0),
                false => (example.select(&[0, 2, 3]), 1.0),
            };
            let weights = vec![1.0, 0.0, two, 1.0, 0.0];
            let weighted = column(&example, "weight", Level::Response, weights);
            let weighted = loss_of(name, settings, &weighted);
            let expected = loss_of(name, settings, &alone).value;
            assert!(
                (weighted.value - expected).abs() < 1e-15,
                "{name} {settings}: {} for {expected}",
                weighted.value
            );
            let of_none = weighted.gradient.buffer().iter().skip(2).take(3);
            assert_eq!(of_none.collect::<Vec<_>>(), [0.0; 3], "{name} {settings}");
        }
    }

    #[test]
    fn weights_are_honoured_or_asked_for() {
        let script = "import \"aggregate\" as aggregate;
            fn weight(batch, p) { batch.reward.any(\"group\") }
            fn advantage(batch, p) { batch.reward - batch.reward.mean(\"batch\", batch.weight) }
            fn loss(batch, p) { aggregate::of(batch, -batch.advantage * batch.logp, #{ aggregate: \"token\" }) }";
        let recipe = Host::new().compile("test", script).unwrap();
        let (batch, mut state) = (Batch::example(), State::default());
        let outcome = recipe.advantage(&batch, &mut state).unwrap();
        let of = |values: &Computed| values.buffer().iter().collect::<Vec<f64>>();
        assert_eq!(
            of(outcome.weight.as_ref().unwrap()),
            [1.0, 1.0, 1.0, 0.0, 0.0]
        );
        assert_eq!(of(&outcome.advantage)[0], 1.0 - 2.0 / 3.0);
        let summary = crate::script::Summary::of(&outcome);
        assert_eq!(
            (summary.groups_without_signal, summary.tokens_without_signal),
            (1, 3)
        );
        let advantage = Some(&outcome.advantage);
        let refused = recipe.loss(&batch, advantage, &mut state).unwrap_err();
        assert!(refused[0].message.contains("no column `weight`"));
        let loss = recipe
            .loss(&outcome.weighted(&batch), advantage, &mut state)
            .unwrap();
        assert_eq!(of(&loss.gradient)[6..], [0.0; 3]);
        for (weight, wrong) in [
            ("batch.length - 2", "the weight is -1"),
            ("batch.logp", "must return a response tensor"),
        ] {
            let script = format!(
                "fn weight(batch, p) {{ {weight} }} fn advantage(batch, p) {{ batch.reward }}"
            );
            let recipe = Host::new().compile("test", &script).unwrap();
            let refused = recipe.advantage(&batch, &mut state).unwrap_err();
            assert!(refused[0].message.contains(wrong), "{}", refused[0].message);
        }
    }

    /// The value of a `const` is not changed by asking it for something.
    #[test]
    fn methods_work_on_constants() {
        let doubled = advantage(
            "fn advantage(batch, p) { const r = batch.reward; r * (1 + r.max(\"batch\").value()) }",
        );
        assert_eq!(
            doubled,
            advantage("fn advantage(batch, p) { batch.reward * 2 }")
        );
    }
}
