//! `??NAME`, `:edit` and `:save`: show, edit and write sources.

use std::path::{Path, PathBuf};

use super::command::Arguments;
use super::recipe::title;
use super::show::highlighted;
use super::{Answered, Session};
use crate::doc;
use crate::wrong;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::counted;
use advlab::files::Replacement;
use advlab::script::{Builtin, Computed, Recipe};
use advlab::session::is_typed;

impl Session {
    /// The source of a name, or of the recipe in use, in colours.
    pub(super) fn source(&self, name: &str) -> Answered {
        let text = self.text_of(name.trim_end_matches("()"))?;
        Ok(highlighted(text.trim_end(), self.paint))
    }

    /// The script of a recipe, by name or path, or of the one in use; or of a function that was typed or is in that recipe.
    fn text_of(&self, name: &str) -> Result<String, Diagnostics> {
        if name.is_empty() {
            return match self.script.recipe() {
                Some(recipe) if !is_typed(recipe) => Ok(recipe.text().to_string()),
                _ => self.recipe().map(|_| self.script.typed_script()),
            };
        }
        if let Some(function) = self.script.source_of(name) {
            return Ok(function);
        }
        if doc::is_known(name) && Builtin::find(name).is_none() {
            let message = format!("`{name}` is no script, but a part of advlab");
            return Err(wrong(message, format!("`?{name}` explains it")));
        }
        Ok(self.host.load(name)?.text().to_string())
    }

    /// Opens a file in the user's editor.
    fn open_editor(&mut self, file: &Path) -> Result<(), Diagnostics> {
        let Some(edit) = &mut self.editor else {
            let message = "`:edit` needs a terminal, and there is none here";
            return Err(wrong(message, "`:watch FILE` follows a file that you edit"));
        };
        let help = "$VISUAL or $EDITOR names the editor";
        edit(file).map_err(|error| wrong(format!("the editor failed: {error}"), help))
    }

    /// Whether a script gives the last value at the prompt. Hooks are saved as they were typed.
    fn is_same_as_typed(&self, recipe: &Recipe) -> bool {
        let inputs = self.script.inputs();
        let Some(signal) = inputs.signal().filter(|_| !inputs.has_hook()) else {
            return true;
        };
        let bits = |computed: &Computed| -> Vec<u64> {
            computed.buffer().iter().map(f64::to_bits).collect()
        };
        self.try_recipe(recipe).is_ok_and(|(outcome, _)| {
            let advantage = outcome.advantage;
            advantage.level() == signal.level() && bits(&advantage) == bits(signal)
        })
    }
}

/// Opens a source in the editor: that of a name, or else the last input, or else the recipe in use. A recipe's own file is
/// edited in place and becomes the recipe; everything else is evaluated as an input.
pub(super) fn edit(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    let mut name = arguments.text.to_string();
    let is_input = name.is_empty() && !session.last_input.is_empty();
    if let Some(recipe) = session
        .script
        .recipe()
        .filter(|_| name.is_empty() && !is_input)
        && !is_typed(recipe)
    {
        name = recipe.name().to_string();
    }
    if Path::new(&name).is_file() {
        session.open_editor(Path::new(&name))?;
        let mut edited = session.host.load(&name)?;
        if let Some(in_use) = session.script.recipe().filter(|one| one.name() == name) {
            edited.keep_settings(in_use);
        }
        session.use_recipe(edited.clone());
        return Ok(format!("{} is the recipe", title(&edited)));
    }
    let text = match is_input {
        true => session.last_input.clone(),
        false => session.text_of(&name)?,
    };
    let failed = |error: std::io::Error| Diagnostic::error(error.to_string());
    let folder = tempfile::tempdir().map_err(failed)?;
    let file = folder.path().join("input.rhai");
    std::fs::write(&file, &text).map_err(failed)?;
    session.open_editor(&file)?;
    let edited = std::fs::read_to_string(&file).map_err(failed)?;
    if edited.trim() == text.trim() {
        return Ok("nothing was changed".to_string());
    }
    session.evaluate(edited.trim_end())
}

/// Writes what was typed as a script, never over a file that the session did not write.
pub(super) fn save(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    let file = PathBuf::from(arguments.text.trim_matches('"'));
    let shown = file.display();
    if file.extension().is_none_or(|ending| ending != "rhai") {
        let better = file.with_extension("rhai");
        let help = format!("such as {}", better.display());
        return Err(wrong(
            format!("{shown}: a script's file ends in .rhai"),
            help,
        ));
    }
    let inputs = session.script.inputs();
    if !inputs.has_advantage() && !inputs.has_function() {
        let help = "a formula with a value per response or token, or a function";
        return Err(wrong("nothing has been typed that makes a recipe", help));
    }
    if let Some((hook, recipe)) = inputs.called_hook() {
        let name = Path::new(recipe).file_stem().unwrap_or_default().display();
        let message =
            format!("the formula calls `{hook}()` of {recipe}, which a script does not see");
        let help = format!("`import \"{name}\" as {name};`, `{name}::{hook}(batch, #{{ ... }})`");
        return Err(wrong(message, help));
    }
    let there = advlab::regular_file::read_to_string(&file).ok();
    if file.exists() && there.as_ref() != session.saved.get(&file) {
        let message = format!("{shown} is not what `:save` wrote, and is left as it is");
        return Err(wrong(message, "choose another name"));
    }
    let script = session.script.typed_script();
    Replacement::write(&file, script.as_bytes())?;
    let lines = counted(script.lines().count(), "line");
    session.saved.insert(file.clone(), script);
    Ok(
        match session.script.host().load(&file.display().to_string()) {
            Err(error) => format!("{shown}: {lines}, no recipe yet: {}", error[0].message),
            Ok(recipe) => {
                let note = match session.is_same_as_typed(&recipe) {
                    true => "",
                    false => ", but not with the value that the prompt had: look into it",
                };
                format!("{shown}: {lines}, a recipe ({}){note}", recipe.version())
            }
        },
    )
}
