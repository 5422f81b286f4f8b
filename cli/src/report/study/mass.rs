//! The distribution of the gradient: shares of the sum of |A| by group accuracy, by correctness, by length and by position, for
//! one design or for several designs side by side.

use std::collections::HashMap;
use std::iter::repeat_n;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Value, json};

use crate::Result;
use crate::number_text::{counted, share, value};
use crate::paint::{Paint, cut, filled};
use advlab::Batch;
use advlab::script::{Computed, Hook, Host, Outcome, Recipe, Statistics, Summary};
use advlab::session::Session;
use advlab::tensor::Level;

use super::diff::{ROUNDING, signs};
use super::{Trial, accuracies, label, percent};
use crate::report::Report;
use crate::report::draw::{Figure, Mark, Panel, Series};

/// The number of parts by length, by position, and by accuracies between 0 and 1.
const PARTS: usize = 4;
/// The names of the parts into which the responses are divided by the accuracy of their group.
const ACCURACIES: &str = "0, all wrong; (0, 1/4]; (1/4, 1/2]; (1/2, 3/4]; (3/4, 1); 1, all right";
/// The name of the division of each response's tokens by position, and the names of its parts.
const POSITION: &str = "position";
const QUARTERS: &str = "first quarter; second; third; last quarter";
/// The largest number of distinct values of a column that each form a separate part.
const VALUES: usize = 8;
/// The largest width of a bar in the table.
const BAR: f64 = 24.0;
/// The panels of the figure: for each, the property whose parts it shows, and the name of its x axis.
const PANELS: [(&str, &str); 4] = [
    ("accuracy", "accuracy of the group"),
    ("length", "tokens of the response"),
    (POSITION, "position in the response"),
    ("trajectory", "turns of the trajectory"),
];
/// The largest width of a design's name in the head of a table.
const NAME: usize = 14;

/// A part of the tokens (or of the responses, if the batch has no tokens), with its shares of the totals.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The recipe's name, if several recipes are shown side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<String>,
    /// The property by which the tokens are divided: `accuracy`, `response`, `length`, `position`, `trajectory` (the number of
    /// turns), or a column.
    pub by: String,
    pub part: String,
    /// The mean of the property (for example of the length or the relative position) over the part's tokens.
    #[serde(skip)]
    place: f64,
    pub tokens: f64,
    /// The part's share of the sum of |A|.
    pub advantage: f64,
    /// The part's share of the sum of |dloss/dlogp|, if the loss could be computed.
    pub gradient: Option<f64>,
}

/// The distribution of the sum of |A| over parts of a batch's tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Mass {
    /// The parts of all divisions, one division after another.
    pub parts: Vec<Part>,
    /// The name of the loss whose gradient gives the shares of |dloss/dlogp|.
    pub loss: Option<String>,
    /// A summary of the outcome; its `effective_responses` is the number of responses over which the sum of |A| is spread.
    pub summary: Summary,
}

impl Mass {
    /// Computes the shares of a recipe's advantage on a batch, and of the gradient of the recipe's own loss, or of `loss` if the
    /// recipe has no loss. If the loss fails, for instance because log-probs are missing, there are no shares of the gradient.
    /// `by` is an additional division of the tokens.
    pub fn of(trial: &Trial, loss: &Recipe, by: Option<&Division>) -> Mass {
        let gradient = match trial.outcome.loss {
            // For a recipe with only a loss, the advantage is derived from the loss's gradient, so both have the same shares.
            Some(_) => Some(trial.outcome.advantage.clone()),
            None => trial.loss(loss).ok().map(|loss| loss.gradient),
        };
        let has_own = trial.recipe.has(Hook::Loss);
        let loss = if has_own { &trial.recipe } else { loss };
        let divisions = divisions(&trial.outcome, by);
        Mass {
            parts: parts(&trial.outcome, gradient.as_ref(), &divisions),
            loss: gradient.is_some().then(|| loss.name().to_string()),
            summary: Summary::of(&trial.outcome),
        }
    }
}

