//! From a batch to a better policy: the recipe's advantage, then epochs of minibatches that follow the loss.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::config::Config;
use super::policy::{NonFinite, Policy};
use super::random::{Key, Purpose};
use super::rollout::{Rollout, mean, select};
use crate::batch::{Batch, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Builtin, Hook, Outcome, Recipe, State};
use crate::tensor::k3;

/// Why a step could not be done: its version failed, which another version may not, or the run did.
pub(super) enum Failure {
    Version(Diagnostics),
    Run(Diagnostics),
}

impl From<Diagnostics> for Failure {
    fn from(error: Diagnostics) -> Self {
        Failure::Run(error)
    }
}

impl From<Failure> for Diagnostics {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Version(error) | Failure::Run(error) => error,
        }
    }
}

impl From<NonFinite> for Failure {
    fn from(error: NonFinite) -> Self {
        match error {
            // Finite derivatives whose gradient is not: they came from the version's advantage or loss.
            NonFinite::Gradient { norm } => Failure::Version(
                Diagnostic::error(format!("the gradient's norm is {norm}"))
                    .with_help("the advantage or the loss is too large for f32")
                    .into(),
            ),
            NonFinite::Parameters => {
                let error = Diagnostic::error(error.to_string());
                Failure::Run(error.with_help("is `lr` too large?").into())
            }
        }
    }
}

/// All that hooks and updates change.
pub(super) struct Learner<'a> {
    pub(super) config: &'a Config,
    pub(super) policy: &'a mut dyn Policy,
    pub(super) state: &'a mut State,
    /// The run's loss recipe with its state.
    pub(super) loss: (&'a Recipe, &'a mut State),
}

/// The step of a version: its advantage, and sums over its updates, which weigh alike.
pub(super) struct Learned {
    pub(super) outcome: Outcome,
    updates: f64,
    loss: f64,
    grad_norm: f64,
    loss_metrics: Vec<(String, f64)>,
    pub(super) prints: Vec<String>,
    pub(super) recipe_time: Duration,
    pub(super) update_time: Duration,
}

impl Learned {
    /// Mean loss of the updates.
    pub(super) fn loss(&self) -> f64 {
        self.loss / self.updates
    }

    /// Mean norm of the gradients.
    pub(super) fn grad_norm(&self) -> f64 {
        self.grad_norm / self.updates
    }

    /// The metrics of both hooks, each a mean; a name that both report has its hook before it, as in `loss/name`.
    pub(super) fn metrics(&self) -> BTreeMap<String, f64> {
        let (advantage, loss) = (means(&self.outcome.metrics), means(&self.loss_metrics));
        let mut all = BTreeMap::new();
        for (hook, own, other) in [
            ("advantage", &advantage, &loss),
            ("loss", &loss, &advantage),
        ] {
            for (&name, &mean) in own {
                let is_shared = other.contains_key(name);
                let hook = if is_shared {
                    format!("{hook}/")
                } else {
                    String::new()
                };
                all.insert(format!("{hook}{name}"), mean);
            }
        }
        all
    }
}

fn means(metrics: &[(String, f64)]) -> BTreeMap<&str, f64> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (name, value) in metrics {
        let (sum, count) = sums.entry(name).or_default();
        *sum += value;
        *count += 1.0;
    }
    let means = sums.into_iter();
    means
        .map(|(name, (sum, count))| (name, sum / count))
        .collect()
}

