//! Where in a script something is: the place that a caret is put under.

use std::sync::Arc;

use rhai::Position;

use super::super::error::line_column;
use super::{Script, position};
use crate::diagnostic::Span;
use crate::tensor::Origin;

impl Script<'_> {
    /// The place where a tensor was made.
    pub(in super::super) fn place_of(&self, origin: &Origin) -> Option<Span> {
        let source = origin.source.as_ref().unwrap_or(self.name);
        self.place(source, position(origin.line, origin.column))
    }

    /// The place of a position, if there is one and the script is known.
    pub(in super::super) fn place(&self, source: &Arc<str>, position: Position) -> Option<Span> {
        let (line, column) = line_column(position)?;
        let text = self.sources.get(source)?;
        let source_line = text.lines().nth(line - 1).unwrap_or("");
        let at = |column: usize| source_line.chars().nth(column.wrapping_sub(1));
        // A property is reported at its dot, an index at its bracket; what comes after it is what to look at.
        let column = match at(column) {
            Some('.') if at(column + 1) != Some('.') => column + 1,
            _ => column,
        };
        Some(Span {
            source: source.clone(),
            text: text.clone(),
            line,
            column,
            length: token_length(source_line, column),
        })
    }
}

/// The place right after what stands before another place: where something is missing.
pub(super) fn end_of_what_is_before(place: &Span) -> Span {
    let lines: Vec<&str> = place.text.lines().collect();
    let upto = |line: &str| line.chars().take(place.column - 1).collect::<String>();
    let last = lines.get(place.line - 1).map(|line| upto(line));
    let before = last.as_deref().into_iter().chain(
        // Upwards, without comments.
        lines[..(place.line - 1).min(lines.len())]
            .iter()
            .rev()
            .map(|line| line.split("//").next().unwrap_or(line)),
    );
    for (up, line) in before.enumerate() {
        let column = line.trim_end().chars().count();
        if column > 0 {
            return Span {
                line: place.line - up,
                column: column + 1,
                length: 1,
                ..place.clone()
            };
        }
    }
    place.clone()
}

/// The number of characters of the word, number, text or sign that starts at a column (from 1).
pub(in super::super) fn token_length(line: &str, column: usize) -> usize {
    let rest: Vec<char> = line.chars().skip(column.saturating_sub(1)).collect();
    let Some(&first) = rest.first() else {
        return 1;
    };
    let while_is = |test: fn(char) -> bool| rest.iter().take_while(|&&c| test(c)).count().max(1);
    if first == '"' {
        return rest
            .iter()
            .skip(1)
            .position(|&c| c == '"')
            .map_or(1, |end| end + 2);
    }
    if first.is_ascii_digit() {
        // A number may have a point in it; a name ends there.
        return while_is(|c| c.is_alphanumeric() || c == '_' || c == '.');
    }
    if first.is_alphanumeric() || first == '_' {
        return while_is(|c| c.is_alphanumeric() || c == '_');
    }
    while_is(|c| "+-*/%=<>!&|".contains(c))
}