/// Reports the shares of recipes' advantages and gradients by the parts of a batch. One recipe is shown with bars; several
/// recipes are shown side by side, with a figure and a comparison of each pair. For a recipe without a loss, `loss` is used; `by`
/// names a column by which the tokens are also divided.
pub fn report(
    recipes: &[Recipe],
    loss: &Recipe,
    batch: &Batch,
    by: Option<&str>,
    paint: Paint,
) -> Result<Report> {
    let (mut report, mut all, mut outcomes) = (Report::new(paint), Vec::new(), Vec::new());
    let is_single = recipes.len() == 1;
    let by = by.map(|by| by_column(batch, by)).transpose()?;
    for recipe in recipes {
        let trial = Trial::of(recipe, batch)?;
        trial.note.iter().for_each(|note| report.note(note));
        report.title(recipe);
        let mut mass = Mass::of(&trial, loss, by.as_ref());
        if !is_single {
            outcomes.push(trial.outcome);
            let parts = mass.parts.iter_mut();
            parts.for_each(|part| part.recipe = Some(label(recipe)));
        }
        all.push((label(recipe), mass));
    }
    let mut pairs = Vec::new();
    if !is_single {
        report.line("");
    }
    shares(&all, &mut report);
    if !is_single {
        report.line("");
        pairs = in_common(&all, &outcomes, &mut report);
    }
    let first = &all[0].1;
    let parts = || all.iter().flat_map(|(_, mass)| &mass.parts);
    let far = parts().filter_map(|part| Some((part.gradient? - part.advantage).abs()));
    if let Some(far) = far.reduce(f64::max) {
        let text = match &first.loss {
            Some(loss) if is_single => format!("dloss/dlogp is computed from the loss {loss}"),
            _ => format!(
                "shares of |dloss/dlogp| differ from those of |A| by at most {}",
                percent(far)
            ),
        };
        report.line("");
        report.aside("  ", &text);
    }
    let design = |(name, mass): &(String, Mass)| json!({ "recipe": name, "parts": mass.parts, "loss": mass.loss, "summary": mass.summary });
    report.about = match &all[..] {
        [one] => design(one),
        all => json!({ "designs": all.iter().map(design).collect::<Value>(), "pairs": pairs }),
    };
    report.rows = parts().map(|part| json!(part)).collect();
    report.figure = Some(figure(&all));
    report.panels = usize::from(!is_single);
    report.names = Some(["mass", "mass"]);
    Ok(report)
}

/// Adds and returns a comparison of each pair of designs: the correlation of their advantages, if both vary, the share of the
/// tokens whose two advantages have opposite signs, and the share of the tokens with exactly one advantage of 0.
fn in_common(all: &[(String, Mass)], outcomes: &[Outcome], report: &mut Report) -> Vec<Value> {
    let heads = "designs,correlation of A,opposite sign,0 in only one".split(',');
    let mut rows = vec![heads.map(String::from).collect()];
    let mut pairs = Vec::new();
    let layout = outcomes[0].advantage.layout();
    let is_token = |outcome: &Outcome| outcome.advantage.level() == Level::Token;
    let by_token = outcomes.iter().any(is_token);
    // If no design has an advantage per token, a response's value counts once for each of its tokens.
    let counts: Vec<f64> = match (by_token, layout.tokens()) {
        (true, tokens) => vec![1.0; tokens],
        (false, 0) => vec![1.0; layout.responses()],
        _ => (0..layout.responses())
            .map(|one| layout.tokens_of(one).len() as f64)
            .collect(),
    };
    let weighted = |outcome: &Outcome| -> Vec<f64> {
        let of_response = |one: usize| {
            let (values, each) = outcome.advantage.of_tokens(one, layout.tokens_of(one));
            let (weight, each) = (outcome.counts(one), if by_token { each } else { 1 });
            values.flat_map(move |value| repeat_n(value * weight, each))
        };
        (0..layout.responses()).flat_map(of_response).collect()
    };
    let advantages: Vec<Vec<f64>> = outcomes.iter().map(weighted).collect();
    for (index, ((a, _), x)) in all.iter().zip(&advantages).enumerate() {
        for ((b, _), y) in all.iter().zip(&advantages).skip(index + 1) {
            let most = x.iter().chain(y).fold(0.0f64, |most, x| most.max(x.abs()));
            let whole = counts.iter().sum::<f64>().max(1.0);
            let shares = signs(x, y, &counts, ROUNDING * most).map(|count| count / whole);
            let (r, [_, opposite, one_zero]) = (Statistics::correlation(x, y, &counts), shares);
            pairs.push(json!({ "a": a, "b": b, "correlation": r, "opposite_sign": opposite, "one_is_zero": one_zero }));
            let r = r.map_or("-".to_string(), |r| format!("{r:.3}"));
            let [opposite, one_zero] = [opposite, one_zero].map(percent);
            rows.push(vec![format!("{a}, {b}"), r, opposite, one_zero]);
        }
    }
    report.table(&rows);
    pairs
}

