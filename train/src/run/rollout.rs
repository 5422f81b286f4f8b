//! The data of a step: prompts, sampled and verified responses, and the batch made of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::Result;
use crate::policy::{Policy, Responses};
use crate::row::{Evaluation, PassAt, Row};
use crate::task::{Prompt, Task};
use advlab::batch::{Batch, FloatBuffer};
use advlab::random::StreamKey;
use advlab::tensor::k3;

/// A verified response. In a task with turns, it is a turn of a trajectory.
struct Response {
    prompt: Arc<Prompt>,
    tokens: Vec<u32>,
    /// Log-probs under the policy that sampled the response.
    logp: Vec<f32>,
    entropy: Vec<f32>,
    /// The index in the group.
    trajectory: usize,
    turn: u8,
    /// Whether the response solves its own prompt.
    is_right: bool,
    /// 1 if its trajectory is right in a turn, otherwise 0.
    reward: f64,
}

/// The responses to a prompt, trajectory by trajectory, turn by turn.
pub(super) struct Group {
    /// Its name.
    pub(super) id: usize,
    responses: Vec<Response>,
}

impl Group {
    /// Rewards the responses of a group of so many trajectories.
    fn set_rewards(&mut self, trajectories: usize) {
        let mut right = vec![0.0; trajectories];
        for response in self.responses.iter().filter(|response| response.is_right) {
            right[response.trajectory] = 1.0;
        }
        for response in &mut self.responses {
            response.reward = right[response.trajectory];
        }
    }
}

/// The groups of a step, and the policy's inputs, all in the order of the groups.
pub(super) struct Rollout {
    pub(super) groups: Vec<Group>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) responses: Responses,
}

/// The data of a step, and its report so far.
pub(super) struct Sampled {
    pub(super) rollout: Rollout,
    pub(super) batch: Batch,
    pub(super) row: Row,
}

/// Samples `size` trajectories from each prompt, which has the name of its group, and verifies them.
pub(super) fn sample(
    task: &dyn Task,
    policy: &mut dyn Policy,
    (ids, prompts): (Vec<usize>, Vec<Prompt>),
    size: usize,
    key: StreamKey,
) -> Result<Vec<Group>> {
    let group = |id| Group {
        id,
        responses: Vec::new(),
    };
    let mut groups: Vec<Group> = ids.into_iter().map(group).collect();
    // The trajectories that go on, each with its group, and their prompts.
    let places = (0..prompts.len()).flat_map(|group| (0..size).map(move |index| (group, index)));
    let (mut places, mut prompts): (Vec<_>, _) = (places.collect(), prompts);
    for turn in 0..task.turns() {
        let count = if turn == 0 { size } else { 1 };
        let samples = policy.sample(&prompts, count, key.again(turn, 0))?;
        let (all, scores) = (&samples.responses, &samples.scores);
        let shared: Vec<Arc<Prompt>> = prompts.into_iter().map(Arc::new).collect();
        let verified = (0..all.len()).into_par_iter().map(|row| {
            let (prompt, range) = (&shared[all.prompts()[row]], all.range(row));
            Response {
                is_right: task.verify(prompt, all.response(row)),
                prompt: prompt.clone(),
                tokens: all.response(row).to_vec(),
                logp: scores.logp[range.clone()].to_vec(),
                entropy: scores.entropy[range].to_vec(),
                trajectory: places[row].1,
                turn,
                reward: 0.0,
            }
        });
        let verified: Vec<Response> = verified.collect();
        let mut next = (Vec::new(), Vec::new());
        for (response, place) in verified.into_iter().zip(places) {
            if turn + 1 < task.turns()
                && let Some(prompt) = task.next(&response.prompt, &response.tokens)
            {
                next.0.push(place);
                next.1.push(prompt);
            }
            groups[place.0].responses.push(response);
        }
        (places, prompts) = next;
        if prompts.is_empty() {
            break;
        }
    }
    for group in &mut groups {
        group
            .responses
            .sort_by_key(|one| (one.trajectory, one.turn));
        group.set_rewards(size);
    }
    Ok(groups)
}

/// The policy's results on groups of `size` trajectories.
pub(super) fn evaluation(groups: &[Group], size: usize) -> Evaluation {
    let right = groups.iter().map(|group| {
        let firsts = group.responses.iter().filter(|one| one.turn == 0);
        firsts.filter(|one| one.reward > 0.0).count()
    });
    let responses = groups.iter().flat_map(|group| &group.responses);
    let entropy = responses.clone().flat_map(|one| &one.entropy);
    let entropy: Vec<f32> = entropy.copied().collect();
    let count = responses.count().max(1);
    Evaluation {
        pass_at: PassAt::of(&right.collect::<Vec<_>>(), size),
        length: entropy.len() as f64 / count as f64,
        entropy: mean(entropy.into_iter().map(f64::from)),
    }
}

