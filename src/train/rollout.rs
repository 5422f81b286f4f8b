//! What a step trains on: prompts, sampled responses, what the verifier says of them, and the batch made of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::Config;
use super::error::TrainError;
use super::estimate::PassAt;
use super::policy::{Decoding, Policy, Responses, Samples, Scorer, Scores};
use super::random::{Key, Purpose};
use super::task::{Prompt, Task, Verdict, training_prompts};
use crate::batch::{Batch, FloatBuffer, TokenValues};
use crate::diagnostic::Diagnostics;
use crate::script::Computed;
use crate::tensor::Level;

/// Groups of responses, verified.
pub(super) struct Rollout {
    pub(super) prompts: Vec<Prompt>,
    pub(super) responses: Responses,
    /// Of the policy that sampled them.
    pub(super) scores: Scores,
    pub(super) verdicts: Vec<Verdict>,
    group_size: usize,
}

impl Rollout {
    /// Samples `group_size` responses to each prompt and verifies them.
    pub(super) fn sample(
        task: &dyn Task,
        policy: &dyn Policy,
        prompts: Vec<Prompt>,
        group_size: usize,
        key: Key,
    ) -> Result<Rollout, TrainError> {
        let Samples { responses, scores } =
            policy.sample(&prompts, group_size, Decoding::Sample(key))?;
        let verify = |response: usize| {
            let prompt = &prompts[responses.prompts()[response]];
            task.verify(prompt, responses.response(response))
        };
        Ok(Rollout {
            verdicts: (0..responses.len()).map(verify).collect(),
            prompts,
            responses,
            scores,
            group_size,
        })
    }

    /// Estimates of pass@k over the groups.
    pub(super) fn pass_at(&self) -> PassAt {
        let groups = self.verdicts.chunks(self.group_size);
        let right = groups.map(|group| group.iter().filter(|verdict| verdict.correct).count());
        PassAt::of(&right.collect::<Vec<_>>(), self.group_size)
    }

    /// Mean number of tokens of a response.
    pub(super) fn mean_length(&self) -> f64 {
        self.responses.tokens().len() as f64 / self.responses.len().max(1) as f64
    }

    /// Mean entropy of a token, in nats.
    pub(super) fn mean_entropy(&self) -> f64 {
        mean(
            self.scores
                .entropy
                .iter()
                .map(|&entropy| f64::from(entropy)),
        )
    }

    /// All columns that hooks see. `logp` is that of the policy which sampled: before the first update they are one.
    pub(super) fn batch(&self, step: u64, reference: &dyn Scorer) -> Result<Batch, TrainError> {
        let reference = reference.score(&self.prompts, &self.responses)?.logp;
        let everyone: Vec<usize> = (0..self.responses.len()).collect();
        let columns = Columns {
            rollout: self,
            reference: &reference,
            advantage: None,
        };
        Ok(columns.batch(step, &everyone, self.scores.logp.clone())?)
    }
}

/// What a step trains on, and how long it took to make it.
pub(super) struct Sampled {
    pub(super) rollout: Rollout,
    pub(super) batch: Arc<Batch>,
    /// The time of sampling and verifying.
    pub(super) sample: Duration,
    /// The time of the reference policy.
    pub(super) reference: Duration,
}

impl Sampled {
    /// The groups of a step, by the present policy.
    pub(super) fn at(
        step: u64,
        config: &Config,
        task: &dyn Task,
        policy: &dyn Policy,
        reference: &dyn Scorer,
    ) -> Result<Sampled, TrainError> {
        let seed = config.seed;
        let started = Instant::now();
        let prompts = training_prompts(task, seed, step, config.rollout_batch_size)?;
        let key = Key {
            seed,
            purpose: Purpose::Responses,
            step,
        };
        let rollout = Rollout::sample(task, policy, prompts, config.group_size, key)?;
        let sample = started.elapsed();
        let started = Instant::now();
        let batch = Arc::new(rollout.batch(step, reference)?);
        Ok(Sampled {
            rollout,
            batch,
            sample,
            reference: started.elapsed(),
        })
    }
}

pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// What the batch of some of a rollout's responses is made of.
pub(super) struct Columns<'a> {
    pub(super) rollout: &'a Rollout,
    /// Log-probs under the reference policy, a token each.
    pub(super) reference: &'a [f32],
    /// What the loss hook sees as `batch.advantage`.
    pub(super) advantage: Option<&'a Computed>,
}

impl Columns<'_> {
    /// The batch of the responses at these places; `logp` is theirs alone, under the present policy.
    pub(super) fn batch(
        &self,
        step: u64,
        places: &[usize],
        logp: Vec<f32>,
    ) -> Result<Batch, Diagnostics> {
        let Rollout {
            responses,
            scores,
            verdicts,
            ..
        } = self.rollout;
        let of = |f: &dyn Fn(usize) -> f64| places.iter().map(|&place| f(place)).collect();
        let length = |place: usize| responses.range(place).len();
        let numbers = |values: Vec<f32>| TokenValues::Compact(values.into());
        let pick = |values: &[f32]| {
            let ranges = places.iter().map(|&place| &values[responses.range(place)]);
            numbers(ranges.flatten().copied().collect())
        };
        let verdicts: &[Verdict] = verdicts;
        let rewards: Vec<f64> = of(&|place| verdicts[place].reward);
        let correct: Vec<f64> = of(&|place| f64::from(u8::from(verdicts[place].correct)));
        // Lengths are far below 2^53.
        let lengths: Vec<f64> = of(&|place| length(place) as f64);
        let mut builder = Batch::builder()
            .groups(
                places
                    .iter()
                    .map(|&place| responses.prompts()[place] as i64),
            )
            .lengths(places.iter().map(|&place| length(place)))
            .step(step)
            .response("reward", rewards)
            .response("correct", correct)
            .response("length", lengths)
            .token("old_logp", pick(&scores.logp))
            .token("entropy", pick(&scores.entropy))
            .token("ref_logp", pick(self.reference))
            .token("logp", numbers(logp));
        if let Some(advantage) = self.advantage {
            builder = match advantage.level() {
                Level::Token => builder.token("advantage", self.tokens_of(advantage, places)),
                _ => {
                    let values: Vec<f64> = of(&|place| advantage.buffer().get(place));
                    builder.response("advantage", values)
                }
            };
        }
        builder.build()
    }

    /// A token advantage, in its own precision, of some responses.
    fn tokens_of(&self, advantage: &Computed, places: &[usize]) -> TokenValues {
        let responses = &self.rollout.responses;
        let ranges = places.iter().map(|&place| responses.range(place));
        TokenValues::Compact(match advantage.buffer() {
            FloatBuffer::F32(values) => {
                let picked = ranges.flat_map(|range| values[range].iter().copied());
                FloatBuffer::F32(picked.collect())
            }
            FloatBuffer::F64(values) => {
                let picked = ranges.flat_map(|range| values[range].iter().copied());
                FloatBuffer::F64(picked.collect())
            }
        })
    }
}
