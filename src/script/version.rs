//! The texts of a recipe's scripts, and the version that identifies them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hmac_sha256::Hash as Sha256;

/// The texts of a recipe's scripts, by name.
pub(crate) type Sources = BTreeMap<Arc<str>, Arc<str>>;

/// A SHA-256 hash, in hexadecimal digits, that identifies the exact content of a recipe and all its imports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    pub(super) fn of(main: &str, text: &[u8], imports: &Sources) -> Version {
        let mut hash = Sha256::new();
        // The main script's name is not hashed, so that a copy of a built-in is the same version until it is edited.
        let mut add = |text: &[u8]| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(text);
        // The imports are hashed in the order of their names without folders, because the folder must not change the version.
        let mut imports: Vec<_> = imports
            .iter()
            .filter(|(name, _)| &***name != main)
            .collect();
        imports.sort_by_key(|(name, _)| Path::new(&***name).file_stem());
        imports.iter().for_each(|(_, text)| add(text.as_bytes()));
        let digits = hash.finalize().map(|byte| format!("{byte:02x}"));
        Version(digits.concat())
    }

    /// Returns all 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first six digits, which messages show.
    pub fn short(&self) -> &str {
        &self.0[..6]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short())
    }
}
