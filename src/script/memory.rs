//! What a recipe remembers by key: named tables of numbers, one for each text, over the steps of a run.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The most keys of a table where the script does not say.
pub(super) const MAX_KEYS: usize = 200_000;

/// The most keys of all tables, and the most bytes.
const ALL_KEYS: usize = 1 << 20;
const ALL_BYTES: usize = 256 << 20;
/// The bytes of a table, and of a key beside its text, about.
const TABLE_BYTES: usize = 1024;
const KEY_BYTES: usize = 80;

/// Entries that are copied together. An older state shares the chunks that a step does not write.
const CHUNK: usize = 32;
/// Keys of a part of the index, on the average at most.
const PART: usize = 4;

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

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    value: f64,
    /// The number of writes to the table when it was last written.
    written: u64,
}

/// Where a key's entry is.
#[derive(Clone, Debug)]
struct Place {
    /// Of the key: texts that are not the key's are seldom looked at.
    hash: u64,
    at: usize,
    key: Arc<str>,
}

/// Numbers by key. A clone shares what is not written: the index as long as there is no new key, and chunks of entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Places by the low bits of their hashes: no part, or a power of two of them.
    index: Arc<Vec<Arc<[Place]>>>,
    entries: Vec<Arc<[Entry; CHUNK]>>,
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

/// Keeps the low bits: `parts` is a power of two.
fn part_of(hash: u64, parts: usize) -> usize {
    hash as usize % parts
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<f64> {
        let at = self.find(key, hash_of(key))?;
        Some(self.entry(at).value)
    }

    /// Puts what `next` makes of the value before in its place, and returns that value.
    pub(super) fn update<E>(
        &mut self,
        key: &Arc<str>,
        next: impl FnOnce(Option<f64>) -> Result<f64, E>,
    ) -> Result<Option<f64>, E> {
        let hash = hash_of(key);
        let at = self.find(key, hash);
        let before = at.map(|at| self.entry(at).value);
        let value = next(before)?;
        self.writes += 1;
        let written = self.writes;
        let at = at.unwrap_or_else(|| self.add(key, hash));
        Arc::make_mut(&mut self.entries[at / CHUNK])[at % CHUNK] = Entry { value, written };
        Ok(before)
    }

    pub(super) fn set(&mut self, key: &Arc<str>, value: f64) {
        let Ok(_) = self.update(key, |_| Ok::<f64, Infallible>(value));
    }

    fn bytes(&self) -> usize {
        TABLE_BYTES + KEY_BYTES * self.keys + self.texts
    }

    fn find(&self, key: &str, hash: u64) -> Option<usize> {
        let part = part_of(hash, self.index.len().max(1));
        let mut places = self.index.get(part)?.iter();
        let place = places.find(|place| place.hash == hash && *place.key == *key);
        place.map(|place| place.at)
    }

    fn entry(&self, at: usize) -> Entry {
        self.entries[at / CHUNK][at % CHUNK]
    }

    /// Adds a key that is not there; gives the index of its entry.
    fn add(&mut self, key: &Arc<str>, hash: u64) -> usize {
        let (at, parts) = (self.keys, self.index.len());
        if at % CHUNK == 0 {
            self.entries.push(Arc::default());
        }
        if at == PART * parts {
            let parts = (2 * parts).max(1);
            let mut index = vec![Vec::new(); parts];
            for place in self.index.iter().flat_map(|part| part.iter()) {
                index[part_of(place.hash, parts)].push(place.clone());
            }
            self.index = Arc::new(index.into_iter().map(Arc::from).collect());
        }
        let index = Arc::make_mut(&mut self.index);
        let part = part_of(hash, index.len());
        let key = key.clone();
        self.texts += key.len();
        let places = index[part].iter().cloned();
        index[part] = places.chain([Place { hash, at, key }]).collect();
        self.keys += 1;
        at
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
            let at = bounded.add(key, hash_of(key));
            Arc::make_mut(&mut bounded.entries[at / CHUNK])[at % CHUNK] = entry;
        }
        *self = bounded;
        true
    }

    /// All keys with their entries, in the order in which they were last written.
    fn ordered(&self) -> Vec<(&Arc<str>, Entry)> {
        let all = self.index.iter().flat_map(|part| part.iter());
        let all = all.map(|place| (&place.key, self.entry(place.at)));
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
