//! Puts prompts and responses into one list of tokens per forward pass, so that a prompt is computed once for all its responses.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use tch::{Device, Kind, Tensor};

use super::decoder::{Tokens, attention};
use crate::policy::Responses;
use crate::torch::{TorchResult, indices};

/// Divides the responses that have tokens into forward passes. A pass has at most `limit` tokens, including padding; only a pass
/// with a single response may have more. The responses are sorted by their length, including the prompt, and responses of equal
/// length by their prompt.
pub(super) fn passes(responses: &Responses, limit: usize) -> Vec<Vec<usize>> {
    let prompt = |response: usize| responses.owners()[response];
    // The last token of a response is not an input, because no token is predicted from it.
    let widths = |response: usize| {
        let own = responses.range(response).len().saturating_sub(1);
        let prompt = &responses.prompts()[prompt(response)];
        [prompt.tokens.len(), own]
    };
    let has_tokens = |&response: &usize| !responses.range(response).is_empty();
    let mut order: Vec<usize> = (0..responses.len()).filter(has_tokens).collect();
    // The longest responses come first, so that a lack of memory is noticed in the first pass.
    let length = |response| widths(response).iter().sum::<usize>();
    order.sort_by_key(|&response| (Reverse(length(response)), prompt(response)));
    let mut passes: Vec<Vec<usize>> = Vec::new();
    // The prompts of the last pass, and the widths of its widest prompt and its widest response.
    let (mut own, mut widest) = (BTreeSet::new(), [0; 2]);
    for response in order {
        let is_new = !own.contains(&prompt(response));
        let grown = [0, 1].map(|block| widths(response)[block].max(widest[block]));
        let rows = passes.last().map_or(0, Vec::len) + 1;
        let tokens = (own.len() + usize::from(is_new)) * grown[0] + rows * grown[1];
        match passes.last_mut().filter(|_| tokens <= limit) {
            Some(pass) => {
                pass.push(response);
                widest = grown;
            }
            None => {
                passes.push(vec![response]);
                (own, widest) = (BTreeSet::new(), widths(response));
            }
        }
        own.insert(prompt(response));
    }
    passes
}

/// The tokens of a forward pass: the rows of the prompts, followed by the rows of the responses. Rows are padded at the end.
pub(super) struct ModelInputs {
    /// The token list, with the index of the token before each target.
    pub tokens: Tokens,
    /// The response tokens, response by response; int64 `[targets]`.
    pub targets: Tensor,
    /// The length of each response's prompt; int64 `[responses]`.
    pub lengths: Tensor,
    /// The index of the row of each response's prompt; int64 `[responses]`.
    owners: Tensor,
    /// The number of rows and the width, for the prompts and for the responses.
    blocks: [(i64, i64); 2],
    /// The attention mask, `[responses, 1, tokens of a response, tokens of a prompt and a response]`.
    mask: Tensor,
}

