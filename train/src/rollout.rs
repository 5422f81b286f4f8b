//! The data of a step: prompts, sampled and verified responses, and the batch made of them.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use super::policy::{Policy, Responses, Samples, Scores};
use super::row::{Evaluation, PassAt, Row};
use super::task::{Prompt, Task};
use advlab::batch::{Batch, FloatBuffer};
use advlab::diagnostic::Diagnostics;
use advlab::random::StreamKey;
use advlab::tensor::k3;

/// Groups of responses, verified: of trajectories, whose turns are a response each.
#[derive(Default)]
pub(super) struct Rollout {
    /// The prompts of all responses.
    pub(super) prompts: Vec<Prompt>,
    /// Group by group, trajectory by trajectory, turn by turn.
    pub(super) responses: Responses,
    /// Of the policy that sampled them.
    pub(super) scores: Scores,
    /// 1 for each response whose trajectory is right in a turn, 0 for the others.
    pub(super) rewards: Vec<f64>,
    turns: Vec<Turn>,
    /// The names of the groups.
    ids: Vec<usize>,
    group_size: usize,
}

/// The data of a step, and its report so far.
pub(super) struct Sampled {
    pub(super) rollout: Rollout,
    pub(super) batch: Batch,
    pub(super) row: Row,
}

/// What a response is of.
#[derive(Clone, Copy)]
struct Turn {
    trajectory: usize,
    turn: u8,
    /// Whether the response solves its own prompt.
    is_right: bool,
}

impl Rollout {
    /// Samples `group_size` trajectories from each prompt, which has the name of its group, and verifies them.
    pub(super) fn sample(
        task: &dyn Task,
        policy: &mut dyn Policy,
        (ids, prompts): (Vec<usize>, Vec<Prompt>),
        group_size: usize,
        key: StreamKey,
    ) -> Result<Rollout, Diagnostics> {
        let samples = policy.sample(&prompts, group_size, key)?;
        let mut rollout = Rollout {
            ids,
            group_size,
            ..Rollout::default()
        };
        let trajectories: Vec<usize> = (0..samples.responses.len()).collect();
        rollout.add(task, prompts, samples, &trajectories, 0);
        let mut last = 0..rollout.turns.len();
        for turn in 1..task.turns() {
            let going_on = last.filter_map(|row| {
                let prompt = &rollout.prompts[rollout.responses.prompts()[row]];
                let next = task.next(prompt, rollout.responses.response(row))?;
                Some((rollout.turns[row].trajectory, next))
            });
            let (trajectories, prompts): (Vec<usize>, Vec<Prompt>) = going_on.unzip();
            if prompts.is_empty() {
                break;
            }
            let samples = policy.sample(&prompts, 1, key.again(turn, 0))?;
            last = rollout.turns.len()..rollout.turns.len() + prompts.len();
            rollout.add(task, prompts, samples, &trajectories, turn);
        }
        if task.turns() > 1 {
            let of_row = |row: usize| (row, rollout.turns[row].trajectory);
            let mut order: Vec<(usize, usize)> = (0..rollout.turns.len()).map(of_row).collect();
            order.sort_by_key(|&(row, trajectory)| (trajectory, rollout.turns[row].turn));
            let mut sorted = rollout.emptied();
            sorted.extend(&rollout, order.into_iter());
            rollout = sorted;
        }
        rollout.reward();
        Ok(rollout)
    }

    /// Adds one turn of some trajectories.
    fn add(
        &mut self,
        task: &dyn Task,
        prompts: Vec<Prompt>,
        Samples { responses, scores }: Samples,
        trajectories: &[usize],
        turn: u8,
    ) {
        let verified = (0..responses.len()).into_par_iter().map(|row| {
            let prompt = &prompts[responses.prompts()[row]];
            Turn {
                trajectory: trajectories[row],
                turn,
                is_right: task.verify(prompt, responses.response(row)),
            }
        });
        self.turns.par_extend(verified);
        if turn == 0 {
            (self.responses, self.scores) = (responses, scores);
        } else {
            for row in 0..responses.len() {
                let prompt = self.prompts.len() + responses.prompts()[row];
                self.responses.push(prompt, responses.response(row));
            }
            self.scores.logp.extend(scores.logp);
            self.scores.entropy.extend(scores.entropy);
        }
        self.prompts.extend(prompts);
    }

    /// The same groups without responses.
    fn emptied(&self) -> Rollout {
        Rollout {
            ids: self.ids.clone(),
            group_size: self.group_size,
            ..Rollout::default()
        }
    }

