//! Supervised fine-tuning before the first step: what a policy of random weights needs to be right now and then.

use std::sync::atomic::{AtomicBool, Ordering};

use super::event::{Event, Tell};
use super::policy::Responses;
use super::task::{Prompt, drawn_prompts};
use super::trainer::Trainer;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::random::{Purpose, StreamKey};

impl Trainer {
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
    /// [`Diagnostics`] where the task has none.
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
