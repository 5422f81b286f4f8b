//! Prompts and responses as one list of tokens per forward pass. A prompt is computed once for all of its responses there.

use std::cmp::Reverse;

use tch::{Device, Kind, Tensor};

use super::decoder::{Heads, attention};
use crate::policy::Responses;
use crate::task::Prompt;
use crate::torch::{Result, indices};

/// Rows of one width, padded at their end.
#[derive(Clone, Copy, Default)]
struct Block {
    rows: usize,
    width: usize,
}

impl Block {
    fn tokens(self) -> usize {
        self.rows * self.width
    }
}

/// The responses of one forward pass.
#[derive(Default)]
pub(super) struct Plan {
    /// Indices of the prompts, each once.
    prompts: Vec<usize>,
    /// Index of each response, and of its prompt in `prompts`.
    responses: Vec<(usize, usize)>,
    /// The sizes of the prompts, and of the responses without their last token, from which nothing is predicted.
    blocks: [Block; 2],
}

impl Plan {
    /// The place of a prompt, and the sizes with one more response to it.
    fn grown(&self, prompt: usize, [before, own]: [usize; 2]) -> (usize, [Block; 2]) {
        let place = self.prompts.iter().position(|&other| other == prompt);
        let place = place.unwrap_or(self.prompts.len());
        let [prompts, responses] = self.blocks;
        let prompts = Block {
            rows: prompts.rows.max(place + 1),
            width: prompts.width.max(before),
        };
        let responses = Block {
            rows: responses.rows + 1,
            width: responses.width.max(own),
        };
        (place, [prompts, responses])
    }

    pub(super) fn inputs(
        &self,
        prompts: &[Prompt],
        responses: &Responses,
        device: Device,
    ) -> Result<Inputs> {
        let prompts = self.prompts.iter().map(|&prompt| &prompts[prompt]);
        let rows = self.responses.iter();
        let rows = rows.map(|&(response, prompt)| (prompt, responses.response(response)));
        Inputs::new(
            &prompts.collect::<Vec<_>>(),
            &rows.collect::<Vec<_>>(),
            device,
        )
    }

    /// The values that belong to the targets, of those of all tokens.
    pub(super) fn read(&self, responses: &Responses, all: &[f64]) -> Vec<f32> {
        let ranges = self
            .responses
            .iter()
            .map(|&(index, _)| responses.range(index));
        ranges
            .flat_map(|range| &all[range])
            .map(|&value| value as f32)
            .collect()
    }

    /// Writes the targets' values to their places among those of all tokens.
    pub(super) fn write(&self, responses: &Responses, mut values: &[f32], all: &mut [f32]) {
        for &(index, _) in &self.responses {
            let range = responses.range(index);
            let own = values.split_off(..range.len()).unwrap_or_default();
            all[range].copy_from_slice(own);
        }
    }
}

/// Divides the responses that have tokens among forward passes of at most `limit` tokens, padding included, but at least
/// one response. Responses of similar length and with the same prompt go together.
pub(super) fn plans(prompts: &[Prompt], responses: &Responses, limit: usize) -> Vec<Plan> {
    let prompt = |response: usize| responses.prompts()[response];
    let lengths = |response: usize| {
        let own = responses.range(response).len().saturating_sub(1);
        [prompts[prompt(response)].tokens.len(), own]
    };
    let has_tokens = |&response: &usize| !responses.range(response).is_empty();
    let mut order: Vec<usize> = (0..responses.len()).filter(has_tokens).collect();
    // The longest first: if memory does not suffice, that shows at once.
    let length = |response| lengths(response).iter().sum::<usize>();
    order.sort_by_key(|&response| (Reverse(length(response)), prompt(response)));
    let (mut plans, mut plan) = (Vec::new(), Plan::default());
    for response in order {
        let prompt = prompt(response);
        let (mut place, mut blocks) = plan.grown(prompt, lengths(response));
        let tokens = blocks.map(Block::tokens).iter().sum::<usize>();
        if tokens > limit && !plan.responses.is_empty() {
            plans.push(std::mem::take(&mut plan));
            (place, blocks) = plan.grown(prompt, lengths(response));
        }
        if place == plan.prompts.len() {
            plan.prompts.push(prompt);
        }
        plan.responses.push((response, place));
        plan.blocks = blocks;
    }
    plans.push(plan);
    plans.retain(|plan| !plan.responses.is_empty());
    plans
}

/// The tokens of a forward pass: the rows of the prompts, then those of the responses.
pub(super) struct Inputs {
    /// int64 `[tokens]`.
    pub tokens: Tensor,
    /// int64 `[tokens]`.
    pub positions: Tensor,
    /// The response tokens, response by response: int64 `[targets]`.
    pub targets: Tensor,
    /// The place in `tokens` of the token before each target: int64 `[targets]`.
    pub places: Tensor,
    pub attention: Attention,
}

