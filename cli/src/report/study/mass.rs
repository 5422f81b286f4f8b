//! The distribution of the gradient: shares of the sum of |A| by group accuracy, by length, by position, right against wrong; of
//! one design, or of several side by side.

use serde::Serialize;
use serde_json::{Value, json};

use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, share, value};
use advlab::paint::{Paint, cut, table, wrapped};
use advlab::script::{Hook, Outcome, Recipe, Summary};
use advlab::tensor::Level;

use super::diff::{ROUNDING, correlation, signs};
use super::{accuracies, label, title, with_advantage};
use crate::report::draw::{Figure, Mark, Panel, Series};
use crate::report::{Report, csv};

/// The number of parts of groups by accuracy, of responses by length, and of tokens by position.
const PARTS: usize = 4;
/// The properties by which tokens are divided, with the names of the parts; the parts by length depend on the lengths.
const KINDS: [(&str, &[&str]); 4] = [
    (
        "accuracy",
        &[
            "0, all wrong",
            "(0, 1/4]",
            "(1/4, 1/2]",
            "(1/2, 3/4]",
            "(3/4, 1)",
            "1, all right",
        ],
    ),
    ("response", &["wrong", "right"]),
    ("length", &[]),
    (
        "position",
        &["first quarter", "second", "third", "last quarter"],
    ),
];
/// The widest bar of the table.
const BAR: f64 = 24.0;
/// The panels of the figure: a property, and the axis of its parts' places.
const PANELS: [(&str, &str); 3] = [
    ("accuracy", "accuracy of the group"),
    ("length", "tokens of the response"),
    ("position", "position in the response"),
];
/// The widest name in the head of a table of several designs.
const NAME: usize = 14;

/// A part of the tokens, with its shares of the totals; a part of the responses if no token counts.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The recipe, if several stand side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<String>,
    /// The property that divides the parts: `accuracy`, `response`, `length` or `position`.
    pub by: &'static str,
    pub part: String,
    /// The mean accuracy, length or relative position of its tokens.
    #[serde(skip)]
    place: f64,
    pub tokens: f64,
    /// Its share of the sum of |A|.
    pub advantage: f64,
    /// Its share of the sum of |dloss/dlogp|, if there are a loss and log-probs.
    pub gradient: Option<f64>,
}

/// The distribution of a batch's signal over parts of its tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Mass {
    /// The shares, table by table.
    pub parts: Vec<Part>,
    /// The loss whose gradient it is.
    pub loss: Option<String>,
    /// The outcome at a glance; its `effective_responses` says over how many responses the sum of |A| is spread.
    pub summary: Summary,
    /// A times the weight: per token, or per response if no token counts; empty for a single design.
    #[serde(skip)]
    values: Vec<f64>,
}

impl Mass {
    /// The shares of a recipe's advantage on a batch, and of the gradient of its own loss, or of `loss` if it has none. If the
    /// loss lacks a column, such as log-probs, there are no shares of the gradient.
    pub fn of_outcome(
        recipe: &Recipe,
        loss: &Recipe,
        batch: &Batch,
        outcome: &Outcome,
    ) -> Result<Mass, Diagnostics> {
        let own = recipe.has(Hook::Loss);
        let loss = if own { recipe } else { loss };
        let gradient = match outcome.loss {
            // The equivalent advantage of a pure loss is its gradient.
            Some(_) => Some(outcome.advantage.per_token().collect()),
            None => {
                let (batch, advantage) = (&outcome.weighted(batch), Some(&outcome.advantage));
                let loss = loss.loss(batch, advantage, &mut loss.init()?).ok();
                loss.map(|loss| loss.gradient.per_token().collect::<Vec<f64>>())
            }
        };
        Ok(Mass {
            values: Vec::new(),
            parts: parts(outcome, gradient.as_deref()),
            loss: gradient.is_some().then(|| loss.name().to_string()),
            summary: Summary::of(outcome),
        })
    }
}

