//! The commands of the command line.

mod apply;
mod check;
mod compare;
mod files;
mod library;
mod lsp;
mod plan;
mod profile;
mod prompt;
mod runs;
mod streams;
mod study;
mod train;
mod train_view;
mod verify;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use advlab::deep_stack;
use advlab::native::Mode;
use advlab::panics::silence_caught;
use advlab::replace::discard_unfinished;
use advlab::{Diagnostic, Diagnostics, Host, Recipe};
use advlab_train::Config;
use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser};

pub use self::files::read_rollouts;
use self::files::{ReadArguments, Tokenizing};

/// Runs the command line: the program's name and its arguments, as in `advlab apply grpo rollouts.jsonl`. Prints the command's
/// output and errors. The exit status is 0 on success, 1 if a problem is reported, and 2 if the arguments are invalid.
pub fn command_line(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    silence_caught();
    let words: Vec<OsString> = arguments.into_iter().collect();
    deep_stack::call(|| run_words(&words))
}

fn run_words(words: &[OsString]) -> ExitCode {
    let is_broken_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    match Command::try_parse_from(words).map(|command| run(command, words)) {
        Ok(Ok(is_right)) => ExitCode::from(u8::from(!is_right)),
        // A closed pipe is no failure: the reader of standard output has stopped reading, as `head` does.
        Ok(Err(error)) if error.downcast_ref().is_some_and(is_broken_pipe) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            report(&error);
            ExitCode::from(1)
        }
        Err(mut error) => {
            if let Some(tip) = tip(&error, words) {
                // Clap's tip is replaced, because clap only compares spellings. The usage is removed, because the usage repeats
                // the option that clap guessed.
                error.remove(ContextKind::SuggestedArg);
                error.remove(ContextKind::Usage);
                let tip = ContextValue::StyledStrs(vec![tip.into()]);
                error.insert(ContextKind::Suggested, tip);
            }
            // A failure to print is ignored, because the exit status is right even if the stream is closed.
            let _ = error.print();
            u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Returns a tip if an option conflicts with `--resume`, or if the unknown option is `--map` of `verify`. If the command has
/// `--set`, also returns a tip if the unknown option is `--recipe`, a parameter of a recipe in `words`, or a key of the
/// configuration of `train` or `compare`.
fn tip(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = option.strip_prefix("--")?;
    let arguments = Command::command();
    let mut options = arguments.find_subcommand(words.get(1)?)?.get_arguments();
    let takes_settings = options.any(|one| one.get_long() == Some("set"));
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let command = words.get(1)?.to_str()?;
    match name {
        "recipe" if is_unknown && takes_settings => {
            return Some(format!(
                "the recipe is given without an option: 'advlab {command} RECIPE ...'"
            ));
        }
        "map" if is_unknown && command == "verify" => {
            let tip = "fields are named by '--completion FIELD' and '--solution FIELD'";
            return Some(tip.to_string());
        }
        _ if name.starts_with("resume") && error.kind() == ErrorKind::ArgumentConflict => {
            let tip = "a resumed run keeps its recipe, parameters and configuration: to change the recipe, edit its \
                       file during the run; for other settings, start a new run without '--resume'";
            return Some(tip.to_string());
        }
        _ => {}
    }
    let is_unknown = is_unknown && takes_settings;
    let is_run = ["train", "compare"].contains(&command);
    let host = Host::new();
    let is_parameter = |word: &OsString| {
        let recipe = word.to_str().and_then(|word| host.load(word).ok());
        recipe.is_some_and(|recipe| recipe.params().iter().any(|(one, _)| one.name == name))
    };
    let is_known = || is_run && Config::key(name).is_some() || words.iter().any(is_parameter);
    let is_setting = is_unknown && is_known();
    is_setting.then(|| format!("set it with '--set {name}=VALUE'"))
}

/// The advantage lab: write, edit and run the advantage of RLVR training as short scripts.
#[derive(Parser)]
#[command(name = "advlab", version, about, max_term_width = 100)]
enum Command {
    Train(train::Train),
    Replay(runs::ReplayArguments),
    Export(runs::Export),
    Apply(apply::Apply),
    Verify(verify::Verify),
    Look(prompt::Look),
    Repl(prompt::Repl),
    Check(check::Check),
    Plan(plan::ShowPlan),
    Profile(profile::ProfileArguments),
    Objective(study::ShowObjective),
    Mass(study::ShowMass),
    Compare(compare::Compare),
    View(runs::ShowRuns),
    Recipes(library::Recipes),
    Doc(library::Doc),
    New(library::New),
    Lsp(lsp::LanguageServer),
}

/// Runs a command. Returns `false` if the command found a problem and reported it.
fn run(command: Command, words: &[OsString]) -> Result<bool> {
    match command {
        Command::Train(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Look(command) => command.run(),
        Command::Repl(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Profile(command) => command.run(),
        Command::Objective(command) => command.run(),
        Command::Mass(command) => command.run(),
        Command::Compare(command) => command.run(words),
        Command::View(command) => command.run(),
        Command::Recipes(command) => command.run(),
        Command::Doc(command) => command.run(),
        Command::New(command) => command.run(),
        Command::Lsp(command) => command.run(),
    }
}

/// Makes Ctrl-C and, on Unix, SIGTERM remove unfinished files, call `told` and end the process.
fn end_cleanly(told: fn()) -> Result<()> {
    let end = move |status| {
        discard_unfinished();
        told();
        std::process::exit(status);
    };
    #[cfg(unix)]
    {
        use signal_hook::consts::SIGTERM;
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM])?;
        // The exit status is 128 plus the signal's number, as in shells.
        std::thread::spawn(move || signals.forever().for_each(|signal| end(128 + signal)));
    }
    Ok(ctrlc::set_handler(move || end(130))?)
}

/// Returns a flag that the first Ctrl-C (or, on Unix, SIGTERM) sets; a second signal ends the process immediately.
fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_set = stop.clone();
    let handler = move |status| {
        if is_set.swap(true, Ordering::Relaxed) {
            std::process::exit(status);
        }
        // The error is ignored, because the step is finished even if nobody reads this message.
        streams::err!("\nfinishing the step; press Ctrl-C again to end immediately");
    };
    // A cluster sends SIGTERM before it takes the machine away. SIGHUP is not caught, because a handler would defeat `nohup`.
    #[cfg(unix)]
    {
        use signal_hook::consts::SIGTERM;
        // The signal is registered only once, because a signal between two registrations would be lost.
        let signals = signal_hook::iterator::Signals::new([SIGTERM]);
        let mut signals = signals.context("cannot catch SIGTERM")?;
        let handler = handler.clone();
        std::thread::spawn(move || signals.forever().for_each(|signal| handler(128 + signal)));
    }
    // 130 is the status of a process that Ctrl-C ended.
    ctrlc::set_handler(move || handler(130)).context("cannot catch Ctrl-C")?;
    Ok(stop)
}

/// The option that says when native kernels compute the losses of the built-ins that have such a kernel.
#[derive(Args, Clone, Copy)]
struct Natively {
    /// Compute the losses of `ppo_clip` and `pacs` by native kernels, with bit-identical results; `auto` uses a kernel once it
    /// has been faster than its script
    #[arg(long, value_name = "WHEN", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "on", "off"]).map(|when| match &*when {
            "on" => Mode::On,
            "off" => Mode::Off,
            _ => Mode::Auto,
        }))]
    native: Mode,
}

/// Prints an error; an error in a script is shown with the source line and carets.
fn report(error: &anyhow::Error) {
    match error.downcast_ref::<Diagnostics>() {
        Some(diagnostics) => streams::tell(diagnostics),
        None => streams::tell(&[Diagnostic::error(format!("{error:#}"))]),
    }
}

/// Loads a recipe with its settings, and prints the lint's warnings.
fn load(host: &Host, name: &str, settings: &[(String, String)]) -> Result<Recipe> {
    let mut recipe = host.load(name)?;
    set(&mut recipe, settings)?;
    streams::tell(recipe.warnings());
    Ok(recipe)
}

fn set(recipe: &mut Recipe, settings: &[(String, String)]) -> Result<()> {
    for (name, value) in settings {
        let set = recipe.set_text(name, value);
        set.map_err(|error| anyhow::anyhow!("{name}={value}: {error}"))?;
    }
    Ok(())
}

/// Parses a whole number of at least 0, for example the number of a step.
fn whole(text: &str) -> Result<u64, String> {
    let wrong = "a whole number of at least 0 is needed, such as 200";
    text.parse().map_err(|_| wrong.to_string())
}
