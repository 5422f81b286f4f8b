//! Where the time of a recipe goes: by hook, by line of the script, and beside its native kernel; as a table and as JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, shape, time};
use advlab::native::{Mode, Native};
use advlab::paint::{Paint, beside, cut, width, wrapped};
use advlab::script::{Hook, Host, MapGroups, Recipe};
use advlab::session::Session;
use advlab::tensor::Origin;
use advlab::tensor::profile::{Profile, Timing};

/// The times of a recipe, or of an input at the prompt, on a batch, run by run, and one of its runs taken apart. Times are in
/// seconds.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    recipe: String,
    /// None of an input.
    version: Option<String>,
    #[serde(skip)]
    settings: String,
    #[serde(skip)]
    shape: String,
    responses: usize,
    groups: usize,
    tokens: usize,
    threads: usize,
    /// The script's times, with one array for all results.
    script: Option<Times>,
    /// The same with a new array for each run.
    script_new_array: Option<Times>,
    /// The times with the native kernel in the script's place, if there is one.
    native: Option<Times>,
    /// The fastest of the runs whose operations were timed.
    #[serde(flatten)]
    run: Run,
    /// The longest first.
    lines: Vec<Line>,
    /// The time in the script and in making plans: what no operation took.
    in_script: f64,
}

/// The times of some runs.
#[derive(Debug, Serialize)]
struct Times {
    seconds: Vec<f64>,
}

/// One run of all hooks of a recipe, or of an input.
#[derive(Debug, Default, Serialize)]
struct Run {
    hooks: Vec<HookTime>,
    map_groups: Vec<Call>,
    /// The most bytes that tensors held at once, beside the batch and the padded array.
    peak_bytes: usize,
    /// Of the executor's operations, if they were timed.
    #[serde(skip)]
    timings: Vec<Timing>,
    /// Whether kernels computed hooks.
    #[serde(skip)]
    is_native: bool,
}

#[derive(Debug, Serialize)]
struct HookTime {
    hook: &'static str,
    seconds: f64,
}

/// How a call of `map_groups` was computed.
#[derive(Debug, Serialize)]
struct Call {
    script: Option<String>,
    line: usize,
    by_one_call: bool,
    told: String,
}

/// The script of an operation, unless it is the measured one, its line and the line's text.
type Place = (Option<String>, usize, String);

/// A line of a script that asked for operations on tensors.
#[derive(Debug, Serialize)]
struct Line {
    script: Option<String>,
    line: usize,
    text: String,
    seconds: f64,
}

impl Run {
    fn seconds(&self) -> f64 {
        self.hooks.iter().map(|hook| hook.seconds).sum()
    }

