//! The loop: one step after the other, each with the newest version of the recipe.

use std::time::{Duration, Instant};

use super::config::Config;
use super::dry_run::DryRun;
use super::error::TrainError;
use super::event::{Event, Observer};
use super::policy::{self, Policy, Scorer};
use super::random::{Key, Purpose};
use super::rollout::{Rollout, Sampled};
use super::row::{Evaluation, Milliseconds, Row};
use super::task::{Prompt, Task, evaluation_prompts};
use super::update::{Failure, Learned, Learner, kl_to_reference};
use crate::batch::Batch;
use crate::live::{LiveEvent, LiveRecipe};
use crate::script::{Recipe, Spread, State};

/// A task, a policy and a recipe that follows its file, at a step.
pub struct Trainer {
    config: Config,
    task: Box<dyn Task>,
    policy: Box<dyn Policy>,
    reference: Box<dyn Scorer>,
    /// The recipe, with its state and the version of the step before.
    live: LiveRecipe,
    loss: Recipe,
    loss_state: State,
    evaluation: Vec<Prompt>,
    step: u64,
    /// What the next step trains on, where it has been sampled already.
    sampled: Option<Sampled>,
    write: Duration,
}

/// All that a run needs to go on to the same numbers.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The step that comes next.
    pub step: u64,
    /// The policy with its optimizer.
    pub policy: policy::State,
    /// The parameters of the reference policy.
    pub reference: policy::State,
    /// The version in use.
    pub recipe: Recipe,
    /// Its state.
    pub state: State,
    /// The loss recipe's state.
    pub loss_state: State,
    /// Versions to fall back to, oldest first, each with the state that it left.
    pub fallbacks: Vec<(Recipe, State)>,
}

impl Trainer {
    /// A run before its first step. The numbers are a function of `config`, and of the versions that `live` gives at which
    /// steps; not of the number of threads.
    ///
    /// # Errors
    /// [`TrainError`] where a recipe's `init` fails.
    pub fn new(
        config: Config,
        task: Box<dyn Task>,
        policy: Box<dyn Policy>,
        live: LiveRecipe,
        loss: Recipe,
    ) -> Result<Trainer, TrainError> {
        Ok(Trainer {
            evaluation: evaluation_prompts(&*task, config.eval_prompts),
            reference: policy.frozen(),
            loss_state: loss.init()?,
            config,
            task,
            policy,
            live,
            loss,
            step: 0,
            sampled: None,
            write: Duration::ZERO,
        })
    }

    /// The step that comes next, from 0.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// What the run is set to.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// For a run that learns where its folder is.
    pub(super) fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// The version in use.
    pub fn recipe(&self) -> &Recipe {
        self.live.in_use().recipe()
    }

    /// The loss for recipes without one.
    pub fn loss_recipe(&self) -> &Recipe {
        &self.loss
    }

    /// The recipe that follows its file.
    pub fn live(&self) -> &LiveRecipe {
        &self.live
    }

    /// All that a run needs to go on from here.
    pub fn snapshot(&self) -> Snapshot {
        let fallbacks = self.live.fallbacks();
        Snapshot {
            step: self.step,
            policy: self.policy.snapshot(),
            reference: self.reference.parameters(),
            recipe: self.recipe().clone(),
            state: self.live.state().clone(),
            loss_state: self.loss_state.clone(),
            fallbacks: fallbacks
                .map(|(loaded, left)| (loaded.recipe().clone(), left.clone()))
                .collect(),
        }
    }

