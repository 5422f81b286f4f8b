//! The values that a recipe remembers over the steps of a run: named tables that map texts to numbers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::replace;
use std::sync::Arc;

use super::limits::{ALL_BYTES, ALL_KEYS};

/// The approximate sizes in bytes of an empty table, and of an entry without the text of its key.
const TABLE_BYTES: usize = 1024;
const KEY_BYTES: usize = 80;

/// The maximum number of entries per part of a table, on average over its parts.
const PART: usize = 16;

/// All tables of a state, by name. A clone shares each table until the clone or the original changes it.
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

    /// Stores a table under a name, in place of an earlier table of that name.
    ///
    /// # Errors
    /// The limit, in words, if all tables together would exceed it; in this case nothing changes.
    pub(super) fn insert(&mut self, name: &str, table: Arc<Table>) -> Result<(), String> {
        let size = |table: &Arc<Table>| (table.keys, table.bytes() + name.len());
        let (before, after) = (self.get(name).map_or((0, 0), size), size(&table));
        let (keys, bytes) = (
            self.keys + after.0 - before.0,
            self.bytes + after.1 - before.1,
        );
        if keys > ALL_KEYS {
            return Err(format!("{ALL_KEYS} keys"));
        }
        if bytes > ALL_BYTES {
            return Err(format!("{} MiB", ALL_BYTES >> 20));
        }
        (self.keys, self.bytes) = (keys, bytes);
        self.by_name.insert(name.into(), table);
        Ok(())
    }
}

/// For each key, its value, and the number of writes to the table up to and including the last write to this key.
type Part = BTreeMap<Arc<str>, (f64, u64)>;

/// Numbers by key. Clones share unchanged parts, so a step copies only the parts to which it writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The keys, distributed by their hashes.
    parts: Vec<Arc<Part>>,
    keys: usize,
    /// The total length of the keys' texts, in bytes.
    texts: usize,
    writes: u64,
}

impl Table {
    /// Returns the index of the part to which a key belongs.
    fn part(&self, key: &str) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() as usize % self.parts.len().max(1)
    }

    pub(super) fn get(&self, key: &str) -> Option<f64> {
        let (value, _) = self.parts.get(self.part(key))?.get(key)?;
        Some(*value)
    }

    pub(super) fn set(&mut self, key: &Arc<str>, value: f64) {
        self.writes += 1;
        self.put(key, (value, self.writes));
    }

    fn put(&mut self, key: &Arc<str>, entry: (f64, u64)) {
        if self.keys == PART * self.parts.len() {
            let larger = Table {
                parts: vec![Arc::default(); (2 * self.parts.len()).max(1)],
                writes: self.writes,
                ..Table::default()
            };
            let old = replace(self, larger);
            for (key, entry) in old.parts.iter().flat_map(|part| &**part) {
                self.put(key, *entry);
            }
        }
        let part = self.part(key);
        let known = Arc::make_mut(&mut self.parts[part]).insert(key.clone(), entry);
        if known.is_none() {
            self.keys += 1;
            self.texts += key.len();
        }
    }

    fn bytes(&self) -> usize {
        TABLE_BYTES + KEY_BYTES * self.keys + self.texts
    }

    /// If there are more than `most` keys, drops the keys that were written longest ago, until 7/8 of `most` are left, so that
    /// keys are seldom dropped. Returns whether any key was dropped.
    pub(super) fn bound(&mut self, most: usize) -> bool {
        if self.keys <= most {
            return false;
        }
        let dropped = self.keys - (most - most / 8);
        let mut kept = Table {
            writes: self.writes,
            ..Table::default()
        };
        for (key, entry) in self.ordered().skip(dropped) {
            kept.put(key, *entry);
        }
        *self = kept;
        true
    }

    fn ordered(&self) -> impl Iterator<Item = (&Arc<str>, &(f64, u64))> {
        let mut entries: Vec<_> = self.parts.iter().flat_map(|part| &**part).collect();
        entries.sort_unstable_by_key(|(_, (_, written))| *written);
        entries.into_iter()
    }

    /// Returns all keys with their values, in the order in which they were last written.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Arc<str>, f64)> {
        self.ordered().map(|(key, (value, _))| (key, *value))
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
            let inserted: Vec<Result<(), String>> = (0..9)
                .map(|name| tables.insert(&name.to_string(), table.clone()))
                .collect();
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