/// The shares of recipes on a batch: of one with bars, of several side by side, with a figure and what each two have in common.
/// A recipe without a loss has the one given here.
pub fn report(
    recipes: &[Recipe],
    loss: &Recipe,
    batch: &Batch,
    paint: Paint,
) -> Result<Report, Diagnostics> {
    let (mut lines, mut all) = (Vec::new(), Vec::new());
    for recipe in recipes {
        let (batch, note) = with_advantage(recipe, batch)?;
        let note = note.map(|note| paint.dim(&wrapped("", &format!("note: {note}"), paint.width)));
        lines.extend(note);
        lines.push(paint.bold(&wrapped("", &title(recipe), paint.width)));
        let outcome = recipe.advantage(&batch, &mut recipe.init()?)?;
        let mut mass = Mass::of_outcome(recipe, loss, &batch, &outcome)?;
        let name = Some(label(recipe)).filter(|_| recipes.len() > 1);
        if name.is_some() {
            mass.values = weighted(&outcome);
        }
        mass.parts
            .iter_mut()
            .for_each(|part| part.recipe.clone_from(&name));
        all.push((label(recipe), mass));
    }
    let parts = all.iter().flat_map(|(_, mass)| &mass.parts);
    let rows: Vec<Value> = parts.map(|part| json!(part)).collect();
    let (drawn, pairs) = (figure(&all), pairs(&all));
    let files = vec![
        ("mass.csv", csv(&rows)),
        ("mass.svg", drawn.svg()),
        ("mass.pdf", drawn.pdf()),
    ];
    lines.extend((all.len() > 1).then(String::new));
    lines.extend(table_of(&all, &pairs, paint));
    let design = |(name, mass): &(String, Mass)| json!({ "recipe": name, "parts": mass.parts, "loss": mass.loss, "summary": mass.summary });
    let designs: Vec<Value> = all.iter().map(design).collect();
    Ok(Report {
        figure: (all.len() > 1).then_some(drawn),
        text: lines.join("\n"),
        rows,
        about: match &designs[..] {
            [one] => one.clone(),
            _ => json!({ "designs": designs, "pairs": pairs }),
        },
        files,
    })
}

/// A times the weight: per token, or per response if no token counts.
fn weighted(outcome: &Outcome) -> Vec<f64> {
    let layout = outcome.advantage.layout();
    let value = outcome.advantage.lookup();
    let of_response = |one: usize| {
        let tokens = layout.tokens_of(one).map(move |token| value(one, token));
        let alone = (layout.tokens() == 0).then(|| value(one, 0));
        tokens.chain(alone).map(move |x| x * outcome.counts(one))
    };
    (0..layout.responses()).flat_map(of_response).collect()
}

/// What two designs have in common.
#[derive(Serialize)]
struct Pair<'a> {
    a: &'a str,
    b: &'a str,
    /// The correlation of their advantages, if both vary.
    correlation: Option<f64>,
    /// The share of the tokens whose advantages have opposite signs.
    opposite_sign: f64,
    /// The share of the tokens of which one advantage is 0 and the other is not.
    one_is_zero: f64,
}

fn pairs(all: &[(String, Mass)]) -> Vec<Pair<'_>> {
    let mut pairs = Vec::new();
    for (index, (a, one)) in all.iter().enumerate() {
        for (b, other) in &all[index + 1..] {
            let (x, y) = (&one.values, &other.values);
            let most = x.iter().chain(y).fold(0.0f64, |most, x| most.max(x.abs()));
            let counts = signs(x, y, ROUNDING * most);
            let [_, opposite_sign, one_is_zero] =
                counts.map(|count| count as f64 / x.len().max(1) as f64);
            let correlation = correlation(x, y);
            pairs.push(Pair {
                a,
                b,
                correlation,
                opposite_sign,
                one_is_zero,
            });
        }
    }
    pairs
}

