//! `advlab recipes`, `doc` and `new`: what is built in, explained, and copied to be edited.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use advlab::diagnostic::Diagnostics;
use advlab::doc;
use advlab::paint::{Paint, beside};
use advlab::script::{BUILTINS, Host, Kind, needs};
use anyhow::{Context, Result, bail};
use clap::Args;
use console::Term;

use super::cannot_write;
use super::streams::{self, out};

/// List the built-in recipes by kind, one line each.
#[derive(Args)]
pub struct Recipes {
    /// What a trainer's names mean here, such as verl
    trainer: Option<String>,
    /// Those alone that need a column, such as value
    #[arg(long, value_name = "COLUMN", conflicts_with = "trainer")]
    needs: Option<String>,
    /// Write all of them as the page recipes.md, with pictures of their objectives, into a folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["trainer", "needs"])]
    markdown: Option<PathBuf>,
}

impl Recipes {
    pub fn run(self) -> Result<ExitCode> {
        let paint = streams::whole(&Term::stdout());
        if let Some(trainer) = self.trainer {
            out!(
                "{}",
                doc::trainer(&trainer, paint).map_err(Diagnostics::from)?
            );
        } else if let Some(folder) = self.markdown {
            let number = write_all(&folder, &doc::recipes()?)?;
            out!("{number} files in {}", folder.display());
        } else {
            list(self.needs, paint)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Lists the built-ins, or those that need a column.
fn list(column: Option<String>, paint: Paint) -> Result<()> {
    let host = Host::new();
    let mut number = 0;
    for kind in Kind::OF_RECIPES {
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
    /// A function such as mean, a built-in recipe, or the path of a .rhai file; all names if not given
    name: Option<String>,
    /// Write Rhai definition files for editors into a folder
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    definitions: Option<PathBuf>,
}

impl Doc {
    pub fn run(self) -> Result<ExitCode> {
        let paint = streams::on_stdout();
        match (self.definitions, self.name) {
            (Some(folder), _) => {
                let number = write_all(&folder, &doc::definitions())?;
                let shown = folder.display();
                out!(
                    "{number} definition files in {shown}: point your editor's Rhai plug-in there"
                );
            }
            (None, Some(name)) => out!("{}", doc::explain(&Host::new(), &name, paint)?),
            (None, None) => {
                out!("{}", doc::overview(paint));
                out!("\n`advlab doc NAME` explains one with an example.");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes files into a folder and folders in it; their number.
fn write_all(folder: &Path, files: &[(String, String)]) -> Result<usize> {
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files.len())
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
    /// Writes the copy; never over a file that is there.
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
            Err(error) => return Err(cannot_write(&self.file)(error)),
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
