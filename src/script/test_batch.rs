//! A script's own batch to try it on: what `test_batch()` returns.
//!
//! ```rhai
//! fn test_batch() {
//!     #{
//!         group: ["a", "a", "b", "b"],
//!         reward: [1, 0, 0, 1],
//!         old_logp: [[-0.5, -0.25], [-1.0], [-0.75], [-0.5]],
//!     }
//! }
//! ```

use rhai::{Array, Dynamic, ImmutableString, Map, Scope};

use super::bind::{describe, number};
use super::recipe::Recipe;
use super::sandbox::{guarded, on_deep_stack};
use crate::batch::{Batch, GroupId};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The function that gives a script's own batch.
pub const TEST_BATCH: &str = "test_batch";

impl Recipe {
    /// The batch that the script's `test_batch()` describes; `None` where it has no such function.
    ///
    /// It returns a map of columns: `group`, a string or a number for each response; arrays of numbers, one for each
    /// response; arrays of arrays of numbers, one for each token.
    ///
    /// # Errors
    /// [`Diagnostics`] where the function fails, or returns what is no batch.
    pub fn test_batch(&self) -> Result<Option<Batch>, Diagnostics> {
        let mut functions = self.script.ast.iter_functions();
        if !functions.any(|function| function.name == TEST_BATCH && function.params.is_empty()) {
            return Ok(None);
        }
        // The value is read and dropped there too: it may be as deep as the limits let it.
        on_deep_stack(|| {
            let engine = self.host.functions.engine(&self.host.call(0));
            let value = guarded(&format!("in `{TEST_BATCH}`"), || {
                engine.call_fn::<Dynamic>(&mut Scope::new(), &self.script.ast, TEST_BATCH, ())
            })?;
            let value = value.map_err(|error| self.about().explain(&error))?;
            let batch = batch(&value).map_err(|what| {
                let help =
                    "it returns a map of columns, as in `#{ group: [\"a\", \"a\"], reward: [1, 0] }`";
                Diagnostic::error(format!("{}: `{TEST_BATCH}()`: {what}", self.name()))
                    .with_help(help)
            })?;
            Ok(Some(batch))
        })
    }
}

fn batch(value: &Dynamic) -> Result<Batch, String> {
    let Some(map) = value.read_lock::<Map>() else {
        return Err(format!("this is {}", describe(value)));
    };
    let mut builder = Batch::builder();
    for (name, column) in map.iter() {
        let Some(items) = column.read_lock::<Array>() else {
            return Err(format!("`{name}` is {}, not an array", describe(column)));
        };
        let name = name.as_str();
        builder = if name == "group" {
            builder.groups(items.iter().map(group).collect::<Result<Vec<_>, _>>()?)
        } else if name == "length" {
            let lengths = numbers(name, &items)?.into_iter().map(length);
            builder.lengths(lengths.collect::<Result<Vec<_>, _>>()?)
        } else if items.first().is_some_and(|item| item.is_array()) {
            let rows = items.iter().map(|item| row(name, item));
            builder.ragged(name, rows.collect::<Result<Vec<_>, _>>()?)
        } else {
            builder.response(name, numbers(name, &items)?)
        };
    }
    builder.build().map_err(|error| error.to_string())
}

fn group(id: &Dynamic) -> Result<GroupId, String> {
    if let Some(name) = id.read_lock::<ImmutableString>() {
        return Ok(GroupId::from(name.as_str()));
    }
    let found = describe(id);
    let wrong = |_| format!("a group is a string or an integer, this is {found}");
    id.as_int().map(GroupId::from).map_err(wrong)
}

/// A length that is too large is refused by the builder.
fn length(number: f64) -> Result<usize, String> {
    let is_length = number >= 0.0 && number.fract() == 0.0;
    let wrong = || format!("`length` has {number}, not an integer");
    is_length.then_some(number as usize).ok_or_else(wrong)
}

fn row(name: &str, row: &Dynamic) -> Result<Vec<f64>, String> {
    let items = row.read_lock::<Array>().ok_or_else(|| {
        let found = describe(row);
        format!("`{name}` has an array of numbers for each response, and {found}")
    })?;
    numbers(name, &items)
}

fn numbers(name: &str, items: &[Dynamic]) -> Result<Vec<f64>, String> {
    let wrong = |item| format!("`{name}` has {}, not a number", describe(item));
    let one = |item| number(item).ok_or_else(|| wrong(item));
    items.iter().map(one).collect()
}
