//! The loop: one step after the other, each with the newest version of the recipe.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::config::Config;
use super::event::{Event, Tell};
use super::folder::{Checkpoint, KeptVersion, VersionState};
use super::learner::{Learner, StepFailure};
use super::policy::{self, Platform, Responses};
use super::rollout::{Rollout, Sampled};
use super::row::{Evaluation, Milliseconds, Row, milliseconds};
use super::task::{self, Prompt, Task, drawn_prompts, evaluation_prompts, pooled_prompts};
use super::warnings::Warnings;
use advlab::batch::Batch;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::live::{Failed, LiveEvent, LiveRecipe, Loaded};
use advlab::random::{Purpose, StreamKey};
use advlab::script::{Recipe, State, Statistics};

/// How often a step draws groups without weight again.
const ATTEMPTS: u8 = 8;

/// A task, a policy and a recipe that follows its file, at a step.
pub(super) struct Trainer {
    pub(super) config: Config,
    pub(super) task: Box<dyn Task>,
    pub(super) learner: Learner,
    /// The recipe, with its state and the version of the step before.
    pub(super) live: LiveRecipe,
    evaluation: Vec<Prompt>,
    /// The step that comes next, from 0.
    pub(super) step: u64,
    /// The data of the next step, if it has been sampled already.
    pub(super) sampled: Option<Sampled>,
    /// The evaluation before the first step, until that step reports it.
    pub(super) initial: Option<Evaluation>,
    /// The milliseconds of writing the last step.
    write: f64,
    warnings: Warnings,
}

impl Trainer {
    /// A run before its first step. Its numbers are a function of `config` and of the versions that `live` gives at
    /// which steps, not of the number of threads.
    pub(super) fn new(
        config: Config,
        live: LiveRecipe,
        loss: Recipe,
    ) -> Result<Trainer, Diagnostics> {
        let task = task::of_config(&config)?;
        let policy = policy::of_config(&config, &*task)?;
        Ok(Trainer {
            evaluation: evaluation_prompts(&*task, config.eval_prompts),
            learner: Learner {
                policy,
                loss_state: loss.init()?,
                loss,
            },
            config,
            task,
            live,
            step: 0,
            sampled: None,
            initial: None,
            write: 0.0,
            warnings: Warnings::default(),
        })
    }

    /// What the numbers depend on beside configuration and versions, by name.
    pub(super) fn platform(&self) -> Platform {
        self.learner.policy.platform()
    }

    /// The checkpoint of this moment; its versions are kept in the run's folder.
    pub(super) fn checkpoint(
        &self,
        run: &Path,
        is_failed: bool,
    ) -> Result<Checkpoint, Diagnostics> {
        let keep = |recipe: &Recipe, state: &State| {
            let version = KeptVersion::keep(run, recipe)?;
            let state = state.to_json();
            Ok::<_, Diagnostics>(VersionState { version, state })
        };
        let fallback = self.live.fallback();
        let fallback = fallback.map(|(loaded, left)| keep(loaded.recipe(), left));
        Ok(Checkpoint {
            step: self.step,
            recipe: keep(self.live.in_use().recipe(), self.live.state())?,
            loss_state: self.learner.loss_state.to_json(),
            fallback: fallback.transpose()?,
            is_failed,
            folder: PathBuf::new(),
        })
    }

