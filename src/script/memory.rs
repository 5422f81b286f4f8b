//! What a recipe remembers by key: named tables of numbers, one for each text, over the steps of a run.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The most keys of a table where the script does not say.
pub(super) const MAX_KEYS: usize = 200_000;

/// The most keys of all tables, and the most bytes.
const ALL_KEYS: usize = 1 << 20;
const ALL_BYTES: usize = 256 << 20;
/// The bytes of a table, and of a key beside its text, about.
const TABLE_BYTES: usize = 512;
const KEY_BYTES: usize = 80;

/// Entries that are copied together. An older state shares the chunks that a step does not write.
const CHUNK: usize = 32;
/// Keys of a part of the index, on the average at most.
const PART: usize = 8;

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

    /// Puts a table in the place of the one of that name.
    ///
    /// # Errors
    /// The bound, in words, that all tables together would be beyond; nothing is changed.
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

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: f64,
    /// The number of writes to the table when it was last written.
    written: u64,
}

/// Keys with the indices of their entries.
type Part = Vec<(Arc<str>, u32)>;

/// Numbers by key. A clone shares what is not written: the index as long as there is no new key, and chunks of entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// By the key's hash: none, or a power of two.
    index: Arc<Vec<Arc<Part>>>,
    entries: Vec<Arc<Vec<Entry>>>,
    keys: usize,
    /// The bytes of the keys' texts.
    texts: usize,
    writes: u64,
}

/// The part of a key, of so many.
fn part_of(key: &str, parts: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // Keeps the low bits.
    hasher.finish() as usize % parts.max(1)
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<f64> {
        Some(self.entry(self.find(key)?).value)
    }

    pub(super) fn set(&mut self, key: &Arc<str>, value: f64) {
        self.writes += 1;
        let written = self.writes;
        self.put(key, Entry { value, written });
    }

    fn bytes(&self) -> usize {
        TABLE_BYTES + KEY_BYTES * self.keys + self.texts
    }

    fn find(&self, key: &str) -> Option<usize> {
        let mut part = self.index.get(part_of(key, self.index.len()))?.iter();
        part.find(|(known, _)| **known == *key)
            .map(|(_, at)| *at as usize)
    }

    fn entry(&self, at: usize) -> Entry {
        self.entries[at / CHUNK][at % CHUNK]
    }

    fn put(&mut self, key: &Arc<str>, entry: Entry) {
        if let Some(at) = self.find(key) {
            Arc::make_mut(&mut self.entries[at / CHUNK])[at % CHUNK] = entry;
            return;
        }
        let at = self.keys;
        if at % CHUNK == 0 {
            self.entries.push(Arc::default());
        }
        Arc::make_mut(&mut self.entries[at / CHUNK]).push(entry);
        if at == PART * self.index.len() {
            let mut parts = vec![Part::new(); (2 * self.index.len()).max(1)];
            let count = parts.len();
            for (key, at) in self.index.iter().flat_map(|part| part.iter()) {
                parts[part_of(key, count)].push((key.clone(), *at));
            }
            self.index = Arc::new(parts.into_iter().map(Arc::new).collect());
        }
        let parts = Arc::make_mut(&mut self.index);
        let part = part_of(key, parts.len());
        // Far fewer keys than 2^32 fit.
        Arc::make_mut(&mut parts[part]).push((key.clone(), at as u32));
        self.keys += 1;
        self.texts += key.len();
    }

    /// Where there are more keys than `most`, drops those that were written longest ago, an eighth of `most` beyond what
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
        for (key, entry) in self.ordered().into_iter().skip(self.keys - kept) {
            bounded.put(key, entry);
        }
        *self = bounded;
        true
    }

    /// All keys with their entries, in the order in which they were last written.
    fn ordered(&self) -> Vec<(&Arc<str>, Entry)> {
        let all = self.index.iter().flat_map(|part| part.iter());
        let all = all.map(|(key, at)| (key, self.entry(*at as usize)));
        let mut entries: Vec<(&Arc<str>, Entry)> = all.collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.written);
        entries
    }

    /// All keys with their values, in the order in which they were last written.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Arc<str>, f64)> {
        let entries = self.ordered().into_iter();
        entries.map(|(key, entry)| (key, entry.value))
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
    fn a_step_copies_the_chunks_that_it_writes() {
        let mut table = Table::default();
        for key in 0..100_000 {
            table.set(&key.to_string().into(), 0.0);
        }
        let before = table.clone();
        table.set(&"77".into(), 1.0);
        assert!(Arc::ptr_eq(&before.index, &table.index), "no new key");
        let chunks = before.entries.iter().zip(&table.entries);
        let copied = chunks.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!((copied, before.get("77")), (1, Some(0.0)));
        table.set(&"new".into(), 1.0);
        let parts = before.index.iter().zip(table.index.iter());
        let copied = parts.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(
            (copied, before.get("new"), table.get("new")),
            (1, None, Some(1.0))
        );
        let longest = table.index.iter().map(|part| part.len()).max();
        assert!(longest < Some(40), "{longest:?}");

        let mut one = Table::default();
        one.set(&"key".into(), 1.0);
        assert_eq!((one.index.len(), one.entries.len()), (1, 1));
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
