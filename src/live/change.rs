//! The difference between two versions of a recipe: lines and parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

use crate::figures;
use crate::script::{Recipe, Setting, Version};

/// The time for counting lines: after that, the count may be that of an edit that is not the smallest.
const PATIENCE: Duration = Duration::from_millis(10);

/// A new version, and how it differs from the one before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VersionChange {
    /// The version before.
    pub from: Version,
    /// The new version.
    pub to: Version,
    /// The script, then the imports that both versions have, if their lines differ.
    ///
    /// An import that only one version has is left out: writing `import "grpo"` is one line, not grpo's forty.
    pub files: Vec<FileChange>,
    /// The time of compiling and of the dry runs.
    pub checked_in: Duration,
    /// The time from the first event of the save until the version was ready, settling included.
    pub ready_after: Duration,
    /// Parameters that are new, gone, have another value, or another default that the run's own value overrides.
    pub parameters: Vec<ParameterChange>,
}

/// The number of changed lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The name of an import, such as `balance.rhai`; `None` for the script itself.
    pub import: Option<String>,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
}

/// A parameter whose declaration changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterChange {
    /// The parameter's name.
    pub name: String,
    /// Its value in the version before; `None` if that had no such parameter.
    pub was: Option<Setting>,
    /// Its value now; `None` if the new version has no such parameter.
    pub now: Option<Setting>,
    /// Whether the run sets the parameter. If the parameter is gone, that has no effect until it comes back.
    pub set_by_run: bool,
}

impl ParameterChange {
    /// Whether only the default changed, without effect: the run sets the parameter.
    pub fn is_held(&self) -> bool {
        self.was == self.now
    }
}

impl VersionChange {
    pub(super) fn between(
        from: &Recipe,
        to: &Recipe,
        settings: &[(String, String)],
        (checked_in, ready_after): (Duration, Duration),
    ) -> VersionChange {
        VersionChange {
            from: from.version().clone(),
            to: to.version().clone(),
            files: files(from, to),
            checked_in,
            ready_after,
            parameters: parameters(from, to, settings),
        }
    }

    /// Lines added in all files.
    pub fn lines_added(&self) -> usize {
        self.files.iter().map(|file| file.added).sum()
    }

    /// Lines removed in all files.
    pub fn lines_removed(&self) -> usize {
        self.files.iter().map(|file| file.removed).sum()
    }
}

fn files(from: &Recipe, to: &Recipe) -> Vec<FileChange> {
    let deadline = Instant::now() + PATIENCE;
    let (before, after) = (texts(from), texts(to));
    let changes = before.into_iter().filter_map(|(stem, (_, old))| {
        let (name, new) = after.get(&stem)?;
        let (added, removed) = count(old, new, deadline);
        Some(FileChange {
            import: stem.and(Some(name.clone())),
            added,
            removed,
        })
    });
    changes
        .filter(|file| (file.added, file.removed) != (0, 0))
        .collect()
}

/// File names and texts of a script, with the key `None`, and of its imports, with the name in the `import` as key: a
/// resumed run has its first version in another folder.
fn texts(recipe: &Recipe) -> BTreeMap<Option<String>, (String, &str)> {
    let named = recipe.sources().map(|(name, text)| {
        let path = Path::new(name);
        let part = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let stem = (name != recipe.name()).then(|| part(path.file_stem()));
        (stem, (part(path.file_name()), text))
    });
    named.collect()
}

