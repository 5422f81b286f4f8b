//! Shows objectives: over p with the known ones, the nearest of these, and the distribution of the weight.

use serde_json::{Value, json};

use super::{KnownObjective, Objective, largest_group};
use crate::report::Report;
use crate::report::draw::{Figure, Mark, Panel, Series};
use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::value;
use advlab::paint::{Paint, beside, cut, filled, wrapped};
use advlab::script::Recipe;

/// Places of a curve, and of one in a small panel.
const PLACES: usize = 200;
const SMALL_PLACES: usize = 48;
/// The most lines that can be told apart in one panel, and the most designs shown with their nearest known objective.
const MOST: usize = 6;
const NEAREST: usize = 3;
/// Columns of the table.
const SHOWN: [f64; 7] = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9];
/// The upper ends of the bins of difficulty.
const BINS: [f64; 6] = [0.0, 0.1, 0.3, 0.7, 0.9, 1.0];
/// The width of the names' column in the table.
const NAMES: usize = 28;

/// Evenly spaced places from `least` to `most`.
fn places((least, most): (f64, f64), count: usize) -> impl Iterator<Item = f64> {
    (0..=count).map(move |index| least + (most - least) * index as f64 / count as f64)
}

/// F' of each objective in a panel of its own, scaled as in [`figure`], over the F' of the mean reward.
pub fn multiples(title: String, all: &[Objective]) -> Figure {
    let panel = |objective: &Objective| {
        let least = 1.0 / objective.size as f64;
        let scale = scale(objective);
        let places = places((least, 1.0 - least), SMALL_PLACES);
        let slope = places.map(|p| (p, objective.slope(p).0 / scale));
        let level = |y: f64| Series::new("", Mark::Reference, [(0.0, y), (1.0, y)]);
        let series = vec![level(0.0), level(1.0), Series::new("", Mark::Line, slope)];
        Panel::new("", &objective.name, series)
    };
    Figure::new(title, 4, all.iter().map(panel).collect())
}

/// F' of each, scaled to a mean of 1 as the reward's is, with the nearest known ones and the reward; and F. If there are too
/// many to tell apart, F' in small panels.
pub fn figure(all: &[Objective]) -> Figure {
    let size = all[0].size;
    if all.len() > MOST {
        return multiples(format!("Weight F'(p), mean 1, in groups of {size}"), all);
    }
    let mut shown = vec![KnownObjective::Reward];
    for objective in all.iter().filter(|_| all.len() <= NEAREST) {
        let nearest = objective.nearest().first().map(|(known, _)| *known);
        shown.extend(nearest.filter(|known| !shown.contains(known)));
    }
    let least = 1.0 / size as f64;
    let known = shown.into_iter().map(|known| {
        let scale = all[0].scale(Some(known));
        let points = places((least, 1.0 - least), PLACES).map(|p| (p, known.slope(p) / scale));
        let name = match known {
            KnownObjective::Reward => "expected reward".to_string(),
            _ => known.name(),
        };
        Series::new(name, Mark::Reference, points)
    });
    let (mut slopes, mut values): (Vec<Series>, Vec<Series>) = (known.collect(), Vec::new());
    for objective in all {
        let scale = scale(objective);
        let line = |mark: Mark, of: &dyn Fn(f64) -> f64| {
            let points = places((0.0, 1.0), PLACES).map(|p| (p, of(p) / scale));
            Series::new(&objective.name, mark, points)
        };
        if !objective.is_exact() {
            // Two standard errors on either side.
            let end = |p, errors: f64| objective.slope(p).0 + errors * objective.slope(p).1;
            let high = places((0.0, 1.0), PLACES).map(|p| end(p, 2.0) / scale);
            slopes.push(line(Mark::Band(high.collect()), &|p| end(p, -2.0)));
        }
        slopes.push(line(Mark::Line, &|p| objective.slope(p).0));
        values.push(line(Mark::Line, &|p| objective.value(p).0));
    }
    let p = "p, the chance of a right response";
    let slopes = Panel::new(p, "weight F'(p), mean 1", slopes);
    let panels = vec![slopes, Panel::new(p, "objective F(p)", values)];
    Figure::new(format!("Objective in groups of {size}"), 2, panels)
}

/// What F' is divided by: the size of its mean, which keeps its sign; or 1 if that is 0.
fn scale(objective: &Objective) -> f64 {
    let scale = objective.scale(None).abs();
    if scale > 1e-12 { scale } else { 1.0 }
}

