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
}

impl Line {
    /// The lines of a run, the longest first.
    pub(super) fn of(trial: &Trial, recipe: &Recipe) -> Vec<Line> {
        let mut seconds: BTreeMap<(Option<Arc<str>>, usize), f64> = BTreeMap::new();
        for operation in trial.stages.iter().flat_map(|stage| &stage.operations) {
            if let Some(origin) = &operation.origin {
                let source = origin.source.clone();
                let source = source.filter(|source| **source != *recipe.name());
                *seconds.entry((source, origin.line)).or_default() += operation.seconds;
            }
        }
        let line = |((source, number), seconds): ((Option<Arc<str>>, usize), f64)| {
            let name = source.as_deref().unwrap_or(recipe.name());
            let mut sources = recipe.sources();
            let text = sources.find(|(other, _)| *other == name);
            let text = text.and_then(|(_, text)| text.lines().nth(number.checked_sub(1)?));
            Line {
                text: text.unwrap_or_default().trim().to_string(),
                source,
                number,
                seconds,
            }
        };
        let mut lines: Vec<Line> = seconds.into_iter().map(line).collect();
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
