//! `advlab recipes`, `doc` and `new`: what is built in, explained, and copied to be edited.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::doc;
use advlab::check::needs;
use advlab::diagnostic::Diagnostics;
use advlab::files::cannot_be_written;
use advlab::paint::{Paint, beside};
use advlab::script::{BUILTINS, BuiltinKind, Host};
use anyhow::{Context, Result, bail};
use clap::Args;
use console::Term;

use super::streams::{self, out};

/// List the built-in recipes by kind, one line each.
#[derive(Args)]
pub struct Recipes {
    /// A trainer, such as verl: what its names mean here; or words to search for, such as overlong
    #[arg(value_name = "TRAINER|WORDS")]
    words: Vec<String>,
    /// Only those that need a column, such as value
    #[arg(long, value_name = "COLUMN", conflicts_with = "words")]
    needs: Option<String>,
}

impl Recipes {
    pub fn run(self) -> Result<ExitCode> {
        let paint = streams::whole(&Term::stdout());
        if self.words.is_empty() {
            list(self.needs, paint)?;
        } else {
            out!("{}", doc::trainer(&self.words.join(" "), paint)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Lists the built-ins, or only those that need a column.
fn list(column: Option<String>, paint: Paint) -> Result<()> {
    let host = Host::new();
    let mut number = 0;
    for kind in BuiltinKind::OF_RECIPES {
        let mut title = Some(kind.title());
        for builtin in BUILTINS.iter().filter(|builtin| builtin.kind == kind) {
            let recipe = host.load(builtin.name)?;
            if !column.iter().all(|column| needs(&recipe, column)) {
                continue;
            }
            if let Some(title) = title.take() {
                let gap = if number == 0 { "" } else { "\n" };
                out!("{gap}{}", paint.dim(title));
            }
            number += 1;
            let name = paint.bold(&format!("{:<21}", builtin.name));
            out!("{}", beside(&name, 23, recipe.summary(), paint.width));
        }
    }
    match column {
        Some(column) if number == 0 => out!("no built-in needs the column `{column}`"),
        _ => out!(
            "\n`advlab doc NAME` explains one, `advlab new FILE --from NAME` copies it,\n`advlab recipes verl` has the names of another trainer."
        ),
    }
    Ok(())
}

/// Explain a recipe or a function, with an example.
#[derive(Args)]
pub struct Doc {
    /// A function such as mean, a built-in recipe, the path of a .rhai file, or words to search for; all names if not given
    #[arg(value_name = "NAME|WORDS")]
    words: Vec<String>,
}

impl Doc {
    pub fn run(self) -> Result<ExitCode> {
        let paint = streams::on_stdout();
        if self.words.is_empty() {
            out!("{}", doc::overview(paint));
            out!("\n`advlab doc NAME` explains one with an example, `advlab doc WORDS` searches.");
        } else {
            let asked = self.words.join(" ");
            out!("{}", doc::explain(&Host::new(), &asked, paint)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Copy a built-in recipe to a file, to edit it.
#[derive(Args)]
pub struct New {
    /// The file to write, such as my_recipe.rhai
    file: PathBuf,
    /// The recipe to start from; `advlab recipes` lists the built-ins
    #[arg(long, value_name = "RECIPE", default_value = "grpo")]
    from: String,
}

impl New {
    /// Writes the copy, never over a file.
    pub fn run(self) -> Result<ExitCode> {
        let recipe = Host::new().load(&self.from)?;
        let file = self.file.display();
        if self.file.extension().is_none_or(|ending| ending != "rhai") {
            let better = self.file.with_extension("rhai");
            let better = better.display();
            bail!("{file}: a recipe's file ends in .rhai, such as {better}");
        }
        let mut out = match std::fs::File::create_new(&self.file) {
            Ok(out) => out,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("{file} is there already, and is left as it is: choose another name")
            }
            Err(error) => {
                return Err(Diagnostics::from(cannot_be_written(&self.file, &error)).into());
            }
        };
        if let Err(error) = out.write_all(recipe.text().as_bytes()) {
            // Half a recipe is worse than none.
            let _ = std::fs::remove_file(&self.file);
            return Err(error).with_context(|| format!("cannot write {file}"));
        }
        out!("{file} is a copy of {}. Edit it, then:", self.from);
        out!("  advlab check {file}");
        out!("  advlab apply {file} rollouts.jsonl");
        out!("  advlab compare {} {file}", self.from);
        Ok(ExitCode::SUCCESS)
    }
}
