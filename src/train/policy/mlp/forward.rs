//! The forward pass of a batch, divided among threads by prompts. A response gets the same bits in any division.

use rayon::prelude::*;

use super::network::{Network, Sizes};
use super::trie::{TokenSource, Trie};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::policy::{Responses, Samples, Scores};
use crate::train::task::Prompt;

/// Prompts whose gradients are added up in one go, whatever the threads: the sum of a batch has its bits from this.
pub(super) const CHUNK: usize = 4;

/// Prompts in a part at most: what they need in memory is there at once.
const LARGEST: usize = 256;

/// The responses of each `size` prompts of a batch in which response i belongs to prompt `owners[i]`.
pub(super) fn parts(prompts: usize, owners: &[usize], size: usize) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new(); prompts.div_ceil(size)];
    for (response, owner) in owners.iter().enumerate() {
        parts[owner / size].push(response);
    }
    parts
}

/// A forward pass: the responses of a batch and the tries that they make.
pub(super) struct ForwardPass {
    pub prompts: Vec<Prompt>,
    pub samples: Samples,
    /// The prompts of each trie.
    pub size: usize,
    pub tries: Vec<Trie<f32>>,
    /// Whether the tries have their hidden layers.
    pub is_whole: bool,
}

impl ForwardPass {
    /// The responses whose tokens are those of `source`; hidden layers are kept for up to `remembered` tokens.
    pub fn new<'a>(
        network: &Network<f32>,
        prompts: &[Prompt],
        owners: &[usize],
        source: impl Fn(usize) -> TokenSource<'a> + Sync,
        remembered: usize,
    ) -> ForwardPass {
        // Two parts a thread even out what they have to do; matrix products want as many rows as there can be.
        let size = prompts.len().div_ceil(2 * rayon::current_num_threads());
        let size = size.next_multiple_of(CHUNK).clamp(CHUNK, LARGEST);
        let task = network.sizes.task;
        let is_whole = owners.len() * task.max_response_tokens <= remembered;
        let grow = |responses: Vec<usize>| {
            let mut trie = Trie::grow(network, prompts, owners, responses, &source);
            if !is_whole {
                (trie.h1, trie.h2) = Default::default();
            }
            trie
        };
        let parts = parts(prompts.len(), owners, size).into_par_iter();
        let tries: Vec<Trie<f32>> = parts.map(grow).collect();
        let (mut responses, mut scores) = (Responses::new(), Scores::default());
        let mut done = vec![0; tries.len()];
        for &owner in owners {
            let (trie, response) = (&tries[owner / size], &mut done[owner / size]);
            let (tokens, visits) = (&trie.tokens[*response], &trie.visits[*response]);
            *response += 1;
            responses.push(owner, tokens);
            for (&node, &token) in visits.iter().zip(tokens) {
                let logp = trie.logp[node * task.vocabulary + token as usize];
                scores.logp.push(logp as f32);
                scores.entropy.push(trie.entropy[node] as f32);
            }
        }
        ForwardPass {
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
    ) -> Result<ForwardPass, Diagnostics> {
        check(&network.sizes, prompts, responses)?;
        let source = |response| TokenSource::Given(responses.response(response));
        let owners = responses.prompts();
        Ok(ForwardPass::new(
            network, prompts, owners, source, remembered,
        ))
    }
}

/// Whether a network can read these responses to these prompts.
pub(super) fn check(
    sizes: &Sizes,
    prompts: &[Prompt],
    responses: &Responses,
) -> Result<(), Diagnostics> {
    let expected = sizes.task.prompt_features;
    let found = prompts.iter().map(|prompt| prompt.features.len());
    if let Some((index, found)) = found.enumerate().find(|(_, found)| *found != expected) {
        let message = format!("prompt {index} has {found} features; this policy reads {expected}");
        return Err(Diagnostic::error(message).into());
    }
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
