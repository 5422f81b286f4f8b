//! `:recipe`, `:params`, `:set`, `:run`: a recipe on the session's batch.

use std::path::Path;

use super::super::session::Session;
use super::super::show;
use super::{Answered, lock, missing};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figures::{time, value};
use crate::paint::wrapped;
use crate::script::{Hook, Recipe, State, Summary};

/// A recipe with its settings, as commands name it: `passk k=4`, `mine.rhai`, the folder of a run that used it, or one of
/// the versions that the run of the batch has used, `8cdb4e`.
pub(super) fn parse(session: &Session, words: &[&str]) -> Result<Recipe, Diagnostics> {
    let (name, settings) = words.split_first().unwrap_or((&"", &[]));
    let host = session.script.host();
    let mut recipe = match Path::new(name).is_dir() {
        true => session.data.recipe_of_run(host, Path::new(name))?,
        false => match session.data.version_of_run(host, name)? {
            Some(recipe) => recipe,
            None => host.load(name)?,
        },
    };
    for setting in settings {
        assign(&mut recipe, setting)?;
    }
    Ok(recipe)
}

/// Sets a parameter as written: `k=8`.
pub(super) fn assign(recipe: &mut Recipe, setting: &str) -> Result<(), Diagnostics> {
    let Some((name, text)) = setting.split_once('=') else {
        let message = format!("`{setting}` is not of the form name=value, such as k=8");
        return Err(Diagnostic::error(message).into());
    };
    recipe
        .set_text(name.trim(), text.trim())
        .map_err(|error| Diagnostic::error(error.to_string()).into())
}

/// A recipe's name, version and settings in one line.
pub(in crate::repl) fn title(recipe: &Recipe) -> String {
    let settings = recipe.params().iter();
    let settings = settings.map(|(parameter, value)| format!("{}={value}", parameter.name));
    let all: Vec<String> = [
        recipe.name().to_string(),
        recipe.version().short().to_string(),
    ]
    .into_iter()
    .chain(settings)
    .collect();
    all.join(" ")
}

pub(super) fn recipe(session: &mut Session, arguments: &str) -> Answered {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let mut unwatched = None;
    if !words.is_empty() {
        let recipe = parse(session, &words)?;
        // A recipe that cannot run here is loaded all the same: the batch may be what has to change.
        unwatched = session.choose(Some(recipe));
    }
    let recipe = current(session)?;
    let text = show::recipe(&recipe, session.paint);
    let next = "advantage() and loss() are its hooks here, p its parameters; :run sums up";
    let next = session.paint.dim(next);
    let lines: Vec<String> = [format!("{text}\n"), next]
        .into_iter()
        .chain(unwatched)
        .collect();
    Ok(lines.join("\n"))
}

pub(super) fn params(session: &mut Session, _: &str) -> Answered {
    let recipe = current(session)?;
    match recipe.params().iter().len() {
        0 => Ok(format!("{} has no parameters", recipe.name())),
        _ => Ok(show::parameters(&recipe, session.paint)),
    }
}

pub(super) fn set(session: &mut Session, arguments: &str) -> Answered {
    let mut recipe = current(session)?;
    if arguments.is_empty() {
        return Err(missing("set"));
    }
    // `k = 8` is as clear as `k=8`.
    let spaced: Vec<&str> = arguments.split('=').map(str::trim).collect();
    for setting in spaced.join("=").split_whitespace() {
        assign(&mut recipe, setting)?;
    }
    let line = title(&recipe);
    if let Some(watched) = &session.watched {
        lock(watched).set(&recipe);
    }
    session.script.use_recipe(Some(recipe));
    Ok(line)
}

/// The recipe in use; without one, what was typed: its last value per response or token is the advantage.
pub(super) fn current(session: &Session) -> Result<Recipe, Diagnostics> {
    if let Some(recipe) = session.script.recipe() {
        return Ok(recipe.clone());
    }
    if session.script.inputs().has_advantage() {
        return session.script.typed_recipe();
    }
    let help = "`:recipe grpo` loads one; a formula with a value per response or token counts too";
    Err(Diagnostic::error("no recipe is loaded")
        .with_help(help)
        .into())
}

pub(super) fn run(session: &mut Session, arguments: &str) -> Answered {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let recipe = match words.is_empty() {
        true => current(session)?,
        false => parse(session, &words)?,
    };
    session.script.guard().rearm();
    let paint = session.paint;
    let mut state = recipe.init()?;
    let outcome = recipe.advantage(&session.data.batch, &mut state)?;
    let mut lines = outcome.prints.clone();
    lines.extend(
        outcome
            .notes
            .iter()
            .map(|note| paint.dim(&format!("note: {note}"))),
    );
    lines.push(paint.bold(&wrapped("", &title(&recipe), paint.width)));
    let mut row = |name: &str, text: String| lines.push(format!("  {name:<11} {}", text.trim()));
    if let Some(reward) = &outcome.reward {
        let values: Vec<f64> = reward.buffer().iter().collect();
        let spread = show::spread_line(&values);
        row(
            "reward",
            format!("{}   per {}", spread.trim_start(), reward.level()),
        );
    }
    for (name, text) in Summary::of(&outcome).rows() {
        row(name, text);
    }
    let loss = loss_of(session, &recipe, &outcome.advantage);
    match loss {
        Ok((of, loss)) => {
            let values: Vec<f64> = loss.gradient.buffer().iter().collect();
            row("loss", format!("{}   {of}", value(loss.value)));
            row("dloss/dlogp", show::spread_line(&values));
        }
        Err(error) => {
            let why = error.first().map_or("", |first| first.message.as_str());
            row("loss", format!("none: {why}"));
        }
    }
    for (name, number) in &outcome.metrics {
        row("metric", format!("{name} {}", value(*number)));
    }
    if recipe.has(Hook::Init) && state != State::default() {
        row("state", cut(&state.to_string()));
    }
    row("time", time(outcome.time));
    Ok(lines.join("\n"))
}

/// The recipe's loss, or the one that a run would use with its advantage.
fn loss_of(
    session: &Session,
    recipe: &Recipe,
    advantage: &crate::script::Computed,
) -> Result<(String, crate::script::Loss), Diagnostics> {
    let default;
    let (of, loss) = match recipe.has(Hook::Loss) {
        true => (String::new(), recipe),
        false => {
            default = session.script.host().load("ppo_clip")?;
            (
                "of ppo_clip, which a run takes with this advantage".to_string(),
                &default,
            )
        }
    };
    let mut state = loss.init()?;
    Ok((
        of,
        loss.loss(&session.data.batch, Some(advantage), &mut state)?,
    ))
}

/// A text that may be long, in a line.
fn cut(text: &str) -> String {
    const SHOWN: usize = 64;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
