//! `advlab doc [NAME]`: a recipe or a function, with a runnable example; definition files for editors.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use advlab::doc;
use advlab::script::Host;
use anyhow::{Context, Result};
use clap::Args;

use super::out::out;
use super::style;

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
        let paint = style::on_stdout();
        match (self.definitions, self.name) {
            (Some(folder), _) => write_definitions(&folder)?,
            (None, Some(name)) => out!("{}", doc::explain(&Host::new(), &name, paint)?),
            (None, None) => {
                out!("{}", doc::overview(paint));
                out!("\n`advlab doc NAME` explains one with an example.");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write_definitions(folder: &Path) -> Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {shown}"))?;
    let files = doc::definitions();
    for (name, text) in &files {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let number = files.len();
    out!("{number} definition files in {shown}: point your editor's Rhai plug-in there");
    Ok(())
}
