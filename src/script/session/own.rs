//! The variables that the session itself makes: `batch`, and `p`, the recipe's parameters.

use rhai::Map;

use super::super::batch_type::ScriptBatch;
use super::{Session, transcript};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};

impl Session {
    /// Puts the batch and the parameters where inputs find them.
    pub(super) fn place_own(&mut self) {
        let params = self.recipe.as_ref().map(|recipe| recipe.params().to_map());
        self.scope.set_or_push("batch", self.stage.batch.clone());
        // A constant: what is assigned to `p.k` would not reach the recipe.
        self.scope.push_constant("p", params.unwrap_or_default());
        self.scope = self.scope.clone_visible();
    }

    /// Whether `batch` and `p` are what they were. A constant's entries cannot be changed, but the engine lets a map have
    /// more of them, and lets a `let` hide it. Where they are not, the variables beyond the `known` ones go.
    pub(super) fn own_unchanged(&mut self, text: &str, known: usize) -> Result<(), Diagnostics> {
        let p = self.scope.get("p").and_then(|p| p.read_lock::<Map>());
        let is_own = p.is_some_and(|map| map.len() == self.parameters().len());
        let (name, diagnostic) = match self.scope.get("batch") {
            _ if !is_own => ("p", of_the_recipe()),
            Some(batch) if batch.is::<ScriptBatch>() => return Ok(()),
            _ => (
                "batch",
                Diagnostic::error("`batch` is the batch, and nothing else")
                    .with_help("choose another name; `:load FILE` makes another batch the batch"),
            ),
        };
        self.scope.rewind(known);
        self.place_own();
        Err(diagnostic.at(place_of_name(text, name)).into())
    }
}

/// Where a name is defined or used in an input.
fn place_of_name(text: &str, name: &str) -> Option<Span> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let in_line = |line: &str| {
        let places = line.match_indices(name).map(|(at, _)| at);
        places
            .into_iter()
            .find(|&at| {
                !line[..at].ends_with(|c| is_part(c) || c == '.')
                    && !line[at + name.len()..].starts_with(is_part)
            })
            .map(|at| line[..at].chars().count() + 1)
    };
    let mut lines = text.lines().enumerate();
    let (line, column) = lines.find_map(|(number, line)| Some((number + 1, in_line(line)?)))?;
    Some(Span {
        source: transcript::SOURCE.into(),
        text: text.into(),
        line,
        column,
        length: name.len(),
    })
}

/// Something was assigned to `p`.
pub(super) fn of_the_recipe() -> Diagnostic {
    Diagnostic::error("`p` holds the recipe's parameters, which are not changed here")
        .with_help("`:set k=8` sets a parameter")
}
