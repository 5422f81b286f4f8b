//! Watches what the variables of a script hold: how deep, and how many bytes.
//!
//! The engine bounds a value where an operator or a function makes it, and not what is set into a map by key, what a
//! closure captures, or how deep a value is. So variables are weighed when one of them is read: now and then, the more
//! seldom the more there is to weigh, so that it costs a part of what the script does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rhai::{Array, Dynamic, Engine, EvalAltResult, FnPtr, ImmutableString, Map, Position, Scope};

use super::batch_type::ScriptBatch;
use super::mistake::Mistake;
use super::sandbox::MAP_ENTRIES;
use crate::diagnostic::Diagnostic;

/// Arrays, maps and closures within one another.
const DEPTH: usize = 64;
/// Bytes of all that the variables of a function hold, beside tensors.
const BYTES: usize = 64 << 20;
/// Reads of variables between two weighings, at least. Odd: a loop has an even number of them as often as not, and each
/// of its variables is to have its turn.
const READS: u64 = 61;
/// Values to be weighed for each read of a variable, on the average: a read takes longer than these. Counted and not
/// timed, so that a script ends at the same line each time.
const PER_READ: u64 = 8;
/// The bytes of a value, whatever it is.
const VALUE_BYTES: usize = size_of::<Dynamic>();
/// The bytes of a map's entry beside its value.
const ENTRY_BYTES: usize = 48;

/// A variable that holds too much; `this` for the state.
#[derive(Clone, Debug)]
pub(super) struct Overfull {
    variable: String,
    excess: Excess,
}

/// The bound that a value is beyond.
#[derive(Clone, Copy, Debug)]
pub(super) enum Excess {
    Depth,
    Entries,
    Bytes,
}

impl Overfull {
    pub(super) fn diagnostic(&self) -> Diagnostic {
        let variable = &self.variable;
        let bound = &self.excess.bound().to_string();
        match self.excess {
            Excess::Depth => Mistake::VariableTooDeep { variable, bound },
            Excess::Entries => Mistake::MapTooLarge { variable, bound },
            Excess::Bytes => Mistake::VariablesTooLarge { variable, bound },
        }
        .into()
    }
}

impl Excess {
    fn bound(self) -> usize {
        match self {
            Excess::Depth => DEPTH,
            Excess::Entries => MAP_ENTRIES,
            Excess::Bytes => BYTES >> 20,
        }
    }
}

/// What a state is that is beyond the bound.
impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = self.bound();
        match self {
            Excess::Depth => write!(f, "a map nested more than {bound} deep"),
            Excess::Entries => write!(f, "a map of more than {bound} entries"),
            Excess::Bytes => write!(f, "a map of more than {bound} MiB"),
        }
    }
}

/// Weighs variables as they are read, and lends the batch to closures, and the constants of a script, of which these see
/// no others. An engine has one such callback: the last one that it was given.
pub(super) fn watch(engine: &mut Engine, constants: &Arc<Scope<'static>>) {
    let constants = constants.clone();
    let (reads, due) = (AtomicU64::new(0), AtomicU64::new(READS));
    // Deprecated means volatile here: the callback may change in a later version, and ours is pinned.
    #[allow(deprecated)]
    engine.on_var(move |name, index, context| {
        let read = reads.fetch_add(1, Ordering::Relaxed);
        if read >= due.load(Ordering::Relaxed) {
            let values = weigh_all(context.scope(), context.this_ptr())?;
            due.store(read + READS.max(values / PER_READ), Ordering::Relaxed);
        }
        let scope = context.scope();
        let constant = || constants.get(name).filter(|_| !scope.contains(name));
        Ok(captured_batch(scope, name, index).or_else(|| constant().cloned()))
    });
}

/// The batch, where a closure has captured it: a copy, which is cheap.
///
/// The engine locks a captured variable while a method of it runs, so `batch.map_groups(|g| ... batch ...)` would find it
/// locked. A batch does not change, and needs none of that.
fn captured_batch(scope: &Scope<'_>, name: &str, index: usize) -> Option<Dynamic> {
    // The engine counts from the last variable, from 1; 0 is a variable that it looks up by name.
    let (found, _, value) = scope.iter_raw().nth(index.checked_sub(1)?)?;
    if !value.is_shared() || found != name {
        return None;
    }
    let batch = value.read_lock::<ScriptBatch>()?;
    Some(Dynamic::from(batch.clone()))
}

/// Weighs the variables of a function and its `this`; gives the number of values in them.
fn weigh_all(scope: &Scope<'_>, this: Option<&Dynamic>) -> Result<u64, Box<EvalAltResult>> {
    let mut scale = Scale::default();
    let variables = scope.iter_raw().map(|(name, _, value)| (name, value));
    for (name, value) in variables.chain(this.map(|this| ("this", this))) {
        if let Err(excess) = scale.weigh(value, 0) {
            let variable = name.to_string();
            let overfull = Dynamic::from(Overfull { variable, excess });
            return Err(EvalAltResult::ErrorTerminated(overfull, Position::NONE).into());
        }
    }
    Ok(scale.values)
}

pub(super) fn check(value: &Dynamic) -> Result<(), Excess> {
    Scale::default().weigh(value, 0)
}

#[derive(Default)]
struct Scale {
    values: u64,
    bytes: usize,
    /// The captured variables that are being looked into: a closure may hold itself.
    stack: Vec<usize>,
}

impl Scale {
    fn weigh(&mut self, value: &Dynamic, depth: usize) -> Result<(), Excess> {
        if depth > DEPTH {
            return Err(Excess::Depth);
        }
        if !value.is_shared() {
            return self.inside(value, depth);
        }
        // One that is locked is at work in a call; what it holds is weighed after that.
        let Some(inner) = value.read_lock::<Dynamic>() else {
            return Ok(());
        };
        let address = std::ptr::from_ref::<Dynamic>(&inner) as usize;
        if self.stack.contains(&address) {
            return Ok(());
        }
        self.stack.push(address);
        let weighed = self.inside(&inner, depth);
        self.stack.pop();
        weighed
    }

    fn inside(&mut self, value: &Dynamic, depth: usize) -> Result<(), Excess> {
        self.add(VALUE_BYTES)?;
        let below = |value| self.weigh(value, depth + 1);
        if let Some(array) = value.read_lock::<Array>() {
            array.iter().try_for_each(below)
        } else if let Some(closure) = value.read_lock::<FnPtr>() {
            closure.iter_curry().try_for_each(below)
        } else if let Some(text) = value.read_lock::<ImmutableString>() {
            self.add(text.len())
        } else if let Some(map) = value.read_lock::<Map>() {
            if map.len() > MAP_ENTRIES {
                return Err(Excess::Entries);
            }
            map.iter().try_for_each(|(key, value)| {
                self.add(ENTRY_BYTES + key.len())?;
                self.weigh(value, depth + 1)
            })
        } else {
            Ok(())
        }
    }

    fn add(&mut self, bytes: usize) -> Result<(), Excess> {
        self.values += 1;
        self.bytes += bytes;
        if self.bytes > BYTES {
            return Err(Excess::Bytes);
        }
        Ok(())
    }
}
