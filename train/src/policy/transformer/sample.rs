//! Responses from a transformer, token by token.

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad_guard};

use super::Transformer;
use super::decoder::Cache;
use crate::policy::{Responses, Samples};
use crate::task::Prompt;
use crate::text::Text;
use crate::torch::{self, Result, indices, to_vec};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::random::{RandomStream, StreamKey};

/// How responses are drawn. The filters apply in the order of the fields, as in transformers.
#[derive(Clone, Debug)]
pub struct Decoding {
    /// Logits are divided by it; at 0 the most likely token is always taken.
    pub temperature: f64,
    /// Only as many of the most likely tokens are drawn; all at 0.
    pub top_k: usize,
    /// Only the most likely tokens are drawn that have this probability together; all at 1.
    pub top_p: f64,
    /// A response ends with one of these.
    pub stops: Vec<u32>,
    /// Or once its text has one of this model's stop strings.
    pub text: Option<Arc<Text>>,
    /// Or with this many tokens.
    pub max_tokens: usize,
    /// Responses that are drawn at a time, in whole groups (but always one).
    pub rows_per_batch: usize,
}

impl Decoding {
    fn check(&self) -> std::result::Result<(), Diagnostics> {
        let wrong = |what: String, expected: &str| {
            let problem = Diagnostic::error(what);
            Err(problem.expected(expected).into())
        };
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return wrong(
                format!("the temperature is {}", self.temperature),
                "0 or more",
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong(format!("top-p is {}", self.top_p), "above 0, and at most 1");
        }
        if self.max_tokens == 0 {
            return wrong("a response may have no tokens".to_string(), "1 or more");
        }
        Ok(())
    }

    /// Whether a response has ended with its last token.
    fn is_end(&self, response: &[u32]) -> std::result::Result<bool, Diagnostics> {
        let is_stop = |token| self.stops.contains(token);
        match &self.text {
            _ if response.len() >= self.max_tokens || response.last().is_some_and(is_stop) => {
                Ok(true)
            }
            Some(text) => text.has_stop(response),
            None => Ok(false),
        }
    }

    /// Logits `[rows, vocabulary]` as they are drawn from: -inf where a token is left out. At a temperature above 0.
    pub(super) fn warped(&self, logits: &Tensor) -> Result<Tensor> {
        let mut logits = logits.f_div_scalar(self.temperature)?;
        let (_, vocabulary) = logits.size2()?;
        if self.top_k > 0 && (self.top_k as i64) < vocabulary {
            let (largest, _) = logits.f_topk(self.top_k as i64, -1, true, true)?;
            let least = largest.f_narrow(1, self.top_k as i64 - 1, 1)?;
            logits = logits.f_masked_fill(&logits.f_less_tensor(&least)?, f64::NEG_INFINITY)?;
        }
        if self.top_p < 1.0 {
            let (sorted, order) = logits.f_sort_stable(true, -1, false)?;
            let probabilities = sorted.f_softmax(-1, Kind::Float)?;
            let below = torch::cumsum(&probabilities, Kind::Float)?;
            let is_out = below.f_less_equal(1.0 - self.top_p)?;
            // The most likely one stays.
            let _ = is_out.f_narrow(1, vocabulary - 1, 1)?.f_fill_(0)?;
            let is_out = is_out.f_scatter(1, &order, &is_out)?;
            logits = logits.f_masked_fill(&is_out, f64::NEG_INFINITY)?;
        }
        Ok(logits)
    }

    /// A token for each row of logits, by one number in [0, 1) each; the vocabulary's size where logits are NaN or infinite.
    fn draw(&self, logits: &Tensor, uniforms: &[f64]) -> Result<Vec<i64>> {
        let tokens = if self.temperature == 0.0 {
            let (largest, token) = logits.f_max_dim(-1, false)?;
            let is_wrong = largest.f_isfinite()?.f_logical_not()?;
            token.f_masked_fill(&is_wrong, logits.size()[1])?
        } else {
            let probabilities = self.warped(logits)?.f_softmax(-1, Kind::Double)?;
            let sums = torch::cumsum(&probabilities, Kind::Double)?;
            let total = sums.f_narrow(1, sums.size()[1] - 1, 1)?;
            let uniforms = Tensor::f_from_slice(uniforms)?.f_to_device(logits.device())?;
            // Below the total whatever the rounding, as the numbers are multiples of 2^-53: so the first sum above it is
            // there, and is that of a token with a probability.
            let level = uniforms.f_unsqueeze(1)?.f_mul(&total)?;
            level
                .f_searchsorted(&sums, false, true, "right", None::<Tensor>)?
                .f_squeeze_dim(1)?
        };
        to_vec(&tokens)
    }
}

