//! `:load`, `:batch`, `:vars`, `:reset`: the batch and the variables.

use std::path::Path;

use super::super::data::Data;
use super::super::session::Session;
use super::super::show;
use super::{Answered, option};
use crate::batch::Mapping;
use crate::diagnostic::Diagnostic;
use crate::script::is_typed;

pub(super) fn load(session: &mut Session, path: &str) -> Answered {
    let (mut path, mut map) = (path.to_string(), Vec::new());
    while let (rest, Some(pair)) = option(&path, "--map")? {
        let Some((ours, theirs)) = pair.split_once('=') else {
            let message =
                format!("`--map {pair}` is not of the form ours=theirs, such as reward=score");
            return Err(Diagnostic::error(message).into());
        };
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        map.push(Mapping { ours, theirs });
        path = rest;
    }
    let data = match path.trim_matches('"') {
        "" => Data::builtin(),
        path => Data::open(session.script.host(), Path::new(path), &map)?,
    };
    session.use_data(data)?;
    Ok(session.about_data())
}

pub(super) fn batch(session: &mut Session, step: &str) -> Answered {
    if step.is_empty() {
        return session.evaluated("batch");
    }
    let Ok(step) = step.parse() else {
        let message = format!("`{step}` is not the number of a step");
        return Err(Diagnostic::error(message).into());
    };
    let data = session.data.at_step(step)?;
    session.use_data(data)?;
    Ok(session.about_data())
}

pub(super) fn vars(session: &mut Session, _: &str) -> Answered {
    let variables = session.script.variables();
    if variables.is_empty() {
        return Ok("no variables yet: `let r = batch.reward` makes one".to_string());
    }
    let width = variables
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    let lines: Vec<String> = variables
        .iter()
        .map(|(name, value)| match value {
            Ok(answer) => format!(
                "  {name:<width$}  {}",
                show::brief(answer, 2 * session.paint.width - 30)
            ),
            Err(error) => {
                let why = error.first().map_or("", |first| first.message.as_str());
                format!("  {name:<width$}  {why}")
            }
        })
        .collect();
    Ok(lines.join("\n"))
}

pub(super) fn reset(session: &mut Session, _: &str) -> Answered {
    session.script.reset();
    let stay = match session.script.recipe() {
        Some(recipe) if !is_typed(recipe) => "the batch and the recipe stay",
        _ => {
            session.choose(None);
            "the batch stays"
        }
    };
    Ok(format!("what you typed is gone; {stay}"))
}
