//! The prompt: a session that turns text into replies, and the terminal in which it runs.
//!
//! [`PromptSession`] holds the state, and knows no commands. A command is a function of the session and of the command's
//! arguments; `run` below finds the function by the command's name, so a new command needs a line in `run` and in `help.txt`.

mod arguments;
mod complete;
mod look;
mod recipe;
mod session;
mod source;
mod terminal;
mod watch;

use std::path::Path;

pub use self::session::{PromptSession, Reply};
pub use self::terminal::{piped, terminal};
pub use crate::loaded::builtin;
pub use crate::paint::Paint;

use self::arguments::{Arguments, HELP, commands, row};
use self::session::{Answered, is_command, step};
use crate::doc;
use crate::loaded::LoadedBatch;
use crate::paint::{beside, wrapped};
use crate::report::show;
use crate::{Result, wrong};
use advlab::session::{Answer, is_typed};
use advlab::suggest::nearest;

impl PromptSession {
    /// Evaluates an input: a piece of script, a command, or a question. The text may also be several inputs that were pasted
    /// together, with each command and question on a separate line.
    pub fn submit(&mut self, text: &str) -> Reply {
        let (mut texts, mut is_error) = (Vec::new(), false);
        let mut rest = text;
        while !rest.trim().is_empty() && !self.is_over {
            let (input, more) = rest.split_at(self.first_input(rest));
            rest = more;
            texts.push(self.answer(input).unwrap_or_else(|error| {
                is_error = true;
                self.rendered(&error)
            }));
        }
        texts.retain(|text| !text.is_empty());
        let text = texts.join("\n");
        Reply { text, is_error }
    }

    /// Returns the end of the first input in a text of several inputs. An input is either a line with a command or a question, or
    /// the lines of script before such a line.
    fn first_input(&self, text: &str) -> usize {
        let mut end = 0;
        for line in text.split_inclusive('\n') {
            let before = &text[..end];
            let is_next = || is_command(before) || is_command(line) && !self.is_incomplete(before);
            if !before.trim().is_empty() && is_next() {
                break;
            }
            end += line.len();
        }
        end
    }

    fn answer(&mut self, text: &str) -> Answered {
        self.take_up_version();
        self.script.guard().rearm();
        let input = text.trim();
        let word = input.trim_end_matches("()");
        if let Some(command) = input.strip_prefix(':') {
            run(self, command)
        } else if let Some(name) = input.strip_prefix("??") {
            source::show(self, name.trim())
        } else if let Some(name) = input.strip_prefix('?') {
            help(self, name.trim())
        } else if ["help", "quit", "exit"].contains(&word) && !self.script.has_variable(word) {
            // These words also work without the colon, because many users omit it.
            run(self, word)
        } else {
            self.evaluate(text.trim_end())
        }
    }
}

type Handler = fn(&mut PromptSession, &Arguments<'_>) -> Answered;

/// Runs a command; the text is the input without its colon.
fn run(session: &mut PromptSession, text: &str) -> Answered {
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let function: Handler = match name {
        "help" => |session, arguments| help(session, arguments.text),
        "recipe" => recipe::load,
        "params" => recipe::params,
        "set" => recipe::set,
        "run" => recipe::run,
        "diff" => recipe::diff,
        "curve" => recipe::curve,
        "objective" => recipe::objective,
        "mass" => recipe::mass,
        "surface" => recipe::surface,
        "watch" => source::watch,
        "edit" => source::edit,
        "plot" => recipe::plot,
        "grad" => recipe::grad,
        "profile" => recipe::profile,
        "plan" => recipe::plan,
        "step" => recipe::steps,
        "load" => load,
        "batch" => batch,
        "look" => |session, arguments| session.look(arguments.text),
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
    match commands().find(|command| command.name == name) {
        Some(command) => function(session, &Arguments::parse(&command, arguments.trim())?),
        None => function(session, &Arguments::default()),
    }
}

/// Explains a name: a command, a function, a recipe or a topic. Without a name, lists all commands.
fn help(session: &PromptSession, name: &str) -> Answered {
    let paint = session.paint;
    let command = commands().find(|command| command.name == name.trim_start_matches(':'));
    match (name, command) {
        ("", _) => {
            let line = |line: &'static str| match row(line) {
                Some((input, doc)) => {
                    let indent = line.len() - doc.len();
                    beside(&format!("  {input}"), indent, &paint.dim(doc), paint.width)
                }
                None => wrapped("", line, paint.width),
            };
            Ok(HELP.lines().map(line).collect::<Vec<_>>().join("\n"))
        }
        ("functions" | "recipes", _) => Ok(doc::overview(paint)),
        (name, Some(command))
            if name.starts_with(':') || doc::names().all(|known| known != name) =>
        {
            let doc = wrapped("  ", command.doc, paint.width);
            Ok(format!("{}\n{doc}", paint.bold(command.call)))
        }
        (name, _) => doc::explain(&session.host, name, paint),
    }
}

fn load(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    match arguments.text.trim_matches('"') {
        "" => session.use_data(LoadedBatch::builtin()),
        path => {
            session.unscored = arguments.unscored.unwrap_or(session.unscored);
            session.open(Path::new(path), &arguments.map)?;
        }
    }
    Ok(session.about_data())
}

fn batch(session: &mut PromptSession, arguments: &Arguments<'_>) -> Answered {
    if arguments.text.is_empty() {
        return session.evaluate("batch");
    }
    session.go_to(step(arguments.text)?)?;
    Ok(session.about_data())
}

fn vars(session: &mut PromptSession, _: &Arguments<'_>) -> Answered {
    let variables = session.script.variables();
    let longest = variables.iter().map(|(name, _)| name.len()).max();
    let Some(indent) = longest.map(|longest| longest + 4) else {
        return Ok("no variables yet: `let r = batch.reward` makes one".to_string());
    };
    let line = |(name, value): &(String, Result<Answer>)| {
        let shown = match value {
            Ok(answer) => show::brief(answer, session.paint.width.saturating_sub(indent)),
            Err(error) => error[0].message.clone(),
        };
        format!("{:<indent$}{shown}", format!("  {name}"))
    };
    Ok(variables.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn reset(session: &mut PromptSession, _: &Arguments<'_>) -> Answered {
    session.script.reset();
    session.last_input.clear();
    session.is_unfinished = false;
    if session.script.recipe().is_some_and(is_typed) {
        session.script.use_recipe(None);
    }
    Ok("your variables and functions are gone; the batch and a loaded recipe stay".to_string())
}

fn quit(session: &mut PromptSession, _: &Arguments<'_>) -> Answered {
    session.is_over = true;
    Ok(String::new())
}
