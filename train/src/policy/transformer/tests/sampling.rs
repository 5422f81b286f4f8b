//! Checks greedy tokens, filtered distributions and random draws.

use std::sync::Arc;

use tch::{Device, Kind, no_grad_guard};

use super::*;
use crate::policy::Samples;
use crate::random::{Purpose, StreamKey};
use crate::text::Text;
use crate::torch::to_vec;

/// Returns a configuration for greedy sampling of responses that end only at the length limit.
fn greedy(max_new_tokens: usize) -> TransformerConfig {
    TransformerConfig {
        max_new_tokens,
        ..options(64).config
    }
}

/// Returns a configuration that draws a single token from the most likely tokens.
fn likely(rows_per_batch: usize) -> TransformerConfig {
    TransformerConfig {
        temperature: 0.7,
        top_k: 20,
        top_p: 0.8,
        rows_per_batch,
        ..greedy(1)
    }
}

fn sample(
    transformer: &mut Transformer,
    prompts: &[Prompt],
    group_size: usize,
    config: &TransformerConfig,
    key: StreamKey,
) -> Result<Samples> {
    transformer.options.config = config.clone();
    transformer.sample(prompts, group_size, key)
}

const KEY: StreamKey = StreamKey::new(1, Purpose::Responses, 2);

#[test]
fn greedy_tokens_are_those_of_generate() {
    for model in MODELS {
        let (expected, responses) = given(model);
        let prompts = responses.prompts();
        let mut transformer = load(&folder(model), 1 << 20).unwrap();
        let tokens = |name| -> Vec<Vec<u32>> {
            let rows = expected.integers(name).into_iter();
            rows.map(|row| row.into_iter().map(|token| token as u32).collect())
                .collect()
        };
        let whole = tokens("greedy");
        // The prompts are sampled in one batch, one by one, and as groups, because the size of the batch must not matter.
        for (group_size, rows_per_batch) in [(1, 3), (1, 1), (5, 64)] {
            let config = TransformerConfig {
                rows_per_batch,
                ..greedy(48)
            };
            let samples = sample(&mut transformer, prompts, group_size, &config, KEY).unwrap();
            assert_eq!(samples.responses.len(), 3 * group_size);
            for index in 0..samples.responses.len() {
                let found = samples.responses.response(index);
                assert_eq!(found, whole[index / group_size], "{model} {group_size}");
            }
            let scores = transformer.score(&samples.responses).unwrap();
            assert_eq!(samples.scores, scores);
        }
        // Rows end at different times, which must not affect the rows that continue.
        let stop = whole[0][5];
        transformer.set_stops(vec![stop]);
        let samples = sample(&mut transformer, prompts, 1, &greedy(48), KEY).unwrap();
        assert_eq!(samples.responses.response(0).last(), Some(&stop), "{model}");
        for (index, padded) in tokens("greedy_stopped").iter().enumerate() {
            let end = padded.iter().position(|token| *token == stop);
            let own = &padded[..end.map_or(padded.len(), |end| end + 1)];
            let found = samples.responses.response(index);
            assert_eq!(found, own, "{model}, response {index}");
        }
    }
}

/// The text of a row before its stop string does not depend on the string, and the end of a row does not affect other rows.
#[test]
fn a_response_ends_once_its_text_has_a_stop_string() {
    for model in MODELS {
        let prompts = Expected::of(model).prompts();
        let mut transformer = load(&folder(model), 1 << 20).unwrap();
        let vocabulary = transformer.config.vocab_size as u32;
        let text = Text::load(&folder(model), vocabulary).unwrap();
        let mut sample = |text| {
            transformer.options.text = text;
            let samples = sample(&mut transformer, &prompts, 1, &greedy(48), KEY).unwrap();
            let scores = transformer.score(&samples.responses).unwrap();
            assert_eq!(samples.scores, scores);
            samples.responses
        };
        let whole = sample(None);
        // The stop string spans several tokens of the first response.
        let [before, after] = [9, 13].map(|end| text.decode(&whole.response(0)[..end]).unwrap());
        let stop: String = after.chars().skip(before.chars().count()).collect();
        assert!(stop.chars().count() > 1, "{stop:?}");
        let text = Arc::new(text.with_stops(std::slice::from_ref(&stop)));
        let stopped = sample(Some(text.clone()));
        assert!(stopped.response(0).len() <= 13, "{model}");
        for index in 0..whole.len() {
            let (own, all) = (stopped.response(index), whole.response(index));
            assert_eq!(own, &all[..own.len()], "{model}");
            let has_stop = |tokens: &[u32]| text.decode(tokens).unwrap().contains(&stop);
            assert_eq!(has_stop(own), own.len() < 48 || has_stop(all), "{model}");
            assert!(!has_stop(&own[..own.len() - 1]), "{model}");
        }
    }
}

