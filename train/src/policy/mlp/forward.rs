//! The forward pass of a batch, divided among threads by prompts. A response gets the same bits in any division.

use rayon::prelude::*;

use super::network::{Network, Sizes};
use super::trie::{TokenSource, Trie};
use crate::policy::{Responses, Samples};
use crate::task::Prompt;
use advlab::diagnostic::{Diagnostic, Diagnostics};

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

/// A forward pass: the responses of a batch and the tries that they make. Its memory is used again by the next one.
#[derive(Default)]
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
    /// Runs for the responses whose tokens are those of `source`; hidden layers are kept for up to `remembered` tokens.
    pub fn run<'a>(
        &mut self,
        network: &Network<f32>,
        prompts: &[Prompt],
        owners: &[usize],
        source: impl Fn(usize) -> TokenSource<'a> + Sync,
        remembered: usize,
    ) {
        // Two parts a thread even out what they have to do; matrix products want as many rows as there can be.
        let size = prompts.len().div_ceil(2 * rayon::current_num_threads());
        self.size = size.next_multiple_of(CHUNK).clamp(CHUNK, LARGEST);
        let task = network.sizes.task;
        self.is_whole = owners.len() * task.max_response_tokens <= remembered;
        self.prompts.clear();
        self.prompts.extend_from_slice(prompts);
        let parts = parts(prompts.len(), owners, self.size);
        self.tries.resize_with(parts.len(), Trie::default);
        let tries = self.tries.par_iter_mut().with_max_len(1);
        tries.zip(&parts).for_each(|(trie, responses)| {
            trie.grow(network, prompts, owners, responses, &source, self.is_whole);
        });
        self.collect(task.vocabulary, owners);
    }

    /// Runs for responses that are there.
    pub fn score(
        &mut self,
        network: &Network<f32>,
        prompts: &[Prompt],
        responses: &Responses,
        remembered: usize,
    ) -> Result<(), Diagnostics> {
        check(&network.sizes, prompts, responses)?;
        let source = |response| TokenSource::Given(responses.response(response));
        self.run(network, prompts, responses.prompts(), source, remembered);
        Ok(())
    }

    /// Puts the tokens of all tries, and what the network says of them, in the order of the batch.
    fn collect(&mut self, vocabulary: usize, owners: &[usize]) {
        let mut lengths = vec![0; owners.len()];
        let choices = self.tries.iter().flat_map(|trie| &trie.choices);
        choices.for_each(|choice| lengths[choice.response] += 1);
        let Samples { responses, scores } = &mut self.samples;
        responses.reset(owners, &lengths);
        let count = responses.tokens.len();
        scores.logp.resize(count, 0.0);
        scores.entropy.resize(count, 0.0);
        for trie in &self.tries {
            for choice in &trie.choices {
                let position = trie.nodes[choice.node].position;
                let index = responses.range(choice.response).start + position;
                let logp = trie.logp[choice.node * vocabulary + choice.token as usize];
                responses.tokens[index] = choice.token;
                scores.logp[index] = logp as f32;
                scores.entropy[index] = trie.entropy[choice.node] as f32;
            }
        }
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
