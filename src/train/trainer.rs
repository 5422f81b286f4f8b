//! The loop: one step after the other, each with the newest version of the recipe.

use std::time::{Duration, Instant};

use super::config::Config;
use super::event::{Event, Observer};
use super::policy::{Arrays, Policy, Scorer};
use super::random::{Key, Purpose};
use super::rollout::Rollout;
use super::row::{Evaluation, Milliseconds, Row};
use super::task::{Prompt, Task, evaluation_prompts, training_prompts};
use super::update::{Failure, Learned, Learner, dry_run, kl_to_reference, recipe_reward};
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::live::{LiveEvent, LiveRecipe};
use crate::script::{Recipe, Spread, State, Summary};

/// A task, a policy and a recipe that follows its file, at a step.
pub(super) struct Trainer {
    pub(super) config: Config,
    task: Box<dyn Task>,
    policy: Box<dyn Policy>,
    reference: Box<dyn Scorer>,
    /// The recipe, with its state and the version of the step before.
    pub(super) live: LiveRecipe,
    loss: Recipe,
    loss_state: State,
    evaluation: Vec<Prompt>,
    /// The step that comes next, from 0.
    pub(super) step: u64,
    /// The data of the next step, where it has been sampled already.
    sampled: Option<Sampled>,
    /// The evaluation before the first step, until that step reports it.
    pub(super) initial: Option<Evaluation>,
    /// The milliseconds of writing the last step.
    write: f64,
}

struct Sampled {
    rollout: Rollout,
    batch: Batch,
    ms: Milliseconds,
}

/// All that a run needs to go on to the same numbers.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The step that comes next.
    pub(super) step: u64,
    /// The policy with its optimizer.
    pub(super) policy: Arrays,
    /// The parameters of the reference policy.
    pub(super) reference: Arrays,
    pub(super) recipe: Recipe,
    pub(super) state: State,
    pub(super) loss_state: State,
    /// Versions to fall back to, oldest first, each with the state that it left.
    pub(super) fallbacks: Vec<(Recipe, State)>,
    /// Whether the run ended here because every version failed at this step.
    pub(super) is_failed: bool,
}

