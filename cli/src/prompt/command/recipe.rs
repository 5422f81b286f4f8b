//! `:recipe`, `:params`, `:set`, `:run`: a recipe on the session's batch.

use std::path::Path;

use super::super::session::{Session, join};
use super::super::show;
use super::{Answered, wrong};
use crate::report::study::{recipes_of, with_advantage};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{time, value};
use advlab::paint::{cut, laid_out, wrapped};
use advlab::script::{Computed, Hook, Recipe, State, Summary};

/// A recipe with its settings as commands name it: `passk k=4`, `mine.rhai`, the folder of a run that used it, or a
/// version that the batch's run used, `8cdb4e`.
pub(in crate::prompt) fn named(
    session: &Session,
    name: &str,
    settings: &[&str],
) -> Result<Recipe, Diagnostics> {
    let host = session.script.host();
    let mut recipe = if Path::new(name).is_dir() {
        session.data.recipe_of_run(host, Path::new(name))?
    } else if let Some(recipe) = session.data.version_of_run(host, name)? {
        recipe
    } else {
        host.load(name)?
    };
    for setting in settings {
        assign(&mut recipe, setting)?;
    }
    Ok(recipe)
}

/// Sets a parameter, as in `k=8`.
pub(super) fn assign(recipe: &mut Recipe, setting: &str) -> Result<(), Diagnostics> {
    let pair = setting
        .split_once('=')
        .filter(|_| !setting.starts_with('-'));
    let Some((name, text)) = pair else {
        let message = format!("`{setting}` is not of the form name=value, such as k=8");
        let help = "settings have no `--` here: `:recipe passk k=2`, `:set k=2`";
        let mut error = Diagnostic::error(message);
        error.help = setting.starts_with('-').then(|| help.to_string());
        return Err(error.into());
    };
    Ok(recipe.set_text(name.trim(), text.trim())?)
}

/// The recipes that words name, each followed by its settings, `passk k=2 grpo`; the recipe in use if there are no words.
pub(in crate::prompt) fn chosen(
    session: &Session,
    words: &str,
) -> Result<Vec<Recipe>, Diagnostics> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let recipes = recipes_of(&words)?;
    if recipes.is_empty() {
        return Ok(vec![session.recipe()?]);
    }
    let recipes = recipes.iter();
    recipes
        .map(|(name, settings)| named(session, name, settings))
        .collect()
}

/// A recipe's name, version and settings in one line.
pub(in crate::prompt) fn title(recipe: &Recipe) -> String {
    let (name, version, settings) = (recipe.name(), recipe.version(), recipe.params());
    let title = format!("{name} {version} {settings}");
    title.trim_end().to_string()
}

pub(super) fn recipe(session: &mut Session, arguments: &str) -> Answered {
    let recipe = session.recipe_of(arguments)?;
    let mut unwatched = None;
    if !arguments.is_empty() {
        // It is loaded even if it cannot run on this batch: the batch may be what has to change.
        unwatched = session.choose(Some(recipe.clone()));
    }
    let text = show::recipe(&recipe, session.paint);
    let next = "advantage() and loss() are its hooks here, p its parameters; :run sums up";
    let next = session.dimmed(next);
    Ok(join(format!("{text}\n\n{next}"), unwatched))
}

pub(super) fn params(session: &mut Session, _: &str) -> Answered {
    let recipe = session.recipe()?;
    if recipe.params().iter().len() == 0 {
        return Ok(format!("{} has no parameters", recipe.name()));
    }
    Ok(show::parameters(&recipe, session.paint))
}

pub(super) fn set(session: &mut Session, arguments: &str) -> Answered {
    // `k = 8` is as clear as `k=8`.
    let spaced: Vec<&str> = arguments.split('=').map(str::trim).collect();
    if let ["step", step] = spaced[..] {
        let Ok(step) = step.parse() else {
            return Err(wrong(
                format!("`{step}` is not the number of a step"),
                "`:set step=100`",
            ));
        };
        session.set_step(step)?;
        return Ok(format!("batch.step is {step}"));
    }
    let mut recipe = session.recipe()?;
    for setting in spaced.join("=").split_whitespace() {
        assign(&mut recipe, setting)?;
    }
    let line = title(&recipe);
    session.change_settings(recipe);
    Ok(line)
}

pub(super) fn run(session: &mut Session, arguments: &str) -> Answered {
    let recipe = session.recipe_of(arguments)?;
    let paint = session.paint;
    let (outcome, state) = session.try_recipe(&recipe)?;
    let (batch, note) = with_advantage(&recipe, &session.data.batch)?;
    let mut lines = outcome.prints.clone();
    lines.extend(note.map(|note| session.note(&note)));
    lines.extend(outcome.notes.iter().map(|note| session.note(note)));
    lines.push(paint.bold(&wrapped("", &title(&recipe), paint.width)));
    let mut row = |name: &str, text: String| {
        let start = format!("  {name:<11} ");
        lines.push(laid_out(&start, text.trim(), paint.width));
    };
    let spread =
        |computed: &Computed| show::spread_line(&computed.buffer().iter().collect::<Vec<f64>>());
    if let Some(reward) = &outcome.reward {
        let text = format!("{}   per {}", spread(reward), reward.level());
        row("reward", text);
    }
    for (name, text) in Summary::of(&outcome).rows() {
        row(name, text);
    }
    let (with_loss, of) = if recipe.has(Hook::Loss) {
        (recipe.clone(), String::new())
    } else {
        let loss = session.script.host().loss()?;
        let whose = match session.data.run {
            Some(_) => "of the run",
            None => "default",
        };
        let of = format!("({whose}: {})", loss.name());
        (loss, of)
    };
    let loss = with_loss.init().and_then(|mut state| {
        // A recipe with only a loss has the equivalent advantage: the loss itself reads the batch's column.
        let advantage = recipe.has(Hook::Advantage).then_some(&outcome.advantage);
        with_loss.loss(&outcome.weighted(&batch), advantage, &mut state)
    });
    match loss {
        Ok(loss) => {
            row("loss", format!("{}   {of}", value(loss.value)));
            row("dloss/dlogp", spread(&loss.gradient));
        }
        Err(error) => row("loss", format!("none: {}", error[0].message)),
    }
    for (name, number) in &outcome.metrics {
        row("metric", format!("{name} {}", value(*number)));
    }
    if recipe.has(Hook::Init) && state != State::default() {
        let room = paint.width.saturating_sub(15);
        row("state", cut(&state.to_string(), room));
    }
    row("time", time(outcome.time));
    Ok(lines.join("\n"))
}
