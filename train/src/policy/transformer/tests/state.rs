//! Checks that states, exported folders and savepoints can be read again.

use std::collections::BTreeMap;

use safetensors::SafeTensors;

use super::*;
use crate::policy::{POLICY, REFERENCE, Scores};

fn model(name: &str, reference: bool) -> Transformer {
    let mut options = options(64);
    options.reference = reference;
    (options.adamw.lr, options.adamw.weight_decay) = (1e-2, 0.1);
    Transformer::load(&folder(name), options).unwrap()
}

/// Trains on the model's fixture. The gradient depends only on the step, so that a restored model repeats what an uninterrupted
/// model does.
fn train(transformer: &mut Transformer, expected: &Expected, steps: std::ops::Range<usize>) {
    let responses = expected.responses();
    for step in steps {
        let derivative = |token: usize| ((token + 3 * step) as f64 * 0.7).sin();
        let gradient: Vec<f64> = (0..responses.tokens().len()).map(derivative).collect();
        let added = transformer.accumulate(&responses, &gradient);
        added.unwrap();
        transformer.update(Some(1.0)).unwrap().unwrap();
    }
}

fn scores(transformer: &mut Transformer, expected: &Expected) -> Scores {
    transformer.score(&expected.responses()).unwrap()
}

/// Returns the tensors of a file by name: shape, dtype and bytes.
fn contents(file: &Path) -> BTreeMap<String, (Vec<usize>, safetensors::Dtype, Vec<u8>)> {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.iter().map(|(name, tensor)| {
        let (shape, data) = (tensor.shape().to_vec(), tensor.data().to_vec());
        (name.to_string(), (shape, tensor.dtype(), data))
    });
    tensors.collect()
}

#[test]
fn a_state_goes_on_to_the_same_numbers() {
    let expected = Expected::of("qwen2");
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // The policy has no state of the optimizer yet, as before the first update, or has such a state.
    for begin in [0, 2] {
        let mut first = model("qwen2", true);
        train(&mut first, &expected, 0..begin);
        first.save(here.path()).unwrap();
        let options = first.options.clone();
        let mut second = Transformer::new(first.config.clone(), 5, options).unwrap();
        train(&mut second, &expected, 0..1);
        second.load(here.path()).unwrap();
        for steps in [begin..begin, begin..begin + 3] {
            train(&mut first, &expected, steps.clone());
            train(&mut second, &expected, steps);
            let found = scores(&mut second, &expected);
            assert_eq!(found, scores(&mut first, &expected));
        }
        first.save(here.path()).unwrap();
        second.save(there.path()).unwrap();
        for file in [POLICY, REFERENCE] {
            let [first, second] = [&here, &there].map(|at| fs::read(at.path().join(file)).unwrap());
            assert!(first == second, "{file}");
        }
    }
}

#[test]
fn a_reference_stays_and_is_stored_without_an_optimizer() {
    let expected = Expected::of("qwen3");
    let responses = expected.responses();
    let place = tempfile::tempdir().unwrap();
    let mut transformer = model("qwen3", true);
    train(&mut transformer, &expected, 0..1);
    transformer.freeze().unwrap();
    let before = scores(&mut transformer, &expected).logp;
    train(&mut transformer, &expected, 1..2);
    assert_ne!(scores(&mut transformer, &expected).logp, before);
    transformer.save(place.path()).unwrap();
    let names = |file: &Path| contents(file).into_keys().collect::<Vec<_>>();
    let weights = names(&folder("qwen3").join("model.safetensors"));
    assert_eq!(names(&place.path().join(REFERENCE)), weights);
    let mut again = model("qwen3", true);
    again.load(place.path()).unwrap();
    for policy in [&mut transformer, &mut again] {
        assert_eq!(policy.reference_logp(&responses).unwrap(), before);
    }
}

#[test]
fn a_savepoint_is_what_one_goes_back_to() {
    let expected = Expected::of("llama");
    let mut transformer = model("llama", false);
    for begin in [0, 4] {
        transformer.savepoint().unwrap();
        let before = scores(&mut transformer, &expected);
        train(&mut transformer, &expected, begin..begin + 2);
        let after = scores(&mut transformer, &expected);
        assert_ne!(after, before);
        transformer.rollback().unwrap();
        assert_eq!(scores(&mut transformer, &expected), before);
        train(&mut transformer, &expected, begin..begin + 2);
        assert_eq!(scores(&mut transformer, &expected), after);
    }
}

#[test]
fn a_state_that_is_cut_off_or_of_another_model_says_so() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join(POLICY);
    let mut transformer = model("qwen2", false);
    let missing = error_of(transformer.load(place.path()));
    assert!(missing.contains("it cannot be read"), "{missing}");
    transformer.save(place.path()).unwrap();
    let whole = fs::read(&file).unwrap();
    let foreign = fs::read(folder("qwen2").join("model.safetensors")).unwrap();
    for (bytes, expected) in [
        (&whole[..whole.len() - 1], "it is cut off"),
        (&foreign, "it is not the state of a transformer"),
    ] {
        fs::write(&file, bytes).unwrap();
        let found = error_of(transformer.load(place.path()));
        let is_said = found.contains(POLICY) && found.contains(expected);
        assert!(is_said, "{found}");
    }
    fs::write(&file, &whole).unwrap();
    let other = error_of(model("qwen3", false).load(place.path()));
    assert!(other.contains("the tensor's shape"), "{other}");
    let nowhere = transformer.save(&place.path().join("none"));
    assert!(error_of(nowhere).contains("it cannot be written"));
}

#[test]
fn an_exported_folder_has_the_files_of_the_one_that_it_came_from() {
    for name in MODELS {
        let expected = Expected::of(name);
        let from = folder(name);
        let mut transformer = model(name, false);
        let place = tempfile::tempdir().unwrap();
        for has_origin in [true, false] {
            let to = place.path().join(has_origin.to_string());
            transformer.origin = transformer.origin.filter(|_| has_origin);
            transformer.export(&to).unwrap();
            let weights = |folder: &Path| contents(&folder.join("model.safetensors"));
            assert!(weights(&to) == weights(&from), "{name}");
            let mut again = load(&to, 64).unwrap();
            assert_eq!(again.config, transformer.config);
            let found = scores(&mut again, &expected);
            assert_eq!(found, scores(&mut transformer, &expected));
        }
        let kept = |file: &str| fs::read(place.path().join("true").join(file)).unwrap();
        assert!(kept("tokenizer.json") == fs::read(from.join("tokenizer.json")).unwrap());
        let config: serde_json::Value = serde_json::from_slice(&kept("config.json")).unwrap();
        assert_eq!(config["dtype"], "float32");
    }
}
