//! A checkpoint: one safetensors file with all that a run needs to go on to the same numbers.

use std::fs;
use std::path::Path;

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

const FORMAT: &str = "advlab checkpoint 1";
/// Keys of the file's header: the format, what is not an array, and the hash of everything.
const KEYS: [&str; 3] = ["format", "run", "sha256"];
const POLICY: &str = "policy/";
const REFERENCE: &str = "reference/";

/// All that a run needs to go on to the same numbers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// The step that comes next.
    pub(crate) step: u64,
    pub(crate) recipe: LeftState,
    pub(crate) loss_state: Value,
    /// Versions to fall back to, oldest first.
    pub(crate) fallbacks: Vec<LeftState>,
    /// Whether the run ended here because every version failed at this step.
    pub(crate) is_failed: bool,
    /// The policy with its optimizer.
    #[serde(skip)]
    pub(crate) policy: Arrays,
    /// The parameters of the reference policy.
    #[serde(skip)]
    pub(crate) reference: Arrays,
}

/// A version with the state that it left.
#[derive(Serialize, Deserialize)]
pub(crate) struct LeftState {
    #[serde(flatten)]
    pub(crate) kept: KeptVersion,
    state: Value,
}

impl LeftState {
    pub(crate) fn keep(
        run: &Path,
        recipe: &Recipe,
        state: &State,
    ) -> Result<LeftState, Diagnostics> {
        Ok(LeftState {
            kept: KeptVersion::keep(run, recipe)?,
            state: state.to_json(),
        })
    }

    pub(crate) fn load(&self, run: &Path, host: &Host) -> Result<(Recipe, State), Diagnostics> {
        let state = State::from_json(&self.state)?;
        Ok((self.kept.load(run, host)?, state))
    }
}

impl Checkpoint {
    /// Writes the checkpoint to the run's folder, and removes all but the last `keep`.
    pub(crate) fn write(&self, run: &Path, keep: usize) -> Result<(), Diagnostics> {
        let folder = run.join(CHECKPOINTS.folder);
        make_folder(&folder)?;
        let path = CHECKPOINTS.path(run, self.step);
        let bytes = self.to_bytes();
        let bytes = bytes.map_err(|error| damaged(&path, error.to_string()))?;
        Replacement::write(&path, &bytes)?;
        sync_folder(&folder)?;
        CHECKPOINTS.remove_old(run, keep)
    }

    fn to_bytes(&self) -> Result<Vec<u8>, SafeTensorError> {
        let run = json!(self).to_string();
        let mut arrays = Vec::new();
        for (group, own) in [(POLICY, &self.policy), (REFERENCE, &self.reference)] {
            for (name, array) in own {
                let bytes: Vec<u8> = array.iter().flat_map(|value| value.to_le_bytes()).collect();
                arrays.push((format!("{group}{name}"), array.shape(), bytes));
            }
        }
        let named = arrays.iter().map(|(name, _, bytes)| (&**name, &**bytes));
        let hash = hash(&run, named);
        let header = KEYS.into_iter().zip([FORMAT, &run, &hash]);
        let header = header.map(|(key, value)| (key.to_string(), value.to_string()));
        let views = arrays.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes)?;
            Ok::<_, SafeTensorError>((name, view))
        });
        serialize(
            views.collect::<Result<Vec<_>, _>>()?,
            Some(header.collect()),
        )
    }

    fn read(path: &Path) -> Result<Checkpoint, Diagnostics> {
        let bytes = fs::read(path).map_err(io("read", path))?;
        let unreadable = |error: SafeTensorError| damaged(path, error.to_string());
        let file = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(unreadable)?;
        let header = header.metadata().clone().unwrap_or_default();
        let [format, run, expected] = KEYS.map(|key| header.get(key).map_or("", String::as_str));
        if format != FORMAT {
            return Err(damaged(path, format!("it is not an {FORMAT}")));
        }
        let mut arrays = file.tensors();
        arrays.sort_by(|(a, _), (b, _)| a.cmp(b));
        let named = arrays.iter().map(|(name, view)| (&**name, view.data()));
        if hash(run, named) != expected {
            let what = "its contents do not have the hash that it states";
            return Err(damaged(path, what));
        }
        let group = |prefix: &str| -> Arrays {
            let own = arrays.iter().filter_map(|(name, view)| {
                Some((name.strip_prefix(prefix)?.to_string(), array(view)?))
            });
            own.collect()
        };
        let checkpoint: Checkpoint =
            serde_json::from_str(run).map_err(|error| damaged(path, error.to_string()))?;
        Ok(Checkpoint {
            policy: group(POLICY),
            reference: group(REFERENCE),
            ..checkpoint
        })
    }

    /// The newest checkpoint that can be read and is not after `step`, and the errors of newer ones.
    pub(crate) fn newest(
        run: &Path,
        step: u64,
    ) -> Result<(Option<Checkpoint>, Vec<String>), Diagnostics> {
        let mut wrong = Vec::new();
        for (own, path) in CHECKPOINTS.all(run)?.into_iter().rev() {
            if own > step {
                let path = path.display();
                wrong.push(format!("{path}: the metrics end at step {step}, before it"));
                continue;
            }
            match Checkpoint::read(&path) {
                Ok(checkpoint) => return Ok((Some(checkpoint), wrong)),
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
