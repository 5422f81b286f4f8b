//! Responses with their prompts as padded tensors, as many at a time as a forward pass may have tokens.

use std::ops::Range;

use tch::{Device, Tensor};

use crate::torch::{Result, indices};
use crate::train::policy::Responses;
use crate::train::task::Prompt;

/// Some responses behind their prompts, one a row, padded at the end.
pub(super) struct MicroBatch {
    /// Row by row; without each response's last token, from which nothing is predicted.
    tokens: Vec<i64>,
    rows: usize,
    /// The response tokens, response by response.
    targets: Vec<i64>,
    /// Where in `tokens` the token before each target is.
    places: Vec<i64>,
    /// Where in [`Responses::tokens`] the targets are.
    ranges: Vec<Range<usize>>,
}

/// All responses that have tokens, those of like lengths together.
pub(super) fn micro_batches(
    prompts: &[Prompt],
    responses: &Responses,
    tokens_per_forward: usize,
) -> impl Iterator<Item = MicroBatch> {
    let length = |&response: &usize| {
        let prompt = &prompts[responses.prompts()[response]];
        prompt.tokens.len() + responses.range(response).len() - 1
    };
    let mut order: Vec<usize> = (0..responses.len())
        .filter(|&response| !responses.range(response).is_empty())
        .collect();
    order.sort_by_key(length);
    let mut end = order.len();
    // The longest first: memory that does not suffice shows at once.
    std::iter::from_fn(move || {
        let width = length(order[..end].last()?);
        let rows = (tokens_per_forward / width).clamp(1, end);
        let batch = MicroBatch::new(prompts, responses, &order[end - rows..end], width);
        end -= rows;
        Some(batch)
    })
}

impl MicroBatch {
    fn new(prompts: &[Prompt], responses: &Responses, chosen: &[usize], width: usize) -> Self {
        let mut batch = MicroBatch {
            tokens: vec![0; chosen.len() * width],
            rows: chosen.len(),
            targets: Vec::new(),
            places: Vec::new(),
            ranges: Vec::new(),
        };
        for (row, &response) in chosen.iter().enumerate() {
            let prompt = &prompts[responses.prompts()[response]].tokens;
            let response_tokens = responses.response(response);
            let all = prompt
                .iter()
                .chain(response_tokens)
                .map(|&token| i64::from(token));
            let own = &mut batch.tokens[row * width..][..width];
            own.iter_mut()
                .zip(all)
                .for_each(|(place, token)| *place = token);
            let first = row * width + prompt.len() - 1;
            let places = first..first + response_tokens.len();
            batch.places.extend(places.map(|place| place as i64));
            batch
                .targets
                .extend(response_tokens.iter().map(|&token| i64::from(token)));
            batch.ranges.push(responses.range(response));
        }
        batch
    }

    /// The tokens, int64 `[rows, tokens]`; the targets; and where in the tokens of all rows, as one, the token before each
    /// target is: int64 `[targets]`.
    pub(super) fn tensors(&self, device: Device) -> Result<[Tensor; 3]> {
        let tokens = indices(&self.tokens, device)?.f_view([self.rows as i64, -1])?;
        let targets = indices(&self.targets, device)?;
        Ok([tokens, targets, indices(&self.places, device)?])
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
