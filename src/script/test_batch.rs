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

use rhai::{Array, Dynamic, Map, Scope};

use super::recipe::Recipe;
use super::sandbox::{guarded, on_deep_stack};
use super::value::{describe, number, text};
use crate::batch::{Batch, GroupId};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The function that returns a script's own batch.
pub const TEST_BATCH: &str = "test_batch";

impl Recipe {
    /// The batch that the script's `test_batch()` describes; `None` if it has no such function.
    ///
    /// It returns a map of columns: `group`, a string or an integer for each response; arrays of numbers, one for each
    /// response; arrays of arrays of numbers, one for each token.
    ///
    /// # Errors
    /// [`Diagnostics`] if the function fails, or does not return a batch.
    pub fn test_batch(&self) -> Result<Option<Batch>, Diagnostics> {
        let mut functions = self.script.ast.iter_functions();
        if !functions.any(|function| function.name == TEST_BATCH && function.params.is_empty()) {
            return Ok(None);
        }
        // The value is read and dropped there too: it may be as deep as the limits let it.
        on_deep_stack(|| {
            let engine = self.engine(&self.host.call(0));
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
    let columns = value.read_lock::<Map>();
    let columns = columns.ok_or_else(|| format!("this is {}", describe(value)))?;
    let mut builder = Batch::builder();
    for (name, column) in columns.iter() {
        let wrong = |expected: &str, value: &Dynamic| {
            format!("`{name}` has {}, not {expected}", describe(value))
        };
        let Some(items) = column.read_lock::<Array>() else {
            return Err(format!("`{name}` is {}, not an array", describe(column)));
        };
        let numbers = |items: &[Dynamic]| -> Result<Vec<f64>, String> {
            let number = |item| number(item).ok_or_else(|| wrong("a number", item));
            items.iter().map(number).collect()
        };
        let row = |item: &Dynamic| match item.read_lock::<Array>() {
            Some(row) => numbers(&row),
            None => Err(wrong("an array of numbers for each response", item)),
        };
        let group = |item: &Dynamic| match (text(item), item.as_int()) {
            (Some(name), _) => Ok(GroupId::from(name.as_str())),
            (None, Ok(number)) => Ok(GroupId::from(number)),
            _ => Err(wrong("a string or an integer", item)),
        };
        // A length that is too large is refused by the builder.
        let length = |item: &Dynamic| match number(item) {
            Some(number) if number >= 0.0 && number.fract() == 0.0 => Ok(number as usize),
            _ => Err(wrong("an integer", item)),
        };
        builder = match name.as_str() {
            "group" => builder.groups(items.iter().map(group).collect::<Result<Vec<_>, _>>()?),
            "length" => builder.lengths(items.iter().map(length).collect::<Result<Vec<_>, _>>()?),
            name if items.first().is_some_and(Dynamic::is_array) => {
                builder.ragged(name, items.iter().map(row).collect::<Result<Vec<_>, _>>()?)
            }
            name => builder.response(name, numbers(&items)?),
        };
    }
    builder.build().map_err(|error| error.to_string())
}
