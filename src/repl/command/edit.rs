//! `??NAME` and `:edit`: the source of a recipe or a function, shown or edited.

use std::path::Path;

use super::super::session::{Session, join};
use super::super::terminal::highlighted;
use super::{Answered, title, wrong};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc;
use crate::paint::folded;
use crate::script::{Builtin, is_typed};

/// The source of a name, in colours; of the recipe in use without one.
pub(in crate::repl) fn source(session: &mut Session, name: &str) -> Answered {
    let text = text_of(session, name)?;
    let lines = text.trim_end().lines();
    let lines: Vec<String> = lines
        .map(|line| folded(line, session.paint.width))
        .collect();
    Ok(highlighted(&lines.join("\n"), session.paint))
}

/// Has a source edited: that of a name, or else the last input, or else the recipe in use. A recipe's own file is
/// edited directly and becomes the recipe; everything else is evaluated as an input.
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