    /// Adds responses of another rollout, each as a turn of a trajectory. Neighbours with one prompt share it.
    fn extend(&mut self, from: &Rollout, rows: impl Iterator<Item = (usize, usize)>) {
        let mut before = None;
        for (row, trajectory) in rows {
            let prompt = from.responses.prompts()[row];
            if before.replace(prompt) != Some(prompt) {
                self.prompts.push(from.prompts[prompt].clone());
            }
            let tokens = from.responses.range(row);
            self.responses
                .push(self.prompts.len() - 1, from.responses.response(row));
            self.scores.logp.extend(&from.scores.logp[tokens.clone()]);
            self.scores.entropy.extend(&from.scores.entropy[tokens]);
            self.turns.push(Turn {
                trajectory,
                ..from.turns[row]
            });
        }
    }

    /// Every turn of a trajectory has the reward of the whole.
    fn reward(&mut self) {
        let mut right = vec![0.0; self.ids.len() * self.group_size];
        for turn in self.turns.iter().filter(|turn| turn.is_right) {
            right[turn.trajectory] = 1.0;
        }
        let rewards = self.turns.iter().map(|turn| right[turn.trajectory]);
        self.rewards = rewards.collect();
    }

    /// The names of the groups.
    pub(super) fn ids(&self) -> &[usize] {
        &self.ids
    }

    /// Number of groups.
    pub(super) fn groups(&self) -> usize {
        self.ids.len()
    }

    /// The responses of a group.
    pub(super) fn rows_of(&self, group: usize) -> Range<usize> {
        let before = |end: usize| {
            self.turns
                .partition_point(|turn| turn.trajectory < end * self.group_size)
        };
        before(group)..before(group + 1)
    }

    /// Puts the groups of another rollout in the place of some, one after the other.
    pub(super) fn replace(&mut self, groups: &[usize], other: &Rollout) {
        let mut whole = self.emptied();
        for group in 0..self.groups() {
            let (from, of) = match groups.iter().position(|replaced| *replaced == group) {
                Some(of) => (other, of),
                None => (&*self, group),
            };
            whole.ids[group] = from.ids[of];
            let trajectory = |row: usize| {
                let within = from.turns[row].trajectory - of * self.group_size;
                (row, group * self.group_size + within)
            };
            whole.extend(from, from.rows_of(of).map(trajectory));
        }
        whole.reward();
        *self = whole;
    }

    /// The numbers of the policy that the responses give.
    pub(super) fn evaluation(&self) -> Evaluation {
        let right = (0..self.groups()).map(|group| {
            let firsts = self.rows_of(group).filter(|&row| self.turns[row].turn == 0);
            firsts.filter(|&row| self.rewards[row] > 0.0).count()
        });
        let entropy = self.scores.entropy.iter();
        let count = self.responses.len().max(1);
        Evaluation {
            pass_at: PassAt::of(&right.collect::<Vec<_>>(), self.group_size),
            entropy: mean(entropy.map(|&entropy| entropy.into())),
            length: self.responses.tokens().len() as f64 / count as f64,
        }
    }

    /// The texts of all responses, by name.
    fn texts(&self, task: &dyn Task) -> Result<BTreeMap<&'static str, Vec<String>>, Diagnostics> {
        let of_response = |response: usize| {
            let prompt = &self.prompts[self.responses.prompts()[response]];
            task.texts(prompt, self.responses.response(response))
        };
        let responses = (0..self.responses.len()).into_par_iter();
        let mut texts: BTreeMap<_, Vec<String>> = BTreeMap::new();
        let all: Result<Vec<_>, Diagnostics> = responses.map(of_response).collect();
        for (name, text) in all?.concat() {
            texts.entry(name).or_default().push(text);
        }
        Ok(texts)
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
            .groups((0..self.groups()).flat_map(|group| {
                // Indices are far below 2^63.
                std::iter::repeat_n(self.ids[group] as i64, self.rows_of(group).len())
            }))
            .lengths(lengths)
            .step(step)
            .response("reward", self.rewards.clone())
            .response("correct", self.rewards.clone())
            .response("length", length)
            .token("old_logp", numbers(&self.scores.logp))
            .token("entropy", numbers(&self.scores.entropy))
            .token("logp", numbers(&self.scores.logp));
        if task.turns() > 1 {
            let of_turns =
                |value: fn(&Turn) -> f64| self.turns.iter().map(value).collect::<Vec<f64>>();
            let state = |row: usize| {
                let prompt = &self.prompts[responses.prompts()[row]];
                prompt.tokens.iter().map(u32::to_string).collect::<String>()
            };
            batch = batch
                .response("trajectory", of_turns(|turn| turn.trajectory as f64))
                .response("turn", of_turns(|turn| turn.turn.into()))
                .response("step_reward", of_turns(|turn| turn.is_right.into()))
                .text("state", (0..responses.len()).map(state));
        }
        if let Some(ref_logp) = ref_logp {
            batch = batch.token("ref_logp", FloatBuffer::from(ref_logp));
        }
        for (name, texts) in self.texts(task)? {
            batch = batch.text(name, texts);
        }
        Ok((batch.build()?, kl))
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
