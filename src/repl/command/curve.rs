//! `:curve`: what a recipe gives right and wrong responses, by how many of the group are right.

use super::super::figure::{Figure, Mark, Panel, Series};
use super::super::session::Session;
use super::recipe::{current, parse, title};
use super::{Answered, option, out, plot};
use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::{column, value};
use crate::paint::wrapped;
use crate::script::Recipe;

/// Rows of the table under the drawing.
const ROWS: usize = 9;

/// What a recipe gives the responses of a group with so many right ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// How many are right.
    pub right: usize,
    /// The advantage of a right response, where there is one.
    pub of_right: Option<f64>,
    /// The advantage of a wrong response, where there is one.
    pub of_wrong: Option<f64>,
    /// The sum of |A| over the group.
    pub total: f64,
}

pub(super) fn curve(session: &mut Session, arguments: &str) -> Answered {
    let (rest, file) = out(arguments)?;
    let (rest, size) = option(&rest, "--n")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let size = match size.map(|text| text.parse::<usize>()) {
        Some(Ok(size @ 1..=1024)) => size,
        Some(_) => {
            return Err(Diagnostic::error("`--n` is the size of the group, from 1 to 1024").into());
        }
        None => largest_group(&session.data.batch),
    };
    let recipe = match words.is_empty() {
        true => current(session)?,
        false => parse(session, &words)?,
    };
    session.script.guard().rearm();
    let points = points(&recipe, &session.data.batch, size)?;
    let figure = draw(&recipe, size, &points);
    let drawn = plot::finish(session, &figure, file)?;
    let alike = "each group is a batch of its own here, its responses one token long with a log-prob of -0.5, an entropy of 0.5, and so on: what a recipe makes of other groups and of such differences does not show";
    let alike = session.paint.dim(&wrapped("", alike, session.paint.width));
    Ok(format!("{drawn}\n{}\n{alike}", table(&points)))
}

fn largest_group(batch: &Batch) -> usize {
    let layout = batch.layout();
    let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
    sizes.max().unwrap_or(1).clamp(2, 1024)
}

/// The curve of a recipe: groups of that size with 0, 1, ... all responses right, each alone in its batch, which has the
/// token columns of `like`.
///
/// # Errors
/// [`Diagnostics`] where the recipe fails on such a group.
pub fn points(recipe: &Recipe, like: &Batch, size: usize) -> Result<Vec<Point>, Diagnostics> {
    (0..=size)
        .map(|right| point(recipe, like, size, right))
        .collect()
}

/// The recipe on a group alone: responses of one token, the first ones right.
fn point(recipe: &Recipe, like: &Batch, size: usize, right: usize) -> Result<Point, Diagnostics> {
    let is_right = |response: usize| f64::from(u8::from(response < right));
    let labels: Vec<f64> = (0..size).map(is_right).collect();
    let mut builder = Batch::builder()
        .groups(vec![0i64; size])
        .lengths(vec![1; size])
        .response("reward", labels.clone())
        .response("correct", labels);
    // Log-probs and the like are there, and are the same everywhere: the curve is about right and wrong.
    for name in like
        .columns()
        .filter(|name| like.token_column(name).is_some() && *name != "token_reward")
    {
        let number = if name.ends_with("logp") { -0.5 } else { 0.5 };
        builder = builder.ragged(name, vec![[number]; size]);
    }
    let batch = builder
        .build()
        .map_err(|error| Diagnostic::error(error.to_string()))?;
    let outcome = recipe.advantage(&batch, &mut recipe.init()?)?;
    let of = |response: usize| outcome.advantage.at(response, 0);
    Ok(Point {
        right,
        of_right: (right > 0).then(|| of(0)),
        of_wrong: (right < size).then(|| of(size - 1)),
        total: (0..size).map(|response| of(response).abs()).sum(),
    })
}

fn draw(recipe: &Recipe, size: usize, points: &[Point]) -> Figure {
    let series = |name: &str, of: fn(&Point) -> Option<f64>| Series {
        name: name.to_string(),
        mark: Mark::Line,
        points: points
            .iter()
            .filter_map(|point| Some((point.right as f64, of(point)?)))
            .collect(),
    };
    let panel = |y: &str, series: Vec<Series>| Panel {
        x: format!("right responses of {size}"),
        y: y.to_string(),
        series,
    };
    Figure {
        title: format!("{}, a group of {size}", title(recipe)),
        panels: vec![
            panel(
                "advantage",
                vec![
                    series("A+ right", |point| point.of_right),
                    series("A- wrong", |point| point.of_wrong),
                ],
            ),
            panel("total |A|", vec![series("", |point| Some(point.total))]),
        ],
    }
}

/// The peak, and the values at some places.
fn table(points: &[Point]) -> String {
    let peak = points
        .iter()
        .fold(&points[0], |peak, point| match point.total > peak.total {
            true => point,
            false => peak,
        });
    let step = (points.len() - 1).div_ceil(ROWS - 1).max(1);
    let shown: Vec<&Point> = points
        .iter()
        .filter(|point| {
            point.right % step == 0 || point.right == peak.right || point.right + 1 == points.len()
        })
        .collect();
    let numbers = |of: &dyn Fn(&Point) -> Option<f64>| -> Vec<String> {
        let values: Vec<f64> = shown.iter().filter_map(|point| of(point)).collect();
        let mut texts = column(&values).into_iter();
        let text = |point: &&Point| {
            of(point)
                .and_then(|_| texts.next())
                .unwrap_or_else(|| "-".to_string())
        };
        shown.iter().map(text).collect()
    };
    let (right, wrong) = (
        numbers(&|point| point.of_right),
        numbers(&|point| point.of_wrong),
    );
    let total = numbers(&|point| Some(point.total));
    let mut lines = vec![format!(
        "  {:>5}  {:>9}  {:>9}  {:>9}",
        "right", "A+", "A-", "total |A|"
    )];
    for (place, point) in shown.iter().enumerate() {
        let mark = if point.right == peak.right && peak.total > 0.0 {
            "   peak"
        } else {
            ""
        };
        lines.push(format!(
            "  {:>5}  {:>9}  {:>9}  {:>9}{mark}",
            point.right, right[place], wrong[place], total[place]
        ));
    }
    match peak.total > 0.0 {
        true => lines.push(format!(
            "the most |A| is {} in total, where {} are right",
            value(peak.total),
            peak.right
        )),
        false => lines.push("the advantage is 0 everywhere".to_string()),
    }
    lines.join("\n")
}
