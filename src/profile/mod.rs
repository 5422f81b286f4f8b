//! Where the time of a recipe goes: measured on a batch, told as a table, as JSON and as a trace.

mod example;
mod in_full;
mod json;
mod lines;
mod machine;
mod table;
mod trace;
mod trial;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;

pub use self::example::example;
use self::in_full::InFull;
use self::lines::Line;
use self::machine::bandwidth;
use self::trial::Trial;
use crate::batch::{Batch, Layout, Replacement};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::native::{Mode, Native};
use crate::script::{Host, Recipe, Version};
use crate::session::Session;
use crate::tensor::profile::{Detail, Profile};
use crate::tensor::{Executor, Origin};

/// How often the naive executor runs at most: it is there to compare with, and slow.
const NAIVE_RUNS: usize = 3;
/// How often an input runs with its stages noted down.
const INPUT_RUNS: usize = 5;

/// The times of a recipe, or of an input at the prompt, on a batch, run by run, and one of its runs taken apart.
#[derive(Debug)]
pub struct Measured {
    name: String,
    /// None of an input.
    version: Option<Version>,
    settings: String,
    layout: Arc<Layout>,
    /// Seconds, run by run, with each executor, into one array.
    fused: Vec<f64>,
    naive: Vec<f64>,
    /// Seconds, run by run, with a new array each time.
    fused_anew: Vec<f64>,
    /// Seconds, run by run, with the native kernel in the script's place; empty where there is none.
    native: Vec<f64>,
    /// The fastest of the runs that noted down their stages.
    trial: Trial,
    lines: Vec<Line>,
    in_full: Vec<InFull>,
    /// Bytes a second.
    bandwidth: f64,
}

/// A recipe, with a loss behind it or none, that is run again and again into one padded array.
struct Runs<'a> {
    recipe: &'a Recipe,
    loss: Option<&'a Recipe>,
    batch: &'a Batch,
    padded: Array2<f32>,
}

impl<'a> Runs<'a> {
    fn new(recipe: &'a Recipe, loss: Option<&'a Recipe>, batch: &'a Batch) -> Runs<'a> {
        let layout = batch.layout();
        Runs {
            recipe,
            loss,
            batch,
            padded: Array2::zeros((layout.responses(), layout.width())),
        }
    }

    fn once(&mut self, host: &Host, profile: Option<&Profile>) -> Result<Trial, Diagnostics> {
        let (recipe, loss) = (self.recipe.on(host), self.loss.map(|loss| loss.on(host)));
        Trial::of(
            &recipe,
            loss.as_ref(),
            self.batch,
            &mut self.padded,
            profile,
        )
    }

    /// Seconds, run by run; none where kernels do not answer as `native` says.
    fn times(&mut self, host: &Host, runs: usize, native: bool) -> Result<Vec<f64>, Diagnostics> {
        // The first run finds memory and caches as no later one does.
        let first = self.once(host, None)?;
        let runs = if first.is_native == native { runs } else { 0 };
        let seconds = (0..runs).map(|_| Ok(self.once(host, None)?.seconds()));
        seconds.collect()
    }

    /// A run with its stages noted down.
    fn noted(&mut self, host: &Host, detail: Detail) -> Result<Trial, Diagnostics> {
        let profile = Arc::new(Profile::new(detail));
        let host = host.clone().with_profile(profile.clone());
        self.once(&host, Some(&profile))
    }
}

impl Measured {
    /// Runs all hooks of a recipe, a number of times with each executor, from the
    /// state that `init` makes. The advantage is written into a padded array, or where there is a loss, its gradient. A loss
    /// without an advantage hook beside it has the advantage of the batch. A recipe without a loss may have another recipe's behind it, as in a run.
    ///
    /// # Errors
    /// [`Diagnostics`] of a hook that fails.
    pub fn new(
        host: &Host,
        recipe: &Recipe,
        loss: Option<&Recipe>,
        batch: &Batch,
        runs: usize,
    ) -> Result<Measured, Diagnostics> {
        let host = host.clone().with_guard(host.guard());
        let by = |executor: Executor| host.clone().with_executor(executor);
        let mut all = Runs::new(recipe, loss, batch);
        let fused = all.times(&by(Executor::Fused), runs, false)?;
        let naive = all.times(&by(Executor::Naive), runs.min(NAIVE_RUNS), false)?;
        let kernels = Native::new(Mode::On);
        let native = all.times(&host.clone().with_native(&kernels), runs, true)?;
        let fused_anew = |_| {
            let started = Instant::now();
            Runs::new(recipe, loss, batch).once(&by(Executor::Fused), None)?;
            Ok(started.elapsed().as_secs_f64())
        };
        let fused_anew: Result<_, Diagnostics> = (0..runs).map(fused_anew).collect();
        let mut trial = all.noted(&host, Detail::Stages)?;
        for _ in 1..runs {
            let other = all.noted(&host, Detail::Stages)?;
            if other.seconds() < trial.seconds() {
                trial = other;
            }
        }
        trial.share_out(&all.noted(&host, Detail::Operations)?);
        let place = |origin: &Origin| lines::of_recipes(recipe, loss, origin);
        Ok(Measured {
            name: recipe.name().to_string(),
            version: Some(recipe.version().clone()),
            settings: recipe.params().to_string(),
            lines: Line::of(&trial, place),
            in_full: InFull::of(&trial, place),
            layout: batch.layout().clone(),
            fused,
            fused_anew: fused_anew?,
            naive,
            native,
            trial,
            bandwidth: bandwidth(batch.layout().tokens()),
        })
    }

    /// Runs an input of a session, a number of times.
    ///
    /// # Errors
    /// [`Diagnostics`] of the input, where it is wrong.
    pub fn input(
        session: &mut Session,
        batch: &Batch,
        text: &str,
    ) -> Result<Measured, Diagnostics> {
        let times = session.time(text)?;
        let trials = session.trials(text, INPUT_RUNS, Detail::Stages)?;
        let trials = trials.into_iter().map(Trial::of_input);
        let fastest = trials.min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        let mut trial = fastest.unwrap_or_else(|| unreachable!("there is a run at least"));
        for timed in session.trials(text, 1, Detail::Operations)? {
            trial.share_out(&Trial::of_input(timed));
        }
        let place = |origin: &Origin| session.line_of(text, origin);
        Ok(Measured {
            name: text.to_string(),
            version: None,
            settings: String::new(),
            lines: Line::of(&trial, place),
            in_full: InFull::of(&trial, place),
            layout: batch.layout().clone(),
            fused: times.iter().map(Duration::as_secs_f64).collect(),
            fused_anew: Vec::new(),
            naive: Vec::new(),
            native: Vec::new(),
            trial,
            bandwidth: bandwidth(batch.layout().tokens()),
        })
    }

    /// Writes [`Measured::trace`] to a file.
    ///
    /// # Errors
    /// The file and why it cannot be written; nothing half-written is left.
    pub fn write_trace(&self, path: &Path) -> Result<(), Diagnostics> {
        if !trace::may_replace(path) {
            let what = format!("`{}` is there, and is no trace", path.display());
            let help = "name another file: `--trace profile.json`";
            return Err(Diagnostic::error(what).with_help(help).into());
        }
        Replacement::write(path, self.trace().to_string().as_bytes())
    }
}
