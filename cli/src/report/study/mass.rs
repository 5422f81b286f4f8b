//! The distribution of the gradient: shares of the sum of |A| by group accuracy, by length, by position, right against wrong; of
//! one design, or of several side by side.

use serde::Serialize;
use serde_json::{Value, json};

use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, share, value};
use advlab::paint::{Paint, cut, laid_out, table, wrapped};
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

/// A row of the table; if there are several recipes, with the recipe.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<&'a str>,
    #[serde(flatten)]
    part: &'a Part,
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
    /// A times the weight: per token, or per response if no token counts.
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
        let layout = outcome.advantage.layout();
        let value = outcome.advantage.lookup();
        let of_response = |one: usize| {
            let tokens = layout.tokens_of(one).map(move |token| value(one, token));
            let alone = (layout.tokens() == 0).then(|| value(one, 0));
            tokens.chain(alone).map(move |x| x * outcome.counts(one))
        };
        Ok(Mass {
            values: (0..layout.responses()).flat_map(of_response).collect(),
            parts: parts(outcome, gradient.as_deref()),
            loss: gradient.is_some().then(|| loss.name().to_string()),
            summary: Summary::of(outcome),
        })
    }

    /// The shares as a table, with a summary.
    fn table(&self, paint: Paint) -> String {
        let summary = &self.summary;
        let unit = ["responses", "tokens"][usize::from(summary.tokens > 0)];
        let gradient = self.loss.as_ref().map_or("", |_| "  |dloss/dlogp|");
        let mut lines = vec![paint.dim(&format!("  {:<31}{unit:>9}     |A|{gradient}", ""))];
        let percent = |share: f64| format!("{:>5.1} %", 100.0 * share);
        let mut before = "";
        for Part {
            by,
            part,
            tokens,
            advantage,
            gradient,
            ..
        } in &self.parts
        {
            let kind = if *by == before { "" } else { by };
            before = by;
            let gradient = gradient.map(|share| format!("{:>15}", percent(share)));
            let gradient = gradient.unwrap_or_default();
            let bar = paint.blue(&"▆".repeat((BAR * advantage).round() as usize));
            let [tokens, advantage] = [*tokens, *advantage].map(percent);
            let line = format!("  {kind:<10}{part:<21}{tokens:>9} {advantage}{gradient}  {bar}");
            lines.push(line.trim_end().to_string());
        }
        let effective = value(summary.effective_responses);
        let effective = format!("{effective} of {} responses", summary.responses);
        let mut rows = vec![("effective", effective)];
        let none = summary.rows().into_iter();
        rows.extend(none.filter(|(name, _)| *name == "no signal"));
        let loss = self.loss.iter();
        rows.extend(loss.map(|loss| ("loss", format!("dloss/dlogp is that of {loss}"))));
        lines.push(String::new());
        let rows = rows.iter();
        lines
            .extend(rows.map(|(name, text)| laid_out(&format!("  {name:<11}"), text, paint.width)));
        lines.join("\n")
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
        let mass = Mass::of_outcome(recipe, loss, &batch, &outcome)?;
        all.push((label(recipe), mass));
    }
    let row = |recipe: &str, part: &Part| {
        let recipe = Some(recipe).filter(|_| all.len() > 1);
        json!(Row { recipe, part })
    };
    let parts = |(name, mass): &(String, Mass)| -> Vec<Value> {
        mass.parts.iter().map(|part| row(name, part)).collect()
    };
    let rows: Vec<Value> = all.iter().flat_map(parts).collect();
    let drawn = figure(&all);
    let files = vec![("mass.csv", csv(&rows)), ("mass.svg", drawn.svg())];
    let (figure, about) = match &all[..] {
        [(_, mass)] => {
            lines.push(mass.table(paint));
            (None, json!({ "loss": mass.loss, "summary": mass.summary }))
        }
        _ => {
            let pairs = pairs(&all);
            lines.push(String::new());
            lines.extend(side_by_side(&all, &pairs, paint));
            let design = |(name, mass): &(String, Mass)| json!({ "recipe": name, "parts": mass.parts, "loss": mass.loss, "summary": mass.summary });
            let designs: Vec<Value> = all.iter().map(design).collect();
            (Some(drawn), json!({ "designs": designs, "pairs": pairs }))
        }
    };
    Ok(Report {
        figure,
        text: lines.join("\n"),
        rows,
        about,
        files,
    })
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

/// The shares of |A|, a column per design, and what each two have in common.
fn side_by_side(all: &[(String, Mass)], pairs: &[Pair<'_>], paint: Paint) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let first = &all[0].1;
    let unit = ["responses", "tokens"][usize::from(first.summary.tokens > 0)];
    let row = |head: [&str; 3], of: &dyn Fn(&(String, Mass)) -> String| -> Vec<String> {
        let head = [format!("{:<10}{}", head[0], head[1]), head[2].to_string()];
        head.into_iter().chain(all.iter().map(of)).collect()
    };
    let mut rows = vec![row(["share of |A|", "", unit], &|(name, _)| {
        cut(name, NAME)
    })];
    let mut before = "";
    for (index, part) in first.parts.iter().enumerate() {
        let by = if part.by == before { "" } else { part.by };
        before = part.by;
        let own = |(_, mass): &(String, Mass)| match mass.parts.get(index) {
            Some(part) => percent(part.advantage),
            None => "-".to_string(),
        };
        rows.push(row([by, &part.part, &percent(part.tokens)], &own));
    }
    let responses = format!("of {}", counted(first.summary.responses, "response"));
    let effective = |(_, mass): &(String, Mass)| value(mass.summary.effective_responses);
    rows.push(row(["effective", &responses, ""], &effective));
    rows.push(row(["no signal", "groups", ""], &|(
        _,
        Mass { summary, .. },
    )| {
        share(summary.groups_without_signal, summary.groups)
    }));
    if unit == "tokens" {
        rows.push(row(["", "tokens", ""], &|(_, Mass { summary, .. })| {
            share(summary.tokens_without_signal, summary.tokens)
        }));
    }
    let heads = [
        "designs",
        "correlation of A",
        "opposite sign",
        "0 in one only",
    ];
    let mut both = vec![heads.map(String::from).to_vec()];
    both.extend(pairs.iter().map(|pair| {
        let correlation = pair
            .correlation
            .map_or("-".to_string(), |r| format!("{r:.3}"));
        let [opposite, one_zero] = [pair.opposite_sign, pair.one_is_zero].map(percent);
        vec![
            format!("{}, {}", pair.a, pair.b),
            correlation,
            opposite,
            one_zero,
        ]
    }));
    let mut lines = Vec::new();
    for rows in [rows, both] {
        let mut shown = table(&rows);
        shown[0] = paint.dim(&shown[0]);
        lines.extend(shown);
        lines.push(String::new());
    }
    let parts = all.iter().flat_map(|(_, mass)| &mass.parts);
    let far = parts.filter_map(|part| Some((part.gradient? - part.advantage).abs()));
    if let Some(far) = far.reduce(f64::max) {
        let text = format!(
            "the shares of |dloss/dlogp| differ from these by {} at most",
            percent(far)
        );
        lines.push(paint.dim(&wrapped("  ", &text, paint.width)));
    }
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
        let zero = tokens
            .points
            .iter()
            .map(|&(x, _)| (x, 0.0))
            .collect::<Vec<_>>();
        let own = all.iter();
        let own = own.map(|(name, mass)| line(name, Mark::Line, mass, |part| part.advantage));
        let grey = [Series::new("", Mark::Reference, zero), tokens];
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
