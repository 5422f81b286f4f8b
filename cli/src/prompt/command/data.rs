//! `:load`, `:batch`, `:vars`, `:reset`: the batch and the variables.

use std::path::Path;

use super::super::data::Data;
use super::super::session::Session;
use super::super::show;
use super::{Answered, option};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Mapping;

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
        path => {
            let tokenizer = session.tokenizer.as_ref();
            Data::open(session.script.host(), Path::new(path), &map, tokenizer)?
        }
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
    session.go_to(step)?;
    Ok(session.about_data())
}

pub(super) fn vars(session: &mut Session, _: &str) -> Answered {
    let variables = session.script.variables();
    if variables.is_empty() {
        return Ok("no variables yet: `let r = batch.reward` makes one".to_string());
    }
    let names = variables.iter().map(|(name, _)| name.len());
    let width = names.max().unwrap_or(0);
    let line = |(name, value): &(String, Result<_, Diagnostics>)| {
        let shown = match value {
            Ok(answer) => show::brief(answer, show::two_lines(session.paint)),
            Err(error) => error[0].message.clone(),
        };
        format!("  {name:<width$}  {shown}")
    };
    let lines: Vec<String> = variables.iter().map(line).collect();
    Ok(lines.join("\n"))
}

pub(super) fn reset(session: &mut Session, _: &str) -> Answered {
    let stay = if session.reset() {
        "the batch and the recipe stay"
    } else {
        "the batch stays"
    };
    Ok(format!("what you typed is gone; {stay}"))
}
