//! The profile of a recipe: its time by hook, by line of the script, and with its native kernel; as a table and as JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::Report;
use advlab::batch::{Batch, Layout};
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, shape, time};
use advlab::native::{Mode, Native};
use advlab::paint::{Paint, cut, width};
use advlab::script::{Hook, Host, MapGroups, Recipe};
use advlab::tensor::Origin;
use advlab::tensor::profile::Profile;

/// The times of a recipe, in seconds.
pub struct Measured {
    recipe: Recipe,
    layout: Arc<Layout>,
    /// The times of the script's runs, with one array for all results.
    script: Option<Vec<f64>>,
    /// The same with a new array for each run.
    script_new_array: Option<Vec<f64>>,
    /// The runs with the native kernel in the script's place, if there is one.
    native: Option<Vec<f64>>,
    /// The fastest of the runs in which operations were timed.
    run: TimedRun,
    /// The lines that asked for operations, the longest time first.
    lines: Vec<(Place, f64)>,
    /// The time in the script and in making plans: what no operation took.
    in_script: f64,
}

/// One run of all hooks of a recipe.
#[derive(Default)]
struct TimedRun {
    hooks: Vec<(&'static str, f64)>,
    map_groups: Vec<MapGroups>,
    /// The most bytes that tensors held at once, without the batch and the padded array.
    peak_bytes: usize,
    /// Whether kernels computed hooks.
    is_native: bool,
}

/// The script of an operation, unless it is the measured one, its line and the line's text.
type Place = (Option<String>, usize, String);

impl TimedRun {
    fn seconds(&self) -> f64 {
        self.hooks.iter().map(|(_, seconds)| seconds).sum()
    }
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
    fn run(&self, host: &Host, padded: &mut Array2<f32>) -> Result<TimedRun, Diagnostics> {
        let (recipe, behind) = (self.recipe.on(host), self.loss.map(|loss| loss.on(host)));
        let (guard, padded) = (recipe.host().guard(), &mut padded.view_mut());
        let before = guard.begin_run();
        let (mut run, mut state) = (TimedRun::default(), recipe.init()?);
        let (mut advantage, mut weighted) = (None, self.batch.clone());
        let mut add = |hook, started: Instant, native: Option<Duration>, calls| {
            run.hooks.push((hook, started.elapsed().as_secs_f64()));
            run.is_native |= native.is_some();
            run.map_groups.extend::<Vec<MapGroups>>(calls);
        };
        let has_loss = recipe.has(Hook::Loss);
        let loss = Some(&recipe).filter(|_| has_loss).or(behind.as_ref());
        let started = Instant::now();
        if recipe.has(Hook::Advantage) && loss.is_some() {
            let outcome = recipe.advantage(self.batch, &mut state)?;
            weighted = outcome.weighted(self.batch);
            advantage = Some(outcome.advantage);
            add("advantage", started, outcome.native, outcome.map_groups);
        } else if recipe.has(Hook::Advantage) {
            let outcome = recipe.advantage(self.batch, &mut state)?;
            outcome.advantage.write_into(padded)?;
            add("advantage", started, outcome.native, outcome.map_groups);
        }
        if let Some(loss) = loss {
            if !has_loss {
                state = loss.init()?;
            }
            let started = Instant::now();
            let done = loss.loss(&weighted, advantage.as_ref(), &mut state)?;
            done.gradient.write_into(padded)?;
            add("loss and gradient", started, done.native, done.map_groups);
        }
        run.peak_bytes = guard.peak() - before;
        Ok(run)
    }

    /// The seconds of each run into one array; `None` if kernels do not compute as `native` says.
    fn times(
        &self,
        host: &Host,
        runs: usize,
        native: bool,
    ) -> Result<Option<Vec<f64>>, Diagnostics> {
        let mut padded = self.new_array();
        // The first run finds memory and caches as no later one does.
        if self.run(host, &mut padded)?.is_native != native {
            return Ok(None);
        }
        let seconds = |_| Ok(Some(self.run(host, &mut padded)?.seconds()));
        (0..runs).map(seconds).collect()
    }

