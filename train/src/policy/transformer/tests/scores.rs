//! Logits, log-probs, entropies and gradients.

use safetensors::SafeTensors;
use tch::{Device, Tensor};

use super::*;
use crate::policy::transformer::ModelConfig;
use crate::policy::transformer::batch::plans;
use crate::policy::{NonFinite, Scores};
use crate::torch::to_vec;

#[test]
fn the_logits_of_every_position_are_those_of_transformers() {
    for model in MODELS {
        let transformer = load(&folder(model), 1 << 20).unwrap();
        let expected = Expected::of(model);
        let all = expected.kept(&expected.integers("input_ids"), "attention_mask");
        let vocabulary = transformer.config.vocab_size as usize;
        let width = expected.integers("input_ids")[0].len();
        let logits = expected.floats("logits");
        let masks = expected.integers("attention_mask");
        for (row, tokens) in all.iter().enumerate() {
            let prompt = Prompt {
                tokens: tokens[..1].to_vec(),
                features: vec![],
            };
            let mut response = Responses::new();
            response.push(0, &[&tokens[1..], &[0]].concat());
            let plans = plans(std::slice::from_ref(&prompt), &response, 1);
            let prompt = std::slice::from_ref(&prompt);
            let inputs = plans[0].inputs(prompt, &response, Device::Cpu).unwrap();
            let weights = &transformer.weights;
            let hidden = transformer.hidden_states(weights, &inputs, |_| Ok(()));
            let (hidden, head) = (hidden.unwrap(), &weights[transformer.head]);
            let found = to_vec::<f32>(&hidden.linear(head, None::<Tensor>).detach()).unwrap();
            // Left-padded there.
            let places = (0..width).filter(|&place| masks[row][place] == 1);
            let at = |place| &logits[(row * width + place) * vocabulary..][..vocabulary];
            let expected: Vec<f32> = places.flat_map(at).copied().collect();
            assert_close(&found, &expected, 1e-5, &format!("{model}, row {row}"));
        }
    }
}

#[test]
fn scores_are_those_of_transformers_however_many_go_at_a_time() {
    for model in MODELS {
        let expected = Expected::of(model);
        let (prompts, responses) = (expected.prompts(), expected.responses());
        for tokens_per_forward in [1 << 20, 80, 1] {
            let mut transformer = load(&folder(model), tokens_per_forward).unwrap();
            let scores = transformer.score(&prompts, &responses).unwrap();
            assert_close(&scores.logp, &expected.by_token("logp"), 1e-5, model);
            assert_close(&scores.entropy, &expected.by_token("entropy"), 1e-5, model);
            assert_eq!(scores, transformer.score(&prompts, &responses).unwrap());
        }
        // One at a time, in another order, and beside responses without tokens: the same bits.
        let mut single = load(&folder(model), 1).unwrap();
        let scores = single.score(&prompts, &responses).unwrap();
        let mut turned = Responses::new();
        for index in (0..3).rev() {
            turned.push(index, responses.response(index));
            turned.push(index, &[]);
        }
        let found = single.score(&prompts, &turned).unwrap();
        for index in 0..3 {
            let own = turned.range(2 * (2 - index));
            assert_eq!(found.logp[own], scores.logp[responses.range(index)]);
        }
    }
}

#[test]
fn gradients_are_those_of_autograd_over_the_whole_logits() {
    for model in MODELS {
        let expected = Expected::of(model);
        let (prompts, responses) = (expected.prompts(), expected.responses());
        let weights = expected.by_token("w").into_iter().map(f64::from);
        let weights: Vec<f64> = weights.collect();
        for tokens_per_forward in [1 << 20, 1] {
            let mut transformer = load(&folder(model), tokens_per_forward).unwrap();
            // Twice, so that it must add up.
            for _ in 0..2 {
                transformer
                    .accumulate(&prompts, &responses, &weights)
                    .unwrap();
            }
            let mut gradient = transformer.gradient();
            gradient.values_mut().flatten().for_each(|g| *g /= 2.0);
            let squares = gradient.values().flatten().map(|g| f64::from(*g).powi(2));
            let norm = squares.sum::<f64>().sqrt();
            let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
            let expected_norm = expected.view("grad_norm", |_, data| number(data));
            assert!((norm / expected_norm - 1.0).abs() < 1e-5, "{model}: {norm}");
            let file = SafeTensors::deserialize(&expected.0).unwrap();
            let names = file
                .names()
                .into_iter()
                .filter_map(|name| name.strip_prefix("grad."));
            let names: Vec<&str> = names.collect();
            assert_eq!(names.len(), 3, "{model}");
            for name in names {
                let expected = expected.floats(&format!("grad.{name}"));
                let largest = expected
                    .iter()
                    .fold(0.0f32, |largest, g| largest.max(g.abs()));
                let found: Vec<f32> = gradient[name].to_vec();
                assert_close(
                    &found,
                    &expected,
                    1e-5 * largest,
                    &format!("{model} {name}"),
                );
            }
        }
    }
}

