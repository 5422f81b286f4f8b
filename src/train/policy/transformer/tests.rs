//! Tiny models with random weights, against what transformers computes with them (`tests/golden/transformers`).

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const MODELS: [&str; 3] = ["qwen2", "qwen3", "llama"];

fn folder(model: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/golden/transformers").join(model)
}

fn load(folder: &Path, tokens_per_forward: usize) -> Result<Transformer, Diagnostics> {
    let device = torch::start("cpu", NonZeroUsize::new(2).unwrap())?;
    Transformer::load(folder, device, tokens_per_forward)
}

/// What transformers computed.
struct Expected(Vec<u8>);

impl Expected {
    fn of(model: &str) -> Self {
        Expected(fs::read(folder(model).join("expected.safetensors")).unwrap())
    }

    fn view<R>(&self, name: &str, read: impl Fn(&[usize], &[u8]) -> R) -> R {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        read(tensor.shape(), tensor.data())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        self.view(name, |_, data| data.chunks(4).map(number).collect())
    }

    /// Row by row.
    fn integers(&self, name: &str) -> Vec<Vec<i64>> {
        let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        self.view(name, |shape, data| {
            let rows = data.chunks(8 * shape[1]);
            rows.map(|row| row.chunks(8).map(number).collect())
                .collect()
        })
    }

    /// The tokens of rows that a mask keeps.
    fn kept(&self, tokens: &[Vec<i64>], mask: &str) -> Vec<Vec<u32>> {
        let masks = self.integers(mask);
        let rows = tokens.iter().zip(&masks);
        let keep = |(row, mask): (&Vec<i64>, &Vec<i64>)| {
            let tokens = row.iter().zip(mask).filter(|(_, mask)| **mask == 1);
            tokens.map(|(token, _)| *token as u32).collect()
        };
        rows.map(keep).collect()
    }

    fn prompts(&self) -> Vec<Prompt> {
        let prompts = self.kept(&self.integers("prompt_ids"), "prompt_mask");
        let prompt = |tokens| Prompt {
            tokens,
            features: vec![],
        };
        prompts.into_iter().map(prompt).collect()
    }

    fn responses(&self) -> Responses {
        let width = self.integers("prompt_ids")[0].len();
        let rows = self.integers("input_ids").into_iter();
        let behind: Vec<Vec<i64>> = rows.map(|row| row[width..].to_vec()).collect();
        let mut responses = Responses::new();
        for (index, tokens) in self.kept(&behind, "completion_mask").iter().enumerate() {
            responses.push(index, tokens);
        }
        responses
    }

    /// The values of response tokens, one response after the other.
    fn by_token(&self, name: &str) -> Vec<f32> {
        let values = self.floats(name).into_iter();
        let mask = self.integers("completion_mask").concat();
        values
            .zip(mask)
            .filter(|(_, mask)| *mask == 1)
            .map(|(value, _)| value)
            .collect()
    }
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    // A NaN on either side is more than any tolerance.
    let worst = worst.fold(0.0, |worst: f32, d| if d <= worst { worst } else { d });
    assert!(worst <= tolerance, "{what}: {worst} apart");
}

