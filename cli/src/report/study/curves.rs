//! Shows curves: the advantages of right and wrong responses, and the total |A|, by the number of right responses of a group.

use serde_json::json;

use super::curve::ROUNDING;
use super::{Curve, Point, label, largest_group, title};
use crate::Result;
use crate::report::Report;
use crate::report::draw::{Figure, Mark, Panel, Series};
use advlab::figures::{column, value};
use advlab::paint::Paint;
use advlab::{Batch, Recipe};

/// Rows of the table below a curve.
const ROWS: usize = 9;

/// The curves of recipes for groups of `size`, or of the batch's largest group.
pub fn report(
    recipes: Vec<Recipe>,
    batch: &Batch,
    size: Option<usize>,
    paint: Paint,
) -> Result<Report> {
    let size = size.unwrap_or_else(|| largest_group(batch));
    let curve = |recipe: Recipe| Ok((Curve::of(&recipe, batch, size)?, recipe));
    let curves: Vec<(Curve, Recipe)> = recipes.into_iter().map(curve).collect::<Result<_>>()?;
    let any = |test: fn(&Curve) -> bool| curves.iter().any(|(curve, _)| test(curve));
    let mut note = "Responses are one token long, with a log-prob of -0.5 and an entropy of 0.5: what a recipe makes of differences in these does not show.".to_string();
    if any(|curve| curve.depends_on_order) {
        note.push_str(" The order of a group's responses, or chance, matters: these are means over orders that are drawn.");
    }
    if any(|curve| curve.depends_on_batch) {
        note.push_str(" Groups influence each other: this is one batch, with the shares of groups of each accuracy that yours has.");
    }
    let mut report = Report::new(paint);
    if let [(curve, _)] = &curves[..] {
        points(&curve.points, &mut report);
    }
    report.aside("", &note);
    for (curve, recipe) in &curves {
        let name = label(recipe);
        let row = |point: &Point| json!({ "recipe": name, "right": point.right, "a_right": point.of_right, "a_wrong": point.of_wrong, "total": point.total });
        report.rows.extend(curve.points.iter().map(row));
    }
    report.about = json!({ "n": size, "note": note });
    report.figure = Some(figure(size, &curves));
    Ok(report)
}

type Number = fn(&Point) -> Option<f64>;

/// The numbers that a curve draws and lists in its table.
const NUMBERS: [(&str, Number); 3] = [
    ("A+ right", |point| point.of_right),
    ("A- wrong", |point| point.of_wrong),
    ("total |A|", |point| Some(point.total)),
];

/// One recipe's curves, or several recipes' curves in the same panels.
fn figure(size: usize, curves: &[(Curve, Recipe)]) -> Figure {
    let series = |name: &str, curve: &Curve, number: Number| {
        let points = curve.points.iter();
        let points = points.filter_map(|point| Some((point.right as f64, number(point)?)));
        Series::new(name, Mark::Line, points)
    };
    let panel = |y: &str, all| Panel::new(format!("right responses of {size}"), y, all);
    if let [(curve, recipe)] = curves {
        let [right, wrong, total] = NUMBERS;
        let advantage = [right, wrong].map(|(name, number)| series(name, curve, number));
        let total = panel(total.0, vec![series("", curve, total.1)]);
        let title = format!("{}, a group of {size}", title(recipe));
        return Figure::new(title, 2, vec![panel("advantage", advantage.into()), total]);
    }
    let all = NUMBERS.map(|(y, number)| {
        let lines = curves.iter();
        let lines = lines.map(|(curve, recipe)| series(&label(recipe), curve, number));
        panel(y, lines.collect())
    });
    Figure::new(format!("groups of {size}"), 3, all.into())
}

/// Adds some points of a curve, and the place of the largest total.
fn points(points: &[Point], report: &mut Report) {
    let larger = |peak: Point, point: &Point| match point.total > peak.total * (1.0 + ROUNDING) {
        true => *point,
        false => peak,
    };
    let peak = points.iter().fold(points[0], larger);
    if peak.total == 0.0 {
        return report.line("the advantage is 0 everywhere");
    }
    let last = points.len() - 1;
    let step = last.div_ceil(ROWS - 1).max(1);
    let is_shown = |right| [peak.right, last].contains(&right) || right.is_multiple_of(step);
    let shown = || points.iter().filter(|point| is_shown(point.right));
    let columns = NUMBERS.map(|(_, number)| {
        let values = shown().map(|one| number(one).unwrap_or(f64::NAN));
        column(&values.collect::<Vec<f64>>())
    });
    let mut rows = vec![
        ["right", "A+", "A-", "total |A|"]
            .map(String::from)
            .to_vec(),
    ];
    rows.extend(shown().enumerate().map(|(index, point)| {
        let cells = columns.iter().map(|own| own[index].replace("NaN", "-"));
        [point.right.to_string()].into_iter().chain(cells).collect()
    }));
    report.table(&rows);
    let (total, right) = (value(peak.total), peak.right);
    report.line(format!(
        "the most |A| is {total} in total, where {right} are right"
    ));
}
