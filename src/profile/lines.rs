//! The lines of a script, by what they cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::trial::Trial;
use crate::script::Recipe;

/// A line of a script that asked for operations on tensors.
#[derive(Debug)]
pub(super) struct Line {
    /// The script, where it is not the recipe's own.
    pub(super) source: Option<Arc<str>>,
    /// From 1.
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) seconds: f64,
    /// The bytes that stages read for it first, and wrote of its values.
    pub(super) read: usize,
    pub(super) written: usize,
}

impl Line {
    /// The lines of a run, the longest first.
    pub(super) fn of(trial: &Trial, recipe: &Recipe) -> Vec<Line> {
        let mut lines: BTreeMap<(Option<&str>, usize), Line> = BTreeMap::new();
        for operation in trial.stages.iter().flat_map(|stage| &stage.operations) {
            let Some(origin) = &operation.origin else {
                continue;
            };
            let source = origin.source.as_deref();
            let source = source.filter(|source| *source != recipe.name());
            let line = lines.entry((source, origin.line)).or_insert_with(|| Line {
                source: source.map(Into::into),
                number: origin.line,
                text: text(recipe, source, origin.line),
                seconds: 0.0,
                read: 0,
                written: 0,
            });
            line.seconds += operation.seconds;
            line.read += operation.read;
            line.written += operation.written;
        }
        let mut lines: Vec<Line> = lines.into_values().collect();
        lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        lines
    }

    /// The number, behind the name of the script where that is another.
    pub(super) fn place(&self) -> String {
        match &self.source {
            Some(source) => {
                let path = Path::new(&**source);
                let name = path.file_name().map(|name| name.to_string_lossy());
                format!("{}:{}", name.unwrap_or_default(), self.number)
            }
            None => self.number.to_string(),
        }
    }
}

/// A line of a recipe's own source, or of one that it imports.
fn text(recipe: &Recipe, source: Option<&str>, number: usize) -> String {
    let name = source.unwrap_or(recipe.name());
    let mut sources = recipe.sources();
    let text = sources.find(|(other, _)| *other == name);
    let line = text.and_then(|(_, text)| text.lines().nth(number.checked_sub(1)?));
    line.unwrap_or_default().trim().to_string()
}