    /// Goes to a checkpoint; `live` must have been started with its version, state and fallback.
    pub(super) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), Diagnostics> {
        self.learner.policy.load(&checkpoint.folder)?;
        self.learner.loss_state = State::from_json(&checkpoint.loss_state)?;
        self.step = checkpoint.step;
        Ok(())
    }

    /// Tries the recipes on the batch of the next step, which is sampled for it, in a copy of their states.
    pub(super) fn dry_run(&mut self) -> Result<(), Diagnostics> {
        let sampled = self.sample()?;
        if self.config.sft_steps > 0 {
            self.solution(&sampled.rollout.prompts[0])?;
        }
        let recipe = self.live.in_use().recipe();
        self.learner
            .dry_run(&sampled.batch, recipe, self.live.state())?;
        self.sampled = Some(sampled);
        Ok(())
    }

    /// One step. `is_evaluated` says whether the policy is evaluated after it.
    ///
    /// # Errors
    /// [`StepFailure::Version`], that of the newest version, if none can do the step; the snapshot is then that of
    /// before the step. Also whatever `tell` returns.
    pub(super) fn train(
        &mut self,
        is_evaluated: bool,
        tell: &mut Tell<'_>,
    ) -> Result<Row, StepFailure> {
        let step = self.step;
        let every = self.config.reset_reference_every;
        if every > 0 && step > 0 && step.is_multiple_of(every) {
            self.learner.policy.freeze()?;
        }
        let sampled = match self.sampled.take() {
            Some(sampled) => sampled,
            None => self.sample()?,
        };
        self.learner.policy.set_lr(self.config.lr_at(step));
        self.begin_step(tell)?;
        let mut row = self.learn(&sampled, tell)?;
        self.step += 1;
        row.initial_evaluation = self.initial.take();
        if is_evaluated {
            let started = Instant::now();
            row.evaluation = Some(self.evaluate(tell)?);
            row.ms.evaluate = milliseconds(started);
        }
        for message in &self.warnings.after(&row, &self.config.warnings) {
            tell(&Event::Warned { step, message })?;
        }
        row.ms.write = self.write;
        row.device_memory = self.learner.policy.device_memory();
        let started = Instant::now();
        tell(&Event::Step {
            row: &row,
            batch: &sampled.batch,
        })?;
        self.write = milliseconds(started);
        Ok(row)
    }

    /// The groups of the next step, by the present policy.
    fn sample(&mut self) -> Result<Sampled, Diagnostics> {
        let step = self.step;
        let started = Instant::now();
        let groups: Vec<usize> = (0..self.config.rollout_batch_size).collect();
        let mut rollout = self.draw(groups, &[], 0)?;
        let resampled = match self.config.resample {
            true => Some(self.resample(&mut rollout)?),
            false => None,
        };
        let sample = milliseconds(started);
        let started = Instant::now();
        let (batch, kl) = self.batch(&rollout)?;
        let reward = Statistics::of(rollout.rewards.iter().copied());
        let row = Row {
            step,
            reward_mean: reward.mean,
            reward_std: reward.std,
            sampled: rollout.evaluation(),
            resampled,
            kl,
            ms: Milliseconds {
                sample,
                reference: milliseconds(started),
                ..Milliseconds::default()
            },
            ..Row::default()
        };
        Ok(Sampled {
            rollout,
            batch,
            row,
        })
    }

    /// Verified responses to a prompt for each of some groups of the step, at its first attempt or a later one. A group has
    /// its own name, or that of its prompt in the pool, which is none of those that are `taken`.
    fn draw(
        &mut self,
        groups: Vec<usize>,
        taken: &[usize],
        attempt: u8,
    ) -> Result<Rollout, Diagnostics> {
        let count = groups.len();
        let seed = self.config.seed;
        let key = |purpose| StreamKey::new(seed, purpose, self.step).again(0, attempt);
        let prompts = key(Purpose::TrainingPrompts);
        let (ids, prompts) = match self.config.prompts {
            0 => (groups, drawn_prompts(&*self.task, prompts, count)?),
            pool => {
                let pooled = pooled_prompts(&*self.task, prompts, pool, taken, count)?;
                pooled.into_iter().unzip()
            }
        };
        let (key, size) = (key(Purpose::Responses), self.config.group_size);
        let policy = &mut *self.learner.policy;
        Rollout::sample(&*self.task, policy, (ids, prompts), size, key)
    }

    /// The batch of responses, and the KL of the policy to the reference if there is one.
    fn batch(&mut self, rollout: &Rollout) -> Result<(Batch, Option<f64>), Diagnostics> {
        let policy = &mut self.learner.policy;
        let ref_logp = self
            .config
            .reference
            .then(|| policy.reference_logp(&rollout.prompts, &rollout.responses));
        rollout.batch(self.step, ref_logp.transpose()?, &*self.task)
    }

    /// Draws groups in which no response has weight again, a bounded number of times; gives how many that were in all.
    fn resample(&mut self, rollout: &mut Rollout) -> Result<usize, Diagnostics> {
        let mut resampled = 0;
        for attempt in 1..=ATTEMPTS {
            let (batch, _) = self.batch(rollout)?;
            let recipe = self.live.in_use().recipe();
            // A version that fails is found out by the step itself.
            let Ok(Some(weight)) = recipe.weights(&batch, self.live.state()) else {
                break;
            };
            let is_empty = |group: &usize| {
                let mut rows = rollout.rows_of(*group);
                rows.all(|row| weight.buffer().get(row) == 0.0)
            };
            let mut empty: Vec<usize> = (0..rollout.groups()).filter(is_empty).collect();
            if self.config.prompts > 0 {
                // A group of the batch has its prompt for itself.
                empty.truncate(self.config.prompts.saturating_sub(rollout.groups()));
            }
            if empty.is_empty() {
                break;
            }
            resampled += empty.len();
            let other = self.draw(empty.clone(), rollout.ids(), attempt)?;
            rollout.replace(&empty, &other);
        }
        Ok(resampled)
    }

    /// Takes the newest version, and tells what has become of the file.
    fn begin_step(&mut self, tell: &mut Tell<'_>) -> Result<(), Diagnostics> {
        let step = self.step;
        let before = self.live.in_use().clone();
        let begun = self.live.begin_step();
        for event in &self.live.events() {
            tell(&Event::Live { step, event })?;
        }
        if let Err(failed) = &begun {
            tell_failed(step, failed, None, tell)?;
        }
        let loaded = self.live.in_use().clone();
        if loaded.version() != before.version() {
            tell(&Event::Switched {
                step,
                recipe: loaded.recipe(),
                change: &self.live.change(&before, &loaded),
            })?;
        }
        Ok(())
    }

    /// Updates the policy with the last version that can, and tells of those that could not.
    fn learn(&mut self, sampled: &Sampled, tell: &mut Tell<'_>) -> Result<Row, StepFailure> {
        let step = self.step;
        let (learner, config) = (&mut self.learner, &self.config);
        let attempt = self.live.attempt(&sampled.batch, |recipe, state| {
            let before = state.clone();
            match learner.learn(config, recipe, state, sampled) {
                Err(StepFailure::Version(error)) => Err(error),
                Err(failure) => {
                    *state = before;
                    Ok(Err(failure))
                }
                learned => Ok(learned),
            }
        });
        for failed in &attempt.failed {
            tell_failed(step, failed, Some(&sampled.batch), tell)?;
        }
        let (row, prints) = attempt.result.map_err(StepFailure::Version)??;
        if !attempt.failed.is_empty() {
            // The failure has been told; what else may have happened to the file meanwhile has not.
            for event in &self.live.events() {
                if !matches!(event, LiveEvent::Rejected { at_step: true, .. }) {
                    tell(&Event::Live { step, event })?;
                }
            }
        }
        for change in &self.learner.loss.kernel_changes() {
            tell(&Event::Native { step, change })?;
        }
        for line in &prints {
            tell(&Event::Printed { step, line })?;
        }
        let version = |loaded: &Loaded| loaded.version().as_str().to_string();
        Ok(Row {
            version: version(self.live.in_use()),
            failed: (attempt.failed.iter())
                .map(|failed| version(&failed.loaded))
                .collect(),
            ..row
        })
    }

    /// Evaluates the policy, as it is after the steps that are done, on prompts that training never draws.
    pub(super) fn evaluate(&mut self, tell: &mut Tell<'_>) -> Result<Evaluation, Diagnostics> {
        // The last step that is done; before the first one, none.
        let last = self.step.wrapping_sub(1);
        let key = StreamKey::new(self.config.seed, Purpose::EvaluationResponses, last);
        let prompts = self.evaluation.iter().cloned().enumerate().unzip();
        let samples = self.config.eval_samples;
        let policy = &mut *self.learner.policy;
        let rollout = Rollout::sample(&*self.task, policy, prompts, samples, key)?;
        let evaluation = rollout.evaluation();
        let prompt = rollout.prompts.first();
        let example = prompt.map(|prompt| self.task.show(prompt, rollout.responses.response(0)));
        tell(&Event::Evaluated {
            done: self.step,
            evaluation: &evaluation,
            example: &example.unwrap_or_default(),
        })?;
        Ok(evaluation)
    }

    /// `sft_steps` updates along the cross-entropy of the task's own solutions, the mean over their tokens; the policy that
    /// comes of them is the reference.
    /// Gives whether all were done: stopped half-way, they have to begin again.
    pub(super) fn fine_tune(
        &mut self,
        stop: &AtomicBool,
        tell: &mut Tell<'_>,
    ) -> Result<bool, Diagnostics> {
        let of = self.config.sft_steps;
        if of == 0 {
            return Ok(true);
        }
        // They were by the policy as it was.
        self.sampled = None;
        self.learner.policy.set_lr(self.config.sft_lr);
        for update in 0..of {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.imitate(update)?;
            tell(&Event::FineTuned { update, of })?;
        }
        self.learner.policy.freeze()?;
        Ok(true)
    }

    fn imitate(&mut self, update: u64) -> Result<(), Diagnostics> {
        let config = &self.config;
        let key = StreamKey::new(config.seed, Purpose::FineTuning, update);
        let count = config.rollout_batch_size * config.group_size;
        let prompts = drawn_prompts(&*self.task, key, count)?;
        let mut solutions = Responses::new();
        for (index, prompt) in prompts.iter().enumerate() {
            solutions.push(index, &self.solution(prompt)?);
        }
        let max_grad_norm = config.max_grad_norm();
        let policy = &mut self.learner.policy;
        let tokens = solutions.tokens().len();
        policy.accumulate(&prompts, &solutions, &vec![-1.0 / tokens as f64; tokens])?;
        let norm = policy.update(max_grad_norm)?;
        let wrong = |error| {
            let problem = Diagnostic::error(format!("in supervised fine-tuning, {error}"));
            problem.with_help("is `sft_lr` too large?")
        };
        norm.map_err(wrong)?;
        Ok(())
    }

    /// The task's own response to a prompt.
    ///
    /// # Errors
    /// [`Diagnostics`] if the task has none.
    pub(super) fn solution(&self, prompt: &Prompt) -> Result<Vec<u32>, Diagnostics> {
        self.task.solution(prompt).ok_or_else(|| {
            let task = &self.config.task;
            let problem =
                Diagnostic::error(format!("the task {task:?} has no solutions of its own"));
            let help = "`sft_steps = 0` goes without supervised fine-tuning";
            problem.with_help(help).into()
        })
    }
}

fn tell_failed(
    step: u64,
    failed: &Failed,
    batch: Option<&Batch>,
    tell: &mut Tell<'_>,
) -> Result<(), Diagnostics> {
    tell(&Event::Failed {
        step,
        recipe: failed.loaded.recipe(),
        error: &failed.error,
        batch,
        back_to: failed.back_to.as_ref().map(|loaded| loaded.recipe()),
    })
}
