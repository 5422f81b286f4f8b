//! The distribution of the gradient: shares of the sum of |A| by group accuracy, by length, by position, and right against wrong,
//! for one design or for several designs side by side.

use std::iter::repeat_n;

use serde::Serialize;
use serde_json::{Value, json};

use crate::Result;
use crate::number_text::{counted, share, value};
use crate::paint::{Paint, cut, filled};
use advlab::Batch;
use advlab::script::{Computed, Hook, Outcome, Recipe, Statistics, Summary};
use advlab::tensor::Level;

use super::diff::{ROUNDING, signs};
use super::{Trial, accuracies, label, percent};
use crate::report::Report;
use crate::report::draw::{Figure, Mark, Panel, Series};

/// The number of parts of groups by accuracy, of responses by length, and of tokens by position.
const PARTS: usize = 4;
/// The properties by which tokens are divided, with the names of the parts; the parts by length depend on the lengths.
const KINDS: [(&str, &str); 4] = [
    (
        "accuracy",
        "0, all wrong; (0, 1/4]; (1/4, 1/2]; (1/2, 3/4]; (3/4, 1); 1, all right",
    ),
    ("response", "wrong; right"),
    ("length", ""),
    ("position", "first quarter; second; third; last quarter"),
];
/// The largest width of a bar in the table.
const BAR: f64 = 24.0;
/// The panels of the figure: a property, and the name of the x axis, at which its parts are placed.
const PANELS: [(&str, &str); 3] = [
    ("accuracy", "accuracy of the group"),
    ("length", "tokens of the response"),
    ("position", "position in the response"),
];
/// The largest width of a design's name in the head of a table.
const NAME: usize = 14;

/// A part of the tokens, with its shares of the totals; a part of the responses if no token counts.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The recipe's name, if several recipes are shown side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<String>,
    /// The property that divides the parts: `accuracy`, `response`, `length` or `position`.
    pub by: &'static str,
    pub part: String,
    /// The mean accuracy, length or relative position of the part's tokens.
    #[serde(skip)]
    place: f64,
    pub tokens: f64,
    /// The part's share of the sum of |A|.
    pub advantage: f64,
    /// The part's share of the sum of |dloss/dlogp|, if the loss could be computed.
    pub gradient: Option<f64>,
}

/// The distribution of a batch's signal over parts of its tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Mass {
    /// The shares, table by table.
    pub parts: Vec<Part>,
    /// The loss that the shares of the gradient belong to.
    pub loss: Option<String>,
    /// A summary of the outcome; its `effective_responses` is the number of responses over which the sum of |A| is spread.
    pub summary: Summary,
}

impl Mass {
    /// The shares of a recipe's advantage on a batch, and of the gradient of the recipe's own loss, or of `loss` if it has
    /// none. If the loss fails, for instance because log-probs are missing, there are no shares of the gradient.
    pub fn of(trial: &Trial, loss: &Recipe) -> Mass {
        let gradient = match trial.outcome.loss {
            // For a recipe with only a loss, the equivalent advantage stands for the loss's gradient.
            Some(_) => Some(trial.outcome.advantage.clone()),
            None => trial.loss(loss).ok().map(|loss| loss.gradient),
        };
        let has_own = trial.recipe.has(Hook::Loss);
        let loss = if has_own { &trial.recipe } else { loss };
        Mass {
            parts: parts(&trial.outcome, gradient.as_ref()),
            loss: gradient.is_some().then(|| loss.name().to_string()),
            summary: Summary::of(&trial.outcome),
        }
    }
}

