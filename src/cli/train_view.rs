//! What a person sees of a training run: a bar, a line at each evaluation and reload, and a summary at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use advlab::diagnostic::Diagnostics;
use advlab::figures::value;
use advlab::live::{LiveEvent, ParameterChange, VersionChange};
use advlab::script::Recipe;
use advlab::train::{Config, Evaluation, Event, Kept, Observer, Row, Run, TrainError};

use console::Term;

use super::progress::Steps;
use super::style;

/// A run on the terminal, or as plain lines.
pub struct View {
    folder: PathBuf,
    config: Config,
    /// Parameters that `--set` sets; others that the run sets are in the configuration.
    set: Vec<String>,
    bar: Steps,
    started: Instant,
    /// The first step and what its batch says of the policy before it.
    first: Option<(u64, Evaluation)>,
    /// pass@1 of the evaluations before the run was resumed.
    before: Vec<f64>,
    /// The evaluations, each with the number of steps that were done.
    evaluations: Vec<(u64, Evaluation)>,
    /// A response of the last evaluation, as the task shows it.
    example: String,
    steps: u64,
    reloads: usize,
    rejected: usize,
    failed: usize,
}

impl View {
    /// A view of a run that is about to go, with the names that `--set` gives values.
    pub fn new(run: &Run, set: Vec<String>) -> View {
        let config = run.config().clone();
        View {
            folder: run.folder().to_path_buf(),
            bar: Steps::new("training", config.steps, run.step()),
            config,
            set,
            started: Instant::now(),
            first: None,
            before: run.evaluated().to_vec(),
            evaluations: Vec::new(),
            example: String::new(),
            steps: 0,
            reloads: 0,
            rejected: 0,
            failed: 0,
        }
    }

    /// Says something that is worth knowing before the run goes.
    pub fn note(&self, text: &str) {
        self.bar.say(&format!("note: {text}"));
    }

    /// Takes the bar away: what follows are the last lines.
    pub fn clear(&self) {
        self.bar.clear();
    }

    /// The run at its end.
    pub fn finished(&self) {
        self.summary();
        let folder = self.folder.display();
        self.bar.say(&format!(
            "\ngo on with\n  advlab repl {folder}\n  advlab replay {folder}"
        ));
        if Kept::open(&self.folder).is_ok() {
            let recipe = &self.config.recipe;
            self.bar.say(&format!("  advlab apply {recipe} {folder}"));
        }
        let more = self.config.steps * 2;
        self.bar
            .say(&format!("  advlab train --resume {folder} --steps {more}"));
    }

    /// The run as it was stopped.
    pub fn stopped(&self, step: u64) {
        self.summary();
        let folder = self.folder.display();
        self.bar.say(&format!(
            "\nstopped before step {step}; go on with\n  advlab train --resume {folder}"
        ));
    }

    /// The run as something went wrong with it.
    pub fn broken_off(&self) {
        eprintln!("what was done is kept; once that is mended, go on with");
        eprintln!("  advlab train --resume {}", self.folder.display());
    }

