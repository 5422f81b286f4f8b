//! `:curve`: the advantage of right and wrong responses, by how many of their group are right.

use super::super::figure::{Figure, Mark, Panel, Series};
use super::super::session::Session;
use super::recipe::title;
use super::{Answered, option, out, plot};
use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::{column, value};
use crate::paint::wrapped;
use crate::script::{Host, Recipe};

/// Rows of the table under the drawing.
const ROWS: usize = 9;
/// The share of the groups that are there only for the curve is at most one in so many.
const DILUTED: usize = 20;
/// Responses that a batch for a curve has about at most.
const RESPONSES: usize = 1 << 16;
/// Advantages that differ by less, beside the largest, differ by rounding.
const ROUNDING: f64 = 1e-9;

/// The advantages in a group with so many right responses.
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

/// A recipe's advantages for groups of one size with 0, 1, ... all responses right.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// One point for each number of right responses.
    pub points: Vec<Point>,
    /// Whether the other groups of the batch matter: a group alone has other advantages, or none.
    pub depends_on_batch: bool,
}

pub(super) fn curve(session: &mut Session, arguments: &str) -> Answered {
    let (rest, file) = out(arguments)?;
    let (rest, size) = option(&rest, "--n")?;
    let size = match size.map(|text| text.parse::<usize>()) {
        Some(Ok(size @ 1..=1024)) => size,
        Some(_) => {
            return Err(Diagnostic::error("`--n` is the size of the group, from 1 to 1024").into());
        }
        None => largest_group(session.batch()),
    };
    let recipe = session.recipe_of(&rest)?;
    session.script.guard().rearm();
    let Curve {
        points,
        depends_on_batch,
    } = Curve::of(&recipe, session.batch(), size)?;
    let drawn = plot::finish(session, &draw(&recipe, size, &points), file)?;
    let mut note = "The responses here are one token long, with a log-prob of -0.5, an entropy of 0.5, and so on: what a recipe makes of differences in these does not show.".to_string();
    if depends_on_batch {
        note.push_str(" Groups influence each other: this is one batch, with as large a share of groups of each accuracy as yours has, and a small one of those that it lacks. Another batch has another curve.");
    }
    let note = session.paint.dim(&wrapped("", &note, session.paint.width));
    Ok(format!("{drawn}\n{}\n{note}", table(&points)))
}

fn largest_group(batch: &Batch) -> usize {
    let layout = batch.layout();
    let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
    sizes.max().unwrap_or(1).clamp(2, 1024)
}

impl Curve {
    /// The curve for groups of `size`, in one batch that has as large a share of groups of each accuracy as `like`, and
    /// its token columns. Accuracies that `like` lacks have one group each, together a small share.
    ///
    /// # Errors
    /// [`Diagnostics`] where the recipe fails on that batch.
    pub fn of(recipe: &Recipe, like: &Batch, size: usize) -> Result<Curve, Diagnostics> {
        let groups = in_proportion(&accuracies(like), size);
        let points = points(recipe, like, size, &groups)?;
        let largest = points
            .iter()
            .fold(0.0f64, |most, point| most.max(point.total));
        let is_alike = |alone: &Point, point: &Point| {
            let near = |a: Option<f64>, b: Option<f64>| {
                let gap = a.unwrap_or(0.0) - b.unwrap_or(0.0);
                gap.abs() <= ROUNDING * largest
            };
            near(alone.of_right, point.of_right) && near(alone.of_wrong, point.of_wrong)
        };
        let is_independent = |point: &Point| {
            let alone = self::points(recipe, like, size, &[point.right]);
            alone.is_ok_and(|alone| is_alike(&alone[0], point))
        };
        let depends_on_batch = !points.iter().all(is_independent);
        Ok(Curve {
            points,
            depends_on_batch,
        })
    }
}

/// The share of right responses in each group; none where nothing says which are right.
fn accuracies(batch: &Batch) -> Vec<f64> {
    let accuracy = Host::new().evaluate("batch.correct.mean(\"group\")", batch);
    accuracy.map_or(Vec::new(), |accuracy| accuracy.numbers())
}