#[test]
fn the_logits_of_every_position_are_those_of_transformers() {
    for model in MODELS {
        let transformer = load(&folder(model), 1 << 20).unwrap();
        let expected = Expected::of(model);
        let all = expected.kept(&expected.integers("input_ids"), "attention_mask");
        let vocabulary = transformer.config.vocabulary as usize;
        let width = expected.integers("input_ids")[0].len();
        let logits = expected.floats("logits");
        let masks = expected.integers("attention_mask");
        for (row, tokens) in all.iter().enumerate() {
            let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
            let tokens = torch::indices(&tokens, Device::Cpu).unwrap().unsqueeze(0);
            let hidden = hidden_states(&transformer.config, &transformer.weights, &tokens).unwrap();
            let head = &transformer.weights.head().tensor;
            let found = to_floats(&hidden.linear(head, None::<Tensor>).detach()).unwrap();
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
            let transformer = load(&folder(model), tokens_per_forward).unwrap();
            let scores = transformer.score(&prompts, &responses).unwrap();
            assert_close(&scores.logp, &expected.by_token("logp"), 1e-5, model);
            assert_close(&scores.entropy, &expected.by_token("entropy"), 1e-5, model);
            assert_eq!(scores, transformer.score(&prompts, &responses).unwrap());
        }
        // One at a time, in another order, and beside responses without tokens: the same bits.
        let single = load(&folder(model), 1).unwrap();
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
            let mut gradient = transformer.gradient().unwrap();
            gradient.values_mut().for_each(|array| *array /= 2.0);
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
                let found: Vec<f32> = gradient[name].iter().copied().collect();
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

/// A copy of a model's folder.
fn copied(model: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(folder(model).join(file), copy.path().join(file)).unwrap();
    }
    copy
}

/// Writes a model's tensors as they come out of `change`.
fn rewrite(folder: &Path, change: impl Fn(&str, &mut Dtype, &mut Vec<u8>)) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.iter().map(|(name, tensor)| {
        let (mut dtype, mut data) = (tensor.dtype(), tensor.data().to_vec());
        change(name, &mut dtype, &mut data);
        (name.to_string(), (tensor.shape().to_vec(), dtype, data))
    });
    let tensors: BTreeMap<_, _> = tensors.collect();
    let views = tensors.iter().map(|(name, (shape, dtype, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    serialize_to_file(views.collect::<Vec<_>>(), None, &path).unwrap();
}

/// Changes a key of a folder's config.
fn configure(folder: &Path, key: &str, value: Value) {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config[key] = value;
    fs::write(&path, config.to_string()).unwrap();
}

#[test]
fn configs_of_both_versions_say_the_same() {
    for model in MODELS {
        let read = |file| ModelConfig::read(&folder(model).join(file)).unwrap();
        assert_eq!(read("config.json"), read("config_v4.json"), "{model}");
    }
    let llama = ModelConfig::read(&folder("llama").join("config_v4.json")).unwrap();
    assert_eq!(llama.rope.scaling.unwrap().original_context, 64.0);
    assert_eq!(llama.rope.theta, 10_000.0);
}

#[test]
fn weights_in_several_files_are_those_of_one() {
    let copy = copied("qwen3");
    let path = copy.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let shard = |name: &str| format!("model-{}-of-2.safetensors", 1 + name.len() % 2);
    let mut shards: HashMap<String, Vec<(String, TensorView<'_>)>> = HashMap::new();
    let mut map = BTreeMap::new();
    for (name, tensor) in file.iter() {
        shards
            .entry(shard(name))
            .or_default()
            .push((name.to_string(), tensor));
        map.insert(name.to_string(), shard(name));
    }
    assert_eq!(shards.len(), 2);
    for (file, tensors) in shards {
        serialize_to_file(tensors, None, &copy.path().join(file)).unwrap();
    }
    fs::remove_file(&path).unwrap();
    let index = json!({ "metadata": {}, "weight_map": map });
    let index_path = copy.path().join("model.safetensors.index.json");
    fs::write(index_path, index.to_string()).unwrap();

    let expected = Expected::of("qwen3");
    let (prompts, responses) = (expected.prompts(), expected.responses());
    let whole = load(&folder("qwen3"), 64).unwrap();
    let whole = whole.score(&prompts, &responses).unwrap();
    let sharded = load(copy.path(), 64).unwrap();
    assert_eq!(sharded.score(&prompts, &responses).unwrap(), whole);

    fs::remove_file(copy.path().join(shard("a"))).unwrap();
    let missing = error_of(load(copy.path(), 64));
    assert!(
        missing.starts_with("the weights are missing: there is no "),
        "{missing}"
    );
    assert!(missing.contains("model-2-of-2.safetensors"), "{missing}");
}

#[test]
fn weights_in_bfloat16_are_read_as_float32() {
    let copy = copied("qwen2");
    rewrite(copy.path(), |_, dtype, data| {
        // The upper half of a float32 is a bfloat16, cut off.
        *dtype = Dtype::BF16;
        *data = data
            .chunks(4)
            .flat_map(|number| [number[2], number[3]])
            .collect();
    });
    let expected = Expected::of("qwen2");
    let cut = load(copy.path(), 64).unwrap();
    let scores = cut
        .score(&expected.prompts(), &expected.responses())
        .unwrap();
    // Eight bits of the weights are left: like the model's numbers, and not the same.
    let (found, expected) = (scores.logp, expected.by_token("logp"));
    assert_close(&found, &expected, 0.5, "bfloat16");
    assert_ne!(found, expected);
}

fn error_of<T>(result: Result<T, Diagnostics>) -> String {
    match result {
        Ok(_) => panic!("there is an error"),
        Err(error) => error[0].to_string(),
    }
}

#[test]
fn a_folder_that_does_not_fit_says_what_is_wrong() {
    type Change = fn(&Path);
    let cases: [(Change, &str); 13] = [
        (
            |f| fs::remove_file(f.join("config.json")).unwrap(),
            "it has no config.json",
        ),
        (
            |f| fs::remove_file(f.join("model.safetensors")).unwrap(),
            "the weights are missing",
        ),
        (
            |f| configure(f, "architectures", json!(["Qwen3MoeForCausalLM"])),
            "config.json: `Qwen3MoeForCausalLM` is an unknown architecture (did you mean `Qwen3ForCausalLM`?)",
        ),
        (
            |f| configure(f, "dtype", json!("float8_e4m3fn")),
            "the weights' dtype is `float8_e4m3fn`",
        ),
        (
            |f| configure(f, "hidden_act", json!("gelu")),
            "`hidden_act`: `hidden_act` is \"gelu\"",
        ),
        (|f| configure(f, "hidden_size", json!("48")), "expected u32"),
        (
            |f| configure(f, "num_key_value_heads", json!(4)),
            "6 query heads cannot share 4",
        ),
        (
            |f| configure(f, "rope_parameters", json!({ "rope_type": "yarn" })),
            "RoPE's type is `yarn`",
        ),
        (
            |f| configure(f, "intermediate_size", json!(80)),
            "found [96, 48]; expected [80, 48]",
        ),
        (
            |f| configure(f, "num_hidden_layers", json!(3)),
            "there is no tensor `model.layers.2.input_layernorm.weight` in ",
        ),
        (
            |f| configure(f, "vocab_size", json!(299)),
            "token `<|im_end|>` has the number 299; the model's vocabulary has 299",
        ),
        (
            |f| {
                rewrite(f, |name, dtype, data| {
                    if name == "model.norm.weight" {
                        *dtype = Dtype::I32;
                        data[0] = 1;
                    }
                });
            },
            "`model.norm.weight`: the weights' dtype is I32: expected float32, bfloat16, float16",
        ),
        (
            |f| {
                rewrite(f, |name, _, data| {
                    if name == "model.layers.1.mlp.up_proj.weight" {
                        data[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
                    }
                });
            },
            "`model.layers.1.mlp.up_proj.weight`: the weights have a NaN or an infinity",
        ),
    ];
    for (change, expected) in cases {
        let copy = copied("qwen2");
        change(copy.path());
        let found = error_of(load(copy.path(), 64));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn damaged_weights_say_how() {
    let cut: fn(&[u8]) -> Vec<u8> = |bytes| bytes[..bytes.len() - 1].to_vec();
    let header: fn(&[u8]) -> Vec<u8> = |bytes| bytes[..100].to_vec();
    let empty: fn(&[u8]) -> Vec<u8> = |_| vec![];
    let unknown: fn(&[u8]) -> Vec<u8> = |bytes| {
        let mut bytes = bytes.to_vec();
        let place = bytes
            .windows(5)
            .position(|window| window == b"\"F32\"")
            .unwrap();
        bytes[place..place + 5].copy_from_slice(b"\"X32\"");
        bytes
    };
    let cases = [
        (cut, "it is cut off"),
        (header, "it is cut off"),
        (empty, "it has 0 bytes"),
        (unknown, "the weights' dtype is \"X32\""),
    ];
    for (damage, expected) in cases {
        let copy = copied("llama");
        let path = copy.path().join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, damage(&bytes)).unwrap();
        let found = error_of(load(copy.path(), 64));
        assert!(
            found.contains("model.safetensors") && found.contains(expected),
            "{found}"
        );
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
    assert!(model.gradient().unwrap().is_empty());
    let empty = model.score(&[prompt(&[])], &responses);
    assert!(error_of(empty).starts_with("prompt 0 is empty"));
    let unknown = model.score(&[prompt(&[312])], &responses);
    assert_eq!(
        error_of(unknown),
        "prompt 0 has the token 312; the vocabulary has 312"
    );
    responses.push(1, &[2]);
    let without = model.score(&prompts, &responses);
    assert_eq!(
        error_of(without),
        "response 1 belongs to prompt 1; the batch has 1"
    );
}
