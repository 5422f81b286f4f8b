//! `advlab mass RECIPE INPUT|RUN`: which responses and tokens the signal of a design goes to.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::study::{Mass, with_advantage};
use advlab::figures::shape_in;
use advlab::script::Host;
use advlab_train::RunFolder;
use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::streams::{on_stdout, out};
use super::{AtStep, load, pair, rollouts, title};

/// See who gets the gradient: shares of the sum of |A| by group accuracy, length and position
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
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    map: Vec<(String, String)>,
    #[command(flatten)]
    at: AtStep,
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
        let (rollouts, notes) = rollouts(&self.at.of(&self.input)?, &self.map, None, None, None)?;
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
