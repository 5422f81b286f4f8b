//! Objectives shown: over p beside the known ones, the nearest of these, and where the weight lies.

use serde_json::{Value, json};

use super::{Known, Objective};
use crate::report::figure::{Figure, Mark, Panel, Series};
use advlab::figures::value;
use advlab::paint::{Paint, beside, cut, filled, wrapped};

/// Places of a curve.
const PLACES: usize = 200;
/// Places in a small panel.
const SMALL_PLACES: f64 = 48.0;
/// Lines that are told apart in one panel.
const MOST: usize = 6;
/// Designs whose nearest known objectives are drawn beside them: dashes in grey are told apart for a few.
const NEAREST: usize = 3;
/// Columns of the table.
const SHOWN: [f64; 7] = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9];
/// Where the bins of difficulty end.
const BINS: [f64; 6] = [0.0, 0.1, 0.3, 0.7, 0.9, 1.0];
/// Columns of the table's names.
const NAMES: usize = 28;

/// F' of each in a panel of its own, scaled as [`figure`] has it, over the reward's.
pub fn multiples(title: String, all: &[(String, Objective)]) -> Figure {
    let panel = |(name, objective): &(String, Objective)| {
        let least = 1.0 / objective.size as f64;
        let place = |index| least + (1.0 - 2.0 * least) * f64::from(index) / SMALL_PLACES;
        let scale = scale(objective);
        let slope = |p| (p, objective.slope(p).0 / scale);
        let level = |y: f64| Series::new("", Mark::Reference, [(0.0, y), (1.0, y)]);
        let slope = (0..=SMALL_PLACES as i32).map(place).map(slope);
        let series = vec![level(0.0), level(1.0), Series::new("", Mark::Line, slope)];
        Panel::new("", name, series)
    };
    Figure {
        title,
        columns: 4,
        panels: all.iter().map(panel).collect(),
    }
}

/// F' of each, scaled to a mean of 1 as the reward has it, with the nearest known ones and the reward; and F. Of more than
/// can be told apart, F' in small panels.
pub fn figure(all: &[(String, Objective)]) -> Figure {
    let Some((_, first)) = all.first() else {
        return Figure::one("", Panel::new("", "", Vec::new()));
    };
    let size = first.size;
    if all.len() > MOST {
        let title = format!("Weight F'(p), mean 1, in groups of {size}");
        return multiples(title, all);
    }
    let (least, most) = (1.0 / size as f64, 1.0 - 1.0 / size as f64);
    let places = |least: f64, most: f64| -> Vec<f64> {
        let place = |index| least + (most - least) * index as f64 / PLACES as f64;
        (0..=PLACES).map(place).collect()
    };
    let mut slopes: Vec<Series> = Vec::new();
    let mut values = Vec::new();
    let mut kin = vec![Known::Reward];
    for (name, objective) in all {
        let nearest = objective.nearest().first().map(|(known, _)| *known);
        kin.extend(nearest.filter(|known| all.len() <= NEAREST && !kin.contains(known)));
        let scale = scale(objective);
        let scaled = |of: &dyn Fn(f64) -> (f64, f64)| -> Vec<(f64, f64, f64)> {
            let places = places(0.0, 1.0).into_iter();
            let at = |p| (p, of(p).0 / scale, of(p).1 / scale);
            places.map(at).collect()
        };
        let slope = scaled(&|p| objective.slope(p));
        if !objective.is_exact() {
            // Two standard errors on either side.
            let high = slope.iter().map(|(_, y, error)| y + 2.0 * error).collect();
            let low = slope.iter().map(|(p, y, error)| (*p, y - 2.0 * error));
            slopes.push(Series::new(name, Mark::Band(high), low));
        }
        let line = |points: Vec<(f64, f64, f64)>| {
            Series::new(name, Mark::Line, points.into_iter().map(|(p, y, _)| (p, y)))
        };
        slopes.push(line(slope));
        values.push(line(scaled(&|p| objective.value(p))));
    }
    let known = kin.into_iter().map(|known| {
        let scale = first.scale(Some(known));
        let points = places(least, most)
            .into_iter()
            .map(|p| (p, known.slope(p) / scale));
        Series::new(known.name(), Mark::Reference, points)
    });
    slopes.splice(0..0, known);
    let p = "p, the chance of a right response";
    Figure {
        title: format!("Objective in groups of {size}"),
        columns: 2,
        panels: vec![
            Panel::new(p, "weight F'(p), mean 1", slopes),
            Panel::new(p, "objective F(p)", values),
        ],
    }
}

/// What F' is divided by: the size of its mean, as a sign is to stay; or 1 where that is 0.
fn scale(objective: &Objective) -> f64 {
    let scale = objective.scale(None).abs();
    if scale > 1e-12 { scale } else { 1.0 }
}

