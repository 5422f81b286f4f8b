//! `advlab profile RECIPE [INPUT]`: where the time of a recipe goes, by hook and by line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::report::profile::{Measured, example};
use advlab::batch::Batch;
use advlab::script::{Host, Recipe};
use advlab_train::RunFolder;
use anyhow::Result;
use clap::Args;

use super::streams::{on_stdout, out};
use super::{Reading, load, pair, set};

/// See where the time of a recipe goes, by hook and by line of the script.
#[derive(Args)]
pub struct Profile {
    /// A built-in's name, or the path of a .rhai file; or a run's folder: the version that its last batch saw, with the run's loss
    #[arg(value_name = "RECIPE|RUN")]
    recipe: String,
    /// The rollouts: .jsonl (.gz, .zst), .parquet, .safetensors or .npz, or a run's folder: its last batch; 64 groups of 16 responses to 1024
    /// tokens if not given
    #[arg(value_name = "INPUT|RUN")]
    input: Option<PathBuf>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// How often the recipe is run
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print all figures as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

impl Profile {
    pub fn run(self) -> Result<ExitCode> {
        let host = Host::new();
        let (recipe, loss, batch) = self.recipe_on_batch(&host)?;
        let runs = self.runs as usize;
        let measured = Measured::new(&host, &recipe, loss.as_ref(), &batch, runs)?;
        if self.json {
            out!("{}", measured.to_json());
        } else {
            out!("{}", measured.table(on_stdout()));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The recipe, the loss that a run has behind it, and the batch.
    fn recipe_on_batch(&self, host: &Host) -> Result<(Recipe, Option<Recipe>, Batch)> {
        let folder = Path::new(&self.recipe);
        let read = |input: &Path| {
            let (rollouts, notes) = self.reading.read(input)?;
            for note in notes.iter().filter(|_| input.is_dir() && !self.json) {
                out!("{note}");
            }
            Ok::<_, anyhow::Error>(rollouts)
        };
        if folder.is_dir() {
            let kept = RunFolder::open(folder)?;
            let mut recipe = kept.recipe_at(host, self.reading.at.step.unwrap_or(kept.last().0))?;
            set(&mut recipe, &self.set)?;
            let loss = kept.loss(host)?;
            let batch = read(self.input.as_deref().unwrap_or(folder))?.batch;
            return Ok((recipe, Some(loss), batch));
        }
        let recipe = load(host, &self.recipe, &self.set)?;
        let batch = match &self.input {
            Some(input) => read(input)?.batch,
            None => example(64, 16, 1024),
        };
        Ok((recipe, None, batch))
    }
}
