//! `advlab plan RECIPE [RECIPE] [INPUT]`: the formula that a recipe computes, to read, or as a file of PyTorch.

use std::path::{Path, PathBuf};

use advlab::Host;
use advlab::files::is_rollouts;
use advlab::plan::Plan;
use advlab::replace::Replacement;
use anyhow::Result;
use clap::Args;

use super::streams::{self, out};
use super::{ReadArguments, load};
use crate::{pair, wrong};

/// Print the formula that a recipe computes, or write it as PyTorch
#[derive(Args)]
pub struct ShowPlan {
    /// A built-in's name, or the path of a .rhai file; of two recipes, the difference. Then, if you like, rollouts whose columns
    /// the formula is over: if not given, it is over all columns that the recipe reads
    #[arg(required = true, value_name = "RECIPE")]
    words: Vec<String>,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Open functions that are made of others, such as `whiten`
    #[arg(long)]
    expand: bool,
    /// Write a file of Python that needs only torch
    #[arg(long)]
    torch: bool,
    /// Write aligned equations of LaTeX
    #[arg(long, conflicts_with = "torch")]
    latex: bool,
    /// The file to write: FILE.py with --torch, FILE.tex with --latex
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArguments,
}

impl ShowPlan {
    pub fn run(mut self) -> Result<bool> {
        let host = Host::new();
        let is_behind = self.words.len() > 1;
        let is_input = |word: &Path| is_behind && (word.is_dir() || is_rollouts(word));
        let batch = match self.words.pop_if(|word| is_input(Path::new(word))) {
            Some(input) => {
                let (rollouts, notes) = self.reading.read(Path::new(&input))?;
                streams::note(&notes);
                Some(rollouts.batch)
            }
            None => None,
        };
        let plans = self.words.iter().map(|name| {
            let recipe = load(&host, name, &self.set)?;
            Ok(Plan::of(&recipe, batch.as_ref(), self.expand)?)
        });
        let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
        let path = self.out.as_deref();
        match (&plans[..], self.torch) {
            (_, false) if path.is_some() && !self.latex => {
                let help =
                    "`--torch -o FILE.py` writes a file of Python, `--latex -o FILE.tex` equations";
                return Err(wrong("nothing says what to write".to_string(), help).into());
            }
            ([plan], false) if self.latex => write(&plan.latex(), path, "tex")?,
            ([plan], false) => out!("{}", plan.text()),
            ([plan], true) => write(&plan.torch()?, path, "py")?,
            ([a, b], false) if a.is_same(b) => {
                out!("both compute the same:\n\n{}", a.difference(b))
            }
            ([a, b], false) => out!("{}", a.difference(b)),
            _ => {
                let help =
                    "`advlab plan A B` compares two recipes, `advlab plan A --torch` writes one";
                return Err(wrong(format!("{} recipes are given", plans.len()), help).into());
            }
        }
        Ok(true)
    }
}

/// Writes a file. Another ending is refused, because the path may be that of the recipe.
fn write(text: &str, path: Option<&Path>, ending: &str) -> Result<()> {
    let Some(path) = path else {
        return Ok(streams::data(text)?);
    };
    if path.extension().is_none_or(|own| own != ending) {
        let what = format!("{} does not end in `.{ending}`", path.display());
        return Err(wrong(what, "another file would be written over").into());
    }
    Replacement::write(path, text.as_bytes())?;
    out!("written {}", path.display());
    Ok(())
}
