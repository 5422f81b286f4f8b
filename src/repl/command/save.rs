//! `:save`: what was typed, as a script.

use std::path::PathBuf;

use super::super::session::{Session, join};
use super::recipe::first_message;
use super::{Answered, wrong};
use crate::batch::Replacement;
use crate::figures::counted;
use crate::script::{Computed, Recipe, is_typed};

pub(super) fn save(session: &mut Session, path: &str) -> Answered {
    let file = PathBuf::from(path.trim_matches('"'));
    let shown = file.display();
    if file.extension().is_none_or(|ending| ending != "rhai") {
        let help = format!("such as {}", file.with_extension("rhai").display());
        return Err(wrong(
            format!("{shown}: a script's file ends in .rhai"),
            help,
        ));
    }
    if !session.script.inputs().has_advantage() && !session.script.inputs().has_function() {
        let help = "a formula with a value per response or token, or a function";
        return Err(wrong("nothing has been typed that makes a recipe", help));
    }
    let there = std::fs::read_to_string(&file).ok();
    let why = match session.saved.get(&file) {
        None if file.exists() => Some(("is there already", "choose another name")),
        Some(saved) if there.is_some_and(|there| there != *saved) => Some((
            "has been edited since it was saved",
            "choose another name, or `:recipe` and `:watch` it",
        )),
        _ => None,
    };
    if let Some((why, help)) = why {
        return Err(wrong(format!("{shown} {why}, and is left as it is"), help));
    }
    let script = session.script.typed_script();
    Replacement::write(&file, script.as_bytes())?;
    let lines = counted(script.lines().count(), "line");
    session.saved.insert(file.clone(), script);
    let recipe = match session.script.host().load(&file.display().to_string()) {
        Ok(recipe) => recipe,
        Err(error) => {
            let why = first_message(&error);
            return Ok(format!("{shown}: {lines}, no recipe yet: {why}"));
        }
    };
    let other = if gives_the_same(session, &recipe) {
        ""
    } else {
        ", but not with the value that the prompt had: look into it"
    };
    let version = recipe.version();
    let line = format!("{shown}: {lines}, a recipe ({version}){other}");
    // The `params()` of typed hooks are saved as they are.
    let in_use = session.script.recipe().filter(|one| is_typed(one));
    let set = in_use.filter(|in_use| in_use.params() != recipe.params());
    let set = set.map(|set| format!("set here, and not in the file: {}", set.params()));
    Ok(join(line, set))
}

/// Whether a script of statements gives the value that the prompt had last. Hooks are their own text.
fn gives_the_same(session: &Session, recipe: &Recipe) -> bool {
    let inputs = session.script.inputs();
    let Some(signal) = inputs.signal.as_ref().filter(|_| !inputs.has_hook()) else {
        return true;
    };
    let bits =
        |computed: &Computed| -> Vec<u64> { computed.buffer().iter().map(f64::to_bits).collect() };
    session.try_recipe(recipe).is_ok_and(|(outcome, _)| {
        let advantage = outcome.advantage;
        advantage.level() == signal.level() && bits(&advantage) == bits(signal)
    })
}
