//! The commands: a file each, wiring only.

mod apply;
mod check;
mod doc;
mod new;
mod out;
mod progress;
mod recipes;
mod repl;
mod replay;
mod style;
mod train;
mod train_view;
mod usage;

use std::process::ExitCode;

use advlab::batch::Mapping;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::{Host, Recipe};
use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

pub use out::reader_left;

/// The advantage lab: write, edit and run the advantage of RLVR training as short scripts.
#[derive(Parser)]
#[command(
    name = "advlab",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train an embedded policy, with a recipe that can be edited while the run goes
    Train(train::Train),
    /// Repeat a run with its reloads, and say whether every number agrees
    Replay(replay::Replay),
    /// Compute advantages for rollouts in a file
    Apply(apply::Apply),
    /// Try formulas at a prompt, on a real batch
    Repl(repl::Repl),
    /// Test a recipe's invariants on degenerate batches
    Check(check::Check),
    /// List the built-in recipes
    Recipes,
    /// Explain a recipe or a function, with an example
    Doc(doc::Doc),
    /// Copy a built-in recipe to a file, to edit it
    New(new::New),
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Train(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Repl(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Recipes => recipes::run(),
        Command::Doc(command) => command.run(),
        Command::New(command) => command.run(),
    }
}

/// Reads the arguments; `Err` has the exit status where there is nothing to run: wrong usage, or a help that was asked for.
pub fn arguments() -> Result<Arguments, ExitCode> {
    Arguments::try_parse().map_err(|mut error| {
        if let Some(tip) = usage::tip(&error, &std::env::args().collect::<Vec<_>>()) {
            error.insert(
                ContextKind::Suggested,
                ContextValue::StyledStrs(vec![tip.into()]),
            );
        }
        if error.use_stderr() {
            usage::print(&error);
        } else {
            // A message that nobody reads is not printed.
            let _ = error.print();
        }
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

/// Prints what went wrong, a script's error with its line and a caret.
pub fn report(error: &anyhow::Error) {
    let diagnostics = match error.downcast_ref::<Diagnostics>() {
        Some(diagnostics) => diagnostics.clone(),
        None => Diagnostic::error(chain(error)).into(),
    };
    style::tell(&diagnostics);
}

/// The error with its causes; a cause that the error's own message tells already is not told again.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{colon}{cause}");
        }
    }
    text
}

/// Loads a recipe with its settings, and prints what the lint found odd.
fn load(host: &Host, name: &str, settings: &[Setting]) -> Result<Recipe> {
    let mut recipe = host.load(name)?;
    for Setting { name, value } in settings {
        recipe
            .set_text(name, value)
            .map_err(|error| anyhow::anyhow!("--set {name}={value}: {error}"))?;
    }
    style::tell(recipe.warnings());
    Ok(recipe)
}

/// A parameter's new value, as in `--set k=8`.
#[derive(Clone, Debug)]
struct Setting {
    name: String,
    value: String,
}

/// `--map reward=score`, as the readers take it.
fn mappings(map: &[Setting]) -> Vec<Mapping> {
    let mapping = |setting: &Setting| Mapping {
        ours: setting.name.clone(),
        theirs: setting.value.clone(),
    };
    map.iter().map(mapping).collect()
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => Ok(Setting {
                name: name.trim().to_string(),
                value: value.trim().to_string(),
            }),
            _ => Err(format!(
                "\"{text}\" is not of the form name=value, such as k=8"
            )),
        }
    }
}
