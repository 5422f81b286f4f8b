//! Studies of a recipe or an expression on the batch, as figures and tables: `:curve`, `:objective`, `:mass`, `:surface`,
//! `:plot`, `:grad` and `:profile`.

use super::arguments::Arguments;
use super::session::{Answered, PromptSession};
use super::show::{self, title};
use crate::report::draw::{Figure, Mark, Panel, Series};
use crate::report::profile::Measured;
use crate::report::study::{
    Curve, Mass, Objective, Point, label, largest_group, objectives, surface as drawn,
    with_advantage,
};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{column, counted, value};
use advlab::paint::{cut, table, wrapped};
use advlab::script::{Builtin, Recipe};
use advlab::session::Answer;

/// Rows of the table below a curve.
const ROWS: usize = 9;
/// Totals that differ by less, relative to the largest, differ by rounding.
const ROUNDING: f64 = 1e-9;
/// Bars of a histogram.
const BARS: usize = 32;
/// How often `:profile` runs a recipe.
const RUNS: usize = 5;

/// The figure, or a line with the file that it was written to, and the text below it; if possible no higher than the window.
fn shown(
    session: &PromptSession,
    figure: &Figure,
    arguments: &Arguments<'_>,
    below: &str,
) -> Answered {
    let text = match arguments.out {
        None => {
            let room = session.height.saturating_sub(below.lines().count());
            figure.text(session.paint, room)
        }
        Some(file) => {
            figure.write(file)?;
            format!("written to {}", file.display())
        }
    };
    Ok(format!("{text}\n{below}").trim_end().to_string())
}

pub(super) fn curve(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let batch = &session.data.batch;
    let size = arguments.size.unwrap_or_else(|| largest_group(batch));
    let curve = |recipe: Recipe| Ok((Curve::of(&recipe, batch, size)?, recipe));
    let curves = session.recipes(arguments.text)?.into_iter().map(curve);
    let curves: Vec<(Curve, Recipe)> = curves.collect::<Result<_, Diagnostics>>()?;
    let any = |test: fn(&Curve) -> bool| curves.iter().any(|(curve, _)| test(curve));
    let mut note = "Responses are one token long, with a log-prob of -0.5 and an entropy of 0.5: what a recipe makes of differences in these does not show.".to_string();
    if any(|curve| curve.depends_on_order) {
        note.push_str(" The order of a group's responses, or chance, matters: these are means over orders that are drawn.");
    }
    if any(|curve| curve.depends_on_batch) {
        note.push_str(" Groups influence each other: this is one batch, with the shares of groups of each accuracy that yours has.");
    }
    let note = session.paint.dim(&wrapped("", &note, session.paint.width));
    let below = match &curves[..] {
        [(curve, _)] => format!("{}\n{note}", points(&curve.points)),
        _ => note,
    };
    shown(session, &curves_figure(size, &curves), arguments, &below)
}

pub(super) fn objective(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let batch = &session.data.batch;
    let size = arguments.size.unwrap_or_else(|| largest_group(batch));
    let recipes = session.recipes(arguments.text)?;
    let of = |recipe| Objective::of(recipe, Some(batch), size);
    let all = recipes.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let table = objectives::table(&all, session.paint);
    shown(session, &objectives::figure(&all), arguments, &table)
}

pub(super) fn mass(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    let loss = session.script.host().loss()?;
    let mass = Mass::of(&recipe, &loss, &session.data.batch)?;
    let head = session.paint.bold(&title(&recipe));
    Ok(format!("{head}\n{}", mass.table(session.paint)))
}

pub(super) fn surface(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let words = arguments.text.split_whitespace();
    let (loss, named): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "loss");
    let recipe = session.recipe_of(&named.join(" "))?;
    shown(session, &drawn(&recipe, !loss.is_empty())?, arguments, "")
}

/// A histogram of a tensor, a line through an array, or a scatter of two expressions separated by a comma.
pub(super) fn plot(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let (text, script) = (arguments.text, &mut session.script);
    let pairs = text.match_indices(',');
    let mut pairs = pairs.map(|(at, _)| (text[..at].trim(), text[at + 1..].trim()));
    let pair = pairs.find(|(x, y)| script.compiles(x) && script.compiles(y));
    let (x, y, mark, title, points) = match pair.filter(|_| !script.compiles(text)) {
        Some((x, y)) => {
            let (level, points) = script.pairs(x, y)?;
            let level = level.map_or(String::new(), |level| format!(", {level} by {level}"));
            let title = format!("{}{level}", counted(points.len(), "point"));
            (x, y, Mark::Points, title, points)
        }
        None => {
            let (level, values) = script.numbers(text)?;
            let name = cut(text, session.paint.width.saturating_sub(32));
            let title = |noun: &str| format!("{name}: {}", counted(values.len(), noun));
            match level {
                Some(level) => {
                    let title = title(&format!("{level} value"));
                    (text, "how many", Mark::Bars, title, bars(&values))
                }
                None => {
                    let points = (0..values.len()).map(|index| (index as f64, values[index]));
                    ("index", text, Mark::Line, title("value"), points.collect())
                }
            }
        }
    };
    if !points.iter().any(|(x, y)| x.is_finite() && y.is_finite()) {
        let message =
            format!("`{text}` has no two finite values that differ: there is nothing to draw");
        return Err(Diagnostic::error(message).into());
    }
    let panel = Panel::new(x, y, vec![Series::new("", mark, points)]);
    shown(session, &Figure::new(title, 1, vec![panel]), arguments, "")
}

