//! The options for watching and checking a recipe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Hook, Host, Recipe, State};
use crate::tensor::Guard;

/// The default time limit for a version's checks: several hundred times the time that the checks usually take.
const DEADLINE: Duration = Duration::from_secs(2);

/// The options for watching and checking a recipe. By default, no parameters are set, and no hooks are required or refused.
///
/// ```
/// use advlab::live::LiveOptions;
///
/// let options = LiveOptions {
///     settings: vec![("k".into(), "8".into())],
///     ..LiveOptions::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    /// Parameters and their values, as `--set k=8` sets them. Each version must accept the values of the parameters that it has.
    pub settings: Vec<(String, String)>,
    /// The hooks that each version must have, because the run always calls them.
    pub requires: Vec<Hook>,
    /// The hooks that no version may have, because the run cannot use them, each with the reason. `loss` is refused only if the
    /// version has no `advantage`.
    pub refuses: Vec<(Hook, String)>,
    /// Columns that no batch of the run has, each with the reason. A version that cannot run a step without such a column is
    /// rejected, even before the first batch. The empty name stands for all columns that are listed neither here nor in `gives`.
    pub lacks: BTreeMap<String, String>,
    /// The names of all columns that a batch of the run can have, except derived columns; a name that ends in `_` stands for all
    /// names that begin with it. `gives` is used only if `lacks` has an entry under the empty name.
    pub gives: Vec<String>,
    /// Parameters that the trainer sets only if the recipe reads `token_reward` or `value`. For a recipe with such a parameter, a
    /// reload must not change whether it reads one of these columns.
    pub set_with_returns: Vec<String>,
    /// The versions of a resumed run, each with the state after its last step. The last version is in use, and the earlier
    /// versions are [`LiveRecipe::fallbacks`](super::LiveRecipe::fallbacks). In a resumed run, the content of the file is checked
    /// before the first step, like any new version; the file may even be missing.
    pub left: Vec<(Recipe, State)>,
    /// Versions (all 64 digits of each) that were rejected, or that failed, before the run was resumed. If the file still
    /// contains such a version, it is not tried until it is saved again.
    pub rejected: Vec<String>,
    /// The step number that the next batch gets if it has none. For a resumed run, this is the value of
    /// [`LiveRecipe::next_step`](super::LiveRecipe::next_step) in the process that was stopped.
    pub next_step: u64,
    /// The time limit for all checks of a version together; 2 seconds if it is `None`.
    pub deadline: Option<Duration>,
    /// Whether saves are found only by polling once a second, without the system's file events.
    pub poll_only: bool,
}

impl LiveOptions {
    pub(super) fn time(&self) -> Duration {
        self.deadline.unwrap_or(DEADLINE)
    }

    /// Makes the guard of a version's checks, whose time starts now.
    pub(super) fn guard(&self, host: &Host) -> Arc<Guard> {
        host.guard_for(self.time())
    }

    /// Returns the reason why no batch of the run has a column; `None` if a batch may have it.
    pub(super) fn why_lacking(&self, column: &str) -> Option<&str> {
        let is_it = |given: &String| {
            given == column || given.ends_with('_') && column.starts_with(given.as_str())
        };
        let others = || self.lacks.get("").filter(|_| !self.gives.iter().any(is_it));
        let why = self.lacks.get(column).or_else(others);
        why.map(String::as_str)
    }

    /// Returns the recipe with the parameter values that the run sets. Fails if its hooks or parameters do not fit the run.
    ///
    /// A reload ignores a setting whose parameter the new version lacks, because an edit may remove the parameter and a later
    /// edit may put it back.
    pub(super) fn fit(&self, mut recipe: Recipe, is_reload: bool) -> Result<Recipe, Diagnostics> {
        if let Some(hook) = self.requires.iter().find(|hook| !recipe.has(**hook)) {
            let (name, hook) = (recipe.name(), hook.name());
            let message = format!("{name}: the script has no `{hook}`, which this run calls");
            return Err(Diagnostic::error(message).into());
        }
        let is_used = |hook| hook != Hook::Loss || !recipe.has(Hook::Advantage);
        let mut refuses = self.refuses.iter();
        if let Some((hook, why)) = refuses.find(|(hook, _)| recipe.has(*hook) && is_used(*hook)) {
            let message = format!("the script has the hook `{}`: {why}", hook.name());
            return Err(recipe.at_hook(*hook, Diagnostic::error(message)));
        }
        let reads = recipe.reads();
        let has_return = reads.contains("token_reward") || reads.contains("value");
        let differs = |name: &&String| {
            let is_set = self.settings.iter().any(|(set, _)| set == *name);
            recipe.params().get(name).is_some() && is_set != has_return
        };
        if let Some(name) = self.set_with_returns.iter().find(differs) {
            let which = if has_return { "one of them" } else { "neither" };
            let message = format!(
                "`{name}` is set by the trainer if the recipe reads `token_reward` or `value`: this version reads {which}, unlike the first version"
            );
            let help = format!("set `{name}` in the run's parameters, or start a new run");
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
                let help = format!("the run sets {name}={text}, which a new version must accept");
                return Err(recipe.at_hook(Hook::Params, error.with_help(help)));
            }
        }
        Ok(recipe)
    }
}
