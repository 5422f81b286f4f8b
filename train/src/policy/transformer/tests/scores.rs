//! Checks logits, log-probs, entropies and gradients.

use safetensors::SafeTensors;
use tch::{Device, Tensor};

use super::*;
use crate::policy::transformer::ModelConfig;
use crate::policy::transformer::batch::{ModelInputs, passes};
use crate::policy::transformer::decoder::hidden_states;
use crate::policy::{NonFinite, Scores};

fn assert_scores(found: &Scores, expected: &Scores, what: &str) {
    assert_close(&found.logp, &expected.logp, 1e-5, what);
    assert_close(&found.entropy, &expected.entropy, 1e-5, what);
}

/// Does the same as [`assert_close`], with a tolerance relative to the largest value of the tensor `unit`.
fn assert_near(found: &[f32], expected: &[f32], unit: &[f32], what: &str) {
    let largest = unit.iter().fold(0.0f32, |most, g| most.max(g.abs()));
    assert_close(found, expected, 1e-5 * largest, what);
}

/// Returns the weights of the tokens' log-probs in the loss.
fn weights(expected: &Expected) -> Vec<f64> {
    let weights = expected.by_token("w").into_iter();
    weights.map(f64::from).collect()
}

#[test]
fn the_logits_of_every_position_are_those_of_transformers() {
    for model in MODELS {
        let transformer = load(&folder(model), 1 << 20).unwrap();
        let expected = Expected::of(model);
        let all = expected.kept(&expected.integers("input_ids"), "attention_mask");
        let vocabulary = transformer.config.vocab_size as usize;
        let logits = expected.floats("logits");
        let masks = expected.integers("attention_mask");
        let width = masks[0].len();
        for (row, tokens) in all.iter().enumerate() {
            let mut response = Responses::to([prompt(&tokens[..1])]);
            response.push(0, &[&tokens[1..], &[0]].concat());
            let inputs = ModelInputs::new(&response, &[0], Device::Cpu).unwrap();
            let weights = &transformer.state.weights;
            let attend = |_, heads| inputs.attend(&heads);
            let hidden = hidden_states(&transformer.config, weights, &inputs.tokens, attend);
            let (hidden, head) = (hidden.unwrap(), &weights[transformer.head]);
            let found = to_vec::<f32>(&hidden.linear(head, None::<Tensor>).detach()).unwrap();
            // In the fixture, rows are padded on the left.
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
        let (expected, responses) = given(model);
        let [logp, entropy] = ["logp", "entropy"].map(|name| expected.by_token(name));
        let expected = Scores { logp, entropy };
        for tokens_per_forward in [1 << 20, 80, 1] {
            let mut transformer = load(&folder(model), tokens_per_forward).unwrap();
            let scores = transformer.score(&responses).unwrap();
            assert_scores(&scores, &expected, model);
            assert_eq!(scores, transformer.score(&responses).unwrap());
        }
        // The bits must be the same one response at a time, in another order, and next to responses without tokens.
        let mut single = load(&folder(model), 1).unwrap();
        let scores = single.score(&responses).unwrap();
        let mut turned = Responses::to(responses.prompts());
        for index in (0..3).rev() {
            turned.push(index, responses.response(index));
            turned.push(index, &[]);
        }
        let found = single.score(&turned).unwrap();
        for index in 0..3 {
            let own = turned.range(2 * (2 - index));
            assert_eq!(found.logp[own], scores.logp[responses.range(index)]);
        }
    }
}

#[test]
fn gradients_are_those_of_autograd_over_the_whole_logits() {
    for model in MODELS {
        let (expected, responses) = given(model);
        let weights = weights(&expected);
        for tokens_per_forward in [1 << 20, 1] {
            let mut transformer = load(&folder(model), tokens_per_forward).unwrap();
            // The gradient is accumulated twice, so that the sum must be twice the gradient.
            for _ in 0..2 {
                let added = transformer.accumulate(&responses, &weights);
                added.unwrap();
            }
            let mut gradient = transformer.gradient();
            gradient.values_mut().flatten().for_each(|g| *g /= 2.0);
            let squares = gradient.values().flatten().map(|g| f64::from(*g).powi(2));
            let norm = squares.sum::<f64>().sqrt();
            let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
            let expected_norm = expected.view("grad_norm", |_, data| number(data));
            assert!((norm / expected_norm - 1.0).abs() < 1e-5, "{model}: {norm}");
            let file = SafeTensors::deserialize(&expected.0).unwrap();
            let names = file.names().into_iter();
            let names: Vec<&str> = names
                .filter_map(|name| name.strip_prefix("grad."))
                .collect();
            assert_eq!(names.len(), 3, "{model}");
            for name in names {
                let expected = expected.floats(&format!("grad.{name}"));
                assert_near(&gradient[name], &expected, &expected, name);
            }
        }
    }
}

/// Compares prompts that several responses share with a copy of the prompt for each response.
#[test]
fn a_shared_prompt_is_one_of_their_own_to_each_response() {
    for model in MODELS {
        let (_, once) = given(model);
        // The responses have several lengths; one has a single token, and one shares its prompt with no other response.
        let all = [(0, 4), (0, 1), (1, 9), (0, 7), (0, 2), (0, 9), (0, 9)];
        let own = all.map(|(index, _)| once.prompts()[index].clone());
        let (mut shared, mut apart) = (Responses::to(once.prompts()), Responses::to(own));
        for (place, (index, end)) in all.into_iter().enumerate() {
            let tokens = &once.response(index)[..end];
            shared.push(index, tokens);
            apart.push(place, tokens);
        }
        let derivative = |token: usize| (token as f64 * 0.7).sin();
        let weights: Vec<f64> = (0..shared.tokens().len()).map(derivative).collect();
        let mut transformer = load(&folder(model), 1 << 20).unwrap();
        let found = transformer.score(&shared).unwrap();
        assert_scores(&found, &transformer.score(&apart).unwrap(), model);
        let mut gradient = |responses| {
            transformer.accumulate(responses, &weights).unwrap();
            let gradient = transformer.gradient();
            transformer.set_lr(0.0);
            transformer.update(None).unwrap().unwrap();
            gradient
        };
        let all = gradient(&shared);
        for (name, expected) in gradient(&apart) {
            assert_near(&all[&name], &expected, &expected, &name);
        }
        let tokens = |responses| {
            let pass = &passes(responses, 1 << 20)[0];
            let inputs = ModelInputs::new(responses, pass, Device::Cpu);
            inputs.unwrap().tokens.ids.numel()
        };
        assert!(4 * tokens(&shared) < 3 * tokens(&apart));
    }
}

#[test]
fn chunks_of_the_head_add_up() {
    // There are more rows than a chunk holds, and their number is not a multiple of the size of a chunk.
    const COPIES: usize = 60;
    for model in MODELS {
        let (expected, once) = given(model);
        let mut often = Responses::to(once.prompts());
        for copy in 0..COPIES * once.len() {
            let index = copy % once.len();
            often.push(index, once.response(index));
        }
        assert!(often.tokens().len() > 2048);
        let mut transformer = load(&folder(model), 1 << 20).unwrap();
        let scores = transformer.score(&often).unwrap();
        let repeated = |name| expected.by_token(name).repeat(COPIES);
        let [logp, entropy] = ["logp", "entropy"].map(repeated);
        assert_scores(&scores, &Scores { logp, entropy }, model);

        let weights = weights(&expected);
        transformer.accumulate(&once, &weights).unwrap();
        let single = transformer.gradient();
        let shares: Vec<f64> = weights.iter().map(|w| -w / COPIES as f64).collect();
        let shares = shares.repeat(COPIES);
        transformer.accumulate(&often, &shares).unwrap();
        // The rest of the difference must be small compared with the gradient.
        for (name, rest) in transformer.gradient() {
            assert_near(&rest, &vec![0.0; rest.len()], &single[&name], &name);
        }
    }
}

#[test]
fn random_weights_know_nothing_and_are_a_function_of_the_seed() {
    for model in MODELS {
        let (_, responses) = given(model);
        let config = load(&folder(model), 64).unwrap().config;
        let scores = |seed| {
            let mut transformer = Transformer::new(config.clone(), seed, options(64)).unwrap();
            transformer.score(&responses).unwrap()
        };
        let first = scores(1);
        assert_eq!(first, scores(1), "{model}");
        assert_ne!(first, scores(2), "{model}");
        // Logits are sums of `hidden` products of a normed state with weights of 0.02: their variance is about 0.02^2 *
        // hidden, and half of it is missing from the entropy.
        let variance = 0.02f32.powi(2) * config.hidden_size as f32;
        for entropy in first.entropy {
            let share = ((config.vocab_size as f32).ln() - entropy) / (variance / 2.0);
            assert!((0.2..2.0).contains(&share), "{model}: {share}");
        }
        let head_dim = 7;
        let odd = ModelConfig { head_dim, ..config };
        let refused = Transformer::new(odd, 1, options(64));
        assert!(error_of(refused).starts_with("heads are 7 wide"));
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_left_out() {
    for model in MODELS {
        let (_, responses) = given(model);
        let mut transformer = load(&folder(model), 64).unwrap();
        let before = transformer.score(&responses).unwrap();
        let gradient = vec![f64::NAN; responses.tokens().len()];
        transformer.accumulate(&responses, &gradient).unwrap();
        let left_out = transformer.update(None).unwrap();
        assert!(matches!(left_out, Err(NonFinite::Gradient(_))));
        assert!(transformer.gradient().is_empty());
        assert_eq!(transformer.score(&responses).unwrap(), before);
    }
}

#[test]
fn responses_that_do_not_fit_are_errors() {
    let mut model = load(&folder("qwen2"), 64).unwrap();
    let mut responses = Responses::to([prompt(&[1])]);
    responses.push(0, &[5, 311]);
    assert_eq!(model.score(&responses).unwrap().logp.len(), 2);
    let short = model.accumulate(&responses, &[1.0]);
    assert!(error_of(short).starts_with("dloss/dlogp has 1 values"));
    assert!(model.gradient().is_empty());
    for (tokens, index, expected) in [
        (&[][..], 0, "prompt 0 is empty"),
        (
            &[312],
            0,
            "prompt 0 has the token 312; the vocabulary has 312 tokens",
        ),
        (
            &[1],
            1,
            "response 0 belongs to prompt 1; the batch has 1 prompts",
        ),
    ] {
        let mut responses = Responses::to([prompt(tokens)]);
        responses.push(index, &[2]);
        let refused = error_of(model.score(&responses));
        assert!(refused.starts_with(expected), "{refused}");
    }
}
