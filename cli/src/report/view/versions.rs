//! How two versions of a script differ, from what the run has kept of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// Lines that are shown around those that differ.
const AROUND: usize = 3;
/// How long a diff may look for the smallest one.
const PATIENCE: Duration = Duration::from_millis(50);

/// The files of a version: the script, under the name of its own, and what it imports.
pub(super) fn sources(run: &Path, version: &str) -> BTreeMap<String, String> {
    // It is the name of a folder, and comes from a file that anybody may have written.
    if version.is_empty() || !version.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return BTreeMap::new();
    }
    let entries = std::fs::read_dir(run.join("scripts").join(version));
    let read = |entry: std::fs::DirEntry| {
        let text = advlab::regular_file::read_to_string(&entry.path()).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), text))
    };
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(read)
        .collect()
}

/// The lines by which two versions differ: of each file that has any, `["+", line]`, `["-", line]` and
/// `[" ", line]` of those around, and `["@", number]` before lines that others were left out before.
pub(super) fn diff(run: &Path, from: &str, to: &str) -> Value {
    let (old, new) = (sources(run, from), sources(run, to));
    let names = old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)));
    let files = names.filter_map(|name| {
        let text = |of: &BTreeMap<String, String>| of.get(name).cloned().unwrap_or_default();
        let lines = lines(&text(&old), &text(&new));
        (!lines.is_empty()).then(|| json!({ "name": name, "lines": lines }))
    });
    files.collect()
}

fn lines(old: &str, new: &str) -> Vec<Value> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let deadline = Some(Instant::now() + PATIENCE);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let mut lines = Vec::new();
    for group in group_diff_ops(operations, AROUND) {
        let first = group.first().map_or(0, |one| one.new_range().start);
        lines.push(json!(["@", first + 1]));
        for one in group {
            if one.tag() == DiffTag::Equal {
                lines.extend(new[one.new_range()].iter().map(|line| json!([" ", line])));
                continue;
            }
            lines.extend(old[one.old_range()].iter().map(|line| json!(["-", line])));
            lines.extend(new[one.new_range()].iter().map(|line| json!(["+", line])));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_come_with_those_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let new = old.replace("f\n", "F\n");
        let shown: Vec<String> = lines(old, &new).iter().map(Value::to_string).collect();
        let expected = [
            "[\"@\",3]",
            "[\" \",\"c\"]",
            "[\" \",\"d\"]",
            "[\" \",\"e\"]",
            "[\"-\",\"f\"]",
            "[\"+\",\"F\"]",
            "[\" \",\"g\"]",
            "[\" \",\"h\"]",
        ];
        assert_eq!(shown, expected);
        assert!(lines(old, old).is_empty());
    }

    #[test]
    fn a_version_is_a_folder_of_the_run_alone() {
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(run.path().join("scripts/ab12")).unwrap();
        std::fs::write(run.path().join("scripts/ab12/a.rhai"), "1").unwrap();
        std::fs::write(run.path().join("secret"), "1").unwrap();
        assert_eq!(sources(run.path(), "ab12").len(), 1);
        for outside in ["..", "", "../..", "ab12/.."] {
            assert!(sources(run.path(), outside).is_empty(), "{outside}");
        }
    }
}
