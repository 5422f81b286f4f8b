//! Shows objectives as functions of p, with the nearest known objectives, the distribution of the weight, and the noise of
//! updates.

use serde_json::{Value, json};

use super::{KnownObjective, Objective, Update, largest_group, percent};
use crate::Result;
use crate::number_text::value;
use crate::paint::{Paint, cut, filled, wrapped};
use crate::report::Report;
use crate::report::draw::{Figure, Mark, Panel, Series};
use advlab::{Batch, Recipe};

/// The number of intervals of p in the curve of a normal panel, and of a small panel.
const PLACES: usize = 200;
const SMALL_PLACES: usize = 48;
/// The largest number of lines that can be told apart in one panel, and the largest number of designs that are shown with their
/// nearest known objectives.
const MOST: usize = 6;
const NEAREST: usize = 3;
/// The values of p for which the table has columns.
const SHOWN: [f64; 7] = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9];
/// The ends of the ranges of p whose shares of the weight are shown.
const BINS: [f64; 6] = [0.0, 0.1, 0.3, 0.7, 0.9, 1.0];
/// The width of the names' column in the table.
const NAMES: usize = 28;
/// The default correlation between a response's score and whether the response is right.
pub const CORRELATION: f64 = 0.1;

/// Returns evenly spaced values from `least` to `most`.
fn places((least, most): (f64, f64), count: usize) -> impl Iterator<Item = f64> {
    (0..=count).map(move |index| least + (most - least) * index as f64 / count as f64)
}

/// Draws the F' of each objective in a separate panel, scaled as in [`figure`], and the F' of the mean reward as a grey line.
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

/// Draws a panel with the F' of the designs, of their nearest known objectives (for up to `NEAREST` designs) and of the reward,
/// each scaled to a mean of 1 or -1, and a panel with the designs' F. If a correlation is given, the figure also shows the noise
/// of an update. If there are too many designs to tell apart, there is only a small panel for each F'.
pub fn figure(all: &[Objective], correlation: Option<f64>) -> Figure {
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
    let line = |name: &str, mark, of: &dyn Fn(f64) -> f64| {
        Series::new(name, mark, places((0.0, 1.0), PLACES).map(|p| (p, of(p))))
    };
    for objective in all {
        let (name, scale) = (&objective.name, scale(objective));
        if !objective.is_exact() {
            // The band extends two standard errors to either side.
            let end = |p, errors: f64| {
                let (slope, error) = objective.slope(p);
                (slope + errors * error) / scale
            };
            let high = places((0.0, 1.0), PLACES).map(|p| end(p, 2.0));
            slopes.push(line(name, Mark::Band(high.collect()), &|p| end(p, -2.0)));
        }
        slopes.push(line(name, Mark::Line, &|p| objective.slope(p).0 / scale));
        values.push(line(name, Mark::Line, &|p| objective.value(p).0 / scale));
    }
    let p = "p, the chance of a right response";
    let slopes = Panel::new(p, "weight F'(p), mean 1", slopes);
    let mut panels = vec![slopes, Panel::new(p, "objective F(p)", values)];
    if let Some(correlation) = correlation {
        let best = |p| Update::best(size, p, correlation).ratio();
        let (mut ratios, mut silent) = (Vec::new(), Vec::new());
        for objective in all {
            let (name, update) = (&objective.name, |p| objective.update(p, correlation));
            ratios.push(line(name, Mark::Line, &|p| update(p).ratio() / best(p)));
            silent.push(line(name, Mark::Line, &|p| update(p).silent));
        }
        let one = [(0.0, 1.0), (1.0, 1.0)];
        ratios.push(Series::new("best baseline", Mark::Reference, one));
        panels.push(Panel::new(p, "signal-to-noise, best 1", ratios));
        panels.push(Panel::new(p, "groups without signal", silent));
    }
    Figure::new(format!("Objective in groups of {size}"), 2, panels)
}

/// Returns the divisor of F': the absolute value of its mean, so that F' keeps its sign; or 1 if the mean is 0.
fn scale(objective: &Objective) -> f64 {
    let scale = objective.scale(None).abs();
    if scale > 1e-12 { scale } else { 1.0 }
}

