//! Where the time of a recipe goes: by hook, by line of the script, and beside its native kernel.

mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ndarray::Array2;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use advlab::batch::{Batch, Layout};
use advlab::diagnostic::Diagnostics;
use advlab::native::{Mode, Native};
use advlab::script::{Hook, Host, MapGroups, Recipe, Version};
use advlab::session::Session;
use advlab::tensor::Origin;
use advlab::tensor::profile::{Profile, Timing};

/// The times of a recipe, or of an input at the prompt, on a batch, run by run, and one of its runs taken apart.
#[derive(Debug)]
pub struct Measured {
    name: String,
    /// None of an input.
    version: Option<Version>,
    settings: String,
    layout: Arc<Layout>,
    /// Seconds, run by run, into one array.
    script: Vec<f64>,
    /// Seconds, run by run, with a new array each time.
    new_array: Vec<f64>,
    /// Seconds, run by run, with the native kernel in the script's place; empty if there is none.
    native: Vec<f64>,
    /// The fastest of the runs whose operations were timed.
    run: Run,
    /// The longest first.
    lines: Vec<Line>,
}

/// One run of all hooks of a recipe, or of an input.
#[derive(Debug)]
struct Run {
    /// Seconds by hook.
    hooks: Vec<(&'static str, f64)>,
    /// Of the executor's operations, if they were timed.
    timings: Vec<Timing>,
    /// The most bytes that tensors held at once, beside the batch and the padded array.
    peak: usize,
    /// Whether kernels computed hooks.
    is_native: bool,
    map_groups: Vec<MapGroups>,
}

impl Run {
    fn seconds(&self) -> f64 {
        self.hooks.iter().map(|(_, seconds)| seconds).sum()
    }

    /// The time in the script and in making plans: what no operation took.
    fn in_script(&self) -> f64 {
        let timings = self.timings.iter().map(|timing| timing.seconds);
        (self.seconds() - timings.sum::<f64>()).max(0.0)
    }
}

/// A line of a script that asked for operations on tensors.
#[derive(Debug)]
struct Line {
    /// The script, unless it is the recipe itself.
    script: Option<String>,
    /// From 1.
    number: usize,
    text: String,
    seconds: f64,
}

/// The lines of a run. `place` gives the script of an operation, unless it is the measured one, the line's number and its
/// text.
fn lines(
    timings: &[Timing],
    place: impl Fn(&Origin) -> (Option<String>, usize, String),
) -> Vec<Line> {
    let mut lines: BTreeMap<(Option<&str>, usize), Line> = BTreeMap::new();
    for timing in timings {
        let Some(origin) = &timing.origin else {
            continue;
        };
        let line = lines.entry((origin.source.as_deref(), origin.line));
        let line = line.or_insert_with(|| {
            let (script, number, text) = place(origin);
            Line {
                script,
                number,
                text,
                seconds: 0.0,
            }
        });
        line.seconds += timing.seconds;
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    lines
}

/// A recipe, maybe with another recipe's loss behind it, that is run again and again.
struct Runs<'a> {
    recipe: &'a Recipe,
    loss: Option<&'a Recipe>,
    batch: &'a Batch,
}

impl Runs<'_> {
    fn new_array(&self) -> Array2<f32> {
        let layout = self.batch.layout();
        Array2::zeros((layout.responses(), layout.width()))
    }

    /// Runs all hooks once. The advantage goes into a padded array [B, T], or, if there is a loss, the loss's gradient.
    fn run(&self, host: &Host, padded: &mut Array2<f32>) -> Result<Run, Diagnostics> {
        let (recipe, behind) = (self.recipe.on(host), self.loss.map(|loss| loss.on(host)));
        let (guard, padded) = (recipe.host().guard(), &mut padded.view_mut());
        let before = guard.begin_run();
        let mut run = Run {
            hooks: Vec::new(),
            timings: Vec::new(),
            peak: 0,
            is_native: false,
            map_groups: Vec::new(),
        };
        let mut state = recipe.init()?;
        let (mut advantage, mut weighted) = (None, self.batch.clone());
        let loss = Some(&recipe)
            .filter(|own| own.has(Hook::Loss))
            .or(behind.as_ref());
        if recipe.has(Hook::Advantage) {
            let started = Instant::now();
            let (native, map_groups) = if loss.is_some() {
                let outcome = recipe.advantage(self.batch, &mut state)?;
                weighted = outcome.weighted(self.batch);
                advantage = Some(outcome.advantage);
                (outcome.native, outcome.map_groups)
            } else {
                let outcome = recipe.advantage_into(self.batch, &mut state, padded)?;
                (outcome.native, outcome.map_groups)
            };
            run.hooks
                .push(("advantage", started.elapsed().as_secs_f64()));
            (run.is_native, run.map_groups) = (native.is_some(), map_groups);
        }
        if let Some(loss) = loss {
            if !recipe.has(Hook::Loss) {
                state = loss.init()?;
            }
            let started = Instant::now();
            let outcome = loss.loss_into(&weighted, advantage.as_ref(), &mut state, padded)?;
            run.hooks
                .push(("loss and gradient", started.elapsed().as_secs_f64()));
            run.is_native |= outcome.native.is_some();
            run.map_groups.extend(outcome.map_groups);
        }
        run.peak = guard.peak() - before;
        Ok(run)
    }

