//! Hooks that are called at the prompt, as functions of the current batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Run;
use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::batch_type::ScriptBatch;
use crate::script::call::Call;
use crate::script::host::Host;
use crate::script::recipe::{Hook, Recipe};
use crate::tensor::Tensor;

/// A hook's tensor over the batch of a session, with the hooks before it run too.
///
/// The state is the one that `init` makes. A recipe without a loss has that of a run, `ppo_clip`; one without an
/// advantage the equivalent one.
pub(in crate::script) fn tensor_of(
    recipe: &Recipe,
    hook: Hook,
    input: &Batch,
    batch: &ScriptBatch,
    call: &Arc<Call>,
) -> Result<Tensor, Diagnostics> {
    let mut run = Run {
        recipe,
        engine: recipe.host.functions.engine(call),
        call: call.clone(),
        frame: batch.frame().clone(),
        input,
        state: recipe.init()?.to_dynamic(),
        given: BTreeMap::new(),
    };
    // The same leaf as the session's: a gradient by `batch.logp` must find it in the loss.
    let asked_for = |name: &str| batch.known_columns().iter().any(|(known, _)| known == name);
    if hook == Hook::Loss || !recipe.has(Hook::Advantage) || asked_for("logp") {
        run.given
            .extend(batch.column("logp").ok().map(|logp| ("logp", logp)));
    }
    run.reward()?;
    if hook == Hook::Reward {
        let reward = run.batch().column("reward");
        return reward.map_err(|problem| Diagnostic::error(problem.message).into());
    }
    let advantage = if recipe.has(Hook::Advantage) {
        Some(run.signal(Hook::Advantage)?.0)
    } else {
        None
    };
    match (hook, advantage) {
        (Hook::Loss, advantage) => {
            run.given
                .extend(advantage.map(|advantage| ("advantage", advantage)));
            let default;
            if !recipe.has(Hook::Loss) {
                let host = Host {
                    shared: recipe.host.clone(),
                };
                default = host.load(DEFAULT_LOSS)?;
                run.recipe = &default;
            }
            let batch = run.batch();
            run.loss_on(batch)
        }
        (_, Some(advantage)) => Ok(advantage),
        (_, None) => {
            let (_, gradient) = run.loss()?;
            run.equivalent(&gradient)
        }
    }
}

/// The loss of a run whose recipe has none.
pub(in crate::script) const DEFAULT_LOSS: &str = "ppo_clip";
