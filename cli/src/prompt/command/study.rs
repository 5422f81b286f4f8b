//! `:curve`, `:surface`, `:objective` and `:mass`: the advantages of right and wrong responses, a loss over the ratio, what
//! recipes optimise, and where their signal goes.

use super::super::session::Session;
use super::recipe::{chosen, title};
use super::{Answered, option, plot};
use crate::report::figure::{Figure, Mark, Panel, Series};
use crate::report::study::{
    Curve, Drawn, Mass, Point, label, largest_group, objectives, surface as drawn,
};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{column, value};
use advlab::script::Recipe;

/// Rows of the table below the figure.
const ROWS: usize = 9;
/// Totals that differ by less, relative to the largest, differ by rounding.
const ROUNDING: f64 = 1e-9;

pub(super) fn curve(session: &mut Session, arguments: &str) -> Answered {
    let (rest, file) = option(arguments, "--out")?;
    let (rest, size) = size(session, &rest)?;
    let batch = session.data.batch.clone();
    session.script.guard().rearm();
    let mut curves = Vec::new();
    for recipe in chosen(session, &rest)? {
        let curve = Curve::of(&recipe, &batch, size)?;
        curves.push((recipe, curve));
    }
    let figure = draw(size, &curves);
    let any = |test: fn(&Curve) -> bool| curves.iter().any(|(_, curve)| test(curve));
    let mut note = "The responses here are one token long, with a log-prob of -0.5, an entropy of 0.5, and so on: what a recipe makes of differences in these does not show.".to_string();
    if any(|curve| curve.depends_on_order) {
        note.push_str(" The order of a group's responses, or chance, matters: these are means over orders that are drawn.");
    }
    if any(|curve| curve.depends_on_batch) {
        note.push_str(" Groups influence each other: this is one batch, with as large a share of groups of each accuracy as yours has, and a small one of those that it lacks. Another batch has another curve.");
    }
    let note = session.dimmed(&note);
    let below = match &curves[..] {
        [(_, curve)] => format!("{}\n{note}", table(&curve.points)),
        _ => note,
    };
    plot::finish(session, &figure, file, &below)
}

/// The text without `--n`, and the group size that it gives; the batch's largest if it gives none.
fn size(session: &Session, text: &str) -> Result<(String, usize), Diagnostics> {
    let (rest, size) = option(text, "--n")?;
    match size.map(|text| text.parse::<usize>()) {
        Some(Ok(size @ 1..=1024)) => Ok((rest, size)),
        Some(_) => Err(Diagnostic::error("`--n` is the size of the group, from 1 to 1024").into()),
        None => Ok((rest, largest_group(&session.data.batch))),
    }
}

pub(super) fn surface(session: &mut Session, arguments: &str) -> Answered {
    let (rest, file) = option(arguments, "--out")?;
    let (loss, named): (Vec<&str>, Vec<&str>) =
        rest.split_whitespace().partition(|word| *word == "loss");
    let what = if loss.is_empty() {
        Drawn::Push
    } else {
        Drawn::Loss
    };
    let recipe = session.recipe_of(&named.join(" "))?;
    session.script.guard().rearm();
    plot::finish(session, &drawn(&recipe, what)?, file, "")
}

pub(super) fn objective(session: &mut Session, arguments: &str) -> Answered {
    let (rest, file) = option(arguments, "--out")?;
    let (rest, size) = size(session, &rest)?;
    session.script.guard().rearm();
    let recipes = chosen(session, &rest)?;
    let all = objectives::of(&recipes, Some(&session.data.batch), size)?;
    let table = objectives::table(&all, session.paint);
    plot::finish(session, &objectives::figure(&all), file, &table)
}

pub(super) fn mass(session: &mut Session, arguments: &str) -> Answered {
    let recipe = session.recipe_of(arguments)?;
    session.script.guard().rearm();
    let loss = session.script.host().loss()?;
    let mass = Mass::of(&recipe, &loss, &session.data.batch)?;
    let head = session.paint.bold(&title(&recipe));
    Ok(format!("{head}\n{}", mass.table(session.paint)))
}

type Number = fn(&Point) -> Option<f64>;

/// What is drawn of a curve and listed in the table.
const NUMBERS: [(&str, Number); 3] = [
    ("A+ right", |point| point.of_right),
    ("A- wrong", |point| point.of_wrong),
    ("total |A|", |point| Some(point.total)),
];

/// One recipe's curves, or those of several in the same panels.
fn draw(size: usize, curves: &[(Recipe, Curve)]) -> Figure {
    let series = |name: &str, curve: &Curve, of: Number| {
        let points = curve.points.iter();
        let points = points.filter_map(|point| Some((point.right as f64, of(point)?)));
        Series::new(name, Mark::Line, points)
    };
    let panel =
        |y: &str, all: Vec<Series>| Panel::new(format!("right responses of {size}"), y, all);
    if let [(recipe, curve)] = curves {
        let [right, wrong, total] = NUMBERS;
        let advantage = [right, wrong].map(|(name, of)| series(name, curve, of));
        return Figure {
            title: format!("{}, a group of {size}", title(recipe)),
            columns: 2,
            panels: vec![
                panel("advantage", advantage.into()),
                panel(total.0, vec![series("", curve, total.1)]),
            ],
        };
    }
    let all = NUMBERS.map(|(y, of)| {
        let lines = curves.iter();
        panel(
            y,
            lines
                .map(|(recipe, curve)| series(&label(recipe), curve, of))
                .collect(),
        )
    });
    Figure {
        title: format!("groups of {size}"),
        columns: 3,
        panels: all.into(),
    }
}

/// Some of the values, and where the total is largest.
fn table(points: &[Point]) -> String {
    let most = points
        .iter()
        .fold(0.0f64, |most, point| most.max(point.total));
    if most == 0.0 {
        return "the advantage is 0 everywhere".to_string();
    }
    let is_peak = |point: &&Point| point.total >= most * (1.0 - ROUNDING);
    let peaks: Vec<usize> = points.iter().filter(is_peak).map(|one| one.right).collect();
    let (first, last) = (peaks[0], peaks[peaks.len() - 1]);
    let step = (points.len() - 1).div_ceil(ROWS - 1).max(1);
    let is_shown =
        |right: usize| right.is_multiple_of(step) || [first, points.len() - 1].contains(&right);
    let shown: Vec<&Point> = points
        .iter()
        .filter(|point| is_shown(point.right))
        .collect();
    let columns = NUMBERS.map(|(_, of)| {
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