    /// Goes to a snapshot; `live` must have been started with its version, state and fallbacks.
    ///
    /// # Errors
    /// [`TrainError::Policy`] where it is of another policy.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), TrainError> {
        self.policy.restore(&snapshot.policy)?;
        self.reference = self.policy.frozen_from(&snapshot.reference)?;
        self.loss_state = snapshot.loss_state.clone();
        self.step = snapshot.step;
        self.sampled = None;
        Ok(())
    }

    /// Tries the recipes on the batch of the next step, which is sampled for it, in a copy of their states.
    ///
    /// # Errors
    /// [`TrainError::Script`] where a hook fails on it.
    pub(super) fn dry_run(&mut self) -> Result<(), TrainError> {
        let sampled = self.sample()?;
        let dry_run = DryRun {
            recipe: (self.recipe(), self.live.state()),
            loss: (&self.loss, &self.loss_state),
        };
        dry_run.on(&sampled.batch)?;
        self.sampled = Some(sampled);
        Ok(())
    }

    /// One step. `is_evaluated` says whether the policy is evaluated after it.
    ///
    /// # Errors
    /// [`TrainError::Script`] where the recipe fails and no version has worked before; the snapshot is then that of before
    /// the step. Also whatever `observer` returns.
    pub fn train(
        &mut self,
        is_evaluated: bool,
        observer: &mut dyn Observer,
    ) -> Result<Row, TrainError> {
        let step = self.step;
        let every = self.config.reset_reference_every;
        if every > 0 && step > 0 && step.is_multiple_of(every) {
            self.reference = self.policy.frozen();
        }
        let Sampled {
            rollout,
            batch,
            sample,
            reference,
        } = match self.sampled.take() {
            Some(sampled) => sampled,
            None => self.sample()?,
        };

        self.begin(observer)?;
        self.live.observe(&batch);
        let (learned, failed) = self.learn(&rollout, &batch, observer)?;
        for line in &learned.prints {
            observer.tell(&Event::Printed { step, line })?;
        }
        let started = Instant::now();
        let evaluation = match is_evaluated {
            true => Some(self.evaluate(step, observer)?),
            false => None,
        };
        let ms = Milliseconds {
            sample: milliseconds(sample),
            reference: milliseconds(reference),
            recipe: milliseconds(learned.recipe_time),
            update: milliseconds(learned.update_time),
            evaluate: milliseconds(started.elapsed()),
            write: milliseconds(self.write),
        };
        let row = self.row(&rollout, &batch, learned, failed, evaluation, ms);
        self.step += 1;
        let started = Instant::now();
        observer.tell(&Event::Step {
            row: &row,
            batch: &batch,
        })?;
        self.write = started.elapsed();
        Ok(row)
    }

    fn sample(&self) -> Result<Sampled, TrainError> {
        let (task, policy, reference) = (&*self.task, &*self.policy, &*self.reference);
        Sampled::at(self.step, &self.config, task, policy, reference)
    }

    /// Takes the newest version, and tells what has become of the file.
    fn begin(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let step = self.step;
        let before = self.live.in_use().clone();
        let loaded = self.live.begin_step();
        for event in self.live.events() {
            observer.tell(&Event::Live {
                step,
                event: &event,
            })?;
            if let LiveEvent::Rejected {
                version,
                error,
                at_step: true,
                ..
            } = &event
                && let Some(failed) = self.live.version(version)
            {
                observer.tell(&Event::Failed {
                    step,
                    recipe: failed.recipe(),
                    error,
                    batch: None,
                    back_to: Some(loaded.recipe()),
                })?;
            }
        }
        if loaded.version() != before.version() {
            observer.tell(&Event::Switched {
                step,
                recipe: loaded.recipe(),
                change: &self.live.change(&before, &loaded),
            })?;
        }
        Ok(())
    }

    /// Updates the policy, with the last version that can; also gives those that could not.
    fn learn(
        &mut self,
        rollout: &Rollout,
        batch: &Batch,
        observer: &mut dyn Observer,
    ) -> Result<(Learned, Vec<String>), TrainError> {
        let mut failed = Vec::new();
        // A version that fails at the first update leaves the policy as it was: only later ones need a way back.
        let has_later = self.config.epochs * self.config.minibatches > 1;
        let policy = has_later.then(|| self.policy.snapshot());
        let loss_state = self.loss_state.clone();
        loop {
            let loaded = self.live.in_use().clone();
            let mut state = self.live.state().clone();
            let mut learner = Learner {
                config: &self.config,
                policy: &mut *self.policy,
                state: &mut state,
                loss: (&self.loss, &mut self.loss_state),
            };
            let error = match learner.learn(loaded.recipe(), rollout, batch) {
                Ok(learned) => {
                    self.live.set_state(state);
                    return Ok((learned, failed));
                }
                Err(Failure::Run(error)) => {
                    // The step is not done: whoever goes on from here begins with it.
                    if let Some(policy) = &policy {
                        self.policy.restore(policy)?;
                    }
                    self.loss_state = loss_state;
                    return Err(error);
                }
                Err(Failure::Version(error)) => error,
            };
            if let Some(policy) = &policy {
                self.policy.restore(policy)?;
            }
            self.loss_state = loss_state.clone();
            let worked = self.live.reject(error.clone());
            observer.tell(&Event::Failed {
                step: self.step,
                recipe: loaded.recipe(),
                error: &error,
                batch: Some(batch),
                back_to: worked.as_ref().ok().map(|loaded| loaded.recipe()),
            })?;
            worked?;
            // The failure has been told; what else may have happened to the file meanwhile has not.
            for event in self.live.events() {
                if !matches!(event, LiveEvent::Rejected { at_step: true, .. }) {
                    observer.tell(&Event::Live {
                        step: self.step,
                        event: &event,
                    })?;
                }
            }
            failed.push(loaded.version().as_str().to_string());
        }
    }

    /// The policy on prompts that training never draws.
    fn evaluate(&self, step: u64, observer: &mut dyn Observer) -> Result<Evaluation, TrainError> {
        let key = Key {
            seed: self.config.seed,
            purpose: Purpose::EvaluationResponses,
            step,
        };
        let prompts = self.evaluation.clone();
        let samples = self.config.eval_samples;
        let rollout = Rollout::sample(&*self.task, &*self.policy, prompts, samples, key)?;
        if let Some(prompt) = rollout.prompts.first() {
            let example = self.task.show(prompt, rollout.responses.response(0));
            observer.tell(&Event::Evaluated { example: &example })?;
        }
        Ok(Evaluation {
            pass_at: rollout.pass_at(),
            entropy: rollout.mean_entropy(),
            length: rollout.mean_length(),
        })
    }

    fn row(
        &self,
        rollout: &Rollout,
        batch: &Batch,
        mut learned: Learned,
        failed: Vec<String>,
        evaluation: Option<Evaluation>,
        ms: Milliseconds,
    ) -> Row {
        let reward = Spread::of(rollout.verdicts.iter().map(|verdict| verdict.reward));
        let summary = &learned.summary;
        Row {
            step: self.step,
            version: self.live.in_use().version().as_str().to_string(),
            failed,
            reward_mean: reward.mean,
            reward_std: reward.std,
            recipe_reward_mean: learned.recipe_reward,
            pass_at: rollout.pass_at(),
            entropy: rollout.mean_entropy(),
            length: rollout.mean_length(),
            groups_without_signal: summary.groups_without_signal as f64
                / summary.groups.max(1) as f64,
            advantage_mean: summary.advantage.mean,
            advantage_std: summary.advantage.std,
            advantage_min: summary.advantage.min,
            advantage_max: summary.advantage.max,
            kl: kl_to_reference(batch),
            loss: learned.loss,
            clip_share: learned.metrics.remove("clip_share"),
            grad_norm: learned.grad_norm,
            metrics: learned.metrics,
            evaluation,
            ms,
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    // Microseconds are enough to read.
    (time.as_secs_f64() * 1e6).round() / 1e3
}
