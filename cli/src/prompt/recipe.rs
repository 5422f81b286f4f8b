//! The commands for recipes and expressions: they load, set, run and compare recipes, and show their results on the batch in
//! figures and tables.

use super::arguments::Arguments;
use super::session::{Answered, PromptSession, assign, step};
use crate::number_text::counted;
use crate::paint::{cut, wrapped};
use crate::report::draw::{Figure, Mark, Panel, Series};
use crate::report::{self, Report, show, study};
use crate::{doc, lock, wrong};
use advlab::Diagnostic;
use advlab::plan::{self, Plan};
use advlab::session::Answer;

/// The number of bars of a histogram.
const BARS: usize = 32;
/// The number of runs in each measurement of `:profile`.
const RUNS: usize = 5;

pub(super) fn load(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    if !arguments.text.is_empty() {
        // The recipe is loaded even if it cannot run on this batch, because the user may load another batch next.
        session.use_recipe(recipe.clone());
    }
    let next = "advantage() and loss() call its hooks; p has its parameters; :run summarises";
    let next = session.paint.dim(&wrapped("", next, session.paint.width));
    Ok(format!("{}\n\n{next}", doc::recipe(&recipe, session.paint)))
}

pub(super) fn params(session: &mut PromptSession, _: &Arguments<'_>) -> Answered {
    let recipe = session.recipe()?;
    match recipe.params().iter().len() {
        0 => Ok(format!("{} has no parameters", recipe.name())),
        _ => Ok(doc::parameters(&recipe, session.paint)),
    }
}

pub(super) fn set(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    // Spaces around `=` are removed, because `k = 8` is as clear as `k=8`.
    let parts: Vec<&str> = arguments.text.split('=').map(str::trim).collect();
    if let ["step", number] = parts[..] {
        session.set_step(step(number)?);
        return Ok(format!("batch.step is {number}"));
    }
    let mut recipe = session.recipe()?;
    for setting in parts.join("=").split_whitespace() {
        assign(&mut recipe, setting)?;
    }
    if let Some(watched) = lock(&session.watched).as_mut()
        && watched.last.name() == recipe.name()
    {
        watched.last = recipe.clone();
    }
    let title = study::title(&recipe);
    session.script.use_recipe(Some(recipe));
    Ok(title)
}

pub(super) fn run(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    let whose = ["default", "of the run"][usize::from(session.data.loss.is_some())];
    let loss = (session.script.loss()?, whose);
    Ok(study::outcome::report(&recipe, &session.data.batch, loss, false, session.paint)?.text)
}

/// Compares the two recipes that the words name. If the words name only one recipe, or only settings (`k=8`), compares the recipe
/// in use with that recipe, or with itself under these settings.
pub(super) fn diff(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let words = arguments.text;
    let mut both = Vec::new();
    if words.split_whitespace().all(|word| word.contains('=')) {
        let mut other = session.recipe()?;
        for setting in words.split_whitespace() {
            assign(&mut other, setting)?;
        }
        both.push(other);
    } else {
        both = session.recipes(words)?;
    }
    if both.len() == 1 {
        both.insert(0, session.recipe()?);
    }
    match &both[..] {
        [a, b] => Ok(study::diff::report(a, b, &session.data.batch, session.paint)?.text),
        _ => {
            let help = "write `:diff [A] B [k=8]`";
            Err(wrong("`:diff` compares two recipes", help))
        }
    }
}

/// Shows the formula of a recipe for the columns of the batch, or the differences between the formulas of two recipes.
pub(super) fn plan(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipes = session.recipes(arguments.text)?;
    let plans = recipes
        .iter()
        .map(|recipe| Plan::of(recipe, Some(&session.data.batch), false));
    let plans: Vec<Plan> = plans.collect::<Result<_, _>>()?;
    match &plans[..] {
        [plan] => Ok(plan.text()),
        [a, b] => Ok(a.difference(b)),
        _ => Err(wrong(
            "`:plan` shows one recipe, or compares two",
            "write `:plan [A] [B]`",
        )),
    }
}

