//! From a batch to a better policy: the recipe's advantage, then epochs of minibatches that follow the loss.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::config::Config;
use super::policy::{NonFinite, Policy};
use super::random::{Key, Purpose};
use super::rollout::{Rollout, mean, select};
use crate::batch::{Batch, FloatBuffer, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Builtin, Computed, Hook, Outcome, Recipe, State, Summary};
use crate::tensor::{Level, k3};

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

/// What a version made of a batch.
pub(super) struct Learned {
    pub(super) summary: Summary,
    /// Mean reward of the recipe's own, where it has one.
    pub(super) recipe_reward: Option<f64>,
    pub(super) loss: f64,
    pub(super) grad_norm: f64,
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) prints: Vec<String>,
    pub(super) recipe_time: Duration,
    pub(super) update_time: Duration,
}

/// What hooks and updates change.
pub(super) struct Learner<'a> {
    pub(super) config: &'a Config,
    pub(super) policy: &'a mut dyn Policy,
    /// The recipe's state.
    pub(super) state: &'a mut State,
    /// The run's loss recipe with its state.
    pub(super) loss: (&'a Recipe, &'a mut State),
}

/// Sums that become means over the step's updates, which weigh alike.
#[derive(Default)]
struct Sums {
    updates: f64,
    loss: f64,
    grad_norm: f64,
    advantage_metrics: Metrics,
    loss_metrics: Metrics,
    prints: Vec<String>,
}

/// The sum and the number of each metric of a hook.
#[derive(Default)]
struct Metrics(BTreeMap<String, (f64, f64)>);

impl Metrics {
    fn add(&mut self, metrics: Vec<(String, f64)>) {
        for (name, value) in metrics {
            let (sum, count) = self.0.entry(name).or_default();
            *sum += value;
            *count += 1.0;
        }
    }
}

impl Sums {
    /// The metrics of both hooks, each a mean; where both report one of a name, the hook stands before it.
    fn metrics(self) -> BTreeMap<String, f64> {
        let (Metrics(advantage), Metrics(loss)) = (self.advantage_metrics, self.loss_metrics);
        let of = |hook: &str, own: &BTreeMap<_, _>, other: &BTreeMap<_, _>| {
            let named = own
                .iter()
                .map(|(name, (sum, count)): (&String, &(f64, f64))| {
                    let name = if other.contains_key(name) {
                        format!("{hook}/{name}")
                    } else {
                        name.clone()
                    };
                    (name, sum / count)
                });
            named.collect::<BTreeMap<String, f64>>()
        };
        let mut metrics = of("advantage", &advantage, &loss);
        metrics.extend(of("loss", &loss, &advantage));
        metrics
    }
}

