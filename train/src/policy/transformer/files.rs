//! The files of a model: the folder from which it is loaded, a checkpoint with the optimizer, and an export.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tch::Tensor;

use super::Transformer;
use super::config::{load, views};
use super::optimizer::OptimizerState;
use crate::error::{Result, damaged, io, read_json};
use crate::policy::tensor_file::{TensorFile, write};
use crate::policy::{POLICY, REFERENCE};
use crate::torch::to_vec;
use advlab::diagnostic::Diagnostic;
use advlab::regular_file;
use advlab::replace::Replacement;

/// The key of the number of updates, in the metadata of a checkpoint.
const UPDATES: &str = "updates";
/// The prefixes that turn the name of a weight into the names of the weight's moments.
const FIRST: &str = "adamw.first.";
const SECOND: &str = "adamw.second.";

/// The files that an export copies from the folder of the original model.
const COMPANIONS: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Opens the weights of a folder: `model.safetensors`, or the files that `model.safetensors.index.json` names.
pub(super) fn open(folder: &Path) -> Result<Vec<TensorFile>> {
    let index = folder.join("model.safetensors.index.json");
    let mut files = BTreeSet::new();
    if index.exists() {
        files.extend(read_json::<Index>(&index)?.weight_map.into_values());
    }
    if files.is_empty() {
        files.insert("model.safetensors".to_string());
    }
    let open = |file: &String| {
        let path = folder.join(file);
        if path.exists() {
            return TensorFile::open(&path);
        }
        let message = format!("the weights are missing: there is no {}", path.display());
        let help = "a model's folder has `model.safetensors`, or all the files that its index names; `save_pretrained` of transformers writes them, also for a model that was loaded from an older format";
        Err(Diagnostic::error(message).with_help(help).into())
    };
    files.iter().map(open).collect()
}

fn values(tensor: &Tensor) -> Result<Cow<'_, [f32]>> {
    Ok(to_vec(tensor)?.into())
}

impl Transformer {
    /// Writes the weights, the optimizer and the reference, if there is one, to a checkpoint's folder.
    pub(super) fn write_state(&self, folder: &Path) -> Result<()> {
        let state = &self.state;
        let mut tensors = Vec::new();
        for (prefix, all) in [
            ("", &state.weights),
            (FIRST, &state.first),
            (SECOND, &state.second),
        ] {
            for (name, shape, view) in views(&self.layout, all)? {
                tensors.push((format!("{prefix}{name}"), shape, view));
            }
        }
        let metadata = json!({ "format": "pt", UPDATES: state.updates.to_string() });
        write(&folder.join(POLICY), metadata, &tensors, values)?;
        if let Some(reference) = &self.reference {
            let tensors = views(&self.layout, reference)?;
            let metadata = json!({ "format": "pt" });
            write(&folder.join(REFERENCE), metadata, &tensors, values)?;
        }
        Ok(())
    }

    pub(super) fn read_state(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join(POLICY);
        let file = TensorFile::open(&path)?;
        let updates = file.metadata(UPDATES).and_then(|text| text.parse().ok());
        let Some(updates) = updates else {
            return Err(damaged(&path, "it is not the state of a transformer"));
        };
        let read = |file: &TensorFile, prefix: &str| {
            load(&self.layout, self.options.device, |name, shape| {
                file.read(&format!("{prefix}{name}"), shape)
            })
        };
        self.gradient.clear();
        // The old weights are freed before the new weights are allocated.
        self.state = OptimizerState::default();
        self.state.weights = read(&file, "")?;
        if updates > 0 {
            self.state.updates = updates;
            self.state.first = read(&file, FIRST)?;
            self.state.second = read(&file, SECOND)?;
        }
        if self.reference.take().is_some() {
            self.reference = Some(read(&TensorFile::open(&folder.join(REFERENCE))?, "")?);
        }
        Ok(())
    }

    /// Writes a folder that transformers can open. If the model was loaded from a folder, that folder's config, tokenizer,
    /// generation config and chat template are copied.
    pub(super) fn write_model(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(io("make", folder))?;
        let mut config: Map<String, Value> = match &self.origin {
            Some(origin) => read_json(&origin.join("config.json"))?,
            None => self.config.to_json(),
        };
        // The dtype is replaced, because otherwise transformers would assume the type that the original config names. Older
        // versions of transformers have another key for the type.
        config.insert("dtype".to_string(), "float32".into());
        config
            .entry("torch_dtype")
            .and_modify(|dtype| *dtype = "float32".into());
        for file in COMPANIONS {
            let from = self.origin.as_ref().map(|origin| origin.join(file));
            if let Some(from) = from.filter(|from| from.exists()) {
                let bytes = regular_file::read(&from).map_err(io("read", &from))?;
                Replacement::write(&folder.join(file), &bytes)?;
            }
        }
        let tensors = views(&self.layout, &self.state.weights)?;
        let path = folder.join("model.safetensors");
        write(&path, json!({ "format": "pt" }), &tensors, values)?;
        let text = format!("{:#}\n", Value::Object(config));
        Replacement::write(&folder.join("config.json"), text.as_bytes())
    }
}
