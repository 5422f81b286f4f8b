//! What a recipe remembers by key: named tables of numbers, one for each text, over the steps of a run.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The most keys of a table where the script does not say.
pub(super) const MAX_KEYS: usize = 200_000;

/// The parts of a table. A step that writes a few keys copies a few parts of those that an older state shares.
const PARTS: usize = 1 << 12;

/// All tables of a state, by their names.
pub(super) type Tables = BTreeMap<Arc<str>, Arc<Table>>;

type Part = BTreeMap<Arc<str>, Entry>;

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: f64,
    /// The number of writes to the table when it was last written.
    written: u64,
}

/// Numbers by key. A clone shares its parts until they are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// By the key's hash; empty as long as nothing is written.
    parts: Vec<Arc<Part>>,
    keys: usize,
    writes: u64,
}

fn part_of(key: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // Keeps the low bits.
    hasher.finish() as usize % PARTS
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<f64> {
        let part = self.parts.get(part_of(key))?;
        part.get(key).map(|entry| entry.value)
    }

    pub(super) fn set(&mut self, key: &Arc<str>, value: f64) {
        self.parts.resize_with(PARTS, Arc::default);
        self.writes += 1;
        let entry = Entry {
            value,
            written: self.writes,
        };
        let part = Arc::make_mut(&mut self.parts[part_of(key)]);
        self.keys += usize::from(part.insert(key.clone(), entry).is_none());
    }

    /// Where there are more keys than `most`, drops those that were written longest ago, an eighth of `most` beyond what
    /// is needed, so that this is seldom. Returns whether it did.
    pub(super) fn bound(&mut self, most: usize) -> bool {
        if self.keys <= most {
            return false;
        }
        let kept = most - most / 8;
        let mut written: Vec<u64> = self.entries().map(|(_, entry)| entry.written).collect();
        let (_, &mut last, _) = written.select_nth_unstable(self.keys - kept - 1);
        for part in &mut self.parts {
            if part.values().any(|entry| entry.written <= last) {
                Arc::make_mut(part).retain(|_, entry| entry.written > last);
            }
        }
        self.keys = kept;
        true
    }

    fn entries(&self) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// All keys with their values, in the order in which they were last written.
    pub(super) fn in_order(&self) -> Vec<(&Arc<str>, f64)> {
        let mut entries: Vec<(&Arc<str>, &Entry)> = self.entries().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.written);
        let entries = entries.into_iter();
        entries.map(|(key, entry)| (key, entry.value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_were_written_longest_ago_go_first() {
        let mut table = Table::default();
        for key in 0..16 {
            table.set(&key.to_string().into(), f64::from(key));
        }
        table.set(&"0".into(), 0.5);
        assert!(!table.bound(16));
        table.set(&"16".into(), 16.0);
        let before = table.clone();
        assert!(table.bound(16));
        let kept: Vec<f64> = table.in_order().iter().map(|(_, value)| *value).collect();
        let expected: Vec<f64> = (4..16).map(f64::from).chain([0.5, 16.0]).collect();
        assert_eq!(kept, expected);
        assert_eq!(before.get("1"), Some(1.0), "an older state keeps its own");
    }
}
