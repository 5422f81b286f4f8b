//! The commands that name, set, run and compare recipes.

use super::arguments::Arguments;
use super::session::{Answered, PromptSession, assign, step};
use super::watch::lock;
use crate::doc;
use crate::report::study::{diff, run, title};
use crate::wrong;
use advlab::paint::wrapped;

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
    let whose = ["default", "of the run"][usize::from(session.data.loss.is_some())];
    let loss = (session.script.host().loss()?, whose);
    Ok(run::report(&recipe, &session.data.batch, loss, false, session.paint)?.text)
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
        [a, b] => Ok(diff::report(a, b, &session.data.batch, session.paint)?.text),
        _ => Err(wrong(
            "`:diff` compares two recipes",
            "it is `:diff [A] B [k=8]`",
        )),
    }
}
