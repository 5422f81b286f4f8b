//! `advlab compare A B C` trains designs with several seeds each and compares them; `advlab compare RUN...` compares existing
//! runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::number_text::counted;
use crate::pair;
use crate::report::compare::{self, Comparison, FailedRun, Planned, stats};
use crate::report::draw::FigureWidth;
use crate::report::file_stem;
use crate::report::study::recipes_of;
use advlab::script::Builtin;
use advlab_train::Config;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use super::stop_at_signals;
use super::streams::{self, on_stdout, out};

/// Compare designs over several seeds, with intervals, learning curves and a report
///
/// Recipes are trained (several runs at a time, or one at a time for language models); the same command resumes
/// interrupted runs. Folders of runs, or folders that contain runs, are compared as they are.
#[derive(Args)]
pub struct Compare {
    /// Recipes, each followed by its settings (parameters or keys of the configuration): grpo passk k=4 mine.rhai
    /// lr=0.01; or folders of runs
    #[arg(value_name = "RECIPE [K=V]|RUN", required = true)]
    designs: Vec<String>,
    /// The number of runs of each design; their seeds are 0, 1, ...
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The number of steps of each run; longer runs are compared after this many steps
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Set a parameter of every recipe, or a key of the configuration
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// The configuration of all runs, as for `advlab train`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of the runs and of the report; if not given, runs/compare for recipes, and no report is written for folders of
    /// runs
    #[arg(short, long = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// The metric by which designs are compared, such as pass@16, entropy or length; if not given, pass@1, or reward_mean
    /// if no run has pass@1
    #[arg(long, value_name = "NUMBER")]
    score: Option<String>,
    /// The width of the curves: a paper's column, or the whole page
    #[arg(long, default_value = "double")]
    width: FigureWidth,
    /// Print one JSON object instead: a row per run, the claims and their method, and the files that were written
    #[arg(long)]
    json: bool,
}

impl Compare {
    /// Runs the command. Returns `false` if a run failed. `words` is the command line, which the report shows.
    pub fn run(self, words: &[OsString]) -> Result<bool> {
        let paths: Vec<PathBuf> = self.designs.iter().map(PathBuf::from).collect();
        let folders = paths.iter().filter(|path| path.is_dir()).count();
        let (folder, runs, failed) = match folders {
            0 => {
                let folder = self.out.clone().unwrap_or_else(|| "runs/compare".into());
                let (runs, failed) = self.train(&folder)?;
                (Some(folder), runs, failed)
            }
            all if all == paths.len() => {
                if self.steps.is_some() || self.config.is_some() || !self.set.is_empty() {
                    let flags = "--steps, --config and --set";
                    bail!("folders of runs are only read: {flags} apply only to recipes");
                }
                (self.out.clone(), paths, Vec::new())
            }
            _ => {
                let is_recipe = |path: &PathBuf| {
                    let word = path.to_string_lossy();
                    word.contains('=') || Builtin::find(&word).is_some()
                };
                match paths.iter().find(|path| !path.exists() && !is_recipe(path)) {
                    Some(path) => bail!("{} does not exist", path.display()),
                    None => bail!(
                        "recipes are trained and folders of runs are read: give either recipes or folders"
                    ),
                }
            }
        };
        let mut designs = compare::read(&runs)?;
        if let Some(steps) = self.steps {
            let mut runs = designs.iter_mut().flat_map(|design| &mut design.runs);
            runs.try_for_each(|run| run.cut(steps))?;
        }
        let mut comparison = Comparison::of(designs, &failed);
        if let Some(score) = &self.score {
            comparison = comparison.by(score)?;
        }
        comparison.width = self.width;
        let words = words.iter().skip(1).map(|word| word.to_string_lossy());
        let command = format!("advlab {}", words.collect::<Vec<_>>().join(" "));
        let report = comparison.report(on_stdout(), &command);
        let names = match &folder {
            Some(folder) => report.write_folder(folder)?,
            None => Vec::new(),
        };
        if self.json {
            let (about, runs) = (&report.about, &report.rows);
            let (claims, method) = (&about["claims"], &about["method"]);
            let shown = json!({ "runs": runs, "claims": claims, "method": method, "failed": failed.len(), "folder": folder, "files": names });
            streams::data(&shown.to_string())?;
            return Ok(failed.is_empty());
        }
        out!("{}", report.whole(usize::MAX).trim_start());
        if let Some(folder) = folder {
            out!("\n{}/{}", folder.display(), names.join(", "));
        }
        Ok(failed.is_empty())
    }

    /// Returns the name and the configuration of each design.
    fn configs(&self) -> Result<Vec<(String, Config)>> {
        let words: Vec<&str> = self.designs.iter().map(String::as_str).collect();
        let base = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        let mut configs = Vec::new();
        for (recipe, own) in recipes_of(&words)? {
            let mut config = Config {
                recipe: recipe.to_string(),
                steps: self.steps.unwrap_or(base.steps),
                ..base.clone()
            };
            let set = own.iter().filter_map(|word| pair(word).ok());
            for (name, value) in self.set.iter().cloned().chain(set) {
                config.assign(&name, &value)?;
            }
            let name = [&[&*file_stem(recipe)], &own[..]].concat().join(" ");
            configs.push((name, config));
        }
        Ok(configs)
    }

    /// Trains the runs that are not finished yet. Returns the folders of all runs that did not fail, and the failed runs.
    fn train(&self, folder: &Path) -> Result<(Vec<PathBuf>, Vec<FailedRun>)> {
        let configs = self.configs()?;
        let seeds = self.seeds as usize;
        let least = stats::least_seeds(configs.len() - 1);
        if seeds < least {
            let note = format!(
                "per design cannot show a difference at the 95 % level: use {least} or more"
            );
            streams::err!("note: {} {note}", counted(seeds, "seed"));
        }
        let planned = Planned::all(&configs, self.seeds, folder)?;
        // The score is checked here, because otherwise an invalid score would be reported only after the training.
        if let Some(score) = &self.score {
            for config in planned.iter().map(|run| &run.config) {
                compare::check_score(score, config.eval_samples)?;
            }
        }
        let steps = |of: fn(&Planned) -> u64| planned.iter().map(of).sum::<u64>();
        let all = steps(|run| run.config.steps);
        let done = steps(|run| run.done.min(run.config.steps));
        // The folder is created first, so that a failure to create it is reported before the training.
        let cannot = || format!("cannot make the folder {}", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot)?;
        let stop = stop_at_signals()?;
        let bar = streams::steps_bar("comparing", all, done);
        let failed = compare::train_all(&planned, &stop, &|finished| match finished {
            Some(folder) => bar.suspend(|| streams::err!("{} is done", folder.display())),
            None => bar.inc(1),
        });
        bar.finish_and_clear();
        for (folder, error) in &failed {
            streams::err!("in the run {}\n{error}", folder.display());
        }
        if stop.load(Ordering::Relaxed) {
            bail!("stopped: the same command continues with the remaining steps");
        }
        let folders = planned.iter().map(|run| PathBuf::from(&run.config.out));
        let has_failed = |folder: &PathBuf| failed.iter().any(|(other, _)| other == folder);
        let folders = folders.filter(|folder| !has_failed(folder)).collect();
        Ok((folders, failed))
    }
}