impl Transformer {
    /// `group_size` responses to each prompt; the tokens of response i of the batch are drawn with stream i of the key,
    /// one number each. Log-probs and entropies are those of [`Transformer::score`], at temperature 1 and without filters.
    ///
    /// On the CPU the same prompts, weights and settings give the same responses; other `rows_per_batch` round other
    /// numbers, which moves a token now and then.
    ///
    /// # Errors
    /// [`Diagnostics`] for settings out of their bounds, as [`Transformer::score`], and if the logits are NaN.
    pub fn sample(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        decoding: &Decoding,
        key: StreamKey,
    ) -> std::result::Result<Samples, Diagnostics> {
        decoding.check()?;
        self.check(prompts, &Responses::new())?;
        let mut responses = Responses::new();
        let prompts_at_once = (decoding.rows_per_batch / group_size.max(1)).max(1);
        for (chunk, some) in prompts.chunks(prompts_at_once).enumerate() {
            let before = responses.len();
            let count = some.len() * group_size;
            let streams = (before..before + count).map(|index| key.stream(index as u64));
            let drawn = self.draw(some, group_size, decoding, streams.collect())?;
            let owners = (0..some.len()).flat_map(|own| std::iter::repeat_n(own, group_size));
            for (own, tokens) in owners.zip(&drawn) {
                responses.push(chunk * prompts_at_once + own, tokens);
            }
        }
        let scores = self.score(prompts, &responses)?;
        Ok(Samples { responses, scores })
    }

    /// The responses to some prompts, one group after the other, each with its stream.
    fn draw(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        decoding: &Decoding,
        mut streams: Vec<RandomStream>,
    ) -> std::result::Result<Vec<Vec<u32>>, Diagnostics> {
        let _guard = no_grad_guard();
        let (mut cache, mut hidden) = self.read_prompts(prompts, group_size, decoding)?;
        let mut responses = vec![Vec::new(); streams.len()];
        // The response of each row, and whether it goes on.
        let mut rows: Vec<usize> = (0..streams.len()).collect();
        let mut goes_on = vec![true; streams.len()];
        while !rows.is_empty() {
            let head = &self.weights.head().tensor;
            let logits = hidden.f_linear(head, None::<Tensor>);
            let logits = logits.map_err(torch::TorchError::from)?;
            let uniforms: Vec<f64> = rows.iter().map(|&row| streams[row].uniform()).collect();
            let mut drawn = decoding.draw(&logits, &uniforms)?;
            for (&response, &token) in rows.iter().zip(&drawn) {
                if token >= self.config.vocabulary {
                    let problem = Diagnostic::error("the policy's logits are NaN or infinite");
                    return Err(problem.with_help("is `lr` too large?").into());
                }
                if goes_on[response] {
                    let tokens = &mut responses[response];
                    tokens.push(token as u32);
                    goes_on[response] = !decoding.is_end(tokens)?;
                }
            }
            let going: Vec<usize> = (0..rows.len()).filter(|&row| goes_on[rows[row]]).collect();
            if going.is_empty() {
                break;
            }
            // Dropping rows copies the cache: once an eighth of them is done it pays.
            if (rows.len() - going.len()) * 8 >= rows.len() {
                let kept: Vec<i64> = going.iter().map(|&row| row as i64).collect();
                cache.select(&indices(&kept, self.compute.device)?)?;
                drawn = going.iter().map(|&row| drawn[row]).collect();
                rows = going.iter().map(|&row| rows[row]).collect();
            }
            let tokens = indices(&drawn, self.compute.device)?.f_unsqueeze(1);
            let tokens = tokens.map_err(torch::TorchError::from)?;
            hidden = cache.forward(&self.config, &self.weights, &tokens)?;
        }
        Ok(responses)
    }

    /// The cache behind the prompts, and the hidden states of their last tokens, a row for each response. Each prompt is
    /// computed once for its group.
    fn read_prompts(
        &self,
        prompts: &[Prompt],
        group_size: usize,
        decoding: &Decoding,
    ) -> Result<(Cache, Tensor)> {
        let lengths = prompts.iter().map(|prompt| prompt.tokens.len());
        let longest = lengths.clone().max().unwrap_or(0);
        let padding: Vec<i64> = lengths.map(|length| (longest - length) as i64).collect();
        let mut tokens = Vec::with_capacity(prompts.len() * longest);
        for prompt in prompts {
            tokens.resize(tokens.len() + longest - prompt.tokens.len(), 0);
            tokens.extend(prompt.tokens.iter().map(|&token| i64::from(token)));
        }
        let tokens = indices(&tokens, self.compute.device)?.f_view([prompts.len() as i64, -1])?;
        // Nothing follows a response's last token.
        let columns = longest + decoding.max_tokens - 1;
        let padding = indices(&padding, self.compute.device)?;
        let mut cache = Cache::new(&self.config, &padding, columns as i64)?;
        let hidden = cache.forward(&self.config, &self.weights, &tokens)?;
        let rows = (0..prompts.len() as i64).flat_map(|row| std::iter::repeat_n(row, group_size));
        let owners: Vec<i64> = rows.collect();
        let owners = indices(&owners, self.compute.device)?;
        cache.select(&owners)?;
        Ok((cache, hidden.f_index_select(0, &owners)?))
    }
}
