//! A recipe in a session: its hooks as `reward()`, `advantage()` and `loss()` on the session's batch.

use rhai::{Engine, EvalAltResult, NativeCallContext};

use super::super::error::{Problem, ScriptError, raise};
use super::super::hooks::tensor_of;
use super::super::recipe::{Hook, Recipe};
use super::{Session, lock};
use crate::tensor::Tensor;

impl Session {
    /// The recipe whose hooks inputs call.
    pub fn recipe(&self) -> Option<&Recipe> {
        self.recipe.as_ref()
    }

    /// Makes a recipe's hooks callable, as `reward()`, `advantage()` and `loss()`, and its parameters `p`.
    pub fn use_recipe(&mut self, recipe: Option<Recipe>) {
        self.recipe = recipe.map(|recipe| recipe.on(&self.host));
        self.place_own();
    }

    /// Registers the hooks of the recipe in use. Each call starts from the state that `init` makes, so that the same
    /// input gives the same answer.
    pub(super) fn hooks(&self, engine: &mut Engine) {
        for hook in [Hook::Reward, Hook::Advantage, Hook::Loss] {
            let (recipe, stage, failed) =
                (self.recipe.clone(), self.stage.clone(), self.failed.clone());
            let call = move |context: NativeCallContext| -> Result<Tensor, Box<EvalAltResult>> {
                let Some(recipe) = &recipe else {
                    let problem = Problem::new(format!(
                        "`{}()` is a recipe's, and none is loaded",
                        hook.name()
                    ));
                    return Err(raise(
                        &context,
                        problem.help("`:recipe grpo` loads one; what you typed is run by `:run`"),
                    ));
                };
                tensor_of(recipe, hook, &stage.lent, &stage.batch, &stage.call).map_err(|error| {
                    let problem = Problem::new(error.to_string());
                    *lock(&failed) = Some(error);
                    raise(&context, problem)
                })
            };
            engine.register_fn(hook.name(), call);
        }
    }

    /// Checks that a recipe runs on the session's batch.
    ///
    /// # Errors
    /// [`ScriptError`] as [`Recipe::advantage`].
    pub fn try_recipe(&self, recipe: &Recipe) -> Result<(), ScriptError> {
        self.guard.rearm();
        tensor_of(
            recipe,
            Hook::Advantage,
            &self.stage.lent,
            &self.stage.batch,
            &self.stage.call,
        )
        .map(|_| ())
    }
}