/// Adds the shares of |A|, with one column per design; a single design also gets bars and the shares of the gradient.
fn shares(all: &[(String, Mass)], report: &mut Report) {
    let (first, is_single) = (&all[0].1, all.len() == 1);
    let row = |kind: &str, name: &str, number: &str, of: &dyn Fn(&str, &Mass) -> String| {
        let own = all.iter().map(|(name, mass)| of(name, mass));
        let gap = if kind.len() < 10 { "" } else { " " };
        let start = [format!("{kind:<10}{gap}{name}"), number.to_string()];
        start.into_iter().chain(own).collect::<Vec<String>>()
    };
    let has_tokens = first.summary.tokens > 0;
    let unit = if has_tokens { "tokens" } else { "responses" };
    let head = |name: &str, _: &Mass| cut(if is_single { "|A|" } else { name }, NAME);
    let mut rows = vec![row("share of |A|", "", unit, &head)];
    let has_gradient = is_single && first.loss.is_some();
    rows[0].extend(has_gradient.then(|| "|dloss/dlogp|".to_string()));
    let mut before = "";
    for (index, part) in first.parts.iter().enumerate() {
        let by = if part.by == before { "" } else { &*part.by };
        before = &part.by;
        let own = |_: &str, mass: &Mass| {
            let part = mass.parts.get(index);
            part.map_or("-".to_string(), |part| percent(part.advantage))
        };
        let mut cells = row(by, &part.part, &percent(part.tokens), &own);
        if is_single {
            cells.extend(part.gradient.map(percent));
            let bar = "▆".repeat((BAR * part.advantage).round() as usize);
            cells.push(filled(&report.paint.blue(&bar), BAR as usize));
        }
        rows.push(cells);
    }
    let responses = format!("of {}", counted(first.summary.responses, "response"));
    let effective = |_: &str, mass: &Mass| value(mass.summary.effective_responses);
    rows.push(row("effective", &responses, "", &effective));
    let groups =
        |_: &str, Mass { summary, .. }: &Mass| share(summary.groups_without_signal, summary.groups);
    rows.push(row("no signal", "groups", "", &groups));
    if has_tokens {
        let tokens = |_: &str, Mass { summary, .. }: &Mass| {
            share(summary.tokens_without_signal, summary.tokens)
        };
        rows.push(row("", "tokens", "", &tokens));
    }
    report.table(&rows);
}

/// Draws each part's share of |A| over the part's mean property, such as its length; the shares of the tokens are a reference.
fn figure(all: &[(String, Mass)]) -> Figure {
    let panel = |&(by, x): &(&str, &str)| {
        let line = |name: &str, mark, mass: &Mass, of: fn(&Part) -> f64| {
            let own = mass.parts.iter().filter(|part| part.by == by);
            Series::new(name, mark, own.map(|part| (part.place, of(part))))
        };
        let tokens = line("tokens", Mark::Reference, &all[0].1, |part| part.tokens);
        let zero = line("", Mark::Reference, &all[0].1, |_| 0.0);
        let own = all.iter();
        let own = own.map(|(name, mass)| line(name, Mark::Line, mass, |part| part.advantage));
        let grey = [zero, tokens];
        Panel::new(x, "share of |A|", grey.into_iter().chain(own).collect())
    };
    let mut panels: Vec<Panel> = PANELS.iter().map(panel).collect();
    panels.retain(|panel| panel.series[0].points.len() > 1);
    Figure::new("Shares of the sum of |A|", 3, panels)
}

/// Returns all parts that have at least one token, with their shares.
fn parts(outcome: &Outcome, gradient: Option<&Computed>, divisions: &[Division]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (division, sums) in divisions.iter().zip(sums(outcome, gradient, divisions)) {
        let totals = [0, 1, 2].map(|index| sums.iter().map(|own| own[index]).sum::<f64>());
        for (index, own) in sums.iter().enumerate().filter(|(_, own)| own[0] > 0.0) {
            let share = |index: usize| match totals[index] {
                0.0 => 0.0,
                total => own[index] / total,
            };
            parts.push(Part {
                recipe: None,
                by: division.by.clone(),
                part: division.names.get(index).cloned().unwrap_or_default(),
                place: own[3] / own[0],
                tokens: share(0),
                advantage: share(1),
                gradient: gradient.map(|_| share(2)),
            });
        }
    }
    parts
}