/// Reports the objectives of recipes as a figure, a table and numbers, for groups of `size`. If `size` is `None`, the groups are
/// as large as the input's largest group, or 16 if there is no input.
pub fn report(
    recipes: &[Recipe],
    input: Option<&Batch>,
    size: Option<usize>,
    noise: Option<f64>,
    paint: Paint,
) -> Result<Report> {
    let size = size.or(input.map(largest_group)).unwrap_or(16);
    let of = |recipe| Objective::of(recipe, input, size);
    let all = recipes.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let (mut report, mut designs) = (Report::new(paint), Vec::new());
    for objective in &all {
        let percents = (0..=100).map(|p| f64::from(p) / 100.0);
        let rows: Vec<Value> = percents.map(|p| numbers(objective, p, noise)).collect();
        designs.push(to_json(objective, &rows));
        report.rows.extend(rows);
    }
    slopes(&all, &mut report);
    if let Some(correlation) = noise {
        report.line("");
        updates(&all, correlation, &mut report);
    }
    all.iter()
        .for_each(|objective| notes(objective, &mut report));
    report.about = json!({ "n": size, "correlation": noise, "designs": designs });
    report.figure = Some(figure(&all, noise));
    Ok(report)
}

/// Returns a row of a table: a name, and a number at each p that is shown.
fn row(name: &str, of: impl Fn(f64) -> String) -> Vec<String> {
    let name = filled(&cut(name, NAMES), NAMES);
    [name].into_iter().chain(SHOWN.map(of)).collect()
}

/// Returns a grey row for a known objective or baseline with which designs are compared.
fn grey(name: &str, of: impl Fn(f64) -> String, paint: Paint) -> Vec<String> {
    let cells = row(name, of).into_iter();
    cells.map(|cell| paint.dim(&cell)).collect()
}

/// Adds a table of the F' of designs and of known objectives.
fn slopes(all: &[Objective], report: &mut Report) {
    let two = |number: f64| format!("{number:.2}");
    let mut rows = vec![row("F'(p), mean 1      p =", |p| p.to_string())];
    rows[0].push("F(1)".to_string());
    for objective in all {
        let scale = scale(objective);
        let mut slopes = row(&objective.name, |p| two(objective.slope(p).0 / scale));
        slopes.push(value(objective.value(1.0).0));
        rows.push(slopes);
        if !objective.is_exact() {
            let error = |p| two(objective.slope(p).1 / scale);
            rows.push(row("  standard error", error));
        }
    }
    let half = KnownObjective::PassAt((all[0].size / 2).max(2));
    let arcsine = KnownObjective::Arcsine(1);
    for known in [KnownObjective::Reward, KnownObjective::Log, arcsine, half] {
        let scale = all[0].scale(Some(known));
        let slope = |p| two(known.slope(p) / scale);
        rows.push(grey(&known.name(), slope, report.paint));
    }
    report.table(&rows);
    report.aside("", "  F' has mean 1 on [1/N, 1 - 1/N]; F(1) is not scaled");
}

/// Adds a table of the noise of each design's update.
fn updates(all: &[Objective], correlation: f64, report: &mut Report) {
    const GROUPS: &str = "  groups for signal = noise";
    let best = |p| Update::best(all[0].size, p, correlation);
    let number = |update: Update| match groups(update) {
        None => "-".to_string(),
        Some(groups) if groups < 99.5 => format!("{groups:.1}"),
        Some(groups) if groups < 99999.5 => format!("{groups:.0}"),
        Some(groups) => format!("{groups:.0e}"),
    };
    let mut rows = vec![row("signal-to-noise, best 1 p =", |p| p.to_string())];
    for objective in all {
        let update = |p| objective.update(p, correlation);
        let ratio = |p| format!("{:.2}", update(p).ratio() / best(p).ratio());
        let silent = |p| format!("{:.0} %", 100.0 * update(p).silent);
        rows.push(row(&objective.name, ratio));
        rows.push(row(GROUPS, |p| number(update(p))));
        rows.push(row("  groups without signal", silent));
    }
    let one = |_| "1.00".to_string();
    rows.push(grey("best constant baseline", one, report.paint));
    rows.push(grey(GROUPS, |p| number(best(p)), report.paint));
    report.table(&rows);
    let note = format!(
        "signal-to-noise is a group's mean update over its standard deviation; 1 is the value for REINFORCE with the best constant baseline; the correlation of scores with being right is {correlation}"
    );
    report.aside("  ", &note);
}