/// The first response for a person.
pub(super) fn example(groups: &[Group], task: &dyn Task) -> Result<String> {
    let mut responses = groups.iter().flat_map(|group| &group.responses);
    let first = responses
        .next()
        .map(|one| task.show(&one.prompt, &one.tokens));
    first.unwrap_or(Ok(String::new()))
}

impl Rollout {
    pub(super) fn new(groups: Vec<Group>) -> Rollout {
        let (mut prompts, mut responses) = (Vec::new(), Responses::new());
        let mut before: Option<&Arc<Prompt>> = None;
        for one in groups.iter().flat_map(|group| &group.responses) {
            // Neighbouring responses to one prompt share its text.
            if !before.is_some_and(|before| Arc::ptr_eq(before, &one.prompt)) {
                prompts.push(Prompt::clone(&one.prompt));
            }
            before = Some(&one.prompt);
            responses.push(prompts.len() - 1, &one.tokens);
        }
        Rollout {
            groups,
            prompts,
            responses,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Response> + Clone {
        self.groups.iter().flat_map(|group| &group.responses)
    }

    /// The rewards of all responses.
    pub(super) fn rewards(&self) -> impl Iterator<Item = f64> + Clone {
        self.all().map(|one| one.reward)
    }

    /// The rows of each group.
    pub(super) fn rows(&self) -> Vec<Range<usize>> {
        let mut end = 0;
        let rows = self.groups.iter().map(|group| {
            let start = end;
            end += group.responses.len();
            start..end
        });
        rows.collect()
    }

    /// All columns that hooks see, and the mean k3 estimate of the KL from the policy to the reference that gives `ref_logp`.
    /// `logp` comes from the sampling policy: before the first update the two are the same.
    pub(super) fn batch(
        &self,
        step: u64,
        ref_logp: Option<Vec<f32>>,
        task: &dyn Task,
        size: usize,
    ) -> Result<(Batch, Option<f64>)> {
        let numbers = |value: fn(&Response) -> f64| self.all().map(value).collect::<Vec<_>>();
        let groups = self.groups.iter();
        // Indices are far below 2^63, and lengths below 2^53.
        let names = groups.flat_map(|group| vec![group.id as i64; group.responses.len()]);
        let tokens = |values: fn(&Response) -> &Vec<f32>| {
            self.all().flat_map(values).copied().collect::<Vec<f32>>()
        };
        let logp = tokens(|one| &one.logp);
        let mut batch = Batch::builder()
            .groups(names)
            .lengths(self.all().map(|one| one.tokens.len()))
            .step(step)
            .response("reward", numbers(|one| one.reward))
            .response("correct", numbers(|one| one.reward))
            .response("length", numbers(|one| one.tokens.len() as f64))
            .token("old_logp", FloatBuffer::from(logp.clone()))
            .token("entropy", FloatBuffer::from(tokens(|one| &one.entropy)))
            .token("logp", FloatBuffer::from(logp.clone()));
        if task.turns() > 1 {
            let trajectories = self.groups.iter().enumerate().flat_map(|(index, group)| {
                let responses = group.responses.iter();
                responses.map(move |one| (index * size + one.trajectory) as f64)
            });
            let state = |one: &Response| -> String {
                one.prompt.tokens.iter().map(u32::to_string).collect()
            };
            batch = batch
                .response("trajectory", trajectories.collect::<Vec<f64>>())
                .response("turn", numbers(|one| one.turn.into()))
                .response("step_reward", numbers(|one| one.is_right.into()))
                .text("state", self.all().map(state));
        }
        let mut kl = None;
        if let Some(ref_logp) = ref_logp {
            let pairs = logp.iter().zip(&ref_logp);
            let each = pairs.map(|(&logp, &other)| k3(f64::from(logp) - f64::from(other)));
            kl = Some(mean(each));
            batch = batch.token("ref_logp", FloatBuffer::from(ref_logp));
        }
        let all: Vec<&Response> = self.all().collect();
        let texts = all
            .par_iter()
            .map(|one| task.texts(&one.prompt, &one.tokens));
        let texts: Vec<_> = texts.collect::<Result<_>>()?;
        let mut columns: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (name, text) in texts.into_iter().flatten() {
            columns.entry(name).or_default().push(text);
        }
        for (name, texts) in columns {
            batch = batch.text(name, texts);
        }
        Ok((batch.build()?, kl))
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
