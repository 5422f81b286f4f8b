//! The commands: a table of calls and explanations, from which help and completion come, and the functions behind it.
//!
//! A command is a function of the session and the text behind its name; it reaches the session by its methods alone.

mod curve;
mod data;
mod diff;
mod edit;
mod graph;
mod plot;
mod recipe;
mod save;
mod watch;

use std::path::PathBuf;

use super::session::{Session, join};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc;
use crate::paint::{beside, wrapped};
use crate::suggest;

pub use self::curve::{Curve, Point};
pub(super) use self::edit::source;
pub(super) use self::recipe::{named, title};
pub(super) use self::watch::{Watched, lock};

type Answered = Result<String, Diagnostics>;

/// The commands in the order in which a newcomer needs them: how each is called and what it does.
const TABLE: &str = "\
help [NAME]            this list, or what NAME is: as ?NAME
recipe [RECIPE] [k=8]  load a recipe: then advantage(), loss(), p.k
params                 the recipe's parameters
set k=8                set a parameter of the recipe
run [RECIPE]           the recipe on this batch: reward, advantage, loss
diff [A] B [k=8]       A, or the recipe in use, against B by group accuracy
curve [RECIPE] [--n 32]  A+, A- and total |A| over the number of right ones
watch [FILE]           show at each save what a script changes here
edit [NAME]            your last input, the recipe or NAME in your editor
plot X [Y]             a histogram of X, or Y over X
grad [X]               dX/dlogp token by token; of the loss if not given
plan X                 the expression graph of X
time X                 how long X takes
load [PATH]            another batch: rollouts, a run's folder, a script
batch [STEP]           the batch, or that of another step of the run
vars                   your variables
save FILE              write what you typed as a script
reset                  forget your variables and functions
quit                   end the session, as :q, exit and Ctrl-D
";

/// A row of the table.
#[derive(Clone, Copy)]
pub(super) struct Command {
    /// The name after the colon.
    pub(super) name: &'static str,
    /// Its arguments, as help shows them.
    pub(super) arguments: &'static str,
    doc: &'static str,
}

/// The kind of a command's arguments, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Script,
    /// Names of recipes, or scripts.
    Recipes,
    /// A file or a folder.
    Path,
    Parameter,
    Step,
    /// A function, a recipe or a command.
    Name,
}

pub(super) fn commands() -> impl Iterator<Item = Command> {
    TABLE.lines().filter_map(|row| {
        let (call, doc) = row.split_once("  ")?;
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        let doc = doc.trim_start();
        Some(Command {
            name,
            arguments,
            doc,
        })
    })
}

impl Command {
    pub(super) fn find(name: &str) -> Option<Command> {
        commands().find(|command| command.name == name)
    }

    pub(super) fn takes(&self) -> Takes {
        let first = self.arguments.split(' ').next().unwrap_or("");
        match first.trim_matches(['[', ']']) {
            "" => Takes::Nothing,
            "RECIPE" | "A" => Takes::Recipes,
            "FILE" | "PATH" => Takes::Path,
            "STEP" => Takes::Step,
            "NAME" => Takes::Name,
            "X" => Takes::Script,
            _ => Takes::Parameter,
        }
    }

    /// How it is called: `:set k=8`.
    fn call(&self) -> String {
        format!(":{} {}", self.name, self.arguments)
            .trim_end()
            .to_string()
    }
}

/// Runs a command; the text is the input without its colon.
pub(super) fn run(session: &mut Session, text: &str) -> Answered {
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let command: fn(&mut Session, &str) -> Answered = match name.trim() {
        "help" | "h" | "?" => help,
        "recipe" => recipe::recipe,
        "params" => recipe::params,
        "set" => recipe::set,
        "run" => recipe::run,
        "diff" => diff::diff,
        "curve" => curve::curve,
        "watch" => watch::watch,
        "edit" | "e" => edit::edit,
        "plot" => plot::plot,
        "grad" => graph::grad,
        "plan" => graph::plan,
        "time" => graph::time,
        "load" => data::load,
        "batch" => data::batch,
        "vars" => data::vars,
        "save" => save::save,
        "reset" => data::reset,
        "quit" | "q" | "q!" | "exit" | "x" | "wq" => quit,
        name => {
            let help = match suggest::nearest(name, commands().map(|command| command.name)) {
                Some(near) => format!("did you mean `:{near}`?"),
                None => "`:help` lists the commands".to_string(),
            };
            let message = format!("there is no command `:{name}`");
            return Err(Diagnostic::error(message).with_help(help).into());
        }
    };
    command(session, arguments.trim())
}

fn quit(session: &mut Session, _: &str) -> Answered {
    session.end();
    Ok(String::new())
}

/// A name explained: a command, a function, a recipe or a topic; all commands without one.
pub(super) fn help(session: &mut Session, name: &str) -> Answered {
    let (host, paint) = (session.host(), session.paint);
    if name.is_empty() {
        return Ok(overview(session));
    }
    if ["functions", "all", "doc", "topics", "recipes"].contains(&name) {
        return Ok(doc::overview(paint));
    }
    let command = Command::find(name.trim_start_matches(':')).map(|command| {
        let call = paint.bold(&command.call());
        format!("{call}\n{}", wrapped("  ", command.doc, paint.width))
    });
    match command {
        Some(text) if name.starts_with(':') || !doc::is_known(name) => Ok(text),
        command => {
            let text = doc::explain(host, name, paint)?;
            Ok(join(text, command.map(|command| format!("\n{command}"))))
        }
    }
}

fn overview(session: &Session) -> String {
    let paint = session.paint;
    let row = |call: &str, indent: usize, text: &str| {
        beside(&format!("  {call}"), indent, &paint.dim(text), paint.width)
    };
    let intro = "Type a formula: `batch` is the batch, `_` the last value; `let` and `fn` last.";
    let examples = [
        ("batch", "its columns"),
        (
            "batch.reward - batch.reward.mean(\"group\")",
            "the advantage of Dr. GRPO",
        ),
        ("_ - _2", "the last value less that before"),
        (":curve", "what it gives right and wrong ones"),
        ("?mean", "what a function does, shown"),
        ("??grpo", "the source of a recipe or function"),
        ("?levels ?batch ?hooks ?params ?prompt", "topics"),
    ];
    let mut lines = vec![wrapped("", intro, paint.width)];
    lines.extend(examples.map(|(input, text)| row(input, 45, text)));
    lines.push(String::new());
    lines.extend(commands().map(|command| row(&command.call(), 27, command.doc)));
    lines.push(String::new());
    lines.push("Tab completes, Ctrl-C stops a computation, Ctrl-D ends.".to_string());
    lines.join("\n")
}

/// A command was called without what it needs.
fn missing(name: &str) -> Diagnostics {
    let error = Diagnostic::error(format!("`:{name}` needs an argument"));
    let call = Command::find(name).map_or(String::new(), |command| command.call());
    error.with_help(format!("it is `{call}`")).into()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Paint;
    use crate::script::Host;

    #[test]
    fn every_row_of_the_table_is_a_command() {
        let mut session = Session::new(&Host::new(), Paint::PLAIN);
        for command in commands() {
            let reply = session.submit(&format!(":{}", command.name));
            assert!(!reply.text.contains("no command"), "{}", command.name);
        }
        assert!(session.is_over());
        assert_eq!(commands().count(), TABLE.lines().count());
    }
}
