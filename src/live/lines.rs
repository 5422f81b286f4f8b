//! Counts the lines that an edit added and removed.

use std::collections::HashMap;
use std::path::Path;

use crate::script::Recipe;

/// Beyond this many lines, all count as replaced: nobody edits such a script by hand, and the count takes quadratic time.
const MOST: usize = 4_000;

/// Lines added and removed between two versions, in the script and in what both import.
///
/// An import that only one of them has is not counted: writing `import "grpo"` is one line, not grpo's forty.
pub(super) fn changed(from: &Recipe, to: &Recipe) -> (usize, usize) {
    let imports = |recipe: &Recipe| -> HashMap<String, String> {
        let own = recipe.name().to_string();
        let others = recipe.sources().filter(|(name, _)| *name != own);
        // By the name that the import wrote: a resumed run has its first version in another folder.
        others
            .filter_map(|(name, text)| {
                let stem = Path::new(name).file_stem()?;
                Some((stem.to_string_lossy().into_owned(), text.to_string()))
            })
            .collect()
    };
    let (before, after) = (imports(from), imports(to));
    let shared = before
        .iter()
        .filter_map(|(name, old)| Some((old.as_str(), after.get(name)?.as_str())));
    shared
        .chain([(from.text(), to.text())])
        .map(|(old, new)| count(old, new))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Lines added and removed, by Myers' greedy algorithm (An O(ND) difference algorithm, 1986): the fewest edits are
/// found by how far each diagonal reaches with 0, 1, 2... of them.
fn count(old: &str, new: &str) -> (usize, usize) {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let most = old.len() + new.len();
    if most > MOST {
        return (new.len(), old.len());
    }
    // reach[k + most + 1] is how many lines of `old` the furthest path on diagonal k = x - y has passed.
    let mut reach = vec![0usize; 2 * most + 3];
    for edits in 0..=most {
        for place in (most + 1 - edits..=most + 1 + edits).step_by(2) {
            let is_lowest = place == most + 1 - edits;
            let is_highest = place == most + 1 + edits;
            let inserts = is_lowest || !is_highest && reach[place - 1] < reach[place + 1];
            let mut x = match (edits, inserts) {
                (0, _) => 0,
                (_, true) => reach[place + 1],
                (_, false) => reach[place - 1] + 1,
            };
            // y = x - k, and a path never leaves the grid upwards.
            let mut y = (x + most + 1).saturating_sub(place);
            while x < old.len() && y < new.len() && old[x] == new[y] {
                x += 1;
                y += 1;
            }
            reach[place] = x;
            if x >= old.len() && y >= new.len() {
                // added + removed = edits, added - removed = the difference in length.
                let added = (edits + new.len() - old.len()) / 2;
                return (added, edits - added);
            }
        }
    }
    (new.len(), old.len())
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
            prop_assert_eq!(count(&old, &new), (b.len() - kept, a.len() - kept));
        }
    }
}
