//! Designs compared: several seeds of each, run or read from their folders, with tables, curves and a report.

mod files;
mod report;
pub mod stats;
mod training;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use self::report::Comparison;
pub use self::training::{Failed, Planned, Progress, run};
use crate::wrong;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab_train::{Config, RunFolder};

/// The numbers of a run, read from its folder.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The run's folder.
    pub folder: PathBuf,
    /// The seed, if the run's own configuration has it.
    pub seed: Option<u64>,
    /// The version that it used last, if the folder has it.
    pub version: Option<String>,
    /// Numbers by name (`pass@1`, `pass@16`, `entropy`, `length`), each with the number of steps before it: of evaluations, or of
    /// training if there was no evaluation.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// The steps from which another version was used.
    pub reloads: Vec<u64>,
    /// Seconds that all steps took.
    pub seconds: f64,
}

/// Runs that only differ in their seed.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The recipe with its settings, as tables name it.
    pub name: String,
    /// Its runs.
    pub runs: Vec<Finished>,
    /// Its version, seeds, configuration and scripts, for the report.
    pub about: String,
}

impl Finished {
    fn of(run: &RunFolder, config: Option<&Config>) -> Result<Finished, Diagnostics> {
        let (rows, log) = (run.rows()?, run.log()?);
        let evaluated = rows.iter().any(|row| row["evaluation"].is_object());
        let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        let mut seconds = 0.0;
        for row in &rows {
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
                    let others = ["entropy", "length", "reward_mean"];
                    let is_shown = name.starts_with("pass@") || others.contains(&&**name);
                    if let Some(number) = number.as_f64().filter(|_| is_shown) {
                        let curve = curves.entry(name.clone()).or_default();
                        curve.push((steps, number));
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
                run.folder().display()
            );
            return Err(Diagnostic::error(message).into());
        }
        let own = config.filter(|config| !config.is_recorded());
        let versions = log.versions();
        Ok(Finished {
            seed: own.map(|config| config.seed),
            folder: run.folder().to_path_buf(),
            version: versions.last().map(|(_, version)| version.to_string()),
            curves,
            reloads: versions.iter().skip(1).map(|(step, _)| *step).collect(),
            seconds,
        })
    }

    /// The number of that name after so many steps, or the last one.
    fn at(&self, name: &str, steps: Option<f64>) -> Option<f64> {
        let curve = self.curves.get(name)?;
        let own = |point: &&(f64, f64)| steps.is_none_or(|steps| point.0 == steps);
        Some(curve.iter().rev().find(own)?.1)
    }
}

/// The runs of some folders, by design; a folder that is not a run stands for the runs in it.
pub fn read(folders: &[PathBuf]) -> Result<Vec<Compared>, Diagnostics> {
    let mut designs: Vec<(String, Option<Config>, Vec<Finished>)> = Vec::new();
    for folder in folders {
        for path in folders_of_runs(folder)? {
            let run = RunFolder::read(&path);
            let log = run.log()?;
            let own = run.has_config().then(|| run.config()).transpose()?;
            let config = own.as_ref().map(alike);
            let key = match &config {
                Some(config) => {
                    let first = log.versions().first().map(|(_, version)| *version);
                    format!("{first:?} {:?} {config:?}", log.loss_version())
                }
                // What another program wrote says nothing of its design but where it lies.
                None => path.display().to_string(),
            };
            let run = Finished::of(&run, own.as_ref())?;
            match designs.iter_mut().find(|(own, ..)| *own == key) {
                Some((.., runs)) => runs.push(run),
                None => designs.push((key, config, vec![run])),
            }
        }
    }
    Ok(named(designs))
}

