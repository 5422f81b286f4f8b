//! A checkpoint: a folder with the policy's files, and `run.json` with everything else that a run needs to continue with the same
//! numbers. `keep_checkpoints` in `config/defaults.toml` says how many checkpoints are kept.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use crc32c::Crc32cReader;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CHECKPOINTS, KeptVersion, first_free, write_folder};
use crate::error::{Result, damaged, io, read_json};
use crate::policy::Policy;
use advlab::diagnostic::Diagnostic;
use advlab::replace::Replacement;
use advlab::script::State;

const FORMAT: &str = "advlab checkpoint 4";
const RUN: &str = "run.json";

/// The contents of the file [`RUN`], without the format: the CRC-32C of each of the policy's files, the CRC-32C of `run`, and
/// `run` itself, which is a [`Checkpoint`].
#[derive(Deserialize)]
struct Sealed {
    files: BTreeMap<String, u32>,
    crc: u32,
    run: Value,
}

/// All data that a run needs to continue with the same numbers, except the policy.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// The number of the next step.
    pub(crate) step: u64,
    pub(crate) recipe: VersionState,
    pub(crate) loss_state: State,
    /// The versions that are tried if the current version fails at a step.
    pub(crate) fallbacks: Vec<VersionState>,
    /// The folder of the policy's files; it is set if the checkpoint was read from disk.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// A version, with the state after the version's last step.
#[derive(Serialize, Deserialize)]
pub(crate) struct VersionState {
    #[serde(flatten)]
    pub(crate) version: KeptVersion,
    pub(crate) state: State,
}

impl Checkpoint {
    /// Writes the checkpoint to the run's folder, and removes all but the newest `keep` checkpoints.
    pub(crate) fn write(&self, run: &Path, policy: &mut dyn Policy, keep: usize) -> Result<()> {
        write_folder(&CHECKPOINTS.path(run, self.step), |folder| {
            policy.save(folder)?;
            let mut files = BTreeMap::new();
            for entry in fs::read_dir(folder).map_err(io("read", folder))? {
                let path = entry.map_err(io("read", folder))?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let file = File::options().read(true).write(true).open(&path);
                let synced = file.and_then(|file| file.sync_all().map(|()| file));
                let crc = synced.and_then(crc_of_file).map_err(io("write", &path))?;
                files.insert(name.into_owned(), crc);
            }
            let (run, format) = (json!(self), FORMAT);
            let sealed =
                json!({ "format": format, "files": files, "crc": crc_of(&run), "run": run });
            Replacement::write(&folder.join(RUN), format!("{sealed:#}\n").as_bytes())
        })?;
        CHECKPOINTS.remove_old(run, keep)
    }

    fn read(folder: &Path) -> Result<Checkpoint> {
        let path = folder.join(RUN);
        let sealed: Value = read_json(&path)?;
        let not_one = |error: serde_json::Error| damaged(&path, error.to_string());
        // The format is checked first, because other formats may have other fields.
        if sealed["format"] != FORMAT {
            let what = format!("its format is {}, not \"{FORMAT}\"", sealed["format"]);
            return Err(damaged(&path, what));
        }
        let Sealed { files, crc, run } = serde_json::from_value(sealed).map_err(not_one)?;
        let check = |path: &Path, is_whole: bool| match is_whole {
            true => Ok(()),
            false => Err(damaged(
                path,
                "its contents do not have the checksum that run.json states",
            )),
        };
        check(&path, crc_of(&run) == crc)?;
        for (name, expected) in files {
            let path = folder.join(name);
            let crc = advlab::regular_file::open(&path).and_then(crc_of_file);
            check(&path, crc.map_err(io("read", &path))? == expected)?;
        }
        let mut checkpoint: Checkpoint = serde_json::from_value(run).map_err(not_one)?;
        checkpoint.folder = folder.to_path_buf();
        Ok(checkpoint)
    }

    /// Returns the newest checkpoint that can be read and is not after `step`, and the reasons why the newer checkpoints cannot
    /// be used.
    pub(crate) fn newest(run: &Path, step: u64) -> Result<(Checkpoint, Vec<String>)> {
        let mut wrong = Vec::new();
        for (own, path) in CHECKPOINTS.all(run)?.into_iter().rev() {
            if own > step {
                let path = path.display();
                wrong.push(format!(
                    "{path}: the metrics end at step {step}, before this checkpoint"
                ));
                continue;
            }
            match Checkpoint::read(&path) {
                Ok(checkpoint) => return Ok((checkpoint, wrong)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        let message = format!("{} has no checkpoint that can be used", run.display());
        let mut problem = Diagnostic::error(message);
        problem.notes = wrong;
        Err(problem.into())
    }

    /// Renames the checkpoints of later steps, which cannot be used, to `unused-...`. Otherwise they would count as the newest
    /// checkpoints, and usable checkpoints would be removed.
    pub(crate) fn set_later_aside(&self, run: &Path) -> Result<()> {
        let later = CHECKPOINTS.all(run)?.into_iter();
        for (step, path) in later.filter(|(step, _)| *step > self.step) {
            let aside = |number| path.with_file_name(format!("unused-{step:06}-{number}"));
            first_free(aside, |aside| match aside.exists() {
                true => Err(ErrorKind::AlreadyExists.into()),
                false => fs::rename(&path, aside),
            })?;
        }
        Ok(())
    }
}

/// Returns the CRC-32C of a value's compact JSON.
fn crc_of(value: &Value) -> u32 {
    crc32c::crc32c(value.to_string().as_bytes())
}

/// Returns the CRC-32C of a file. The file is read in parts, because it may not fit in memory.
fn crc_of_file(file: File) -> io::Result<u32> {
    let mut file = BufReader::with_capacity(1 << 20, Crc32cReader::new(file));
    io::copy(&mut file, &mut io::sink())?;
    Ok(file.get_ref().crc32c())
}
