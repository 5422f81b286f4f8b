//! `:plot`: a histogram, a line or a scatter, in the terminal or as SVG.

use std::path::{Path, PathBuf};

use super::super::figure::{Figure, Mark, Panel, Series};
use super::super::session::Session;
use super::super::show::counts;
use super::{Answered, missing, out};
use crate::batch::Replacement;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures;
use crate::paint::cut;

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
            let points: Vec<(f64, f64)> = pairs.x.into_iter().zip(pairs.y).collect();
            // A point with a NaN in it is a NaN, and so on.
            let one = |&(x, y): &(f64, f64)| match (x.is_nan() || y.is_nan(), x, y) {
                (true, ..) => f64::NAN,
                (false, x, y) => x.abs().max(y.abs()),
            };
            let counted = Counted::of(points.iter().map(one));
            counted.some("point", &format!("`{y}` over `{x}`"))?;
            let (drawn, left_out) = (counted.drawn("point"), counted.left_out());
            let series = Series {
                name: String::new(),
                mark: Mark::Points,
                points,
            };
            Figure {
                title: format!("{drawn}{level}{left_out}"),
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
fn one_variable(session: &mut Session, text: &str) -> Result<Figure, Diagnostics> {
    let (level, values) = session.script.numbers(text)?;
    let counted = Counted::of(values.iter().copied());
    counted.some("value", &format!("`{text}`"))?;
    let left_out = counted.left_out();
    let name = cut(text, session.paint.width / 2);
    let (title, x, y, mark, points) = match level {
        None => {
            let points = values
                .iter()
                .enumerate()
                .map(|(place, &y)| (place as f64, y));
            (
                format!("{name}: {}{left_out}", counted.drawn("value")),
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
                let all = match counted.finite == values.len() {
                    true => "all",
                    false => "all finite",
                };
                return Err(Diagnostic::error(format!(
                    "{all} values of `{text}` are {value}: there is nothing to draw"
                ))
                .into());
            }
            let middle = |place: usize| {
                let share = (place as f64 + 0.5) / BARS as f64;
                (1.0 - share) * least + share * most
            };
            let points = counts
                .iter()
                .enumerate()
                .map(|(place, &count)| (middle(place), count as f64));
            (
                format!(
                    "{name}: {}{left_out}",
                    counted.drawn(&format!("{level} value"))
                ),
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

/// How many values can be drawn, and how many cannot and why.
struct Counted {
    finite: usize,
    nan: usize,
    infinite: usize,
}

impl Counted {
    fn of(values: impl Iterator<Item = f64>) -> Counted {
        let mut counted = Counted {
            finite: 0,
            nan: 0,
            infinite: 0,
        };
        for value in values {
            let kind = match (value.is_nan(), value.is_infinite()) {
                (true, _) => &mut counted.nan,
                (_, true) => &mut counted.infinite,
                _ => &mut counted.finite,
            };
            *kind += 1;
        }
        counted
    }

    /// What is not finite, in words: `3 NaN, 1 infinite`.
    fn not_finite(&self) -> String {
        let kinds = [(self.nan, "NaN"), (self.infinite, "infinite")];
        let some = kinds.iter().filter(|(number, _)| *number > 0);
        let words: Vec<String> = some
            .map(|(number, kind)| format!("{} {kind}", figures::count(*number)))
            .collect();
        words.join(", ")
    }

    /// How many are drawn, in words: `2 values`.
    fn drawn(&self, what: &str) -> String {
        let plural = if self.finite == 1 { "" } else { "s" };
        format!("{} {what}{plural}", figures::count(self.finite))
    }

    /// What a title says of values that are not drawn; nothing where all are.
    fn left_out(&self) -> String {
        match self.not_finite() {
            kinds if kinds.is_empty() => kinds,
            kinds => format!("; left out: {kinds}"),
        }
    }

    /// Refuses to draw where nothing can be.
    fn some(&self, what: &str, of: &str) -> Result<(), Diagnostics> {
        if self.finite > 0 {
            return Ok(());
        }
        let message = match self.not_finite() {
            kinds if kinds.is_empty() => format!("{of} has no {what} to draw"),
            kinds => format!("{of} has no finite {what} to draw: {kinds}"),
        };
        Err(Diagnostic::error(message).into())
    }
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