/// Shows the statements of a recipe's hooks with their values on the batch, line by line.
pub(super) fn steps(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    let (paint, mut report, mut hook) = (session.paint, Report::new(session.paint), None);
    for step in plan::steps(&recipe, &session.data.batch)? {
        if hook.replace(step.hook) != Some(step.hook) {
            report.line(paint.bold(step.hook.name()));
        }
        report.line(format!("  {}", paint.dim(&step.line)));
        let (level, number) = (step.value.level(), counted(step.value.len(), "value"));
        let start = format!("    {} ({level}, {number}) = ", step.name);
        let room = paint.width.saturating_sub(start.len());
        report.line(format!("{start}{}", show::values(&step.value, room)));
    }
    Ok(report.text)
}

/// Shows or writes a report. If possible, the lines that are shown fit into the height of the window.
fn shown(session: &PromptSession, mut report: Report, arguments: &Arguments<'_>) -> Answered {
    report.show(arguments.out, arguments.width, session.height)
}

pub(super) fn curve(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipes = session.recipes(arguments.text)?;
    let report = study::curve::report(recipes, &session.data.batch, arguments.size, session.paint)?;
    shown(session, report, arguments)
}

pub(super) fn objective(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let (recipes, batch) = (session.recipes(arguments.text)?, &session.data.batch);
    let (size, noise) = (arguments.size, arguments.noise);
    let report = study::objectives::report(&recipes, Some(batch), size, noise, session.paint)?;
    shown(session, report, arguments)
}

pub(super) fn mass(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipes = session.recipes(arguments.text)?;
    let loss = session.script.loss()?;
    let report = study::mass::report(&recipes, &loss, &session.data.batch, None, session.paint)?;
    shown(session, report, arguments)
}

pub(super) fn surface(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let words = arguments.text.split_whitespace();
    let (loss, named): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "loss");
    let recipe = session.recipe_of(&named.join(" "))?;
    let figure = study::surface(&recipe, !loss.is_empty())?;
    shown(session, Report::of_figure(figure, session.paint), arguments)
}

/// Draws a histogram of a tensor, a line plot of an array, or a scatter plot of two expressions separated by a comma.
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
                    (text, "number of values", Mark::Bars, title, bars(&values))
                }
                None => {
                    let points = (0..values.len()).map(|index| (index as f64, values[index]));
                    ("index", text, Mark::Line, title("value"), points.collect())
                }
            }
        }
    };
    if !points.iter().any(|(x, y)| x.is_finite() && y.is_finite()) {
        let needed = match mark {
            Mark::Bars => "two finite values that differ",
            _ => "point with finite coordinates",
        };
        let message = format!("`{text}` has no {needed}, so there is nothing to draw");
        return Err(Diagnostic::error(message).into());
    }
    let panel = Panel::new(x, y, vec![Series::new("", mark, points)]);
    let figure = Figure::new(title, 1, vec![panel]);
    shown(session, Report::of_figure(figure, session.paint), arguments)
}

/// Returns the bars of a histogram, each with its middle and its count. There are no bars if all values are the same.
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

/// Shows the gradient of an expression, or of the loss if there is no expression, with respect to each token's log-prob.
pub(super) fn grad(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let text = arguments.text;
    let (note, gradient) = if text.is_empty() || text == "loss()" {
        let trial = session.trial(&session.recipe()?)?;
        let loss = trial.loss(&session.script.loss()?)?;
        (trial.note, Answer::Tensor(loss.gradient))
    } else {
        (None, session.script.gradient(text)?)
    };
    let what = if text.is_empty() { "loss()" } else { text };
    let mut report = Report::new(session.paint);
    report.aside("", &format!("d {what} / d logp"));
    note.iter().for_each(|note| report.note(note));
    let shown = show::answer(&gradient, session.paint);
    shown.iter().for_each(|shown| report.line(shown));
    Ok(report.text)
}

/// Measures the time of each part of a recipe: the named recipe, or else the recipe in use, or else the typed script.
pub(super) fn profile(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let text = arguments.text;
    let recipe = session.recipe_of(text).map_err(|error| {
        if text.is_empty() || !session.script.compiles(text) {
            return error;
        }
        let message = format!("only recipes are profiled, but `{text}` is a formula");
        let help =
            "type the formula first, then `:profile` alone: typed formulas count as a recipe";
        wrong(message, help)
    })?;
    let (host, batch) = (session.script.host(), &session.data.batch);
    Ok(report::profile::report(host, &recipe, None, batch, RUNS, session.paint)?.text)
}
