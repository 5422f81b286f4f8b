//! What a recipe gives on a batch: reward, signal, advantage, loss and metrics.

use serde_json::json;

use super::{title, with_advantage};
use crate::report::{Report, show};
use advlab::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{time, value};
use advlab::paint::{Paint, cut, laid_out, wrapped};
use advlab::script::{Computed, Hook, Loss, Outcome, Recipe, State, Summary};

/// A recipe's first step on a batch. A recipe without a loss gets the loss given here, which is called default or of the run.
/// `has_rows` asks for a row per response.
pub fn report(
    recipe: &Recipe,
    batch: &Batch,
    (loss, whose): (Recipe, &str),
    has_rows: bool,
    paint: Paint,
) -> Result<Report, Diagnostics> {
    let mut state = recipe.init()?;
    let (batch, note) = with_advantage(recipe, batch)?;
    let outcome = recipe.advantage(&batch, &mut state)?;
    let spread = |computed: &Computed| show::spread(&computed.buffer().iter().collect::<Vec<_>>());
    let (mut lines, summary) = (Vec::new(), Summary::of(&outcome));
    if let Some(reward) = &outcome.reward {
        let text = format!("{}   per {}", spread(reward), reward.level());
        lines.push(("reward", text));
    }
    lines.extend(summary.rows());
    let of_loss = loss_of(recipe, &outcome, &batch, &loss);
    match &of_loss {
        Ok(own) => {
            let other = match recipe.has(Hook::Loss) {
                true => String::new(),
                false => format!("   ({whose}: {})", loss.name()),
            };
            lines.push(("loss", format!("{}{other}", value(own.value))));
            lines.push(("dloss/dlogp", spread(&own.gradient)));
        }
        Err(error) => lines.push(("loss", format!("none: {}", error[0].message))),
    }
    let metrics = outcome.metrics.iter();
    lines.extend(metrics.map(|(name, number)| ("metric", format!("{name} {}", value(*number)))));
    if recipe.has(Hook::Init) && state != State::default() {
        let room = paint.width.saturating_sub(15);
        lines.push(("state", cut(&state.to_string(), room)));
    }
    lines.push(("time", time(outcome.time)));
    let mut text = outcome.prints.clone();
    let notes: Vec<String> = note.into_iter().chain(outcome.notes.clone()).collect();
    let dimmed = |note: &String| paint.dim(&wrapped("", &format!("note: {note}"), paint.width));
    text.extend(notes.iter().map(dimmed));
    text.push(paint.bold(&wrapped("", &title(recipe), paint.width)));
    let line =
        |(name, text): &(&str, String)| laid_out(&format!("  {name:<11} "), text, paint.width);
    text.extend(lines.iter().map(line));
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
    Ok(Report {
        text: text.join("\n"),
        rows: match has_rows {
            true => advantage.iter().enumerate().map(row).collect(),
            false => Vec::new(),
        },
        about: json!({
            "summary": summary,
            "loss": of_loss.ok().map(|loss| loss.value),
            "metrics": outcome.metrics.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "notes": notes,
        }),
        ..Report::default()
    })
}

/// The loss for an outcome: the recipe's own, or the other one if it has none.
pub fn loss_of(
    recipe: &Recipe,
    outcome: &Outcome,
    batch: &Batch,
    other: &Recipe,
) -> Result<Loss, Diagnostics> {
    let loss = if recipe.has(Hook::Loss) {
        recipe
    } else {
        other
    };
    // A recipe with only a loss has the equivalent advantage: the loss itself reads the batch's column.
    let advantage = recipe.has(Hook::Advantage).then_some(&outcome.advantage);
    loss.loss(&outcome.weighted(batch), advantage, &mut loss.init()?)
}
