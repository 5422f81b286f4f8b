//! Responses behind their prompts as padded tensors, as many at a time as a forward pass may have tokens. A prompt is computed
//! once for all of its responses that are in a micro-batch, where that saves enough.

use std::collections::HashMap;
use std::ops::Range;

use tch::{Device, Kind, Tensor};

use super::decoder::Heads;
use crate::policy::Responses;
use crate::task::Prompt;
use crate::torch::{Result, indices};

/// Rows of one width, padded at their end.
#[derive(Clone, Copy)]
struct Block {
    rows: usize,
    width: usize,
}

impl Block {
    fn tokens(self) -> usize {
        self.rows * self.width
    }
}

/// Some responses and their prompts.
pub(super) struct MicroBatch {
    /// The prompts' rows, then those of the responses, which may stand behind their prompts instead; without each response's
    /// last token, from which nothing is predicted.
    tokens: Vec<i64>,
    /// Where each token stands in its sequence.
    positions: Vec<i64>,
    prompts: Block,
    responses: Block,
    /// The tokens of each prompt, if they are apart.
    lengths: Vec<i64>,
    /// The row of each response's prompt, if they are apart.
    owners: Vec<i64>,
    /// The response tokens, response by response.
    targets: Vec<i64>,
    /// Where in `tokens` the token before each target is.
    places: Vec<i64>,
    /// Where in [`Responses::tokens`] the targets are.
    ranges: Vec<Range<usize>>,
}

/// A micro-batch on a device.
pub(super) struct Inputs {
    /// int64 `[1, tokens]`, the rows one behind the other.
    pub tokens: Tensor,
    /// int64 `[tokens]`.
    pub positions: Tensor,
    /// The targets, int64 `[targets]`.
    pub targets: Tensor,
    /// Where in the tokens the one before each target is: int64 `[targets]`.
    pub places: Tensor,
    pub attention: Attention,
}

/// Causal attention: a token attends to the earlier tokens of its row; response tokens also attend to the prompt.
pub(super) struct Attention {
    prompts: Block,
    responses: Block,
    /// int64 `[responses]`.
    owners: Tensor,
    /// `[responses, 1, tokens of a response, tokens of a prompt and a response]`.
    mask: Tensor,
}

/// How large a micro-batch is.
#[derive(Clone, Copy, Default)]
struct Size {
    prompts: usize,
    responses: usize,
    /// The most tokens of a prompt, of a response without its last one, and of both.
    prompt: usize,
    response: usize,
    both: usize,
}

impl Size {
    /// Each prompt once, with the responses apart. Attention from one to the other costs time too, so each response stands
    /// behind a prompt of its own if that has no more than a third more tokens.
    fn blocks(self) -> [Block; 2] {
        let block = |rows, width| Block { rows, width };
        let shared = [
            block(self.prompts, self.prompt),
            block(self.responses, self.response),
        ];
        let whole = block(self.responses, self.both);
        match 4 * (shared[0].tokens() + shared[1].tokens()) < 3 * whole.tokens() {
            true => shared,
            false => [whole, block(0, 0)],
        }
    }
}

/// All responses that have tokens, those of like lengths and of one prompt together.
pub(super) fn micro_batches(
    prompts: &[Prompt],
    responses: &Responses,
    tokens_per_forward: usize,
) -> impl Iterator<Item = MicroBatch> {
    let prompt = |response: usize| responses.prompts()[response];
    let width = move |response: usize| prompts[prompt(response)].tokens.len();
    let length = |response: usize| responses.range(response).len();
    let mut order: Vec<usize> = (0..responses.len())
        .filter(|&response| length(response) > 0)
        .collect();
    order.sort_by_key(|&response| (width(response) + length(response), prompt(response)));
    // The longest first: memory that does not suffice shows at once.
    std::iter::from_fn(move || {
        let (mut own, mut size) = (HashMap::new(), Size::default());
        let mut start = order.len();
        while let Some(&response) = order[..start].last() {
            let (before, behind) = (width(response), length(response) - 1);
            let larger = Size {
                prompts: size.prompts + usize::from(!own.contains_key(&prompt(response))),
                responses: size.responses + 1,
                prompt: size.prompt.max(before),
                response: size.response.max(behind),
                both: size.both.max(before + behind),
            };
            let tokens = larger.blocks().map(Block::tokens).iter().sum::<usize>();
            if tokens > tokens_per_forward && start < order.len() {
                break;
            }
            let row = own.len();
            own.entry(prompt(response)).or_insert(row);
            size = larger;
            start -= 1;
        }
        let chosen = order.split_off(start);
        let is_any = !chosen.is_empty();
        is_any.then(|| MicroBatch::new(prompts, responses, &chosen, &own, size.blocks()))
    })
}

