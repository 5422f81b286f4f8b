//! Wrong usage: what clap says of it, in the form of every other error, and what was probably meant.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use advlab::paint::wrapped;
use advlab_train::Config;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use console::Term;

use super::{Arguments, streams};

/// Reads the arguments; `Err` has the exit status where there is nothing to run: wrong usage, or a request for help.
pub(super) fn arguments(words: &[OsString]) -> Result<Arguments, ExitCode> {
    Arguments::try_parse_from(words).map_err(|mut error| {
        let words = words.iter().map(|word| word.to_string_lossy().into_owned());
        if let Some(tip) = tip(&error, &words.collect::<Vec<_>>()) {
            // Clap's own goes by the letters of the name.
            error.remove(ContextKind::SuggestedArg);
            error.insert(
                ContextKind::Suggested,
                ContextValue::StyledStrs(vec![tip.into()]),
            );
        }
        if error.use_stderr() {
            print(&error);
        } else {
            // A message that nobody reads is not printed.
            let _ = error.print();
        }
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

/// Advice for the slips that clap has no tip for.
fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
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
        ErrorKind::UnknownArgument if (command, wrong) == ("verify", "--map") => {
            Some("the fields are named by '--completion FIELD' and '--solution FIELD'".to_string())
        }
        ErrorKind::UnknownArgument if wrong == "--edit" => {
            let tip =
                "the page only shows a run: save the recipe in your editor, and the run uses it";
            Some(tip.to_string())
        }
        // `--k 2`, `--k=2`
        ErrorKind::UnknownArgument if wrong.starts_with("--") => {
            let has_parameters = [
                "apply",
                "check",
                "compare",
                "look",
                "mass",
                "objective",
                "profile",
                "repl",
                "train",
            ]
            .contains(&command);
            let name = wrong.trim_start_matches('-');
            // One letter is like any option that has it somewhere.
            let is_like = context(ContextKind::SuggestedArg).is_some() && name.len() > 1;
            let other_commands = commands_with(name);
            let is_new = has_parameters && !is_like;
            let mut from = words.iter().skip_while(|word| !word.starts_with(wrong));
            let value = match from.next()?.split_once('=') {
                Some((_, value)) => value,
                None => from.next().map_or("VALUE", String::as_str),
            };
            if let Some(key) = Config::key(name).filter(|_| ["compare", "train"].contains(&command))
            {
                return Some(format!(
                    "a key of the configuration is set by '--set {key}={value}'"
                ));
            }
            if !other_commands.is_empty() {
                let commands = other_commands.join(", ");
                return Some(format!("'--{name}' is an option of {commands}"));
            }
            is_new.then(|| format!("a parameter of the recipe is set by '--set {name}={value}'"))
        }
        // `new grpo mine.rhai`
        ErrorKind::UnknownArgument if command == "new" && wrong.ends_with(".rhai") => {
            Some(format!("'advlab new {wrong} --from {}'", words.get(2)?))
        }
        _ => None,
    }
}

/// The commands that have an option.
fn commands_with(option: &str) -> Vec<String> {
    let arguments = Arguments::command();
    let has = |command: &&clap::Command| {
        command
            .get_arguments()
            .any(|one| one.get_long() == Some(option))
    };
    let commands = arguments.get_subcommands().filter(has);
    commands
        .map(|command| format!("`advlab {}`", command.get_name()))
        .collect()
}

/// What the standard library says of a text that is no number.
const NO_NUMBER: &str = "invalid digit found in string";

/// Prints an error of usage, or the help where there is no command; nothing, if nobody reads it.
fn print(error: &clap::Error) {
    let text = error.render().to_string();
    let text = text.replace(NO_NUMBER, "it takes a whole number, such as 4");
    let Some(text) = text.strip_prefix("error: ") else {
        let _ = write!(io::stderr(), "{text}");
        return;
    };
    let paint = streams::whole(&Term::stderr());
    let room = paint.width.saturating_sub("Error: ".len());
    let lines = text.lines().map(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        wrapped(indent, line, room) + "\n"
    });
    let error = paint.with("31", "Error:");
    let _ = write!(io::stderr(), "{error} {}", lines.collect::<String>());
}
