//! The difference between two versions: changed lines, imports and parameters, and the effect on the last batch.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, diff_slices_deadline};
use similar::{Algorithm, DiffTag};

use super::version::Published;
use crate::number_text;
use crate::script::{Recipe, Version};

/// A new version, and how it differs from the version before it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VersionChange {
    /// The version before the new one.
    pub from: Version,
    /// The new version.
    pub to: Version,
    /// The time that compiling and the dry runs took.
    pub checked_in: Duration,
    /// The time from the first event of the save, or from the poll that found it, until the end of the checks, including the wait
    /// until the files stop changing.
    pub ready_after: Duration,
    /// The parameters that were added or removed, or that have a new value (as in `k 4 -> 8`) or a new default that the run's
    /// setting overrides.
    pub parameters: Vec<String>,
    /// The number of lines added to the script and to the imports that both versions have.
    ///
    /// The lines of an import that only one version has are not counted, so that adding `import "grpo"` counts as one line.
    pub lines_added: usize,
    /// The number of lines removed from the script and from the imports that both versions have.
    pub lines_removed: usize,
    /// The file names of edited imports.
    pub imports: Vec<String>,
    /// The version's effect on the last batch: the correlation and the standard deviations of the two versions' advantages, and
    /// each property of [`check`](crate::check::check) whose result is worse.
    pub effect: Vec<String>,
}

impl VersionChange {
    pub(super) fn between(from: &Published, to: &Published, settings: &[(String, String)]) -> Self {
        let ((checked_in, ready_after), effect) = (to.times, to.effect.clone());
        let (from, to) = (&from.recipe, &to.recipe);
        let mut change = VersionChange {
            from: from.version().clone(),
            to: to.version().clone(),
            checked_in,
            ready_after,
            parameters: parameters(from, to, settings),
            lines_added: 0,
            lines_removed: 0,
            imports: Vec::new(),
            effect,
        };
        let after = texts(to);
        for (name, old) in texts(from) {
            let (added, removed) = after.get(&name).map_or((0, 0), |new| count(old, new));
            change.lines_added += added;
            change.lines_removed += removed;
            let import = name
                .filter(|_| added + removed > 0)
                .map(|stem| format!("{}.rhai", stem.display()));
            change.imports.extend(import);
        }
        change
    }
}

impl fmt::Display for VersionChange {
    /// Writes one line: `db6bda -> 4f8ad7  (+1 -1 lines, checked in 2.3 ms)  k 4 -> 8  advantage on the last batch ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to, time) = (&self.from, &self.to, number_text::time(self.checked_in));
        let (added, removed) = (self.lines_added, self.lines_removed);
        write!(f, "{from} -> {to}  (+{added} -{removed} lines")?;
        let mut imports = self.imports.iter();
        imports.try_for_each(|import| write!(f, ", {import} edited"))?;
        write!(f, ", checked in {time})")?;
        let mut parameters = self.parameters.iter();
        parameters.try_for_each(|parameter| write!(f, "  {parameter}"))?;
        let before = if self.effect.is_empty() { "" } else { "  " };
        write!(f, "{before}{}", self.effect.join("; "))
    }
}

/// Returns the text of a script under the key `None`, and the texts of its imports under their names. These names are without
/// folders, because a resumed run reads its first version from another folder.
fn texts(recipe: &Recipe) -> BTreeMap<Option<&OsStr>, &str> {
    let stem = |name| Path::new(name).file_stem().unwrap_or_default();
    let named = recipe
        .sources()
        .map(|(name, text)| ((name != recipe.name()).then(|| stem(name)), text));
    named.collect()
}

/// The time limit of the line diff of two texts, if the product of their numbers of lines exceeds 2^20. After this time, the
/// diff may not be minimal, so the number of changed lines may differ from one machine to another.
const DEADLINE: Duration = Duration::from_millis(20);

/// Returns the numbers of lines added and removed.
fn count(old: &str, new: &str) -> (usize, usize) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let is_large = old.len() * new.len() > 1 << 20;
    let (mut found, until) = (Capture::new(), is_large.then(|| Instant::now() + DEADLINE));
    let Ok(()) = diff_slices_deadline(Algorithm::Myers, &mut found, &old, &new, until);
    let changed = found.ops().iter().filter(|op| op.tag() != DiffTag::Equal);
    changed.fold((0, 0), |sum, op| {
        (sum.0 + op.new_range().len(), sum.1 + op.old_range().len())
    })
}

fn parameters(from: &Recipe, to: &Recipe, settings: &[(String, String)]) -> Vec<String> {
    let names: BTreeSet<&str> = [from, to]
        .map(|recipe| recipe.params().iter().map(|(one, _)| &*one.name))
        .into_iter()
        .flatten()
        .collect();
    let changes = names.into_iter().filter_map(|name| {
        let is_set = settings.iter().any(|(set, _)| set == name);
        match (from.params().find(name), to.params().find(name)) {
            (Some((_, was)), Some((_, now))) if was != now => {
                Some(format!("{name} {was} -> {now}"))
            }
            (Some((old, _)), Some((new, now))) if is_set && old.default != new.default => {
                Some(format!("{name} stays {now}, because the run sets it"))
            }
            (Some((_, was)), None) if is_set => Some(format!(
                "{name} (set to {was} by the run) is no longer declared"
            )),
            (Some(_), None) => Some(format!("{name} is no longer declared")),
            (None, Some((_, now))) => Some(format!("{name} is new: {now}")),
            _ => None,
        }
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edits_are_counted_as_diff_counts_them() {
        assert_eq!(count("a\nb\nc\n", "a\nb\nc\n"), (0, 0));
        assert_eq!(count("", "a\nb\n"), (2, 0));
        assert_eq!(count("a\nb\n", ""), (0, 2));
        assert_eq!(count("a\nb\nc\n", "a\nx\ny\nc\n"), (2, 1));
        assert_eq!(count("a\nb\nc\nd\n", "b\nx\nd\ny\n"), (2, 2));
    }

    #[test]
    fn a_turned_text_of_many_lines_is_counted_without_looking_at_all_pairs() {
        let text = |lines: &mut dyn Iterator<Item = usize>| -> String {
            lines.map(|line| format!("{line}\n")).collect()
        };
        let [old, new] = [text(&mut (0..10_000)), text(&mut (0..10_000).rev())];
        let (added, removed) = count(&old, &new);
        assert!(added == removed && (9_999..=10_000).contains(&added));
        let blank = |lines, last| "\n".repeat(lines) + last;
        assert_eq!(count(&blank(250_000, ""), &blank(250_001, "x")), (2, 0));
        // The texts are small, so that the number is exact, however busy the machine is.
        let moved = format!("b\n{}", blank(901, "c"));
        assert_eq!(count(&blank(900, "a\n"), &moved), (3, 1));
    }

    /// The length of the longest common subsequence, by the textbook's table.
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
            prop_assert_eq!(count(&old, &new), (b.len() - kept, a.len() - kept));
        }
    }
}
