//! `:save`: what was typed, as a script.

use std::path::{Path, PathBuf};

use super::super::session::Session;
use super::{Answered, missing};
use crate::batch::Replacement;
use crate::script::Diagnostic;

pub(super) fn save(session: &mut Session, path: &str) -> Answered {
    let file = PathBuf::from(path.trim_matches('"'));
    if path.is_empty() {
        return Err(missing("save"));
    }
    let shown = file.display();
    let error =
        |message: String, help: &str| Err(Diagnostic::error(message).with_help(help).into());
    if file.extension().is_none_or(|ending| ending != "rhai") {
        let help = format!(
            "such as {}",
            Path::new(path).with_extension("rhai").display()
        );
        return error(format!("{shown}: a script's file ends in .rhai"), &help);
    }
    if session.typed.is_empty() {
        return error(
            "nothing has been typed that could be saved".to_string(),
            "commands do not count",
        );
    }
    if file.exists() && !session.saved.contains(&file) {
        return error(
            format!("{shown} is there already, and is left as it is"),
            "choose another name",
        );
    }
    let script = session.typed.script(session.script.recipe());
    Replacement::write(&file, script.as_bytes())
        .map_err(|error| Diagnostic::error(error.to_string()))?;
    session.saved.insert(file.clone());
    let lines = script.lines().count();
    match session.script.host().load(&file.display().to_string()) {
        Ok(recipe) => Ok(format!(
            "{shown}: {lines} lines, a recipe ({})",
            recipe.version()
        )),
        Err(error) => {
            let why = error
                .diagnostics
                .first()
                .map_or(String::new(), |first| first.message.clone());
            Ok(format!("{shown}: {lines} lines, no recipe yet: {why}"))
        }
    }
}
