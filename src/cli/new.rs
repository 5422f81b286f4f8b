//! `advlab new FILE --from RECIPE`: a copy of a built-in to edit.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use advlab::script::Host;
use anyhow::{Context, Result, bail};
use clap::Args;

use super::out::out;

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
            bail!(
                "{file}: a recipe's file ends in .rhai, such as {}",
                self.file.with_extension("rhai").display()
            );
        }
        let mut out = match std::fs::File::create_new(&self.file) {
            Ok(out) => out,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                bail!("{file} is there already, and is left as it is: choose another name")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {file}")),
        };
        if let Err(error) = out.write_all(recipe.text().as_bytes()) {
            // Half a recipe is worse than none.
            let _ = std::fs::remove_file(&self.file);
            return Err(error).with_context(|| format!("cannot write {file}"));
        }
        out!("{file} is a copy of {}. Edit it, then:", self.from);
        out!("  advlab check {file}");
        out!("  advlab apply {file} rollouts.jsonl");
        Ok(ExitCode::SUCCESS)
    }
}