/// The shares of recipes on a batch. One recipe is shown with bars; several recipes are shown side by side, with a figure and
/// with a comparison of each two of them. `loss` is the loss of a recipe that has no loss itself.
pub fn report(recipes: &[Recipe], loss: &Recipe, batch: &Batch, paint: Paint) -> Result<Report> {
    let (mut report, mut all, mut outcomes) = (Report::new(paint), Vec::new(), Vec::new());
    let is_single = recipes.len() == 1;
    for recipe in recipes {
        let trial = Trial::of(recipe, batch)?;
        trial.note.iter().for_each(|note| report.note(note));
        report.title(recipe);
        let mut mass = Mass::of(&trial, loss);
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
            Some(loss) if is_single => format!("dloss/dlogp is that of {loss}"),
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

/// Adds and returns a comparison of each two designs: the correlation of their advantages, if both vary, and the shares of the
/// tokens whose advantages have opposite signs, or are 0 for only one of the two designs.
fn in_common(all: &[(String, Mass)], outcomes: &[Outcome], report: &mut Report) -> Vec<Value> {
    let heads = "designs,correlation of A,opposite sign,0 in one only".split(',');
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
        let start = [format!("{kind:<10}{name}"), number.to_string()];
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
        let by = if part.by == before { "" } else { part.by };
        before = part.by;
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

/// The shares of |A| over the places of the parts, with the shares of the tokens.
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

/// The shares of all parts with at least one token.
fn parts(outcome: &Outcome, gradient: Option<&Computed>) -> Vec<Part> {
    let layout = outcome.advantage.layout();
    let lengths = (0..layout.responses()).map(|one| layout.tokens_of(one).len());
    let mut lengths: Vec<usize> = lengths.collect();
    lengths.sort_unstable();
    // The upper bounds of the quartiles.
    let end = |part: usize| (lengths.len() * part).div_ceil(PARTS).max(1) - 1;
    let bounds = (1..=PARTS).filter_map(|part| lengths.get(end(part)).copied());
    let mut bounds: Vec<usize> = bounds.collect();
    bounds.dedup();
    let sums = sums(outcome, gradient, &bounds);
    let mut parts = Vec::new();
    for ((by, names), sums) in KINDS.into_iter().zip(sums) {
        let totals = [0, 1, 2].map(|index| sums.iter().map(|own| own[index]).sum::<f64>());
        for (index, own) in sums.iter().enumerate().filter(|(_, own)| own[0] > 0.0) {
            let share = |index: usize| match totals[index] {
                0.0 => 0.0,
                total => own[index] / total,
            };
            let part = match by {
                "length" => format!("<= {} tokens", bounds[index]),
                _ => names.split("; ").nth(index).unwrap_or_default().to_string(),
            };
            parts.push(Part {
                recipe: None,
                by,
                part,
                place: own[3] / own[0],
                tokens: share(0),
                advantage: share(1),
                gradient: gradient.map(|_| share(2)),
            });
        }
    }
    parts
}

/// For each property, and each of its parts, the sums of 1, |A|, |dloss/dlogp| and the property over the part's tokens.
fn sums(outcome: &Outcome, gradient: Option<&Computed>, bounds: &[usize]) -> [Vec<[f64; 4]>; 4] {
    let layout = outcome.advantage.layout();
    let has_tokens = layout.tokens() > 0;
    let accuracy = outcome.correct.as_ref().map(accuracies);
    let mut sums = KINDS.map(|_| vec![[0.0; 4]; PARTS + 2]);
    for response in 0..layout.responses() {
        let tokens = match has_tokens {
            true => layout.tokens_of(response),
            false => 0..usize::from(outcome.advantage.level() == Level::Response),
        };
        let accuracy = accuracy.as_ref().map(|all| all[layout.group_of(response)]);
        let of_group = accuracy.map(|share| match share {
            1.0 => PARTS + 1,
            share => (share * PARTS as f64).ceil() as usize,
        });
        let right = outcome.correct.as_ref();
        let right = right.map(|right| usize::from(right.at(response, 0) == 1.0));
        let (count, counts) = (tokens.len(), outcome.counts(response));
        let fits = |bound: &usize| count <= *bound && has_tokens;
        let of_length = bounds.iter().position(fits);
        let mut whole = [0.0; 3];
        // All tokens of a quarter belong to the same part, whatever the property.
        for quarter in 0..PARTS {
            let [start, end] = [quarter, quarter + 1].map(|part| (part * count).div_ceil(PARTS));
            if start == end {
                continue;
            }
            let own = tokens.start + start..tokens.start + end;
            let sum = |of: &Computed| of.magnitude(response, own.clone()).0;
            let (size, slope) = (sum(&outcome.advantage), gradient.map_or(0.0, sum));
            let add = [(end - start) as f64, counts * size, slope];
            (0..3).for_each(|index| whole[index] += add[index]);
            if has_tokens {
                let sums = &mut sums[3][quarter];
                (0..3).for_each(|index| sums[index] += add[index]);
                // Adds the mean of start, start + 1, ..., end - 1 once for each of these tokens.
                sums[3] += add[0] * (start + end - 1) as f64 / (2 * count) as f64;
            }
        }
        let places = [accuracy.unwrap_or_default(), 0.0, count as f64];
        for (kind, part) in [of_group, right, of_length].into_iter().enumerate() {
            let Some(sums) = part.and_then(|part| sums[kind].get_mut(part)) else {
                continue;
            };
            (0..3).for_each(|index| sums[index] += whole[index]);
            sums[3] += whole[0] * places[kind];
        }
    }
    sums
}