/// The numbers in lines, and what is worth knowing of each recipe.
pub fn table(all: &[(String, Objective)], paint: Paint) -> String {
    let Some((_, first)) = all.first() else {
        return String::new();
    };
    let row = |name: &str, cells: [f64; 7], last: &str| {
        let cells = cells.map(|cell| format!(" {cell:>5.2}")).concat();
        let name = filled(&cut(name, NAMES), NAMES);
        format!("  {name}{cells}{last}").trim_end().to_string()
    };
    let head = SHOWN.map(|p| format!(" {p:>5}")).concat();
    let mut lines = vec![paint.dim(&format!(
        "  {}{head}   F(1)",
        filled("F'(p), mean 1      p =", NAMES)
    ))];
    for (name, objective) in all {
        let scale = scale(objective);
        let total = format!("   {}", value(objective.value(1.0).0));
        lines.push(row(
            name,
            SHOWN.map(|p| objective.slope(p).0 / scale),
            &total,
        ));
        if !objective.is_exact() {
            let errors = SHOWN.map(|p| objective.slope(p).1 / scale);
            lines.push(row("  standard error", errors, ""));
        }
    }
    let shown = [
        Known::Reward,
        Known::Log,
        Known::Arcsine(1),
        Known::PassAt((first.size / 2).max(2)),
    ];
    for known in shown {
        let scale = first.scale(Some(known));
        lines.push(paint.dim(&row(
            &known.name(),
            SHOWN.map(|p| known.slope(p) / scale),
            "",
        )));
    }
    lines.push(paint.dim("  mean 1 for p from 1/N to 1 - 1/N; F(1) is not scaled"));
    for (name, objective) in all {
        lines.push(String::new());
        lines.push(paint.bold(&wrapped("", name, paint.width)));
        for (start, text) in rows(objective) {
            lines.push(beside(&format!("  {start}"), 12, &text, paint.width));
        }
    }
    lines.join("\n")
}

/// What is worth knowing of an objective, each with the word that it stands under.
fn rows(objective: &Objective) -> Vec<(&'static str, String)> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let total = objective.value(1.0).0;
    let mut rows = Vec::new();
    let nearest = objective.nearest();
    let scale = objective.scale(None);
    let below = (1..100)
        .map(|p| f64::from(p) / 100.0)
        .find(|&p| objective.is_below(p, scale));
    match (&nearest[..], below) {
        (_, Some(p)) => rows.push((
            "nearest",
            format!(
                "none: F' is below 0, as at p = {p}: there the update makes right responses rarer"
            ),
        )),
        _ if total.abs() < 1e-12 => rows.push((
            "nearest",
            "none: F' is 0, so this teaches nothing".to_string(),
        )),
        ([(known, off), (second, other), ..], None) => {
            let apart = percent(*off);
            let second = format!("then {}, {}", second.name(), percent(*other));
            rows.push((
                "nearest",
                format!(
                    "{}: {apart} of the weight lies elsewhere; {second}",
                    known.name()
                ),
            ));
        }
        _ => {}
    }
    if total.abs() >= 1e-12 {
        let bin = |ends: &[f64]| {
            let share = (objective.value(ends[1]).0 - objective.value(ends[0]).0) / total;
            format!("{} to {}: {}", ends[0], ends[1], percent(share))
        };
        let bins: Vec<String> = BINS.windows(2).map(bin).collect();
        rows.push(("weight", format!("by p, {}", bins.join(", "))));
    }
    if let Some((_, off)) = nearest.iter().find(|(known, _)| *known == Known::Reward) {
        let ratio = objective.slope(0.1).0 / objective.slope(0.9).0;
        let counts = match value(ratio).as_str() {
            "1" => "as much as".to_string(),
            _ if ratio > 1e3 => "over 1000 times".to_string(),
            times => format!("{times} times"),
        };
        let text = format!(
            "{} of the weight lies elsewhere: p = 0.1 counts {counts} p = 0.9",
            percent(*off)
        );
        rows.push(("reward", text));
    }
    rows.extend(objective.notes.iter().map(|note| ("note", note.clone())));
    rows
}

/// The numbers as JSON, one object a recipe.
pub fn to_json(all: &[(String, Objective)]) -> Value {
    let one = |(name, objective): &(String, Objective)| {
        let places: Vec<f64> = (0..=100).map(|p| f64::from(p) / 100.0).collect();
        let of = |of: &dyn Fn(f64) -> f64| places.iter().map(|&p| of(p)).collect::<Vec<f64>>();
        let errors = (!objective.is_exact()).then(|| of(&|p| objective.slope(p).1));
        let nearest = objective.nearest();
        let nearest = nearest
            .iter()
            .map(|(known, off)| json!({ "objective": known.name(), "distance": off }));
        json!({
            "recipe": name,
            "group_size": objective.size,
            "p": places,
            "slope": of(&|p| objective.slope(p).0),
            "slope_error": errors,
            "value": of(&|p| objective.value(p).0),
            "nearest": nearest.collect::<Vec<Value>>(),
            "notes": objective.notes,
        })
    };
    Value::Array(all.iter().map(one).collect())
}
