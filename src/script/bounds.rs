//! The bounds on a script's values, and the measuring of its variables: their depth and their bytes.
//!
//! The engine checks the size of a value that an operator or a function makes. It checks neither values set into a map by key
//! nor values captured by closures, nor depth. So variables are measured when one of them is read: at intervals that grow
//! with their size, so that measuring costs a fraction of the script's own time.

use rhai::{Array, Dynamic, EvalAltResult, FnPtr, ImmutableString, Map, Position, Scope};

use super::error::CallError;

/// Operations per call: a formula over 4096 groups, group by group, takes a million; an endless loop reaches this in a second.
pub(super) const OPERATIONS: usize = 20_000_000;
/// The total bytes of a string and of all other strings in the same array or map.
pub(super) const TEXT_BYTES: usize = 1 << 20;
/// Elements of an array, with those of the arrays in it.
///
/// The limit is this low because the engine counts all elements at each `push`: filling an array of this size takes a second.
pub(super) const ARRAY_ELEMENTS: usize = 1 << 15;
/// Entries of a map, with those of the maps in it.
pub(super) const MAP_ENTRIES: usize = 1 << 14;
/// The depth to which arrays, maps and closures may be nested.
const DEPTH: usize = 64;
/// Bytes of all variables of a function, without tensors.
const BYTES: usize = 64 << 20;
/// The least number of reads of variables between two measurements. It is odd: a loop often reads an even number of
/// variables, and each of them is to have its turn.
pub(super) const READS: u64 = 61;
/// Values measured per read of a variable, on average: this takes less time than the read. Counted instead of
/// timed, so that a script always ends at the same line.
pub(super) const PER_READ: u64 = 8;
/// The bytes of a value, whatever it is.
const VALUE_BYTES: usize = size_of::<Dynamic>();
/// The bytes of a map's entry without its value.
const ENTRY_BYTES: usize = 48;

pub(super) const GROWS: &str =
    "does a loop keep adding to it? Values by response or token belong in tensors";

/// A description of the exceeded bound, to follow the value's name, and a help.
pub(super) type Excess = (String, &'static str);

/// Measures the variables of a function and its `this`; returns the number of values in them.
pub(super) fn measure_all(
    scope: &Scope<'_>,
    this: Option<&Dynamic>,
) -> Result<u64, Box<EvalAltResult>> {
    let mut total = Measure::default();
    let variables = scope.iter_raw().map(|(name, _, value)| (name, value));
    for (name, value) in variables.chain(this.map(|this| ("this", this))) {
        total.measure(value, 0).map_err(|(excess, help)| {
            let error = CallError::new(format!("stopped: `{name}` {excess}"), help);
            EvalAltResult::ErrorTerminated(Dynamic::from(error), Position::NONE)
        })?;
    }
    Ok(total.values)
}

pub(super) fn check(value: &Dynamic) -> Result<(), Excess> {
    Measure::default().measure(value, 0)
}

#[derive(Default)]
struct Measure {
    values: u64,
    bytes: usize,
    /// The captured variables that are being looked into: a closure may hold itself.
    stack: Vec<usize>,
}

impl Measure {
    fn measure(&mut self, value: &Dynamic, depth: usize) -> Result<(), Excess> {
        if depth > DEPTH {
            return Err((
                format!("nests arrays, maps or closures more than {DEPTH} deep"),
                "does a loop put it into itself? To add to an array, write `a.push(x)`",
            ));
        }
        if !value.is_shared() {
            return self.inside(value, depth);
        }
        // A locked value is in use by a call; its content is measured after the call.
        let Some(inner) = value.read_lock::<Dynamic>() else {
            return Ok(());
        };
        let address = std::ptr::from_ref::<Dynamic>(&inner) as usize;
        if self.stack.contains(&address) {
            return Ok(());
        }
        self.stack.push(address);
        let measured = self.inside(&inner, depth);
        self.stack.pop();
        measured
    }

    fn inside(&mut self, value: &Dynamic, depth: usize) -> Result<(), Excess> {
        self.add(VALUE_BYTES)?;
        let below = |value| self.measure(value, depth + 1);
        if let Some(array) = value.read_lock::<Array>() {
            array.iter().try_for_each(below)
        } else if let Some(closure) = value.read_lock::<FnPtr>() {
            closure.iter_curry().try_for_each(below)
        } else if let Some(text) = value.read_lock::<ImmutableString>() {
            self.add(text.len())
        } else if let Some(map) = value.read_lock::<Map>() {
            if map.len() > MAP_ENTRIES {
                let excess = format!("holds a map of more than {MAP_ENTRIES} entries");
                return Err((excess, GROWS));
            }
            map.iter().try_for_each(|(key, value)| {
                self.add(ENTRY_BYTES + key.len())?;
                self.measure(value, depth + 1)
            })
        } else {
            Ok(())
        }
    }

    fn add(&mut self, bytes: usize) -> Result<(), Excess> {
        self.values += 1;
        self.bytes += bytes;
        if self.bytes > BYTES {
            let most = BYTES >> 20;
            let excess = format!("and the variables before it hold more than {most} MiB");
            return Err((excess, GROWS));
        }
        Ok(())
    }
}
