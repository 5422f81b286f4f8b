//! The lines of a script, by what they cost.

use std::collections::BTreeMap;
use std::path::Path;

use super::trial::Trial;
use advlab::script::Recipe;
use advlab::tensor::Origin;

/// A line of a script that asked for operations on tensors.
#[derive(Debug)]
pub(super) struct Line {
    /// The script, where it is not the recipe's own.
    pub(super) source: Option<String>,
    /// From 1.
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) seconds: f64,
    /// The bytes that stages read for it first, and wrote of its values.
    pub(super) read: usize,
    pub(super) written: usize,
}

impl Line {
    /// The lines of a run, the longest first. `place` finds the name of an operation's script, unless it is the measured
    /// one itself, the line's number and its text.
    pub(super) fn of(
        trial: &Trial,
        place: impl Fn(&Origin) -> (Option<String>, usize, String),
    ) -> Vec<Line> {
        let mut lines: BTreeMap<(Option<&str>, usize), Line> = BTreeMap::new();
        for operation in trial.stages.iter().flat_map(|stage| &stage.operations) {
            let Some(origin) = &operation.origin else {
                continue;
            };
            let key = (origin.source.as_deref(), origin.line);
            let line = lines.entry(key).or_insert_with(|| {
                let (source, number, text) = place(origin);
                Line {
                    source,
                    number,
                    text,
                    seconds: 0.0,
                    read: 0,
                    written: 0,
                }
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
        place(self.source.as_deref(), self.number)
    }
}

/// A line's number, after the name of its script where that is another one.
pub(super) fn place(script: Option<&str>, line: usize) -> String {
    match script {
        Some(script) => {
            let name = Path::new(script)
                .file_name()
                .map(|name| name.to_string_lossy());
            format!("{}:{line}", name.unwrap_or_default())
        }
        None => line.to_string(),
    }
}

/// The line of a recipe's own source, of one that it imports, or of the loss behind it.
pub(super) fn of_recipes(
    recipe: &Recipe,
    loss: Option<&Recipe>,
    origin: &Origin,
) -> (Option<String>, usize, String) {
    let name = origin.source.as_deref().unwrap_or(recipe.name());
    let mut sources = recipe
        .sources()
        .chain(loss.into_iter().flat_map(Recipe::sources));
    let text = sources.find(|(other, _)| *other == name);
    let line = text.and_then(|(_, text)| text.lines().nth(origin.line.checked_sub(1)?));
    let source = Some(name.to_string()).filter(|name| name != recipe.name());
    let text = line.unwrap_or_default().trim().to_string();
    (source, origin.line, text)
}
