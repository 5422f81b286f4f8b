//! The data of a step: prompts, sampled and verified responses, and the batch built from them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::Result;
use crate::policy::{Policy, Responses};
use crate::random::StreamKey;
use crate::row::{Evaluation, PassAt, Stage};
use crate::task::{Prompt, Task};
use advlab::batch::{Batch, FloatBuffer};
use advlab::script::Statistics;
use advlab::tensor::k3;

/// A verified response. In a task with several turns, a response is one turn of a trajectory.
pub(super) struct Response {
    /// The index of the response's group in the batch.
    pub(super) group: usize,
    /// The group's value in the column `group`: the index of its prompt in the pool or, without a pool, its index in the batch.
    pub(super) id: usize,
    /// The index of the trajectory in its group.
    trajectory: usize,
    turn: u8,
    pub(super) prompt: Arc<Prompt>,
    pub(super) tokens: Vec<u32>,
    /// The log-prob of each token under the policy that sampled the response.
    logp: Vec<f32>,
    entropy: Vec<f32>,
    /// Whether this response solves its prompt.
    is_right: bool,
    /// 1 if any turn of the trajectory is right, otherwise 0.
    reward: f64,
}

/// Samples a group of `size` trajectories for each prompt and verifies them. The responses are sorted by group, trajectory and
/// turn; `group` and `id` are the index of the group's prompt.
pub(super) fn sample(
    task: &dyn Task,
    policy: &mut dyn Policy,
    mut prompts: Vec<Prompt>,
    size: usize,
    key: StreamKey,
) -> Result<Vec<Response>> {
    // The trajectories that continue, each given by its group and its index in the group.
    let groups = 0..prompts.len();
    let live = groups.flat_map(|group| (0..size).map(move |index| (group, index)));
    let mut live: Vec<_> = live.collect();
    let mut all: Vec<Response> = Vec::new();
    for turn in 0..task.turns() {
        let count = if turn == 0 { size } else { 1 };
        let samples = policy.sample(&prompts, count, key.again(turn, 0))?;
        let (own, scores) = (&samples.responses, &samples.scores);
        let shared: Vec<Arc<Prompt>> = prompts.into_iter().map(Arc::new).collect();
        let verified = live.into_par_iter().enumerate().map(|(row, place)| {
            let (prompt, range) = (&shared[own.owners()[row]], own.range(row));
            let (group, trajectory) = place;
            Response {
                group,
                id: group,
                trajectory,
                turn,
                is_right: task.verify(prompt, own.response(row)),
                prompt: prompt.clone(),
                tokens: own.response(row).to_vec(),
                logp: scores.logp[range.clone()].to_vec(),
                entropy: scores.entropy[range].to_vec(),
                reward: 0.0,
            }
        });
        let verified: Vec<Response> = verified.collect();
        let goes_on = verified.iter().filter(|_| turn + 1 < task.turns());
        let next = |one: &Response| {
            let prompt = task.next(&one.prompt, &one.tokens)?;
            Some(((one.group, one.trajectory), prompt))
        };
        (live, prompts) = goes_on.filter_map(next).unzip();
        all.extend(verified);
        if prompts.is_empty() {
            break;
        }
    }
    let right = all.iter().filter(|one| one.is_right);
    let right: HashSet<_> = right.map(|one| (one.group, one.trajectory)).collect();
    for one in &mut all {
        one.reward = right.contains(&(one.group, one.trajectory)).into();
    }
    all.sort_by_key(|one| (one.group, one.trajectory, one.turn));
    Ok(all)
}

/// Returns the policy's results on groups of `size` trajectories.
pub(super) fn evaluation(responses: &[Response], size: usize) -> Evaluation {
    let right = |group: &[Response]| {
        let firsts = group.iter().filter(|one| one.turn == 0);
        firsts.filter(|one| one.reward > 0.0).count()
    };
    let groups = responses.chunk_by(|one, next| one.group == next.group);
    let entropy = responses.iter().flat_map(|one| &one.entropy);
    let entropy: Vec<f64> = entropy.copied().map(f64::from).collect();
    Evaluation {
        pass_at: PassAt::of(&groups.map(right).collect::<Vec<_>>(), size),
        length: Some(entropy.len() as f64 / responses.len().max(1) as f64),
        entropy: Some(Statistics::of(entropy.into_iter()).mean),
    }
}

