//! The commands: a table of calls and explanations (`help.txt`), from which help and completion come, and a function for each.

use std::path::Path;

use super::data::Data;
use super::{Answered, Session, diff, look, recipe, show, source, study, watch};
use crate::doc;
use crate::wrong;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Mapping;
use advlab::paint::{beside, wrapped};
use advlab::suggest::nearest;

/// The answer to `:help`. Its second paragraph is the table of commands, in the order in which a newcomer needs them.
const HELP: &str = include_str!("help.txt");

/// The options, and the commands that take them.
pub(super) const OPTIONS: [(&str, &[&str]); 3] = [
    ("--n", &["curve", "objective"]),
    ("--out", &["curve", "objective", "plot", "surface"]),
    ("--map", &["load"]),
];

/// A row of the table.
pub(super) struct Command {
    /// How it is written: `:set k=8`.
    call: &'static str,
    /// The name after the colon.
    pub(super) name: &'static str,
    /// Its arguments, as help shows them; optional ones are in brackets.
    pub(super) arguments: &'static str,
    doc: &'static str,
}

pub(super) fn commands() -> impl Iterator<Item = Command> {
    let table = HELP.split("\n\n").nth(1).unwrap_or_default();
    table.lines().filter_map(|line| {
        let (call, doc) = row(line)?;
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        let name = name.strip_prefix(':')?;
        Some(Command {
            call,
            name,
            arguments,
            doc,
        })
    })
}

/// A row of the help: what is typed, and what it does.
fn row(line: &'static str) -> Option<(&'static str, &'static str)> {
    let (input, doc) = line.strip_prefix("  ")?.split_once("  ")?;
    Some((input, doc.trim_start()))
}

impl Command {
    pub(super) fn find(name: &str) -> Option<Command> {
        commands().find(|command| command.name == name)
    }

    /// The error of an argument.
    fn wrong(&self, what: &str) -> Diagnostics {
        wrong(
            format!("`:{}` {what}", self.name),
            format!("it is `{}`", self.call),
        )
    }
}

/// What is typed behind a command's name.
#[derive(Default)]
pub(super) struct Arguments<'t> {
    /// The text before the options.
    pub(super) text: &'t str,
    /// The size of the groups, `--n 32`.
    pub(super) size: Option<usize>,
    /// The file of the figure, `--out figure.svg`.
    pub(super) out: Option<&'t Path>,
    /// The fields of a file by their names here, `--map reward=score`.
    map: Vec<Mapping>,
}

impl<'t> Arguments<'t> {
    fn parse(command: &Command, text: &'t str) -> Result<Arguments<'t>, Diagnostics> {
        let start = match text.starts_with("--") {
            true => 0,
            false => text.find(" --").unwrap_or(text.len()),
        };
        let (text, options) = text.split_at(start);
        let text = text.trim();
        let is_optional = |word: &str| word.starts_with('[') || word.ends_with(']');
        if text.is_empty() && !command.arguments.split_whitespace().all(is_optional) {
            return Err(command.wrong("needs an argument"));
        }
        let mut arguments = Arguments {
            text,
            ..Arguments::default()
        };
        let mut words = options.split_whitespace();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, value),
                None => (word, words.next().unwrap_or_default()),
            };
            if arguments.set(command, name, value).is_none() {
                let what = format!("does not take `{}`", format!("{name} {value}").trim_end());
                return Err(command.wrong(&what));
            }
        }
        Ok(arguments)
    }

    fn set(&mut self, command: &Command, name: &str, value: &'t str) -> Option<()> {
        let option = OPTIONS.iter().find(|(option, _)| *option == name)?;
        if !option.1.contains(&command.name) || value.is_empty() {
            return None;
        }
        match name {
            "--n" => self.size = Some(value.parse().ok().filter(|n| (1..=1024).contains(n))?),
            "--out" => self.out = Some(Path::new(value)),
            _ => {
                let (ours, theirs) = value.split_once('=')?;
                let (ours, theirs) = (ours.to_string(), theirs.to_string());
                self.map.push(Mapping { ours, theirs });
            }
        }
        Some(())
    }
}

