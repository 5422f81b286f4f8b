//! The bytes of a model: the safetensors files of a folder, a state with its optimizer, random weights, and an export.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor, no_grad_guard};

use super::Transformer;
use super::config::DTYPES;
use super::optimizer::Optimizer;
use super::weights::Source;
use crate::error::{self, damaged, read_json};
use crate::torch::{self, TorchError, floats, room};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;
use advlab::random::{RandomStream, StreamKey};

/// The number of updates so far, in a file's metadata.
const UPDATES: &str = "updates";
/// What stands before a weight's name, for the moving averages of its gradient and of the square.
const FIRST: &str = "adamw.first.";
const SECOND: &str = "adamw.second.";

/// What goes along from the folder that a model came from, if it is there.
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

impl Transformer {
    /// Writes the weights, and the optimizer once there were updates, to one safetensors file; a [`Transformer::frozen`]
    /// one has only weights. The file that was there stays until all is written. What was accumulated is not in it, and
    /// no checksum: a run's checkpoint has one of each file.
    ///
    /// # Errors
    /// [`Diagnostics`] if it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Diagnostics> {
        let updates = self.optimizer.updates.to_string();
        write(
            path,
            &json!({ "format": "pt", UPDATES: updates }),
            &self.stored()?,
        )
    }

    /// Weights and optimizer of a file that [`Transformer::save`] wrote, for a model of these sizes: it goes on to the same
    /// numbers. After an error the model is to be restored from another file, or dropped.
    ///
    /// # Errors
    /// [`Diagnostics`] if it cannot be read, is cut off, or is of another model; and if memory does not suffice.
    pub fn restore(&mut self, path: &Path) -> Result<(), Diagnostics> {
        let file = Tensors::saved(path)?;
        let updates = file.metadata(UPDATES).and_then(|text| text.parse().ok());
        let Some(updates) = updates else {
            return Err(damaged(path, "it is not the state of a transformer"));
        };
        let _guard = no_grad_guard();
        self.gradient.clear();
        // The old one goes before the new one comes.
        self.optimizer = Optimizer::default();
        if updates > 0 {
            let parameters: Vec<&Tensor> = self.weights.parameters().map(|p| &p.tensor).collect();
            self.optimizer = Optimizer::begin(updates, &parameters)?;
        }
        for (name, mut tensor) in self.stored()? {
            let stored = file.read(&name, &tensor.size())?;
            tensor.f_copy_(&stored).map_err(TorchError::from)?;
        }
        Ok(())
    }

    /// All that a file has, by name: views, so that writing to them changes the model.
    fn stored(&self) -> torch::Result<Vec<(String, Tensor)>> {
        let mut stored = self.weights.split()?;
        let averages = &self.optimizer.averages;
        for (parameter, (first, second)) in self.weights.parameters().zip(averages) {
            for (prefix, tensor) in [(FIRST, first), (SECOND, second)] {
                let parts = parameter.split(tensor)?.into_iter();
                stored.extend(parts.map(|(name, part)| (format!("{prefix}{name}"), part)));
            }
        }
        Ok(stored)
    }

    /// Writes the model to a folder as transformers has it: `config.json` and `model.safetensors`. With `origin`, the folder
    /// that the model came from, the config is that one's, and tokenizer, generation config and chat template go along.
    ///
    /// # Errors
    /// [`Diagnostics`] if a file cannot be read or written.
    pub fn export(&self, folder: &Path, origin: Option<&Path>) -> Result<(), Diagnostics> {
        fs::create_dir_all(folder).map_err(error::io("make", folder))?;
        let mut config = match origin {
            Some(origin) => read_json(&origin.join("config.json"))?,
            None => self.config.to_json(),
        };
        let dtype = "float32";
        // Without it, transformers would take the weights for what the config says.
        config.insert("dtype".to_string(), dtype.into());
        if let Some(version_4) = config.get_mut("torch_dtype") {
            *version_4 = dtype.into();
        }
        for file in COMPANIONS {
            if let Some(from) = origin.map(|origin| origin.join(file))
                && from.exists()
            {
                let bytes = advlab::regular_file::read(&from).map_err(error::io("read", &from))?;
                Replacement::write(&folder.join(file), &bytes)?;
            }
        }
        let weights = folder.join("model.safetensors");
        write(&weights, &json!({ "format": "pt" }), &self.weights.split()?)?;
        let text = format!("{:#}\n", Value::Object(config));
        Replacement::write(&folder.join("config.json"), text.as_bytes())
    }
}

/// The most that the format allows for a header, bytes.
const HEADER: u64 = 100_000_000;

/// One safetensors file, open.
struct Shard {
    path: PathBuf,
    file: File,
    /// Where the tensors begin, bytes.
    data: u64,
    tensors: Metadata,
}