/// Lines added and removed.
fn count(old: &str, new: &str, deadline: Instant) -> (usize, usize) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline));
    let changes = operations.iter().map(|one| match one.tag() {
        DiffTag::Equal => (0, 0),
        _ => (one.new_range().len(), one.old_range().len()),
    });
    changes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn parameters(from: &Recipe, to: &Recipe, settings: &[(String, String)]) -> Vec<ParameterChange> {
    let declared = |recipe: &Recipe, name: &str| {
        let mut all = recipe.params().iter();
        let (parameter, value) = all.find(|(parameter, _)| parameter.name == name)?;
        Some((parameter.default.clone(), value.clone()))
    };
    let all = from.params().iter().chain(to.params().iter());
    let names: BTreeSet<&str> = all.map(|(parameter, _)| parameter.name.as_str()).collect();
    let changes = names.into_iter().map(|name| {
        let (old_default, was) = declared(from, name).unzip();
        let (default, now) = declared(to, name).unzip();
        let set_by_run = settings.iter().any(|(set, _)| set == name);
        let is_changed = was != now || set_by_run && default != old_default;
        is_changed.then(|| ParameterChange {
            name: name.to_string(),
            was,
            now,
            set_by_run,
        })
    });
    changes.flatten().collect()
}

impl fmt::Display for VersionChange {
    /// One line: `db6bda -> 4f8ad7  (+1 -1 lines, checked in 2.3 ms)  k 4 -> 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}  (", self.from, self.to)?;
        if self.files.is_empty() {
            write!(f, "+0 -0 lines, ")?;
        }
        for file in &self.files {
            write!(f, "{file}, ")?;
        }
        write!(f, "checked in {})", figures::time(self.checked_in))?;
        for parameter in &self.parameters {
            write!(f, "  {parameter}")?;
            if parameter.is_held() {
                write!(f, ": the run sets it")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for FileChange {
    /// `+1 -1 lines`, and `balance.rhai +1 -1 lines` of an import.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(import) = &self.import {
            write!(f, "{import} ")?;
        }
        write!(f, "+{} -{} lines", self.added, self.removed)
    }
}

impl fmt::Display for ParameterChange {
    /// `k 4 -> 8`; `k is new: 8`; `k is gone`, or `k (set to 4 by the run) is gone`; `k stays 8` if the run sets it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (&self.was, &self.now) {
            (Some(was), None) if self.set_by_run => {
                write!(f, "{name} (set to {was} by the run) is gone")
            }
            (_, None) => write!(f, "{name} is gone"),
            (None, Some(now)) => write!(f, "{name} is new: {now}"),
            (Some(was), Some(now)) if was == now => write!(f, "{name} stays {now}"),
            (Some(was), Some(now)) => write!(f, "{name} {was} -> {now}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(old: &str, new: &str) -> (usize, usize) {
        count(old, new, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn edits_are_counted_as_diff_counts_them() {
        assert_eq!(counted("a\nb\nc\n", "a\nb\nc\n"), (0, 0));
        assert_eq!(counted("", "a\nb\n"), (2, 0));
        assert_eq!(counted("a\nb\n", ""), (0, 2));
        assert_eq!(counted("a\nb\nc\n", "a\nx\ny\nc\n"), (2, 1));
        assert_eq!(counted("a\nb\nc\nd\n", "b\nx\nd\ny\n"), (2, 2));
    }

    #[test]
    fn a_new_text_of_many_lines_is_counted_at_once() {
        let [old, new] = ["old", "new"].map(|word| {
            let lines = (0..20_000).map(|line| format!("{word} {line}\n"));
            lines.collect::<String>()
        });
        let started = Instant::now();
        assert_eq!(count(&old, &new, started + PATIENCE), (20_000, 20_000));
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    /// The longest common subsequence, by the textbook's table.
    fn common(old: &[&str], new: &[&str]) -> usize {
        let mut row = vec![0; new.len() + 1];
        for a in old {
            let mut diagonal = 0;
            for (j, b) in new.iter().enumerate() {
                let above = row[j + 1];
                row[j + 1] = if a == b {
                    diagonal + 1
                } else {
                    above.max(row[j])
                };
                diagonal = above;
            }
        }
        row[new.len()]
    }

    proptest! {
        #[test]
        fn no_edit_is_smaller(old in "[abc\n]{0,40}", new in "[abc\n]{0,40}") {
            let (a, b): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
            let kept = common(&a, &b);
            prop_assert_eq!(counted(&old, &new), (b.len() - kept, a.len() - kept));
        }
    }
}
