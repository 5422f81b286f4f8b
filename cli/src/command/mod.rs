//! The commands: a file each, wiring only.

mod apply;
mod check;
mod compare;
mod convert;
mod export;
mod library;
mod look;
mod mass;
mod objective;
mod printer;
mod profile;
mod repl;
mod replay;
mod streams;
mod train;
mod train_view;
mod usage;
mod verify;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::sync::Arc;

use crate::report::study::recipes_of;
use advlab::batch::{Dtype, Mapping, ReadOptions, Rollouts, Tokenize, discard_unfinished, read};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::native::Mode;
use advlab::paint::{Paint, beside, width};
use advlab::panics::silence_caught;
use advlab::script::{Host, Recipe};
use advlab_train::RunFolder;
use advlab_train::tokenizer::Tokenizer;
use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use same_file::is_same_file;

/// Runs the command line: the program's name and its arguments, as `advlab apply grpo rollouts.jsonl` has them. Prints
/// what the command prints, errors included; the status is 0 where it is done, 1 where the input is wrong, 2 at wrong usage.
pub fn command_line(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    silence_caught();
    let words = arguments.into_iter().collect::<Vec<_>>();
    match usage::arguments(&words).map(run) {
        Ok(Ok(code)) | Err(code) => code,
        Ok(Err(error)) if streams::reader_left(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            report(&error);
            ExitCode::from(1)
        }
    }
}

/// The advantage lab: write, edit and run the advantage of RLVR training as short scripts.
#[derive(Parser)]
#[command(
    name = "advlab",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train an embedded policy, with a recipe that can be edited while the run goes
    Train(train::Train),
    /// Repeat a run with its reloads, and say whether every number agrees
    Replay(replay::Replay),
    /// Write a run's model as a folder that transformers opens
    Export(export::Export),
    /// Compute advantages for rollouts in a file
    Apply(apply::Apply),
    Verify(verify::Verify),
    Look(look::Look),
    /// Write rollouts as another kind of file
    Convert(convert::Convert),
    /// Try formulas at a prompt, on a real batch
    Repl(repl::Repl),
    /// Test a recipe's invariants on degenerate batches
    Check(check::Check),
    /// See where the time of a recipe goes, by stage and by line
    Profile(profile::Profile),
    Objective(objective::ShowObjective),
    Mass(mass::ShowMass),
    Compare(compare::Compare),
    View(view::ShowRuns),
    Recipes(library::Recipes),
    /// Explain a recipe or a function, with an example
    Doc(library::Doc),
    /// Copy a built-in recipe to a file, to edit it
    New(library::New),
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Train(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Look(command) => command.run(),
        Command::Convert(command) => command.run(),
        Command::Repl(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Profile(command) => command.run(),
        Command::Objective(command) => command.run(),
        Command::Mass(command) => command.run(),
        Command::Compare(command) => command.run(),
        Command::View(command) => command.run(),
        Command::Recipes(recipes) => recipes.run(),
        Command::Doc(command) => command.run(),
        Command::New(command) => command.run(),
    }
}

/// Whether two paths are one file, also by way of links, there or to come. A device or a pipe loses nothing to a second use, and a
/// pipe that was opened to compare it would be broken.
fn is_same(one: &Path, other: &Path) -> bool {
    let is_no_file = |path: &Path| path.metadata().is_ok_and(|there| !there.is_file());
    if is_no_file(one) || is_no_file(other) {
        return false;
    }
    is_same_file(one, other).unwrap_or(false) || resolved(one) == resolved(other)
}

/// Whether a path is a file, or lies in a folder.
fn holds(input: &Path, path: &Path) -> bool {
    is_same(input, path) || input.is_dir() && resolved(path).starts_with(resolved(input))
}

/// The path without links, also of a file to come.
fn resolved(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let (found, beside) = (path.canonicalize(), folder.canonicalize());
    let to_come = || Some(beside.ok()?.join(path.file_name()?));
    found
        .ok()
        .or_else(to_come)
        .unwrap_or_else(|| absolute(path).unwrap_or_else(|_| path.to_path_buf()))
}

/// Ends the process at Ctrl-C or SIGTERM, with nothing half written left behind; `told` says so.
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
        // 128 and the signal's number, as shells have it.
        std::thread::spawn(move || signals.forever().for_each(|signal| end(128 + signal)));
    }
    Ok(ctrlc::set_handler(move || end(130))?)
}

/// One of the batches in a run's folder.
#[derive(clap::Args)]
struct AtStep {
    /// Of a run's folder, the batch of this step; the last one if not given
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    step: Option<u64>,
}

impl AtStep {
    /// The file that an input means.
    fn of(&self, input: &Path) -> Result<PathBuf, Diagnostics> {
        match self.of_run(input)? {
            Some(step) => Ok(RunFolder::open(input)?.at(step)?.to_path_buf()),
            None => Ok(input.to_path_buf()),
        }
    }

