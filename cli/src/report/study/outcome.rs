//! Reports the outcome of a recipe on a batch: reward, signal, advantage, loss and metrics.

use serde_json::json;

use super::Trial;
use crate::Result;
use crate::number_text::{time, value};
use crate::paint::{Paint, cut};
use crate::report::{Report, show};
use advlab::Batch;
use advlab::script::{Computed, Hook, Outcome, Recipe, State, Summary};

/// The column at which the texts of the rows begin.
const TEXTS: usize = 14;

/// A row of a table: a title and a text.
pub type Row = (&'static str, String);

/// Returns the rows of a table about an outcome, with the rows about its loss.
pub fn rows(outcome: &Outcome, summary: &Summary, loss: Vec<Row>) -> Vec<Row> {
    let mut rows = summary.rows();
    rows.extend(loss);
    let metrics = outcome.reports.metrics.iter();
    rows.extend(metrics.map(|(name, number)| ("metric", format!("{name} {}", value(*number)))));
    rows
}

/// Returns a row that explains a trainer's loss of 0, if the loss begins at 0 because its terms cancel while logp = old_logp.
pub fn zero_loss(summary: &Summary) -> Option<Row> {
    let start = summary.loss_at_start?;
    let (tokens, responses) = (start.over_tokens, start.over_responses);
    let loss = match (start.is_zero(tokens), start.is_zero(responses)) {
        (true, true) => "0".to_string(),
        (true, false) => format!("mean 0 over tokens ({} over responses)", value(responses)),
        (false, true) => format!("mean 0 over responses ({} over tokens)", value(tokens)),
        (false, false) => return None,
    };
    let gradient = gradient_of_zero(start.gradient_mass);
    Some(("loss", format!("{loss} at ratio 1, but {gradient}")))
}

fn gradient_of_zero(mass: f64) -> String {
    format!(
        "its gradient is not 0: the sum of |dloss/dlogp| is {}",
        value(mass)
    )
}

/// Returns the sum of |x| over all values.
pub fn magnitude(values: &Computed) -> f64 {
    values.buffer().iter().map(f64::abs).sum()
}

/// Formats the value of a loss. If the loss is 0 up to rounding but its gradient is not, adds the sum of |dloss/dlogp|.
pub fn loss_text(loss: f64, mass: f64) -> String {
    let shown = value(loss);
    if mass > 0.0 && loss.abs() <= 1e-6 * mass {
        format!("{shown}, {}", gradient_of_zero(mass))
    } else {
        shown
    }
}

impl Report {
    /// Adds rows about an outcome.
    pub fn outcome_rows(&mut self, rows: &[Row]) {
        for (name, text) in rows {
            self.row(&format!("  {name}"), TEXTS, text);
        }
    }
}

/// Reports a recipe's first step on a batch. For a recipe without a loss, the given loss is used; `whose` is the text that says
/// whether this is the default loss or the run's loss. `has_rows` requests a row per response.
pub fn report(
    recipe: &Recipe,
    batch: &Batch,
    (loss, whose): (Recipe, &str),
    has_rows: bool,
    paint: Paint,
) -> Result<Report> {
    let trial = Trial::of(recipe, batch)?;
    let (outcome, of_loss) = (&trial.outcome, trial.loss(&loss));
    let spread = |computed: &Computed| show::spread(&computed.buffer().iter().collect::<Vec<_>>());
    let mut lines = Vec::new();
    if let Some(reward) = &outcome.reward {
        let text = format!("{}   per {}", spread(reward), reward.level());
        lines.push(("reward", text));
    }
    let other = match recipe.has(Hook::Loss) {
        true => String::new(),
        false => format!("   ({whose}: {})", loss.name()),
    };
    let shown = match &of_loss {
        Ok(own) => vec![
            (
                "loss",
                format!("{}{other}", loss_text(own.value, magnitude(&own.gradient))),
            ),
            ("dloss/dlogp", spread(&own.gradient)),
        ],
        Err(error) => vec![("loss", format!("none: {}", error[0].message))],
    };
    let summary = Summary::of(outcome);
    lines.extend(rows(outcome, &summary, shown));
    if recipe.has(Hook::Init) && trial.state != State::default() {
        let room = paint.width.saturating_sub(TEXTS + 1);
        lines.push(("state", cut(&trial.state.to_string(), room)));
    }
    lines.push(("time", time(outcome.reports.time)));
    let mut report = Report::new(paint);
    outcome
        .reports
        .prints
        .iter()
        .for_each(|line| report.line(line));
    let notes: Vec<&String> = trial.note.iter().chain(&outcome.reports.notes).collect();
    notes.iter().for_each(|note| report.note(note));
    report.title(recipe);
    report.outcome_rows(&lines);
    let (layout, advantage) = (outcome.advantage.layout(), outcome.advantage.by_response());
    let row = |(response, advantage): (usize, &f64)| {
        json!({
            "response": response,
            "group": layout.group_id(layout.group_of(response)).name(),
            "length": layout.tokens_of(response).len(),
            "correct": outcome.correct.as_ref().map(|correct| correct.at(response, 0)),
            "weight": outcome.counts(response),
            "advantage": advantage,
        })
    };
    let all = advantage.iter().enumerate().filter(|_| has_rows);
    report.rows = all.map(row).collect();
    report.about = json!({
        "summary": summary,
        "loss": of_loss.ok().map(|loss| loss.value),
        "metrics": outcome.reports.metrics.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "notes": notes,
    });
    Ok(report)
}
