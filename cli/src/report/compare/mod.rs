//! Compares designs by several runs of each design with different seeds. The runs are trained by this module or read from their
//! folders; the results are a table, curves and a report.

mod report;
pub mod stats;
mod training;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use self::report::Comparison;
pub use self::training::{FailedRun, Planned, train_all};
use super::{file_name, file_stem};
use crate::{Result, wrong};
use advlab::diagnostic::Diagnostic;
use advlab::suggest::did_you_mean;
use advlab_train::{Config, Evaluation, LogEvent, PassAt, Row, RunFolder, RunKind, RunLog};

/// The metrics of a run, read from the run's folder.
#[derive(Clone, Debug)]
pub struct Finished {
    pub folder: PathBuf,
    /// The seed, if advlab itself did the run and the run has a configuration.
    pub seed: Option<u64>,
    /// The curve of each metric by its name (such as `pass@1`, `pass@16`, `entropy`, `length`); a point is the number of finished
    /// steps and the value. The values are from evaluations; if no evaluation followed a step, also from training.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// The run's log, which contains the versions that the run used.
    log: RunLog,
    seconds: f64,
}

/// The runs of one design, which begin with the same versions and have the same settings, apart from seed, steps and folder.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The design's name in tables: the recipe with its parameters, and the settings that not all designs share.
    pub name: String,
    pub runs: Vec<Finished>,
    /// A text that is equal for all runs of the design, and different for every other design.
    key: String,
    /// The recipe with its parameters, then the keys of the configuration that differ from the default; the folder's name if the
    /// run has no configuration.
    words: Vec<String>,
}

impl Finished {
    fn of(run: &RunFolder, seed: Option<u64>) -> Result<Finished> {
        let (rows, log) = (run.rows()?, run.log()?);
        let is_evaluated = rows.iter().any(|row| row.evaluation.is_some());
        let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for row in &rows {
            let done = row.step.saturating_add(1);
            let sampled = (!is_evaluated).then_some(&row.sampled);
            let reward = sampled.and(row.reward_mean);
            let reward = reward.map(|reward| (done, ("reward_mean".to_string(), reward)));
            let results = [
                (row.step, row.initial_evaluation.as_ref()),
                (done, row.evaluation.as_ref().filter(|_| is_evaluated)),
                (done, sampled),
            ];
            let numbers = results.into_iter().flat_map(|(steps, results)| {
                let named = results.into_iter().flat_map(Evaluation::named);
                named.map(move |number| (steps, number))
            });
            for (steps, (name, number)) in numbers.chain(reward) {
                let curve = curves.entry(name).or_default();
                curve.push((steps as f64, number));
            }
        }
        let folder = run.folder().to_path_buf();
        if curves.is_empty() {
            let message = format!("{} has no step with a number to compare", folder.display());
            return Err(Diagnostic::error(message).into());
        }
        Ok(Finished {
            folder,
            seed,
            curves,
            log,
            seconds: rows.iter().map(Row::seconds).sum(),
        })
    }

    /// Removes the numbers after more than `steps` steps, so that a longer run can be compared.
    ///
    /// # Errors
    /// Returns an error if a curve of a longer run has no point after exactly `steps` steps, because otherwise an earlier point
    /// would be used.
    pub fn cut(&mut self, steps: u64) -> Result<()> {
        let folder = self.folder.display();
        for (name, curve) in &mut self.curves {
            let all: Vec<f64> = curve.iter().map(|(after, _)| *after).collect();
            curve.retain(|(after, _)| *after <= steps as f64);
            if curve.len() < all.len() && !all.contains(&(steps as f64)) {
                let has = all.iter().map(f64::to_string).collect::<Vec<_>>();
                let message = format!("{folder} has no `{name}` after {steps} steps");
                let help = format!("`--steps` can be one of {}", has.join(", "));
                return Err(Diagnostic::error(message).with_help(help).into());
            }
        }
        Ok(())
    }

    /// Returns the value of the metric `name` after `steps` steps or, if `steps` is `None`, the last value.
    fn at(&self, name: &str, steps: Option<f64>) -> Option<f64> {
        let mut curve = self.curves.get(name)?.iter().rev();
        let point = curve.find(|point| steps.is_none_or(|steps| point.0 == steps))?;
        Some(point.1)
    }
}

/// Checks that evaluations with `eval_samples` responses per prompt report the metric `score`.
pub fn check_score(score: &str, eval_samples: usize) -> Result<()> {
    let evaluation = Evaluation {
        pass_at: PassAt::of(&[], eval_samples),
        entropy: Some(0.0),
        length: Some(0.0),
    };
    let known: Vec<String> = evaluation.named().map(|(name, _)| name).collect();
    if known.iter().any(|name| name == score) {
        return Ok(());
    }
    let message = format!("evaluations have no `{score}` to compare");
    let known = known.iter().map(String::as_str);
    Err(wrong(message, did_you_mean(score, known)))
}