    /// The step, if one was asked for.
    fn of_run(&self, input: &Path) -> Result<Option<u64>, Diagnostics> {
        if self.step.is_some() && !input.is_dir() {
            let error =
                Diagnostic::error("`--step` takes a batch of a run's folder, and this is none");
            return Err(error.in_file(input).into());
        }
        Ok(self.step)
    }
}

/// What counts the tokens of completions.
#[derive(clap::Args)]
struct Tokenizing {
    /// Count the tokens of completions by a model's tokenizer.json, where nothing else says how long responses are; without it,
    /// words are counted
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Count those tokens too that the tokenizer puts around a text by itself
    #[arg(long, requires = "tokenizer")]
    special_tokens: bool,
}

impl Tokenizing {
    fn load(&self) -> Result<Option<Arc<dyn Tokenize>>> {
        let load = |path: &PathBuf| Tokenizer::load(path, self.special_tokens);
        let tokenizer = self.tokenizer.as_ref().map(load).transpose()?;
        Ok(tokenizer.map(|tokenizer| Arc::new(tokenizer) as Arc<dyn Tokenize>))
    }
}

/// Whether kernels answer hooks of built-ins.
#[derive(clap::Args, Clone, Copy)]
struct Natively {
    /// Whether kernels answer hooks of built-ins, with the bits of their scripts: where these take long, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "on", "off"]).map(|when| match &*when {
            "on" => Mode::On,
            "off" => Mode::Off,
            _ => Mode::Auto,
        }))]
    native: Mode,
}

/// Prints what went wrong, a script's error with its line and a caret.
fn report(error: &anyhow::Error) {
    let diagnostics = match error.downcast_ref::<Diagnostics>() {
        Some(diagnostics) => diagnostics.clone(),
        None => Diagnostic::error(chain(error)).into(),
    };
    streams::tell(&diagnostics);
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
fn load(host: &Host, name: &str, settings: &[(String, String)]) -> Result<Recipe> {
    let mut recipe = host.load(name)?;
    set(&mut recipe, settings)?;
    streams::tell(recipe.warnings());
    Ok(recipe)
}

fn set(recipe: &mut Recipe, settings: &[(String, String)]) -> Result<()> {
    for (name, value) in settings {
        recipe
            .set_text(name, value)
            .map_err(|error| anyhow::anyhow!("{name}={value}: {error}"))?;
    }
    Ok(())
}

/// The recipes that words name, each with the settings behind it, and those for all of them.
fn designs(host: &Host, words: &[String], settings: &[(String, String)]) -> Result<Vec<Recipe>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut loaded = Vec::new();
    for (name, own) in recipes_of(&words)? {
        let own: Vec<(String, String)> =
            own.into_iter().filter_map(|word| pair(word).ok()).collect();
        let mut recipe = host.load(name)?;
        set(&mut recipe, settings)?;
        set(&mut recipe, &own)?;
        loaded.push(recipe);
    }
    Ok(loaded)
}

/// A recipe's name, version and settings.
fn title(name: &str, recipe: &Recipe, paint: Paint) -> String {
    let version = recipe.version().short();
    let head = format!("{} {}", paint.bold(name), paint.dim(version));
    let settings = paint.dim(&recipe.params().to_string());
    beside(&head, width(&head) + 2, &settings, paint.width)
}

/// The rollouts of a file, or of the last batch in a run's folder, and notes on how they were read.
fn rollouts(
    input: &Path,
    map: &[(String, String)],
    dtype: Option<Dtype>,
    columns: Option<&[String]>,
    tokenizer: Option<&Arc<dyn Tokenize>>,
) -> Result<(Rollouts, Vec<String>)> {
    let (mut path, mut notes) = (input.to_path_buf(), Vec::new());
    if let Ok(kept) = RunFolder::open(input) {
        path = kept.last().1.to_path_buf();
        let (run, batch) = (input.display(), path.display());
        notes.push(format!(
            "{run} is a run's folder: this is its last batch, {batch} (`--step N` takes another)"
        ));
    }
    let options = ReadOptions {
        map: &mappings(map),
        dtype,
        columns,
        tokenizer,
        progress: Some(&streams::bytes_bar("reading")),
    };
    let rollouts = read(&path, &options)?;
    notes.extend(rollouts.notes.iter().map(ToString::to_string));
    Ok((rollouts, notes))
}

/// `--map reward=score`, as the readers take it.
fn mappings(map: &[(String, String)]) -> Vec<Mapping> {
    let pairs = map.iter().cloned();
    pairs
        .map(|(ours, theirs)| Mapping { ours, theirs })
        .collect()
}

/// A name with its value, as in `--set k=8` and `--map reward=score`.
fn pair(text: &str) -> Result<(String, String), String> {
    let trimmed = |(name, value): (&str, &str)| (name.trim().to_string(), value.trim().to_string());
    let pair = text.split_once('=').map(trimmed);
    pair.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        format!("\"{text}\" is not of the form NAME=VALUE, such as k=8 or reward=score")
    })
}

/// A whole number, such as a step.
fn whole(text: &str) -> Result<u64, String> {
    let wrong = "it takes a whole number, such as 200";
    text.parse().map_err(|_| wrong.to_string())
}
