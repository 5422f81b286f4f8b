//! The forward pass of a batch, divided among threads by prompts. A response gets the same bits in any division.

use rayon::prelude::*;

use super::network::{Network, Sizes};
use super::trie::{Source, Trie};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::policy::{Responses, Samples, Scores};
use crate::train::task::{Prompt, TaskShape};

/// Prompts whose gradients are added up in one go, whatever the threads: the sum of a batch has its bits from this.
pub(super) const CHUNK: usize = 4;

/// Prompts in a part at most: what they need in memory is there at once.
const LARGEST: usize = 256;

/// Some prompts in a row with their responses.
pub(super) struct Part<'a> {
    pub prompts: &'a [Prompt],
    /// The index of each response's prompt within the part.
    pub owners: Vec<usize>,
    /// The index of each response in the batch.
    pub responses: Vec<usize>,
}

/// The parts of `size` prompts of a batch in which response i belongs to prompt `owners[i]`.
pub(super) fn parts<'a>(prompts: &'a [Prompt], owners: &[usize], size: usize) -> Vec<Part<'a>> {
    let parts = prompts.chunks(size).map(|prompts| Part {
        prompts,
        owners: Vec::new(),
        responses: Vec::new(),
    });
    let mut parts: Vec<Part<'a>> = parts.collect();
    for (response, owner) in owners.iter().enumerate() {
        let part = &mut parts[owner / size];
        part.owners.push(owner % size);
        part.responses.push(response);
    }
    parts
}

/// A forward pass: the responses of a batch and the tries that they make.
pub(super) struct Pass {
    pub prompts: Vec<Prompt>,
    pub samples: Samples,
    /// The prompts of each trie.
    pub size: usize,
    pub tries: Vec<Trie<f32>>,
    /// Whether the tries have their hidden layers.
    pub is_whole: bool,
}

impl Pass {
    /// The responses that the sources of the parts give; hidden layers are kept for up to `remembered` tokens.
    pub fn new<'a>(
        network: &Network<f32>,
        prompts: &[Prompt],
        owners: &[usize],
        source: impl Fn(&Part<'_>) -> Source<'a> + Sync,
        remembered: usize,
    ) -> Pass {
        // Two parts a thread even out what they have to do; matrix products want as many rows as there can be.
        let size = prompts.len().div_ceil(2 * rayon::current_num_threads());
        let size = size.next_multiple_of(CHUNK).clamp(CHUNK, LARGEST);
        let TaskShape {
            vocabulary,
            max_response_tokens,
            ..
        } = network.sizes.task;
        let is_whole = owners.len() * max_response_tokens <= remembered;
        let grow = |part: Part<'_>| {
            let mut trie = Trie::grow(network, part.prompts, &part.owners, source(&part));
            if !is_whole {
                (trie.h1, trie.h2) = Default::default();
            }
            trie
        };
        let parts = parts(prompts, owners, size).into_par_iter();
        let tries: Vec<Trie<f32>> = parts.map(grow).collect();
        let (mut responses, mut scores) = (Responses::new(), Scores::default());
        let mut done = vec![0; tries.len()];
        for &owner in owners {
            let (trie, response) = (&tries[owner / size], &mut done[owner / size]);
            let (tokens, visits) = (&trie.tokens[*response], &trie.visits[*response]);
            *response += 1;
            responses.push(owner, tokens);
            let of_token = |(&node, &token): (&usize, &u32)| {
                trie.logp[node * vocabulary + token as usize] as f32
            };
            scores.logp.extend(visits.iter().zip(tokens).map(of_token));
            let of_node = |&node: &usize| trie.entropy[node] as f32;
            scores.entropy.extend(visits.iter().map(of_node));
        }
        Pass {
            prompts: prompts.to_vec(),
            samples: Samples { responses, scores },
            size,
            tries,
            is_whole,
        }
    }

    /// That of responses that are there.
    pub fn of(
        network: &Network<f32>,
        prompts: &[Prompt],
        responses: &Responses,
        remembered: usize,
    ) -> Result<Pass, Diagnostics> {
        check(&network.sizes, prompts, responses)?;
        let source = given(responses);
        let owners = responses.prompts();
        Ok(Pass::new(network, prompts, owners, source, remembered))
    }

    pub fn is_of(&self, prompts: &[Prompt], responses: &Responses) -> bool {
        self.samples.responses == *responses && self.prompts == prompts
    }
}

/// The source of responses that are there.
pub(super) fn given<'a>(responses: &'a Responses) -> impl Fn(&Part<'_>) -> Source<'a> + Sync {
    |part| {
        let tokens = part.responses.iter().map(|&r| responses.response(r));
        Source::Given(tokens.collect())
    }
}

/// Whether prompts have the features that a network reads.
pub(super) fn check_prompts(sizes: &Sizes, prompts: &[Prompt]) -> Result<(), Diagnostics> {
    let expected = sizes.task.prompt_features;
    let mut found = prompts.iter().map(|prompt| prompt.features.len());
    let Some(index) = found.position(|found| found != expected) else {
        return Ok(());
    };
    let found = prompts[index].features.len();
    let message = format!("prompt {index} has {found} features; this policy reads {expected}");
    Err(Diagnostic::error(message).into())
}

/// Whether a network can read these responses to these prompts.
pub(super) fn check(
    sizes: &Sizes,
    prompts: &[Prompt],
    responses: &Responses,
) -> Result<(), Diagnostics> {
    check_prompts(sizes, prompts)?;
    let (vocabulary, longest) = (sizes.task.vocabulary, sizes.task.max_response_tokens);
    for (response, &prompt) in responses.prompts().iter().enumerate() {
        let tokens = responses.response(response);
        let token = tokens.iter().find(|&&token| token as usize >= vocabulary);
        let wrong = if prompt >= prompts.len() {
            let prompts = prompts.len();
            format!("belongs to prompt {prompt}; the batch has {prompts} prompts")
        } else if tokens.len() > longest {
            format!("has {} tokens; the longest has {longest}", tokens.len())
        } else if let Some(token) = token {
            format!("has the token {token}; the vocabulary has {vocabulary} tokens")
        } else {
            continue;
        };
        return Err(Diagnostic::error(format!("response {response} {wrong}")).into());
    }
    Ok(())
}