/// The objectives of recipes for groups of `size`, of the input's largest group, or of 16: their figure, table and numbers.
pub fn report(
    recipes: &[Recipe],
    input: Option<&Batch>,
    size: Option<usize>,
    paint: Paint,
) -> Result<Report, Diagnostics> {
    let size = size.or(input.map(largest_group)).unwrap_or(16);
    let of = |recipe| Objective::of(recipe, input, size);
    let all = recipes.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let row = |of: &Objective, p: f64| {
        let (slope, error) = of.slope(p);
        let error = (!of.is_exact()).then_some(error);
        json!({ "recipe": of.name, "p": p, "slope": slope, "slope_error": error, "value": of.value(p).0 })
    };
    let percents = || (0..=100).map(|p| f64::from(p) / 100.0);
    let rows = all
        .iter()
        .flat_map(|of| percents().map(move |p| row(of, p)));
    Ok(Report {
        text: table(&all, paint),
        rows: rows.collect(),
        figure: Some(figure(&all)),
        about: json!({ "n": size, "designs": to_json(&all) }),
        ..Report::default()
    })
}

/// The numbers in lines, with notes on each design.
pub fn table(all: &[Objective], paint: Paint) -> String {
    let row = |name: &str, of: &dyn Fn(f64) -> f64, last: &str| {
        let cells = SHOWN.map(|p| format!(" {:>5.2}", of(p))).concat();
        let name = filled(&cut(name, NAMES), NAMES);
        format!("  {name}{cells}{last}").trim_end().to_string()
    };
    let head = SHOWN.map(|p| format!(" {p:>5}")).concat();
    let name = filled("F'(p), mean 1      p =", NAMES);
    let mut lines = vec![paint.dim(&format!("  {name}{head}   F(1)"))];
    for objective in all {
        let scale = scale(objective);
        let total = format!("   {}", value(objective.value(1.0).0));
        lines.push(row(
            &objective.name,
            &|p| objective.slope(p).0 / scale,
            &total,
        ));
        if !objective.is_exact() {
            let error = |p| objective.slope(p).1 / scale;
            lines.push(row("  standard error", &error, ""));
        }
    }
    let half = KnownObjective::PassAt((all[0].size / 2).max(2));
    for known in [
        KnownObjective::Reward,
        KnownObjective::Log,
        KnownObjective::Arcsine(1),
        half,
    ] {
        let scale = all[0].scale(Some(known));
        lines.push(paint.dim(&row(&known.name(), &|p| known.slope(p) / scale, "")));
    }
    lines.push(paint.dim("  mean 1 for p from 1/N to 1 - 1/N; F(1) is not scaled"));
    for objective in all {
        lines.push(String::new());
        lines.push(paint.bold(&wrapped("", &objective.name, paint.width)));
        for (start, text) in rows(objective) {
            lines.push(beside(&format!("  {start}"), 12, &text, paint.width));
        }
    }
    lines.join("\n")
}

/// Notes on an objective: lines, each with its label.
fn rows(objective: &Objective) -> Vec<(&'static str, String)> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let (total, scale) = (objective.value(1.0).0, objective.scale(None));
    let is_nothing = total.abs() < 1e-12;
    let mut places = (1..100).map(|p| f64::from(p) / 100.0);
    let mut rows = Vec::new();
    if let Some(p) = places.find(|&p| objective.is_below(p, scale)) {
        let text = "there the update makes right responses rarer";
        rows.push((
            "nearest",
            format!("none: F' is below 0, as at p = {p}: {text}"),
        ));
    } else if is_nothing {
        rows.push((
            "nearest",
            "none: F' is 0, so this teaches nothing".to_string(),
        ));
    } else if let [(known, off), (second, other), ..] = &objective.nearest()[..] {
        let (name, off) = (known.name(), percent(*off));
        let (second, other) = (second.name(), percent(*other));
        let text = format!("{name}: {off} of the weight lies elsewhere; then {second}, {other}");
        rows.push(("nearest", text));
    }
    if !is_nothing {
        let bin = |ends: &[f64]| {
            let share = (objective.value(ends[1]).0 - objective.value(ends[0]).0) / total;
            format!("{} to {}: {}", ends[0], ends[1], percent(share))
        };
        let bins: Vec<String> = BINS.windows(2).map(bin).collect();
        rows.push(("weight", format!("by p, {}", bins.join(", "))));
    }
    rows.extend(objective.notes.iter().map(|note| ("note", note.clone())));
    rows
}

/// The numbers as JSON, one object per design.
fn to_json(all: &[Objective]) -> Value {
    let one = |objective: &Objective| {
        let places: Vec<f64> = (0..=100).map(|p| f64::from(p) / 100.0).collect();
        let slopes = places.iter().map(|&p| objective.slope(p));
        let (slopes, errors): (Vec<f64>, Vec<f64>) = slopes.unzip();
        let values = places.iter().map(|&p| objective.value(p).0);
        let nearest = objective.nearest().into_iter();
        let nearest =
            nearest.map(|(known, off)| json!({ "objective": known.name(), "distance": off }));
        json!({
            "recipe": objective.name,
            "group_size": objective.size,
            "p": places,
            "slope": slopes,
            "slope_error": (!objective.is_exact()).then_some(errors),
            "value": values.collect::<Vec<f64>>(),
            "nearest": nearest.collect::<Value>(),
            "notes": objective.notes,
        })
    };
    all.iter().map(one).collect()
}