    /// A line in the recipe's own source, in an import, or in the loss used with the recipe.
    fn place(&self, origin: &Origin) -> Place {
        let own = self.recipe.name();
        let name = origin.source.as_deref().unwrap_or(own);
        let behind = self.loss.into_iter().flat_map(Recipe::sources);
        let mut sources = self.recipe.sources().chain(behind);
        let text = sources.find(|(other, _)| *other == name);
        let text = text.and_then(|(_, text)| text.lines().nth(origin.line.checked_sub(1)?));
        let script = Some(name.to_string()).filter(|name| name != own);
        let text = text.unwrap_or_default().trim().to_string();
        (script, origin.line, text)
    }
}

impl Measured {
    /// Runs all hooks of a recipe, a number of times, each time from the state that `init` makes. The advantage is written into a
    /// padded array, or, if there is a loss, the loss's gradient. A loss without an advantage hook takes the advantage of the
    /// batch. A recipe without a loss can be combined with another recipe's, as in a run.
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
            Ok(Some(started.elapsed().as_secs_f64()))
        };
        let script_new_array = (0..runs)
            .map(new_array)
            .collect::<Result<_, Diagnostics>>()?;
        let profile = Arc::new(Profile::default());
        profile.switch(true);
        let (timed, mut padded) = (host.with_profile(profile.clone()), all.new_array());
        let mut timed_run =
            || Ok::<_, Diagnostics>((all.run(&timed, &mut padded)?, profile.take()));
        let mut fastest = timed_run()?;
        for _ in 1..runs {
            let other = timed_run()?;
            if other.0.seconds() < fastest.0.seconds() {
                fastest = other;
            }
        }
        let (run, timings) = fastest;
        let mut lines: BTreeMap<Place, f64> = BTreeMap::new();
        for timing in &timings {
            if let Some(origin) = &timing.origin {
                *lines.entry(all.place(origin)).or_default() += timing.seconds;
            }
        }
        let mut lines: Vec<(Place, f64)> = lines.into_iter().collect();
        lines.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let timed: f64 = timings.iter().map(|timing| timing.seconds).sum();
        Ok(Measured {
            recipe: recipe.clone(),
            layout: batch.layout().clone(),
            script,
            script_new_array,
            native,
            lines,
            in_script: (run.seconds() - timed).max(0.0),
            run,
        })
    }

    fn to_json(&self) -> Value {
        let times = |times: &Option<Vec<f64>>| times.as_ref().map(|all| json!({ "seconds": all }));
        let hooks = self.run.hooks.iter();
        let hooks = hooks.map(|(hook, seconds)| json!({ "hook": hook, "seconds": seconds }));
        let calls = self.run.map_groups.iter().map(|call| {
            let (script, line) = (call.origin.source.as_deref(), call.origin.line);
            json!({ "script": script, "line": line, "by_one_call": call.by_one_call })
        });
        let lines = self.lines.iter().map(|((script, line, text), seconds)| {
            json!({ "script": script, "line": line, "text": text, "seconds": seconds })
        });
        json!({
            "recipe": self.recipe.name(),
            "version": self.recipe.version().as_str(),
            "responses": self.layout.responses(),
            "groups": self.layout.groups(),
            "tokens": self.layout.tokens(),
            "threads": rayon::current_num_threads(),
            "script": times(&self.script),
            "script_new_array": times(&self.script_new_array),
            "native": times(&self.native),
            "hooks": hooks.collect::<Value>(),
            "map_groups": calls.collect::<Value>(),
            "peak_bytes": self.run.peak_bytes,
            "lines": lines.collect::<Value>(),
            "in_script": self.in_script,
        })
    }

    /// The times as a table, and as numbers.
    pub fn report(&self, paint: Paint) -> Report {
        let mut report = Report::new(paint);
        report.about = self.to_json();
        report.title(&self.recipe);
        let threads = counted(rayon::current_num_threads(), "thread");
        report.row("", 0, &format!("{}; {threads}", shape(&self.layout)));
        report.line("");
        report.aside("", &format!("{:<8}{:>11}{:>11}", "", "best", "median"));
        for (name, times) in [("script", &self.script), ("native", &self.native)] {
            let mut sorted = times.clone().unwrap_or_default();
            sorted.sort_by(f64::total_cmp);
            if let (Some(best), Some(median)) = (sorted.first(), sorted.get(sorted.len() / 2)) {
                let [best, median] = [*best, *median].map(short);
                let runs = counted(sorted.len(), "run");
                report.line(format!("{name:<8}{best:>11}{median:>11}   {runs}"));
            }
        }
        let heading = |report: &mut Report, what: &str| {
            report.line("");
            report.aside("", &format!("{:>9}{:>8}  {what}", "time", "share"));
        };
        let row = |report: &mut Report, seconds: f64, text: &str| {
            let share = format!("{:.0} %", 100.0 * seconds / self.run.seconds());
            let line = format!("{:>9}{share:>8}  {text}", short(seconds));
            report.line(cut(&line, paint.width));
        };
        heading(&mut report, "hook");
        for (hook, seconds) in &self.run.hooks {
            row(&mut report, *seconds, hook);
        }
        heading(&mut report, "line");
        let places: Vec<String> = self.lines.iter().map(|(place, _)| number(place)).collect();
        let columns = places.iter().map(|place| width(place)).max().unwrap_or(0);
        for (((_, _, text), seconds), place) in self.lines.iter().zip(places) {
            row(&mut report, *seconds, &format!("{place:>columns$}  {text}"));
        }
        row(&mut report, self.in_script, "the script itself, and plans");
        let size = match self.run.peak_bytes as f64 {
            bytes if bytes < 1e6 => format!("{:.0} kB", bytes / 1e3),
            bytes => format!("{:.1} MB", bytes / 1e6),
        };
        let beside = "at most, beside the batch and the array that the result goes into";
        report.line("");
        report.row("memory", 11, &format!("{size} {beside}"));
        for call in &self.run.map_groups {
            let how = match call.by_one_call {
                true => "by one call for all groups",
                false => "group by group",
            };
            let text = format!("line {}: {how}", call.origin.line);
            report.row("map_groups", 11, &text);
        }
        report
    }
}

