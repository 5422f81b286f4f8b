//! `advlab check RECIPE... [INPUT]`: compile, lint, and test what must hold of a recipe.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use advlab::batch::Batch;
use advlab::check::{CheckResult, Finding, check};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::counted;
use advlab::files::{ReadOptions, is_rollouts};
use advlab::paint::beside;
use advlab::script::{Host, Limits};
use anyhow::Result;
use clap::Args;
use console::Term;

use super::streams::{self, out};
use super::{AtStep, load, pair, rollouts};

/// Test what must hold of a recipe's advantage and loss, on degenerate batches.
#[derive(Args)]
pub struct Check {
    /// Built-in names, or paths to .rhai files; behind them a file of rollouts or a run's folder to take the batches from
    #[arg(required = true, value_name = "RECIPE")]
    recipes: Vec<String>,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Read a field of the rollouts under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    map: Vec<(String, String)>,
    /// The most seconds that the checks of a recipe may take together
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    time: f64,
    #[command(flatten)]
    at: AtStep,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
    seconds.ok_or_else(|| format!("\"{text}\" is no number of seconds"))
}

impl Check {
    /// Prints a table per recipe: what holds, what fails, what is worth knowing.
    pub fn run(mut self) -> Result<ExitCode> {
        let limits = Limits {
            time: Duration::from_secs_f64(self.time),
            ..Limits::default()
        };
        let host = Host::new().with_limits(limits);
        let paint = streams::whole(&Term::stdout());
        let input = self.input()?;
        let mut failed = false;
        for (index, name) in self.recipes.iter().enumerate() {
            let recipe = match load(&host, name, &self.set) {
                Ok(recipe) => recipe,
                Err(error) => {
                    super::report(&error);
                    failed = true;
                    continue;
                }
            };
            if index > 0 {
                out!();
            }
            let lint = match recipe.warnings().len() {
                0 => "passes the lint".to_string(),
                warnings => format!("with {}", counted(warnings, "warning")),
            };
            let version = paint.dim(recipe.version().short());
            out!("{} {version}  compiles, {lint}", paint.bold(recipe.name()));
            let findings = check(&recipe, input.as_ref());
            for finding in &findings {
                let (sign, color) = match finding.result {
                    CheckResult::Holds => ("holds", "32"),
                    CheckResult::Fails => ("FAILS", "31;1"),
                    CheckResult::Note => ("note ", "33"),
                };
                let sign = paint.with(color, sign);
                let head = format!("  {sign}  {:<29}", finding.check);
                let line = beside(head.trim_end(), 39, &finding.detail, paint.width);
                out!("{line}");
            }
            for error in errors(&findings) {
                out!("{}", error.render_within(paint).trim_end());
            }
            let number = |result| findings.iter().filter(|f| f.result == result).count();
            let results = [CheckResult::Holds, CheckResult::Fails, CheckResult::Note];
            let [hold, fail, to_know] = results.map(number);
            failed |= fail > 0;
            out!("  {hold} hold, {fail} fail, {to_know} to know");
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
        let input = self.at.of(Path::new(&input))?;
        let (rollouts, notes) = rollouts(&input, &self.map, &ReadOptions::default())?;
        for note in notes {
            streams::tell(&[Diagnostic::note(note)]);
        }
        Ok(Some(rollouts.batch))
    }
}

/// The errors of the checks that fail, each once, with its checks.
fn errors(findings: &[Finding]) -> Vec<Diagnostics> {
    let mut different: Vec<(Diagnostics, Vec<&str>)> = Vec::new();
    let failed = findings.iter().filter(|f| f.result == CheckResult::Fails);
    for (name, error) in failed.filter_map(|f| Some((f.check, f.error.as_ref()?))) {
        let mut known = different.iter_mut();
        match known.find(|(other, _)| is_same(other, error)) {
            Some((_, names)) => names.push(name),
            None => different.push((error.clone(), vec![name])),
        }
    }
    let named = different.into_iter().map(|(mut error, names)| {
        let checks = if names.len() == 1 { "check" } else { "checks" };
        let names = names.join("`, `");
        let notes = &mut error.first_mut().notes;
        notes.push(format!("in the {checks} `{names}`"));
        error
    });
    named.collect()
}

/// Whether two errors are fixed by the same edit: they have the same location and advice; the value may differ.
fn is_same(a: &Diagnostics, b: &Diagnostics) -> bool {
    let is_same = |(a, b): (&Diagnostic, &Diagnostic)| {
        let is_told = a.span.is_some() && a.help.is_some();
        (a.span == b.span && a.help == b.help) && (is_told || a.message == b.message)
    };
    let mut pairs = a.iter().zip(b.iter());
    a.len() == b.len() && pairs.all(is_same)
}
