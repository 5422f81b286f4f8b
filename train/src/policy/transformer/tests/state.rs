//! What is written and read again: states, folders, and copies in memory.

use std::collections::BTreeMap;

use safetensors::SafeTensors;

use super::*;
use crate::policy::{AdamWConfig, Scores};

const ADAMW: AdamWConfig = AdamWConfig {
    lr: 1e-2,
    betas: (0.9, 0.999),
    eps: 1e-8,
    weight_decay: 0.1,
};

/// Steps on the model's fixture; step by step, so that a model that goes on does what one does that never stopped.
fn train(transformer: &mut Transformer, expected: &Expected, steps: std::ops::Range<usize>) {
    let (prompts, responses) = (expected.prompts(), expected.responses());
    for step in steps {
        let derivative = |token: usize| ((token + 3 * step) as f64 * 0.7).sin();
        let gradient: Vec<f64> = (0..responses.tokens().len()).map(derivative).collect();
        transformer
            .accumulate(&prompts, &responses, &gradient)
            .unwrap();
        transformer.update(&ADAMW, Some(1.0)).unwrap().unwrap();
    }
}

fn scores(transformer: &Transformer, expected: &Expected) -> Scores {
    let (prompts, responses) = (expected.prompts(), expected.responses());
    transformer.score(&prompts, &responses).unwrap()
}

/// The tensors of a file: shape, dtype and bytes by name.
fn contents(file: &Path) -> BTreeMap<String, (Vec<usize>, safetensors::Dtype, Vec<u8>)> {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.iter().map(|(name, tensor)| {
        let contents = (
            tensor.shape().to_vec(),
            tensor.dtype(),
            tensor.data().to_vec(),
        );
        (name.to_string(), contents)
    });
    tensors.collect()
}

#[test]
fn a_state_goes_on_to_the_same_numbers() {
    let compute = compute(64);
    let expected = Expected::of("qwen2");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("state.safetensors");
    let mut first = Transformer::load(&folder("qwen2"), compute).unwrap();
    // Without an optimizer's state, as before the first update, and with one.
    for begin in [0, 2] {
        train(&mut first, &expected, 0..begin);
        first.save(&file).unwrap();
        let mut second = Transformer::new(first.config().clone(), 5, compute).unwrap();
        train(&mut second, &expected, 0..1);
        second.restore(&file).unwrap();
        assert_eq!(scores(&second, &expected), scores(&first, &expected));
        train(&mut first, &expected, begin..begin + 3);
        train(&mut second, &expected, begin..begin + 3);
        assert_eq!(scores(&second, &expected), scores(&first, &expected));
        let other = place.path().join("other.safetensors");
        first.save(&file).unwrap();
        second.save(&other).unwrap();
        assert!(fs::read(&file).unwrap() == fs::read(&other).unwrap());
        first = Transformer::load(&folder("qwen2"), compute).unwrap();
    }
}

#[test]
fn a_frozen_copy_stays_and_is_stored_without_an_optimizer() {
    let expected = Expected::of("qwen3");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("reference.safetensors");
    let mut transformer = load(&folder("qwen3"), 64).unwrap();
    train(&mut transformer, &expected, 0..1);
    let reference = transformer.frozen().unwrap();
    let before = scores(&transformer, &expected);
    train(&mut transformer, &expected, 1..2);
    assert_ne!(scores(&transformer, &expected), before);
    assert_eq!(scores(&reference, &expected), before);

    reference.save(&file).unwrap();
    let names = |of: &Path| contents(of).into_keys().collect::<Vec<_>>();
    assert_eq!(
        names(&file),
        names(&folder("qwen3").join("model.safetensors"))
    );
    let mut read = load(&folder("qwen3"), 64).unwrap();
    read.restore(&file).unwrap();
    assert_eq!(scores(&read, &expected), before);
}

#[test]
fn a_snapshot_is_what_one_goes_back_to() {
    let expected = Expected::of("llama");
    let mut transformer = load(&folder("llama"), 64).unwrap();
    for begin in [0, 4] {
        let snapshot = transformer.snapshot().unwrap();
        let before = scores(&transformer, &expected);
        train(&mut transformer, &expected, begin..begin + 2);
        let after = scores(&transformer, &expected);
        assert_ne!(after, before);
        transformer.go_back(snapshot).unwrap();
        assert_eq!(scores(&transformer, &expected), before);
        train(&mut transformer, &expected, begin..begin + 2);
        assert_eq!(scores(&transformer, &expected), after);
    }
}

#[test]
fn a_state_that_is_cut_off_or_of_another_model_says_so() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("state.safetensors");
    let mut transformer = load(&folder("qwen2"), 64).unwrap();
    transformer.save(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    let last = whole.len() - 1;
    let foreign = fs::read(folder("qwen2").join("model.safetensors")).unwrap();
    let cases = [
        (whole[..last].to_vec(), "it is cut off"),
        (foreign, "it is not the state of a transformer"),
    ];
    for (bytes, expected) in cases {
        fs::write(&file, bytes).unwrap();
        let found = error_of(transformer.restore(&file));
        assert!(
            found.contains("state.safetensors") && found.contains(expected),
            "{found}"
        );
    }
    let missing = error_of(transformer.restore(&place.path().join("none")));
    assert!(missing.starts_with("cannot read "), "{missing}");
    fs::write(&file, &whole).unwrap();
    let other = error_of(load(&folder("qwen3"), 64).unwrap().restore(&file));
    assert!(
        other.contains("there is no tensor") || other.contains("the shape"),
        "{other}"
    );
    let nowhere = place.path().join("none").join("state.safetensors");
    assert!(error_of(transformer.save(&nowhere)).contains("it cannot be written"));
    // The export has no state of an optimizer, and is none.
    transformer.export(place.path(), None).unwrap();
    let export = error_of(transformer.restore(&place.path().join("model.safetensors")));
    assert!(
        export.ends_with("it is not the state of a transformer"),
        "{export}"
    );
}

#[test]
fn an_exported_folder_has_the_files_of_the_one_that_it_came_from() {
    for model in MODELS {
        let expected = Expected::of(model);
        let from = folder(model);
        let transformer = load(&from, 64).unwrap();
        let place = tempfile::tempdir().unwrap();
        for origin in [Some(&*from), None] {
            let to = place.path().join(format!("{}", origin.is_some()));
            transformer.export(&to, origin).unwrap();
            let weights = |folder: &Path| contents(&folder.join("model.safetensors"));
            assert!(weights(&to) == weights(&from), "{model}");
            let again = load(&to, 64).unwrap();
            assert_eq!(again.config(), transformer.config());
            assert_eq!(scores(&again, &expected), scores(&transformer, &expected));
        }
        let kept = |file: &str| fs::read(place.path().join("true").join(file)).unwrap();
        let tokenizer = fs::read(from.join("tokenizer.json")).unwrap();
        assert!(kept("tokenizer.json") == tokenizer);
        let config: serde_json::Value = serde_json::from_slice(&kept("config.json")).unwrap();
        assert_eq!(config["dtype"], "float32");
    }
}
