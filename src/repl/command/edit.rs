//! `??NAME` and `:edit`: the source of a recipe or a function, shown or edited.

use std::path::Path;

use super::super::session::{Session, join};
use super::super::terminal::highlighted;
use super::Answered;
use super::title;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc;
use crate::script::{Builtin, is_typed};

/// The source of a name, in colours; of the recipe in use without one.
pub(in crate::repl) fn source(session: &mut Session, name: &str) -> Answered {
    let text = text_of(session, name)?;
    Ok(highlighted(text.trim_end(), session.paint))
}

/// Has a source edited: that of a name, or else the last input, or else the recipe in use. A recipe's own file is edited
/// directly and becomes the recipe; everything else is evaluated as an input.
pub(super) fn edit(session: &mut Session, name: &str) -> Answered {
    let recipe = session.script.recipe();
    let recipe = recipe.map_or(String::new(), |recipe| recipe.name().to_string());
    let is_recipe = name.is_empty() && session.last_input().is_empty();
    let file = if is_recipe { &recipe } else { name };
    if Path::new(file).is_file() {
        session.edit(Path::new(file))?;
        let mut edited = session.host().load(file)?;
        if let Some(in_use) = session.script.recipe().filter(|one| one.name() == file) {
            edited.keep_settings(in_use);
        }
        let line = format!("{} is the recipe", title(&edited));
        return Ok(join(line, session.choose(Some(edited))));
    }
    let text = if name.is_empty() && !is_recipe {
        session.last_input().to_string()
    } else {
        text_of(session, name)?
    };
    let folder = tempfile::tempdir().map_err(|error| Diagnostic::error(error.to_string()))?;
    let file = folder.path().join("input.rhai");
    let failed = |error: std::io::Error| Diagnostic::error(error.to_string());
    std::fs::write(&file, &text).map_err(failed)?;
    session.edit(&file)?;
    let edited = std::fs::read_to_string(&file).map_err(failed)?;
    if edited.trim() == text.trim() {
        return Ok("nothing was changed".to_string());
    }
    session.evaluated(edited.trim_end())
}

/// The script of a recipe, by its name or path or the recipe in use, or of a function, typed or in that recipe.
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
        return Ok(session.host().load(name)?.text().to_string());
    }
    let (message, help) = if doc::is_known(name) {
        let message = format!("`{name}` is no script, but a part of advlab");
        (message, format!("`?{name}` explains it"))
    } else {
        let message = format!("there is neither a recipe nor a typed function `{name}`");
        (message, "`??grpo` shows a built-in recipe".to_string())
    };
    Err(Diagnostic::error(message).with_help(help).into())
}
