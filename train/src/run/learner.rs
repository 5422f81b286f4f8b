//! Improves the policy with a batch: computes the recipe's advantage, then lowers the loss in epochs of minibatches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use super::rollout::Sampled;
use crate::config::Config;
use crate::error::Result;
use crate::policy::{NonFinite, Policy, Responses};
use crate::random::{Purpose, StreamKey};
use crate::row::{Stage, milliseconds, rounded};
use advlab::batch::{Batch, Computed};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::plan::{Summand, terms};
use advlab::script::{Hook, Loss, Outcome, Recipe, State, Summary};
use advlab::tensor::Level;

/// The cause of a failed step: the version, in which case another version may succeed, or the run itself.
pub(super) enum StepFailure {
    Version(Diagnostics),
    Run(Diagnostics),
}

impl From<Diagnostics> for StepFailure {
    fn from(error: Diagnostics) -> Self {
        StepFailure::Run(error)
    }
}

impl From<NonFinite> for StepFailure {
    fn from(error: NonFinite) -> Self {
        let problem = |help: &str| Diagnostic::error(error.to_string()).with_help(help).into();
        match error {
            // The cause is the version: its derivatives are finite, but so large that the gradient is not finite.
            NonFinite::Gradient(_) => {
                StepFailure::Version(problem("the advantage or the loss is too large for f32"))
            }
            NonFinite::Parameters => StepFailure::Run(problem("is `lr` too large?")),
        }
    }
}

/// The numbers of a step's row that come from the step's version and updates, and the lines that the scripts printed.
pub(super) struct Learned {
    pub(super) summary: Summary,
    /// The mean reward after the recipe's `reward` hook.
    pub(super) reward_mean: Option<f64>,
    pub(super) loss: f64,
    pub(super) clip_share: Option<f64>,
    pub(super) grad_norm: f64,
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) prints: Vec<String>,
    pub(super) ms: [(Stage, f64); 3],
}

/// The policy, and the loss recipe for versions that have no loss of their own.
pub(super) struct Learner {
    pub(super) policy: Box<dyn Policy>,
    pub(super) loss: Recipe,
    pub(super) loss_state: State,
}

impl Learner {
    /// Returns the recipe whose loss trains the policy: the version itself if it has a `loss`, else the run's loss recipe.
    pub(super) fn loss_of<'a>(&'a self, recipe: &'a Recipe) -> &'a Recipe {
        match recipe.has(Hook::Loss) {
            true => recipe,
            false => &self.loss,
        }
    }

    /// Runs one step with one version. On failure the learner is unchanged, but `state` may have changed.
    pub(super) fn learn(
        &mut self,
        config: &Config,
        recipe: &Recipe,
        state: &mut State,
        sampled: &Sampled,
    ) -> Result<Learned, StepFailure> {
        let (started, has_advantage) = (Instant::now(), recipe.has(Hook::Advantage));
        let before = (config.terms && has_advantage).then(|| state.clone());
        let outcome = match has_advantage {
            true => recipe.advantage(&sampled.batch, state),
            // This advantage is only for the report, so it is computed with a copy of the state: the step's state, metrics and
            // printed lines come from the loss, which runs again on each minibatch.
            false => recipe.advantage(&sampled.batch, &mut state.clone()),
        };
        let mut outcome = outcome.map_err(StepFailure::Version)?;
        let summary = Summary::of(&outcome);
        // This is the mean over responses; rewards per token are summed for each response.
        let mean = |reward: &Computed| {
            reward.buffer().iter().sum::<f64>() / summary.responses.max(1) as f64
        };
        let reward_mean = outcome.reward.as_ref().map(mean);
        if let Some(before) = before {
            let terms = terms(recipe, &sampled.batch, &before).map_err(StepFailure::Version)?;
            outcome
                .reports
                .metrics
                .extend(terms.iter().flat_map(Summand::metrics));
        }
        let of_recipe = milliseconds(started);

        let started = Instant::now();
        let mut batch = outcome.weighted(&sampled.batch)?;
        if has_advantage {
            batch = batch.with("advantage", &outcome.advantage)?;
        } else {
            (outcome.reports.metrics, outcome.reports.prints) = Default::default();
        }
        // Only later updates need a savepoint, because a version that fails at the first update leaves the policy unchanged.
        let has_later = config.epochs * config.minibatches > 1;
        if has_later {
            self.policy.savepoint()?;
        }
        let loss_state = self.loss_state.clone();
        let updates = match self.follow(config, recipe, state, &sampled.responses, &batch) {
            Ok(updates) => updates,
            Err(failure) => {
                if has_later {
                    self.policy.rollback()?;
                }
                self.loss_state = loss_state;
                return Err(failure);
            }
        };
        // The reported numbers are means over the updates, with equal weights.
        let count = updates.len() as f64;
        let mut native = outcome.reports.native.unwrap_or_default();
        let (mut metrics_of_loss, mut prints) = (Vec::new(), outcome.reports.prints.clone());
        let (mut loss_sum, mut norm_sum) = (0.0, 0.0);
        for (loss, grad_norm) in updates {
            loss_sum += loss.value;
            norm_sum += grad_norm;
            native += loss.reports.native.unwrap_or_default();
            metrics_of_loss.extend(loss.reports.metrics);
            prints.extend(loss.reports.prints);
        }
        let mut metrics = metrics(&outcome, &metrics_of_loss);
        Ok(Learned {
            summary,
            reward_mean,
            loss: loss_sum / count,
            clip_share: metrics.remove("clip_share"),
            grad_norm: norm_sum / count,
            metrics,
            prints,
            ms: [
                (Stage::Recipe, of_recipe),
                (Stage::Update, milliseconds(started)),
                (Stage::Native, rounded(native)),
            ],
        })
    }

