//! `??NAME`, `:edit`, `:watch` and `:save`, which show, edit, follow and write sources.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::arguments::Arguments;
use super::session::{Answered, PromptSession};
use super::watch::Watched;
use crate::doc;
use crate::number_text::counted;
use crate::report::show::highlighted;
use crate::report::study::title;
use crate::{Result, lock, wrong};
use advlab::diagnostic::Diagnostic;
use advlab::replace::Replacement;
use advlab::script::{Builtin, Computed, Recipe};
use advlab::session::is_typed;

/// Shows the source of a name, or of the recipe in use, with syntax colours.
pub(super) fn show(session: &PromptSession, name: &str) -> Answered {
    let text = text_of(session, name.trim_end_matches("()"))?;
    Ok(highlighted(text.trim_end(), session.paint))
}

/// Returns the source of a recipe by name or path, or of a function that was typed or belongs to the recipe in use. If no name is
/// given, returns the source of the recipe in use.
fn text_of(session: &PromptSession, name: &str) -> Answered {
    if name.is_empty() {
        return match session.script.recipe() {
            Some(recipe) if !is_typed(recipe) => Ok(recipe.text().to_string()),
            _ => session.recipe().map(|_| session.script.typed_script()),
        };
    }
    if let Some(function) = session.script.source_of(name) {
        return Ok(function);
    }
    if doc::is_known(name) && Builtin::find(name).is_none() {
        let message = format!("`{name}` is not a script, but a part of advlab");
        return Err(wrong(message, format!("`?{name}` explains it")));
    }
    Ok(session.host.load(name)?.text().to_string())
}

/// Opens a file in the user's editor.
fn open_editor(session: &mut PromptSession, file: &Path) -> Result<()> {
    let Some(edit) = &mut session.editor else {
        let message = "`:edit` needs a terminal, and there is none here";
        return Err(wrong(message, "`:watch FILE` follows a file that you edit"));
    };
    let help = "$VISUAL or $EDITOR names the editor";
    edit(file).map_err(|error| wrong(format!("the editor failed: {error}"), help))
}

/// Opens a source in the editor: the named source, or else the last input, or else the recipe in use. If the source is a file,
/// the file is edited and becomes the recipe in use. Any other source is evaluated as an input if the user changed it.
pub(super) fn edit(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let is_input = arguments.text.is_empty() && !session.last_input.is_empty();
    let name = match session.script.recipe() {
        Some(recipe) if arguments.text.is_empty() && !is_input && !is_typed(recipe) => {
            recipe.name()
        }
        _ => arguments.text,
    };
    let name = name.to_string();
    if Path::new(&name).is_file() {
        open_editor(session, Path::new(&name))?;
        let mut edited = session.host.load(&name)?;
        if let Some(in_use) = session.script.recipe().filter(|one| one.name() == name) {
            edited.keep_settings(in_use);
        }
        let title = title(&edited);
        session.use_recipe(edited);
        return Ok(format!("{title} is now the recipe"));
    }
    let text = if is_input {
        session.last_input.clone()
    } else {
        text_of(session, &name)?
    };
    let failed = |error: io::Error| Diagnostic::error(error.to_string());
    let folder = tempfile::tempdir().map_err(failed)?;
    let file = folder.path().join("input.rhai");
    fs::write(&file, &text).map_err(failed)?;
    open_editor(session, &file)?;
    let edited = fs::read_to_string(&file).map_err(failed)?;
    if edited.trim() == text.trim() {
        return Ok("nothing was changed".to_string());
    }
    session.evaluate(edited.trim_end())
}

/// Watches a script, and makes it the recipe in use; if no name is given, stops watching.
pub(super) fn watch(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let file = arguments.text.trim_matches('"');
    if file.is_empty() {
        return Ok(match lock(&session.watched).take() {
            Some(ended) => format!("{} is not watched any more", ended.last.name()),
            None => "nothing is watched: `:watch FILE` follows a script".to_string(),
        });
    }
    if Builtin::find(file).is_some() {
        let help = format!("`advlab new my.rhai --from {file}` makes a copy to edit and watch");
        let message = format!("`{file}` is built in, and never changes");
        return Err(wrong(message, help));
    }
    let watched = Watched::new(&session.host, file, &session.data.batch, session.paint)?;
    let last = watched.last.clone();
    *lock(&session.watched) = Some(watched);
    let version = last.version();
    let line = format!("{file} {version} is watched: each save shows its effect on this batch");
    session.use_recipe(last);
    Ok(line)
}

/// Writes the typed script to a file. A file is replaced only if its content is what `:save` last wrote there.
pub(super) fn save(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    let file = PathBuf::from(arguments.text.trim_matches('"'));
    let shown = file.display();
    if file.extension().is_none_or(|ending| ending != "rhai") {
        let help = format!("for example, {}", file.with_extension("rhai").display());
        let message = format!("{shown}: the name of a script's file must end in .rhai");
        return Err(wrong(message, help));
    }
    let inputs = session.script.inputs();
    if !inputs.has_advantage() && !inputs.has_function() {
        let help = "type a formula with a value per response or token, or a function";
        return Err(wrong("nothing that makes a recipe has been typed", help));
    }
    if let Some((hook, recipe)) = inputs.called_hook() {
        let name = Path::new(recipe).file_stem().unwrap_or_default().display();
        let message =
            format!("the formula calls `{hook}()` of {recipe}, which a script must import");
        let help =
            format!("write `import \"{name}\" as {name};` and `{name}::{hook}(batch, #{{ ... }})`");
        return Err(wrong(message, help));
    }
    let there = advlab::regular_file::read_to_string(&file).ok();
    if file.exists() && there.as_ref() != session.saved.get(&file) {
        let message = format!("this session did not save the text in {shown}: it is not replaced");
        return Err(wrong(message, "choose another name"));
    }
    let script = session.script.typed_script();
    Replacement::write(&file, script.as_bytes())?;
    let lines = counted(script.lines().count(), "line");
    session.saved.insert(file.clone(), script);
    let recipe = match session.script.host().load(&shown.to_string()) {
        Err(error) => {
            let message = &error[0].message;
            return Ok(format!("{shown}: {lines}, not a recipe yet: {message}"));
        }
        Ok(recipe) => recipe,
    };
    let note = if is_same_as_typed(session, &recipe) {
        ""
    } else {
        ", but it does not give the value at the prompt: check the script"
    };
    let version = recipe.version();
    Ok(format!("{shown}: {lines}, a recipe ({version}){note}"))
}

/// Returns whether a script's advantage has the same bits as the value from which the script was made. Returns `true` if there is
/// no such value, or if hooks were typed, because hooks are saved as they were typed.
fn is_same_as_typed(session: &PromptSession, recipe: &Recipe) -> bool {
    let inputs = session.script.inputs();
    let Some(signal) = inputs.signal().filter(|_| !inputs.has_hook()) else {
        return true;
    };
    let bits =
        |values: &Computed| -> Vec<u64> { values.buffer().iter().map(f64::to_bits).collect() };
    session.trial(recipe).is_ok_and(|trial| {
        let advantage = trial.outcome.advantage;
        advantage.level() == signal.level() && bits(&advantage) == bits(signal)
    })
}