/// The bars of a histogram; none if all values are the same.
fn bars(values: &[f64]) -> Vec<(f64, f64)> {
    let (least, most, counts) = show::counts(values, BARS);
    let middle = |bar: usize| {
        let share = (bar as f64 + 0.5) / BARS as f64;
        (1.0 - share) * least + share * most
    };
    let bars = counts.iter().enumerate();
    let bars = bars.map(|(bar, &count)| (middle(bar), count as f64));
    bars.filter(|_| least < most).collect()
}

/// The gradient of an expression by each token's log-prob; that of the loss without one.
pub(super) fn grad(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let text = arguments.text;
    let (note, gradient) = if text.is_empty() || text == "loss()" {
        let recipe = session.recipe()?;
        let (outcome, _) = session.try_recipe(&recipe)?;
        let (batch, note) = with_advantage(&recipe, &session.data.batch)?;
        let loss = session.loss(&recipe, &outcome, &batch)?;
        (note, Answer::Tensor(loss.gradient))
    } else {
        (None, session.script.gradient(text)?)
    };
    let what = if text.is_empty() { "loss()" } else { text };
    let mut lines = vec![session.paint.dim(&format!("d {what} / d logp"))];
    lines.extend(note.map(|note| session.note(&note)));
    lines.extend(show::answer(&gradient, session.paint));
    Ok(lines.join("\n"))
}

/// Where the time of an expression goes, or that of the recipe that is named or in use.
pub(super) fn profile(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let text = arguments.text;
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_recipe = Builtin::find(first).is_some() || first.ends_with(".rhai");
    let batch = session.data.batch.clone();
    let measured = if text.is_empty() || is_recipe && !session.script.has_variable(first) {
        let recipe = session.recipe_of(text)?;
        Measured::new(session.script.host(), &recipe, None, &batch, RUNS)?
    } else {
        Measured::input(&mut session.script, &batch, text)?
    };
    Ok(measured.table(session.paint))
}

type Number = fn(&Point) -> Option<f64>;

/// The numbers that a curve draws and lists in its table.
const NUMBERS: [(&str, Number); 3] = [
    ("A+ right", |point| point.of_right),
    ("A- wrong", |point| point.of_wrong),
    ("total |A|", |point| Some(point.total)),
];

/// One recipe's curves, or several recipes' curves in the same panels.
fn curves_figure(size: usize, curves: &[(Curve, Recipe)]) -> Figure {
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

/// Some points of a curve, and the place of the largest total.
fn points(points: &[Point]) -> String {
    let larger = |peak: Point, point: &Point| match point.total > peak.total * (1.0 + ROUNDING) {
        true => *point,
        false => peak,
    };
    let peak = points.iter().fold(points[0], larger);
    if peak.total == 0.0 {
        return "the advantage is 0 everywhere".to_string();
    }
    let step = (points.len() - 1).div_ceil(ROWS - 1).max(1);
    let is_shown = |right: usize| {
        right.is_multiple_of(step) || [peak.right, points.len() - 1].contains(&right)
    };
    let shown: Vec<&Point> = points
        .iter()
        .filter(|point| is_shown(point.right))
        .collect();
    let columns = NUMBERS.map(|(_, number)| {
        let values = shown.iter().map(|one| number(one).unwrap_or(f64::NAN));
        column(&values.collect::<Vec<f64>>())
    });
    let titles = ["right", "A+", "A-", "total |A|"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    for (index, point) in shown.iter().enumerate() {
        let cells = columns.iter().map(|own| own[index].replace("NaN", "-"));
        let right = point.right.to_string();
        rows.push([right].into_iter().chain(cells).collect());
    }
    let (total, right) = (value(peak.total), peak.right);
    let most = format!("the most |A| is {total} in total, where {right} are right");
    format!("{}\n{most}", table(&rows).join("\n"))
}