impl Inputs {
    /// Responses with the indices of their prompts.
    pub(super) fn new(
        prompts: &[&Prompt],
        responses: &[(usize, &[u32])],
        device: Device,
    ) -> Result<Inputs> {
        let widest = prompts.iter().map(|prompt| prompt.tokens.len()).max();
        let longest = responses.iter().map(|(_, tokens)| tokens.len() - 1).max();
        let block = |rows, width: Option<usize>| Block {
            rows,
            width: width.unwrap_or(0),
        };
        let blocks = [
            block(prompts.len(), widest),
            block(responses.len(), longest),
        ];
        let [all_prompts, all_responses] = blocks;
        let count = all_prompts.tokens() + all_responses.tokens();
        let (mut tokens, mut positions) = (vec![0; count], vec![0; count]);
        let mut put = |first: usize, position: usize, own: &[u32]| {
            for (index, &token) in own.iter().enumerate() {
                tokens[first + index] = i64::from(token);
                positions[first + index] = (position + index) as i64;
            }
        };
        for (row, prompt) in prompts.iter().enumerate() {
            put(row * all_prompts.width, 0, &prompt.tokens);
        }
        let (mut places, mut targets) = (Vec::new(), Vec::new());
        let (mut owners, mut lengths) = (Vec::new(), Vec::new());
        for (row, &(prompt, own)) in responses.iter().enumerate() {
            let length = prompts[prompt].tokens.len();
            let first = all_prompts.tokens() + row * all_responses.width;
            put(first, length, &own[..own.len() - 1]);
            places.push((prompt * all_prompts.width + length - 1) as i64);
            places.extend((first..).take(own.len() - 1).map(|place| place as i64));
            targets.extend(own.iter().map(|&token| i64::from(token)));
            owners.push(prompt as i64);
            lengths.push(length as i64);
        }
        let lengths = indices(&lengths, device)?;
        Ok(Inputs {
            tokens: indices(&tokens, device)?,
            positions: indices(&positions, device)?,
            targets: indices(&targets, device)?,
            places: indices(&places, device)?,
            attention: Attention {
                blocks,
                owners: indices(&owners, device)?,
                mask: mask(blocks, &lengths)?,
                lengths,
            },
        })
    }
}

/// Causal attention: a token attends to earlier tokens of its row; response tokens also attend to the prompt.
pub(super) struct Attention {
    blocks: [Block; 2],
    /// The row of each response's prompt: int64 `[responses]`.
    pub owners: Tensor,
    /// The length of each response's prompt: int64 `[responses]`.
    pub lengths: Tensor,
    /// `[responses, 1, tokens of a response, tokens of a prompt and a response]`.
    mask: Tensor,
}

/// Where tokens of the responses see the tokens of their prompts, which have these lengths, and of their own rows.
fn mask([prompts, responses]: [Block; 2], lengths: &Tensor) -> Result<Tensor> {
    let range = |width: usize| Tensor::f_arange(width as i64, (Kind::Int64, lengths.device()));
    let prompt = range(prompts.width)?.f_less_tensor(&lengths.f_view([-1, 1, 1, 1])?)?;
    let own = range(responses.width)?;
    let past = own.f_less_equal_tensor(&own.f_unsqueeze(1)?)?;
    let expanded = |seen: Tensor, columns: usize| {
        let shape = [responses.rows, 1, responses.width, columns];
        seen.f_expand(shape.map(|size| size as i64), false)
    };
    let seen = [
        expanded(prompt, prompts.width)?,
        expanded(past, responses.width)?,
    ];
    Ok(Tensor::f_cat(&seen, 3)?)
}

impl Attention {
    /// A list `[tokens, heads, head_dim]` as the rows of the prompts and of the responses, `[rows, heads, width, head_dim]`.
    fn rows(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let (_, heads, head_dim) = x.size3()?;
        let parts = x.f_split_with_sizes(self.blocks.map(|block| block.tokens() as i64), 0)?;
        let rows = |index: usize| {
            let Block { rows, width } = self.blocks[index];
            let shape = [rows as i64, width as i64, heads, head_dim];
            parts[index].f_view(shape)?.f_transpose(1, 2)
        };
        Ok([rows(0)?, rows(1)?])
    }

    /// A list of the prompts' tokens, as a row `[heads, width, head_dim]` per response.
    pub(super) fn of_prompts(&self, x: &Tensor) -> Result<Tensor> {
        let [prompts, _] = self.rows(x)?;
        Ok(prompts.f_index_select(0, &self.owners)?)
    }

    pub(super) fn attend(&self, heads: &Heads) -> Result<Tensor> {
        let [queries, own_queries] = self.rows(&heads.queries)?;
        let [keys, own_keys] = self.rows(&heads.keys)?;
        let [values, own_values] = self.rows(&heads.values)?;
        let list = |rows: Tensor| rows.f_transpose(1, 2)?.f_flatten(2, 3)?.f_flatten(0, 1);
        let mut seen = vec![list(attention(&queries, &keys, &values, None)?)?];
        if self.blocks[1].tokens() > 0 {
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