impl MicroBatch {
    /// Of these responses, with the rows that prompts have if they are apart.
    fn new(
        prompts: &[Prompt],
        responses: &Responses,
        chosen: &[usize],
        own: &HashMap<usize, usize>,
        [shared, single]: [Block; 2],
    ) -> Self {
        let count = shared.tokens() + single.tokens();
        let mut batch = MicroBatch {
            tokens: vec![0; count],
            positions: vec![0; count],
            prompts: shared,
            responses: single,
            lengths: vec![0; shared.rows],
            owners: Vec::new(),
            targets: Vec::new(),
            places: Vec::new(),
            ranges: Vec::new(),
        };
        for (row, &response) in chosen.iter().enumerate() {
            let (prompt, tokens) = (responses.prompts()[response], responses.response(response));
            let before = &prompts[prompt].tokens;
            let owner = if single.rows > 0 { own[&prompt] } else { row };
            let behind = owner * shared.width + before.len();
            let first = match single.rows {
                0 => behind,
                _ => shared.tokens() + row * single.width,
            };
            if single.rows > 0 {
                batch.owners.push(owner as i64);
                batch.lengths[owner] = before.len() as i64;
            }
            batch.put(owner * shared.width, 0, before);
            batch.put(first, before.len(), &tokens[..tokens.len() - 1]);
            let places = [behind - 1].into_iter().chain(first..);
            let places = places.take(tokens.len()).map(|place| place as i64);
            batch.places.extend(places);
            let targets = tokens.iter().map(|&token| i64::from(token));
            batch.targets.extend(targets);
            batch.ranges.push(responses.range(response));
        }
        batch
    }

    /// Writes the tokens of a row, which begin at a position.
    fn put(&mut self, first: usize, position: usize, tokens: &[u32]) {
        for (index, &token) in tokens.iter().enumerate() {
            self.tokens[first + index] = i64::from(token);
            self.positions[first + index] = (position + index) as i64;
        }
    }

    pub(super) fn inputs(&self, device: Device) -> Result<Inputs> {
        let owners = indices(&self.owners, device)?;
        let options = (Kind::Int64, device);
        let lengths = indices(&self.lengths, device)?.f_unsqueeze(1)?;
        let of_prompts = Tensor::f_arange(self.prompts.width as i64, options)?;
        let of_prompts = of_prompts
            .f_lt_tensor(&lengths)?
            .f_index_select(0, &owners)?;
        let columns = Tensor::f_arange(self.responses.width as i64, options)?;
        let past = columns.f_less_equal_tensor(&columns.f_unsqueeze(1)?)?;
        let shape = |width: usize| {
            let Block { rows, width: own } = self.responses;
            [rows, 1, own, width].map(|size| size as i64)
        };
        let of_prompts = of_prompts.f_unsqueeze(1)?.f_unsqueeze(1)?;
        let of_prompts = of_prompts.f_expand(shape(self.prompts.width), false)?;
        let past = past.f_expand(shape(self.responses.width), false)?;
        Ok(Inputs {
            tokens: indices(&self.tokens, device)?.f_unsqueeze(0)?,
            positions: indices(&self.positions, device)?,
            targets: indices(&self.targets, device)?,
            places: indices(&self.places, device)?,
            attention: Attention {
                prompts: self.prompts,
                responses: self.responses,
                owners,
                mask: Tensor::f_cat(&[of_prompts, past], 3)?,
            },
        })
    }

    /// The targets' values of an array with one value for each token of the responses.
    pub(super) fn read(&self, all: &[f64]) -> Vec<f32> {
        let own = self.ranges.iter().flat_map(|range| &all[range.clone()]);
        own.map(|&value| value as f32).collect()
    }

    /// Writes the targets' values to where they belong.
    pub(super) fn write(&self, values: &[f32], all: &mut [f32]) {
        let mut rest = values;
        for range in &self.ranges {
            let (own, behind) = rest.split_at(range.len());
            all[range.clone()].copy_from_slice(own);
            rest = behind;
        }
    }
}

impl Attention {
    /// The attention of all tokens, `[1, heads, tokens, head_dim]` as the heads have them.
    pub(super) fn attend(&self, heads: &Heads) -> Result<Tensor> {
        let blocks = [self.prompts, self.responses];
        let counts = blocks.map(|block| block.tokens() as i64);
        // Of each block [rows, heads, width, head_dim].
        let split = |x: &Tensor| -> Result<[Tensor; 2]> {
            let parts = x.f_split_with_sizes(counts, 2)?;
            let by_row = |index: usize| {
                let (_, heads, _, head_dim) = x.size4()?;
                let Block { rows, width } = blocks[index];
                let shape = [heads, rows as i64, width as i64, head_dim];
                parts[index].f_reshape(shape)?.f_transpose(0, 1)
            };
            Ok([by_row(0)?, by_row(1)?])
        };
        let [queries, own_queries] = split(&heads.queries)?;
        let [keys, own_keys] = split(&heads.keys)?;
        let [values, own_values] = split(&heads.values)?;
        let behind = |shared: &Tensor, own: Tensor| {
            let shared = shared.f_index_select(0, &self.owners)?;
            Tensor::f_cat(&[shared, own], 2)
        };
        let of_responses = Heads {
            queries: own_queries,
            keys: behind(&keys, own_keys)?,
            values: behind(&values, own_values)?,
        };
        let of_prompts = Heads {
            queries,
            keys,
            values,
        };
        let flat = |x: Tensor| x.f_transpose(0, 1)?.f_flatten(1, 2);
        let mut seen = vec![flat(of_prompts.attend(None)?)?];
        if self.responses.tokens() > 0 {
            seen.push(flat(of_responses.attend(Some(&self.mask))?)?);
        }
        Ok(Tensor::f_cat(&seen, 1)?.f_unsqueeze(0)?)
    }
}
