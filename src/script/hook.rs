//! The hooks of a recipe, and its version.

use std::fmt;
use std::path::Path;

use hmac_sha256::Hash as Sha256;

use super::builtin::Sources;

/// A function that a script can define for advlab to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// `reward(batch, p)` replaces the reward.
    Reward,
    /// `weight(batch, p)` says how much each response counts in the loss.
    Weight,
    /// `advantage(batch, p)` gives the advantage.
    Advantage,
    /// `loss(batch, p)` gives the loss, differentiable in `batch.logp`.
    Loss,
    /// `returns(batch, p)` gives the target of a trainer's critic.
    Returns,
    /// `params()` declares the parameters.
    Params,
    /// `init(p)` makes the state.
    Init,
    /// `migrate(old, p)` carries the state of an older version over.
    Migrate,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Hook; 8] = [
        Hook::Reward,
        Hook::Weight,
        Hook::Advantage,
        Hook::Loss,
        Hook::Returns,
        Hook::Params,
        Hook::Init,
        Hook::Migrate,
    ];

    /// The hooks that each step of a run computes from a batch: `hook(batch, p)`.
    pub const OF_BATCH: [Hook; 4] = [Hook::Reward, Hook::Weight, Hook::Advantage, Hook::Loss];

    /// The function's name.
    pub const fn name(self) -> &'static str {
        self.signature().0
    }

    pub(super) const fn parameters(self) -> &'static [&'static str] {
        self.signature().1
    }

    const fn signature(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Hook::Reward => ("reward", &["batch", "p"]),
            Hook::Weight => ("weight", &["batch", "p"]),
            Hook::Advantage => ("advantage", &["batch", "p"]),
            Hook::Loss => ("loss", &["batch", "p"]),
            Hook::Returns => ("returns", &["batch", "p"]),
            Hook::Params => ("params", &[]),
            Hook::Init => ("init", &["p"]),
            Hook::Migrate => ("migrate", &["old", "p"]),
        }
    }
}

/// Names the exact content of a recipe with all its imports: a SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    pub(super) fn of(main: &str, text: &[u8], imports: &Sources) -> Version {
        let mut hash = Sha256::new();
        // Only the main script's bytes count: a copy of a built-in is the same version until it is edited.
        let mut add = |text: &[u8]| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(text);
        // In the order of the names in the `import`s: their folder is ignored here too.
        let imports = imports.iter().filter(|(name, _)| &***name != main);
        let mut imports: Vec<_> = imports.collect();
        imports.sort_by_key(|(name, _)| Path::new(&***name).file_stem());
        imports.iter().for_each(|(_, text)| add(text.as_bytes()));
        let digits = hash.finalize().map(|byte| format!("{byte:02x}"));
        Version(digits.concat())
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first six digits, as messages show it.
    pub fn short(&self) -> &str {
        &self.0[..6]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short())
    }
}
