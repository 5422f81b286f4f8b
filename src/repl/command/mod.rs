//! The commands: a table of names, arguments and explanations, from which help, completion and dispatch come.

mod curve;
mod data;
mod diff;
mod graph;
mod plot;
mod recipe;
mod save;
mod watch;

use std::path::PathBuf;

use super::session::Session;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::paint::Paint;
use crate::suggest;

pub use self::curve::{Point, points};
pub(super) use self::recipe::title;
pub(super) use self::watch::{Watched, lock};

/// What a command's text becomes.
type Answered = Result<String, Diagnostics>;

/// What a command takes, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// A piece of script.
    Script,
    /// Names of recipes, or scripts.
    Recipes,
    /// A file or a folder.
    Path,
    /// A parameter.
    Parameter,
    /// A step of the run.
    Step,
    /// A function, a recipe or a command.
    Name,
}

/// A row of the table.
pub(super) struct Command {
    /// The name after the colon.
    pub(super) name: &'static str,
    /// Its arguments, as help shows them.
    pub(super) arguments: &'static str,
    /// What it does, in one line.
    pub(super) doc: &'static str,
    pub(super) takes: Takes,
    run: fn(&mut Session, &str) -> Answered,
}

const fn command(
    name: &'static str,
    arguments: &'static str,
    takes: Takes,
    doc: &'static str,
    run: fn(&mut Session, &str) -> Answered,
) -> Command {
    Command {
        name,
        arguments,
        doc,
        takes,
        run,
    }
}

/// All commands, in the order in which a newcomer needs them.
pub(super) const COMMANDS: &[Command] = &[
    command(
        "help",
        "[NAME]",
        Takes::Name,
        "this list, or what NAME is: as ?NAME",
        help,
    ),
    command(
        "recipe",
        "[RECIPE] [k=8]",
        Takes::Recipes,
        "load a recipe: then advantage(), loss(), p.k",
        recipe::recipe,
    ),
    command(
        "params",
        "",
        Takes::Nothing,
        "the recipe's parameters",
        recipe::params,
    ),
    command(
        "set",
        "k=8",
        Takes::Parameter,
        "set a parameter of the recipe",
        recipe::set,
    ),
    command(
        "run",
        "[RECIPE]",
        Takes::Recipes,
        "the recipe on this batch: reward, advantage, loss",
        recipe::run,
    ),
    command(
        "diff",
        "[A] B [k=8]",
        Takes::Recipes,
        "A, or the recipe in use, against B by group accuracy",
        diff::diff,
    ),
    command(
        "curve",
        "[RECIPE] [--n 32]",
        Takes::Recipes,
        "A+, A- and total |A| over the number of right ones",
        curve::curve,
    ),
    command(
        "watch",
        "[FILE]",
        Takes::Path,
        "show at each save what a script changes here",
        watch::watch,
    ),
    command(
        "plot",
        "X [Y]",
        Takes::Script,
        "a histogram of X, or Y over X",
        plot::plot,
    ),
    command(
        "grad",
        "[X]",
        Takes::Script,
        "dX/dlogp token by token; of the loss if not given",
        graph::grad,
    ),
    command(
        "plan",
        "X",
        Takes::Script,
        "the expression graph of X",
        graph::plan,
    ),
    command("time", "X", Takes::Script, "how long X takes", graph::time),
    command(
        "load",
        "[PATH]",
        Takes::Path,
        "another batch: rollouts, a run's folder, a script",
        data::load,
    ),
    command(
        "batch",
        "[STEP]",
        Takes::Step,
        "the batch, or that of another step of the run",
        data::batch,
    ),
    command("vars", "", Takes::Nothing, "your variables", data::vars),
    command(
        "save",
        "FILE",
        Takes::Path,
        "write what you typed as a script",
        save::save,
    ),
    command(
        "reset",
        "",
        Takes::Nothing,
        "forget your variables and functions",
        data::reset,
    ),
    command(
        "quit",
        "",
        Takes::Nothing,
        "end the session, as Ctrl-D",
        quit,
    ),
];

impl Session {
    /// Runs a command; the text is what stands after the colon.
    pub(super) fn command(&mut self, text: &str) -> Answered {
        let (name, arguments) = match text.split_once(char::is_whitespace) {
            Some((name, arguments)) => (name, arguments.trim()),
            None => (text.trim(), ""),
        };
        let name = if name == "exit" { "quit" } else { name };
        let found = COMMANDS.iter().find(|command| command.name == name);
        let Some(command) = found else {
            let names = || COMMANDS.iter().map(|command| command.name);
            let help = match suggest::nearest(name, names()) {
                Some(near) => format!("did you mean `:{near}`?"),
                None => "`:help` lists the commands".to_string(),
            };
            let message = format!("there is no command `:{name}`");
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        (command.run)(self, arguments)
    }
}

fn quit(session: &mut Session, _: &str) -> Answered {
    session.is_over = true;
    Ok(String::new())
}

fn help(session: &mut Session, name: &str) -> Answered {
    if !name.is_empty() {
        return session.explain(name);
    }
    let paint = session.paint;
    let mut lines = vec![
        "Type a formula: `batch` is the batch, `_` the last value; `let` and `fn` last."
            .to_string(),
        example(paint, "batch", "its columns"),
        example(
            paint,
            "batch.reward - batch.reward.mean(\"group\")",
            "the advantage of Dr. GRPO",
        ),
        example(paint, ":curve", "what that gives right and wrong ones"),
        example(paint, "?mean", "what a function does, shown"),
        example(
            paint,
            "?levels ?batch ?hooks ?params ?state",
            "what they are",
        ),
        String::new(),
    ];
    for command in COMMANDS {
        let call = format!(":{} {}", command.name, command.arguments);
        lines.push(format!(
            "  {:<24} {}",
            call.trim_end(),
            paint.dim(command.doc)
        ));
    }
    lines.push(String::new());
    lines.push("Tab completes, Ctrl-C stops a computation, Ctrl-D ends.".to_string());
    Ok(lines.join("\n"))
}

fn example(paint: Paint, input: &str, what: &str) -> String {
    format!("  {input:<42} {}", paint.dim(what))
}

/// A command was called without what it needs.
fn missing(command: &str) -> Diagnostics {
    let usage = COMMANDS.iter().find(|row| row.name == command);
    let arguments = usage.map_or("", |row| row.arguments);
    let message = format!("`:{command}` needs more");
    Diagnostic::error(message)
        .with_help(format!("it is `:{command} {arguments}`"))
        .into()
}

/// The words of a command's arguments without the option of that name, and the option's value.
fn option(arguments: &str, name: &str) -> Result<(String, Option<String>), Diagnostics> {
    let Some(start) = arguments.find(name).filter(|&start| {
        let after = arguments[start + name.len()..].chars().next();
        after.is_none_or(|next| next.is_whitespace() || next == '=')
    }) else {
        return Ok((arguments.trim().to_string(), None));
    };
    let after = arguments[start + name.len()..].trim_start();
    let after = after.strip_prefix('=').unwrap_or(after);
    let (value, rest) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
    if value.is_empty() {
        return Err(Diagnostic::error(format!("`{name}` needs a value")).into());
    }
    let words = format!("{} {}", arguments[..start].trim_end(), rest.trim_start());
    Ok((words.trim().to_string(), Some(value.to_string())))
}

/// The file that `--out` names.
fn out(arguments: &str) -> Result<(String, Option<PathBuf>), Diagnostics> {
    let (rest, file) = option(arguments, "--out")?;
    Ok((rest, file.map(PathBuf::from)))
}
