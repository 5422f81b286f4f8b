//! The sandbox: limits the resources of a script, so that no recipe exhausts a run's time, memory or stack. This file measures
//! the depth and the bytes of a script's variables; the limits themselves are in `limits.rs`.
//!
//! A script's `try` cannot catch the error of an exceeded limit, except for the limits on metrics and on tables. The engine
//! reports such an error as `ErrorTerminated`, `ErrorDataTooLarge` or a similar kind; an exceeded limit in a tensor operation is
//! converted to `ErrorTerminated`.
//!
//! A script can call only its own and imported functions, the ops, and the functions in `natives.txt`, which also says what
//! limits each function's time and the memory of its result. The engine checks the size of a value that an operator or a function
//! makes. It checks neither the depth of a value, nor values set into a map by key, nor values captured by closures. Therefore we
//! measure the variables when one of them is read, at intervals that grow with their size, which keeps the measuring to a
//! fraction of the script's own time. The call's guard counts tensors, batches and keys as long as they exist. Finally, if the
//! program counts allocations (`allocation.rs`), the memory that the script's thread allocates is limited, whatever its use.
//!
//! Even if a function ignores the error of an exceeded limit, the script fails, at the next check or when it returns.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rhai::{Array, Dynamic, EvalAltResult, FnPtr, ImmutableString, Map, Position, Scope};

use super::error::CallError;
use super::limits::{GROWS, MAP_ENTRIES, VALUE_DEPTH, VARIABLE_BYTES};
use crate::deep_stack;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Runs code that may call scripts, on a deep stack. A panic becomes an ordinary error, because a script must not end a run.
pub(crate) fn guarded<R: Send>(
    doing: &str,
    run: impl FnOnce() -> R + Send,
) -> Result<R, Diagnostics> {
    without_panic(doing, || deep_stack::call(run))
}

/// Runs code, and turns a panic into an ordinary error.
pub(super) fn without_panic<R>(doing: &str, run: impl FnOnce() -> R) -> Result<R, Diagnostics> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        let text = owned
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Diagnostic::error(format!("advlab itself failed {doing}: {text}"))
            .with_help("this is a defect of advlab: please report it with the script")
            .into()
    })
}

/// The minimum number of reads of variables between two measurements. It is odd because many loops read an even number of
/// variables, and would otherwise always be measured at the same variable.
pub(super) const READS: u64 = 61;
/// The maximum number of values measured per read of a variable, on average; measuring them takes less time than the read. The
/// interval depends on this count and not on the time, so that an excess always ends the script at the same line.
pub(super) const PER_READ: u64 = 8;
/// The size of a value of any type in bytes, without its content.
const VALUE_BYTES: usize = size_of::<Dynamic>();
/// The size of a map's entry in bytes, without its key's text and its value.
const ENTRY_BYTES: usize = 48;