/// The tensors of a folder, by name.
pub(super) struct Tensors {
    shards: Vec<Shard>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Tensors {
    /// Of `model.safetensors`, or of the files that `model.safetensors.index.json` names.
    pub(super) fn open(folder: &Path) -> Result<Self, Diagnostics> {
        let index = folder.join("model.safetensors.index.json");
        let mut files = vec!["model.safetensors".to_string()];
        if index.exists() {
            files = read_json::<Index>(&index)?
                .weight_map
                .into_values()
                .collect();
            files.sort();
            files.dedup();
        }
        let shards = files.iter().map(|file| {
            let path = folder.join(file);
            if !path.exists() {
                let message = format!("the weights are missing: there is no {}", path.display());
                let help = "a model's folder has `model.safetensors`, or all the files that its index names; `save_pretrained` of transformers writes them, also from older kinds";
                return Err(Diagnostic::error(message).with_help(help).into());
            }
            Shard::open(path)
        });
        let shards = shards.collect::<Result<_, Diagnostics>>()?;
        Ok(Tensors { shards })
    }

    /// Of one file.
    pub(super) fn saved(path: &Path) -> Result<Self, Diagnostics> {
        let shards = vec![Shard::open(path.to_path_buf())?];
        Ok(Tensors { shards })
    }

    /// What the metadata says of a key.
    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        let mut all = self.shards.iter();
        all.find_map(|shard| Some(shard.tensors.metadata().as_ref()?.get(key)?.as_str()))
    }
}

impl Source for Tensors {
    /// # Errors
    /// [`Diagnostics`] if it is missing, of another shape or kind, or has a NaN or an infinity.
    fn read(&self, name: &str, shape: &[i64]) -> Result<Tensor, Diagnostics> {
        let mut shards = self.shards.iter();
        let found = shards.find_map(|shard| Some((shard, shard.tensors.info(name)?)));
        let Some((shard, info)) = found else {
            let paths = self.shards.iter().map(|shard| &shard.path);
            let files: Vec<_> = paths.map(|path| path.display().to_string()).collect();
            let message = format!("there is no tensor `{name}` in {}", files.join(", "));
            let help = "config.json is that of another model, or the file is of another kind of checkpoint";
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        shard.read(name, info, shape)
    }
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, Diagnostics> {
        let no_read = || error::io("read", &path);
        let mut file = advlab::regular_file::open(&path).map_err(no_read())?;
        let length = file.metadata().map_err(no_read())?.len();
        let mut size = [0; 8];
        let rest = length.checked_sub(8).ok_or_else(|| {
            damaged(
                &path,
                format!("it has {length} bytes; it is cut off, or no safetensors file"),
            )
        })?;
        file.read_exact(&mut size).map_err(no_read())?;
        let size = u64::from_le_bytes(size);
        if size > rest.min(HEADER) {
            let message = format!(
                "its header should have {size} bytes, and {rest} follow; it is cut off, or no safetensors file"
            );
            return Err(damaged(&path, message));
        }
        let mut header = Vec::new();
        (&file)
            .take(size)
            .read_to_end(&mut header)
            .map_err(no_read())?;
        let tensors = header_of(&header).map_err(|problem| problem.in_file(&path))?;
        let (found, expected) = (rest - size, tensors.data_len() as u64);
        if found != expected {
            let message = format!(
                "its tensors should have {expected} bytes, and {found} are there; it is cut off"
            );
            return Err(damaged(&path, message));
        }
        Ok(Shard {
            path,
            file,
            data: 8 + size,
            tensors,
        })
    }

    fn read(&self, name: &str, info: &TensorInfo, shape: &[i64]) -> Result<Tensor, Diagnostics> {
        let wrong =
            |problem: Diagnostic| Diagnostics::from(problem.in_file(&self.path).in_field(name));
        let found: Vec<i64> = info.shape.iter().map(|&size| size as i64).collect();
        if found != shape {
            let problem = Diagnostic::error("the shape is not what config.json says");
            let problem = problem
                .found(format!("{found:?}"))
                .expected(format!("{shape:?}"));
            return Err(wrong(problem));
        }
        let kind = match info.dtype {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            other => {
                let problem = Diagnostic::error(format!("the weights' dtype is {other:?}"));
                return Err(wrong(problem.expected(DTYPES.join(", "))));
            }
        };
        let (start, end) = info.data_offsets;
        let mut bytes = room(end - start)?;
        bytes.resize(end - start, 0);
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(self.data + start as u64));
        let read = read.and_then(|_| file.read_exact(&mut bytes));
        read.map_err(error::io("read", &self.path))?;
        let tensor = || -> torch::Result<(Tensor, bool)> {
            let tensor = Tensor::f_from_data_size(&bytes, &found, kind)?.f_to_kind(Kind::Float)?;
            let is_finite = tensor.f_isfinite()?.f_all()?.f_int64_value(&[])? == 1;
            Ok((tensor, is_finite))
        };
        match tensor()? {
            (tensor, true) => Ok(tensor),
            (_, false) => Err(wrong(Diagnostic::error(
                "the weights have a NaN or an infinity",
            ))),
        }
    }
}

