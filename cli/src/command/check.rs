//! `advlab check RECIPE... [INPUT]`: compile, lint, and test what must hold of a recipe.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use advlab::batch::Batch;
use advlab::check::{CheckResult, check};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::counted;
use advlab::files::is_rollouts;
use advlab::paint::{Paint, beside};
use advlab::script::{Host, Limits, Recipe};
use anyhow::Result;
use clap::Args;
use console::Term;

use super::streams::{self, out};
use super::{ReadArguments, load};
use crate::pair;

/// Test properties of a recipe's advantage and loss, on degenerate batches.
#[derive(Args)]
pub struct Check {
    /// Built-in names, or paths of .rhai files; then, if you like, a file of rollouts or a run's folder to take the batches from
    #[arg(required = true, value_name = "RECIPE")]
    recipes: Vec<String>,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// The time limit for all checks of a recipe, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    time: Duration,
    #[command(flatten)]
    reading: ReadArguments,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| format!("\"{text}\" is no number of seconds"))
}

impl Check {
    /// Prints a table per recipe: properties that hold, properties that fail, and notes.
    pub fn run(mut self) -> Result<ExitCode> {
        let host = Host::new().with_limits(Limits {
            time: self.time,
            ..Limits::default()
        });
        let paint = streams::whole(&Term::stdout());
        let input = self.input()?;
        let mut failed = false;
        for (index, name) in self.recipes.iter().enumerate() {
            match load(&host, name, &self.set) {
                Ok(recipe) => {
                    if index > 0 {
                        out!();
                    }
                    failed |= !passes(&recipe, input.as_ref(), paint)?;
                }
                Err(error) => {
                    super::report(&error);
                    failed = true;
                }
            }
        }
        Ok(ExitCode::from(u8::from(failed)))
    }

    /// The rollouts after the recipes, if there are any.
    fn input(&mut self) -> Result<Option<Batch>> {
        let is_behind = self.recipes.len() > 1;
        let is_input = |name: &Path| is_behind && (name.is_dir() || is_rollouts(name));
        let Some(input) = self.recipes.pop_if(|name| is_input(Path::new(name))) else {
            return Ok(None);
        };
        let (rollouts, notes) = self.reading.read(Path::new(&input))?;
        let notes: Vec<Diagnostic> = notes.into_iter().map(Diagnostic::note).collect();
        streams::tell(&notes);
        Ok(Some(rollouts.batch))
    }
}

/// Prints the checks of a recipe and the errors of failed ones, each error once. Returns whether none fails.
fn passes(recipe: &Recipe, input: Option<&Batch>, paint: Paint) -> Result<bool> {
    let lint = match recipe.warnings().len() {
        0 => "passes the lint".to_string(),
        warnings => format!("with {}", counted(warnings, "warning")),
    };
    let version = paint.dim(recipe.version().short());
    out!("{} {version}  compiles, {lint}", paint.bold(recipe.name()));
    let findings = check(recipe, input);
    let mut errors: Vec<&Diagnostics> = Vec::new();
    for finding in &findings {
        let (sign, color) = match finding.result {
            CheckResult::Holds => ("holds", "32"),
            CheckResult::Fails => ("FAILS", "31;1"),
            CheckResult::Note => ("note ", "33"),
        };
        let head = format!("  {}  {}", paint.with(color, sign), finding.check);
        out!("{}", beside(&head, 39, &finding.detail, paint.width));
        let error = finding.error.as_ref();
        if let Some(error) = error.filter(|_| finding.result == CheckResult::Fails)
            && !errors.iter().any(|known| is_same(&known[0], &error[0]))
        {
            errors.push(error);
        }
    }
    for error in errors {
        out!("{}", error.render_within(paint).trim_end());
    }
    let number = |result| findings.iter().filter(|f| f.result == result).count();
    let results = [CheckResult::Holds, CheckResult::Fails, CheckResult::Note];
    let [hold, fail, to_know] = results.map(number);
    out!("  {hold} hold, {fail} fail, {to_know} to know");
    Ok(fail == 0)
}

/// Whether one edit fixes both errors: they have the same place and help; the values in their messages may differ.
fn is_same(a: &Diagnostic, b: &Diagnostic) -> bool {
    let is_placed = a.span.is_some() && a.help.is_some();
    a.span == b.span && a.help == b.help && (is_placed || a.message == b.message)
}
