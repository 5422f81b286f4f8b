//! The batches that a run keeps: `batches/step-000140.safetensors`, and those on which a version failed.

use std::fs;
use std::path::{Path, PathBuf};

pub(in crate::train) const FOLDER: &str = "batches";
const PREFIX: &str = "step-";
const ENDING: &str = ".safetensors";

/// The batches of a run with their steps, in order; those on which a version failed are not among them.
pub(in crate::train) fn kept_batches(run: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(run.join(FOLDER))
        .into_iter()
        .flatten()
        .flatten();
    let mut kept: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let step = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(ENDING)?;
            Some((step.parse().ok()?, entry.path()))
        })
        .collect();
    // By number: as a string, step 1000000 comes before step 999990.
    kept.sort();
    kept
}

pub(super) fn name(step: u64) -> String {
    format!("{PREFIX}{step:06}{ENDING}")
}

/// Removes all but the newest batches of steps; those on which a version failed stay.
pub(super) fn remove_old(run: &Path, keep: usize) {
    let kept = kept_batches(run);
    let many = kept.len().saturating_sub(keep);
    for (_, old) in &kept[..many] {
        // One too many does no harm.
        let _ = fs::remove_file(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_also_where_their_names_are_longer() {
        let run = tempfile::tempdir().unwrap();
        let batches = run.path().join(FOLDER);
        fs::create_dir(&batches).unwrap();
        for step in [999_980, 999_990, 1_000_000, 1_000_010] {
            fs::write(batches.join(name(step)), "").unwrap();
        }
        fs::write(batches.join("failed-000003-4f8ad7.safetensors"), "").unwrap();
        remove_old(run.path(), 2);
        let steps = kept_batches(run.path()).into_iter().map(|(step, _)| step);
        assert_eq!(steps.collect::<Vec<_>>(), [1_000_000, 1_000_010]);
        assert_eq!(fs::read_dir(&batches).unwrap().count(), 3);
    }
}