/// Names designs by their recipes, parameters, and the keys of the configuration in which they differ.
fn named(designs: Vec<(String, Option<Config>, Vec<Finished>)>) -> Vec<Compared> {
    let configs = designs.iter().filter_map(|(_, config, _)| config.as_ref());
    let set: Vec<Vec<String>> = configs.map(set_keys).collect();
    let mut all: Vec<Compared> = Vec::new();
    for (_, config, runs) in designs {
        let folder = &runs[0].folder;
        let mut name = match &config {
            None => file_name(folder),
            Some(config) => {
                let mut words = vec![config.recipe.clone()];
                words.extend(settings(&config.params));
                let own = set_keys(config).into_iter();
                words.extend(own.filter(|key| !set.iter().all(|other| other.contains(key))));
                words.join(" ")
            }
        };
        if all.iter().any(|one| one.name == name) {
            // Another script has that name.
            name = format!("{name} ({})", folder.display());
        }
        let about = about(config.as_ref(), &runs);
        all.push(Compared { name, runs, about });
    }
    all
}

/// A design's version, seeds, configuration and scripts, for the report.
fn about(config: Option<&Config>, runs: &[Finished]) -> String {
    let seeds = runs.iter().filter_map(|run| Some(run.seed?.to_string()));
    let version = runs[0].version.as_deref().unwrap_or("unknown");
    let mut text = format!("version {version}\n");
    text += &format!("seeds {}\n", seeds.collect::<Vec<_>>().join(", "));
    for key in config.iter().flat_map(|config| set_keys(config)) {
        text += &format!("{key}\n");
    }
    let scripts = runs[0].folder.join("scripts").join(version);
    let scripts = std::fs::read_dir(scripts).into_iter().flatten().flatten();
    let mut scripts: Vec<PathBuf> = scripts.map(|entry| entry.path()).collect();
    scripts.sort();
    for path in scripts {
        let script = advlab::regular_file::read_to_string(&path).unwrap_or_default();
        text += &format!("\n---- {}\n{script}", file_name(&path));
    }
    text
}

/// The folders of runs in a folder, itself included.
pub fn folders_of_runs(folder: &Path) -> Result<Vec<PathBuf>, Diagnostics> {
    let mut runs = Vec::new();
    find(folder, 3, &mut runs);
    if runs.is_empty() {
        let message = format!("{} is not a run, and has none in it", folder.display());
        let help = "a run's folder has a `metrics.jsonl`";
        return Err(wrong(message, help));
    }
    Ok(runs)
}

/// The folders of runs in a folder, itself included, at most so deep.
fn find(folder: &Path, depth: usize, runs: &mut Vec<PathBuf>) {
    if folder.join("metrics.jsonl").is_file() {
        runs.push(folder.to_path_buf());
    } else if depth > 0 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // A link may lead to one.
        let may_be_folder = |entry: &std::fs::DirEntry| {
            let kind = entry.file_type();
            kind.is_ok_and(|kind| kind.is_dir() || kind.is_symlink())
        };
        let folders = entries.filter(may_be_folder).map(|entry| entry.path());
        let mut folders: Vec<PathBuf> = folders.collect();
        folders.sort();
        for folder in folders {
            find(&folder, depth - 1, runs);
        }
    }
}

/// A configuration without the keys in which runs of one design differ.
fn alike(config: &Config) -> Config {
    Config {
        seed: 0,
        steps: 0,
        out: String::new(),
        recipe: file_stem(&config.recipe),
        ..config.with_absolute_paths()
    }
}

/// `name=value` of each key that differs from the default configuration, except the recipe and its parameters.
fn set_keys(config: &Config) -> Vec<String> {
    let words = |config: &Config| {
        let mut words = Vec::new();
        for (key, value) in config.to_table() {
            match value {
                _ if ["recipe", "params"].contains(&&*key) => {}
                toml::Value::Table(own) => {
                    words.extend(settings(&own).map(|word| format!("{key}.{word}")));
                }
                toml::Value::String(text) => words.push(format!("{key}={}", file_stem(&text))),
                value => words.push(format!("{key}={value}")),
            }
        }
        words
    };
    let defaults = words(&alike(&Config::default()));
    let mut words = words(config);
    words.retain(|word| !defaults.contains(word));
    words
}

/// `name=value` of each.
fn settings(table: &toml::Table) -> impl Iterator<Item = String> + '_ {
    table.iter().map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    })
}

/// The name of a script without folder and ending.
fn file_stem(text: &str) -> String {
    let stem = Path::new(text).file_stem();
    stem.map_or(text.to_string(), |stem| stem.to_string_lossy().into_owned())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
