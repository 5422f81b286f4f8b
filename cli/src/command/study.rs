//! `advlab objective RECIPE...`, what designs optimise, and `advlab mass RECIPE INPUT|RUN`, where their signal goes.

use std::path::PathBuf;
use std::process::ExitCode;

use advlab::figures::shape_in;
use advlab::script::{Host, Recipe};
use advlab_train::RunFolder;
use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::streams::{on_stdout, out};
use super::{ReadArguments, load, title};
use crate::pair;
use crate::report::draw::FigureWidth;
use crate::report::study::{Mass, objectives, recipes_of, with_advantage};

/// See what a design optimises: F'(p), the weight of prompts with success rate p
#[derive(Args)]
pub struct ShowObjective {
    /// Recipes, each followed by its settings: grpo passk k=4 mine.rhai
    #[arg(value_name = "RECIPE [K=V]", required = true)]
    recipes: Vec<String>,
    /// The size of a group; if not given, 16, or the largest one of the input
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    n: Option<u16>,
    /// Rollouts to estimate it on, for recipes that depend on more than the number of right responses
    #[arg(long, value_name = "FILE|RUN")]
    input: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArguments,
    /// Set a parameter of every recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Write the figure: .svg or .pdf, or its numbers as .csv or .json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The width of the figure: that of a paper's column, or of its page
    #[arg(long, default_value = "double")]
    width: FigureWidth,
    /// Print all numbers as JSON, an object per recipe
    #[arg(long)]
    json: bool,
}

impl ShowObjective {
    pub fn run(self) -> Result<ExitCode> {
        let host = Host::new();
        let words: Vec<&str> = self.recipes.iter().map(String::as_str).collect();
        let recipe = |(name, own): (&str, Vec<&str>)| {
            let own: Vec<_> = own.into_iter().flat_map(pair).collect();
            load(&host, name, &[&self.set[..], &own].concat())
        };
        let recipes = recipes_of(&words)?.into_iter().map(recipe);
        let recipes: Vec<Recipe> = recipes.collect::<Result<_>>()?;
        let input = self.input.as_deref().map(|path| self.reading.read(path));
        let batch = input.transpose()?.map(|(rollouts, _)| rollouts.batch);
        let paint = on_stdout();
        let mut report =
            objectives::report(&recipes, batch.as_ref(), self.n.map(usize::from), paint)?;
        report.set_width(self.width);
        if let Some(path) = &self.out {
            report.write(path, &report.text)?;
        }
        match &self.out {
            _ if self.json => out!("{}", report.about["designs"]),
            Some(path) => out!("{}\n\nwritten to {}", report.text, path.display()),
            None => out!("{}", report.whole(paint, usize::MAX)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// See which responses get the gradient: shares of the sum of |A| by group accuracy, length and position
#[derive(Args)]
pub struct ShowMass {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts, or a run's folder: its last batch, with the run's loss
    #[arg(value_name = "INPUT|RUN")]
    input: PathBuf,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    reading: ReadArguments,
    /// Print all shares as one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowMass {
    pub fn run(self) -> Result<ExitCode> {
        let host = Host::new();
        let recipe = load(&host, &self.recipe, &self.set)?;
        let loss = match self.input.is_dir() {
            true => RunFolder::open(&self.input)?.loss(&host)?,
            false => host.loss()?,
        };
        let (rollouts, notes) = self.reading.read(&self.input)?;
        let (batch, note) = with_advantage(&recipe, &rollouts.batch)?;
        let mass = Mass::of(&recipe, &loss, &batch)?;
        if self.json {
            out!("{}", json!(mass));
            return Ok(ExitCode::SUCCESS);
        }
        let paint = on_stdout();
        for note in notes.into_iter().chain(note) {
            out!("{note}");
        }
        let shape = shape_in(rollouts.batch.layout(), rollouts.unit);
        let title = title(recipe.name(), &recipe, paint);
        out!("{title}\n{}: {shape}\n", rollouts.path().display());
        out!("{}", mass.table(paint));
        Ok(ExitCode::SUCCESS)
    }
}
