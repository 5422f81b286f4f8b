//! Wrong usage: what clap says of it, in the form of every other error, and what was probably meant.

use advlab::paint::wrapped;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use console::Term;

use super::style;

/// Advice for the slips that clap has no tip for.
pub fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // `--set eps 0.1`, wherever clap stumbles over it.
    let is_apart = |words: &&[String]| {
        let [flag, name, value] = words else {
            return false;
        };
        (flag == "--set" || flag == "--map") && !name.contains('=') && !value.starts_with('-')
    };
    if let Some([flag, name, value]) = words.windows(3).find(is_apart) {
        return Some(format!("'{flag} {name}={value}'"));
    }
    let command = words.get(1)?.as_str();
    let wrong = context(ContextKind::InvalidArg)?;
    match error.kind() {
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

/// Prints an error of usage, or the help where there is no command.
pub fn print(error: &clap::Error) {
    let text = error.render().to_string();
    let Some(text) = text.strip_prefix("error: ") else {
        return eprint!("{text}");
    };
    let paint = style::whole(&Term::stderr());
    eprint!("{} ", paint.red("Error:"));
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        eprintln!("{}", wrapped(indent, line, paint.width));
    }
}
