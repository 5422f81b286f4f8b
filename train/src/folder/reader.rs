//! Reads a run's folder: the configuration, the rows, the log, and the versions, batches and states that were saved.

use std::env::current_dir;
use std::path::{Path, PathBuf};

use super::journal;
use super::{BATCHES, CONFIG, KeptVersion, METRICS, RELOADS, RunLog, STATES, TRAINER};
use crate::config::{Config, settings};
use crate::error::{Result, damaged, if_there, io, no_run};
use crate::row::Row;
use advlab::diagnostic::Diagnostic;
use advlab::script::{Hook, Host, Recipe, State};

/// The maximum number of steps with a batch that the error names if the requested step has no batch.
const NEAREST: usize = 12;

/// A key that earlier versions of advlab wrote. Its line is ignored, so that folders of those versions can be read.
const GONE: &str = "native_threshold = ";

/// The program that runs the steps of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// advlab itself.
    Own,
    /// Another program, whose steps a [`TrainerRun`](crate::TrainerRun) records.
    Trainer,
}

/// The folder of a run, open for reading; the run may still be in progress. The run is advlab's own, or a run of another trainer,
/// for which advlab writes the same files.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    batches: Vec<(u64, PathBuf)>,
}

impl RunFolder {
    /// Opens any folder, complete or not. The list of batches is made now, so it does not include later batches.
    pub fn read(path: &Path) -> RunFolder {
        RunFolder {
            path: path.to_path_buf(),
            batches: BATCHES.all(path).unwrap_or_default(),
        }
    }

    /// Opens a run's folder. It is an error if the folder has no batches.
    pub fn open(path: &Path) -> Result<RunFolder> {
        let run = RunFolder::read(path);
        if !run.batches.is_empty() {
            return Ok(run);
        }
        let message = format!("{} is a folder without batches of a run", path.display());
        let help = "a run keeps them as batches/step-*.safetensors, unless its `batch_every` is 0";
        Err(Diagnostic::error(message).with_help(help).into())
    }

    /// Returns the run to which a path belongs: the path may be a run's folder or a batch in such a folder.
    pub fn of(path: &Path) -> Option<RunFolder> {
        let batches = path.parent().filter(|above| above.ends_with("batches"));
        let run = batches.filter(|_| path.is_file()).and_then(Path::parent);
        RunFolder::open(run.unwrap_or(path)).ok()
    }

    pub fn folder(&self) -> &Path {
        &self.path
    }

    /// Returns the run's configuration. Paths of scripts below the current folder are made relative, because relative paths are
    /// easier to read.
    pub fn config(&self) -> Result<Config> {
        Ok(self.kind_and_config()?.1)
    }

    /// Returns the kind of the run, and its configuration. The configuration of a trainer's run has only a recipe with its
    /// parameters.
    pub fn kind_and_config(&self) -> Result<(RunKind, Config)> {
        if !self.has_config() {
            return Err(no_run(&self.path, CONFIG));
        }
        let path = self.path.join(CONFIG);
        let text = advlab::regular_file::read_to_string(&path).map_err(io("read", &path))?;
        let is_gone = |line: &str| line.starts_with(GONE);
        let lines = text.split_inclusive('\n');
        // An empty line replaces the old key, so that errors name the correct lines.
        let lines = lines.map(|line| if is_gone(line) { "\n" } else { line });
        let text: String = lines.collect();
        // The configuration of a trainer's run has this line above the parameters, instead of a task.
        let (kind, text) = match text.split_once(TRAINER) {
            Some((above, below)) if !above.contains("\n[") => {
                (RunKind::Trainer, [above, below].concat())
            }
            _ => (RunKind::Own, text),
        };
        let mut config = Config::parse(&path, &text)?;
        for path in [&mut config.recipe, &mut config.loss_recipe] {
            *path = from_here(path);
        }
        Ok((kind, config))
    }

    /// Returns whether the folder has a configuration. The folder of another trainer's run may have none.
    pub fn has_config(&self) -> bool {
        self.path.join(CONFIG).is_file()
    }

    /// Returns the run's seed, from which `batch.random` drew, if its configuration can be read.
    pub fn seed(&self) -> Option<u64> {
        Some(self.config().ok()?.seed)
    }

    /// Returns the rows of `metrics.jsonl`, one per step.
    pub fn rows(&self) -> Result<Vec<Row>> {
        journal::read(&self.path.join(METRICS))
    }

    /// Checks rows that are to be repeated. Their steps must increase and be below the run's `steps`, because a replay would
    /// repeat steps for ever if it waited for a row whose step does not come.
    pub(crate) fn check(&self, rows: &[Row], steps: u64) -> Result<()> {
        let mut next = 0;
        for (index, row) in rows.iter().enumerate() {
            if !(next..steps).contains(&row.step) {
                let problem = Diagnostic::error(format!("its step is {}", row.step));
                let problem = problem.expected(match next < steps {
                    true => format!("a step from {next} to {}", steps - 1),
                    false => format!("no row after the run's {steps} steps"),
                });
                let problem = problem.in_file(self.path.join(METRICS));
                return Err(problem.on_line(index + 1).into());
            }
            next = row.step + 1;
        }
        Ok(())
    }