type Run = fn(&mut Session, &Arguments<'_>) -> Answered;

/// Runs a command; the text is the input without its colon.
pub(super) fn run(session: &mut Session, text: &str) -> Answered {
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let function: Run = match name {
        "help" => |session, arguments| session.help(arguments.text),
        "recipe" => recipe::load,
        "params" => recipe::params,
        "set" => recipe::set,
        "run" => recipe::run,
        "diff" => diff::diff,
        "curve" => study::curve,
        "objective" => study::objective,
        "mass" => study::mass,
        "surface" => study::surface,
        "watch" => watch::watch,
        "edit" => source::edit,
        "plot" => study::plot,
        "grad" => study::grad,
        "profile" => study::profile,
        "load" => load,
        "batch" => batch,
        "look" => look::look,
        "vars" => vars,
        "save" => source::save,
        "reset" => reset,
        "quit" | "q" | "exit" => quit,
        name => {
            let help = match nearest(name, commands().map(|command| command.name)) {
                Some(near) => format!("did you mean `:{near}`?"),
                None => "`:help` lists the commands".to_string(),
            };
            return Err(wrong(format!("there is no command `:{name}`"), help));
        }
    };
    match Command::find(name) {
        Some(command) => function(session, &Arguments::parse(&command, arguments.trim())?),
        None => function(session, &Arguments::default()),
    }
}

impl Session {
    /// Explains a name: a command, a function, a recipe or a topic; lists all commands without one.
    pub(super) fn help(&self, name: &str) -> Answered {
        let paint = self.paint;
        let command = Command::find(name.trim_start_matches(':'));
        match (name, command) {
            ("", _) => {
                let line = |line: &'static str| match row(line) {
                    Some((input, doc)) => {
                        let indent = line.len() - doc.len();
                        let doc = paint.dim(doc);
                        beside(&format!("  {input}"), indent, &doc, paint.width)
                    }
                    None => wrapped("", line, paint.width),
                };
                Ok(HELP.lines().map(line).collect::<Vec<_>>().join("\n"))
            }
            ("functions" | "recipes", _) => Ok(doc::overview(paint)),
            (name, Some(command)) if name.starts_with(':') || !doc::is_known(name) => {
                let doc = wrapped("  ", command.doc, paint.width);
                Ok(format!("{}\n{doc}", paint.bold(command.call)))
            }
            (name, _) => doc::explain(&self.host, name, paint),
        }
    }
}

fn load(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    match arguments.text.trim_matches('"') {
        "" => session.use_data(Data::builtin()),
        path => session.open(Path::new(path), &arguments.map)?,
    }
    Ok(session.about_data())
}

fn batch(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    let step = arguments.text;
    if step.is_empty() {
        return session.evaluate("batch");
    }
    let wrong = |_| Diagnostic::error(format!("`{step}` is not the number of a step"));
    session.go_to(step.parse().map_err(wrong)?)?;
    Ok(session.about_data())
}

fn vars(session: &mut Session, _: &Arguments<'_>) -> Answered {
    let variables = session.script.variables();
    if variables.is_empty() {
        return Ok("no variables yet: `let r = batch.reward` makes one".to_string());
    }
    let longest = variables.iter().map(|(name, _)| name.len()).max();
    let indent = longest.unwrap_or(0) + 4;
    let line = |(name, value): &(String, Result<_, Diagnostics>)| {
        let shown = match value {
            Ok(answer) => show::brief(answer, session.paint.width.saturating_sub(indent)),
            Err(error) => error[0].message.clone(),
        };
        format!("{:<indent$}{shown}", format!("  {name}"))
    };
    Ok(variables.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn reset(session: &mut Session, _: &Arguments<'_>) -> Answered {
    session.script.reset();
    session.last_input.clear();
    session.lacks_function = false;
    if session
        .script
        .recipe()
        .is_some_and(advlab::session::is_typed)
    {
        session.script.use_recipe(None);
    }
    Ok("what you typed is gone; the batch and a loaded recipe stay".to_string())
}

fn quit(session: &mut Session, _: &Arguments<'_>) -> Answered {
    session.is_over = true;
    Ok(String::new())
}
