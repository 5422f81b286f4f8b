//! `advlab objective RECIPE...` shows what designs optimise; `advlab mass RECIPE... INPUT|RUN` shows which responses get the
//! gradient.

use std::path::{Path, PathBuf};

use crate::report::show::shape_in;
use advlab::script::{Builtin, Host, Recipe};
use advlab_train::RunFolder;
use anyhow::Result;
use clap::Args;

use super::streams::{self, on_stdout, out};
use super::{ReadArguments, load};
use crate::report::draw::FigureWidth;
use crate::report::study::{mass, objectives, recipes_of};
use crate::{correlation, number_for_recipe, pair, wrong};

/// See what a design optimises: F'(p), the weight of prompts with success rate p
#[derive(Args)]
pub struct ShowObjective {
    /// Recipes, each followed by its settings: grpo passk k=4 mine.rhai
    #[arg(value_name = "RECIPE [K=V]", required = true)]
    recipes: Vec<String>,
    /// The size of a group [default: 16, or with --input the size of its largest group]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    n: Option<u16>,
    /// Rollouts to estimate F'(p) on, for recipes that depend on more than a group's number of right responses
    #[arg(long, value_name = "FILE|RUN")]
    input: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArguments,
    /// Also show how noisy the updates are, if a response's score (the derivative of its log-prob) has this correlation with being
    /// right; `--noise` alone means 0.1
    #[arg(long, value_name = "CORRELATION", num_args = 0..=1, require_equals = true, default_missing_value = "0.1", value_parser = correlation)]
    noise: Option<f64>,
    /// Set a parameter of every recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Write the figure as .svg, or its numbers as .csv or .json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The width of the figure: a paper's column, or the whole page
    #[arg(long, default_value = "double")]
    width: FigureWidth,
    /// Print all numbers as JSON, an object per recipe
    #[arg(long)]
    json: bool,
}

/// Loads the recipes in `words`. Each recipe first gets the settings in `all`, and then the settings that follow its name.
fn recipes(host: &Host, words: &[String], all: &[(String, String)]) -> Result<Vec<Recipe>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let recipe = |(name, own): (&str, Vec<&str>)| {
        let own: Vec<_> = own.into_iter().flat_map(pair).collect();
        load(host, name, &[all, &own].concat())
    };
    recipes_of(&words)?.into_iter().map(recipe).collect()
}

impl ShowObjective {
    pub fn run(self) -> Result<bool> {
        if let Some(error) = self.recipes.iter().find_map(|word| number_for_recipe(word)) {
            return Err(error.into());
        }
        let recipes = recipes(&Host::new(), &self.recipes, &self.set)?;
        let input = self.input.as_deref().map(|path| self.reading.read(path));
        let batch = input.transpose()?.map(|(rollouts, _)| rollouts.batch);
        let (size, paint) = (self.n.map(usize::from), on_stdout());
        let mut report = objectives::report(&recipes, batch.as_ref(), size, self.noise, paint)?;
        let told = report.show(self.out.as_deref(), self.width, usize::MAX)?;
        if self.json {
            streams::data(&report.about["designs"].to_string())?
        } else {
            out!("{told}")
        }
        Ok(true)
    }
}

/// See which responses get the gradient: shares of the sum of |A| by group accuracy, length and position
#[derive(Args)]
pub struct ShowMass {
    /// Recipes, each followed by its settings, and the rollouts or a run's folder: grpo passk k=4 rollouts.jsonl. For a
    /// run's folder, its last batch is used, with the run's loss. Several recipes are shown side by side
    #[arg(value_name = "RECIPE [K=V] INPUT|RUN", required = true)]
    words: Vec<String>,
    /// Set a parameter of every recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Also group the tokens by a column of numbers or of texts
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    #[command(flatten)]
    reading: ReadArguments,
    /// Write the figure as .svg, the table as .csv, or a folder with both
    #[arg(long, value_name = "FILE|FOLDER")]
    out: Option<PathBuf>,
    /// The width of the figure: a paper's column, or the whole page
    #[arg(long, default_value = "double")]
    width: FigureWidth,
    /// Print all shares as one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowMass {
    pub fn run(self) -> Result<bool> {
        let host = Host::new();
        let last = self.words.split_last();
        let is_recipe = |word: &str| Builtin::find(word).is_some() || word.contains('=');
        let last = last.filter(|(input, _)| Path::new(input).exists() || !is_recipe(input));
        let Some((input, words)) = last.filter(|(_, words)| !words.is_empty()) else {
            let help = "rollouts come after the recipes: `advlab mass grpo maxrl rollouts.jsonl`";
            return Err(wrong("no rollouts are given", help).into());
        };
        let input = Path::new(input);
        let recipes = recipes(&host, words, &self.set)?;
        let loss = if input.is_dir() {
            RunFolder::open(input)?.loss(&host)?
        } else {
            host.loss()?
        };
        let (rollouts, notes) = self.reading.read(input)?;
        let mut report = mass::report(
            &recipes,
            &loss,
            &rollouts.batch,
            self.by.as_deref(),
            on_stdout(),
        )?;
        let told = report.show(self.out.as_deref(), self.width, usize::MAX)?;
        if self.json {
            streams::data(&report.about.to_string())?;
            return Ok(true);
        }
        for note in notes {
            out!("{note}");
        }
        let shape = shape_in(rollouts.batch.layout(), rollouts.unit);
        out!("{}: {shape}\n", rollouts.path().display());
        out!("{told}");
        Ok(true)
    }
}
