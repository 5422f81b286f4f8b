//! Runs a recipe's hooks, which `../hook.rs` lists, except `params`: `init` and `migrate` make a state, and the others compute on
//! a batch.

mod request;
mod run;

use std::sync::Arc;

use rhai::{Dynamic, Engine, FuncArgs};
use run::invoke;

use super::bindings::batch::ScriptBatch;
use super::call::CallContext;
use super::hook::Hook;
use super::outcome::{Loss, Outcome};
use super::recipe::Recipe;
use super::state::State;
use crate::batch::{Batch, Computed};
use crate::deep_stack;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::tensor::Tensor;

impl Recipe {
    /// Returns the initial state of a run: the result of `init(p)`, or an empty map if there is no `init`.
    ///
    /// # Errors
    /// [`Diagnostics`] if `init` fails, or returns a value that cannot be a state.
    pub fn init(&self) -> Result<State, Diagnostics> {
        if !self.has(Hook::Init) {
            return Ok(State::default());
        }
        self.state_from(Hook::Init, (self.params.to_map(),))
    }

    /// Returns the state with which this version continues after another version: the result of `migrate(old, p)` or, if there is
    /// no `migrate`, the old state plus the entries that only `init(p)` has. In both cases, the values remembered by key stay.
    pub fn migrate(&self, old: &State) -> Result<State, Diagnostics> {
        if !self.has(Hook::Migrate) {
            return Ok(old.with_missing_of(&self.init()?));
        }
        let state = self.state_from(Hook::Migrate, (old.to_dynamic(), self.params.to_map()))?;
        Ok(state.with_tables(old.tables.clone()))
    }

    fn state_from(&self, hook: Hook, args: impl FuncArgs + Send) -> Result<State, Diagnostics> {
        deep_stack::call(|| {
            let (call, mut none) = (self.host.call(0), Dynamic::default());
            let value = invoke(self, &self.engine(&call), hook, &mut none, args);
            let value = call.unless_failed(value);
            let value = value.map_err(|error| self.failed_in(hook, &error))?;
            State::from_dynamic(value).map_err(|unfit| {
                let name = hook.name();
                let message =
                    format!("the value that `{name}` returns cannot be the state: {unfit}");
                let help = "return a map of numbers, strings, arrays and maps: `#{ count: 0 }`";
                self.at_hook(hook, Diagnostic::error(message).with_help(help))
            })
        })
    }

    /// Makes the engine of one call of the recipe's hooks.
    pub(super) fn engine(&self, call: &Arc<CallContext>) -> Engine {
        self.host.functions.engine(call, &self.script.constants)
    }

    /// Computes the advantage: calls `reward` and `weight`, if the recipe has them, and then `advantage`. If the recipe has only
    /// a loss, the advantage is the equivalent -M dloss/dlogp, where M is the number of tokens.
    ///
    /// `state` changes only if all hooks succeed.
    ///
    /// # Errors
    /// [`Diagnostics`] if a hook fails, runs out of time or memory, or returns an invalid reward, weight or advantage. A result
    /// is invalid if it is not a tensor or has values that are not finite. A reward or an advantage must be at response,
    /// trajectory or token level, or a number per group from `map_groups`; an advantage must not be finer than the caller takes
    /// ([`Batch::with_one_advantage_per`]). A weight must be at response level or coarser, and must not be negative.
    pub fn advantage(&self, batch: &Batch, state: &mut State) -> Result<Outcome, Diagnostics> {
        let mut after = state.clone();
        let outcome = self.answer(Hook::Advantage, batch, None, &mut after)?;
        let is_fit = batch.check_level(&outcome.advantage);
        is_fit.map_err(|error| self.at_hook(Hook::Advantage, error))?;
        *state = after;
        Ok(outcome)
    }

    /// Computes the recipe's loss and its gradient with respect to `logp`. The hook reads the argument `advantage` as
    /// `batch.advantage`.
    ///
    /// # Errors
    /// [`Diagnostics`] as for [`Recipe::advantage`]; also if `advantage` belongs to another batch, if the recipe has a `weight`
    /// hook but the batch has no column `weight`, or if the loss is not a single value or does not depend on `batch.logp`.
    pub fn loss(
        &self,
        batch: &Batch,
        advantage: Option<&Computed>,
        state: &mut State,
    ) -> Result<Loss, Diagnostics> {
        if advantage.is_some_and(|advantage| !batch.is_of(advantage)) {
            let error = Diagnostic::error("the advantage belongs to another batch");
            return Err(self.at_hook(Hook::Loss, error));
        }
        let outcome = self.answer(Hook::Loss, batch, advantage, state)?;
        Ok(Loss {
            value: outcome.loss.unwrap_or_default(),
            gradient: outcome.advantage,
            reports: outcome.reports,
        })
    }

    /// Computes the weight of each response by the `weight` hook, which sees the result of the `reward` hook. Without a `weight`
    /// hook, returns the column `weight`, or `None` if there is none. Changes that the hooks make to the state are not kept.
    pub fn weights(&self, batch: &Batch, state: &State) -> Result<Option<Computed>, Diagnostics> {
        let input = ScriptBatch::new(self.host.call(batch.step()), batch);
        self.with_hooks(Hook::Weight, input, state, |hooks| {
            hooks.reward()?;
            hooks.weight()
        })
    }

