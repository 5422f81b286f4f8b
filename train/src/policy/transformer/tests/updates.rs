//! Compares updates with PyTorch's updates (`tests/golden/transformers/make_updates.py`).

use tch::{Device, Tensor};

use super::*;
use crate::policy::NonFinite;
use crate::policy::transformer::optimizer::OptimizerState;
use crate::torch::{floats, to_vec};
use advlab::batch::{Batch, FloatBuffer};
use advlab::script::Host;

const STEPS: usize = 20;

/// The distance of advlab's results from float64 results may be this many times the distance of PyTorch's float32 results.
const ROUNDINGS: f32 = 4.0;

/// Returns the part of `all` that belongs to one step.
fn of_step(all: &[f32], step: usize, steps: usize) -> &[f32] {
    let size = all.len() / steps;
    &all[step * size..][..size]
}

#[test]
fn adamw_is_that_of_torch() {
    let expected = Expected::read(&folder("adamw.safetensors"));
    let config = AdamWConfig {
        lr: 0.02,
        weight_decay: 0.3,
        ..AdamWConfig::default()
    };
    let tensor = |values: &[f32], shape: &[i64]| -> Tensor {
        floats(values, Device::Cpu).unwrap().view(shape)
    };
    let named: [(&str, &[i64]); 2] = [("matrix", &[8, 5]), ("vector", &[7])];
    let all = |of: &str| named.map(|(name, _)| expected.floats(&format!("{name}.{of}")));
    let (begin, gradients, after) = (all("begin"), all("gradient"), all("after"));
    let weights = [0, 1].map(|index| tensor(&begin[index], named[index].1));
    let mut state = OptimizerState {
        weights: weights.into(),
        ..OptimizerState::default()
    };
    for step in 0..STEPS {
        let mut gradient = [0, 1].map(|index| {
            let own = of_step(&gradients[index], step, STEPS);
            tensor(own, named[index].1)
        });
        let norm = state.update(&config, &mut gradient, Some(1.0));
        norm.unwrap().unwrap();
        for (weight, after) in state.weights.iter().zip(&after) {
            let found = to_vec::<f32>(weight).unwrap();
            assert_close(&found, of_step(after, step, STEPS), 1e-6, "AdamW");
        }
    }
}

#[test]
fn updates_along_a_recipes_loss_are_those_of_pytorch() {
    for model in MODELS {
        let (_, responses) = given(model);
        let expected = Expected::read(&folder(model).join("updates.safetensors"));
        let [old, advantage, ref_logp] =
            ["old_logp", "advantage", "ref_logp"].map(|name| expected.floats(name));
        let check = |found: &[f32], name: &str, step: usize, steps: usize| {
            let tolerance = ROUNDINGS * expected.floats(&format!("rounding.{name}"))[0];
            let all = expected.floats(name);
            let what = format!("{model}, {name}, step {step}");
            assert_close(found, of_step(&all, step, steps), tolerance, &what);
        };
        let mut recipe = Host::new().load("ppo_clip").unwrap();
        recipe.set_text("kl_beta", "0.05").unwrap();
        let mut state = recipe.init().unwrap();
        let config = AdamWConfig {
            lr: 5e-6,
            eps: 1e-6,
            weight_decay: 0.1,
            ..AdamWConfig::default()
        };
        let mut transformer = load(&folder(model), 80).unwrap();
        transformer.options.adamw = config;
        for step in 0..=STEPS {
            let new = transformer.score(&responses).unwrap().logp;
            check(&new, "logp", step, STEPS + 1);
            if step == STEPS {
                break;
            }
            let groups = responses.owners().iter().map(|&prompt| prompt as i64);
            let batch = Batch::builder()
                .groups(groups)
                .lengths((0..responses.len()).map(|index| responses.range(index).len()))
                .token("old_logp", FloatBuffer::from(old.clone()))
                .token("logp", FloatBuffer::from(new))
                .token("ref_logp", FloatBuffer::from(ref_logp.clone()))
                .token("advantage", FloatBuffer::from(advantage.clone()));
            let found = recipe
                .loss(&batch.build().unwrap(), None, &mut state)
                .unwrap();
            check(&[found.value as f32], "loss", step, STEPS);
            let gradient: Vec<f64> = found.gradient.buffer().iter().collect();
            let added = transformer.accumulate(&responses, &gradient);
            added.unwrap();
            let norm = transformer.update(Some(0.5)).unwrap().unwrap();
            check(&[norm as f32], "grad_norm", step, STEPS);
        }
        let weights = views(&transformer.layout, &transformer.state.weights);
        for (name, _, found) in weights.unwrap() {
            if expected.has(&name) {
                check(&to_vec(&found).unwrap(), &name, 0, 1);
            }
        }
    }
}

#[test]
fn what_is_not_finite_changes_nothing() {
    let config = AdamWConfig::default();
    let far = AdamWConfig { lr: 1e38, ..config };
    let mut state = OptimizerState {
        weights: vec![floats(&[1.0, f32::MAX], Device::Cpu).unwrap()],
        ..OptimizerState::default()
    };
    let update = |state: &mut OptimizerState, gradient: [f32; 2], config| {
        let mut gradient = [floats(&gradient, Device::Cpu).unwrap()];
        state.update(config, &mut gradient, None).unwrap()
    };
    for gradient in [f32::NAN, 1e30] {
        let refused = update(&mut state, [gradient, 0.0], &config);
        assert!(matches!(refused, Err(NonFinite::Gradient(_))));
    }
    let refused = update(&mut state, [0.0, -1.0], &far);
    assert_eq!(refused, Err(NonFinite::Parameters));
    assert_eq!(to_vec::<f32>(&state.weights[0]).unwrap(), [1.0, f32::MAX]);
    assert_eq!(update(&mut state, [3.0, 4.0], &config), Ok(5.0));
}