/// The data of a step, and the numbers of its row that come from sampling.
pub(super) struct Sampled {
    /// The policy's inputs, in the order of the batch.
    pub(super) responses: Responses,
    pub(super) batch: Batch,
    /// The policy's results on the step's prompts.
    pub(super) results: Evaluation,
    pub(super) resampled: Option<usize>,
    pub(super) kl: Option<f64>,
    pub(super) ms: [(Stage, f64); 2],
}

/// Returns the policy's inputs, in the order of the responses.
pub(super) fn policy_inputs(all: &[Response]) -> Responses {
    // Consecutive responses that share a prompt refer to a single copy of it.
    let to_one = || all.chunk_by(|one, next| Arc::ptr_eq(&one.prompt, &next.prompt));
    let prompts: Vec<_> = to_one().map(|own| Prompt::clone(&own[0].prompt)).collect();
    let mut responses = Responses::to(prompts);
    for (prompt, own) in to_one().enumerate() {
        for one in own {
            responses.push(prompt, &one.tokens);
        }
    }
    responses
}

/// Returns the batch of a step and, if there is `ref_logp`, the k3 estimate of KL(policy || reference),
/// averaged over tokens. The column `logp` comes from the sampling policy, which is the current policy until the first update.
pub(super) fn batch(
    all: &[Response],
    step: u64,
    ref_logp: Option<Vec<f32>>,
    task: &dyn Task,
    size: usize,
) -> Result<(Batch, Option<f64>)> {
    // The conversions are exact, because indices and lengths are far below 2^53.
    let numbers = |value: fn(&Response) -> f64| all.iter().map(value).collect::<Vec<_>>();
    let tokens = |values: fn(&Response) -> &Vec<f32>| {
        let values = all.iter().flat_map(values);
        values.copied().collect::<Vec<f32>>()
    };
    let logp = tokens(|one| &one.logp);
    let mut batch = Batch::builder()
        .groups(all.iter().map(|one| one.id as i64))
        .lengths(all.iter().map(|one| one.tokens.len()))
        .step(step)
        .response("reward", numbers(|one| one.reward))
        .response("correct", numbers(|one| one.reward))
        .response("length", numbers(|one| one.tokens.len() as f64))
        .token("old_logp", FloatBuffer::from(logp.clone()))
        .token("entropy", FloatBuffer::from(tokens(|one| &one.entropy)))
        .token("logp", FloatBuffer::from(logp.clone()));
    if task.turns() > 1 {
        let trajectory = |one: &Response| (one.group * size + one.trajectory) as f64;
        // The state is the prompt's tokens as text, so that different prompts are different states.
        let state = |one: &Response| format!("{:?}", one.prompt.tokens);
        batch = batch
            .response("trajectory", all.iter().map(trajectory).collect::<Vec<_>>())
            .response("turn", numbers(|one| one.turn.into()))
            .response("step_reward", numbers(|one| one.is_right.into()))
            .text("state", all.iter().map(state));
    }
    let mut kl = None;
    if let Some(ref_logp) = ref_logp {
        let pairs = logp.iter().zip(&ref_logp);
        let each = pairs.map(|(&logp, &other)| k3(f64::from(logp) - f64::from(other)));
        kl = Some(Statistics::of(each).mean);
        batch = batch.token("ref_logp", FloatBuffer::from(ref_logp));
    }
    let texts = all.par_iter();
    let texts = texts.map(|one| task.texts(&one.prompt, &one.tokens));
    let mut columns: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (name, text) in (texts.collect::<Result<Vec<_>>>()?).into_iter().flatten() {
        columns.entry(name).or_default().push(text);
    }
    for (name, texts) in columns {
        batch = batch.text(name, texts);
    }
    Ok((batch.build()?, kl))
}