/// Adds notes on a design below its name: the nearest known objectives, and the share of the weight in each range of p.
fn notes(objective: &Objective, report: &mut Report) {
    const TEXTS: usize = 12;
    report.line("");
    let name = wrapped("", &objective.name, report.paint.width);
    report.line(report.paint.bold(&name));
    let (total, scale) = (objective.value(1.0).0, objective.scale(None));
    let is_nothing = total.abs() < 1e-12;
    let mut places = (1..100).map(|p| f64::from(p) / 100.0);
    let below = places.find(|&p| objective.is_below(p, scale));
    let nearest = match (below, &objective.nearest()[..]) {
        (Some(p), _) => format!(
            "none: F' is below 0, for example at p = {p}, so the update makes right responses rarer there"
        ),
        _ if is_nothing => "none: F' is 0, so the recipe gives no learning signal".to_string(),
        (_, [(known, off), (second, other), ..]) => {
            let (name, off) = (known.name(), percent(*off));
            let (second, other) = (second.name(), percent(*other));
            format!("{name} (weights F'(p) differ by {off}), then {second} ({other})")
        }
        _ => String::new(),
    };
    if !nearest.is_empty() {
        report.row("  nearest", TEXTS, &nearest);
    }
    if !is_nothing {
        let bin = |ends: &[f64]| {
            let share = (objective.value(ends[1]).0 - objective.value(ends[0]).0) / total;
            format!("{} to {}: {}", ends[0], ends[1], percent(share))
        };
        let bins: Vec<String> = BINS.windows(2).map(bin).collect();
        report.row("  weight", TEXTS, &format!("by p, {}", bins.join(", ")));
    }
    let notes = objective.notes.iter();
    notes.for_each(|note| report.row("  note", TEXTS, note));
}

/// Returns the number of groups whose mean update has a signal-to-noise ratio of 1, or `None` if the signal is not positive.
fn groups(update: Update) -> Option<f64> {
    let ratio = update.ratio();
    (ratio > 0.0).then(|| 1.0 / (ratio * ratio))
}

/// Returns the numbers of a design at p by their names. The numbers of an update that divide by p (1 - p) are NaN if p is 0 or 1.
fn numbers(of: &Objective, p: f64, noise: Option<f64>) -> Value {
    let (slope, error) = of.slope(p);
    let error = (!of.is_exact()).then_some(error);
    let mut row = json!({ "recipe": of.name, "p": p, "slope": slope, "slope_error": error, "value": of.value(p).0 });
    let Some(correlation) = noise else {
        return row;
    };
    let update = of.update(p, correlation);
    let best = Update::best(of.size, p, correlation);
    for (name, number) in [
        ("mean", update.mean),
        ("variance", update.variance),
        ("ratio", update.ratio()),
        ("ratio_to_best", update.ratio() / best.ratio()),
        ("groups", groups(update).unwrap_or(f64::NAN)),
        ("no_signal", update.silent),
    ] {
        row[name] = json!(number);
    }
    row
}

/// Converts a design's numbers to one JSON object, with the columns of its rows as lists.
fn to_json(objective: &Objective, rows: &[Value]) -> Value {
    let nearest = objective.nearest().into_iter();
    let nearest = nearest.map(|(known, off)| json!({ "objective": known.name(), "distance": off }));
    let mut all = json!({
        "recipe": objective.name,
        "group_size": objective.size,
        "nearest": nearest.collect::<Value>(),
        "notes": objective.notes,
    });
    let names = rows.first().and_then(Value::as_object).into_iter();
    let names = names.flat_map(|row| row.keys());
    for name in names.filter(|name| *name != "recipe") {
        all[name] = rows.iter().map(|row| row[name].clone()).collect();
    }
    if objective.is_exact() {
        all["slope_error"] = Value::Null;
    }
    all
}
