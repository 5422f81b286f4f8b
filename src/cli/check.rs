//! `advlab check RECIPE...`: compile, lint, and test a recipe's invariants.

use std::process::ExitCode;

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::{Finding, Host, Verdict, check};
use anyhow::Result;
use clap::Args;
use console::Term;

use super::out::out;
use super::{Setting, load, style};

/// Test a recipe's invariants on degenerate batches.
#[derive(Args)]
pub struct Check {
    /// Built-in names, or paths to .rhai files
    #[arg(required = true, value_name = "RECIPE")]
    recipes: Vec<String>,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Setting>,
}

impl Check {
    /// Prints a table a recipe: what held, what did not, what is worth knowing.
    pub fn run(self) -> Result<ExitCode> {
        let host = Host::new();
        let mut failed = false;
        for (place, name) in self.recipes.iter().enumerate() {
            let recipe = match load(&host, name, &self.set) {
                Ok(recipe) => recipe,
                Err(error) => {
                    super::report(&error);
                    failed = true;
                    continue;
                }
            };
            if place > 0 {
                out!();
            }
            out!(
                "{} {}  compiles, passes the lint",
                style::on_stdout().bold(recipe.name()),
                style::on_stdout().dim(recipe.version().short())
            );
            let findings = check(&recipe);
            for finding in &findings {
                let (sign, color) = match finding.verdict {
                    Verdict::Holds => ("holds", "32"),
                    Verdict::Fails => ("FAILS", "31;1"),
                    Verdict::Note => ("note ", "33"),
                };
                let line = format!(
                    "  {}  {:<29} {}",
                    style::on_stdout().with(color, sign),
                    finding.check.name(),
                    finding.detail
                );
                out!("{}", line.trim_end());
            }
            for error in errors(&findings) {
                out!("{}", style::rendered(&error, &Term::stdout()).trim_end());
            }
            let number = |verdict| {
                findings
                    .iter()
                    .filter(|finding| finding.verdict == verdict)
                    .count()
            };
            let fails = number(Verdict::Fails);
            failed |= fails > 0;
            out!(
                "  {} hold, {fails} fail, {} to know",
                number(Verdict::Holds),
                number(Verdict::Note)
            );
        }
        Ok(if failed {
            ExitCode::from(1)
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// The errors of the checks that fail, each once, with the batches on which it occurs.
fn errors(findings: &[Finding]) -> Vec<Diagnostics> {
    let mut different: Vec<(Diagnostics, Vec<&str>)> = Vec::new();
    for finding in findings {
        let (Verdict::Fails, Some(error)) = (finding.verdict, &finding.error) else {
            continue;
        };
        let name = finding.check.name();
        match different
            .iter_mut()
            .find(|(other, _)| is_same(other, error))
        {
            Some((_, names)) => names.push(name),
            None => different.push((error.clone(), vec![name])),
        }
    }
    let named = different.into_iter().map(|(mut error, names)| {
        let batches = if names.len() == 1 { "batch" } else { "batches" };
        let names = names.join("`, `");
        let notes = &mut error.first_mut().notes;
        notes.push(format!("on the {batches} `{names}`"));
        error
    });
    named.collect()
}

/// Whether two errors are mended by the same edit: the place and the advice agree, if not the value that was found.
fn is_same(a: &Diagnostics, b: &Diagnostics) -> bool {
    let is_same = |(a, b): (&Diagnostic, &Diagnostic)| {
        let is_told = a.location.is_some() && a.help.is_some();
        (a.location == b.location && a.help == b.help) && (is_told || a.message == b.message)
    };
    let mut pairs = a.iter().zip(b.iter());
    a.len() == b.len() && pairs.all(is_same)
}
