//! Files and folders of a run that have a step in their names, of which the newest are kept.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::io;
use advlab::diagnostic::Diagnostics;

/// A kind of such files: the folder in the run's, and how their names begin.
pub(crate) struct Numbered {
    pub(super) folder: &'static str,
    prefix: &'static str,
    ending: &'static str,
    /// Whether a version stands behind the step.
    has_version: bool,
}

/// `batches/step-000140.safetensors`
pub(crate) const BATCHES: Numbered = Numbered {
    folder: "batches",
    prefix: "step-",
    ending: ".safetensors",
    has_version: false,
};

/// `batches/failed-000140-4f8ad7.safetensors`: those on which a version failed.
pub(super) const FAILED: Numbered = Numbered {
    prefix: "failed-",
    has_version: true,
    ..BATCHES
};

/// `batches/native-000140-4f8ad7.safetensors`: those on which a kernel gave other bits than its script.
pub(super) const NATIVE: Numbered = Numbered {
    prefix: "native-",
    ..FAILED
};

/// `batches/step-000140.json`: the state that the step began with, of a trainer's run.
pub(crate) const STATES: Numbered = Numbered {
    ending: ".json",
    ..BATCHES
};

/// `checkpoints/000150`, which are folders.
pub(super) const CHECKPOINTS: Numbered = Numbered {
    folder: "checkpoints",
    prefix: "",
    ending: "",
    has_version: false,
};

/// `checkpoints/unused-000150-1`: those that could not be used.
pub(super) const UNUSED: Numbered = Numbered {
    prefix: "unused-",
    has_version: true,
    ..CHECKPOINTS
};

impl Numbered {
    pub(crate) fn path(&self, run: &Path, step: u64) -> PathBuf {
        let name = format!("{}{step:06}{}", self.prefix, self.ending);
        run.join(self.folder).join(name)
    }

    /// The path in the run's folder of the one of a step and a version.
    pub(super) fn name(&self, step: u64, version: &str) -> String {
        let Numbered {
            folder,
            prefix,
            ending,
            ..
        } = self;
        format!("{folder}/{prefix}{step:06}-{version}{ending}")
    }

    /// All with their steps, in order.
    pub(crate) fn all(&self, run: &Path) -> Result<Vec<(u64, PathBuf)>, Diagnostics> {
        let folder = run.join(self.folder);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io("read", folder)(error)),
        };
        let found = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix(self.prefix)?;
            let mut step = name.strip_suffix(self.ending)?;
            if self.has_version {
                step = step.split_once('-')?.0;
            }
            Some((step.parse().ok()?, entry.path()))
        });
        // By number: as a string, step 1000000 comes before step 999990.
        let mut found: Vec<(u64, PathBuf)> = found.collect();
        found.sort();
        Ok(found)
    }

    /// Removes all but the newest.
    pub(super) fn remove_old(&self, run: &Path, keep: usize) -> Result<(), Diagnostics> {
        for (_, old) in self.all(run)?.into_iter().rev().skip(keep) {
            // One too many does no harm.
            let _ = remove(&old);
        }
        Ok(())
    }
}

/// Removes a file, or a folder with all in it.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_also_where_their_names_are_longer() {
        let run = tempfile::tempdir().unwrap();
        let batches = run.path().join(BATCHES.folder);
        fs::create_dir(&batches).unwrap();
        for step in [999_980, 999_990, 1_000_000, 1_000_010] {
            fs::write(BATCHES.path(run.path(), step), "").unwrap();
        }
        fs::write(batches.join("failed-000003-4f8ad7.safetensors"), "").unwrap();
        BATCHES.remove_old(run.path(), 2).unwrap();
        let steps = BATCHES.all(run.path()).unwrap();
        let steps = steps.into_iter().map(|(step, _)| step);
        assert_eq!(steps.collect::<Vec<_>>(), [1_000_000, 1_000_010]);
        assert_eq!(fs::read_dir(&batches).unwrap().count(), 3);
    }
}