/// Prompts that several responses share, beside the same prompts once for each.
#[test]
fn a_shared_prompt_is_one_of_their_own_to_each_response() {
    for model in MODELS {
        let expected = Expected::of(model);
        let (prompts, once) = (expected.prompts(), expected.responses());
        let (mut shared, mut apart) = (Responses::new(), Responses::new());
        let mut own = Vec::new();
        // Of other lengths, one token among them, and one response that is alone with its prompt.
        for (index, end) in [(0, 4), (0, 1), (1, 9), (0, 7), (0, 2), (0, 9), (0, 9)] {
            let tokens = &once.response(index)[..end];
            shared.push(index, tokens);
            apart.push(own.len(), tokens);
            own.push(prompts[index].clone());
        }
        let derivative = |token: usize| (token as f64 * 0.7).sin();
        let weights: Vec<f64> = (0..shared.tokens().len()).map(derivative).collect();
        let mut transformer = load(&folder(model), 1 << 20).unwrap();
        let found = transformer.score(&prompts, &shared).unwrap();
        let single = transformer.score(&own, &apart).unwrap();
        assert_close(&found.logp, &single.logp, 1e-5, model);
        assert_close(&found.entropy, &single.entropy, 1e-5, model);
        let accumulated = transformer.accumulate(&prompts, &shared, &weights);
        accumulated.unwrap();
        let all = transformer.gradient();
        transformer.set_lr(0.0);
        transformer.update(None).unwrap().unwrap();
        transformer.accumulate(&own, &apart, &weights).unwrap();
        for (name, expected) in transformer.gradient() {
            let largest = expected.iter().fold(0.0f32, |most, g| most.max(g.abs()));
            let [found, expected] = [&all[&name], &expected].map(|g| g.to_vec());
            assert_close(&found, &expected, 1e-5 * largest, &name);
        }
        let tokens = |prompts, responses| {
            let plan = &plans(prompts, responses, 1 << 20)[0];
            plan.inputs(prompts, responses, Device::Cpu)
                .unwrap()
                .tokens
                .numel()
        };
        assert!(4 * tokens(&prompts, &shared) < 3 * tokens(&own, &apart));
    }
}

#[test]
fn chunks_of_the_head_add_up() {
    // More rows than a chunk has, and no multiple of it.
    const COPIES: usize = 60;
    for model in MODELS {
        let expected = Expected::of(model);
        let (prompts, once) = (expected.prompts(), expected.responses());
        let mut often = Responses::new();
        for copy in 0..COPIES * once.len() {
            let index = copy % once.len();
            often.push(index, once.response(index));
        }
        assert!(often.tokens().len() > 2048);
        let mut transformer = load(&folder(model), 1 << 20).unwrap();
        let scores = transformer.score(&prompts, &often).unwrap();
        let repeated = |values: Vec<f32>| values.repeat(COPIES);
        assert_close(
            &scores.logp,
            &repeated(expected.by_token("logp")),
            1e-5,
            model,
        );
        assert_close(
            &scores.entropy,
            &repeated(expected.by_token("entropy")),
            1e-5,
            model,
        );

        let weights = expected.by_token("w").into_iter().map(f64::from);
        let weights: Vec<f64> = weights.collect();
        transformer.accumulate(&prompts, &once, &weights).unwrap();
        let single = transformer.gradient();
        let shares: Vec<f64> = weights.iter().map(|w| -w / COPIES as f64).collect();
        transformer
            .accumulate(&prompts, &often, &shares.repeat(COPIES))
            .unwrap();
        // What is left of the difference, against the gradient itself.
        for (name, rest) in transformer.gradient() {
            let largest = single[&name]
                .iter()
                .fold(0.0f32, |most, g| most.max(g.abs()));
            let rest: Vec<f32> = rest.into_iter().collect();
            assert_close(&rest, &vec![0.0; rest.len()], 1e-5 * largest, &name);
        }
    }
}

