//! `advlab mass RECIPE INPUT|RUN`: which responses and tokens the signal of a design goes to.

use std::path::PathBuf;
use std::process::ExitCode;

use advlab::figures::shape;
use advlab::script::Host;
use advlab::study::Mass;
use advlab::train::Kept;
use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::streams::{on_stdout, out};
use super::{load, pair, rollouts, title};

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
    /// Print all shares as one JSON object
    #[arg(long)]
    json: bool,
}

impl ShowMass {
    pub fn run(self) -> Result<ExitCode> {
        let host = Host::new();
        let recipe = load(&host, &self.recipe, &self.set)?;
        let loss = match self.input.is_dir() {
            true => Kept::open(&self.input)?.loss(&host)?,
            false => host.loss()?,
        };
        let (rollouts, notes) = rollouts(&self.input, &self.map, None, None, None)?;
        let mass = Mass::of(&recipe, &loss, &rollouts.batch)?;
        if self.json {
            out!("{}", json!(mass));
            return Ok(ExitCode::SUCCESS);
        }
        let paint = on_stdout();
        for note in notes {
            out!("{note}");
        }
        let shape = shape(rollouts.batch.layout());
        let title = title(recipe.name(), &recipe, paint);
        out!("{title}\n{}: {shape}\n", self.input.display());
        out!("{}", mass.table(paint));
        Ok(ExitCode::SUCCESS)
    }
}
