//! Designs compared: several seeds of each, run or read from their folders, with tables, curves and a report.

mod report;
pub mod stats;
mod training;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use self::report::{Comparison, Scores};
pub use self::training::{Planned, Progress, run};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::train::{Config, Logged};

/// A run as its folder tells it.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The run's folder.
    pub folder: PathBuf,
    /// The seed, where a configuration says it.
    pub seed: Option<u64>,
    /// Numbers by name (`pass@1`, `pass@16`, `entropy`, `length`), each after so many steps: of evaluations, or of
    /// training where there was no evaluation.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// The steps from which another version was used.
    pub reloads: Vec<u64>,
    /// Seconds that all steps took.
    pub seconds: f64,
}

/// Runs that differ in nothing but their seed.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The recipe with its settings, as tables name it.
    pub name: String,
    /// Its runs.
    pub runs: Vec<Finished>,
}

impl Finished {
    fn of(logged: Logged) -> Result<Finished, Diagnostics> {
        let evaluated = logged.rows.iter().any(|row| row["evaluation"].is_object());
        let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        let mut seconds = 0.0;
        for row in &logged.rows {
            let step = row["step"].as_u64().unwrap_or(0);
            let at = |steps: u64| steps as f64;
            let of_training = (!evaluated).then_some((at(step + 1), row));
            let evaluations = [
                Some((at(step), &row["initial_evaluation"])),
                Some((at(step + 1), &row["evaluation"])),
                of_training,
            ];
            for (steps, numbers) in evaluations.into_iter().flatten() {
                for (name, number) in numbers.as_object().into_iter().flatten() {
                    let is_shown = name.starts_with("pass@")
                        || ["entropy", "length", "reward_mean"].contains(&name.as_str());
                    if let Some(number) = number.as_f64().filter(|_| is_shown) {
                        curves
                            .entry(name.clone())
                            .or_default()
                            .push((steps, number));
                    }
                }
            }
            let stages = row["ms"].as_object().into_iter().flatten();
            // Kernels' time is a part of other stages.
            let stages = stages.filter(|(name, _)| *name != "native");
            seconds += stages.filter_map(|(_, ms)| ms.as_f64()).sum::<f64>() / 1e3;
        }
        if curves.is_empty() {
            let message = format!(
                "{} has no step with a number to compare",
                logged.folder.display()
            );
            return Err(Diagnostic::error(message).into());
        }
        Ok(Finished {
            seed: logged.config.as_ref().map(|config| config.seed),
            folder: logged.folder,
            curves,
            reloads: logged.reloads,
            seconds,
        })
    }

    /// The number of that name after so many steps; the last one where none are given.
    fn at(&self, name: &str, steps: Option<f64>) -> Option<f64> {
        let curve = self.curves.get(name)?;
        let own = |point: &&(f64, f64)| steps.is_none_or(|steps| point.0 == steps);
        Some(curve.iter().rev().find(own)?.1)
    }
}

/// The runs of some folders, by design: a folder that is no run stands for the runs in it.
///
/// # Errors
/// [`Diagnostics`] where a folder has no run, or a run has done nothing.
pub fn read(folders: &[PathBuf]) -> Result<Vec<Compared>, Diagnostics> {
    let mut designs: Vec<(String, Compared)> = Vec::new();
    for folder in folders {
        for path in folders_of_runs(folder)? {
            let logged = Logged::open(&path)?;
            let (key, name) = match &logged.config {
                Some(config) => (
                    format!("{:?} {:?}", logged.version, alike(config)),
                    name(config),
                ),
                // What another program wrote says nothing of its design but where it lies.
                None => (path.display().to_string(), file_name(&path)),
            };
            let run = Finished::of(logged)?;
            match designs.iter_mut().find(|(own, _)| *own == key) {
                Some((_, design)) => design.runs.push(run),
                None => designs.push((
                    key,
                    Compared {
                        name,
                        runs: vec![run],
                    },
                )),
            }
        }
    }
    let mut all: Vec<Compared> = designs.into_iter().map(|(_, design)| design).collect();
    for index in 1..all.len() {
        let (before, rest) = all.split_at_mut(index);
        if before.iter().any(|one| one.name == rest[0].name) {
            // Another script of that name, or another key of the configuration.
            rest[0].name = format!("{} ({})", rest[0].name, rest[0].runs[0].folder.display());
        }
    }
    Ok(all)
}

/// The folders of runs in a folder, itself included.
///
/// # Errors
/// [`Diagnostics`] where there is none.
pub fn folders_of_runs(folder: &Path) -> Result<Vec<PathBuf>, Diagnostics> {
    let mut runs = Vec::new();
    find(folder, 3, &mut runs);
    if runs.is_empty() {
        let message = format!("{} is not a run, and has none in it", folder.display());
        let help = "a run's folder has a `metrics.jsonl`";
        return Err(Diagnostic::error(message).with_help(help).into());
    }
    Ok(runs)
}

/// The folders of runs in a folder, itself included, at most so deep.
fn find(folder: &Path, depth: usize, runs: &mut Vec<PathBuf>) {
    if folder.join("metrics.jsonl").is_file() {
        runs.push(folder.to_path_buf());
    } else if depth > 0 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.sort();
        folders
            .iter()
            .for_each(|folder| find(folder, depth - 1, runs));
    }
}

/// A configuration without what seeds of one design differ in.
fn alike(config: &Config) -> Config {
    let recipe = Path::new(&config.recipe).file_stem();
    Config {
        seed: 0,
        steps: 0,
        out: String::new(),
        recipe: recipe.unwrap_or_default().to_string_lossy().into_owned(),
        ..config.clone()
    }
}

/// The recipe's name with what is set.
fn name(config: &Config) -> String {
    let stem = Path::new(&config.recipe).file_stem();
    let stem = stem.unwrap_or_default().to_string_lossy();
    let set = config
        .params
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!(" {name}={text}"),
            None => format!(" {name}={value}"),
        });
    format!("{stem}{}", set.collect::<String>())
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
