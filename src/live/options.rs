//! How a recipe is watched and checked.

use std::sync::Arc;
use std::time::Duration;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Hook, Host, Recipe, State};
use crate::tensor::Guard;

/// Some hundred times what the checks take.
const DEADLINE: Duration = Duration::from_secs(2);

/// How a recipe is watched and checked. By default nothing is set or required.
///
/// ```
/// use advlab::live::LiveOptions;
///
/// let options = LiveOptions {
///     settings: vec![("k".into(), "8".into())],
///     requires: vec![advlab::script::Hook::Loss],
///     ..LiveOptions::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    /// Parameters and their values, as `--set k=8` sets them; each version must take the values.
    pub settings: Vec<(String, String)>,
    /// Hooks that each version must have, as the run calls them whatever happens.
    pub requires: Vec<Hook>,
    /// Hooks that no version may have, as the run cannot do what they say, each with the reason; `loss` only where it stands for
    /// the advantage.
    pub refuses: Vec<(Hook, String)>,
    /// Parameters that `settings` has the trainer's values of where the first version reads `token_reward` or `value`: with such
    /// a parameter, each version must be like it in this.
    pub of_returns: Vec<String>,
    /// The versions of a run that is resumed, each with the state that it left: the last one is in use, the one before it
    /// is to fall back to ([`LiveRecipe::fallback`](super::LiveRecipe::fallback)). The content of the
    /// file is then checked before the first step as any new version; the file may even be missing.
    pub left: Vec<(Recipe, State)>,
    /// Versions, by all their digits, that were rejected or failed before the run was resumed. Where the file holds one
    /// of them still, it is not tried until it is saved again.
    pub rejected: Vec<String>,
    /// The number of the next step, for batches that have none: [`LiveRecipe::next_step`](super::LiveRecipe::next_step)
    /// of the process that the run was stopped in.
    pub next_step: u64,
    /// The time that a version has for all its checks together: 2 seconds, unless set.
    pub deadline: Option<Duration>,
    /// Whether to leave the system's file events alone: saves are found by the poll, each second.
    pub poll_only: bool,
}

impl LiveOptions {
    /// The guard of a version's checks, which begin now.
    pub(super) fn guard(&self, host: &Host) -> Arc<Guard> {
        let deadline = self.deadline.unwrap_or(DEADLINE);
        Guard::new(Some(deadline), host.limits().memory)
    }

    /// The recipe with the values that the run sets, where it has the hooks that the run calls.
    ///
    /// A reload passes over a parameter that the new version has not: an edit may take it out, and may put it back.
    pub(super) fn fit(&self, mut recipe: Recipe, is_reload: bool) -> Result<Recipe, Diagnostics> {
        if let Some(hook) = self.requires.iter().find(|hook| !recipe.has(**hook)) {
            let (name, hook) = (recipe.name(), hook.name());
            let message = format!("{name}: the script has no `{hook}`, which this run calls");
            return Err(Diagnostic::error(message).into());
        }
        let stands = |hook| hook != Hook::Loss || !recipe.has(Hook::Advantage);
        let mut refuses = self.refuses.iter();
        if let Some((hook, why)) = refuses.find(|(hook, _)| recipe.has(*hook) && stands(*hook)) {
            let message = format!("the script has the hook `{}`: {why}", hook.name());
            return Err(recipe.at_hook(*hook, Diagnostic::error(message)));
        }
        let reads = &recipe.reads().names;
        let has_return = reads.contains("token_reward") || reads.contains("value");
        let differs = |name: &&String| {
            let is_set = self.settings.iter().any(|(set, _)| set == *name);
            recipe.params().get(name).is_some() && is_set != has_return
        };
        if let Some(name) = self.of_returns.iter().find(differs) {
            let which = if has_return { "one" } else { "neither" };
            let message = format!(
                "`{name}` is the trainer's where the recipe reads `token_reward` or `value`: this version reads {which}, unlike the first"
            );
            let help = format!("set `{name}` in the run's parameters, or begin the run again");
            return Err(recipe.at_hook(Hook::Params, Diagnostic::error(message).with_help(help)));
        }
        for (name, text) in &self.settings {
            if is_reload && recipe.params().get(name).is_none() {
                continue;
            }
            if let Err(error) = recipe.set_text(name, text) {
                let error = Diagnostic::error(error.to_string());
                if !is_reload {
                    return Err(error.into());
                }
                let help = format!("the run sets {name}={text}, and a new version has to take it");
                return Err(recipe.at_hook(Hook::Params, error.with_help(help)));
            }
        }
        Ok(recipe)
    }
}