impl Learner<'_> {
    /// One step with one version. Where it fails, states and policy may have changed.
    pub(super) fn learn(
        &mut self,
        recipe: &Recipe,
        rollout: &Rollout,
        batch: &Batch,
    ) -> Result<Learned, Failure> {
        let mut sums = Sums::default();
        let started = Instant::now();
        let has_advantage = recipe.has(Hook::Advantage);
        // The equivalent advantage of a loss is only reported: the loss runs again, on each minibatch.
        let mut unchanged = self.state.clone();
        let state = if has_advantage {
            &mut *self.state
        } else {
            &mut unchanged
        };
        let mut outcome = recipe.advantage(batch, state).map_err(Failure::Version)?;
        if has_advantage {
            sums.prints.append(&mut outcome.prints);
            let metrics = std::mem::take(&mut outcome.metrics);
            sums.advantage_metrics.add(metrics);
        }
        let recipe_time = started.elapsed();
        let started = Instant::now();
        let advantage = has_advantage.then_some(&outcome.advantage);
        for epoch in 0..self.config.epochs {
            for members in self.minibatches(batch.step(), epoch as u64) {
                self.update(recipe, rollout, batch, advantage, &members, &mut sums)?;
            }
        }
        Ok(Learned {
            summary: Summary::of(&outcome),
            recipe_reward: recipe_reward(&outcome),
            loss: sums.loss / sums.updates,
            grad_norm: sums.grad_norm / sums.updates,
            prints: std::mem::take(&mut sums.prints),
            metrics: sums.metrics(),
            recipe_time,
            update_time: started.elapsed(),
        })
    }

    /// One update on some responses of the batch.
    fn update(
        &mut self,
        recipe: &Recipe,
        rollout: &Rollout,
        batch: &Batch,
        advantage: Option<&Computed>,
        members: &[usize],
        sums: &mut Sums,
    ) -> Result<(), Failure> {
        let prompts = &rollout.prompts;
        let responses = rollout.responses.select(members);
        // Before the first update, `logp` is that of the policy which sampled.
        let logp = if sums.updates > 0.0 {
            Some(self.policy.score(prompts, &responses)?.logp)
        } else {
            None
        };
        let advantage = advantage.map(|advantage| (advantage.level(), advantage.buffer()));
        let minibatch = select(batch, members, logp, advantage)?;
        let loss = if recipe.has(Hook::Loss) {
            recipe.loss(&minibatch, None, self.state)
        } else {
            self.loss.0.loss(&minibatch, None, self.loss.1)
        };
        let loss = loss.map_err(Failure::Version)?;
        let gradient: Vec<f64> = loss.gradient.buffer().iter().collect();
        self.policy.accumulate(prompts, &responses, &gradient)?;
        let max_grad_norm = Some(self.config.max_grad_norm).filter(|norm| *norm > 0.0);
        sums.grad_norm += self.policy.update(max_grad_norm)?;
        sums.loss += loss.value;
        sums.updates += 1.0;
        sums.loss_metrics.add(loss.metrics);
        sums.prints.extend(loss.prints);
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
            let key = Key {
                seed: self.config.seed,
                purpose: Purpose::Minibatches,
                step,
            };
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

/// Mean over responses of the reward that the recipe put in the place of the verifier's.
fn recipe_reward(outcome: &Outcome) -> Option<f64> {
    let reward = outcome.reward.as_ref()?;
    let responses = reward.layout().responses();
    Some(reward.buffer().iter().sum::<f64>() / responses.max(1) as f64)
}

/// Tries all that the first step calls on its batch, in a copy of the states, before there is a folder: a column that the
/// run never has is found here.
///
/// # Errors
/// What a hook fails with, with where it happened and what to do: no other version could do the step.
pub(super) fn dry_run(
    first: &Batch,
    (recipe, state): (&Recipe, &State),
    (loss, loss_state): (&Recipe, &State),
) -> Result<(), Diagnostics> {
    let mut state = state.clone();
    if !recipe.has(Hook::Advantage) && is_loss_of_an_advantage(first, recipe, &state) {
        let name = recipe.name();
        let message = format!("{name} is a loss on `batch.advantage`, and no recipe computes it");
        let help = format!(
            "name one that does, as in `--recipe grpo`; `loss_recipe = \"{name}\"` in the configuration is then its loss"
        );
        return Err(Diagnostic::error(message).with_help(help).into());
    }
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

/// Whether a loss fails on the run's batches for want of an advantage alone.
fn is_loss_of_an_advantage(first: &Batch, recipe: &Recipe, state: &State) -> bool {
    let everyone: Vec<usize> = (0..first.layout().responses()).collect();
    let any = FloatBuffer::from(vec![1.0f64; everyone.len()]);
    let with_advantage = select(first, &everyone, None, Some((Level::Response, &any)));
    let works = |batch: &Batch| recipe.loss(batch, None, &mut state.clone()).is_ok();
    !works(first) && with_advantage.is_ok_and(|batch| works(&batch))
}

/// The error, with where it happened and what to do about it.
fn refused(mut error: Diagnostics, recipe: &Recipe) -> Diagnostics {
    let name = recipe.name();
    let notes = &mut error.first_mut().notes;
    notes.push("in a dry run on the run's first batch".to_string());
    notes.push(match Builtin::find(name) {
        Some(_) => format!(
            "no run was begun: `advlab recipes` lists other recipes, `advlab new FILE --from {name}` copies this one to edit"
        ),
        None => "no run was begun: correct the script, and begin again".to_string(),
    });
    error
}
