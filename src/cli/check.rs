//! `advlab check RECIPE...`: compile, lint, and test a recipe's invariants.

use std::process::ExitCode;

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::paint::beside;
use advlab::script::{CheckResult, Finding, Host, check};
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
        let paint = style::whole(&Term::stdout());
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
                paint.bold(recipe.name()),
                paint.dim(recipe.version().short())
            );
            let findings = check(&recipe, None);
            for finding in &findings {
                let (sign, color) = match finding.result {
                    CheckResult::Holds => ("holds", "32"),
                    CheckResult::Fails => ("FAILS", "31;1"),
                    CheckResult::Note => ("note ", "33"),
                };
                let sign = paint.with(color, sign);
                let head = format!("  {sign}  {:<29}", finding.check);
                out!(
                    "{}",
                    beside(head.trim_end(), 39, &finding.detail, paint.width)
                );
            }
            for error in errors(&findings) {
                out!("{}", style::rendered(&error, &Term::stdout()).trim_end());
            }
            let number = |verdict| {
                findings
                    .iter()
                    .filter(|finding| finding.result == verdict)
                    .count()
            };
            let fails = number(CheckResult::Fails);
            failed |= fails > 0;
            out!(
                "  {} hold, {fails} fail, {} to know",
                number(CheckResult::Holds),
                number(CheckResult::Note)
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
        let (CheckResult::Fails, Some(error)) = (finding.result, &finding.error) else {
            continue;
        };
        let name = finding.check;
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
