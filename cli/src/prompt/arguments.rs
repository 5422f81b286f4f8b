//! The table of commands (`help.txt`), which help and completion use, and the arguments of a command.

use std::path::Path;

use crate::report::draw::FigureWidth;
use crate::{Result, correlation, mapping, number_for_recipe, unscored, wrong};
use advlab::files::{Mapping, Unscored};
use clap::ValueEnum;

/// The answer to `:help`. The second paragraph is the table of commands, in the order in which a newcomer needs the commands.
pub(super) const HELP: &str = include_str!("help.txt");

/// The options, each with the commands that take it.
pub(super) const OPTIONS: [(&str, &[&str]); 6] = [
    ("--n", &["curve", "objective"]),
    ("--noise", &["objective"]),
    ("--out", &["curve", "mass", "objective", "plot", "surface"]),
    (
        "--width",
        &["curve", "mass", "objective", "plot", "surface"],
    ),
    ("--map", &["load"]),
    ("--unscored", &["load"]),
];

/// A row of the table of commands.
pub(super) struct PromptCommand {
    /// The form of a call, such as `:set k=8`.
    pub(super) call: &'static str,
    /// The name after the colon.
    pub(super) name: &'static str,
    /// The arguments as the help shows them; optional arguments are in brackets.
    pub(super) arguments: &'static str,
    pub(super) doc: &'static str,
}

pub(super) fn commands() -> impl Iterator<Item = PromptCommand> {
    let table = HELP.split("\n\n").nth(1).unwrap_or_default();
    table.lines().filter_map(|line| {
        let (call, doc) = row(line)?;
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        Some(PromptCommand {
            call,
            name: name.strip_prefix(':')?,
            arguments,
            doc,
        })
    })
}

/// Splits a line of the help into the input and the description of its effect.
pub(super) fn row(line: &'static str) -> Option<(&'static str, &'static str)> {
    let (input, doc) = line.strip_prefix("  ")?.split_once("  ")?;
    Some((input, doc.trim_start()))
}

/// The arguments after a command's name.
#[derive(Default)]
pub(super) struct Arguments<'t> {
    /// The text before the options.
    pub(super) text: &'t str,
    /// The size of the groups, as in `--n 32`.
    pub(super) size: Option<usize>,
    /// The correlation for which the noise of updates is also shown, as in `--noise=0.1`.
    pub(super) noise: Option<f64>,
    /// The file of the figure, as in `--out figure.svg`.
    pub(super) out: Option<&'t Path>,
    /// The width of the figure, as in `--width single`.
    pub(super) width: FigureWidth,
    /// The fields of a file that are read under other names, as in `--map reward=score`.
    pub(super) map: Vec<Mapping>,
    /// The treatment of responses whose `reward` or `correct` is null, NaN or missing, as in `--unscored zero`.
    pub(super) unscored: Option<Unscored>,
}

impl<'t> Arguments<'t> {
    pub(super) fn parse(command: &PromptCommand, text: &'t str) -> Result<Arguments<'t>> {
        let error = |what: String| {
            let message = format!("`:{}` {what}", command.name);
            wrong(message, format!("write `{}`", command.call))
        };
        let start = if text.starts_with("--") {
            0
        } else {
            text.find(" --").unwrap_or(text.len())
        };
        let (text, options) = text.split_at(start);
        let mut arguments = Arguments {
            text: text.trim(),
            ..Arguments::default()
        };
        let is_optional = |word: &str| word.starts_with('[') || word.ends_with(']');
        if arguments.text.is_empty() && !command.arguments.split_whitespace().all(is_optional) {
            return Err(error("needs an argument".to_string()));
        }
        let mut words = options.split_whitespace();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some(pair) => pair,
                // The value of `--noise` is optional.
                None if word == "--noise" => (word, "0.1"),
                None => (word, words.next().unwrap_or_default()),
            };
            let number = number_for_recipe(word).filter(|_| command.name == "objective");
            if let Some(error) = number {
                return Err(error);
            }
            if arguments.set(command, name, value).is_none() {
                let option = format!("{name} {value}");
                return Err(error(format!("does not take `{}`", option.trim_end())));
            }
        }
        Ok(arguments)
    }

    /// Sets an option. Returns `None` if the command does not take the option, or if the value is invalid.
    fn set(&mut self, command: &PromptCommand, name: &str, value: &'t str) -> Option<()> {
        let (_, takers) = OPTIONS.iter().find(|(option, _)| *option == name)?;
        if !takers.contains(&command.name) || value.is_empty() {
            return None;
        }
        match name {
            "--n" => self.size = Some(value.parse().ok().filter(|n| (1..=1024).contains(n))?),
            "--noise" => self.noise = Some(correlation(value).ok()?),
            "--out" => self.out = Some(Path::new(value)),
            "--width" => self.width = FigureWidth::from_str(value, false).ok()?,
            "--unscored" => self.unscored = Some(unscored(value).ok()?),
            _ => self.map.push(mapping(value).ok()?),
        }
        Some(())
    }
}
