//! Trains the runs of a comparison, each in its own folder and several at a time, and resumes runs that were stopped.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::words_of;
use crate::{Result, wrong};
use advlab::deep_stack;
use advlab::diagnostic::Diagnostics;
use advlab_train::{Config, Ending, Event, PolicyName, Run, RunFolder};

const ANOTHER: &str = "choose another folder with -o, or remove this folder";

/// A run that is planned or already finished.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The run's configuration, with the run's seed, steps and folder.
    pub config: Config,
    /// The number of steps that are already done.
    pub done: u64,
}

/// A run that failed: its folder and its error.
pub type FailedRun = (PathBuf, Diagnostics);

/// A function that is called with `None` when a step of any run is done, and with a run's folder when the run is done.
pub type OnProgress<'a> = dyn Fn(Option<&Path>) + Sync + 'a;

impl Planned {
    /// Plans the runs of some designs with the seeds 0, 1, ... The folder of a run is `folder/DESIGN/seed-N`.
    pub fn all(designs: &[(String, Config)], seeds: u64, folder: &Path) -> Result<Vec<Planned>> {
        let mut all: Vec<Planned> = Vec::new();
        // The runs are ordered by seed, so that a comparison that is stopped early has runs of all designs.
        for seed in 0..seeds {
            for (name, design) in designs {
                let is_other = |c: char| !c.is_alphanumeric() && !"._=-".contains(c);
                let out = folder.join(name.replace(is_other, "-"));
                let out = out.join(format!("seed-{seed}")).display().to_string();
                if all.iter().any(|other| other.config.out == out) {
                    let message = format!("two designs are called {name}");
                    let help = "give the scripts other names, or the recipes other settings";
                    return Err(wrong(message, help));
                }
                let mut config = design.clone();
                (config.seed, config.out) = (seed, out);
                all.push(Planned::of(config)?);
            }
        }
        Ok(all)
    }

    /// Checks that the recipes and settings are valid, and that the folder does not belong to another run.
    fn of(config: Config) -> Result<Planned> {
        config.check()?;
        config.check_recipes()?;
        let folder = Path::new(&config.out);
        if !folder.join("config.toml").is_file() {
            return Ok(Planned { config, done: 0 });
        }
        let run = RunFolder::read(folder);
        if words_of(&run.config()?) != words_of(&config) {
            let message = format!("{} has a run with another configuration", config.out);
            return Err(wrong(message, ANOTHER));
        }
        check_versions(&run, &config)?;
        let rows = run.rows()?;
        let done = rows.last().map_or(0, |last| last.step + 1);
        Ok(Planned { config, done })
    }

    fn go(&self, stop: &AtomicBool, progress: &OnProgress<'_>) -> Result<()> {
        let folder = PathBuf::from(&self.config.out);
        let mut run = match folder.join("config.toml").is_file() {
            true => Run::resume(&folder, Some(self.config.steps), self.config.native)?,
            false => Run::create(self.config.clone())?,
        };
        let ending = run.go(stop, &mut |event| {
            if let Event::Step { row, .. } = event
                && row.step >= self.done
            {
                progress(None);
            }
        })?;
        if ending == Ending::Finished {
            progress(Some(&folder));
        }
        Ok(())
    }
}

/// Refuses a run whose recipe or loss has another version now than at the run's last step, because the run's numbers come from
/// another formula.
fn check_versions(run: &RunFolder, config: &Config) -> Result<()> {
    let log = run.log()?;
    let last = log.versions().last().map(|(_, version)| *version);
    let loss = log.loss().map(|(_, version)| version);
    for (path, used) in [(&config.recipe, last), (&config.loss_recipe, loss)] {
        let now = config.host().load(path)?;
        if let Some(used) = used.filter(|used| now.version().as_str() != *used) {
            let used = used.get(..6).unwrap_or(used);
            let (folder, now) = (run.folder().display(), now.version().short());
            let message = format!(
                "the run in {folder} last used version {used} of {path}, which now has version {now}"
            );
            return Err(wrong(message, ANOTHER));
        }
    }
    Ok(())
}

/// Trains the runs until all steps are done or `stop` is set. At most as many runs as there are cores are trained at a time, or
/// one at a time if the policy of any run is a language model. Returns the runs that failed.
pub fn train_all(runs: &[Planned], stop: &AtomicBool, progress: &OnProgress<'_>) -> Vec<FailedRun> {
    let is_left = |run: &&Planned| run.done < run.config.steps;
    let left: Vec<&Planned> = runs.iter().filter(is_left).collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Language models are trained one at a time, because libtorch has its own threads, and a model needs much memory.
    let is_large = left.iter().any(|run| run.config.policy != PolicyName::Mlp);
    let jobs = if is_large { 1 } else { cores.min(left.len()) };
    let threads = (cores / jobs.max(1)).max(1);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failed = Vec::new();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = deep_stack::pool(pool).build();
        while !stop.load(Ordering::Relaxed) {
            let Some(run) = left.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let go = || run.go(stop, progress);
            // If no thread pool can be made for the run, the run uses the global pool.
            let done = pool.as_ref().map_or_else(|_| go(), |pool| pool.install(go));
            if let Err(error) = done {
                failed.push((PathBuf::from(&run.config.out), error));
            }
        }
        failed
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let failed = workers.into_iter().map(|worker| worker.join());
        failed
            .flat_map(|failed| failed.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}
