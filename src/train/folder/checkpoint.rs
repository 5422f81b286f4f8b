//! A checkpoint: one safetensors file with all that a run needs to go on to the same numbers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use hmac_sha256::Hash as Sha256;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde_json::{Value, json};

use super::scripts::Scripts;
use super::{make_folder, sync_folder};
use crate::batch::Replacement;
use crate::script::{Host, Recipe, State};
use crate::train::error::TrainError;
use crate::train::policy::{self, NamedArray};
use crate::train::trainer::Snapshot;

pub(super) const FOLDER: &str = "checkpoints";
const FORMAT: &str = "advlab checkpoint 1";
/// Keys of the file's header: the format, what is not an array, and the hash of everything.
const KEYS: [&str; 3] = ["format", "run", "sha256"];
const POLICY: &str = "policy/";
const REFERENCE: &str = "reference/";

/// A snapshot on its way to or from a file.
#[derive(Debug)]
pub(in crate::train) struct Checkpoint {
    pub(in crate::train) snapshot: Snapshot,
    /// Whether the run ended here because its only version failed at this step.
    pub(in crate::train) is_failed: bool,
}

impl Checkpoint {
    /// Writes the checkpoint to the run's folder, and removes all but the last `keep`.
    pub(in crate::train) fn write(&self, run: &Path, keep: usize) -> Result<PathBuf, TrainError> {
        let folder = run.join(FOLDER);
        make_folder(&folder)?;
        let path = folder.join(format!("{:06}.safetensors", self.snapshot.step));
        Replacement::write(&path, &self.to_bytes(&Scripts::of(run), &path)?)?;
        sync_folder(&folder)?;
        for old in all(run)?.into_iter().skip(keep) {
            // One too many does no harm.
            let _ = fs::remove_file(old.path);
        }
        Ok(path)
    }

    fn to_bytes(&self, scripts: &Scripts, path: &Path) -> Result<Vec<u8>, TrainError> {
        let Snapshot {
            policy, reference, ..
        } = &self.snapshot;
        let arrays: Vec<(String, &NamedArray, Vec<u8>)> =
            [(POLICY, policy), (REFERENCE, reference)]
                .into_iter()
                .flat_map(|(prefix, state)| {
                    state.iter().map(move |(name, array)| {
                        let values = array.values.iter().flat_map(|value| value.to_le_bytes());
                        (format!("{prefix}{name}"), array, values.collect())
                    })
                })
                .collect();
        let run = self.run(scripts)?.to_string();
        let hash = hash(
            &run,
            arrays
                .iter()
                .map(|(name, _, bytes)| (name.as_str(), &bytes[..])),
        );
        let metadata: HashMap<String, String> = KEYS
            .into_iter()
            .map(str::to_string)
            .zip([FORMAT.to_string(), run, hash])
            .collect();
        let views: Result<Vec<(String, TensorView)>, _> = arrays
            .iter()
            .map(|(name, array, bytes)| {
                let view = TensorView::new(Dtype::F32, array.shape.clone(), bytes)?;
                Ok((name.clone(), view))
            })
            .collect();
        views
            .and_then(|views| serialize(views, Some(metadata)))
            .map_err(|error: safetensors::SafeTensorError| damaged(path, error.to_string()))
    }