impl ModelInputs {
    /// Returns the inputs for the responses at these indices.
    pub(super) fn new(
        responses: &Responses,
        pass: &[usize],
        device: Device,
    ) -> TorchResult<ModelInputs> {
        let (mut own, mut owners): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for &response in pass {
            let prompt = responses.owners()[response];
            let known = own.iter().position(|&other| other == prompt);
            owners.push(known.unwrap_or(own.len()));
            own.extend(known.is_none().then_some(prompt));
        }
        let prompts = responses.prompts();
        let own: Vec<&[u32]> = own.iter().map(|&own| &*prompts[own].tokens).collect();
        let all = || pass.iter().map(|&response| responses.response(response));
        let width = own.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        let longest = all().map(|tokens| tokens.len() - 1).max().unwrap_or(0);
        let start = own.len() * width;
        let count = start + pass.len() * longest;
        let (mut tokens, mut positions) = (vec![0; count], vec![0; count]);
        let mut put = |first: usize, position: usize, own: &[u32]| {
            for (index, &token) in own.iter().enumerate() {
                tokens[first + index] = i64::from(token);
                positions[first + index] = (position + index) as i64;
            }
        };
        for (row, prompt) in own.iter().enumerate() {
            put(row * width, 0, prompt);
        }
        let (mut places, mut targets, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (row, (&owner, tokens)) in owners.iter().zip(all()).enumerate() {
            let (length, first) = (own[owner].len(), start + row * longest);
            put(first, length, &tokens[..tokens.len() - 1]);
            places.push((owner * width + length - 1) as i64);
            places.extend((first..).take(tokens.len() - 1).map(|place| place as i64));
            targets.extend(tokens.iter().map(|&token| i64::from(token)));
            lengths.push(length as i64);
        }
        let size = |size: usize| size as i64;
        let blocks = [
            (size(own.len()), size(width)),
            (size(pass.len()), size(longest)),
        ];
        let owners: Vec<i64> = owners.into_iter().map(size).collect();
        let lengths = indices(&lengths, device)?;
        Ok(ModelInputs {
            tokens: Tokens {
                ids: indices(&tokens, device)?,
                positions: indices(&positions, device)?,
                places: indices(&places, device)?,
            },
            targets: indices(&targets, device)?,
            owners: indices(&owners, device)?,
            mask: mask(blocks, &lengths)?,
            blocks,
            lengths,
        })
    }

    /// Splits a list `[tokens, heads, head_dim]` into the rows of the prompts and the rows of the responses, `[rows, heads,
    /// width, head_dim]`.
    fn rows(&self, x: &Tensor) -> TorchResult<[Tensor; 2]> {
        let (_, heads, head_dim) = x.size3()?;
        let parts = x.f_split_with_sizes(self.blocks.map(|(rows, width)| rows * width), 0)?;
        let rows = |index: usize| {
            let (rows, width) = self.blocks[index];
            let rows = parts[index].f_view([rows, width, heads, head_dim])?;
            rows.f_transpose(1, 2)
        };
        Ok([rows(0)?, rows(1)?])
    }

    /// Returns, for each response, the row `[heads, width, head_dim]` of the response's prompt in the list `x`.
    pub(super) fn of_prompts(&self, x: &Tensor) -> TorchResult<Tensor> {
        let [prompts, _] = self.rows(x)?;
        Ok(prompts.f_index_select(0, &self.owners)?)
    }

    /// Computes causal attention: a token attends to itself and to earlier tokens of its row; response tokens also attend to the
    /// prompt.
    pub(super) fn attend(&self, [queries, keys, values]: &[Tensor; 3]) -> TorchResult<Tensor> {
        let [queries, own_queries] = self.rows(queries)?;
        let [keys, own_keys] = self.rows(keys)?;
        let [values, own_values] = self.rows(values)?;
        let list = |rows: Tensor| rows.f_transpose(1, 2)?.f_flatten(2, 3)?.f_flatten(0, 1);
        let mut seen = vec![list(attention(&queries, &keys, &values, None)?)?];
        if own_queries.numel() > 0 {
            let joined = |prompts: &Tensor, own: &Tensor| {
                let prompts = prompts.f_index_select(0, &self.owners)?;
                Tensor::f_cat(&[&prompts, own], 2)
            };
            let (keys, values) = (joined(&keys, &own_keys)?, joined(&values, &own_values)?);
            let own = attention(&own_queries, &keys, &values, Some(&self.mask))?;
            seen.push(list(own)?);
        }
        Ok(Tensor::f_cat(&seen, 0)?)
    }
}

/// Returns the causal mask of the responses' tokens, which attend to their prompts (of these lengths), to themselves and to
/// earlier tokens.
fn mask([(_, width), (rows, longest)]: [(i64, i64); 2], lengths: &Tensor) -> TorchResult<Tensor> {
    let range = |width: i64| Tensor::f_arange(width, (Kind::Int64, lengths.device()));
    let prompt = range(width)?.f_less_tensor(&lengths.f_view([-1, 1, 1, 1])?)?;
    let own = range(longest)?;
    let past = own.f_less_equal_tensor(&own.f_unsqueeze(1)?)?;
    let prompt = prompt.f_expand([rows, 1, longest, width], false)?;
    let past = past.f_expand([rows, 1, longest, longest], false)?;
    Ok(Tensor::f_cat(&[prompt, past], 3)?)
}