    /// Updates the policy to lower a recipe's loss, in epochs of minibatches; returns the loss and gradient norm of each update.
    fn follow(
        &mut self,
        config: &Config,
        recipe: &Recipe,
        state: &mut State,
        all: &Responses,
        batch: &Batch,
    ) -> Result<Vec<(Loss, f64)>, StepFailure> {
        let mut updates = Vec::new();
        for members in minibatches(config, batch) {
            // A minibatch with all responses equals the batch, because its responses are in the order of the batch.
            let (responses, mut minibatch) = match members.len() == all.len() {
                true => (Cow::Borrowed(all), batch.clone()),
                false => (Cow::Owned(all.select(&members)), batch.select(&members)),
            };
            // Before the first update, the batch already has the current policy's `logp`, because this policy sampled the batch.
            if !updates.is_empty() {
                let logp = self.policy.score(&responses)?.logp;
                let logp = Computed::new(minibatch.layout().clone(), Level::Token, logp);
                minibatch = minibatch.with("logp", &logp)?;
            }
            let loss = match recipe.has(Hook::Loss) {
                true => recipe.loss(&minibatch, None, state),
                false => self.loss.loss(&minibatch, None, &mut self.loss_state),
            };
            let loss = loss.map_err(StepFailure::Version)?;
            let gradient: Vec<f64> = loss.gradient.buffer().iter().collect();
            self.policy.accumulate(&responses, &gradient)?;
            updates.push((loss, self.policy.update(config.max_grad_norm())??));
        }
        Ok(updates)
    }

    /// Runs the advantage and the loss on the first step's batch, with copies of the states. The run does this before its folder
    /// is created, because the trial finds uses of columns that the run does not have.
    pub(super) fn dry_run(&self, first: &Batch, recipe: &Recipe, state: &State) -> Result<()> {
        let mut state = state.clone();
        let outcome = recipe.advantage(first, &mut state);
        let outcome = outcome.map_err(|error| refused(error, recipe))?;
        // A recipe without `advantage` has already run its loss, because its advantage is derived from the loss.
        if !recipe.has(Hook::Advantage) {
            return Ok(());
        }
        let loss = self.loss_of(recipe);
        if !recipe.has(Hook::Loss) {
            state = self.loss_state.clone();
        }
        let batch = outcome.weighted(first)?;
        let result = loss.loss(&batch, Some(&outcome.advantage), &mut state);
        result.map(drop).map_err(|error| refused(error, loss))
    }
}

/// Returns the metrics of all hooks, each a mean over its reports. If the advantage and the loss report metrics of the same name,
/// the key begins with the hook, as in `loss/name`.
fn metrics(outcome: &Outcome, loss: &[(String, f64)]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let own = outcome.reports.metrics.iter();
    let own = own.map(|one| (outcome.reports.reporter(&one.0), one));
    let is_in = |all: &[(String, f64)], name| all.iter().any(|(other, _)| other == name);
    for (hook, (name, value)) in own.chain(loss.iter().map(|one| (Hook::Loss, one))) {
        let name = match is_in(&outcome.reports.metrics, name) && is_in(loss, name) {
            true => format!("{}/{name}", hook.name()),
            false => name.clone(),
        };
        let (sum, count) = sums.entry(name).or_default();
        (*sum, *count) = (*sum + value, *count + 1.0);
    }
    let mean = |(name, (sum, count))| (name, sum / count);
    sums.into_iter().map(mean).collect()
}

/// Replaces the help of an error if there is better help, and adds that the error comes from a dry run.
fn refused(mut error: Diagnostics, recipe: &Recipe) -> Diagnostics {
    let name = recipe.name();
    let first = error.first_mut();
    let help = match first.missing_column() {
        Some("value") => {
            "the policy is trained without a critic, so a run has no column `value`".to_string()
        }
        Some("ref_logp") => "`reference = true` in the configuration adds this column".to_string(),
        Some("advantage") if !recipe.has(Hook::Advantage) => format!(
            "{name} has only a loss: choose a recipe for the advantage, such as `--recipe grpo`, and set this recipe as the configuration's `loss_recipe`"
        ),
        _ => first.help.take().unwrap_or_default(),
    };
    first.help = Some(help).filter(|help| !help.is_empty());
    first
        .notes
        .push("this happened in a trial on the first batch; training has not begun".to_string());
    error
}

/// Returns the indices of the responses in each minibatch, epoch after epoch. A minibatch has whole groups, in the batch's order.
fn minibatches(config: &Config, batch: &Batch) -> impl Iterator<Item = Vec<usize>> {
    let (layout, minibatches) = (batch.layout().clone(), config.minibatches);
    let groups = layout.groups();
    let key = StreamKey::new(config.seed, Purpose::Minibatches, batch.step());
    (0..config.epochs as u64).flat_map(move |epoch| {
        let mut order: Vec<usize> = (0..groups).collect();
        if minibatches > 1 {
            key.stream(epoch).shuffle(&mut order);
        }
        // The minibatches' numbers of groups differ by at most one.
        let parts = (0..minibatches).map(|part| {
            let own = part * groups / minibatches..(part + 1) * groups / minibatches;
            let mut own = order[own].to_vec();
            own.sort_unstable();
            let rows = own.into_iter().flat_map(|group| layout.members(group));
            rows.map(|&row| row as usize).collect()
        });
        parts.collect::<Vec<_>>()
    })
}
