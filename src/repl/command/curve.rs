//! `:curve`: the advantage of right and wrong responses, by how many of their group are right.

use super::super::figure::{Figure, Mark, Panel, Series};
use super::super::session::Session;
use super::recipe::title;
use super::{Answered, option, plot};
use crate::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::{column, value};
use crate::script::{Host, Recipe, groups_are_independent};

/// Rows of the table under the drawing.
const ROWS: usize = 9;
/// The share of the groups that are there only for the curve is at most one in so many.
const DILUTED: usize = 20;
/// Responses that stand for the session's batch, at most.
const RESPONSES: usize = 1 << 16;
/// Totals that differ by less, beside the largest, differ by rounding.
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
    let (rest, file) = option(arguments, "--out")?;
    let (rest, size) = option(&rest, "--n")?;
    let batch = session.data.batch.clone();
    let wrong = Diagnostic::error("`--n` is the size of the group, from 1 to 1024");
    let layout = batch.layout();
    let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
    let size = match size.map(|text| text.parse::<usize>()) {
        Some(Ok(size @ 1..=1024)) => size,
        Some(_) => return Err(wrong.into()),
        None => sizes.max().unwrap_or(1).clamp(2, 1024),
    };
    let recipe = session.recipe_of(&rest)?;
    session.script.guard().rearm();
    let curve = Curve::of(&recipe, &batch, size)?;
    let drawn = plot::finish(session, &draw(&recipe, size, &curve.points), file)?;
    let mut note = "The responses here are one token long, with a log-prob of -0.5, an entropy of 0.5, and so on: what a recipe makes of differences in these does not show.".to_string();
    if curve.depends_on_batch {
        note.push_str(" Groups influence each other: this is one batch, with as large a share of groups of each accuracy as yours has, and a small one of those that it lacks. Another batch has another curve.");
    }
    let (table, note) = (table(&curve.points), session.dimmed(&note));
    Ok(format!("{drawn}\n{table}\n{note}"))
}

impl Curve {
    /// The curve for groups of `size`, in one batch that has as large a share of groups of each accuracy as `like`, and
    /// its token columns. Accuracies that `like` lacks have one group each, together a small share.
    ///
    /// # Errors
    /// [`Diagnostics`] where the recipe fails on that batch.
    pub fn of(recipe: &Recipe, like: &Batch, size: usize) -> Result<Curve, Diagnostics> {
        let groups = in_proportion(&accuracies(like), size);
        let batch = batch(like, size, &groups)?;
        let advantage = recipe.advantage(&batch, &mut recipe.init()?)?.advantage;
        // The groups that lead have 0, 1, ... right responses.
        let point = |right: usize| {
            let of = |response: usize| advantage.at(right * size + response, 0);
            Point {
                right,
                of_right: (right > 0).then(|| of(0)),
                of_wrong: (right < size).then(|| of(size - 1)),
                total: (0..size).map(|response| of(response).abs()).sum(),
            }
        };
        Ok(Curve {
            points: (0..=size).map(point).collect(),
            depends_on_batch: !groups_are_independent(recipe, &batch)?,
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
    let room = RESPONSES / size;
    let mut own: Vec<usize> = accuracies
        .iter()
        .map(|accuracy| (accuracy * size as f64).round() as usize)
        .collect();
    // Of more than can be computed at once, an even sample.
    own.sort_unstable();
    let own: Vec<usize> = own
        .into_iter()
        .step_by(accuracies.len().div_ceil(room).max(1))
        .collect();
    let lacking = (0..=size).filter(|right| !own.contains(right)).count();
    // As few copies as dilute the groups that the batch lacks.
    let wanted = (DILUTED * lacking).div_ceil(own.len().max(1));
    let mut copied = own.repeat(wanted.min(room / own.len().max(1)).max(1));
    // The groups that lead stand for one of their copies.
    for right in 0..=size {
        if let Some(index) = copied.iter().position(|copy| *copy == right) {
            copied.swap_remove(index);
        }
    }
    (0..=size).chain(copied).collect()
}

/// A batch of groups with so many right responses each, the right ones first.
fn batch(like: &Batch, size: usize, groups: &[usize]) -> Result<Batch, Diagnostics> {
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
    let names = like.token_columns().map(|(name, _)| name);
    for name in names.filter(|name| *name != "token_reward") {
        let number = if name.ends_with("logp") { -0.5 } else { 0.5 };
        builder = builder.ragged(name, vec![[number]; responses]);
    }
    builder.build()
}

fn draw(recipe: &Recipe, size: usize, points: &[Point]) -> Figure {
    let series = |name, of: fn(&Point) -> Option<f64>| Series {
        name,
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

/// Some of the values, and where the total is largest.
fn table(points: &[Point]) -> String {
    let totals = points.iter().map(|point| point.total);
    let most = totals.fold(0.0f64, f64::max);
    if most == 0.0 {
        return "the advantage is 0 everywhere".to_string();
    }
    let is_peak = |point: &&Point| point.total >= most * (1.0 - ROUNDING);
    let peaks: Vec<usize> = points.iter().filter(is_peak).map(|one| one.right).collect();
    let (first, last) = (peaks[0], peaks[peaks.len() - 1]);
    let step = (points.len() - 1).div_ceil(ROWS - 1).max(1);
    let is_shown = |point: &&Point| {
        point.right.is_multiple_of(step) || point.right == first || point.right + 1 == points.len()
    };
    let shown: Vec<&Point> = points.iter().filter(is_shown).collect();
    let columns: [fn(&Point) -> Option<f64>; 3] = [
        |point| point.of_right,
        |point| point.of_wrong,
        |point| Some(point.total),
    ];
    let columns = columns.map(|of| {
        let values = shown.iter().map(|one| of(one).unwrap_or(f64::NAN));
        column(&values.collect::<Vec<f64>>())
    });
    let titles = ["A+", "A-", "total |A|"].map(|title| format!(" {title:>10}"));
    let mut lines = vec![format!("  right{}", titles.concat())];
    for (index, point) in shown.iter().enumerate() {
        let mark = match peaks.len() {
            _ if !is_peak(point) => "",
            1 => "   peak",
            _ => "   flat",
        };
        let cells = columns.each_ref().map(|own| own[index].replace("NaN", "-"));
        let cells = cells.map(|cell| format!(" {cell:>10}")).concat();
        lines.push(format!("  {:>5}{cells}{mark}", point.right));
    }
    let place = match last - first + 1 {
        1 if first == 1 => "where 1 is right".to_string(),
        1 => format!("where {first} are right"),
        number if number == peaks.len() => format!("flat from {first} to {last} right"),
        _ => format!("where {first} are right, and as much where {last} are"),
    };
    lines.push(format!("the most |A| is {} in total, {place}", value(most)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_groups_a_sample_in_their_proportions_is_drawn() {
        let many: Vec<f64> = (0..1_000_000)
            .map(|group| f64::from(group % 4) / 4.0)
            .collect();
        for size in [8, 1024] {
            let groups = in_proportion(&many, size);
            assert!(groups.len() * size <= RESPONSES + size * (size + 1));
            let share = |right: usize| groups.iter().filter(|own| **own == right).count();
            let quarter = groups.len().saturating_sub(size) / 4;
            assert!(
                [0, size / 4, size / 2]
                    .iter()
                    .all(|&right| share(right).abs_diff(quarter) <= 3)
            );
        }
    }
}