/// The number of a line, after the name of its script unless that is the profiled one.
fn number((script, line, _): &Place) -> String {
    match script.as_deref().map(Path::new).and_then(Path::file_name) {
        Some(name) => format!("{}:{line}", name.to_string_lossy()),
        None => line.to_string(),
    }
}

fn short(seconds: f64) -> String {
    time(Duration::from_secs_f64(seconds))
}

/// A batch of random numbers in all columns that built-in recipes read: responses of an eighth of `tokens` to all of
/// them, with a reward of 0 or 1. The same numbers each time.
pub fn example(groups: usize, size: usize, tokens: usize) -> Batch {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let all = groups * size;
    let lengths = (0..all).map(|_| random.random_range(tokens / 8..=tokens));
    let lengths: Vec<usize> = lengths.collect();
    let rewards = (0..all).map(|_| f64::from(random.random_range(0..2u8)));
    let rewards: Vec<f64> = rewards.collect();
    let mask = Array2::from_shape_fn((all, tokens), |(i, token)| u8::from(token < lengths[i]));
    let mut column = |least: f32, most: f32| {
        Array2::from_shape_fn((all, tokens), |_| random.random_range(least..most))
    };
    let old_logp = column(-1.0, 0.0);
    let logp = &old_logp + &column(-0.05, 0.05);
    let ref_logp = &old_logp + &column(-0.1, 0.1);
    let batch = Batch::builder()
        .groups((0..all).map(|response| response / size.max(1)))
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
