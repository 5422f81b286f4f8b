//! `advlab train [CONFIG]`: a training run whose recipe can be edited while it goes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::report::view::{Server, Site};
use advlab::script::Builtin;
use advlab_train::{Config, Run};
use anyhow::{Context, Result, bail};
use clap::Args;

use super::streams::{self, err, out};
use super::train_view::TrainView;
use super::{Natively, whole};
use crate::pair;

/// Train a small policy, with a recipe that can be edited during the run.
///
/// A save of the recipe's file is used at the next step; a save that fails its checks is reported and not used.
/// Without arguments, it trains on the maze with grpo.
#[derive(Args)]
pub struct Train {
    /// The run's configuration, a TOML file; `--print-config` prints one
    config: Option<PathBuf>,
    /// The recipe: a built-in's name, or the path of a .rhai file, which the run watches for edits
    #[arg(long)]
    recipe: Option<String>,
    /// Set a parameter of the recipe, or a key of the configuration
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// The number of steps; with --resume, including those already done
    #[arg(long, value_parser = whole, allow_negative_numbers = true)]
    steps: Option<u64>,
    /// The seed of all random numbers
    #[arg(long, value_parser = whole, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// The run's folder, which must be empty or not exist yet
    #[arg(long, value_name = "DIR")]
    out: Option<String>,
    /// Continue an interrupted run, with the same numbers as if it had not stopped
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "recipe", "set", "seed", "out", "print_config"])]
    resume: Option<PathBuf>,
    /// With --resume: move damaged lines of metrics.jsonl and reloads.jsonl to a file beside them, and continue
    #[arg(long, requires = "resume")]
    force: bool,
    /// Print the configuration, with a comment for each key, and do nothing else
    #[arg(long)]
    print_config: bool,
    /// Show the run in a browser, as `advlab view` does; on this port of 127.0.0.1 (8765)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    view: Option<Option<u16>>,
    #[command(flatten)]
    natively: Natively,
}

impl Train {
    /// Runs until all steps are done or Ctrl-C is pressed.
    pub fn run(self) -> Result<ExitCode> {
        let mut notes = Vec::new();
        let mut run = match &self.resume {
            Some(folder) => {
                if self.force {
                    notes.extend(Run::set_damaged_aside(folder)?);
                }
                Run::resume(folder, self.steps, self.natively.native)?
            }
            None => {
                let config = self.config()?;
                if self.print_config {
                    out!("{}", config.to_commented().trim_end());
                    return Ok(ExitCode::SUCCESS);
                }
                Run::create(config)?
            }
        };
        notes.extend(run.notes().iter().cloned());
        let stop = stop_at_ctrl_c()?;
        if let Some(port) = self.view {
            let server = Server::bind(Site::of(&[run.folder().to_path_buf()])?, port)?;
            notes.push(format!("the run's page is {}", server.address()?));
            thread::spawn(move || server.serve());
        }
        let mut view = TrainView::new(&run, &notes);
        streams::tell(&run.warnings());
        let ending = run.go(&stop, &mut |event| view.tell(event));
        let code = view.ended(ending, run.saved(), run.step());
        if self.view.is_some() {
            // The page, which asks twice a second, reads how the run ended before its server ends.
            drop(run);
            thread::sleep(Duration::from_millis(700));
        }
        code
    }

    /// The file's configuration, or the default one, changed by the flags.
    fn config(&self) -> Result<Config> {
        let mut config = match &self.config {
            Some(path) if is_recipe(path) => bail!(
                "{0} is a recipe, not a configuration: `advlab train --recipe {0}`",
                path.display()
            ),
            Some(path) if path.is_dir() => bail!(
                "{0} is a folder, not a configuration: `advlab train --resume {0}` goes on with a run",
                path.display()
            ),
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        config.recipe = self.recipe.clone().unwrap_or(config.recipe);
        config.out = self.out.clone().unwrap_or(config.out);
        config.steps = self.steps.unwrap_or(config.steps);
        config.seed = self.seed.unwrap_or(config.seed);
        for (name, value) in &self.set {
            config.assign(name, value)?;
        }
        config.native = self.natively.native;
        config.check()?;
        Ok(config)
    }
}

/// Whether a path is a recipe: a script, or a built-in's name if no file has that name.
fn is_recipe(path: &Path) -> bool {
    let is_builtin = Builtin::find(&path.to_string_lossy()).is_some();
    path.extension().is_some_and(|ending| ending == "rhai") || is_builtin && !path.exists()
}

/// Set by the first Ctrl-C; the second one ends the process at once.
pub(super) fn stop_at_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_set = stop.clone();
    let handler = move || {
        if is_set.swap(true, Ordering::Relaxed) {
            // The status of a process that Ctrl-C ended.
            std::process::exit(130);
        }
        // The step is finished even if nobody reads this.
        err!("\nfinishing the step; Ctrl-C again ends at once");
    };
    ctrlc::set_handler(handler).context("cannot catch Ctrl-C")?;
    // A cluster sends SIGTERM before it takes the machine away. A hangup is left to `nohup`.
    #[cfg(unix)]
    {
        use signal_hook::{consts::SIGTERM, flag};
        // The second one ends the process at once, as Ctrl-C does.
        flag::register_conditional_shutdown(SIGTERM, 128 + SIGTERM, stop.clone())
            .and_then(|_| flag::register(SIGTERM, stop.clone()))
            .context("cannot catch SIGTERM")?;
    }
    Ok(stop)
}
