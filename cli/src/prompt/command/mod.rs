//! The commands: a table of calls and explanations, from which help and completion come, and the functions behind it.
//!
//! A command is a function of the session and the text after its name.

mod data;
mod diff;
mod graph;
mod look;
mod plot;
mod recipe;
mod source;
mod study;
mod watch;

use super::session::{Session, join};
use crate::doc;
pub(super) use crate::wrong;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::paint::{Paint, beside, wrapped};
use advlab::suggest;

pub(super) use self::look::look;
pub(super) use self::recipe::{named, title};
pub(super) use self::source::source;
pub(super) use self::watch::{Watched, Watching, lock};

type Answered = Result<String, Diagnostics>;

/// The answer to `:help`. Its second paragraph is the table of commands, in the order in which a newcomer needs them.
const HELP: &str = include_str!("../help.txt");

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

    fn needs_argument(&self) -> bool {
        let needed =
            |word: &str| !word.is_empty() && !word.starts_with('[') && !word.ends_with(']');
        self.arguments.split(' ').any(needed)
    }
}

/// Runs a command; the text is the input without its colon.
pub(super) fn run(session: &mut Session, text: &str) -> Answered {
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (name, arguments) = (name.trim(), arguments.trim());
    let command: fn(&mut Session, &str) -> Answered = match name {
        "help" | "h" | "?" => help,
        "recipe" => recipe::recipe,
        "params" => recipe::params,
        "set" => recipe::set,
        "run" => recipe::run,
        "diff" => diff::diff,
        "curve" => study::curve,
        "surface" => study::surface,
        "objective" => study::objective,
        "mass" => study::mass,
        "watch" => watch::watch,
        "edit" | "e" => source::edit,
        "plot" => plot::plot,
        "grad" => graph::grad,
        "profile" => graph::profile,
        "load" => data::load,
        "batch" => data::batch,
        "look" => look::look,
        "vars" => data::vars,
        "save" => source::save,
        "reset" => data::reset,
        "quit" | "q" | "q!" | "exit" | "x" | "wq" => |session, _| {
            session.is_over = true;
            Ok(String::new())
        },
        name => {
            let help = match suggest::nearest(name, commands().map(|command| command.name)) {
                Some(near) => format!("did you mean `:{near}`?"),
                None => "`:help` lists the commands".to_string(),
            };
            return Err(wrong(format!("there is no command `:{name}`"), help));
        }
    };
    match Command::find(name) {
        Some(row) if row.needs_argument() && arguments.is_empty() => {
            let help = format!("it is `{}`", row.call);
            Err(wrong(format!("`:{name}` needs an argument"), help))
        }
        _ => command(session, arguments),
    }
}

/// Explains a name: a command, a function, a recipe or a topic; lists all commands without one.
pub(super) fn help(session: &mut Session, name: &str) -> Answered {
    let paint = session.paint;
    if name.is_empty() {
        return Ok(overview(paint));
    }
    if ["functions", "all", "doc", "topics", "recipes"].contains(&name) {
        return Ok(doc::overview(paint));
    }
    let command = Command::find(name.trim_start_matches(':')).map(|command| {
        let call = paint.bold(command.call);
        format!("{call}\n{}", wrapped("  ", command.doc, paint.width))
    });
    match command {
        Some(text) if name.starts_with(':') || !doc::is_known(name) => Ok(text),
        command => {
            let text = doc::explain(&session.host, name, paint)?;
            Ok(join(text, command.map(|command| format!("\n{command}"))))
        }
    }
}

fn overview(paint: Paint) -> String {
    let fitted = |line: &'static str| match row(line) {
        Some((input, doc)) => {
            let indent = line.len() - doc.len();
            beside(&format!("  {input}"), indent, &paint.dim(doc), paint.width)
        }
        None => wrapped("", line, paint.width),
    };
    HELP.lines().map(fitted).collect::<Vec<_>>().join("\n")
}

/// A command's arguments without the option of that name, and the option's value.
fn option(arguments: &str, name: &str) -> Result<(String, Option<String>), Diagnostics> {
    let ends_name = |letter: char| letter.is_whitespace() || letter == '=';
    let found = arguments.split_once(name);
    let Some((before, after)) =
        found.filter(|(_, after)| after.is_empty() || after.starts_with(ends_name))
    else {
        return Ok((arguments.trim().to_string(), None));
    };
    let after = after.trim_start_matches(ends_name);
    let (value, rest) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
    if value.is_empty() {
        return Err(Diagnostic::error(format!("`{name}` needs a value")).into());
    }
    let words = format!("{} {}", before.trim_end(), rest.trim_start());
    Ok((words.trim().to_string(), Some(value.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use advlab::paint::Paint;
    use advlab::script::Host;

    #[test]
    fn every_row_of_the_table_is_a_command() {
        let mut session = Session::new(&Host::new(), Paint::PLAIN);
        for command in commands() {
            let reply = session.submit(&format!(":{}", command.name));
            assert!(!reply.text.contains("no command"), "{}", command.name);
        }
        assert!(session.is_over());
        let rows = HELP.lines().filter(|line| line.starts_with("  :")).count();
        // One of them is an example.
        assert_eq!(commands().count(), rows - 1);
    }
}