/// A division of the responses or of the tokens into parts.
pub struct Division<'a> {
    /// The property by which the responses or tokens are divided.
    by: String,
    names: Vec<String>,
    /// A function of the index of a value at `level`. It returns the part to which the value belongs and the value's property as
    /// a number, or `None` if the value belongs to no part.
    of: Box<dyn Fn(usize) -> Option<(usize, f64)> + 'a>,
    level: Level,
}

impl<'a> Division<'a> {
    fn new(by: &str, names: &str, of: impl Fn(usize) -> Option<(usize, f64)> + 'a) -> Self {
        Division {
            by: by.to_string(),
            names: names.split("; ").map(String::from).collect(),
            of: Box::new(of),
            level: Level::Response,
        }
    }

    /// Returns a division into parts with about the same number of `values`; each part has the values up to a bound. `of` gives
    /// the value of a response or of a token.
    fn of_quarters(
        by: &str,
        unit: &str,
        mut values: Vec<f64>,
        of: impl Fn(usize) -> f64 + 'a,
    ) -> Self {
        values.retain(|value| !value.is_nan());
        values.sort_unstable_by(f64::total_cmp);
        let end = |part: usize| (values.len() * part).div_ceil(PARTS).max(1) - 1;
        let bounds = (1..=PARTS).filter_map(|part| values.get(end(part)).copied());
        let mut bounds: Vec<f64> = bounds.collect();
        bounds.dedup();
        let names = bounds.iter().map(|bound| format!("<= {bound}{unit}"));
        let names = names.collect();
        let part = move |one: usize| {
            let value = of(one);
            Some((bounds.iter().position(|bound| value <= *bound)?, value))
        };
        Division {
            by: by.to_string(),
            names,
            of: Box::new(part),
            level: Level::Response,
        }
    }
}

/// Returns the divisions by accuracy, by correctness, by length and by position, the division by turns if the batch has
/// trajectories, and the division `by`, if there is one.
fn divisions<'a>(outcome: &'a Outcome, by: Option<&'a Division>) -> Vec<Division<'a>> {
    let layout = outcome.advantage.layout();
    let right = outcome.correct.as_ref();
    let (all, accuracy) = (0..layout.responses(), right.map(accuracies));
    let of_group = move |one: usize| {
        let share = accuracy.as_ref()?[layout.group_of(one)];
        let part = if share == 1.0 {
            PARTS + 1
        } else {
            (share * PARTS as f64).ceil() as usize
        };
        Some((part, share))
    };
    let is_right = move |one: usize| Some((usize::from(right?.at(one, 0) == 1.0), 0.0));
    let length = |one: usize| layout.tokens_of(one).len() as f64;
    // If there are no tokens, there are no parts by length.
    let lengths = all.filter(|_| layout.tokens() > 0).map(length).collect();
    let mut divisions = vec![
        Division::new("accuracy", ACCURACIES, of_group),
        Division::new("response", "wrong; right", is_right),
        Division::of_quarters("length", " tokens", lengths, length),
        // The function gives no part, because `sums` itself adds up the tokens of each quarter.
        Division::new(POSITION, QUARTERS, |_| None),
    ];
    if layout.has_trajectories() {
        let turns = move |one: usize| layout.rows_of(layout.trajectory_of(one)).len() as f64;
        let each = 0..layout.size(Level::Trajectory);
        let of_each = each.map(|one| layout.rows_of(one).len() as f64).collect();
        divisions.push(Division::of_quarters(
            "trajectory",
            " turns",
            of_each,
            turns,
        ));
    }
    divisions.extend(by.map(|by| Division {
        by: by.by.clone(),
        names: by.names.clone(),
        of: Box::new(&by.of),
        level: by.level,
    }));
    divisions
}

