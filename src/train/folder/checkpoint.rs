//! A checkpoint: one safetensors file with all that a run needs to go on to the same numbers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use hmac_sha256::Hash as Sha256;
use ndarray::ArrayD;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CHECKPOINTS, KeptVersion, make_folder, sync_folder};
use crate::batch::Replacement;
use crate::diagnostic::Diagnostics;
use crate::script::{Host, Recipe, State};
use crate::train::error::{damaged, io};
use crate::train::policy::Arrays;
use crate::train::trainer::Snapshot;

const FORMAT: &str = "advlab checkpoint 1";
/// Keys of the file's header: the format, what is not an array, and the hash of everything.
const KEYS: [&str; 3] = ["format", "run", "sha256"];
const POLICY: &str = "policy/";
const REFERENCE: &str = "reference/";

/// All of a snapshot that is not an array.
#[derive(Serialize, Deserialize)]
struct Progress {
    step: u64,
    recipe: LeftState,
    loss_state: Value,
    fallbacks: Vec<LeftState>,
    is_failed: bool,
}

#[derive(Serialize, Deserialize)]
struct LeftState {
    #[serde(flatten)]
    kept: KeptVersion,
    state: Value,
}

impl Snapshot {
    /// Writes the checkpoint to the run's folder, and removes all but the last `keep`.
    pub(in crate::train) fn write(&self, run: &Path, keep: usize) -> Result<PathBuf, Diagnostics> {
        let folder = run.join(CHECKPOINTS.folder);
        make_folder(&folder)?;
        let path = CHECKPOINTS.path(run, self.step);
        let progress = self.progress(run)?;
        let bytes = self.to_bytes(json!(progress).to_string());
        let bytes = bytes.map_err(|error| damaged(&path, error.to_string()))?;
        Replacement::write(&path, &bytes)?;
        sync_folder(&folder)?;
        CHECKPOINTS.remove_old(run, keep)?;
        Ok(path)
    }

    fn progress(&self, run: &Path) -> Result<Progress, Diagnostics> {
        let kept = |recipe: &Recipe, state: &State| {
            Ok::<_, Diagnostics>(LeftState {
                kept: KeptVersion::keep(run, recipe)?,
                state: state.to_json(),
            })
        };
        let fallbacks = self.fallbacks.iter();
        Ok(Progress {
            step: self.step,
            recipe: kept(&self.recipe, &self.state)?,
            loss_state: self.loss_state.to_json(),
            fallbacks: fallbacks
                .map(|(recipe, left)| kept(recipe, left))
                .collect::<Result<_, _>>()?,
            is_failed: self.is_failed,
        })
    }

    fn to_bytes(&self, progress: String) -> Result<Vec<u8>, SafeTensorError> {
        let mut arrays = Vec::new();
        for (group, own) in [(POLICY, &self.policy), (REFERENCE, &self.reference)] {
            for (name, array) in own {
                let bytes: Vec<u8> = array.iter().flat_map(|value| value.to_le_bytes()).collect();
                arrays.push((format!("{group}{name}"), array.shape(), bytes));
            }
        }
        let named = arrays.iter().map(|(name, _, bytes)| (&**name, &**bytes));
        let hash = hash(&progress, named);
        let values = [FORMAT.to_string(), progress, hash];
        let metadata: HashMap<String, String> =
            KEYS.map(str::to_string).into_iter().zip(values).collect();
        let views = arrays.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes)?;
            Ok::<_, SafeTensorError>((name, view))
        });
        serialize(views.collect::<Result<Vec<_>, _>>()?, Some(metadata))
    }

    fn read(run: &Path, path: &Path, host: &Host) -> Result<Snapshot, Diagnostics> {
        let bytes = fs::read(path).map_err(io("read", path))?;
        let unreadable = |error: SafeTensorError| damaged(path, error.to_string());
        let file = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(unreadable)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let [format, progress, expected] =
            KEYS.map(|key| metadata.get(key).map_or("", String::as_str));
        if format != FORMAT {
            return Err(damaged(path, format!("it is not an {FORMAT}")));
        }
        let mut arrays = file.tensors();
        arrays.sort_by(|(a, _), (b, _)| a.cmp(b));
        let named = arrays.iter().map(|(name, view)| (&**name, view.data()));
        if hash(progress, named) != expected {
            let what = "its contents do not have the hash that it states";
            return Err(damaged(path, what));
        }
        let group = |prefix: &str| -> Arrays {
            let own = arrays.iter().filter_map(|(name, view)| {
                Some((name.strip_prefix(prefix)?.to_string(), array(view)?))
            });
            own.collect()
        };
        let progress: Progress =
            serde_json::from_str(progress).map_err(|error| damaged(path, error.to_string()))?;
        let state = |state: &Value| {
            State::from_json(state).map_err(|error| damaged(path, error.to_string()))
        };
        let load = |left: &LeftState| {
            let recipe = left.kept.load(run, host)?;
            Ok::<_, Diagnostics>((recipe, state(&left.state)?))
        };
        let (recipe, own_state) = load(&progress.recipe)?;
        let fallbacks = progress.fallbacks.iter().map(load);
        Ok(Snapshot {
            step: progress.step,
            policy: group(POLICY),
            reference: group(REFERENCE),
            recipe,
            state: own_state,
            loss_state: state(&progress.loss_state)?,
            fallbacks: fallbacks.collect::<Result<_, _>>()?,
            is_failed: progress.is_failed,
        })
    }

    /// The newest checkpoint that can be read and is not after `step`, and the errors of newer ones.
    pub(in crate::train) fn newest(
        run: &Path,
        step: u64,
        host: &Host,
    ) -> Result<(Option<Snapshot>, Vec<String>), Diagnostics> {
        let mut wrong = Vec::new();
        for (own, path) in CHECKPOINTS.all(run)?.into_iter().rev() {
            if own > step {
                let path = path.display();
                wrong.push(format!("{path}: the metrics end at step {step}, before it"));
                continue;
            }
            match Snapshot::read(run, &path, host) {
                Ok(snapshot) => return Ok((Some(snapshot), wrong)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        Ok((None, wrong))
    }
}

fn hash<'a>(progress: &str, arrays: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(progress.as_bytes());
    for (name, bytes) in arrays {
        add(name.as_bytes());
        add(bytes);
    }
    let digits = hash.finalize();
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn array(view: &TensorView<'_>) -> Option<ArrayD<f32>> {
    let values = view.data().as_chunks().0.iter();
    let values = values.map(|bytes| f32::from_le_bytes(*bytes)).collect();
    ArrayD::from_shape_vec(view.shape(), values).ok()
}
