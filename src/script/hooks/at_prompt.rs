//! Hooks that are called at the prompt, as functions of the current batch.

use super::{Returned, Run};
use crate::diagnostic::Diagnostics;
use crate::script::batch_type::ScriptBatch;
use crate::script::recipe::{Hook, Recipe};
use crate::tensor::Tensor;

/// A hook's tensor over the batch of a session, with the hooks before it run too.
///
/// The state is the one that `init` makes. A recipe without a loss has that of [`Host::loss`]; one without an
/// advantage the equivalent one.
pub(crate) fn tensor_of(
    recipe: &Recipe,
    hook: Hook,
    batch: &ScriptBatch,
) -> Result<Tensor, Diagnostics> {
    let mut run = Run::on(recipe, batch.clone(), &recipe.init()?);
    // The same leaf as the session's: a gradient by `batch.logp` must find it in the loss.
    let asked_for = |name: &str| batch.known_columns().iter().any(|(known, _)| known == name);
    if hook == Hook::Loss || !recipe.has(Hook::Advantage) || asked_for("logp") {
        let logp = batch.column("logp").ok();
        run.given
            .extend(logp.map(|logp| ("logp".to_string(), logp)));
    }
    run.reward()?;
    if hook == Hook::Reward {
        let reward = run.batch().column("reward");
        return reward.map_err(|error| error.diagnostic.into());
    }
    run.weight()?;
    if hook == Hook::Weight {
        let weight = run.batch().column("weight");
        return weight.map_err(|error| error.diagnostic.into());
    }
    if recipe.has(Hook::Advantage) {
        let advantage = run.signal(Hook::Advantage)?;
        run.value(&Returned::of(Hook::Advantage, &advantage))?;
        if hook == Hook::Advantage {
            return Ok(advantage);
        }
        run.given.insert("advantage".to_string(), advantage);
    } else if hook == Hook::Advantage {
        let (loss, gradient) = run.loss()?;
        run.value(&Returned::gradient(&loss, &gradient))?;
        return run.equivalent(&gradient);
    }
    let default;
    if !recipe.has(Hook::Loss) {
        default = recipe.host.loss()?;
        run.recipe = &default;
    }
    let batch = run.batch();
    run.loss_on(batch)
}
