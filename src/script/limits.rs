//! The limits of a script, and the messages for a script that exceeds them; the limit on the memory that a script takes besides
//! tensors is in `tensor/guard.rs`. The sandbox, the engine and the calls enforce these limits.

use std::time::Duration;

/// The limits of one call of a recipe. Each of these is one call: [`Recipe::advantage`](super::Recipe::advantage), with the hooks
/// `reward` and `weight`; [`Recipe::loss`](super::Recipe::loss), for one update; and [`Recipe::returns`](super::Recipe::returns).
/// [`Recipe::for_step`](super::Recipe::for_step) puts several calls under the same limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time limit for all hooks of the call together, including the tensor operations that they request, but not the
    /// comparison of answers with references.
    pub time: Duration,
    /// The maximum number of bytes that the tensors of the call may hold at the same time.
    pub memory: usize,
}

impl Default for Limits {
    /// Returns one minute and 4 GiB: far more than a step needs, but enough to stop a script that does not terminate.
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(60),
            memory: 4 << 30,
        }
    }
}

/// The maximum size of a script in bytes. A recipe has a few kilobytes; a larger script contains data, and can take minutes to
/// compile.
pub(super) const SCRIPT_BYTES: usize = 256 << 10;
/// The maximum depth of nested calls. A hook needs three or four levels.
pub(super) const CALL_LEVELS: usize = 32;
/// The maximum depth of nested expressions, both outside and inside functions.
pub(super) const EXPRESSION_DEPTH: usize = 64;
/// The maximum number of script operations per call. A formula computed group by group over 4096 groups takes a million
/// operations; an endless loop reaches the limit in a second.
pub(super) const OPERATIONS: u64 = 20_000_000;
/// The maximum number of bytes of a string, or of all strings in an array or a map together.
pub(super) const TEXT_BYTES: usize = 1 << 20;
/// The maximum number of elements of an array, including the elements of nested arrays. The limit is low because the engine
/// counts all elements at each `push`, so that filling an array of this size takes a second.
pub(super) const ARRAY_ELEMENTS: usize = 1 << 15;
/// The number of elements at which we stop filling a longer array, because the engine refuses an array of this length anyway.
pub(super) const ENOUGH: usize = ARRAY_ELEMENTS + 1;
/// The maximum number of entries of a map, including the entries of nested maps.
pub(super) const MAP_ENTRIES: usize = 1 << 14;
/// The maximum depth of nested arrays, maps and closures.
pub(super) const VALUE_DEPTH: usize = 64;
/// The maximum number of bytes of all variables of a function, not counting tensors, batches and keys.
pub(super) const VARIABLE_BYTES: usize = 64 << 20;
/// The maximum depth of nested arrays and maps in a state. A checkpoint's JSON has two levels per map, and readers accept 128.
pub(super) const STATE_DEPTH: usize = 32;
/// The maximum number of metrics of a step, and the maximum number of notes.
pub(super) const METRICS: usize = 256;
/// The maximum number of printed bytes that are kept for a step.
pub(super) const PRINTED_BYTES: usize = 1 << 20;
/// The maximum number of keys of a table of remembered values, unless the script sets another limit.
pub(super) const TABLE_KEYS: usize = 200_000;
/// The maximum number of keys of all tables of a state together.
pub(super) const ALL_KEYS: usize = 1 << 20;
/// The maximum number of bytes of all tables of a state together.
pub(super) const ALL_BYTES: usize = 256 << 20;

/// The message for a script that exceeds [`OPERATIONS`].
pub(super) const WORK: &str = "stopped after 20 million operations, more than any formula needs";
/// The message for a script whose values exceed the memory limit of the call.
pub(super) const MEMORY: &str =
    "stopped: besides its tensors, the script takes more memory than any formula needs";
/// The help for a value that has grown beyond its limit.
pub(super) const GROWS: &str =
    "does a loop keep adding to a value? Values per response or token belong in tensors";
/// The help for a script that takes too long.
pub(super) const ENDLESS: &str = "is there an endless loop, or a loop over many responses that a tensor operation could replace?";
