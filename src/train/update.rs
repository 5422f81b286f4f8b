//! From a batch to a better policy: the recipe's advantage, then epochs of minibatches that follow the loss.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::config::Config;
use super::error::TrainError;
use super::policy::{Policy, PolicyError};
use super::random::{Key, Purpose};
use super::rollout::{Columns, Rollout, mean};
use crate::batch::{Batch, FloatBuffer, TokenValues};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Hook, Outcome, Recipe, State, Summary, metric_names};

/// Why a version could not make a step: its own failure, which another version may not have, or the run's.
pub(super) enum Failure {
    Version(Diagnostics),
    Run(TrainError),
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        Failure::Run(error)
    }
}

impl From<Diagnostics> for Failure {
    fn from(error: Diagnostics) -> Self {
        Failure::Version(error)
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        match error {
            // Finite derivatives whose gradient is not: they came from the version's advantage or loss.
            PolicyError::NonFiniteGradient { norm } => Failure::Version(
                Diagnostic::error(format!("the gradient's norm is {norm}"))
                    .with_help("the advantage or the loss is too large for f32")
                    .into(),
            ),
            error => Failure::Run(error.into()),
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

/// Sums that become means over the step's updates.
#[derive(Default)]
struct Sums {
    updates: f64,
    loss: f64,
    grad_norm: f64,
    /// The sum and the number of each metric of a hook.
    metrics: BTreeMap<(String, Hook), (f64, f64)>,
    prints: Vec<String>,
}

impl Sums {
    fn report(&mut self, hook: Hook, metrics: Vec<(String, f64)>, prints: Vec<String>) {
        for (name, value) in metrics {
            let (sum, count) = self.metrics.entry((name, hook)).or_default();
            *sum += value;
            *count += 1.0;
        }
        self.prints.extend(prints);
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
        let outcome = match has_advantage {
            true => {
                let mut outcome = recipe.advantage(batch, self.state)?;
                let prints = std::mem::take(&mut outcome.prints);
                let metrics = std::mem::take(&mut outcome.metrics);
                sums.report(Hook::Advantage, metrics, prints);
                outcome
            }
            // The equivalent advantage is only reported: the loss runs again, on each minibatch.
            false => recipe.advantage(batch, &mut self.state.clone())?,
        };
        let recipe_time = started.elapsed();
        let started = Instant::now();
        let reference = match batch.token_column("ref_logp") {
            Some(TokenValues::Compact(FloatBuffer::F32(values))) => values.clone(),
            _ => unreachable!("the batch was built with it"),
        };
        let columns = Columns {
            rollout,
            reference: &reference,
            advantage: has_advantage.then_some(&outcome.advantage),
        };
        let mut is_changed = false;
        for epoch in 0..self.config.epochs {
            for places in self.minibatches(batch.step(), epoch as u64) {
                self.update(
                    recipe,
                    &columns,
                    batch.step(),
                    &places,
                    is_changed,
                    &mut sums,
                )?;
                is_changed = true;
            }
        }
        let reported = sums.metrics.keys();
        let reported: Vec<_> = reported
            .map(|(name, hook)| (Some(*hook), &**name))
            .collect();
        let means = sums.metrics.values().map(|(sum, count)| sum / count);
        Ok(Learned {
            summary: Summary::of(&outcome),
            recipe_reward: recipe_reward(&outcome),
            loss: sums.loss / sums.updates,
            grad_norm: sums.grad_norm / sums.updates,
            metrics: metric_names(&reported).into_iter().zip(means).collect(),
            prints: sums.prints,
            recipe_time,
            update_time: started.elapsed(),
        })
    }

    /// One update on the responses at these places. `is_changed` says whether the policy is no longer the one that sampled.
    fn update(
        &mut self,
        recipe: &Recipe,
        columns: &Columns<'_>,
        step: u64,
        places: &[usize],
        is_changed: bool,
        sums: &mut Sums,
    ) -> Result<(), Failure> {
        let rollout = columns.rollout;
        let prompts = &rollout.prompts;
        let responses = rollout.responses.select(places);
        let logp = match is_changed {
            true => self.policy.score(prompts, &responses)?.logp,
            false => {
                let ranges = places.iter().map(|&place| rollout.responses.range(place));
                ranges
                    .flat_map(|range| rollout.scores.logp[range].iter().copied())
                    .collect()
            }
        };
        let batch = columns
            .batch(step, places, logp)
            .map_err(TrainError::from)?;
        let loss = match recipe.has(Hook::Loss) {
            true => recipe.loss(&batch, None, self.state)?,
            false => self.loss.0.loss(&batch, None, self.loss.1)?,
        };
        let mut gradient: Vec<f64> = loss.gradient.buffer().iter().collect();
        let kl = self.add_kl(&batch, &mut gradient);
        self.policy.accumulate(prompts, &responses, &gradient)?;
        let max_grad_norm = Some(self.config.max_grad_norm).filter(|norm| *norm > 0.0);
        sums.grad_norm += self.policy.update(max_grad_norm)?;
        sums.loss += loss.value + kl;
        sums.updates += 1.0;
        sums.report(Hook::Loss, loss.metrics, loss.prints);
        Ok(())
    }

    /// The KL that the run adds to the loss, mean over tokens; its derivatives are added to `gradient`.
    ///
    /// With d = logp - ref_logp: k2 = d^2 / 2, k3 = exp(-d) - 1 + d.
    fn add_kl(&self, batch: &Batch, gradient: &mut [f64]) -> f64 {
        let beta = self.config.kl_beta;
        if beta == 0.0 {
            return 0.0;
        }
        let scale = beta / gradient.len().max(1) as f64;
        let differences = differences(batch, "logp");
        let mut sum = 0.0;
        for (d, slope) in differences.into_iter().zip(gradient) {
            let (kl, by_logp) = match self.config.kl.as_str() {
                "k2" => (d * d / 2.0, d),
                _ => (k3(d), -(-d).exp_m1()),
            };
            sum += kl;
            *slope += scale * by_logp;
        }
        sum * scale
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

/// exp(-d) - 1 + d, without cancellation near 0.
fn k3(d: f64) -> f64 {
    (-d).exp_m1() + d
}

/// `column` less `ref_logp`, a token each.
fn differences(batch: &Batch, column: &str) -> Vec<f64> {
    match (batch.token_column(column), batch.token_column("ref_logp")) {
        (
            Some(TokenValues::Compact(FloatBuffer::F32(of))),
            Some(TokenValues::Compact(FloatBuffer::F32(reference))),
        ) => {
            let pairs = of.iter().zip(reference.iter());
            pairs
                .map(|(&of, &reference)| f64::from(of) - f64::from(reference))
                .collect()
        }
        _ => unreachable!("the batch was built with them"),
    }
}

/// Mean k3 estimate of the KL from the sampling policy to the reference.
pub(super) fn kl_to_reference(batch: &Batch) -> f64 {
    mean(differences(batch, "old_logp").into_iter().map(k3))
}

/// Mean over responses of the reward that the recipe put in the place of the verifier's.
fn recipe_reward(outcome: &Outcome) -> Option<f64> {
    let reward = outcome.reward.as_ref()?;
    let responses = reward.layout().responses();
    Some(reward.buffer().iter().sum::<f64>() / responses.max(1) as f64)
}
