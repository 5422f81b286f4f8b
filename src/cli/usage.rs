//! Wrong usage: what clap says of it, in the form of every other error, and what was probably meant.

use advlab::paint::wrapped;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::style;

/// What to write instead, for the slips that clap has no tip for.
pub fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = words.get(1)?.as_str();
    let wrong = context(ContextKind::InvalidArg)?;
    match error.kind() {
        // `--set eps 0.1`
        ErrorKind::ValueValidation => {
            let (name, flag) = (
                context(ContextKind::InvalidValue)?,
                wrong.split(' ').next()?,
            );
            let value = words.iter().skip_while(|word| *word != name).nth(1);
            let value = value.filter(|value| !value.starts_with('-'))?;
            (wrong.contains('=')).then(|| format!("with `=` between them: '{flag} {name}={value}'"))
        }
        // `--k 2`, `--k=2`
        ErrorKind::UnknownArgument if wrong.starts_with("--") => {
            let has_parameters = ["apply", "check", "repl", "train"].contains(&command);
            let is_new = context(ContextKind::SuggestedArg).is_none() && has_parameters;
            let name = wrong.trim_start_matches('-');
            let mut from = words.iter().skip_while(|word| !word.starts_with(wrong));
            let value = match from.next()?.split_once('=') {
                Some((_, value)) => value,
                None => from.next().map_or("VALUE", String::as_str),
            };
            is_new.then(|| format!("a parameter of the recipe is set by '--set {name}={value}'"))
        }
        // `new grpo mine.rhai`
        ErrorKind::UnknownArgument if command == "new" && wrong.ends_with(".rhai") => {
            Some(format!("'advlab new {wrong} --from {}'", words.get(2)?))
        }
        _ => None,
    }
}

/// Prints an error of usage; its lines keep their indents.
pub fn print(error: &clap::Error) {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    eprint!("{} ", style::red("Error:"));
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        eprintln!("{}", wrapped(indent, line));
    }
}