    /// Computes the targets of a critic, at response or token level, if the recipe has the hook `returns`. Changes that the hooks
    /// make to the state are not kept.
    pub fn returns(&self, batch: &Batch, state: &State) -> Result<Option<Computed>, Diagnostics> {
        if !self.has(Hook::Returns) {
            return Ok(None);
        }
        let input = ScriptBatch::new(self.host.call(batch.step()), batch);
        self.with_hooks(Hook::Returns, input, state, |hooks| {
            hooks.reward()?;
            Ok(Some(hooks.signal_value(Hook::Returns)?.1))
        })
    }

    /// Runs a hook on the batch of a session, after the hooks that precede it in a step, and returns its tensor.
    ///
    /// The hooks start from the state that `init` makes. If the recipe has no loss, `loss` is used or, if that is `None`,
    /// [`Host::loss`](super::Host::loss). If `hook` is the advantage and the recipe has only a loss, the result is the advantage
    /// equivalent to that loss.
    pub(crate) fn tensor(
        &self,
        hook: Hook,
        batch: &ScriptBatch,
        loss: Option<&Recipe>,
    ) -> Result<Tensor, Diagnostics> {
        let default = match loss {
            _ if hook != Hook::Loss || self.has(Hook::Loss) => self.clone(),
            Some(loss) => loss.on(&self.host),
            None => self.host.loss()?,
        };
        self.with_hooks(hook, batch.clone(), &self.init()?, |hooks| {
            hooks.reward()?;
            if hook != Hook::Reward {
                hooks.weight()?;
            }
            if let Hook::Reward | Hook::Weight = hook {
                return Ok(hooks.batch.column(hook.name())?);
            }
            if hook == Hook::Advantage || self.has(Hook::Advantage) {
                let (advantage, loss) = hooks.advantage()?;
                hooks.compute(&advantage, loss.as_ref())?;
                if hook == Hook::Advantage {
                    return Ok(advantage);
                }
                hooks.give(Hook::Advantage, advantage)?;
            }
            hooks.recipe = &default;
            hooks.loss_tensor()
        })
    }

    /// Calls the recipe's hooks on a batch, and returns their tensors, not yet computed, and the state after the calls. The hooks
    /// are called as in a step, except that `returns` is called too, and that `loss` sees the batch's own columns instead of the
    /// results of the other hooks.
    pub(crate) fn traced(
        &self,
        batch: &ScriptBatch,
        state: &State,
    ) -> Result<(Vec<(Hook, Tensor)>, State), Diagnostics> {
        let first = Hook::OF_BATCH.into_iter().find(|hook| self.has(*hook));
        let hook = first.unwrap_or(Hook::Advantage);
        self.with_hooks(hook, batch.clone(), state, |hooks| {
            let mut traced = Vec::new();
            let of_rewards = [Hook::Reward, Hook::Returns, Hook::Weight, Hook::Advantage];
            for hook in of_rewards.into_iter().filter(|hook| self.has(*hook)) {
                let tensor = hooks.signal(hook)?;
                if let Hook::Reward | Hook::Weight = hook {
                    hooks.give(hook, tensor.clone())?;
                }
                traced.push((hook, tensor));
            }
            if self.has(Hook::Loss) {
                hooks.batch = hooks.input.clone();
                traced.push((Hook::Loss, hooks.loss_tensor()?));
            }
            Ok((traced, hooks.finished_state()?))
        })
    }

    /// Returns messages about the kernels that have been found, since the last call of this function, to differ from their
    /// scripts. All recipes of a host share these messages.
    pub fn kernel_defects(&self) -> Vec<String> {
        self.host.native.defects()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Level;
    use crate::script::Host;

    fn column(batch: &Batch, name: &str, level: Level, values: Vec<f64>) -> Batch {
        let values = Computed::new(batch.layout().clone(), level, values);
        batch.clone().with(name, &values).unwrap()
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

    /// A response of weight 0 is in no sum and no count of these losses. A response of weight 2 counts as two, except in losses
    /// that compare responses with each other, which are tested with weight 1.
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
            let (alone, two) = if twice {
                (example.select(&[0, 2, 2, 3]), 2.0)
            } else {
                (example.select(&[0, 2, 3]), 1.0)
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
        let weight = outcome.weight.as_ref().unwrap();
        assert_eq!(of(weight), [1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(of(&outcome.advantage)[0], 1.0 - 2.0 / 3.0);
        let summary = crate::script::Summary::of(&outcome);
        assert_eq!(summary.groups_without_signal, 1);
        assert_eq!(summary.tokens_without_signal, 3);
        let advantage = Some(&outcome.advantage);
        let refused = recipe.loss(&batch, advantage, &mut state).unwrap_err();
        assert!(refused[0].message.contains("no column `weight`"));
        let weighted = outcome.weighted(&batch).unwrap();
        let loss = recipe.loss(&weighted, advantage, &mut state);
        assert_eq!(of(&loss.unwrap().gradient)[6..], [0.0; 3]);
        for (weight, wrong) in [
            ("batch.length - 2", "the weight is -1"),
            ("batch.logp", "must return a response or group tensor"),
        ] {
            let script = format!(
                "fn weight(batch, p) {{ {weight} }} fn advantage(batch, p) {{ batch.reward }}"
            );
            let recipe = Host::new().compile("test", &script).unwrap();
            let refused = recipe.advantage(&batch, &mut state).unwrap_err();
            assert!(refused[0].message.contains(wrong), "{}", refused[0].message);
        }
    }
}
