//! `advlab profile RECIPE [INPUT]`: where the time of a recipe goes, by stage and by line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{self, counted, shape};
use advlab::paint::{Paint, beside};
use advlab::script::{Hook, Host, Recipe};
use advlab::tensor::profile::{Profile as Stages, Stage};
use advlab::tensor::{Executor, Level};
use anyhow::Result;
use clap::Args;
use ndarray::Array2;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::streams::{on_stdout, out};
use super::{load, pair, rollouts, title};

/// See where the time of a recipe goes, by stage and by line of the script.
#[derive(Args)]
pub struct Profile {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts: .jsonl, .safetensors or .npz, or a run's folder; 64 groups of 16 responses to 1024 tokens if not given
    input: Option<PathBuf>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    map: Vec<(String, String)>,
    /// How often the recipe is run
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print all figures as one JSON object
    #[arg(long)]
    json: bool,
}

impl Profile {
    pub fn run(self) -> Result<ExitCode> {
        let batch = match &self.input {
            Some(input) => rollouts(input, &self.map, None, None)?.0.batch,
            None => made()?,
        };
        let measured = |executor: Executor, runs: u32| -> Result<Vec<f64>> {
            let host = Host::new().with_executor(executor);
            let recipe = load(&host, &self.recipe, &self.set)?;
            // The first run finds memory and caches as no later one does.
            once(&recipe, &batch)?;
            let runs = (0..runs).map(|_| Ok(once(&recipe, &batch)?.total()));
            runs.collect()
        };
        let fused = measured(Executor::Fused, self.runs)?;
        let naive = measured(Executor::Naive, self.runs.min(3))?;
        let stages = Arc::new(Stages::default());
        let host = Host::new().with_profile(stages.clone());
        let recipe = load(&host, &self.recipe, &self.set)?;
        once(&recipe, &batch)?;
        stages.take();
        let run = once(&recipe, &batch)?;
        let profiled = Profiled {
            recipe,
            batch,
            fused,
            naive,
            run,
            stages: stages.take(),
            bandwidth: bandwidth(),
        };
        if self.json {
            out!("{}", profiled.json());
        } else {
            profiled.tell(on_stdout())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How long a run of a recipe took, in seconds.
struct Run {
    hooks: f64,
    /// Writing the advantage as a padded array, where there is one.
    padding: f64,
    peak: Option<usize>,
}

impl Run {
    fn total(&self) -> f64 {
        self.hooks + self.padding
    }
}

/// Runs a recipe's advantage to a new padded array; of a recipe that has a loss alone, the loss and its gradient.
fn once(recipe: &Recipe, batch: &Batch) -> Result<Run, Diagnostics> {
    let mut state = recipe.init()?;
    let started = Instant::now();
    if recipe.has(Hook::Advantage) {
        let outcome = recipe.advantage(batch, &mut state)?;
        let hooks = started.elapsed().as_secs_f64();
        let padded = outcome.advantage.to_padded();
        let padding = started.elapsed().as_secs_f64() - hooks;
        drop(padded);
        return Ok(Run {
            hooks,
            padding,
            peak: Some(outcome.peak_bytes),
        });
    }
    recipe.loss(batch, None, &mut state)?;
    Ok(Run {
        hooks: started.elapsed().as_secs_f64(),
        padding: 0.0,
        peak: None,
    })
}

/// A batch with all columns that built-ins read: a reward of 0 or 1 on the last token.
fn made() -> Result<Batch> {
    const GROUPS: usize = 64;
    const SIZE: usize = 16;
    const TOKENS: usize = 1024;
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let shape = (GROUPS * SIZE, TOKENS);
    let lengths: Vec<usize> = (0..shape.0)
        .map(|_| random.random_range(TOKENS / 8..=TOKENS))
        .collect();
    let rewards: Vec<f64> = (0..shape.0)
        .map(|_| f64::from(random.random_range(0..2u8)))
        .collect();
    let mask = Array2::from_shape_fn(shape, |(response, token)| {
        u8::from(token < lengths[response])
    });
    let mut column =
        |least: f32, most: f32| Array2::from_shape_fn(shape, |_| random.random_range(least..most));
    let old_logp = column(-1.0, 0.0);
    let logp = &old_logp + &column(-0.05, 0.05);
    let ref_logp = &old_logp + &column(-0.1, 0.1);
    let batch = Batch::builder()
        .groups((0..shape.0).map(|response| response / SIZE))
        .mask(mask.view())
        .response("reward", rewards)
        .token("old_logp", old_logp)
        .token("logp", logp)
        .token("ref_logp", ref_logp)
        .token("value", column(0.0, 1.0))
        .token("entropy", column(0.0, 2.0))
        .token("advantage", column(-1.0, 1.0));
    Ok(batch.build()?)
}

/// Bytes a second of a large sum in place, two reads and a write, on all threads: the best of three.
fn bandwidth() -> f64 {
    const LENGTH: usize = 1 << 24;
    let (mut a, b) = (vec![1.0f32; LENGTH], vec![1.0f32; LENGTH]);
    let best = (0..3).map(|_| {
        let started = Instant::now();
        let pairs = a.par_chunks_mut(1 << 16).zip(b.par_chunks(1 << 16));
        pairs.for_each(|(a, b)| a.iter_mut().zip(b).for_each(|(a, b)| *a += b));
        started.elapsed().as_secs_f64()
    });
    (3 * LENGTH * size_of::<f32>()) as f64 / best.fold(f64::INFINITY, f64::min)
}

/// The line of a script, by the script's name: none for the recipe's own.
type Line = (Option<Arc<str>>, usize);

struct Profiled {
    recipe: Recipe,
    batch: Batch,
    /// Seconds, run by run.
    fused: Vec<f64>,
    naive: Vec<f64>,
    /// The run whose stages these are.
    run: Run,
    stages: Vec<Stage>,
    /// Bytes a second.
    bandwidth: f64,
}

impl Profiled {
    /// The seconds of each line that asked for an operation, the longest first.
    fn lines(&self) -> Vec<(Line, f64)> {
        let mut lines: BTreeMap<Line, f64> = BTreeMap::new();
        for operation in self.stages.iter().flat_map(|stage| &stage.operations) {
            if let Some(origin) = &operation.origin {
                *lines
                    .entry((origin.source.clone(), origin.line))
                    .or_default() += operation.seconds;
            }
        }
        let mut lines: Vec<(Line, f64)> = lines.into_iter().collect();
        lines.sort_by(|a, b| b.1.total_cmp(&a.1));
        lines
    }

    /// A line's own text.
    fn text(&self, (source, line): &Line) -> &str {
        let name = source.as_deref().unwrap_or(self.recipe.name());
        let mut sources = self.recipe.sources();
        let text = match sources.find(|(other, _)| other == &name) {
            Some((_, text)) => text,
            None => self.recipe.text(),
        };
        text.lines().nth(line - 1).unwrap_or_default().trim()
    }

    /// The time in the script and in making plans: what no stage took.
    fn script(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(|stage| stage.seconds).sum();
        (self.run.hooks - stages).max(0.0)
    }

    /// Token operations that were computed in full, with their lines.
    fn whole(&self) -> Vec<String> {
        let is_large = |level: Level| matches!(level, Level::Token | Level::Position);
        let large = |stage: &&Stage| !stage.is_pass && is_large(stage.level);
        let names = self
            .stages
            .iter()
            .filter(large)
            .flat_map(|stage| &stage.operations);
        let mut told: BTreeMap<String, usize> = BTreeMap::new();
        for operation in names {
            let line = operation.origin.as_ref().map(|origin| origin.line);
            let line = line.map_or(String::new(), |line| format!(" (line {line})"));
            *told
                .entry(format!("`{}`{line}", operation.name))
                .or_default() += 1;
        }
        let told = told.into_iter().map(|(name, times)| match times {
            1 => name,
            times => format!("{name}, {times} times"),
        });
        told.collect()
    }

    fn json(&self) -> Value {
        let stages = self.stages.iter().map(|stage| {
            let names: Vec<&str> = stage
                .operations
                .iter()
                .map(|operation| operation.name)
                .collect();
            json!({
                "pass": stage.is_pass, "seconds": stage.seconds, "read": stage.read,
                "written": stage.written, "operations": names,
            })
        });
        let lines = self.lines();
        let lines = lines.iter().map(|(line, seconds)| {
            json!({
                "script": line.0.as_deref(), "line": line.1, "text": self.text(line),
                "seconds": seconds,
            })
        });
        let layout = self.batch.layout();
        json!({
            "recipe": self.recipe.name(),
            "version": self.recipe.version().to_string(),
            "responses": layout.responses(),
            "groups": layout.groups(),
            "tokens": layout.tokens(),
            "threads": rayon::current_num_threads(),
            "script": { "seconds": self.fused },
            "naive": { "seconds": self.naive },
            "native": null,
            "stages": stages.collect::<Vec<_>>(),
            "lines": lines.collect::<Vec<_>>(),
            "in_script": self.script(),
            "padding": self.run.padding,
            "in_full": self.whole(),
            "peak_bytes": self.run.peak,
            "bandwidth": self.bandwidth,
        })
    }

    fn tell(&self, paint: Paint) -> Result<()> {
        let threads = counted(rayon::current_num_threads(), "thread");
        out!("{}", title(self.recipe.name(), &self.recipe, paint));
        out!("{}; {threads}", shape(self.batch.layout()));
        out!();
        let (fused, naive) = (best(&self.fused), best(&self.naive));
        let most = self.fused.iter().copied().fold(0.0, f64::max);
        let runs = counted(self.fused.len(), "run");
        out!(
            "{:<10}{:>10}   to {}, {runs}",
            "fused",
            time(fused),
            time(most)
        );
        out!(
            "{:<10}{:>10}   {:.1} times as long",
            "naive",
            time(naive),
            naive / fused
        );
        out!();
        let head = format!(
            "{:<28}{:>9}{:>8}{:>10}{:>10}{:>12}",
            "stage", "time", "share", "read", "written", "of peak"
        );
        out!("{}", paint.dim(&head));
        let total = self.run.total();
        let row = |name: &str, seconds: f64, rest: &str| -> Result<()> {
            let share = format!("{:.0} %", 100.0 * seconds / total);
            out!("{name:<28}{:>9}{share:>8}{rest}", time(seconds));
            Ok(())
        };
        let mut passes = 0;
        let mut others = 0.0;
        for stage in &self.stages {
            if !stage.is_pass {
                others += stage.seconds;
                continue;
            }
            passes += 1;
            let operations = counted(stage.operations.len(), "operation");
            let moved = (stage.read + stage.written) as f64 / stage.seconds;
            let rest = format!(
                "{:>10}{:>10}{:>12}",
                bytes(stage.read),
                bytes(stage.written),
                format!("{:.0} %", 100.0 * moved / self.bandwidth)
            );
            row(
                &format!("tokens, pass {passes}: {operations}"),
                stage.seconds,
                &rest,
            )?;
        }
        row("other values, in full", others, "")?;
        row("script and plan", self.script(), "")?;
        if self.recipe.has(Hook::Advantage) {
            row("the padded array [B, T]", self.run.padding, "")?;
        }
        out!();
        out!(
            "{}",
            paint.dim(&format!("{:>9}{:>8}  line", "time", "share"))
        );
        for (line, seconds) in self.lines() {
            let share = format!("{:.0} %", 100.0 * seconds / total);
            let number = match &line.0 {
                Some(source) if **source != *self.recipe.name() => {
                    format!("{source}:{}", line.1)
                }
                _ => line.1.to_string(),
            };
            let text = format!(
                "{:>9}{share:>8}  {number:>4}  {}",
                time(seconds),
                self.text(&line)
            );
            let shown: String = text.chars().take(paint.width).collect();
            out!("{shown}");
        }
        out!();
        if let Some(peak) = self.run.peak {
            out!("memory     {} at most, beside the batch", bytes(peak));
        }
        out!(
            "peak       this machine moves {:.1} GB/s",
            self.bandwidth / 1e9
        );
        match &self.whole()[..] {
            [] => out!("fell back  nothing: all token operations went tile by tile"),
            names => {
                let names = format!("computed in full: {}", names.join("; "));
                out!("{}", beside("fell back", 11, &names, paint.width));
            }
        }
        Ok(())
    }
}

fn best(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

fn time(seconds: f64) -> String {
    figures::time(Duration::from_secs_f64(seconds))
}

fn bytes(number: usize) -> String {
    match number as f64 {
        n if n < 1e6 => format!("{:.0} kB", n / 1e3),
        n => format!("{:.0} MB", n / 1e6),
    }
}