/// Reads the runs in some folders, and groups them by design. If a folder is not itself a run, the runs in the folder are read.
pub fn read(folders: &[PathBuf]) -> Result<Vec<Compared>> {
    let (mut all, mut seen): (Vec<Compared>, _) = (Vec::new(), BTreeSet::new());
    for folder in folders {
        for path in folders_of_runs(folder, &mut seen)? {
            let run = RunFolder::read(&path);
            let log = run.log()?;
            let config = run
                .has_config()
                .then(|| run.kind_and_config())
                .transpose()?;
            // A run without a configuration does not name its design, so the run's folder serves as the name.
            let mut words = vec![file_name(&path)];
            let mut key = path.display().to_string();
            if let Some((_, config)) = &config {
                let first = log.versions().first().map(|(_, version)| *version);
                words = words_of(config);
                let loss = log.loss().map(|(_, version)| version);
                key = format!("{first:?} {loss:?} {words:?}");
            }
            let own = config.filter(|(kind, _)| *kind == RunKind::Own);
            let run = Finished::of(&run, own.map(|(_, config)| config.seed))?;
            match all.iter_mut().find(|design| design.key == key) {
                Some(design) => design.runs.push(run),
                None => all.push(Compared {
                    name: String::new(),
                    runs: vec![run],
                    key,
                    words,
                }),
            }
        }
    }
    for index in 0..all.len() {
        // Settings (`key=value`) that all designs share are left out of the names.
        let is_own = |word: &&String| all.iter().any(|design| !design.words.contains(word));
        let (recipe, keys) = all[index].words.split_at(1);
        let own: Vec<&str> = keys.iter().filter(is_own).map(String::as_str).collect();
        let mut name = [&[&*recipe[0]], &own[..]].concat().join(" ");
        if all.iter().any(|design| design.name == name) {
            // Another design already has this name, so the folder is added.
            name = format!("{name} ({})", all[index].runs[0].folder.display());
        }
        all[index].name = name;
    }
    Ok(all)
}

impl Compared {
    /// Describes the design for a paper's appendix: the seeds, versions and platforms of the runs, the configuration of the first
    /// run, and the versions' sources.
    fn about(&self) -> String {
        let (mut text, mut versions) = (String::new(), BTreeMap::new());
        for run in &self.runs {
            let seed = run.seed.map_or("?".to_string(), |seed| seed.to_string());
            text += &format!("seed {seed}\n");
            let used = run.log.versions().into_iter();
            let used = used.map(|(step, version)| (format!("from step {step}"), version));
            let loss = run.log.loss();
            let loss = loss.map(|(_, version)| ("the loss".to_string(), version));
            for (place, version) in used.chain(loss) {
                text += &format!("    {version} {place}\n");
                versions.insert(version, &*run.folder);
            }
            let start = run.log.0.first().map(|line| &line.event);
            if let Some(LogEvent::Start { platform, .. }) = start {
                let line = |(name, value)| format!("    {name} {value}\n");
                text.extend(platform.iter().map(line));
            }
        }
        let first = &self.runs[0].folder.join("config.toml");
        if let Ok(config) = advlab::regular_file::read_to_string(first) {
            text += &format!("\n---- {}\n{config}", first.display());
        }
        for (version, run) in versions {
            for (name, script) in sources(run, version) {
                text += &format!("\n---- {name}, version {version}\n{script}");
            }
        }
        text
    }
}

/// Returns the files of a version that a run used, by name: the script and its imports.
pub fn sources(run: &Path, version: &str) -> BTreeMap<String, String> {
    // The version is checked, because it becomes part of a path and comes from a file that anybody may have written.
    if version.is_empty() || !version.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return BTreeMap::new();
    }
    let entries = std::fs::read_dir(run.join("scripts").join(version));
    let read = |entry: std::fs::DirEntry| {
        let text = advlab::regular_file::read_to_string(&entry.path()).ok()?;
        Some((file_name(entry.path()), text))
    };
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(read).collect()
}

/// Returns the folders of runs in a folder, including the folder itself, down to three levels below it. A run that was already
/// `seen`, perhaps through a link, is skipped, because it must count as one seed.
pub fn folders_of_runs(folder: &Path, seen: &mut BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
    let (mut runs, mut level) = (Vec::new(), vec![folder.to_path_buf()]);
    for _ in 0..4 {
        let is_run = |folder: &PathBuf| folder.join("metrics.jsonl").is_file();
        let (own, others): (Vec<_>, Vec<_>) = level.into_iter().partition(is_run);
        runs.extend(own);
        let below = others.iter().flat_map(std::fs::read_dir).flatten();
        let below = below.flatten().map(|entry| entry.path());
        level = below.filter(|path| path.is_dir()).collect();
    }
    if runs.is_empty() {
        let message = format!("{} is not a run, and contains no run", folder.display());
        let help = "a run's folder has a `metrics.jsonl`";
        return Err(wrong(message, help));
    }
    runs.sort();
    runs.retain(|run| seen.insert(std::fs::canonicalize(run).unwrap_or_default()));
    Ok(runs)
}

/// Returns a recipe's name with its parameters, and `name=value` for each other key of [`own_settings`].
fn words_of(config: &Config) -> Vec<String> {
    let mut words = vec![file_stem(&config.recipe)];
    for (key, value) in own_settings(config) {
        // A script is shown by its name, not by its path.
        let text = match value.as_str() {
            Some(path) if path.ends_with(".rhai") => file_stem(path),
            Some(text) => text.to_string(),
            None => value.to_string(),
        };
        match key.strip_prefix("params.") {
            Some(name) => words[0] += &format!(" {name}={text}"),
            None => words.push(format!("{key}={text}")),
        }
    }
    words
}

/// Returns the keys of a configuration that differ from the default, except `recipe`, `seed`, `steps` and `out`.
pub fn own_settings(config: &Config) -> toml::Table {
    let defaults = Config::default().with_absolute_paths().flat();
    let mut settings = config.with_absolute_paths().flat();
    let others = ["recipe", "seed", "steps", "out"];
    settings.retain(|key, value| !others.contains(&key) && defaults.get(key) != Some(&*value));
    settings
}
