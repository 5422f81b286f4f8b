//! A checkpoint: a folder with the policy's own files, and `run.json` with all else that a run needs to go on to the same
//! numbers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CHECKPOINTS, KeptVersion, first_free, make_folder, part, sync_folder};
use crate::error::{damaged, io};
use crate::policy::Policy;
use advlab::diagnostic::Diagnostics;
use advlab::files::Replacement;

const FORMAT: &str = "advlab checkpoint 3";
const RUN: &str = "run.json";

/// All that a run needs to go on to the same numbers, except the policy.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// The step that comes next.
    pub(crate) step: u64,
    pub(crate) recipe: VersionState,
    pub(crate) loss_state: Value,
    /// The version to fall back to.
    pub(crate) fallback: Option<VersionState>,
    /// Where the policy's files are; of a checkpoint that was read.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// A version with the state that it left.
#[derive(Serialize, Deserialize)]
pub(crate) struct VersionState {
    #[serde(flatten)]
    pub(crate) version: KeptVersion,
    pub(crate) state: Value,
}

/// The file [`RUN`].
#[derive(Serialize, Deserialize)]
struct Sealed {
    format: String,
    /// CRC-32C of each file of the policy.
    files: BTreeMap<String, u32>,
    /// CRC-32C of `run` as this text has it.
    crc: u32,
    run: Value,
}

impl Checkpoint {
    /// Writes the checkpoint to the run's folder, and removes all but the last `keep`.
    pub(crate) fn write(
        &self,
        run: &Path,
        policy: &mut dyn Policy,
        keep: usize,
    ) -> Result<(), Diagnostics> {
        let place = CHECKPOINTS.path(run, self.step);
        let all = run.join("checkpoints");
        let part = all.join(part(&format!("{:06}", self.step)));
        let mut write = || {
            make_folder(&part)?;
            policy.save(&part)?;
            self.seal(&part)?;
            // One that is there is of steps that were done before a version failed.
            if place.exists() {
                fs::remove_dir_all(&place).map_err(io("remove", &place))?;
            }
            fs::rename(&part, &place).map_err(io("write", &place))?;
            sync_folder(&all)
        };
        write().inspect_err(|_: &Diagnostics| {
            // A resumed run skips what cannot be removed.
            let _ = fs::remove_dir_all(&part);
        })?;
        CHECKPOINTS.remove_old(run, keep)
    }

    /// Writes [`RUN`] beside the policy's files; after this they survive a crash of the machine.
    fn seal(&self, folder: &Path) -> Result<(), Diagnostics> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(io("read", folder))? {
            let path = entry.map_err(io("read", folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name != RUN {
                let file = File::options().read(true).write(true).open(&path);
                let synced = file.and_then(|file| file.sync_all().map(|()| file));
                let crc = synced.and_then(crc).map_err(io("write", &path))?;
                files.insert(name.into_owned(), crc);
            }
        }
        let run = json!(self);
        let sealed = Sealed {
            format: FORMAT.to_string(),
            files,
            crc: crc32c::crc32c(run.to_string().as_bytes()),
            run,
        };
        let text = format!("{:#}\n", json!(sealed));
        Replacement::write(&folder.join(RUN), text.as_bytes())?;
        sync_folder(folder)
    }

    fn read(folder: &Path) -> Result<Checkpoint, Diagnostics> {
        let path = folder.join(RUN);
        let text = advlab::regular_file::read(&path).map_err(io("read", &path))?;
        let not_one = |error: serde_json::Error| damaged(&path, error.to_string());
        let sealed: Value = serde_json::from_slice(&text).map_err(not_one)?;
        // Other formats may have other fields.
        if sealed["format"] != FORMAT {
            let what = format!("its format is {}, not \"{FORMAT}\"", sealed["format"]);
            return Err(damaged(&path, what));
        }
        let sealed: Sealed = serde_json::from_value(sealed).map_err(not_one)?;
        let of_run = (RUN.to_string(), sealed.crc);
        for (name, expected) in sealed.files.into_iter().chain([of_run]) {
            let path = folder.join(&name);
            let found = match name == RUN {
                true => Ok(crc32c::crc32c(sealed.run.to_string().as_bytes())),
                false => advlab::regular_file::open(&path).and_then(crc),
            };
            if found.map_err(io("read", &path))? != expected {
                let what = "its contents do not have the checksum that run.json states";
                return Err(damaged(&path, what));
            }
        }
        let checkpoint: Checkpoint = serde_json::from_value(sealed.run).map_err(not_one)?;
        Ok(Checkpoint {
            folder: folder.to_path_buf(),
            ..checkpoint
        })
    }

    /// The newest checkpoint that can be read and is not after `step`, and why newer ones cannot be used.
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

    /// Renames the checkpoints after this one, which cannot be used, to `unused-...`: as the newest ones they would be kept
    /// in place of good ones.
    pub(crate) fn set_later_aside(&self, run: &Path) -> Result<(), Diagnostics> {
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

/// CRC-32C of a file, a piece at a time.
fn crc(mut file: File) -> io::Result<u32> {
    let mut piece = vec![0; 1 << 20];
    let mut crc = 0;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(crc),
            count => crc = crc32c::crc32c_append(crc, &piece[..count]),
        }
    }
}
