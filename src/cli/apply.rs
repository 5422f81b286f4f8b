//! `advlab apply RECIPE INPUT`: a recipe on rollouts that are there already.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use advlab::batch::{Dtype, ReadOptions, Rollouts, read};
use advlab::script::{Host, Outcome, Recipe, Summary};
use advlab::tensor::Level;
use advlab::train::Kept;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::out::out;
use super::progress::Progress;
use super::{Setting, load, mappings, style};

/// Compute advantages for rollouts in a file.
#[derive(Args)]
pub struct Apply {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts: .jsonl, .safetensors or .npz, or a run's folder: its last batch
    input: PathBuf,
    /// Write a copy of the input with the advantage added
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Setting>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS")]
    map: Vec<Setting>,
    /// The precision of token columns; the file's own (f64 for JSONL) if not given
    #[arg(long, value_enum)]
    dtype: Option<Precision>,
    /// The seed of `batch.random`
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Precision {
    F32,
    F64,
}

impl Apply {
    /// Reads, computes, writes, and sums up.
    pub fn run(mut self) -> Result<ExitCode> {
        let host = Host::new().with_seed(self.seed);
        let recipe = load(&host, &self.recipe, &self.set)?;

        let mut notes = Vec::new();
        if self.input.is_dir() {
            let batch = Kept::open(&self.input)?.last().1.to_path_buf();
            let (run, batch_shown) = (self.input.display(), batch.display());
            notes.push(format!(
                "{run} is a run's folder: this is its last batch, {batch_shown}"
            ));
            self.input = batch;
        }

        let started = Instant::now();
        let rollouts = self.read()?;
        let reading = started.elapsed();

        let mut state = recipe.init()?;
        let outcome = recipe.advantage(&rollouts.batch, &mut state)?;
        notes.extend(rollouts.notes.iter().map(ToString::to_string));
        notes.extend(outcome.notes.iter().cloned());
        if outcome.advantage.level() == Level::Token && rollouts.batch.layout().tokens() == 0 {
            bail!(
                "{}: {} gives an advantage to each token, and no token counts here; the rollouts need a `mask`, a `length`, a `completion`, or token arrays such as `old_logp`",
                self.input.display(),
                recipe.name()
            );
        }

        let started = Instant::now();
        if let Some(output) = &self.output {
            write(&rollouts, &outcome, output)?;
        }
        let writing = self.output.as_ref().map(|_| started.elapsed());

        let times = Times {
            reading,
            computing: outcome.time,
            writing,
        };
        if self.json {
            out!("{}", as_json(&recipe, &rollouts, &outcome, &notes, &times));
        } else {
            self.print(&recipe, &outcome, &notes, &times)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn read(&self) -> Result<Rollouts> {
        let map = mappings(&self.map);
        let progress = Progress::new("reading");
        let tell = |done, total| progress.at(done, total);
        let options = ReadOptions {
            map: &map,
            dtype: self.dtype.map(|dtype| match dtype {
                Precision::F32 => Dtype::F32,
                Precision::F64 => Dtype::F64,
            }),
            progress: Some(&tell),
        };
        Ok(read(&self.input, &options)?)
    }

    fn print(
        &self,
        recipe: &Recipe,
        outcome: &Outcome,
        notes: &[String],
        times: &Times,
    ) -> Result<()> {
        for line in &outcome.prints {
            out!("{line}");
        }
        for note in notes {
            eprintln!("note: {note}");
        }
        let summary = Summary::of(outcome);
        let settings: Vec<String> = recipe
            .params()
            .iter()
            .map(|(parameter, value)| format!("{}={value}", parameter.name))
            .collect();
        out!(
            "{} {}  {}",
            style::bold(recipe.name()),
            style::dim(recipe.version().short()),
            style::dim(&settings.join(" "))
        );
        let [least, most] = summary.group_size;
        let sizes = if least == most {
            format!("{least}")
        } else {
            format!("{least} to {most}")
        };
        out!(
            "{}: {} responses in {} groups of {sizes}, {} tokens",
            self.input.display(),
            style::count(summary.responses),
            style::count(summary.groups),
            style::count(summary.tokens),
        );
        out!();
        for (name, text) in self.rows(&summary, outcome, times) {
            out!("  {name:<11} {text}");
        }
        Ok(())
    }

    /// The table below the head: what a row is about, and what it says.
    fn rows(
        &self,
        summary: &Summary,
        outcome: &Outcome,
        times: &Times,
    ) -> Vec<(&'static str, String)> {
        let mut rows = summary.rows();
        let mut row = |name, text| rows.push((name, text));
        if let Some(loss) = outcome.loss {
            row(
                "loss",
                format!("{loss:.6}   (the advantage is the equivalent one, -M dloss/dlogp)"),
            );
        }
        for (name, value) in &outcome.metrics {
            row("metric", format!("{name} {value:.6}"));
        }
        let mut time = format!(
            "read {}   recipe {}",
            style::time(times.reading),
            style::time(times.computing)
        );
        if let Some(writing) = times.writing {
            time.push_str(&format!("   write {}", style::time(writing)));
        }
        row("time", time);
        if let Some(output) = &self.output {
            row("written", output.display().to_string());
        }
        rows
    }
}

struct Times {
    reading: Duration,
    computing: Duration,
    writing: Option<Duration>,
}

fn write(rollouts: &Rollouts, outcome: &Outcome, output: &Path) -> Result<()> {
    rollouts
        .write_advantage(output, &outcome.advantage)
        .with_context(|| {
            format!(
                "the advantage was computed, but not written to {}",
                output.display()
            )
        })
}

fn as_json(
    recipe: &Recipe,
    rollouts: &Rollouts,
    outcome: &Outcome,
    notes: &[String],
    times: &Times,
) -> serde_json::Value {
    let params: serde_json::Map<String, serde_json::Value> = recipe
        .params()
        .iter()
        .map(|(parameter, value)| (parameter.name.clone(), json!(value.to_string())))
        .collect();
    let metrics: serde_json::Map<String, serde_json::Value> = outcome
        .metrics
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    json!({
        "recipe": recipe.name(),
        "version": recipe.version().as_str(),
        "params": params,
        "input": rollouts.path(),
        "summary": Summary::of(outcome),
        "loss": outcome.loss,
        "metrics": metrics,
        "notes": notes,
        "prints": outcome.prints,
        "seconds": {
            "read": times.reading.as_secs_f64(),
            "recipe": times.computing.as_secs_f64(),
            "write": times.writing.map(|writing| writing.as_secs_f64()),
        },
    })
}
