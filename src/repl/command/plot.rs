//! `:plot`: a histogram, a line or a scatter, in the terminal or as SVG.

use std::path::PathBuf;

use super::super::figure::{Figure, Mark, Panel, Series};
use super::super::session::Session;
use super::super::show::counts;
use super::{Answered, missing, out};
use crate::batch::Replacement;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::{self, counted};
use crate::paint::cut;

const BARS: usize = 32;

pub(super) fn plot(session: &mut Session, arguments: &str) -> Answered {
    let (text, file) = out(arguments)?;
    if text.is_empty() {
        return Err(missing("plot"));
    }
    let figure = match two(session, &text) {
        None => one_variable(session, &text)?,
        Some((x, y)) => two_variables(session, x, y)?,
    };
    finish(session, &figure, file)
}

/// Two expressions: with a comma between them, or a space where the whole is not one expression.
fn two<'t>(session: &Session, text: &'t str) -> Option<(&'t str, &'t str)> {
    let compiles = |part: &str| !part.trim().is_empty() && session.script.compiles(part);
    if compiles(text) {
        return None;
    }
    let cuts = text
        .char_indices()
        .filter(|(_, letter)| *letter == ',' || letter.is_whitespace());
    let mut parts = cuts.map(|(at, letter)| (&text[..at], &text[at + letter.len_utf8()..]));
    let (x, y) = parts.find(|(x, y)| compiles(x) && compiles(y))?;
    Some((x.trim(), y.trim()))
}

/// A scatter of two tensors or arrays.
fn two_variables(session: &mut Session, x: &str, y: &str) -> Result<Figure, Diagnostics> {
    let (level, points) = session.script.pairs(x, y)?;
    // A point with a NaN in it is a NaN, and so on.
    let one = |&(x, y): &(f64, f64)| {
        if x.is_nan() || y.is_nan() {
            f64::NAN
        } else {
            x.abs().max(y.abs())
        }
    };
    let of = format!("`{y}` over `{x}`");
    let (finite, left_out) = finite(points.iter().map(one), "point", &of)?;
    let level = level.map_or(String::new(), |level| format!(", {level} by {level}"));
    let title = format!("{}{level}{left_out}", counted(finite, "point"));
    Ok(figure(title, x, y, Mark::Points, points))
}

/// A histogram of a tensor, a line through an array.
fn one_variable(session: &mut Session, text: &str) -> Result<Figure, Diagnostics> {
    let (level, values) = session.script.numbers(text)?;
    let (finite, left_out) = finite(values.iter().copied(), "value", &format!("`{text}`"))?;
    let name = cut(text, session.paint.width.saturating_sub(32));
    let Some(level) = level else {
        let title = format!("{name}: {}{left_out}", counted(finite, "value"));
        let points = values.iter().enumerate();
        let points = points.map(|(index, &y)| (index as f64, y)).collect();
        return Ok(figure(title, "index", text, Mark::Line, points));
    };
    let (least, most, counts) = counts(&values, BARS);
    if least >= most {
        let value = figures::value(least);
        let all = if finite == values.len() {
            "all"
        } else {
            "all finite"
        };
        let message = format!("{all} values of `{text}` are {value}: there is nothing to draw");
        return Err(Diagnostic::error(message).into());
    }
    let middle = |bar: usize| {
        let share = (bar as f64 + 0.5) / BARS as f64;
        (1.0 - share) * least + share * most
    };
    let bars = counts.iter().enumerate();
    let bars = bars.map(|(bar, &count)| (middle(bar), count as f64));
    let drawn = counted(finite, &format!("{level} value"));
    let title = format!("{name}: {drawn}{left_out}");
    Ok(figure(title, text, "how many", Mark::Bars, bars.collect()))
}

fn figure(title: String, x: &str, y: &str, mark: Mark, points: Vec<(f64, f64)>) -> Figure {
    let series = Series {
        name: String::new(),
        mark,
        points,
    };
    let panel = Panel {
        x: x.to_string(),
        y: y.to_string(),
        series: vec![series],
    };
    Figure {
        title,
        panels: vec![panel],
    }
}

/// How many values can be drawn, and how a title says which cannot; an error where none can.
fn finite(
    values: impl Iterator<Item = f64>,
    noun: &str,
    of: &str,
) -> Result<(usize, String), Diagnostics> {
    let (mut finite, mut nan, mut infinite) = (0, 0, 0);
    for value in values {
        if value.is_finite() {
            finite += 1;
        } else if value.is_nan() {
            nan += 1;
        } else {
            infinite += 1;
        }
    }
    let others = [(nan, "NaN"), (infinite, "infinite")].into_iter();
    let others: Vec<String> = others
        .filter(|(number, _)| *number > 0)
        .map(|(number, kind)| format!("{} {kind}", figures::count(number)))
        .collect();
    let others = others.join(", ");
    match (finite, others.is_empty()) {
        (0, true) => Err(Diagnostic::error(format!("{of} has no {noun} to draw")).into()),
        (0, false) => {
            let message = format!("{of} has no finite {noun} to draw: {others}");
            Err(Diagnostic::error(message).into())
        }
        (_, true) => Ok((finite, others)),
        (_, false) => Ok((finite, format!("; left out: {others}"))),
    }
}

/// The figure as a string, or a line with the file that it was written to.
pub(super) fn finish(session: &Session, figure: &Figure, file: Option<PathBuf>) -> Answered {
    let Some(file) = file else {
        return Ok(figure.text(session.paint));
    };
    let path = file.display();
    if file.extension().is_none_or(|ending| ending != "svg") {
        let message = format!("{path}: figures are written as .svg");
        return Err(Diagnostic::error(message).into());
    }
    Replacement::write(&file, figure.svg().as_bytes())
        .map_err(|error| Diagnostic::error(error.to_string()))?;
    Ok(format!("written to {path}"))
}
