//! `:plot`: a histogram, a line or a scatter, in the terminal or as SVG.

use std::path::{Path, PathBuf};

use super::super::figure::{Figure, Mark, Panel, Series};
use super::super::session::Session;
use super::super::show::counts;
use super::{Answered, missing, out};
use crate::batch::Replacement;
use crate::figures;
use crate::script::{Diagnostic, ScriptError};

/// Bars of a histogram.
const BARS: usize = 32;

pub(super) fn plot(session: &mut Session, arguments: &str) -> Answered {
    let (text, file) = out(arguments)?;
    if text.is_empty() {
        return Err(missing("plot"));
    }
    let figure = match two(session, &text) {
        None => one_variable(session, &text)?,
        Some((x, y)) => {
            let pairs = session.script.pairs(&x, &y)?;
            let level = pairs
                .level
                .map_or(String::new(), |level| format!(", {level} by {level}"));
            let number = figures::count(pairs.x.len());
            let series = Series {
                name: String::new(),
                mark: Mark::Points,
                points: pairs.x.into_iter().zip(pairs.y).collect(),
            };
            Figure {
                title: format!("{number} points{level}"),
                panels: vec![Panel {
                    x,
                    y,
                    series: vec![series],
                }],
            }
        }
    };
    finish(session, &figure, file)
}

/// Two expressions: with a comma between them, or a space where the whole is not one expression.
fn two(session: &Session, text: &str) -> Option<(String, String)> {
    let compiles = |part: &str| !part.trim().is_empty() && session.script.compiles(part);
    if compiles(text) {
        return None;
    }
    let cuts = text
        .char_indices()
        .filter(|(_, letter)| *letter == ',' || letter.is_whitespace());
    let parts = cuts.map(|(at, letter)| (&text[..at], &text[at + letter.len_utf8()..]));
    parts
        .filter(|(x, y)| compiles(x) && compiles(y))
        .map(|(x, y)| (x.trim().to_string(), y.trim().to_string()))
        .next()
}

/// A histogram of a tensor, a line through an array.
fn one_variable(session: &mut Session, text: &str) -> Result<Figure, ScriptError> {
    let (level, values) = session.script.numbers(text)?;
    if values.is_empty() {
        return Err(Diagnostic::error(format!("`{text}` has no values to draw")).into());
    }
    let number = figures::count(values.len());
    let (title, x, y, mark, points) = match level {
        None => {
            let points = values
                .iter()
                .enumerate()
                .map(|(place, &y)| (place as f64, y));
            (
                format!("{text}: {number} values"),
                "place",
                text,
                Mark::Line,
                points.collect(),
            )
        }
        Some(level) => {
            let (least, most, counts) = counts(&values, BARS);
            if least >= most {
                let value = figures::value(least);
                return Err(Diagnostic::error(format!(
                    "all values of `{text}` are {value}: there is nothing to draw"
                ))
                .into());
            }
            let middle = |place: usize| least + (place as f64 + 0.5) / BARS as f64 * (most - least);
            let points = counts
                .iter()
                .enumerate()
                .map(|(place, &count)| (middle(place), count as f64));
            (
                format!("{text}: {number} {level} values"),
                text,
                "how many",
                Mark::Bars,
                points.collect(),
            )
        }
    };
    Ok(Figure {
        title,
        panels: vec![Panel {
            x: x.to_string(),
            y: y.to_string(),
            series: vec![Series {
                name: String::new(),
                mark,
                points,
            }],
        }],
    })
}

/// The figure as text, or the file that it was written to.
pub(super) fn finish(session: &Session, figure: &Figure, file: Option<PathBuf>) -> Answered {
    match file {
        None => Ok(figure.text(session.paint)),
        Some(file) => write(figure, &file),
    }
}

fn write(figure: &Figure, file: &Path) -> Answered {
    let path = file.display();
    if file.extension().is_none_or(|ending| ending != "svg") {
        let message = format!("{path}: figures are written as .svg");
        return Err(Diagnostic::error(message).into());
    }
    Replacement::write(file, figure.svg().as_bytes())
        .map_err(|error| Diagnostic::error(error.to_string()))?;
    Ok(format!("written to {path}"))
}
