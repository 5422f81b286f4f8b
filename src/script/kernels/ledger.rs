//! What is known in this process of each hook that a kernel may answer, and what changes it.

use std::collections::{HashMap, HashSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Asked, HookKernels, KernelChange, Kernels};
use crate::script::recipe::Version;

/// When kernels answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Where a hook takes long, once its kernel has given the script's bits: what commands do unless told otherwise.
    Auto,
    /// Wherever there is a kernel.
    On,
    /// Never: what the library does unless told otherwise.
    #[default]
    Off,
}

/// A hook that takes so long is worth a kernel, whatever its share of a step.
const LONG: Duration = Duration::from_millis(50);
/// The most keys: a script may give an import other settings at each step.
const KEYS: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct KernelLedger {
    hooks: HashMap<Key, Known>,
    /// Hooks whose kernels gave other bits than their scripts, with any settings: these are not asked again.
    refused: HashSet<(String, String)>,
    /// Hooks of which it was told that kernels answer them, with [`Mode::On`].
    told: HashSet<(String, String)>,
    changes: Vec<KernelChange>,
}

/// What a kernel's bits have been compared of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) version: Version,
    /// As [`KernelChange::hook`].
    pub(super) hook: String,
    /// The settings, and of numbers their signs: kernels tell 0 and 1 from other numbers, and no two of these apart.
    pub(super) settings: String,
    /// The precision of tokens.
    pub(super) is_f64: bool,
}

/// What is known of such a hook.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// The script runs, and is timed. Its share is that of the time from one call of the hook to the next.
    Watched { last: Instant },
    /// It takes long: the next batch is computed both ways.
    Due,
    /// The kernel has given the script's bits, and answers.
    Switched,
}

/// How to answer the next call of a hook.
pub(super) enum Way {
    Kernel,
    Script,
    /// By the script, to see how long it takes since the last call.
    Timed(Key, Option<Instant>),
    /// By both, to compare them.
    Both(Key),
}

impl Kernels {
    /// Kernels that answer in a mode; `threshold` is the share of the time between two calls of a hook from which on, in
    /// [`Mode::Auto`], it is worth a kernel.
    pub(crate) fn new(of: &'static dyn HookKernels, mode: Mode, threshold: f64) -> Kernels {
        Kernels {
            of,
            mode,
            threshold,
            ledger: Default::default(),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// What has changed since this was last asked for.
    pub(crate) fn changes(&self) -> Vec<KernelChange> {
        std::mem::take(&mut self.ledger().changes)
    }

    /// Leaves a hook of a version to its script for good: its kernel has given other bits before.
    pub(crate) fn refuse(&self, version: &str, hook: &str) {
        let refused = (version.to_string(), hook.to_string());
        self.ledger().refused.insert(refused);
    }

    fn ledger(&self) -> MutexGuard<'_, KernelLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn way(&self, key: impl FnOnce() -> Key) -> Way {
        let ledger = self.ledger();
        if self.mode == Mode::On && ledger.refused.is_empty() {
            return Way::Kernel;
        }
        let key = key();
        if ledger.is_refused(&key) {
            return Way::Script;
        }
        match ledger.hooks.get(&key) {
            _ if self.mode == Mode::On => Way::Kernel,
            Some(Known::Switched) => Way::Kernel,
            Some(Known::Due) => Way::Both(key),
            Some(Known::Watched { last }) => Way::Timed(key, Some(*last)),
            None if ledger.hooks.len() >= KEYS => Way::Script,
            None => Way::Timed(key, None),
        }
    }

    /// Notes how long the script took, and decides whether that is long.
    pub(super) fn timed(&self, key: Key, last: Option<Instant>, started: Instant) {
        let took = started.elapsed();
        let is_large_share = |last: Instant| {
            took.as_secs_f64() > self.threshold * started.duration_since(last).as_secs_f64()
        };
        let is_hot = took > LONG || last.is_some_and(is_large_share);
        let known = match is_hot {
            true => Known::Due,
            false => Known::Watched { last: started },
        };
        self.ledger().note(key, known);
    }

    /// Notes that a kernel declined what it was to be compared on: the next call is timed again.
    pub(super) fn declined(&self, key: Key) {
        let last = Instant::now();
        self.ledger().note(key, Known::Watched { last });
    }

    /// Tells once of a hook that its kernel answers unasked.
    pub(super) fn used(&self, asked: &Asked<'_>, change: impl FnOnce() -> KernelChange) {
        if self.mode != Mode::On {
            return;
        }
        let mut ledger = self.ledger();
        let (version, hook) = (asked.script.version.as_str(), asked.hook());
        let mut told = ledger.told.iter();
        if !told.any(|known| known.0 == version && known.1 == hook) {
            ledger.told.insert((version.to_string(), hook));
            let change = change();
            ledger.changes.push(change);
        }
    }

    /// Notes a comparison, and tells of it.
    pub(super) fn compared(&self, key: Key, change: KernelChange) {
        let mut ledger = self.ledger();
        let is_new = match &change.disagrees_on {
            Some(_) => {
                let version = key.version.as_str().to_string();
                ledger.refused.insert((version, key.hook))
            }
            None => ledger.note(key, Known::Switched),
        };
        if is_new {
            ledger.changes.push(change);
        }
    }
}

impl KernelLedger {
    fn is_refused(&self, key: &Key) -> bool {
        let mut refused = self.refused.iter();
        refused.any(|(version, hook)| version == key.version.as_str() && *hook == key.hook)
    }

    /// Notes what is known now, unless another thread has found out more in the meantime. Returns whether it is new.
    fn note(&mut self, key: Key, known: Known) -> bool {
        if self.is_refused(&key) || matches!(self.hooks.get(&key), Some(Known::Switched)) {
            return false;
        }
        self.hooks.insert(key, known);
        true
    }
}