#[test]
fn distributions_are_warped_as_by_transformers() {
    let mut options = options(64);
    options.config = likely(1);
    for model in MODELS {
        let (expected, responses) = given(model);
        let vocabulary = load(&folder(model), 64).unwrap().config.vocab_size as usize;
        let logits = expected.floats("logits");
        let length = responses.response(0).len();
        // These are the logits of row 0 after the last token of the prompt, and after each token of the response.
        let first = expected.integers("prompt_ids")[0].len() - 1;
        assert!(first + length < expected.integers("input_ids")[0].len());
        let own = &logits[first * vocabulary..][..(length + 1) * vocabulary];
        let own = torch::floats(own, Device::Cpu).unwrap();
        let own = own.view([-1, vocabulary as i64]);
        let warped = options.warped(&own).unwrap().log_softmax(-1, Kind::Float);
        let found = to_vec::<f32>(&warped).unwrap();
        let expected = &expected.floats("warped_logp")[..found.len()];
        let is_in = |logp: &f32| *logp > f32::NEG_INFINITY;
        let kept = |all: &[f32]| all.iter().map(is_in).collect::<Vec<bool>>();
        assert_eq!(kept(&found), kept(expected), "{model}");
        assert!(kept(&found).contains(&true) && kept(&found).contains(&false));
        let finite = |all: &[f32]| all.iter().copied().filter(is_in).collect::<Vec<f32>>();
        assert_close(&finite(&found), &finite(expected), 1e-5, model);
    }
}

#[test]
fn tokens_are_drawn_as_often_as_they_are_likely() {
    let expected = Expected::of("qwen3");
    let prompts = &expected.prompts()[..1];
    let mut transformer = load(&folder("qwen3"), 1 << 16).unwrap();
    const DRAWS: usize = 1 << 12;
    let config = likely(DRAWS);
    let mut samples = |key| sample(&mut transformer, prompts, DRAWS, &config, key).unwrap();
    let first = samples(KEY);
    assert_eq!(first, samples(KEY));
    assert_ne!(first, samples(StreamKey { step: 3, ..KEY }));
    let vocabulary = transformer.config.vocab_size as usize;
    let mut counts = vec![0.0; vocabulary];
    for &token in first.responses.tokens() {
        counts[token as usize] += 1.0;
    }
    let warped = &expected.floats("warped_logp")[..vocabulary];
    let mut likely = 0;
    for (count, logp) in counts.iter().zip(warped) {
        let mean = f64::from(logp.exp()) * DRAWS as f64;
        // The tolerance is five standard deviations, and 0 for tokens that the filters exclude.
        let is_near = (count - mean).abs() <= 5.0 * mean.sqrt();
        assert!(is_near, "{count} for {mean}");
        likely += usize::from(mean > 0.0);
    }
    assert!(likely > 1);
}

#[test]
fn logits_that_are_not_finite_are_errors_however_tokens_are_chosen() {
    for temperature in [0.0, 1.0] {
        let mut transformer = load(&folder("qwen2"), 64).unwrap();
        let config = TransformerConfig {
            temperature,
            ..greedy(2)
        };
        let prompts = Expected::of("qwen2").prompts();
        let _guard = no_grad_guard();
        let mut embedding = transformer.state.weights[0].shallow_clone();
        let _ = embedding.fill_(f64::NAN);
        let error = error_of(sample(&mut transformer, &prompts, 1, &config, KEY));
        let expected = "the policy's logits are NaN or infinite (is `lr` too large?)";
        assert_eq!(error, expected);
    }
}

#[test]
fn no_prompts_and_empty_groups_give_no_responses() {
    let mut transformer = load(&folder("qwen2"), 64).unwrap();
    let prompts = Expected::of("qwen2").prompts();
    for (prompts, group_size) in [(&prompts[..], 0), (&[], 4)] {
        let none = sample(&mut transformer, prompts, group_size, &greedy(1), KEY).unwrap();
        assert!(none.responses.is_empty());
    }
}
