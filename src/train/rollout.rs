//! The data of a step: prompts, sampled and verified responses, and the batch made of them.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::policy::{Policy, Responses, Samples, Scores};
use super::random::StreamKey;
use super::row::{Evaluation, PassAt};
use super::task::{Prompt, Task};
use crate::batch::{Batch, FloatBuffer};
use crate::diagnostic::Diagnostics;
use crate::tensor::k3;

/// Groups of responses, verified.
pub(super) struct Rollout {
    pub(super) prompts: Vec<Prompt>,
    pub(super) responses: Responses,
    /// Of the policy that sampled them.
    pub(super) scores: Scores,
    /// 1 for each response that solves its prompt, 0 for the others.
    pub(super) rewards: Vec<f64>,
    group_size: usize,
}

impl Rollout {
    /// Samples `group_size` responses to each prompt and verifies them.
    pub(super) fn sample(
        task: &dyn Task,
        policy: &mut dyn Policy,
        prompts: Vec<Prompt>,
        group_size: usize,
        key: StreamKey,
    ) -> Result<Rollout, Diagnostics> {
        let Samples { responses, scores } = policy.sample(&prompts, group_size, key)?;
        let verify = |response: usize| {
            let prompt = &prompts[responses.prompts()[response]];
            let is_right = task.verify(prompt, responses.response(response));
            f64::from(u8::from(is_right))
        };
        Ok(Rollout {
            rewards: (0..responses.len()).into_par_iter().map(verify).collect(),
            prompts,
            responses,
            scores,
            group_size,
        })
    }

    /// The numbers of the policy that the responses give.
    pub(super) fn evaluation(&self) -> Evaluation {
        let groups = self.rewards.chunks(self.group_size);
        let right = groups.map(|group| group.iter().filter(|reward| **reward > 0.0).count());
        let entropy = self.scores.entropy.iter();
        let count = self.responses.len().max(1);
        Evaluation {
            pass_at: PassAt::of(&right.collect::<Vec<_>>(), self.group_size),
            entropy: mean(entropy.map(|&entropy| entropy.into())),
            length: self.responses.tokens().len() as f64 / count as f64,
        }
    }

    /// The texts of all responses, by name.
    fn texts(&self, task: &dyn Task) -> BTreeMap<&'static str, Vec<String>> {
        let of_response = |response: usize| {
            let prompt = &self.prompts[self.responses.prompts()[response]];
            task.texts(prompt, self.responses.response(response))
        };
        let responses = (0..self.responses.len()).into_par_iter();
        let mut texts: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (name, text) in responses.map(of_response).collect::<Vec<_>>().concat() {
            texts.entry(name).or_default().push(text);
        }
        texts
    }

    /// All columns that hooks see, and the mean k3 estimate of the KL from the policy to the reference that gives `ref_logp`. `logp` is that
    /// of the policy which sampled: before the first update they are one.
    pub(super) fn batch(
        &self,
        step: u64,
        ref_logp: Option<Vec<f32>>,
        task: &dyn Task,
    ) -> Result<(Batch, Option<f64>), Diagnostics> {
        let kl = ref_logp.as_ref().map(|ref_logp| {
            let pairs = self.scores.logp.iter().zip(ref_logp);
            mean(pairs.map(|(&logp, &reference)| k3(f64::from(logp) - f64::from(reference))))
        });
        let responses = &self.responses;
        let lengths = (0..responses.len()).map(|index| responses.range(index).len());
        // Lengths are far below 2^53.
        let length: Vec<f64> = lengths.clone().map(|length| length as f64).collect();
        let numbers = |values: &[f32]| FloatBuffer::from(values.to_vec());
        let mut batch = Batch::builder()
            .groups(responses.prompts().iter().map(|&prompt| prompt as i64))
            .lengths(lengths)
            .step(step)
            .response("reward", self.rewards.clone())
            .response("correct", self.rewards.clone())
            .response("length", length)
            .token("old_logp", numbers(&self.scores.logp))
            .token("entropy", numbers(&self.scores.entropy))
            .token("logp", numbers(&self.scores.logp));
        if let Some(ref_logp) = ref_logp {
            batch = batch.token("ref_logp", FloatBuffer::from(ref_logp));
        }
        for (name, texts) in self.texts(task) {
            batch = batch.text(name, texts);
        }
        Ok((batch.build()?, kl))
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