#[test]
fn random_weights_know_nothing_and_are_a_function_of_the_seed() {
    for model in MODELS {
        let expected = Expected::of(model);
        let (prompts, responses) = (expected.prompts(), expected.responses());
        let config = load(&folder(model), 64).unwrap().config;
        let vocabulary = config.vocab_size as f32;
        let scores = |seed| {
            let mut transformer = Transformer::new(config.clone(), seed, options(64)).unwrap();
            transformer.score(&prompts, &responses).unwrap()
        };
        let first = scores(1);
        assert_eq!(first, scores(1), "{model}");
        assert_ne!(first, scores(2), "{model}");
        // Logits are sums of `hidden` products of a normed state with weights of 0.02: their variance is about 0.02^2 *
        // hidden, and half of it is missing from the entropy.
        let variance = 0.02f32.powi(2) * config.hidden_size as f32;
        for entropy in first.entropy {
            let missing = vocabulary.ln() - entropy;
            assert!(
                (0.2..2.0).contains(&(missing / (variance / 2.0))),
                "{model}: {missing}"
            );
        }
        let odd = ModelConfig {
            head_dim: 7,
            ..config.clone()
        };
        let refused = Transformer::new(odd, 1, options(64));
        assert!(error_of(refused).starts_with("heads are 7 wide"));
    }
}

#[test]
fn updates_follow_the_gradient() {
    for model in MODELS {
        let expected = Expected::of(model);
        let (prompts, responses) = (expected.prompts(), expected.responses());
        let mut transformer = load(&folder(model), 64).unwrap();
        let before = transformer.score(&prompts, &responses).unwrap();
        transformer.options.adamw.weight_decay = 0.0;
        // The loss is the mean of -logp.
        let count = before.logp.len();
        let mean = |scores: &Scores| scores.logp.iter().sum::<f32>() / count as f32;
        let gradient = vec![-1.0 / count as f64; count];
        let mut last = mean(&before);
        for _ in 0..5 {
            transformer
                .accumulate(&prompts, &responses, &gradient)
                .unwrap();
            let norm = transformer.update(Some(1.0)).unwrap();
            assert!(norm.unwrap() > 0.0);
            assert!(transformer.gradient().is_empty());
            let now = mean(&transformer.score(&prompts, &responses).unwrap());
            assert!(now > last + 0.01, "{model}: {last}, then {now}");
            last = now;
        }
        let worst = vec![f64::NAN; count];
        let now = transformer.score(&prompts, &responses).unwrap();
        transformer
            .accumulate(&prompts, &responses, &worst)
            .unwrap();
        let left_out = transformer.update(None).unwrap();
        assert!(matches!(left_out, Err(NonFinite::Gradient(_))));
        assert_eq!(transformer.score(&prompts, &responses).unwrap(), now);
    }
}

#[test]
fn responses_that_do_not_fit_are_errors() {
    let mut model = load(&folder("qwen2"), 64).unwrap();
    let prompt = |tokens: &[u32]| Prompt {
        tokens: tokens.to_vec(),
        features: vec![],
    };
    let mut responses = Responses::new();
    responses.push(0, &[5, 311]);
    let prompts = [prompt(&[1])];
    assert_eq!(model.score(&prompts, &responses).unwrap().logp.len(), 2);
    let short = model.accumulate(&prompts, &responses, &[1.0]);
    assert!(error_of(short).starts_with("dloss/dlogp has 1 values"));
    assert!(model.gradient().is_empty());
    let empty = model.score(&[prompt(&[])], &responses);
    assert!(error_of(empty).starts_with("prompt 0 is empty"));
    let unknown = model.score(&[prompt(&[312])], &responses);
    assert_eq!(
        error_of(unknown),
        "prompt 0 has the token 312; the vocabulary has 312 tokens"
    );
    responses.push(1, &[2]);
    let without = model.score(&prompts, &responses);
    assert_eq!(
        error_of(without),
        "response 1 belongs to prompt 1; the batch has 1 prompts"
    );
}
