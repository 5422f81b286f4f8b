//! `advlab profile RECIPE [INPUT]`: measures the time of a recipe, by hook and by line.

use std::path::{Path, PathBuf};

use crate::report::profile::{self, example};
use advlab::script::Host;
use advlab_train::RunFolder;
use anyhow::Result;
use clap::Args;

use super::streams::{self, on_stdout, out};
use super::{ReadArguments, load, set};
use crate::pair;

/// See where a recipe spends its time, by hook and by line of the script.
#[derive(Args)]
pub struct ProfileArguments {
    /// A built-in's name, the path of a .rhai file, or a run's folder: the version at the run's last batch (or at --step), with
    /// the run's loss
    #[arg(value_name = "RECIPE|RUN")]
    recipe: String,
    /// The rollouts: .jsonl (.gz, .zst), .parquet or .safetensors, or a run's folder, whose last batch is used. If not given, the
    /// batch of the run that RECIPE names, or 64 groups of 16 responses of up to 1024 tokens
    #[arg(value_name = "INPUT|RUN")]
    input: Option<PathBuf>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// The number of runs in each measurement
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print all figures as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: ReadArguments,
}

impl ProfileArguments {
    pub fn run(self) -> Result<bool> {
        let host = Host::new();
        let run = Some(Path::new(&self.recipe)).filter(|path| path.is_dir());
        let run = run.map(RunFolder::open).transpose()?;
        // A run also has a loss recipe, which is used if the recipe itself has no `loss`.
        let (recipe, loss) = match &run {
            Some(run) => {
                let step = self.reading.step.unwrap_or(run.last().0);
                let mut recipe = run.recipe_at(&host, step)?;
                set(&mut recipe, &self.set)?;
                (recipe, Some(run.loss(&host)?))
            }
            None => (load(&host, &self.recipe, &self.set)?, None),
        };
        let folder = run.as_ref().map(RunFolder::folder);
        let batch = match self.input.as_deref().or(folder) {
            Some(input) => {
                let (rollouts, notes) = self.reading.read(input)?;
                for note in notes.iter().filter(|_| input.is_dir() && !self.json) {
                    out!("{note}");
                }
                rollouts.batch
            }
            None => example(64, 16, 1024),
        };
        let runs = self.runs as usize;
        let loss = loss.as_ref();
        let report = profile::report(&host, &recipe, loss, &batch, runs, on_stdout())?;
        if self.json {
            streams::data(&report.about.to_string())?
        } else {
            out!("{}", report.text)
        }
        Ok(true)
    }
}
