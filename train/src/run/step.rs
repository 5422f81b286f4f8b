//! The steps of a run. Each step samples groups, verifies the responses, builds the batch, and updates the policy with the newest
//! version of the recipe that succeeds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::learner::{Learned, StepFailure};
use super::rollout::{self, Response, Sampled};
use super::{Event, Observer, Run};
use crate::error::Result;
use crate::folder::Notice;
use crate::policy::Responses;
use crate::random::{Purpose, StreamKey};
use crate::replay::{Difference, difference};
use crate::row::{Evaluation, Row, Stage, milliseconds};
use crate::task::{Prompt, drawn_prompts, pooled_prompts};
use advlab::batch::Batch;
use advlab::diagnostic::Diagnostic;
use advlab::script::Recipe;

/// The maximum number of attempts of a step to replace groups in which every response has the weight 0.
const ATTEMPTS: u8 = 8;

impl Run {
    /// Samples the batch of the next step, and tries the recipe and the loss on this batch, with copies of their states.
    pub(super) fn dry_run(&mut self) -> Result<()> {
        let sampled = self.sample()?;
        if self.config.sft_steps > 0 {
            self.solution(&sampled.responses.prompts()[0])?;
        }
        let (recipe, state) = (self.live.in_use().recipe(), self.live.state());
        self.learner.dry_run(&sampled.batch, recipe, state)?;
        self.sampled = Some(sampled);
        Ok(())
    }

