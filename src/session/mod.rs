//! A session: pieces of script evaluated one after the other on a batch, with variables and functions that persist.

mod answer;
mod evaluate;
mod inputs;
mod names;
mod observe;
mod values;

pub use self::answer::{Answer, BatchColumns};
pub use self::evaluate::{EvaluatedInput, Session, is_typed};
pub use self::inputs::Inputs;
pub use self::names::Name;
pub use self::values::Pairs;
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::Host;

impl Host {
    /// Evaluates a piece of script in which `batch` is the batch: a [`Session`] of one input.
    ///
    /// # Errors
    /// [`Diagnostics`] as for a recipe.
    pub fn evaluate(&self, text: &str, batch: &Batch) -> Result<Answer, Diagnostics> {
        Ok(Session::new(self, batch).evaluate(text)?.answer)
    }
}