/// How many responses are right in each group of the batch: all numbers from 0 to `size` first, then as many groups of
/// each as make the shares those of the accuracies.
fn in_proportion(accuracies: &[f64], size: usize) -> Vec<usize> {
    let own: Vec<usize> = accuracies
        .iter()
        .map(|accuracy| (accuracy * size as f64).round() as usize)
        .collect();
    let lacking = (0..=size).filter(|right| !own.contains(right)).count();
    // As few copies as dilute the groups that the batch lacks, and no more than can be computed at once.
    let wanted = (DILUTED * lacking).div_ceil(own.len().max(1));
    let copies = wanted.min(RESPONSES / (size * own.len()).max(1)).max(1);
    let mut copied = own.repeat(copies);
    // The groups that lead stand for one of their copies.
    for right in 0..=size {
        if let Some(index) = copied.iter().position(|copy| *copy == right) {
            copied.swap_remove(index);
        }
    }
    (0..=size).chain(copied).collect()
}

/// The recipe on a batch of groups with so many right responses each, the right ones first; a point for each number of
/// right responses, in the order in which the numbers come up.
fn points(
    recipe: &Recipe,
    like: &Batch,
    size: usize,
    groups: &[usize],
) -> Result<Vec<Point>, Diagnostics> {
    let labels: Vec<f64> = groups
        .iter()
        .flat_map(|&right| (0..size).map(move |response| f64::from(u8::from(response < right))))
        .collect();
    let responses = labels.len();
    let mut builder = Batch::builder()
        .groups((0..responses).map(|response| (response / size) as i64))
        .lengths(vec![1; responses])
        .response("reward", labels.clone())
        .response("correct", labels);
    // Log-probs and the like are there, and are the same everywhere: the curve is about right and wrong.
    for name in like
        .columns()
        .filter(|name| like.token_column(name).is_some() && *name != "token_reward")
    {
        let number = if name.ends_with("logp") { -0.5 } else { 0.5 };
        builder = builder.ragged(name, vec![[number]; responses]);
    }
    let batch = builder
        .build()
        .map_err(|error| Diagnostic::error(error.to_string()))?;
    let advantage = recipe.advantage(&batch, &mut recipe.init()?)?.advantage;
    let mut points: Vec<Point> = Vec::new();
    for (group, &right) in groups.iter().enumerate().take(size + 1) {
        let of = |response: usize| advantage.at(group * size + response, 0);
        points.push(Point {
            right,
            of_right: (right > 0).then(|| of(0)),
            of_wrong: (right < size).then(|| of(size - 1)),
            total: (0..size).map(|response| of(response).abs()).sum(),
        });
    }
    Ok(points)
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
    let right = series("A+ right", |point| point.of_right);
    let wrong = series("A- wrong", |point| point.of_wrong);
    let total = series("", |point| Some(point.total));
    Figure {
        title: format!("{}, a group of {size}", title(recipe)),
        panels: vec![
            panel("advantage", vec![right, wrong]),
            panel("total |A|", vec![total]),
        ],
    }
}

/// The peak, and some of the values.
fn table(points: &[Point]) -> String {
    let mut peak = &points[0];
    for point in points {
        peak = if point.total > peak.total {
            point
        } else {
            peak
        };
    }
    let step = (points.len() - 1).div_ceil(ROWS - 1).max(1);
    let is_shown = |point: &&Point| {
        point.right.is_multiple_of(step)
            || point.right == peak.right
            || point.right + 1 == points.len()
    };
    let shown: Vec<&Point> = points.iter().filter(is_shown).collect();
    let numbers = |of: fn(&Point) -> Option<f64>| -> Vec<String> {
        let values: Vec<f64> = shown.iter().filter_map(|point| of(point)).collect();
        let mut texts = column(&values).into_iter();
        let text = |point: &&Point| of(point).and_then(|_| texts.next());
        let texts = shown.iter().map(text);
        texts.map(|text| text.unwrap_or("-".to_string())).collect()
    };
    let right = numbers(|point| point.of_right);
    let wrong = numbers(|point| point.of_wrong);
    let total = numbers(|point| Some(point.total));
    let row = |right: &str, of_right: &str, of_wrong: &str, total: &str| {
        format!("  {right:>5}  {of_right:>9}  {of_wrong:>9}  {total:>9}")
    };
    let mut lines = vec![row("right", "A+", "A-", "total |A|")];
    for (index, point) in shown.iter().enumerate() {
        let is_peak = point.right == peak.right && peak.total > 0.0;
        let mark = if is_peak { "   peak" } else { "" };
        let number = point.right.to_string();
        lines.push(row(&number, &right[index], &wrong[index], &total[index]) + mark);
    }
    lines.push(if peak.total > 0.0 {
        let (total, right) = (value(peak.total), peak.right);
        let verb = if right == 1 { "is" } else { "are" };
        format!("the most |A| is {total} in total, where {right} {verb} right")
    } else {
        "the advantage is 0 everywhere".to_string()
    });
    lines.join("\n")
}