impl Trainer {
    /// A run before its first step. Its numbers are a function of `config` and of the versions that `live` gives at
    /// which steps, not of the number of threads.
    pub(super) fn new(
        config: Config,
        live: LiveRecipe,
        loss: Recipe,
    ) -> Result<Trainer, Diagnostics> {
        let task = config.make_task()?;
        let policy = config.make_policy(&task.shape());
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
            initial: None,
            write: 0.0,
        })
    }

    /// Tells that the run begins, or goes on.
    pub(super) fn begin(&self, observer: &mut dyn Observer) -> Result<(), Diagnostics> {
        observer.tell(&Event::Started {
            step: self.step,
            recipe: self.live.in_use().recipe(),
            loss_recipe: &self.loss,
        })
    }

    pub(super) fn snapshot(&self, is_failed: bool) -> Snapshot {
        let fallbacks = self.live.fallbacks();
        Snapshot {
            step: self.step,
            policy: self.policy.snapshot(),
            reference: self.reference.parameters(),
            recipe: self.live.in_use().recipe().clone(),
            state: self.live.state().clone(),
            loss_state: self.loss_state.clone(),
            fallbacks: fallbacks
                .map(|(loaded, left)| (loaded.recipe().clone(), left.clone()))
                .collect(),
            is_failed,
        }
    }

    /// Goes to a snapshot; `live` must have been started with its version, state and fallbacks.
    pub(super) fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Diagnostics> {
        self.policy.restore(&snapshot.policy)?;
        self.reference = self.policy.frozen_from(&snapshot.reference)?;
        self.loss_state = snapshot.loss_state.clone();
        self.step = snapshot.step;
        self.sampled = None;
        Ok(())
    }

    /// Tries the recipes on the batch of the next step, which is sampled for it, in a copy of their states.
    pub(super) fn dry_run(&mut self) -> Result<(), Diagnostics> {
        let sampled = self.sample()?;
        let recipe = (self.live.in_use().recipe(), self.live.state());
        dry_run(&sampled.batch, recipe, (&self.loss, &self.loss_state))?;
        self.sampled = Some(sampled);
        Ok(())
    }

    /// One step. `is_evaluated` says whether the policy is evaluated after it.
    ///
    /// # Errors
    /// [`Failure::Version`], that of the newest version, where none can do the step; the snapshot is then that of
    /// before the step. Also whatever `observer` returns.
    pub(super) fn train(
        &mut self,
        is_evaluated: bool,
        observer: &mut dyn Observer,
    ) -> Result<Row, Failure> {
        let step = self.step;
        let every = self.config.reset_reference_every;
        if every > 0 && step > 0 && step.is_multiple_of(every) {
            self.reference = self.policy.frozen();
        }
        let Sampled { rollout, batch, ms } = match self.sampled.take() {
            Some(sampled) => sampled,
            None => self.sample()?,
        };

        self.begin_step(observer)?;
        self.live.observe(&batch);
        let (learned, failed) = self.learn(&rollout, &batch, observer)?;
        for line in &learned.prints {
            observer.tell(&Event::Printed { step, line })?;
        }
        self.step += 1;
        let started = Instant::now();
        let evaluation = if is_evaluated {
            Some(self.evaluate(observer)?)
        } else {
            None
        };
        let ms = Milliseconds {
            recipe: milliseconds(learned.recipe_time),
            update: milliseconds(learned.update_time),
            evaluate: milliseconds(started.elapsed()),
            write: self.write,
            ..ms
        };
        let row = Row {
            step,
            version: self.live.in_use().version().as_str().to_string(),
            failed,
            initial_evaluation: self.initial.take(),
            evaluation,
            ms,
            ..row(&rollout, &batch, &learned)
        };
        let started = Instant::now();
        observer.tell(&Event::Step {
            row: &row,
            batch: &batch,
        })?;
        self.write = milliseconds(started.elapsed());
        Ok(row)
    }

    /// The groups of the next step, by the present policy.
    fn sample(&self) -> Result<Sampled, Diagnostics> {
        let Config {
            seed,
            rollout_batch_size,
            group_size,
            ..
        } = self.config;
        let step = self.step;
        let started = Instant::now();
        let prompts = training_prompts(&*self.task, seed, step, rollout_batch_size)?;
        let key = Key::new(seed, Purpose::Responses, step);
        let rollout = Rollout::sample(&*self.task, &*self.policy, prompts, group_size, key)?;
        let sample = milliseconds(started.elapsed());
        let started = Instant::now();
        let batch = rollout.batch(step, &*self.reference)?;
        let ms = Milliseconds {
            sample,
            reference: milliseconds(started.elapsed()),
            ..Milliseconds::default()
        };
        Ok(Sampled { rollout, batch, ms })
    }

    /// Takes the newest version, and tells what has become of the file.
    fn begin_step(&mut self, observer: &mut dyn Observer) -> Result<(), Diagnostics> {
        let step = self.step;
        let before = self.live.in_use().clone();
        let loaded = self.live.begin_step();
        for event in &self.live.events() {
            observer.tell(&Event::Live { step, event })?;
            if let LiveEvent::Rejected {
                version,
                error,
                at_step: true,
                ..
            } = event
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
    ) -> Result<(Learned, Vec<String>), Failure> {
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
            let failure = match learner.learn(loaded.recipe(), rollout, batch) {
                Ok(learned) => {
                    self.live.set_state(state);
                    return Ok((learned, failed));
                }
                Err(failure) => failure,
            };
            // Whoever goes on from here begins with this step.
            if let Some(policy) = &policy {
                self.policy.restore(policy)?;
            }
            self.loss_state = loss_state.clone();
            let error = match failure {
                Failure::Version(error) => error,
                Failure::Run(error) => return Err(Failure::Run(error)),
            };
            let worked = self.live.reject(error.clone());
            observer.tell(&Event::Failed {
                step: self.step,
                recipe: loaded.recipe(),
                error: &error,
                batch: Some(batch),
                back_to: worked.as_ref().ok().map(|loaded| loaded.recipe()),
            })?;
            worked.map_err(Failure::Version)?;
            // The failure has been told; what else may have happened to the file meanwhile has not.
            let step = self.step;
            for event in &self.live.events() {
                if !matches!(event, LiveEvent::Rejected { at_step: true, .. }) {
                    observer.tell(&Event::Live { step, event })?;
                }
            }
            failed.push(loaded.version().as_str().to_string());
        }
    }

    /// Evaluates the policy, as it is after the steps that are done, on prompts that training never draws.
    pub(super) fn evaluate(&self, observer: &mut dyn Observer) -> Result<Evaluation, Diagnostics> {
        // The last step that is done; before the first one, none.
        let last = self.step.wrapping_sub(1);
        let key = Key::new(self.config.seed, Purpose::EvaluationResponses, last);
        let prompts = self.evaluation.clone();
        let samples = self.config.eval_samples;
        let rollout = Rollout::sample(&*self.task, &*self.policy, prompts, samples, key)?;
        let evaluation = Evaluation {
            pass_at: rollout.pass_at(),
            entropy: rollout.mean_entropy(),
            length: rollout.mean_length(),
        };
        let prompt = rollout.prompts.first();
        let example = prompt.map(|prompt| self.task.show(prompt, rollout.responses.response(0)));
        observer.tell(&Event::Evaluated {
            done: self.step,
            evaluation: &evaluation,
            example: &example.unwrap_or_default(),
        })?;
        Ok(evaluation)
    }
}

fn row(rollout: &Rollout, batch: &Batch, learned: &Learned) -> Row {
    let reward = Spread::of(rollout.rewards().iter().copied());
    let summary = Summary::of(&learned.outcome);
    let mut metrics = learned.metrics();
    Row {
        reward_mean: reward.mean,
        reward_std: reward.std,
        recipe_reward_mean: recipe_reward(&learned.outcome),
        pass_at: rollout.pass_at(),
        entropy: rollout.mean_entropy(),
        length: rollout.mean_length(),
        groups_without_signal: summary.groups_without_signal as f64 / summary.groups.max(1) as f64,
        advantage_mean: summary.advantage.mean,
        advantage_std: summary.advantage.std,
        advantage_min: summary.advantage.min,
        advantage_max: summary.advantage.max,
        kl: kl_to_reference(batch),
        loss: learned.loss(),
        clip_share: metrics.remove("clip_share"),
        grad_norm: learned.grad_norm(),
        metrics,
        ..Row::default()
    }
}

fn milliseconds(time: Duration) -> f64 {
    // Microseconds are enough to read.
    (time.as_secs_f64() * 1e6).round() / 1e3
}