    /// What is not an array.
    fn run(&self, scripts: &Scripts) -> Result<Value, TrainError> {
        let version = |recipe: &Recipe, state: &State| {
            Ok::<_, TrainError>(json!({
                "script": scripts.keep(recipe)?,
                "version": recipe.version().as_str(),
                "state": state.to_json(),
            }))
        };
        let Snapshot {
            step,
            recipe,
            state,
            loss_state,
            fallbacks,
            ..
        } = &self.snapshot;
        let fallbacks = fallbacks.iter().map(|(recipe, left)| version(recipe, left));
        Ok(json!({
            "step": step,
            "recipe": version(recipe, state)?,
            "loss_state": loss_state.to_json(),
            "fallbacks": fallbacks.collect::<Result<Vec<_>, _>>()?,
            "is_failed": self.is_failed,
        }))
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// [`TrainError::Damaged`] where it is not all there, or not what was written.
    pub(in crate::train) fn read(
        run: &Path,
        path: &Path,
        host: &Host,
    ) -> Result<Checkpoint, TrainError> {
        let bytes = fs::read(path).map_err(TrainError::io("read", path))?;
        let unreadable = |error: safetensors::SafeTensorError| damaged(path, error.to_string());
        let file = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(unreadable)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let key = |key: &str| metadata.get(key).map_or("", String::as_str);
        if key(KEYS[0]) != FORMAT {
            return Err(damaged(path, format!("it is no {FORMAT}")));
        }
        let mut arrays = file.tensors();
        arrays.sort_by(|(a, _), (b, _)| a.cmp(b));
        let named = arrays
            .iter()
            .map(|(name, view)| (name.as_str(), view.data()));
        if hash(key(KEYS[1]), named) != key(KEYS[2]) {
            return Err(damaged(
                path,
                "its contents do not have the hash that it states",
            ));
        }
        let run_values: Value =
            serde_json::from_str(key(KEYS[1])).map_err(|error| damaged(path, error.to_string()))?;
        let group = |prefix: &str| {
            let own = arrays.iter().filter_map(|(name, view)| {
                Some((name.strip_prefix(prefix)?.to_string(), array(view)))
            });
            own.collect::<policy::State>()
        };
        let reader = Reader {
            path,
            scripts: &Scripts::of(run),
            host,
        };
        let (recipe, state) = reader.version(&run_values["recipe"])?;
        let fallbacks = run_values["fallbacks"].as_array().into_iter().flatten();
        Ok(Checkpoint {
            snapshot: Snapshot {
                step: run_values["step"].as_u64().unwrap_or(0),
                policy: group(POLICY),
                reference: group(REFERENCE),
                recipe,
                state,
                loss_state: reader.state(&run_values["loss_state"])?,
                fallbacks: fallbacks
                    .map(|version| reader.version(version))
                    .collect::<Result<_, _>>()?,
            },
            is_failed: run_values["is_failed"] == true,
        })
    }

    /// The newest checkpoint that can be read and lies at or before `step`; with what is wrong with newer ones.
    pub(in crate::train) fn newest(
        run: &Path,
        step: u64,
        host: &Host,
    ) -> Result<(Checkpoint, Vec<String>), TrainError> {
        let mut wrong = Vec::new();
        for found in all(run)? {
            if found.step > step {
                wrong.push(format!(
                    "{}: the metrics end at step {step}, before it",
                    found.path.display()
                ));
                continue;
            }
            match Checkpoint::read(run, &found.path, host) {
                Ok(checkpoint) => return Ok((checkpoint, wrong)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        Err(TrainError::NoCheckpoint {
            folder: run.to_path_buf(),
            why: wrong.iter().map(|why| format!("\n  {why}")).collect(),
        })
    }
}

/// Reads the versions that a checkpoint names.
struct Reader<'a> {
    path: &'a Path,
    scripts: &'a Scripts,
    host: &'a Host,
}

impl Reader<'_> {
    fn version(&self, value: &Value) -> Result<(Recipe, State), TrainError> {
        let text = |key: &str| {
            let text = value[key].as_str();
            text.ok_or_else(|| damaged(self.path, format!("it names no {key}")))
        };
        let recipe = self
            .scripts
            .load(self.host, text("script")?, text("version")?)?;
        Ok((recipe, self.state(&value["state"])?))
    }

    fn state(&self, value: &Value) -> Result<State, TrainError> {
        State::from_json(value).map_err(|error| damaged(self.path, error.to_string()))
    }
}

/// A checkpoint's file.
pub(super) struct Found {
    path: PathBuf,
    step: u64,
}

/// The checkpoints of a run, the newest first.
fn all(run: &Path) -> Result<Vec<Found>, TrainError> {
    let folder = run.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(TrainError::io("read", folder)(error)),
    };
    let found = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let step = name.to_str()?.strip_suffix(".safetensors")?.parse().ok()?;
        let path = entry.path();
        Some(Found { path, step })
    });
    let mut found: Vec<Found> = found.collect();
    found.sort_by_key(|found| std::cmp::Reverse(found.step));
    Ok(found)
}

fn hash<'a>(run: &str, arrays: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(run.as_bytes());
    for (name, bytes) in arrays {
        add(name.as_bytes());
        add(bytes);
    }
    let digits = hash.finalize();
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn array(view: &TensorView<'_>) -> NamedArray {
    let values = view.data().as_chunks().0.iter();
    NamedArray {
        shape: view.shape().to_vec(),
        values: values.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    }
}

fn damaged(path: &Path, what: impl Into<String>) -> TrainError {
    TrainError::Damaged {
        path: path.to_path_buf(),
        what: what.into(),
    }
}