impl Learner<'_> {
    /// One step with one version. Where it fails, states and policy may have changed.
    pub(super) fn learn(
        &mut self,
        recipe: &Recipe,
        rollout: &Rollout,
        batch: &Batch,
    ) -> Result<Learned, Failure> {
        let started = Instant::now();
        let has_advantage = recipe.has(Hook::Advantage);
        let outcome = if has_advantage {
            recipe.advantage(batch, self.state)
        } else {
            // The equivalent advantage of a loss is only reported: the loss runs again, on each minibatch.
            let outcome = recipe.advantage(batch, &mut self.state.clone());
            outcome.map(|outcome| Outcome {
                metrics: Vec::new(),
                prints: Vec::new(),
                ..outcome
            })
        };
        let mut outcome = outcome.map_err(Failure::Version)?;
        let mut learned = Learned {
            prints: std::mem::take(&mut outcome.prints),
            outcome,
            updates: 0.0,
            loss: 0.0,
            grad_norm: 0.0,
            loss_metrics: Vec::new(),
            recipe_time: started.elapsed(),
            update_time: Duration::ZERO,
        };
        let started = Instant::now();
        for epoch in 0..self.config.epochs {
            for members in self.minibatches(batch.step(), epoch as u64) {
                self.update(recipe, rollout, batch, &members, &mut learned)?;
            }
        }
        learned.update_time = started.elapsed();
        Ok(learned)
    }

    fn update(
        &mut self,
        recipe: &Recipe,
        rollout: &Rollout,
        batch: &Batch,
        members: &[usize],
        learned: &mut Learned,
    ) -> Result<(), Failure> {
        let prompts = &rollout.prompts;
        let responses = rollout.responses.select(members);
        // Before the first update, `logp` is that of the policy which sampled.
        let logp = if learned.updates > 0.0 {
            Some(self.policy.score(prompts, &responses)?.logp)
        } else {
            None
        };
        let has_advantage = recipe.has(Hook::Advantage);
        let advantage = has_advantage.then_some(&learned.outcome.advantage);
        let minibatch = select(batch, members, logp, advantage);
        let loss = if recipe.has(Hook::Loss) {
            recipe.loss(&minibatch, None, self.state)
        } else {
            self.loss.0.loss(&minibatch, None, self.loss.1)
        };
        let loss = loss.map_err(Failure::Version)?;
        let gradient: Vec<f64> = loss.gradient.buffer().iter().collect();
        self.policy.accumulate(prompts, &responses, &gradient)?;
        let max_grad_norm = Some(self.config.max_grad_norm).filter(|norm| *norm > 0.0);
        learned.grad_norm += self.policy.update(max_grad_norm)?;
        learned.loss += loss.value;
        learned.updates += 1.0;
        learned.loss_metrics.extend(loss.metrics);
        learned.prints.extend(loss.prints);
        Ok(())
    }

    /// The responses of each minibatch of an epoch: whole groups, in the order of the batch.
    fn minibatches(&self, step: u64, epoch: u64) -> Vec<Vec<usize>> {
        let Config {
            rollout_batch_size: groups,
            group_size,
            minibatches,
            ..
        } = *self.config;
        let mut order: Vec<usize> = (0..groups).collect();
        if minibatches > 1 {
            let key = Key::new(self.config.seed, Purpose::Minibatches, step);
            let mut stream = key.stream(epoch);
            for last in (1..groups).rev() {
                order.swap(last, stream.below(last as u64 + 1) as usize);
            }
        }
        let members = |groups: &[usize]| {
            let mut groups = groups.to_vec();
            groups.sort_unstable();
            let responses = groups.iter();
            responses
                .flat_map(|group| group * group_size..(group + 1) * group_size)
                .collect()
        };
        // Sizes differ by one at most.
        (0..minibatches)
            .map(|part| &order[part * groups / minibatches..(part + 1) * groups / minibatches])
            .map(members)
            .collect()
    }
}

/// Mean k3 estimate of the KL from the sampling policy to the reference.
pub(super) fn kl_to_reference(batch: &Batch) -> f64 {
    let column = |name| match batch.token_column(name) {
        Some(TokenValues::Compact(values)) => values.iter(),
        _ => unreachable!("the batch was built with {name}, a value a token"),
    };
    let pairs = column("old_logp").zip(column("ref_logp"));
    mean(pairs.map(|(logp, reference)| k3(logp - reference)))
}

/// Mean over responses of the recipe's own reward; `None` where it leaves the verifier's.
pub(super) fn recipe_reward(outcome: &Outcome) -> Option<f64> {
    let reward = outcome.reward.as_ref()?;
    let responses = reward.layout().responses();
    Some(reward.buffer().iter().sum::<f64>() / responses.max(1) as f64)
}

/// Tries all that the first step calls on its batch, in a copy of the states, before there is a folder: a use of a
/// column that the run never has is found here.
///
/// # Errors
/// The error of a hook, with where it happened and what to do: no other version could do the step.
pub(super) fn dry_run(
    first: &Batch,
    (recipe, state): (&Recipe, &State),
    (loss, loss_state): (&Recipe, &State),
) -> Result<(), Diagnostics> {
    let mut state = state.clone();
    let outcome = recipe.advantage(first, &mut state);
    let outcome = outcome.map_err(|error| refused(error, recipe))?;
    // A recipe with a loss alone has computed it already: its advantage is made of the loss.
    if !recipe.has(Hook::Advantage) {
        return Ok(());
    }
    let (loss, mut state) = if recipe.has(Hook::Loss) {
        (recipe, state)
    } else {
        (loss, loss_state.clone())
    };
    let result = loss.loss(first, Some(&outcome.advantage), &mut state);
    result.map(drop).map_err(|error| refused(error, loss))
}

/// The error, with where it happened and what to do about it.
fn refused(mut error: Diagnostics, recipe: &Recipe) -> Diagnostics {
    let name = recipe.name();
    let first = error.first_mut();
    if !recipe.has(Hook::Advantage) && first.message.contains("`advantage`") {
        first.help = Some(format!(
            "{name} is a loss alone: choose a recipe for the advantage, such as `--recipe grpo`, and this one as the configuration's `loss_recipe`"
        ));
    }
    if first.message == "the batch has no column `value`" {
        let help = "the policy is trained without a critic, so that a run has no column `value`";
        first.help = Some(help.to_string());
    }
    let notes = &mut first.notes;
    notes.push("in a dry run on the run's first batch".to_string());
    notes.push(match Builtin::find(name) {
        Some(_) => format!(
            "no run was begun: `advlab recipes` lists other recipes, `advlab new FILE --from {name}` copies this one to edit"
        ),
        None => "no run was begun: correct the script, and begin again".to_string(),
    });
    error
}