    /// Repeats the fine-tuning and then the recorded steps, up to the first value that differs from the recorded value; returns
    /// the difference.
    pub(crate) fn repeat_all(&mut self, observer: &mut Observer<'_>) -> Result<Option<Difference>> {
        self.fine_tune(&AtomicBool::new(false), observer)?;
        while !self.recorded.is_empty() {
            if let Some(difference) = self.repeat(observer)? {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }

    /// Repeats the next step; returns the first value that differs from the recorded value.
    pub(super) fn repeat(&mut self, observer: &mut Observer<'_>) -> Result<Option<Difference>> {
        let step = self.step;
        // If the row was damaged and removed, its step is repeated without a comparison.
        let is_next = |row: &&Row| row.step == step;
        let recorded = self.recorded.front().filter(is_next).cloned();
        if let Some(recipe) = self.switches.remove(&step) {
            self.live.publish(recipe)?;
        }
        let has = |of: fn(&Row) -> &Option<Evaluation>| {
            recorded.as_ref().is_some_and(|row| of(row).is_some())
        };
        if has(|row| &row.initial_evaluation) {
            self.initial = Some(self.evaluate(observer)?);
        }
        let repeated = self.train(has(|row| &row.evaluation), observer)?;
        if recorded.is_some() {
            self.recorded.pop_front();
        }
        Ok(recorded.and_then(|row| difference(&row, &repeated)))
    }

    /// Runs one step. `is_evaluated` says whether the policy is evaluated after the step. If all versions fail, the trained
    /// policy and the number of the step are as they were before the step.
    pub(super) fn train(&mut self, is_evaluated: bool, observer: &mut Observer<'_>) -> Result<Row> {
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
        self.begin_step(observer)?;
        let (learned, failed) = self.learn(&sampled, observer)?;
        self.step += 1;
        let (mut evaluation, mut evaluate) = (None, 0.0);
        if is_evaluated {
            let started = Instant::now();
            evaluation = Some(self.evaluate(observer)?);
            evaluate = milliseconds(started);
        }
        let ms = sampled.ms.into_iter().chain(learned.ms);
        let summary = &learned.summary;
        let responses = summary.responses.max(1) as f64;
        let row = Row {
            failed,
            recipe_reward_mean: learned.reward_mean,
            sampled: sampled.results,
            resampled: sampled.resampled,
            effective_responses: Some(summary.effective_responses / responses),
            kl: sampled.kl,
            loss: Some(learned.loss),
            clip_share: learned.clip_share,
            grad_norm: Some(learned.grad_norm),
            metrics: learned.metrics,
            initial_evaluation: self.initial.take(),
            evaluation,
            device_memory: self.learner.policy.device_memory(),
            ms: ms.chain([(Stage::Evaluate, evaluate)]).collect(),
            ..Row::of_batch(step, self.live.in_use().version(), &sampled.batch, summary)
        };
        let new = self.warnings.after(&row, &self.config.warnings);
        // Warnings of a repeated step are skipped, because the log already has them.
        let is_repeated = !self.recorded.is_empty();
        for message in new.into_iter().filter(|_| !is_repeated) {
            self.log(&Notice::warning(step, message), &[], None, observer)?;
        }
        let batch = &sampled.batch;
        if let Some(writer) = self.recorder() {
            writer.step(&row, batch, None)?;
        }
        observer(&Event::Step { row: &row, batch });
        Ok(row)
    }

    /// Samples the groups of the next step with the current policy.
    fn sample(&mut self) -> Result<Sampled> {
        let started = Instant::now();
        let groups: Vec<usize> = (0..self.config.rollout_batch_size).collect();
        let mut all = self.draw(&groups, &[], 0)?;
        let resampled = match self.config.resample {
            true => Some(self.resample(&mut all)?),
            false => None,
        };
        let sample = milliseconds(started);
        let started = Instant::now();
        let (responses, batch, kl) = self.batch(&all)?;
        Ok(Sampled {
            responses,
            batch,
            results: rollout::evaluation(&all, self.config.group_size),
            resampled,
            kl,
            ms: [
                (Stage::Sample, sample),
                (Stage::Reference, milliseconds(started)),
            ],
        })
    }

    /// Samples the responses of the groups `places`. `attempt` is 0, or the number of the attempt to replace groups. A group's
    /// `id` is its index or, with a pool, the index of its prompt in the pool; prompts of the pool in `taken` are not drawn.
    fn draw(&mut self, places: &[usize], taken: &[usize], attempt: u8) -> Result<Vec<Response>> {
        let (seed, count, task) = (self.config.seed, places.len(), &*self.task);
        let key = |purpose| StreamKey::new(seed, purpose, self.step).again(0, attempt);
        let prompts = key(Purpose::TrainingPrompts);
        let (names, prompts) = match self.config.prompts {
            0 => (places.to_vec(), drawn_prompts(task, prompts, 0..count)?),
            pool => pooled_prompts(task, prompts, pool, taken, count)?,
        };
        let (key, size) = (key(Purpose::Responses), self.config.group_size);
        let mut drawn = rollout::sample(task, &mut *self.learner.policy, prompts, size, key)?;
        for one in &mut drawn {
            (one.id, one.group) = (names[one.group], places[one.group]);
        }
        Ok(drawn)
    }

    /// Returns the policy's inputs, the batch of the responses and, given a reference, the estimate of KL(policy || reference).
    fn batch(&mut self, all: &[Response]) -> Result<(Responses, Batch, Option<f64>)> {
        let responses = rollout::policy_inputs(all);
        let ref_logp = match self.config.reference {
            true => Some(self.learner.policy.reference_logp(&responses)?),
            false => None,
        };
        let (task, size) = (&*self.task, self.config.group_size);
        let (batch, kl) = rollout::batch(all, self.step, ref_logp, task, size)?;
        Ok((responses, batch, kl))
    }

    /// Replaces groups in which every response has the weight 0 by new groups, in at most `ATTEMPTS` attempts; returns the number
    /// of replacements.
    fn resample(&mut self, all: &mut Vec<Response>) -> Result<usize> {
        let mut resampled = 0;
        for attempt in 1..=ATTEMPTS {
            let (_, batch, _) = self.batch(all)?;
            let recipe = self.live.in_use().recipe();
            // An error is ignored, because the step itself reports a version that fails.
            let Ok(Some(weight)) = recipe.weights(&batch, self.live.state()) else {
                break;
            };
            let has_weight = |row: &u32| weight.buffer().get(*row as usize) != 0.0;
            let layout = batch.layout();
            let mut empty: Vec<usize> = (0..layout.groups())
                .filter(|group| !layout.members(*group).iter().any(has_weight))
                .collect();
            if self.config.prompts > 0 {
                // At most as many groups are replaced as the pool has unused prompts, because no two groups of a batch have the
                // same prompt.
                empty.truncate(self.config.prompts.saturating_sub(layout.groups()));
            }
            if empty.is_empty() {
                break;
            }
            resampled += empty.len();
            let taken: Vec<usize> = all.iter().map(|one| one.id).collect();
            let others = self.draw(&empty, &taken, attempt)?;
            all.retain(|one| !empty.contains(&one.group));
            all.extend(others);
            all.sort_by_key(|one| one.group);
        }
        Ok(resampled)
    }

    /// Writes a line of the log with the versions and the batch that it names, and then notifies the observer, so that the
    /// observer can rely on the files. While a step is repeated, nothing is written, because the log has its lines already.
    fn log(
        &mut self,
        notice: &Notice,
        recipes: &[&Recipe],
        batch: Option<&Batch>,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        if let Some(writer) = self.recorder() {
            writer.log(&notice.line, recipes, batch)?;
        }
        observer(&Event::Log(notice));
        Ok(())
    }

    /// Logs the events of the recipe's file.
    fn log_changes(&mut self, observer: &mut Observer<'_>) -> Result<()> {
        for event in self.live.events() {
            if let Some(notice) = Notice::live(self.step, &event) {
                self.log(&notice, &[], None, observer)?;
            }
        }
        Ok(())
    }

    /// Switches to the newest version, unless its `migrate` fails, and reports the events of the recipe's file.
    fn begin_step(&mut self, observer: &mut Observer<'_>) -> Result<()> {
        let (step, before) = (self.step, self.live.in_use().clone());
        let begun = self.live.begin_step();
        self.log_changes(observer)?;
        if let Err(failed) = &begun {
            let notice = Notice::failed(step, failed, None);
            self.log(&notice, &[failed.loaded.recipe()], None, observer)?;
        }
        let now = self.live.in_use().clone();
        if now.version() != before.version() {
            let notice = Notice::switched(step, &self.live, &before);
            self.log(&notice, &[now.recipe()], None, observer)?;
        }
        Ok(())
    }

    /// Updates the policy with the newest version that succeeds, and reports the versions that failed.
    fn learn(
        &mut self,
        sampled: &Sampled,
        observer: &mut Observer<'_>,
    ) -> Result<(Learned, Vec<String>)> {
        let step = self.step;
        let (learner, config) = (&mut self.learner, &self.config);
        let attempt = self.live.attempt(&sampled.batch, |recipe, state| {
            let before = state.clone();
            match learner.learn(config, recipe, state, sampled) {
                Ok(learned) => Ok(Ok(learned)),
                Err(StepFailure::Version(error)) => Err(error),
                Err(StepFailure::Run(error)) => {
                    *state = before;
                    Ok(Err(error))
                }
            }
        });
        for failed in &attempt.failed {
            let (notice, batch) = (
                Notice::failed(step, failed, Some(&sampled.batch)),
                &sampled.batch,
            );
            self.log(&notice, &[failed.loaded.recipe()], Some(batch), observer)?;
        }
        let learned = attempt.result??;
        if !attempt.failed.is_empty() {
            self.log_changes(observer)?;
        }
        for defect in self.learner.loss.kernel_defects() {
            self.log(&Notice::warning(step, defect), &[], None, observer)?;
        }
        for line in &learned.prints {
            observer(&Event::Printed { step, line });
        }
        let failed = attempt.failed.iter();
        let failed = failed.map(|failed| failed.loaded.version().as_str().to_string());
        Ok((learned, failed.collect()))
    }

    /// Evaluates the current policy on prompts that training never draws.
    pub(super) fn evaluate(&mut self, observer: &mut Observer<'_>) -> Result<Evaluation> {
        // The last completed step; before the first step, the number wraps around to `u64::MAX`.
        let last = self.step.wrapping_sub(1);
        let key = StreamKey::new(self.config.seed, Purpose::EvaluationResponses, last);
        let (prompts, samples) = (self.evaluation.clone(), self.config.eval_samples);
        let (task, policy) = (&*self.task, &mut *self.learner.policy);
        let responses = rollout::sample(task, policy, prompts, samples, key)?;
        let evaluation = rollout::evaluation(&responses, samples);
        let first = responses.first();
        let example = first.map(|one| task.show(&one.prompt, &one.tokens));
        observer(&Event::Evaluated {
            done: self.step,
            evaluation: &evaluation,
            example: &example.transpose()?.unwrap_or_default(),
        });
        Ok(evaluation)
    }

    /// Makes `sft_steps` updates that lower the cross-entropy of the task's own solutions, averaged over their tokens; the
    /// resulting policy becomes the reference. Returns whether all updates were made. If `stop` interrupts the fine-tuning, it
    /// has to begin again.
    pub(super) fn fine_tune(
        &mut self,
        stop: &AtomicBool,
        observer: &mut Observer<'_>,
    ) -> Result<bool> {
        let of = self.config.sft_steps;
        for update in 0..of {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let config = &self.config;
            let key = StreamKey::new(config.seed, Purpose::FineTuning, update);
            let count = config.rollout_batch_size * config.group_size;
            let prompts = drawn_prompts(&*self.task, key, 0..count)?;
            let mut solutions = Responses::to(prompts.as_slice());
            for (index, prompt) in prompts.iter().enumerate() {
                solutions.push(index, &self.solution(prompt)?);
            }
            let policy = &mut self.learner.policy;
            policy.set_lr(config.sft_lr);
            let tokens = solutions.tokens().len();
            policy.accumulate(&solutions, &vec![-1.0 / tokens as f64; tokens])?;
            policy.update(config.max_grad_norm())?.map_err(|error| {
                let problem = Diagnostic::error(format!("in supervised fine-tuning, {error}"));
                problem.with_help("is `sft_lr` too large?")
            })?;
            observer(&Event::FineTuned { update, of });
        }
        if of > 0 {
            // The sampled data is dropped, because its responses come from the policy before fine-tuning.
            self.sampled = None;
            self.learner.policy.freeze()?;
        }
        Ok(true)
    }

    /// Returns the task's own solution of a prompt.
    fn solution(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        self.task.solution(prompt).ok_or_else(|| {
            let task = &self.config.task;
            let message = format!("the task \"{task}\" has no solutions to train on");
            let help = "`sft_steps = 0` turns supervised fine-tuning off";
            Diagnostic::error(message).with_help(help).into()
        })
    }
}
