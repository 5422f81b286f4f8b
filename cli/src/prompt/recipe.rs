//! The commands that name, set, run and compare recipes.

use super::arguments::Arguments;
use super::diff;
use super::session::{Answered, PromptSession, assign, step};
use super::show::{self, title};
use super::watch::lock;
use crate::doc;
use crate::report::study::with_advantage;
use crate::wrong;
use advlab::figures::{time, value};
use advlab::paint::{cut, laid_out, wrapped};
use advlab::script::{Computed, Hook, State, Summary};

pub(super) fn load(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    if !arguments.text.is_empty() {
        // The recipe is loaded even if it cannot run on this batch: the user may want to change the batch.
        session.use_recipe(recipe.clone());
    }
    let next = "advantage() and loss() are its hooks here, p its parameters; :run sums up";
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
    // `k = 8` is as clear as `k=8`.
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
    let title = title(&recipe);
    session.script.use_recipe(Some(recipe));
    Ok(title)
}

pub(super) fn run(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    let paint = session.paint;
    let (outcome, state) = session.try_recipe(&recipe)?;
    let (batch, note) = with_advantage(&recipe, &session.data.batch)?;
    let spread = |computed: &Computed| show::spread(&computed.buffer().iter().collect::<Vec<_>>());
    let mut rows = Vec::new();
    if let Some(reward) = &outcome.reward {
        let text = format!("{}   per {}", spread(reward), reward.level());
        rows.push(("reward", text));
    }
    rows.extend(Summary::of(&outcome).rows());
    match session.loss(&recipe, &outcome, &batch) {
        Ok(loss) => {
            let whose = ["default", "of the run"][usize::from(session.data.loss.is_some())];
            let other = match recipe.has(Hook::Loss) {
                true => String::new(),
                false => format!("   ({whose}: {})", session.script.host().loss()?.name()),
            };
            rows.push(("loss", format!("{}{other}", value(loss.value))));
            rows.push(("dloss/dlogp", spread(&loss.gradient)));
        }
        Err(error) => rows.push(("loss", format!("none: {}", error[0].message))),
    }
    let metrics = outcome.metrics.iter();
    rows.extend(metrics.map(|(name, number)| ("metric", format!("{name} {}", value(*number)))));
    if recipe.has(Hook::Init) && state != State::default() {
        let room = paint.width.saturating_sub(15);
        rows.push(("state", cut(&state.to_string(), room)));
    }
    rows.push(("time", time(outcome.time)));
    let mut lines = outcome.prints;
    let notes = note.iter().chain(&outcome.notes);
    lines.extend(notes.map(|note| session.note(note)));
    lines.push(paint.bold(&wrapped("", &title(&recipe), paint.width)));
    let row =
        |(name, text): &(&str, String)| laid_out(&format!("  {name:<11} "), text, paint.width);
    lines.extend(rows.iter().map(row));
    Ok(lines.join("\n"))
}

/// Compares the two recipes that the words name, or the one in use and the one that they name; `k=8` is the one in use, set
/// otherwise.
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
        [a, b] => diff::difference(a, b, &session.data.batch, session.paint),
        _ => Err(wrong(
            "`:diff` compares two recipes",
            "it is `:diff [A] B [k=8]`",
        )),
    }
}