/// A header's tensors, where they lie one behind the other. One of an unknown kind makes the crate refuse the whole header,
/// so it is looked for where that happens.
fn header_of(header: &[u8]) -> Result<Metadata, Diagnostic> {
    serde_json::from_slice(header).map_err(|error| {
        let entries: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap_or_default();
        let unknown = entries.iter().find_map(|(name, entry)| {
            let dtype = entry.get("dtype")?;
            let is_known = serde_json::from_value::<Dtype>(dtype.clone()).is_ok();
            (!is_known).then_some((name, dtype))
        });
        match unknown {
            Some((name, dtype)) => Diagnostic::error(format!("the weights' dtype is {dtype}"))
                .in_field(name)
                .expected(DTYPES.join(", ")),
            None => Diagnostic::error(format!("its header is wrong: {error}")),
        }
    })
}

/// The standard deviation of a matrix's weights, which is transformers' default.
const STD: f64 = 0.02;

/// Matrices are normal with the standard deviation [`STD`], norms 1 and biases 0.
pub(super) struct Initial {
    key: StreamKey,
    /// The stream of the next tensor.
    next: Cell<u64>,
}

impl Initial {
    pub(super) fn new(key: StreamKey) -> Self {
        let next = Cell::new(0);
        Initial { key, next }
    }
}

impl Source for Initial {
    fn read(&self, name: &str, shape: &[i64]) -> Result<Tensor, Diagnostics> {
        let count = shape.iter().product::<i64>() as usize;
        let mut stream = self.key.stream(self.next.replace(self.next.get() + 1));
        let mut values: Vec<f32> = room(count)?;
        match shape {
            [_] if name.ends_with(".bias") => values.resize(count, 0.0),
            [_] => values.resize(count, 1.0),
            _ => values.extend((0..count).map(|_| (STD * normal(&mut stream)) as f32)),
        }
        let tensor = floats(&values, Device::Cpu)?.f_view(shape);
        Ok(tensor.map_err(TorchError::from)?)
    }
}

/// A number of the standard normal distribution, by Box and Muller.
fn normal(stream: &mut RandomStream) -> f64 {
    // 1 - uniform is never 0.
    let radius = (-2.0 * (1.0 - stream.uniform()).ln()).sqrt();
    radius * (TAU * stream.uniform()).cos()
}

/// Bytes that are written at a time, unless a row has more.
const BLOCK: usize = 1 << 24;

/// Replaces the file at `path` by one with these tensors, in this order. Where it fails, the file that was there stays.
fn write(path: &Path, metadata: &Value, tensors: &[(String, Tensor)]) -> Result<(), Diagnostics> {
    let _guard = no_grad_guard();
    let mut file = Replacement::new(path)?;
    put(&mut file, &header(metadata, tensors))?;
    let mut bytes = Vec::new();
    for (_, tensor) in tensors {
        for block in blocks(tensor) {
            let block = block.map_err(TorchError::from)?;
            let count = block.numel();
            bytes.resize(4 * count, 0);
            let copied = block.f_copy_data_u8(&mut bytes, count);
            copied.map_err(TorchError::from)?;
            put(&mut file, &bytes)?;
        }
    }
    file.finish()
}

fn put(file: &mut Replacement, bytes: &[u8]) -> Result<(), Diagnostics> {
    let written = file.write_all(bytes);
    written.map_err(|error| file.error(&error).into())
}

/// The bytes before the tensors: their length, the entries in the order of the tensors, and spaces up to a multiple of 8.
fn header(metadata: &Value, tensors: &[(String, Tensor)]) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_string(), metadata.clone());
    let mut end = 0;
    for (name, tensor) in tensors {
        let start = end;
        end += 4 * tensor.numel();
        let entry = json!({ "dtype": "F32", "shape": tensor.size(), "data_offsets": [start, end] });
        entries.insert(name.clone(), entry);
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let length = (text.len() as u64).to_le_bytes();
    [&length[..], &text].concat()
}

/// Some rows of a tensor at a time.
fn blocks(tensor: &Tensor) -> impl Iterator<Item = Result<Tensor, tch::TchError>> {
    let rows = tensor.size()[0];
    let row = 4 * tensor.numel() / rows.max(1) as usize;
    let at_once = (BLOCK / row.max(1)).max(1) as i64;
    let starts = (0..rows).step_by(at_once as usize);
    starts.map(move |start| tensor.f_narrow(0, start, at_once.min(rows - start)))
}