/// The message about an exceeded limit, and its help. The message continues a sentence that begins with the value's name.
pub(super) type Excess = (String, &'static str);

/// Measures the variables of a function and its `this`, and returns the total number of values in them.
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

pub(super) fn check_size(value: &Dynamic) -> Result<(), Excess> {
    Measure::default().measure(value, 0)
}

/// Counts a value and all values inside it; returns `usize::MAX` if they exceed a limit.
pub(super) fn count(value: &Dynamic) -> usize {
    let mut total = Measure::default();
    let measured = total.measure(value, 0);
    measured.map_or(usize::MAX, |()| total.values as usize)
}

#[derive(Default)]
struct Measure {
    values: u64,
    bytes: usize,
    /// The addresses of the captured variables that are being measured, so that a closure that contains itself is measured once.
    stack: Vec<usize>,
}

impl Measure {
    fn measure(&mut self, value: &Dynamic, depth: usize) -> Result<(), Excess> {
        if depth > VALUE_DEPTH {
            return Err((
                format!("nests arrays, maps or closures more than {VALUE_DEPTH} deep"),
                "does a loop put a value into itself? To add to an array, write `a.push(x)`",
            ));
        }
        if !value.is_shared() {
            return self.inside(value, depth);
        }
        // A locked value is in use by a call, so its content is measured after the call.
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
            // Numbers and other plain values have no content; the guard counts the content of tensors, batches and keys.
            Ok(())
        }
    }

    fn add(&mut self, bytes: usize) -> Result<(), Excess> {
        self.values += 1;
        self.bytes += bytes;
        if self.bytes > VARIABLE_BYTES {
            let most = VARIABLE_BYTES >> 20;
            let excess = format!("and the variables declared before it hold more than {most} MiB");
            return Err((excess, GROWS));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use crate::deep_stack::STACK;
    use crate::script::limits::{ARRAY_ELEMENTS, MAP_ENTRIES};
    use crate::script::{Host, Recipe};
    use rhai::{Array, Dynamic, Engine, Map};

    /// The greatest depth that the limits of elements and entries allow; the engine walks a value of this depth by recursion.
    const DEEPEST: usize = ARRAY_ELEMENTS + MAP_ENTRIES;

    fn nested(depth: usize) -> Dynamic {
        let mut value = Dynamic::UNIT;
        for level in 0..depth {
            value = match level % 3 {
                0 => Dynamic::from_map(Map::from([("a".into(), value)])),
                _ => Dynamic::from_array(Array::from([value])),
            };
        }
        value
    }

    #[test]
    fn the_deepest_value_is_cloned_and_dropped() {
        deep_stack::call(|| {
            let value = nested(DEEPEST);
            assert!(value.clone().is_array());
        });
    }

    /// Comparing takes time quadratic in the depth, so the test uses an eighth of the depth on an eighth of the stack.
    #[test]
    fn a_deep_value_is_shown_and_compared() {
        let on_an_eighth = std::thread::Builder::new().stack_size(STACK / 8);
        let done = on_an_eighth.spawn(|| {
            let value = nested(DEEPEST / 8);
            assert!(value.to_string().len() > DEEPEST / 8);
            let engine = Engine::new();
            let mut scope = rhai::Scope::new();
            scope.push_dynamic("a", value.clone());
            scope.push_dynamic("b", value);
            let are_equal: bool = engine.eval_with_scope(&mut scope, "a == b").unwrap();
            assert!(are_equal);
        });
        done.unwrap().join().unwrap();
    }

    fn recipe(body: &str) -> Result<Recipe, Diagnostics> {
        Host::new().compile("nested", &format!("fn advantage(batch, p) {{ {body} }}"))
    }

    /// A script whose code is nested is refused or runs, however deep it is, and can be dropped on any thread.
    #[test]
    fn no_text_overflows_the_stack() {
        const DEEP: usize = 30_000;
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{", "1", "}"),
            ("-", "1", ""),
            ("!", "true", ""),
            ("#{a:", "1", "}"),
            ("if true {", "1", "}"),
            ("if true {1} else ", "{1}", ""),
            ("|x| ", "1", ""),
            ("1+", "1", ""),
            ("1*1+", "1", ""),
            ("2**", "2", ""),
            ("`${", "1", "}`"),
            ("loop {", "break;", "}"),
            ("switch 1 { 1 => ", "1", "}"),
            ("f(", "1", ")"),
            ("true && ", "true", ""),
            ("x = ", "1", ""),
            ("x ?? ", "1", ""),
            ("let x = 1;", "", ""),
            ("batch", "", ".a"),
            ("batch", "", ".abs()"),
            ("batch", "", "[0]"),
        ] {
            let (open, close) = match inner {
                "" if !close.is_empty() => (open.to_string(), close.repeat(DEEP)),
                _ => (open.repeat(DEEP), close.repeat(DEEP)),
            };
            if let Ok(recipe) = recipe(&format!("{open}{inner}{close}; batch.reward")) {
                let _ = recipe.advantage(&Batch::example(), &mut recipe.init().unwrap());
            }
        }
    }
}
