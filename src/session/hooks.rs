//! A recipe in a session: its hooks as `reward()`, `advantage()` and `loss()` on the session's batch.

use std::sync::Arc;

use rhai::{Engine, EvalAltResult, Map, NativeCallContext as Context};

use super::Session;
use crate::script::batch_type::ScriptBatch;
use crate::script::error::raise;
use crate::script::mistake::Mistake;
use crate::script::{Hook, Recipe};
use crate::tensor::Tensor;

/// The batch and the parameters that a hook is called with; without them it takes those of the session.
type Arguments = Option<(ScriptBatch, Map)>;

impl Session {
    /// The recipe whose hooks inputs call.
    pub fn recipe(&self) -> Option<&Recipe> {
        self.recipe.as_ref()
    }

    /// Makes a recipe's hooks callable, as `reward()`, `advantage()` and `loss()`, and its parameters `p`. Functions of
    /// these hooks' names that inputs have defined are gone: what was defined last counts.
    pub fn use_recipe(&mut self, recipe: Option<Recipe>) {
        let is_hook = |name: &str, arguments| {
            arguments == 2 && Hook::OF_BATCH.iter().any(|hook| hook.name() == name)
        };
        self.functions
            .retain_functions(|_, _, name, arguments| !is_hook(name, arguments));
        self.recipe = recipe.map(|recipe| recipe.on(&self.host));
        self.place_own();
    }

    /// Registers the hooks of the recipe in use, as `advantage()` and, as in scripts, `advantage(batch, p)`. Each call starts
    /// from the state that `init` makes, so that the same input gives the same answer.
    pub(super) fn hooks(&self, engine: &mut Engine) {
        for hook in Hook::OF_BATCH {
            let alone = Arc::new(self.hook(hook));
            let (of_batch, of_both, name) = (alone.clone(), alone.clone(), hook.name());
            engine
                .register_fn(name, move |context: Context| alone(&context, None))
                .register_fn(name, move |context: Context, batch| {
                    of_batch(&context, Some((batch, Map::new())))
                })
                .register_fn(name, move |context: Context, batch, p| {
                    of_both(&context, Some((batch, p)))
                });
        }
    }

    fn hook(
        &self,
        hook: Hook,
    ) -> impl Fn(&Context, Arguments) -> Result<Tensor, Box<EvalAltResult>> + use<> {
        let recipe = self.recipe.clone();
        let current = self.batch.clone();
        move |context, arguments| {
            let name = hook.name();
            let Some(recipe) = &recipe else {
                return Err(raise(context, Mistake::NoRecipeLoaded { hook: name }));
            };
            let mut recipe = recipe.clone();
            if let Some((batch, p)) = arguments {
                if !Arc::ptr_eq(batch.frame(), current.frame()) {
                    return Err(raise(context, Mistake::AnotherBatch { hook: name }));
                }
                let mut settings = p.iter();
                settings
                    .try_for_each(|(name, value)| recipe.params.set_dynamic(name, value))
                    .map_err(|error| {
                        let error = &error.to_string();
                        raise(context, Mistake::RefusedSetting { error })
                    })?;
            }
            recipe
                .tensor(hook, &current)
                .map_err(|error| raise(context, error[0].clone()))
        }
    }
}