    /// Seconds, run by run, into one array; none where kernels do not compute as `native` says.
    fn times(&self, host: &Host, runs: usize, native: bool) -> Result<Vec<f64>, Diagnostics> {
        let mut padded = self.new_array();
        // The first run finds memory and caches as no later one does.
        let first = self.run(host, &mut padded)?;
        let runs = if first.is_native == native { runs } else { 0 };
        let seconds = (0..runs).map(|_| Ok(self.run(host, &mut padded)?.seconds()));
        seconds.collect()
    }
}

impl Measured {
    /// Runs all hooks of a recipe, a number of times, from the state that `init` makes. The advantage is written into a
    /// padded array, or, if there is a loss, its gradient. A loss without an advantage hook takes the advantage of the
    /// batch. A recipe without a loss may have another recipe's behind it, as in a run.
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
        let all = Runs {
            recipe,
            loss,
            batch,
        };
        let script = all.times(&host, runs, false)?;
        let kernels = Native::new(Mode::On);
        let native = all.times(&host.clone().with_native(&kernels), runs, true)?;
        let new_array = |_| {
            let started = Instant::now();
            all.run(&host, &mut all.new_array())?;
            Ok(started.elapsed().as_secs_f64())
        };
        let new_array: Result<_, Diagnostics> = (0..runs).map(new_array).collect();
        let profile = Arc::new(Profile::default());
        profile.switch(true);
        let (timed, mut padded) = (host.with_profile(profile.clone()), all.new_array());
        let mut timed_run = || {
            let mut run = all.run(&timed, &mut padded)?;
            run.timings = profile.take();
            Ok::<Run, Diagnostics>(run)
        };
        let mut run = timed_run()?;
        for _ in 1..runs {
            let other = timed_run()?;
            if other.seconds() < run.seconds() {
                run = other;
            }
        }
        Ok(Measured {
            name: recipe.name().to_string(),
            version: Some(recipe.version().clone()),
            settings: recipe.params().to_string(),
            layout: batch.layout().clone(),
            script,
            new_array: new_array?,
            native,
            lines: lines(&run.timings, |origin| line_of(recipe, loss, origin)),
            run,
        })
    }

    /// Runs an input of a session, a number of times.
    ///
    /// # Errors
    /// [`Diagnostics`] of the input, if it is wrong.
    pub fn input(
        session: &mut Session,
        batch: &Batch,
        text: &str,
    ) -> Result<Measured, Diagnostics> {
        let times = session.measure(text)?;
        Ok(Measured {
            name: text.to_string(),
            version: None,
            settings: String::new(),
            layout: batch.layout().clone(),
            script: times.runs,
            new_array: Vec::new(),
            native: Vec::new(),
            lines: lines(&times.timings, |origin| session.line_of(text, origin)),
            run: Run {
                hooks: vec![("input", times.seconds)],
                timings: times.timings,
                peak: times.peak,
                is_native: false,
                map_groups: Vec::new(),
            },
        })
    }
}

/// The line of a recipe's own source, of one that it imports, or of the loss behind it.
fn line_of(
    recipe: &Recipe,
    loss: Option<&Recipe>,
    origin: &Origin,
) -> (Option<String>, usize, String) {
    let name = origin.source.as_deref().unwrap_or(recipe.name());
    let behind = loss.into_iter().flat_map(Recipe::sources);
    let text = recipe
        .sources()
        .chain(behind)
        .find(|(other, _)| *other == name);
    let line = text.and_then(|(_, text)| text.lines().nth(origin.line.checked_sub(1)?));
    let script = Some(name.to_string()).filter(|name| name != recipe.name());
    (
        script,
        origin.line,
        line.unwrap_or_default().trim().to_string(),
    )
}

/// A batch of random numbers in all columns that built-in recipes read: responses of an eighth of `tokens` to all of
/// them, with a reward of 0 or 1. The same numbers each time.
pub fn example(groups: usize, size: usize, tokens: usize) -> Batch {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let shape = (groups * size, tokens);
    let lengths: Vec<usize> = (0..shape.0)
        .map(|_| random.random_range(tokens / 8..=tokens))
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
        .groups((0..shape.0).map(|response| response / size.max(1)))
        .mask(mask.view())
        .response("reward", rewards)
        .token("old_logp", old_logp)
        .token("logp", logp)
        .token("ref_logp", ref_logp)
        .token("value", column(0.0, 1.0))
        .token("entropy", column(0.0, 2.0))
        .token("advantage", column(-1.0, 1.0))
        .build();
    batch.unwrap_or_else(|error| unreachable!("columns of one shape make a batch: {error}"))
}
