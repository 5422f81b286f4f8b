//! What a recipe remembers over the steps of a run: named tables of numbers by text.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The most keys of a table, unless the script sets another bound.
pub(super) const MAX_KEYS: usize = 200_000;

/// The most keys of all tables, and the most bytes.
const ALL_KEYS: usize = 1 << 20;
const ALL_BYTES: usize = 256 << 20;
/// The approximate bytes of a table, and of a key without its text.
const TABLE_BYTES: usize = 1024;
const KEY_BYTES: usize = 80;

/// Entries of a part of a table on average, at most. An older state shares the parts that a step does not write.
const PART: usize = 16;

/// All tables of a state, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    by_name: BTreeMap<Arc<str>, Arc<Table>>,
    keys: usize,
    bytes: usize,
}

impl Tables {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Table>> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Table>)> {
        self.by_name.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Sets the table of a name.
    ///
    /// # Errors
    /// The bound, in words, that all tables together would exceed; nothing is changed.
    pub(super) fn insert(&mut self, name: &str, table: Arc<Table>) -> Result<(), String> {
        let before = self.get(name);
        let bytes = |table: &Arc<Table>| table.bytes() + name.len();
        let keys = self.keys + table.keys - before.map_or(0, |before| before.keys);
        let all = self.bytes + bytes(&table) - before.map_or(0, bytes);
        if keys > ALL_KEYS {
            return Err(format!("{ALL_KEYS} keys"));
        }
        if all > ALL_BYTES {
            return Err(format!("{} MiB", ALL_BYTES >> 20));
        }
        (self.keys, self.bytes) = (keys, all);
        self.by_name.insert(name.into(), table);
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Entry {
    /// The hash of the key.
    hash: u64,
    key: Arc<str>,
    value: f64,
    /// The number of writes to the table when it was last written.
    written: u64,
}

/// Numbers by key. A clone shares the parts that are not written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Entries by the low bits of their hashes: no part, or a power of two of them.
    parts: Vec<Arc<Vec<Entry>>>,
    keys: usize,
    /// The bytes of the keys' texts.
    texts: usize,
    writes: u64,
}

fn hash_of(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<f64> {
        let hash = hash_of(key);
        let mut entries = self.parts.get(self.part_of(hash))?.iter();
        let entry = entries.find(|entry| entry.hash == hash && *entry.key == *key);
        entry.map(|entry| entry.value)
    }

    /// Writes the result of `next`, which gets the value before, if there is one. Returns the value before. An error writes
    /// nothing.
    pub(super) fn update<E>(
        &mut self,
        key: &Arc<str>,
        next: impl FnOnce(Option<f64>) -> Result<f64, E>,
    ) -> Result<Option<f64>, E> {
        let before = self.get(key);
        let value = next(before)?;
        self.writes += 1;
        let (hash, written) = (hash_of(key), self.writes);
        let key = key.clone();
        let new = Entry {
            hash,
            key,
            value,
            written,
        };
        if before.is_none() {
            self.add(new);
            return Ok(None);
        }
        let entries = self.part_mut(hash).iter_mut();
        for entry in entries.filter(|entry| entry.hash == hash && entry.key == new.key) {
            (entry.value, entry.written) = (value, written);
        }
        Ok(before)
    }

    pub(super) fn set(&mut self, key: &Arc<str>, value: f64) {
        let Ok(_) = self.update(key, |_| Ok::<f64, Infallible>(value));
    }

    fn bytes(&self) -> usize {
        TABLE_BYTES + KEY_BYTES * self.keys + self.texts
    }

    /// The index of the part of a key: the low bits of its hash.
    fn part_of(&self, hash: u64) -> usize {
        hash as usize % self.parts.len().max(1)
    }

    /// Adds an entry whose key is not there.
    fn add(&mut self, entry: Entry) {
        if self.keys == PART * self.parts.len() {
            let parts = (2 * self.parts.len()).max(1);
            let old = std::mem::replace(&mut self.parts, vec![Arc::default(); parts]);
            for entry in old.iter().flat_map(|part| part.iter()) {
                self.part_mut(entry.hash).push(entry.clone());
            }
        }
        self.keys += 1;
        self.texts += entry.key.len();
        self.part_mut(entry.hash).push(entry);
    }

    fn part_mut(&mut self, hash: u64) -> &mut Vec<Entry> {
        let part = self.part_of(hash);
        Arc::make_mut(&mut self.parts[part])
    }

    /// If there are more keys than `most`, drops those that were written longest ago, an eighth of `most` beyond what
    /// is needed, so that this is seldom. Returns whether it did.
    pub(super) fn bound(&mut self, most: usize) -> bool {
        if self.keys <= most {
            return false;
        }
        let kept = most - most / 8;
        let mut bounded = Table {
            writes: self.writes,
            ..Table::default()
        };
        for entry in self.ordered().into_iter().skip(self.keys - kept) {
            bounded.add(entry.clone());
        }
        *self = bounded;
        true
    }

    /// All entries, in the order in which they were last written.
    fn ordered(&self) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self.parts.iter().flat_map(|part| part.iter()).collect();
        entries.sort_unstable_by_key(|entry| entry.written);
        entries
    }

