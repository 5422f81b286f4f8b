//! `advlab objective RECIPE...`: what designs optimise, over the chance of a right response.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::study::{Objective, label, objectives};
use advlab::script::Host;
use anyhow::Result;
use clap::Args;

use super::streams::{on_stdout, out};
use super::{designs, pair, rollouts, streams};

/// See what a design optimises: F'(p), the weight of prompts whose responses are right with chance p
#[derive(Args)]
pub struct ShowObjective {
    /// Recipes, each with its settings behind it: grpo passk k=4 mine.rhai
    #[arg(value_name = "RECIPE [K=V]", required = true)]
    recipes: Vec<String>,
    /// The size of a group; 16, or that of the largest in the input, if not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    n: Option<u16>,
    /// Rollouts on whose groups it is estimated where it depends on more than how many are right
    #[arg(long, value_name = "FILE|RUN")]
    input: Option<PathBuf>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair, requires = "input")]
    map: Vec<(String, String)>,
    /// Set a parameter of every recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Write the figure: .svg, or its numbers as .csv or .json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print all numbers as JSON, an object a recipe
    #[arg(long)]
    json: bool,
}

impl ShowObjective {
    pub fn run(self) -> Result<ExitCode> {
        let recipes = designs(&Host::new(), &self.recipes, &self.set)?;
        let input = self.input.as_deref();
        let input = input
            .map(|path| rollouts(path, &self.map, None, None, None))
            .transpose()?;
        let batch = input.map(|(rollouts, _)| rollouts.batch);
        let largest = batch.as_ref().map(|batch| {
            let layout = batch.layout();
            let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
            sizes.max().unwrap_or(1).clamp(2, 1024)
        });
        let size = self.n.map(usize::from).or(largest).unwrap_or(16);
        let mut all = Vec::new();
        for recipe in &recipes {
            streams::tell(recipe.warnings());
            let objective = Objective::of(recipe, batch.as_ref(), size)?;
            all.push((label(recipe), objective));
        }
        let figure = objectives::figure(&all);
        if let Some(path) = &self.out {
            figure.write(path)?;
        }
        let paint = on_stdout();
        match (&self.out, self.json) {
            (_, true) => out!("{}", objectives::to_json(&all)),
            (Some(path), _) => {
                out!(
                    "{}\n\nwritten to {}",
                    objectives::table(&all, paint),
                    path.display()
                );
            }
            _ => out!("{}\n{}", figure.text(paint), objectives::table(&all, paint)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