/// The shares of |A|, a column per design, and what each two have in common; of a single one also those of the gradient, with bars.
fn table_of(all: &[(String, Mass)], pairs: &[Pair<'_>], paint: Paint) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let (first, is_single) = (&all[0].1, all.len() == 1);
    let unit = ["responses", "tokens"][usize::from(first.summary.tokens > 0)];
    let has_gradient = is_single && first.loss.is_some();
    let row =
        |[kind, name, number]: [&str; 3], of: &dyn Fn(&(String, Mass)) -> String, gradient| {
            let mut row = vec![format!("{kind:<10}{name}"), number.to_string()];
            row.extend(all.iter().map(of));
            let gradient = Some(gradient).filter(|text: &String| has_gradient && !text.is_empty());
            row.extend(gradient);
            row
        };
    let head = |(name, _): &(String, Mass)| cut(if is_single { "|A|" } else { name }, NAME);
    let none = String::new;
    let gradient = "|dloss/dlogp|".to_string();
    let mut rows = vec![row(["share of |A|", "", unit], &head, gradient)];
    let mut before = "";
    for (index, part) in first.parts.iter().enumerate() {
        let by = if part.by == before { "" } else { part.by };
        before = part.by;
        let own = |(_, mass): &(String, Mass)| {
            let part = mass.parts.get(index);
            part.map_or("-".to_string(), |part| percent(part.advantage))
        };
        let gradient = part.gradient.map_or_else(none, percent);
        rows.push(row([by, &part.part, &percent(part.tokens)], &own, gradient));
    }
    let responses = format!("of {}", counted(first.summary.responses, "response"));
    let effective = |(_, mass): &(String, Mass)| value(mass.summary.effective_responses);
    rows.push(row(["effective", &responses, ""], &effective, none()));
    let groups = |(_, Mass { summary, .. }): &(String, Mass)| {
        share(summary.groups_without_signal, summary.groups)
    };
    rows.push(row(["no signal", "groups", ""], &groups, none()));
    if unit == "tokens" {
        let tokens = |(_, Mass { summary, .. }): &(String, Mass)| {
            share(summary.tokens_without_signal, summary.tokens)
        };
        rows.push(row(["", "tokens", ""], &tokens, none()));
    }
    let mut lines = table(&rows);
    let of_parts = lines[1..].iter_mut().zip(&first.parts);
    for (line, part) in of_parts.filter(|_| is_single) {
        let bar = "▆".repeat((BAR * part.advantage).round() as usize);
        let text = format!("{line}  {}", paint.blue(&bar));
        *line = text.trim_end().to_string();
    }
    lines[0] = paint.dim(&lines[0]);
    let heads = "designs,correlation of A,opposite sign,0 in one only".split(',');
    let mut both = vec![heads.map(String::from).collect()];
    both.extend(pairs.iter().map(|pair| {
        let names = format!("{}, {}", pair.a, pair.b);
        let r = pair.correlation.map(|r| format!("{r:.3}"));
        let [opposite, one_zero] = [pair.opposite_sign, pair.one_is_zero].map(percent);
        vec![names, r.unwrap_or("-".to_string()), opposite, one_zero]
    }));
    if !is_single {
        let mut shown = table(&both);
        shown[0] = paint.dim(&shown[0]);
        lines.extend([String::new()].into_iter().chain(shown));
    }
    let parts = all.iter().flat_map(|(_, mass)| &mass.parts);
    let far = parts.filter_map(|part| Some((part.gradient? - part.advantage).abs()));
    let far = far.reduce(f64::max).map(|far| match &first.loss {
        Some(loss) if is_single => format!("dloss/dlogp is that of {loss}"),
        _ => format!("shares of |dloss/dlogp| differ by {} at most", percent(far)),
    });
    let note = far.map(|text| paint.dim(&wrapped("  ", &text, paint.width)));
    lines.extend(note.into_iter().flat_map(|note| [String::new(), note]));
    lines
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
fn parts(outcome: &Outcome, gradient: Option<&[f64]>) -> Vec<Part> {
    let layout = outcome.advantage.layout();
    let lengths = (0..layout.responses()).map(|one| layout.tokens_of(one).len());
    let bounds = quantiles(&lengths.collect::<Vec<usize>>());
    let sums = sums(outcome, gradient, &bounds);
    let mut parts = Vec::new();
    for ((by, names), sums) in KINDS.into_iter().zip(sums) {
        let totals = [0, 1, 2].map(|index| sums.iter().map(|own| own[index]).sum::<f64>());
        for (index, own) in sums.iter().enumerate().filter(|(_, own)| own[0] > 0.0) {
            let share = |index: usize| match totals[index] {
                0.0 => 0.0,
                total => own[index] / total,
            };
            let name = names.get(index).map(|name| name.to_string());
            parts.push(Part {
                recipe: None,
                by,
                part: name.unwrap_or_else(|| format!("<= {} tokens", bounds[index])),
                place: own[3] / own[0],
                tokens: share(0),
                advantage: share(1),
                gradient: gradient.map(|_| share(2)),
            });
        }
    }
    parts
}

/// The sums of 1, |A|, |dloss/dlogp| and the property over the tokens of each part, by kind.
fn sums(outcome: &Outcome, gradient: Option<&[f64]>, bounds: &[usize]) -> [Vec<[f64; 4]>; 4] {
    let layout = outcome.advantage.layout();
    let has_tokens = layout.tokens() > 0;
    let accuracy = outcome.correct.as_ref().map(accuracies);
    let value = outcome.advantage.lookup();
    let mut sums = KINDS.map(|(_, names)| vec![[0.0; 4]; names.len().max(bounds.len())]);
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
        let (start, count) = (tokens.start, tokens.len());
        let of_length = bounds
            .iter()
            .position(|bound| count <= *bound && has_tokens);
        for token in tokens {
            let size = outcome.counts(response) * value(response, token).abs();
            let slope = gradient.and_then(|all| all.get(token));
            let add = [1.0, size, slope.map_or(0.0, |slope| slope.abs())];
            let along = (token - start) as f64 / count as f64;
            let position = has_tokens.then_some((along * PARTS as f64) as usize);
            let places = [accuracy.unwrap_or_default(), 0.0, count as f64, along];
            let parts = [of_group, right, of_length, position]
                .into_iter()
                .zip(places);
            for (sums, (part, place)) in sums.iter_mut().zip(parts) {
                let sums = part.and_then(|part| sums.get_mut(part));
                for (sum, add) in sums
                    .into_iter()
                    .flatten()
                    .zip(add.into_iter().chain([place]))
                {
                    *sum += add;
                }
            }
        }
    }
    sums
}

/// The upper bounds of the quartiles of the responses' lengths, without duplicates.
fn quantiles(lengths: &[usize]) -> Vec<usize> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let end = |part: usize| (sorted.len() * part).div_ceil(PARTS).max(1) - 1;
    let ends = (1..=PARTS).filter_map(|part| sorted.get(end(part)).copied());
    let mut ends: Vec<usize> = ends.collect();
    ends.dedup();
    ends
}
