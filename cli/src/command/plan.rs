//! `advlab plan RECIPE [RECIPE] [INPUT]`: prints the formula that a recipe computes, or writes it as a PyTorch file.

use std::path::{Path, PathBuf};

use advlab::files::is_rollouts;
use advlab::plan::{Plan, Summand, terms};
use advlab::replace::Replacement;
use advlab::{Batch, Host, Recipe};
use anyhow::Result;
use clap::Args;

use super::streams::{self, out};
use super::{ReadArguments, load};
use crate::number_text::value;
use crate::paint::table;
use crate::prompt::builtin;
use crate::{pair, wrong};

/// Print the formula that a recipe computes, or write it as PyTorch
#[derive(Args)]
pub struct ShowPlan {
    /// A built-in's name, or the path of a .rhai file; for two recipes, their difference is printed. If rollouts follow, the
    /// formula is written for their columns, otherwise for all columns that the recipe reads
    #[arg(required = true, value_name = "RECIPE")]
    words: Vec<String>,
    /// Set a parameter
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Expand functions such as `whiten`, which are made of other functions
    #[arg(long)]
    expand: bool,
    /// Write Python code that needs only torch
    #[arg(long)]
    torch: bool,
    /// With --torch: write one response's part of the loss, as a function that torch.fx can trace
    #[arg(long, requires = "torch")]
    per_response: bool,
    /// Print the plan as one JSON object
    #[arg(long, conflicts_with_all = ["torch", "latex"])]
    json: bool,
    /// Print the summands of the advantage, and of the reward that the recipe gives, on the rollouts or on a built-in batch: the
    /// standard deviation of each summand, and its share of the sum of absolute values
    #[arg(long, conflicts_with_all = ["torch", "latex", "json", "expand"])]
    terms: bool,
    /// Write aligned equations in LaTeX
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
        let recipes = self.words.iter().map(|name| load(&host, name, &self.set));
        let recipes: Vec<Recipe> = recipes.collect::<Result<_>>()?;
        if self.terms {
            let batch = batch.unwrap_or_else(builtin);
            return recipes
                .iter()
                .try_for_each(|recipe| shown_terms(recipe, &batch))
                .map(|()| true);
        }
        let plans = recipes
            .iter()
            .map(|recipe| Ok(Plan::of(recipe, batch.as_ref(), self.expand)?));
        let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
        let path = self.out.as_deref();
        match (&plans[..], self.torch) {
            (_, false) if path.is_some() && !self.latex => {
                let help =
                    "`--torch -o FILE.py` writes Python; `--latex -o FILE.tex` writes equations";
                return Err(wrong("`-o` needs `--torch` or `--latex`".to_string(), help).into());
            }
            ([plan], false) if self.latex => write(&plan.latex(), path, "tex")?,
            ([plan], false) if self.json => out!("{}", plan.json()),
            ([plan], false) => out!("{}", plan.text()),
            ([plan], true) if self.per_response => write(&plan.torch_per_response()?, path, "py")?,
            ([plan], true) => write(&plan.torch()?, path, "py")?,
            ([a, b], false) if !self.latex && !self.json => {
                if a.is_same(b) {
                    out!("both recipes compute the same:\n");
                }
                out!("{}", a.difference(b));
            }
            _ => {
                let help = "`advlab plan A B` compares two recipes; `--torch`, `--latex` and `--json` write one recipe";
                return Err(wrong(format!("{} recipes are given", plans.len()), help).into());
            }
        }
        Ok(true)
    }
}

/// Prints the summands of a recipe's advantage and reward on a batch as a table, or a line if neither is a sum.
fn shown_terms(recipe: &Recipe, batch: &Batch) -> Result<()> {
    let terms = terms(recipe, batch, &recipe.init()?)?;
    if terms.is_empty() {
        out!(
            "{}: neither the advantage nor the reward is a sum",
            recipe.name()
        );
        return Ok(());
    }
    let titles = [
        "summand",
        "of",
        "std",
        "share of the sum of absolute values",
    ];
    let row = |term: &Summand| {
        let share = format!("{:.1} %", 100.0 * term.share);
        [
            term.name.clone(),
            term.hook.name().to_string(),
            value(term.std),
            share,
        ]
        .to_vec()
    };
    let rows = terms.iter().map(row);
    let rows: Vec<Vec<String>> = [titles.map(String::from).to_vec()]
        .into_iter()
        .chain(rows)
        .collect();
    out!("{}", table(&rows).join("\n"));
    Ok(())
}

/// Writes a text to a path or, if there is no path, to standard output. A path that does not end in `ending` is refused, because
/// it may be the recipe's path.
fn write(text: &str, path: Option<&Path>, ending: &str) -> Result<()> {
    let Some(path) = path else {
        return Ok(streams::data(text.trim_end())?);
    };
    if path.extension().is_none_or(|own| own != ending) {
        let what = format!("{} does not end in `.{ending}`", path.display());
        return Err(wrong(
            what,
            "another ending is refused, so that a recipe is not overwritten by mistake",
        )
        .into());
    }
    Replacement::write(path, text.as_bytes())?;
    out!("written {}", path.display());
    Ok(())
}
