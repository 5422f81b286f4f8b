//! How a batch is divided among threads: fixed chunks of prompts, so that the division never changes a bit.

use rayon::prelude::*;

use super::network::{Network, Sizes};
use super::trie::{Source, Trie};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::policy::Responses;
use crate::train::task::Prompt;

/// Prompts in one chunk: few enough that 64 prompts keep 16 threads busy, enough that a matrix product has some tens of
/// rows to work on.
const CHUNK: usize = 4;

/// Chunks whose tries or gradients are in memory at a time, where they are not to be remembered.
pub(super) const WAVE: usize = 64;

/// Some prompts in a row with their responses.
pub(super) struct Chunk<'a> {
    pub prompts: &'a [Prompt],
    /// The index of each response's prompt within the chunk.
    pub owners: Vec<usize>,
    /// The index of each response in the batch.
    pub responses: Vec<usize>,
}

/// The chunks of a batch in which response i belongs to prompt `owners[i]`.
pub(super) fn chunks<'a>(
    prompts: &'a [Prompt],
    owners: impl Iterator<Item = usize>,
) -> Vec<Chunk<'a>> {
    let mut chunks: Vec<Chunk<'a>> = prompts
        .chunks(CHUNK)
        .map(|prompts| Chunk {
            prompts,
            owners: Vec::new(),
            responses: Vec::new(),
        })
        .collect();
    for (response, owner) in owners.enumerate() {
        let chunk = &mut chunks[owner / CHUNK];
        chunk.owners.push(owner % CHUNK);
        chunk.responses.push(response);
    }
    chunks
}

/// The forward pass of some chunks, in parallel.
pub(super) fn grow<'a>(
    network: &Network<f32>,
    chunks: &[Chunk<'_>],
    source: impl Fn(&Chunk<'_>) -> Source<'a> + Sync,
) -> Vec<Trie<f32>> {
    chunks
        .par_iter()
        .map(|chunk| Trie::grow(network, chunk.prompts, &chunk.owners, source(chunk)))
        .collect()
}

pub(super) fn given<'a>(responses: &'a Responses) -> impl Fn(&Chunk<'_>) -> Source<'a> + Sync {
    |chunk| {
        let tokens = chunk.responses.iter().map(|&r| responses.response(r));
        Source::Given(tokens.collect())
    }
}

/// Whether prompts have the features that a network reads.
pub(super) fn check_prompts(sizes: &Sizes, prompts: &[Prompt]) -> Result<(), Diagnostics> {
    let expected = sizes.features;
    for (index, prompt) in prompts.iter().enumerate() {
        let found = prompt.features.len();
        if found != expected {
            let message =
                format!("prompt {index} has {found} features; this policy reads {expected}");
            return Err(Diagnostic::error(message).into());
        }
    }
    Ok(())
}

/// Whether a network can read these responses to these prompts.
pub(super) fn check(
    sizes: &Sizes,
    prompts: &[Prompt],
    responses: &Responses,
) -> Result<(), Diagnostics> {
    check_prompts(sizes, prompts)?;
    let Sizes {
        vocabulary,
        max_tokens,
        ..
    } = *sizes;
    for (response, &prompt) in responses.prompts().iter().enumerate() {
        let tokens = responses.response(response);
        let token = tokens.iter().find(|&&token| token as usize >= vocabulary);
        let wrong = if prompt >= prompts.len() {
            let prompts = prompts.len();
            format!("belongs to prompt {prompt}; the batch has {prompts} prompts")
        } else if tokens.len() > max_tokens {
            format!("has {} tokens; the longest has {max_tokens}", tokens.len())
        } else if let Some(token) = token {
            format!("has the token {token}; the vocabulary has {vocabulary} tokens")
        } else {
            continue;
        };
        return Err(Diagnostic::error(format!("response {response} {wrong}")).into());
    }
    Ok(())
}
