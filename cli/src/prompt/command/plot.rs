//! `:plot`: a histogram, a line or a scatter, in the terminal or as a file.

use std::path::Path;

use super::super::session::{Session, join};
use super::super::show::counts;
use super::{Answered, option};
use crate::report::figure::{Figure, Mark, Panel, Series};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{self, counted};
use advlab::paint::cut;

const BARS: usize = 32;

pub(super) fn plot(session: &mut Session, arguments: &str) -> Answered {
    let (text, file) = option(arguments, "--out")?;
    let figure = match two(session, &text) {
        None => one_variable(session, &text)?,
        Some((x, y)) => two_variables(session, x, y)?,
    };
    finish(session, &figure, file, "")
}

/// Two expressions, separated by a comma or a space, if the whole is not one expression.
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
    // A point with a NaN counts as NaN, one with an infinity as infinite. Halves of finite numbers have a finite sum.
    let one = |(x, y): &(f64, f64)| x.abs() / 2.0 + y.abs() / 2.0;
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
        let kind = if finite == values.len() {
            ""
        } else {
            "finite "
        };
        let message = format!("all {kind}values of `{text}` are {value}: there is nothing to draw");
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
    Figure::one(title, Panel::new(x, y, vec![Series::new("", mark, points)]))
}

/// How many values can be drawn, and a text for the title with those that cannot; an error if none can.
fn finite(
    values: impl Iterator<Item = f64>,
    noun: &str,
    of: &str,
) -> Result<(usize, String), Diagnostics> {
    let (finite, others): (Vec<f64>, Vec<f64>) = values.partition(|value| value.is_finite());
    let nan = others.iter().filter(|value| value.is_nan()).count();
    let left_out = [(nan, "NaN"), (others.len() - nan, "infinite")];
    let left_out = left_out.into_iter().filter(|(number, _)| *number > 0);
    let left_out: Vec<String> = left_out
        .map(|(number, kind)| format!("{} {kind}", figures::count(number)))
        .collect();
    let left_out = left_out.join(", ");
    let message = match (finite.len(), others.len()) {
        (0, 0) => format!("{of} has no {noun} to draw"),
        (0, _) => format!("{of} has no finite {noun} to draw: {left_out}"),
        (drawn, 0) => return Ok((drawn, left_out)),
        (drawn, _) => return Ok((drawn, format!("; left out: {left_out}"))),
    };
    Err(Diagnostic::error(message).into())
}

/// The figure, or a line with the file that it was written to, and the text below it; if possible no higher than the window.
pub(super) fn finish(
    session: &Session,
    figure: &Figure,
    file: Option<String>,
    below: &str,
) -> Answered {
    let text = match file {
        None => {
            let room = session.height.saturating_sub(below.lines().count());
            figure.text_within(room, session.paint)
        }
        Some(file) => {
            figure.write(Path::new(&file))?;
            format!("written to {file}")
        }
    };
    Ok(join(
        text,
        Some(below.to_string()).filter(|below| !below.is_empty()),
    ))
}
