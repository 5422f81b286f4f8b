//! The data of a step: prompts, sampled and verified responses, and the batch made of them.

use super::policy::{Mlp, Reference, Responses, Samples, Scores};
use super::random::Key;
use super::row::{Evaluation, PassAt};
use super::task::{Prompt, Task};
use crate::batch::{Batch, Computed, FloatBuffer};
use crate::diagnostic::Diagnostics;
use crate::tensor::{Level, k3};

/// Groups of responses, verified.
pub(super) struct Rollout {
    pub(super) prompts: Vec<Prompt>,
    pub(super) responses: Responses,
    /// Of the policy that sampled them.
    pub(super) scores: Scores,
    pub(super) correct: Vec<bool>,
    group_size: usize,
}

impl Rollout {
    /// Samples `group_size` responses to each prompt and verifies them.
    pub(super) fn sample(
        task: &dyn Task,
        policy: &mut Mlp,
        prompts: Vec<Prompt>,
        group_size: usize,
        key: Key,
    ) -> Result<Rollout, Diagnostics> {
        let Samples { responses, scores } = policy.sample(&prompts, group_size, key)?;
        let verify = |response: usize| {
            let prompt = &prompts[responses.prompts()[response]];
            task.verify(prompt, responses.response(response))
        };
        Ok(Rollout {
            correct: (0..responses.len()).map(verify).collect(),
            prompts,
            responses,
            scores,
            group_size,
        })
    }

    /// 1 for each response that solves its prompt, 0 for the others.
    pub(super) fn rewards(&self) -> Vec<f64> {
        let correct = self.correct.iter();
        correct
            .map(|&correct| f64::from(u8::from(correct)))
            .collect()
    }

    /// What the responses say of the policy.
    pub(super) fn evaluation(&self) -> Evaluation {
        let groups = self.correct.chunks(self.group_size);
        let right = groups.map(|group| group.iter().filter(|correct| **correct).count());
        let entropy = self.scores.entropy.iter();
        let count = self.responses.len().max(1);
        Evaluation {
            pass_at: PassAt::of(&right.collect::<Vec<_>>(), self.group_size),
            entropy: mean(entropy.map(|&entropy| entropy.into())),
            length: self.responses.tokens().len() as f64 / count as f64,
        }
    }

    /// All columns that hooks see, and the mean k3 estimate of the KL from the policy to the reference. `logp` is that
    /// of the policy which sampled: before the first update they are one.
    pub(super) fn batch(
        &self,
        step: u64,
        reference: &Reference,
    ) -> Result<(Batch, f64), Diagnostics> {
        let reference = reference.score(&self.prompts, &self.responses)?.logp;
        let pairs = self.scores.logp.iter().zip(&reference);
        let kl = mean(pairs.map(|(&logp, &reference)| k3(f64::from(logp) - f64::from(reference))));
        let lengths = || (0..self.responses.len()).map(|index| self.responses.range(index).len());
        let prompts = self.responses.prompts().iter();
        let numbers = |values: &[f32]| FloatBuffer::from(values.to_vec());
        let batch = Batch::builder()
            .groups(prompts.map(|&prompt| prompt as i64))
            .lengths(lengths())
            .step(step)
            .response("reward", self.rewards())
            .response("correct", self.rewards())
            // Lengths are far below 2^53.
            .response(
                "length",
                lengths().map(|length| length as f64).collect::<Vec<_>>(),
            )
            .token("old_logp", numbers(&self.scores.logp))
            .token("entropy", numbers(&self.scores.entropy))
            .token("ref_logp", FloatBuffer::from(reference))
            .token("logp", numbers(&self.scores.logp));
        Ok((batch.build()?, kl))
    }
}

pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// The batch of some of a batch's responses. `advantage` is of the whole batch; `logp`, one number a token of the
/// selected responses, is given where it is no longer the batch's own.
pub(super) fn select(
    batch: &Batch,
    members: &[usize],
    logp: Option<Vec<f32>>,
    advantage: Option<&Computed>,
) -> Batch {
    let mut batch = batch.clone();
    if let Some(advantage) = advantage {
        batch = batch.with("advantage", advantage);
    }
    let selected = batch.select(members);
    let Some(logp) = logp else {
        return selected;
    };
    let logp = Computed::new(selected.layout().clone(), Level::Token, logp);
    selected.with("logp", &logp)
}