    /// Returns the lines of `reloads.jsonl`.
    pub fn log(&self) -> Result<RunLog> {
        journal::read(&self.path.join(RELOADS)).map(RunLog)
    }

    /// Returns the batches with their steps, in order; the batches on which a version failed are not included.
    pub fn batches(&self) -> &[(u64, PathBuf)] {
        &self.batches
    }

    /// Returns the last batch and its step; the folder must have batches, as [`RunFolder::open`] checks.
    pub fn last(&self) -> (u64, &Path) {
        match self.batches.last() {
            Some((step, path)) => (*step, path),
            None => unreachable!("a folder without batches is not opened"),
        }
    }

    pub fn at(&self, step: u64) -> Result<&Path> {
        let mut nearest: Vec<_> = self.batches.iter().collect();
        nearest.sort_by_key(|(own, _)| own.abs_diff(step));
        if let Some((_, path)) = nearest.first().filter(|(own, _)| *own == step) {
            return Ok(path);
        }
        let steps = nearest.iter().take(NEAREST).map(|(own, _)| own.to_string());
        let steps: Vec<String> = steps.collect();
        let help = format!("the nearest steps with a batch are {}", steps.join(", "));
        let what = format!("the run has kept no batch of step {step}");
        Err(Diagnostic::error(what).with_help(help).into())
    }

    /// Returns the version of the recipe that a step used, with the run's parameters.
    pub fn recipe_at(&self, host: &Host, step: u64) -> Result<Recipe> {
        let log = self.log()?;
        let first = log.start(&self.path)?;
        let versions = log.versions();
        let used = versions.iter().rev().find(|(first, _)| *first <= step);
        let kept = used.map_or(Ok(None), |(_, version)| log.kept(version))?;
        self.load(host, kept.unwrap_or(first))
    }

    /// Returns the version whose hash begins with `version`, with the run's parameters, or `None` if the folder has no such
    /// version.
    pub fn recipe_named(&self, host: &Host, version: &str) -> Result<Option<Recipe>> {
        let log = self.log()?;
        let kept = log.kept(version)?;
        kept.map(|kept| self.load(host, kept)).transpose()
    }

    fn load(&self, host: &Host, kept: &KeptVersion) -> Result<Recipe> {
        let config = self.config()?;
        let mut recipe = kept.load(&self.path, host)?;
        for (name, text) in settings(&config.params) {
            // An error is ignored, because a version that refuses the parameter or its value ran without this setting.
            let _ = recipe.set_text(&name, &text);
        }
        Ok(recipe)
    }

    /// Returns the loss recipe, with its parameters, that the run uses for versions without a loss. A trainer's run uses the
    /// default loss recipe.
    pub fn loss(&self, host: &Host) -> Result<Recipe> {
        let (config, log) = (self.config()?, self.log()?);
        log.start(&self.path)?;
        config.set_loss(match log.loss() {
            Some((script, version)) => KeptVersion {
                script: script.to_string(),
                version: version.to_string(),
            }
            .load(&self.path, host)?,
            None => host.load(&config.loss_recipe)?,
        })
    }

    /// Returns the recipe's state at the start of a step, or `None` if the folder does not have this state. Only trainers' runs
    /// save these states.
    pub fn state_at(&self, step: u64) -> Result<Option<State>> {
        let path = STATES.path(&self.path, step);
        let Some(text) = if_there(&path, advlab::regular_file::read(&path))? else {
            return Ok(None);
        };
        let state = serde_json::from_slice(&text);
        state.map_err(|error| damaged(&path, error.to_string()))
    }

    /// Returns the note that is shown if a recipe with the hook `init` is tried on a single batch.
    pub fn state_note(recipe: &Recipe) -> Option<String> {
        let note = "the recipe keeps a state; the state from before the first step is used here";
        recipe.has(Hook::Init).then(|| note.to_string())
    }
}

/// Returns the step after the step of the last row, or `first` if there are no rows. The rows are not counted, because damaged
/// rows may have been removed.
pub(crate) fn step_after(first: u64, rows: &[Row]) -> u64 {
    let last = rows.last();
    last.map_or(first, |last| last.step.saturating_add(1))
}

/// Returns the path of a script relative to the current folder, if the script is below this folder, or else the unchanged path.
pub(super) fn from_here(recipe: &str) -> String {
    let here = current_dir().unwrap_or_default();
    let below = Path::new(recipe).strip_prefix(here).ok();
    // Other paths stay absolute, because a relative path without the ending could be the name of a built-in.
    let below = below
        .and_then(Path::to_str)
        .filter(|below| below.ends_with(".rhai"));
    below.unwrap_or(recipe).to_string()
}
