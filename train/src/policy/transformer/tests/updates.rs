//! Updates against PyTorch's (`tests/golden/transformers/make_updates.py`).

use tch::{Device, Tensor};

use super::*;
use crate::policy::NonFinite;
use crate::policy::transformer::optimizer::Optimizer;
use crate::torch::{floats, to_vec};
use advlab::batch::{Batch, FloatBuffer};
use advlab::script::Host;

const STEPS: usize = 20;

/// How many times as far from float64 as PyTorch's own float32 numbers ours may be.
const ROUNDINGS: f32 = 4.0;

/// One step's part of what is kept for all.
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
    let parameters = [0, 1].map(|index| tensor(&begin[index], named[index].1));
    let mut optimizer = Optimizer::default();
    for step in 0..STEPS {
        let mut gradient = [0, 1].map(|index| {
            let own = of_step(&gradients[index], step, STEPS);
            tensor(own, named[index].1)
        });
        let norm = optimizer.update(&config, &parameters, &mut gradient, Some(1.0));
        norm.unwrap().unwrap();
        for (parameter, after) in parameters.iter().zip(&after) {
            let found = to_vec::<f32>(parameter).unwrap();
            assert_close(&found, of_step(after, step, STEPS), 1e-6, "AdamW");
        }
    }
}

#[test]
fn updates_along_a_recipes_loss_are_those_of_pytorch() {
    for model in MODELS {
        let given = Expected::of(model);
        let expected = Expected::read(&folder(model).join("updates.safetensors"));
        let (prompts, responses) = (given.prompts(), given.responses());
        let [old, advantage, ref_logp, loss, norms, logp] = [
            "old_logp",
            "advantage",
            "ref_logp",
            "loss",
            "grad_norm",
            "logp",
        ]
        .map(|name| expected.floats(name));
        let tolerance = |name: &str| ROUNDINGS * expected.floats(&format!("rounding.{name}"))[0];
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
            let new = transformer.score(&prompts, &responses).unwrap().logp;
            let of = format!("{model}, step {step}");
            assert_close(
                &new,
                of_step(&logp, step, STEPS + 1),
                tolerance("logp"),
                &of,
            );
            if step == STEPS {
                break;
            }
            let groups = responses.prompts().iter().map(|&prompt| prompt as i64);
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
            assert_close(
                &[found.value as f32],
                &loss[step..=step],
                tolerance("loss"),
                &of,
            );
            let gradient: Vec<f64> = found.gradient.buffer().iter().collect();
            let accumulated = transformer.accumulate(&prompts, &responses, &gradient);
            accumulated.unwrap();
            let norm = transformer.update(Some(0.5)).unwrap().unwrap();
            assert_close(
                &[norm as f32],
                &norms[step..=step],
                tolerance("grad_norm"),
                &of,
            );
        }
        let weights = views(&transformer.layout, &transformer.weights);
        for (name, _, found) in weights.unwrap() {
            if expected.has(&name) {
                let found = to_vec::<f32>(&found).unwrap();
                assert_close(
                    &found,
                    &expected.floats(&name),
                    tolerance(&name),
                    &format!("{model}, {name}"),
                );
            }
        }
    }
}

#[test]
fn what_is_not_finite_changes_nothing() {
    let config = AdamWConfig::default();
    let far = AdamWConfig { lr: 1e38, ..config };
    let parameters = [floats(&[1.0, f32::MAX], Device::Cpu).unwrap()];
    let mut optimizer = Optimizer::default();
    let mut update = |gradient: [f32; 2], config: &AdamWConfig| {
        let mut gradient = [floats(&gradient, Device::Cpu).unwrap()];
        let updated = optimizer.update(config, &parameters, &mut gradient, None);
        updated.unwrap()
    };
    for gradient in [f32::NAN, 1e30] {
        let refused = update([gradient, 0.0], &config);
        assert!(matches!(refused, Err(NonFinite::Gradient(_))));
    }
    assert_eq!(update([0.0, -1.0], &far), Err(NonFinite::Parameters));
    assert_eq!(to_vec::<f32>(&parameters[0]).unwrap(), [1.0, f32::MAX]);
    assert_eq!(update([3.0, 4.0], &config), Ok(5.0));
}