    /// All keys with their values, in the order in which they were last written.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Arc<str>, f64)> {
        let entries = self.ordered().into_iter();
        entries.map(|entry| (&entry.key, entry.value))
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
        let kept: Vec<f64> = table.in_order().map(|(_, value)| value).collect();
        let expected: Vec<f64> = (4..16).map(f64::from).chain([0.5, 16.0]).collect();
        assert_eq!(kept, expected);
        assert_eq!(before.get("1"), Some(1.0), "an older state keeps its own");
    }

    /// What a state costs is what is in it, and a step costs what it writes.
    #[test]
    fn a_step_copies_the_parts_that_it_writes() {
        let mut table = Table::default();
        for key in 0..100_000 {
            table.set(&key.to_string().into(), 0.0);
        }
        let copied = |old: &Table, new: &Table| {
            let parts = old.parts.iter().zip(&new.parts);
            parts.filter(|(a, b)| !Arc::ptr_eq(a, b)).count()
        };
        for (key, before) in [("77", Some(0.0)), ("new", None)] {
            let old = table.clone();
            table.set(&key.into(), 1.0);
            assert_eq!((copied(&old, &table), old.get(key)), (1, before));
            assert_eq!(table.get(key), Some(1.0));
        }
        let longest = table.parts.iter().map(|part| part.len()).max();
        assert!(longest < Some(5 * PART / 2), "{longest:?}");

        let mut one = Table::default();
        one.set(&"key".into(), 1.0);
        assert_eq!(one.parts.len(), 1);
    }

    #[test]
    fn all_tables_are_bounded_together() {
        let table = |keys: usize, length: usize| {
            let mut table = Table::default();
            for key in 0..keys {
                table.set(&format!("{key:>length$}").into(), 0.0);
            }
            Arc::new(table)
        };
        for (keys, length, fit, bound) in [
            (ALL_KEYS / 4, 1, 4, "1048576 keys"),
            (1000, 50_000, 5, "256 MiB"),
        ] {
            let (table, mut tables) = (table(keys, length), Tables::default());
            let inserted = (0..9).map(|name| tables.insert(&name.to_string(), table.clone()));
            let inserted: Vec<Result<(), String>> = inserted.collect();
            assert_eq!(inserted.iter().filter(|one| one.is_ok()).count(), fit);
            assert_eq!(inserted[8], Err(bound.to_string()));
            assert!(
                tables.insert("0", Arc::default()).is_ok(),
                "in the place of a larger one"
            );
            assert!(tables.insert("new", table).is_ok());
        }
        let (mut tables, empty) = (Tables::default(), Arc::<Table>::default());
        let names = 0..=ALL_BYTES / TABLE_BYTES;
        let refused = names.map(|name| tables.insert(&name.to_string(), empty.clone()).is_err());
        assert!(
            refused.last() == Some(true),
            "tables without keys count too"
        );
    }
}