    /// Adds a hook that was computed since `started`.
    fn add(&mut self, hook: &'static str, started: Instant, native: bool, calls: Vec<MapGroups>) {
        let seconds = started.elapsed().as_secs_f64();
        self.hooks.push(HookTime { hook, seconds });
        self.is_native |= native;
        self.map_groups.extend(calls.into_iter().map(|call| Call {
            script: call.origin.source.as_deref().map(str::to_string),
            line: call.origin.line,
            by_one_call: call.by_group.is_none(),
            told: call.to_string(),
        }));
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
    fn run(&self, host: &Host, padded: &mut Array2<f32>) -> Result<Run, Diagnostics> {
        let (recipe, behind) = (self.recipe.on(host), self.loss.map(|loss| loss.on(host)));
        let (guard, padded) = (recipe.host().guard(), &mut padded.view_mut());
        let before = guard.begin_run();
        let (mut run, mut state) = (Run::default(), recipe.init()?);
        let (mut advantage, mut weighted) = (None, self.batch.clone());
        let own_loss = Some(&recipe).filter(|own| own.has(Hook::Loss));
        let loss = own_loss.or(behind.as_ref());
        let started = Instant::now();
        if recipe.has(Hook::Advantage) && loss.is_some() {
            let outcome = recipe.advantage(self.batch, &mut state)?;
            weighted = outcome.weighted(self.batch);
            advantage = Some(outcome.advantage);
            let is_native = outcome.native.is_some();
            run.add("advantage", started, is_native, outcome.map_groups);
        } else if recipe.has(Hook::Advantage) {
            let outcome = recipe.advantage_into(self.batch, &mut state, padded)?;
            let is_native = outcome.native.is_some();
            run.add("advantage", started, is_native, outcome.map_groups);
        }
        if let Some(loss) = loss {
            if own_loss.is_none() {
                state = loss.init()?;
            }
            let started = Instant::now();
            let outcome = loss.loss_into(&weighted, advantage.as_ref(), &mut state, padded)?;
            let is_native = outcome.native.is_some();
            run.add("loss and gradient", started, is_native, outcome.map_groups);
        }
        run.peak_bytes = guard.peak() - before;
        Ok(run)
    }

    /// The times into one array; none where kernels do not compute as `native` says.
    fn times(&self, host: &Host, runs: usize, native: bool) -> Result<Option<Times>, Diagnostics> {
        let mut padded = self.new_array();
        // The first run finds memory and caches as no later one does.
        if self.run(host, &mut padded)?.is_native != native {
            return Ok(None);
        }
        let seconds = (0..runs).map(|_| Ok(self.run(host, &mut padded)?.seconds()));
        let seconds = seconds.collect::<Result<_, Diagnostics>>()?;
        Ok(Some(Times { seconds }))
    }

    /// The line of the recipe's own source, of one that it imports, or of the loss behind it.
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
        let timed_run = |_| {
            let mut run = all.run(&timed, &mut padded)?;
            run.timings = profile.take();
            Ok(run)
        };
        let timed_runs: Result<Vec<Run>, Diagnostics> = (0..runs.max(1)).map(timed_run).collect();
        let fastest = timed_runs?.into_iter();
        let run = fastest.min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        Ok(Measured {
            recipe: recipe.name().to_string(),
            version: Some(recipe.version().as_str().to_string()),
            settings: recipe.params().to_string(),
            script,
            script_new_array: Some(Times {
                seconds: new_array?,
            }),
            native,
            ..Measured::of(run.unwrap_or_default(), batch, |origin| all.place(origin))
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
        let (hook, seconds) = ("input", times.seconds);
        let run = Run {
            hooks: vec![HookTime { hook, seconds }],
            timings: times.timings,
            peak_bytes: times.peak,
            ..Run::default()
        };
        Ok(Measured {
            recipe: text.to_string(),
            script: Some(Times {
                seconds: times.runs,
            }),
            ..Measured::of(run, batch, |origin| session.line_of(text, origin))
        })
    }

    /// A run taken apart.
    fn of(run: Run, batch: &Batch, find: impl Fn(&Origin) -> Place) -> Measured {
        let mut lines: BTreeMap<(Option<&str>, usize), Line> = BTreeMap::new();
        for timing in &run.timings {
            if let Some(origin) = &timing.origin {
                let line = lines.entry((origin.source.as_deref(), origin.line));
                let line = line.or_insert_with(|| {
                    let (script, line, text) = find(origin);
                    let seconds = 0.0;
                    Line {
                        script,
                        line,
                        text,
                        seconds,
                    }
                });
                line.seconds += timing.seconds;
            }
        }
        let mut lines: Vec<Line> = lines.into_values().collect();
        lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let timed = run.timings.iter().map(|timing| timing.seconds);
        let in_script = (run.seconds() - timed.sum::<f64>()).max(0.0);
        let layout = batch.layout();
        Measured {
            shape: shape(layout),
            responses: layout.responses(),
            groups: layout.groups(),
            tokens: layout.tokens(),
            threads: rayon::current_num_threads(),
            lines,
            in_script,
            run,
            ..Measured::default()
        }
    }

    /// The table, without a line break at its end.
    pub fn table(&self, paint: Paint) -> String {
        let version = self.version.as_deref().unwrap_or_default();
        let version = version.get(..6).unwrap_or(version);
        let head = format!("{} {}", paint.bold(&self.recipe), paint.dim(version));
        let settings = paint.dim(&self.settings);
        let batch = format!("{}; {}", self.shape, counted(self.threads, "thread"));
        let mut lines = vec![
            beside(head.trim_end(), width(&head) + 2, &settings, paint.width),
            wrapped("", &batch, paint.width),
            String::new(),
            paint.dim(&format!("{:<8}{:>11}{:>11}", "", "best", "median")),
        ];
        for (name, times) in [("script", &self.script), ("native", &self.native)] {
            let mut sorted = times
                .iter()
                .flat_map(|times| times.seconds.clone())
                .collect::<Vec<_>>();
            sorted.sort_by(f64::total_cmp);
            if let (Some(best), Some(median)) = (sorted.first(), sorted.get(sorted.len() / 2)) {
                let [best, median] = [*best, *median].map(short);
                let runs = counted(sorted.len(), "run");
                lines.push(format!("{name:<8}{best:>11}{median:>11}   {runs}"));
            }
        }
        let row = |seconds: f64, text: &str| {
            let share = format!("{:.0} %", 100.0 * seconds / self.run.seconds());
            let line = format!("{:>9}{share:>8}  {text}", short(seconds));
            cut(&line, paint.width)
        };
        let heading = |what: &str| paint.dim(&format!("{:>9}{:>8}  {what}", "time", "share"));
        lines.extend([String::new(), heading("hook")]);
        let hooks = self.run.hooks.iter();
        lines.extend(hooks.map(|HookTime { hook, seconds }| row(*seconds, hook)));
        lines.extend([String::new(), heading("line")]);
        let places: Vec<String> = self.lines.iter().map(Line::place).collect();
        let columns = places.iter().map(|place| width(place)).max().unwrap_or(0);
        for (line, place) in self.lines.iter().zip(places) {
            let text = format!("{place:>columns$}  {}", line.text);
            lines.push(row(line.seconds, &text));
        }
        lines.push(row(self.in_script, "the script itself, and plans"));
        lines.push(String::new());
        let size = match self.run.peak_bytes as f64 {
            bytes if bytes < 1e6 => format!("{:.0} kB", bytes / 1e3),
            bytes => format!("{:.1} MB", bytes / 1e6),
        };
        let peak =
            format!("{size} at most, beside the batch and the array that the result goes into");
        lines.push(beside("memory", 11, &peak, paint.width));
        for call in &self.run.map_groups {
            let text = format!("line {}: {}", call.line, call.told);
            lines.push(beside("map_groups", 11, &text, paint.width));
        }
        lines.join("\n")
    }
}

impl Line {
    /// The number, after the name of the script unless that is the measured one.
    fn place(&self) -> String {
        let script = self.script.as_deref().map(Path::new);
        match script.and_then(Path::file_name) {
            Some(name) => format!("{}:{}", name.to_string_lossy(), self.line),
            None => self.line.to_string(),
        }
    }
}

fn short(seconds: f64) -> String {
    time(Duration::from_secs_f64(seconds))
}

/// A batch of random numbers in all columns that built-in recipes read: responses of an eighth of `tokens` to all of
/// them, with a reward of 0 or 1. The same numbers each time.
pub fn example(groups: usize, size: usize, tokens: usize) -> Batch {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let shape = (groups * size, tokens);
    let lengths = (0..shape.0).map(|_| random.random_range(tokens / 8..=tokens));
    let lengths: Vec<usize> = lengths.collect();
    let rewards = (0..shape.0).map(|_| f64::from(random.random_range(0..2u8)));
    let rewards: Vec<f64> = rewards.collect();
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