    fn summary(&self) {
        if let (Some((first, before)), Some((last, after))) = (&self.first, self.evaluations.last())
        {
            // Of other prompts, and one before its update: two kinds of numbers.
            let head = |a: &str, b: &str| format!("  {:<9} {a:>10} {b:>10}", "");
            let (first, last) = (format!("step {first}"), format!("step {last}"));
            self.bar.say(&format!("\n{}", head("batch", "evaluation")));
            self.bar.say(&head(&first, &last));
            let row = |name: &str, of: &dyn Fn(&Evaluation) -> Option<f64>, line: String| {
                if let (Some(before), Some(after)) = (of(before), of(after)) {
                    self.bar
                        .say(&format!("  {name:<9} {before:>10.3} {after:>10.3}  {line}"));
                }
            };
            row("pass@1", &|e| e.pass_at.at(1), self.sparkline());
            if let Some((k, _)) = after.pass_at.last().filter(|(k, _)| *k > 1) {
                row(&format!("pass@{k}"), &|e| e.pass_at.at(k), String::new());
            }
            row("length", &|e| Some(e.length), String::new());
            row("entropy", &|e| Some(e.entropy), String::new());
        }
        if !self.example.is_empty() {
            self.bar.say("\n  a response of the last evaluation:\n");
            for line in self.example.lines() {
                self.bar.say(&format!("    {line}"));
            }
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.bar.say(&format!(
            "\n  {} steps in {seconds:.1} s ({:.1} steps/s), {}, {}, {}\n  {}",
            self.steps,
            self.steps as f64 / seconds.max(1e-9),
            count(self.reloads, "reload", "reloads"),
            count(self.rejected, "save rejected", "saves rejected"),
            count(self.failed, "failure at a step", "failures at a step"),
            self.folder.display()
        ));
    }

    /// pass@1 of the evaluations so far, from 0 to 1.
    fn sparkline(&self) -> String {
        let own = self.evaluations.iter();
        let own = own.filter_map(|(_, evaluation)| evaluation.pass_at.at(1));
        let all: Vec<f64> = self.before.iter().copied().chain(own).collect();
        sparkline(all.iter().copied().skip(all.len().saturating_sub(SPARKS)))
    }

    fn step(&mut self, row: &Row) {
        self.steps += 1;
        self.first.get_or_insert_with(|| {
            let before = Evaluation {
                pass_at: row.pass_at.clone(),
                entropy: row.entropy,
                length: row.length,
            };
            (row.step, before)
        });
        let pass = row.pass_at.at(1).unwrap_or(0.0);
        let what = format!("batch pass@1 {pass:.3}  length {:.1}  ", row.length);
        self.bar.at(row.step + 1, what);
        let Some(evaluation) = &row.evaluation else {
            return;
        };
        self.evaluations.push((row.step + 1, evaluation.clone()));
        let last = evaluation.pass_at.last().filter(|(k, _)| *k > 1);
        let last = last.map_or(String::new(), |(k, share)| format!("pass@{k} {share:.3}  "));
        // What the script itself reports; beyond a few, `metrics.jsonl` has it.
        let metrics = row.metrics.iter().take(3);
        let metrics: String = metrics
            .map(|(name, number)| format!("  {name} {}", value(*number)))
            .collect();
        self.say(
            row.step + 1,
            &format!(
                "evaluation pass@1 {:.3}  {last}entropy {:.2}  length {:.1}  {}{metrics}",
                evaluation.pass_at.at(1).unwrap_or(0.0),
                evaluation.entropy,
                evaluation.length,
                self.sparkline()
            ),
        );
    }

    fn live(&mut self, step: u64, event: &LiveEvent) {
        match event {
            // Told as a switch or a failure of its step.
            LiveEvent::Published(_) | LiveEvent::Rejected { at_step: true, .. } => {}
            LiveEvent::Rejected {
                error, still_using, ..
            } => {
                self.rejected += 1;
                self.diagnostic(error);
                let name = file_name(&self.config.recipe);
                self.say(step, &format!("{name}  still using {still_using}"));
            }
            LiveEvent::Missing { .. } | LiveEvent::Reverted { .. } => {
                self.say(step, &event.to_string());
            }
            LiveEvent::Warned { version, warnings } => {
                self.bar.say(&style::rendered(warnings, &Term::stdout()));
                let name = file_name(&self.config.recipe);
                self.say(step, &format!("{name} {version} is used all the same"));
            }
            LiveEvent::PollingOnly { .. } => self.note(&event.to_string()),
            _ => {}
        }
    }

    fn switched(&mut self, step: u64, recipe: &Recipe, change: &VersionChange) {
        self.reloads += 1;
        let mut change = change.clone();
        let (held, changed) = change.parameters.into_iter().partition(|one| one.is_held());
        change.parameters = changed;
        let held: Vec<ParameterChange> = held;
        let mut line = format!("{} {change}", file_name(recipe.name()));
        for parameter in held {
            let by = if self.set.contains(&parameter.name) {
                "--set"
            } else {
                "[params]"
            };
            line.push_str(&format!("  {parameter}: {by} holds it"));
        }
        self.say(step, &line);
    }

    fn failed(
        &mut self,
        step: u64,
        recipe: &Recipe,
        error: &Diagnostics,
        has_batch: bool,
        back_to: Option<&Recipe>,
    ) {
        self.failed += 1;
        // Where there is nothing to go back to, the run ends with this very error.
        if back_to.is_some() {
            self.diagnostic(error);
        }
        let version = recipe.version();
        let mut line = format!("{} {version} failed", file_name(recipe.name()));
        if let Some(back_to) = back_to {
            line.push_str(&format!("  back to {}", back_to.version()));
        }
        if has_batch {
            let batch = format!("batches/failed-{step:06}-{version}.safetensors");
            line.push_str(&format!(
                "  (its batch is {})",
                self.folder.join(batch).display()
            ));
        }
        self.say(step, &line);
    }

    fn diagnostic(&self, error: &Diagnostics) {
        self.bar.say(&style::rendered(error, &Term::stdout()));
    }

    fn say(&self, step: u64, line: &str) {
        self.bar.say(&format!("step {step:<5} {line}"));
    }

    fn printed(&self, step: u64, text: &str) {
        for line in text.lines() {
            self.say(step, line);
        }
    }

    fn hello(&self, step: u64, recipe: &Recipe) {
        let Config {
            rollout_batch_size,
            group_size,
            steps,
            seed,
            ..
        } = self.config;
        let settings = recipe.params().iter();
        let settings: Vec<String> = settings
            .map(|(parameter, value)| format!("{}={value}", parameter.name))
            .collect();
        self.bar.say(&format!(
            "{} {}  {}",
            style::on_stdout().bold(&file_name(recipe.name())),
            style::on_stdout().dim(recipe.version().short()),
            style::on_stdout().dim(&settings.join(" "))
        ));
        self.bar.say(&format!(
            "{}: {rollout_batch_size} x {group_size} responses a step, steps {step} to {steps}, seed {seed}, in {}",
            self.config.task,
            self.folder.display()
        ));
        if Path::new(&self.config.recipe).is_file() {
            let recipe = &self.config.recipe;
            self.bar
                .say(&format!("edit {recipe} and save it: the next step uses it"));
        }
    }
}

impl Observer for View {
    fn tell(&mut self, event: &Event<'_>) -> Result<(), TrainError> {
        match *event {
            Event::Started { step, recipe, .. } => self.hello(step, recipe),
            Event::Live { step, event } => self.live(step, event),
            Event::Switched {
                step,
                recipe,
                change,
            } => self.switched(step, recipe, change),
            Event::Failed {
                step,
                recipe,
                error,
                batch,
                back_to,
            } => self.failed(step, recipe, error, batch.is_some(), back_to),
            Event::Printed { step, line } => self.printed(step, line),
            Event::Evaluated { example } => self.example = example.to_string(),
            Event::Step { row, .. } => self.step(row),
            _ => {}
        }
        Ok(())
    }
}

/// The last evaluations that a line has room for.
const SPARKS: usize = 40;

/// A line of blocks, each a share from 0 to 1.
fn sparkline(shares: impl Iterator<Item = f64>) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    shares
        .map(|share| BLOCKS[((share * 8.0) as usize).min(7)])
        .collect()
}

fn file_name(recipe: &str) -> String {
    let name = Path::new(recipe).file_name();
    name.map_or(recipe.to_string(), |name| {
        name.to_string_lossy().into_owned()
    })
}

fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}
