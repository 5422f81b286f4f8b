//! `??NAME`, `:edit` and `:save`: show, edit and write sources.

use std::path::{Path, PathBuf};

use super::super::session::{Session, join};
use super::super::terminal::highlighted;
use super::{Answered, title, wrong};
use crate::doc;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::counted;
use advlab::files::Replacement;
use advlab::paint::folded;
use advlab::script::{Builtin, Computed, Recipe};
use advlab::session::is_typed;

/// The source of a name, or of the recipe in use, in colours.
pub(in crate::prompt) fn source(session: &mut Session, name: &str) -> Answered {
    let text = text_of(session, name)?;
    let fold = |line| folded(line, session.paint.width);
    let lines: Vec<String> = text.trim_end().lines().map(fold).collect();
    Ok(highlighted(&lines.join("\n"), session.paint))
}

/// Opens a source in the editor: that of a name, or else the last input, or else the recipe in use. A recipe's own file is
/// edited in place and becomes the recipe; everything else is evaluated as an input.
pub(super) fn edit(session: &mut Session, name: &str) -> Answered {
    let in_use = session.script.recipe();
    let is_input = name.is_empty() && !session.last_input.is_empty();
    let file = match in_use {
        Some(recipe) if name.is_empty() && !is_input => recipe.name().to_string(),
        None if name.is_empty() && !is_input => {
            let help = "`:edit grpo` begins with a built-in recipe, `:edit FILE` opens a script";
            return Err(wrong("there is nothing to edit yet", help));
        }
        _ => name.to_string(),
    };
    if Path::new(&file).is_file() {
        session.edit(Path::new(&file))?;
        let mut edited = session.host.load(&file)?;
        if let Some(in_use) = session.script.recipe().filter(|one| one.name() == file) {
            edited.keep_settings(in_use);
        }
        let line = format!("{} is the recipe", title(&edited));
        return Ok(join(line, session.choose(Some(edited))));
    }
    let text = if is_input {
        session.last_input.clone()
    } else {
        text_of(session, name)?
    };
    let failed = |error: std::io::Error| Diagnostic::error(error.to_string());
    let folder = tempfile::tempdir().map_err(failed)?;
    let file = folder.path().join("input.rhai");
    std::fs::write(&file, &text).map_err(failed)?;
    session.edit(&file)?;
    let edited = std::fs::read_to_string(&file).map_err(failed)?;
    if edited.trim() == text.trim() {
        return Ok("nothing was changed".to_string());
    }
    session.evaluated(edited.trim_end())
}

/// The script of a recipe, by name or path, or of the one in use; or of a function that was typed or is in that recipe.
fn text_of(session: &Session, name: &str) -> Result<String, Diagnostics> {
    let name = name.trim_end_matches("()");
    if name.is_empty() {
        return match session.script.recipe() {
            Some(recipe) if !is_typed(recipe) => Ok(recipe.text().to_string()),
            _ => session.recipe().map(|_| session.script.typed_script()),
        };
    }
    if let Some(function) = session.script.source_of(name) {
        return Ok(function);
    }
    if Builtin::find(name).is_some() || name.ends_with(".rhai") {
        return Ok(session.host.load(name)?.text().to_string());
    }
    Err(if doc::is_known(name) {
        let message = format!("`{name}` is no script, but a part of advlab");
        wrong(message, format!("`?{name}` explains it"))
    } else {
        let message = format!("there is neither a recipe nor a typed function `{name}`");
        wrong(message, "`??grpo` shows a built-in recipe")
    })
}

/// Writes what was typed as a script, never over a file that the session did not write.
pub(super) fn save(session: &mut Session, path: &str) -> Answered {
    let file = PathBuf::from(path.trim_matches('"'));
    let shown = file.display();
    if file.extension().is_none_or(|ending| ending != "rhai") {
        let help = format!("such as {}", file.with_extension("rhai").display());
        let message = format!("{shown}: a script's file ends in .rhai");
        return Err(wrong(message, help));
    }
    if !session.script.inputs().has_advantage() && !session.script.inputs().has_function() {
        let help = "a formula with a value per response or token, or a function";
        return Err(wrong("nothing has been typed that makes a recipe", help));
    }
    if let Some((hook, recipe)) = session.script.inputs().called_hook() {
        let name = Path::new(recipe).file_stem().unwrap_or_default().display();
        let message =
            format!("the formula calls `{hook}()` of {recipe}, which a script does not see");
        let help = format!(
            "import the recipe and call its hook: `import \"{name}\" as {name};`, \
             `{name}::{hook}(batch, #{{ ... }})`"
        );
        return Err(wrong(message, help));
    }
    let there = advlab::regular_file::read_to_string(&file).ok();
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
            let why = &error[0].message;
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
    // Typed hooks are saved with the `params()` that were typed.
    let in_use = session.script.recipe().filter(|one| is_typed(one));
    let set = in_use.filter(|in_use| in_use.params() != recipe.params());
    let set = set.map(|set| format!("set here, and not in the file: {}", set.params()));
    Ok(join(line, set))
}

/// Whether a script of statements gives the last value at the prompt. Hooks are saved as they were typed.
fn gives_the_same(session: &Session, recipe: &Recipe) -> bool {
    let inputs = session.script.inputs();
    let Some(signal) = inputs.signal().filter(|_| !inputs.has_hook()) else {
        return true;
    };
    let bits =
        |computed: &Computed| -> Vec<u64> { computed.buffer().iter().map(f64::to_bits).collect() };
    session.try_recipe(recipe).is_ok_and(|(outcome, _)| {
        let advantage = outcome.advantage;
        advantage.level() == signal.level() && bits(&advantage) == bits(signal)
    })
}