/// Returns the division by a column of texts or of numbers: a part for each value. If there are more than `VALUES` values,
/// numbers are divided into quarters, and the last texts form one part.
fn by_column(batch: &Batch, by: &str) -> Result<Division<'static>> {
    let texts = batch
        .text(by)
        .map(|texts| texts.iter().map(|text| text.to_string()));
    let (level, values, texts) = match texts {
        Some(texts) => (Level::Response, Vec::new(), texts.collect()),
        None => {
            let mut session = Session::new(&Host::new(), batch);
            let (level, values) = session.numbers(&format!("batch.column({by:?})"))?;
            let texts: Vec<String> = values.iter().map(|number| value(*number)).collect();
            (level.unwrap_or(Level::Response), values, texts)
        }
    };
    let mut names: Vec<&String> = texts.iter().collect();
    names.sort_by(|a, b| {
        let number = |text: &String| text.parse::<f64>().unwrap_or(f64::NAN);
        number(a).total_cmp(&number(b)).then(a.cmp(b))
    });
    names.dedup();
    if names.len() > VALUES && !values.is_empty() {
        let quarters = Division::of_quarters(by, "", values.clone(), move |one| values[one]);
        return Ok(Division { level, ..quarters });
    }
    let places: HashMap<&String, usize> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, at))
        .collect();
    // All texts after the first `VALUES` texts form one part.
    let part = |text: &String| Some((places[text].min(VALUES), 0.0));
    let mut shown: Vec<String> = names
        .iter()
        .take(VALUES)
        .map(|name| cut(name, NAME))
        .collect();
    shown.extend((names.len() > VALUES).then(|| "others".to_string()));
    let of: Vec<Option<(usize, f64)>> = texts.iter().map(part).collect();
    Ok(Division {
        by: by.to_string(),
        names: shown,
        of: Box::new(move |one| of[one]),
        level,
    })
}

/// Returns, for each part of each division, the sums of 1, |A|, |dloss/dlogp| and the property over the part's tokens.
fn sums(
    outcome: &Outcome,
    gradient: Option<&Computed>,
    divisions: &[Division],
) -> Vec<Vec<[f64; 4]>> {
    let layout = outcome.advantage.layout();
    let has_tokens = layout.tokens() > 0;
    let gradient = gradient.filter(|_| has_tokens);
    let mut sums: Vec<Vec<[f64; 4]>> = divisions
        .iter()
        .map(|one| vec![[0.0; 4]; one.names.len()])
        .collect();
    let position = divisions.iter().position(|one| one.by == POSITION);
    for response in 0..layout.responses() {
        let tokens = match has_tokens {
            true => layout.tokens_of(response),
            false => 0..usize::from(outcome.advantage.level() == Level::Response),
        };
        let (count, counts) = (tokens.len(), outcome.counts(response));
        let of = |own: &Range<usize>| {
            let sum = |of: &Computed| of.magnitude(response, own.clone()).0;
            let (size, slope) = (sum(&outcome.advantage), gradient.map_or(0.0, sum));
            [own.len() as f64, counts * size, slope]
        };
        let add = |sums: &mut [f64; 4], own: [f64; 3], place: f64| {
            (0..3).for_each(|index| sums[index] += own[index]);
            sums[3] += own[0] * place;
        };
        let mut whole = [0.0; 3];
        // All tokens of a quarter are in one part of each division, except a division by a token column, which follows below.
        for quarter in 0..PARTS {
            let [start, end] = [quarter, quarter + 1].map(|part| (part * count).div_ceil(PARTS));
            if start == end {
                continue;
            }
            let own = of(&(tokens.start + start..tokens.start + end));
            (0..3).for_each(|index| whole[index] += own[index]);
            let of_position = position.and_then(|at| sums[at].get_mut(quarter));
            if let Some(sums) = of_position.filter(|_| has_tokens) {
                // The mean of start, start + 1, ..., end - 1, relative to the number of tokens.
                let place = (start + end - 1) as f64 / (2 * count) as f64;
                add(sums, own, place);
            }
        }
        for (division, sums) in divisions.iter().zip(&mut sums) {
            if division.level == Level::Token {
                for token in tokens.clone().filter(|_| has_tokens) {
                    if let Some((part, place)) = (division.of)(token) {
                        add(&mut sums[part], of(&(token..token + 1)), place);
                    }
                }
            } else if let Some((part, place)) = (division.of)(response) {
                add(&mut sums[part], whole, place);
            }
        }
    }
    sums
}
