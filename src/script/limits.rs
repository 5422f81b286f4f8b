//! The limits of a script, and the messages for a script that exceeds them; the limit on what a script allocates besides tensors
//! is in `tensor/guard.rs`. The sandbox, the engine and the calls enforce these limits.

use std::time::Duration;

/// The limits of one call of a recipe. These calls are [`Recipe::advantage`](super::Recipe::advantage) with the hooks `reward`
/// and `weight`, [`Recipe::loss`](super::Recipe::loss) for each update, and [`Recipe::returns`](super::Recipe::returns).
/// [`Recipe::for_step`](super::Recipe::for_step) puts several calls under one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time limit for all hooks of the call together; native code obeys it too.
    pub time: Duration,
    /// The maximum number of bytes that the tensors of the call hold at the same time.
    pub memory: usize,
}

impl Default for Limits {
    /// A minute and 4 GiB: far more than a step needs, and still a limit for a script that does not terminate.
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(60),
            memory: 4 << 30,
        }
    }
}

/// Bytes of a script's text. A recipe has a few kilobytes; a larger script contains data, and compiling megabytes takes minutes.
pub(super) const SCRIPT_BYTES: usize = 256 << 10;
/// The depth to which calls may be nested. A hook needs three or four levels.
pub(super) const CALL_LEVELS: usize = 32;
/// The depth to which expressions may be nested, outside and inside functions.
pub(super) const EXPRESSION_DEPTH: usize = 64;
/// The most operations per call. A formula computed group by group over 4096 groups takes a million; an endless loop reaches the
/// limit in a second.
pub(super) const OPERATIONS: u64 = 20_000_000;
/// Bytes of a string, together with all other strings in the same array or map.
pub(super) const TEXT_BYTES: usize = 1 << 20;
/// Elements of an array, together with the elements of the arrays in it. The limit is this low because the engine counts all
/// elements at each `push`: filling an array of this size takes a second.
pub(super) const ARRAY_ELEMENTS: usize = 1 << 15;
/// The most elements that are made of an array that would be longer. The engine refuses an array of this length, so further
/// elements are not needed.
pub(super) const ENOUGH: usize = ARRAY_ELEMENTS + 1;
/// Entries of a map, together with the entries of the maps in it.
pub(super) const MAP_ENTRIES: usize = 1 << 14;
/// The depth to which arrays, maps and closures may be nested.
pub(super) const VALUE_DEPTH: usize = 64;
/// Bytes of all variables of a function, without tensors.
pub(super) const VARIABLE_BYTES: usize = 64 << 20;
/// The depth to which the arrays and maps of a state may be nested. A checkpoint's JSON has two levels per map, and readers stop
/// at 128.
pub(super) const STATE_DEPTH: usize = 32;
/// Metrics of a step; its notes have the same limit.
pub(super) const METRICS: usize = 256;
/// Bytes that are kept of what a step prints.
pub(super) const PRINTED_BYTES: usize = 1 << 20;
/// Keys of a table of remembered values, unless the script sets another limit.
pub(super) const TABLE_KEYS: usize = 200_000;
/// Keys of all tables of a state together.
pub(super) const ALL_KEYS: usize = 1 << 20;
/// Bytes of all tables of a state together.
pub(super) const ALL_BYTES: usize = 256 << 20;

/// The message for a script that exceeds [`OPERATIONS`].
pub(super) const WORK: &str = "stopped after 20 million operations, more than any formula needs";
/// The message for a script whose values exceed the memory of the call.
pub(super) const MEMORY: &str =
    "stopped: besides its tensors, the script takes more memory than any formula needs";
/// The help for a value that has grown beyond its limit.
pub(super) const GROWS: &str =
    "does a loop keep adding to it? Values per response or token belong in tensors";
/// The help for a script that takes too long.
pub(super) const ENDLESS: &str = "is there an endless loop, or a loop over many responses that a tensor operation could replace?";
