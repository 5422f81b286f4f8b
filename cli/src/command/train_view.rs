//! A training run for a person: a bar, a line per evaluation and reload, and a summary at the end.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use advlab::diagnostic::Diagnostics;
use advlab::figures::{BLOCKS, counted, value};
use advlab::live::LiveEvent;
use advlab::paint::{Paint, laid_out, wrapped};
use advlab_train::{Config, Ending, Evaluation, Event, Row, Run, RunFolder};
use console::Term;

use super::streams::{Output, Printer};
use super::{report, streams, title};

/// Evaluations, each with the number of steps that were done before it.
type Evaluations = [(u64, Evaluation)];

/// A run on the terminal, or as plain lines.
pub struct View {
    folder: PathBuf,
    config: Config,
    /// The file name of the recipe.
    name: String,
    printer: Printer,
    /// The steps that are done, those of earlier calls included.
    done: u64,
    paint: Paint,
    started: Instant,
    evaluations: Vec<(u64, Evaluation)>,
    /// A response of the last evaluation, as the task shows it.
    example: String,
    steps: u64,
    reloads: usize,
    rejected: usize,
    failed: usize,
}

impl View {
    /// A view of a run that is about to start.
    pub fn new(run: &Run) -> View {
        let config = run.config().clone();
        View {
            folder: run.folder().to_path_buf(),
            printer: Printer::new(streams::steps_bar("training", config.steps, run.step())),
            done: run.step(),
            name: file_name(&config.recipe),
            config,
            // Lines of a log are not wrapped.
            paint: streams::whole(&Term::stdout()),
            started: Instant::now(),
            evaluations: run.evaluations().to_vec(),
            example: String::new(),
            steps: 0,
            reloads: 0,
            rejected: 0,
            failed: 0,
        }
    }

    pub fn note(&self, text: &str) {
        self.wrapped("", &format!("note: {text}"));
    }

    /// Prints the summary and the commands that go on. A run that failed before step `next` goes on from its last
    /// checkpoint, which is of step `saved`.
    pub fn ended(
        &self,
        ending: Result<Ending, Diagnostics>,
        saved: Option<u64>,
        next: u64,
    ) -> ExitCode {
        self.printer.finish_bar();
        let folder = self.folder.display();
        let resume = format!("advlab train --resume {folder}");
        let mut commands = vec![format!("advlab view {folder}")];
        let head = match ending {
            Ok(Ending::Finished) => {
                let others = ["repl", "replay"];
                commands.extend(others.map(|command| format!("advlab {command} {folder}")));
                if RunFolder::open(&self.folder).is_ok() {
                    commands.push(format!("advlab apply {} {folder}", self.config.recipe));
                }
                commands.push(format!("{resume} --steps {}", self.config.steps * 2));
                "go on with".to_string()
            }
            Ok(Ending::Stopped(step)) => {
                commands.push(resume);
                format!("stopped before step {step}; go on with")
            }
            Err(error) => {
                report(&error.into());
                streams::err!(
                    "all steps before are kept; once that is mended, go on with\n  {resume}"
                );
                let saved = saved.unwrap_or(0);
                if saved < next {
                    streams::err!(
                        "it begins at the last checkpoint, and does the steps from {saved} on again"
                    );
                }
                return ExitCode::from(1);
            }
        };
        self.summary();
        self.say(&format!("\n{head}\n  {}", commands.join("\n  ")));
        ExitCode::SUCCESS
    }

    fn summary(&self) {
        for line in table(&self.evaluations) {
            self.say(&line);
        }
        if !self.example.is_empty() {
            let example = self.example.trim_end().replace('\n', "\n    ");
            self.say(&format!(
                "\n  a response of the last evaluation:\n\n    {example}"
            ));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let text = format!(
            "{} steps in {seconds:.1} s ({:.1} steps/s), {}, {} rejected, {} at a step",
            self.steps,
            self.steps as f64 / seconds.max(1e-9),
            counted(self.reloads, "reload"),
            counted(self.rejected, "save"),
            counted(self.failed, "failure"),
        );
        self.say("");
        self.wrapped("  ", &text);
        self.say(&format!("  {}", self.folder.display()));
    }

    /// Prints lines above the bar.
    fn say(&self, lines: &str) {
        let lines = lines.trim_end().to_string();
        self.printer.send(Output::Lines(lines));
    }

    /// Prints text in lines that fit the terminal.
    fn wrapped(&self, start: &str, text: &str) {
        self.say(&wrapped(start, text, self.paint.width));
    }

    /// Prints the news of a step.
    fn at(&self, step: u64, line: &str) {
        let start = format!("step {step:<5} ");
        self.say(&laid_out(&start, line, self.paint.width));
    }

    /// Shows what happened in the run.
    pub fn tell(&mut self, event: &Event<'_>) {
        let name = &self.name;
        match *event {
            Event::Started { step, recipe, .. } => {
                self.say(&title(name, recipe, self.paint));
                self.settings(step);
            }
            Event::FineTuned { update, of } => self.fine_tuned(update + 1, of),
            Event::Live { step, event } => self.live(step, event),
            Event::Switched { step, change, .. } => {
                self.reloads += 1;
                self.at(step, &format!("{} {change}", self.name));
            }
            Event::Failed {
                step,
                recipe,
                error,
                batch,
                back_to,
            } => {
                // If no version is left, the run ends with this error.
                if back_to.is_some() {
                    self.say(&error.render_within(self.paint));
                }
                let version = recipe.version();
                let mut line = format!("{name} {version} failed");
                if let Some(back_to) = back_to {
                    line.push_str(&format!("  back to {}", back_to.version()));
                }
                if batch.is_some() {
                    let batch = format!("batches/failed-{step:06}-{version}.safetensors");
                    let path = self.folder.join(batch);
                    line.push_str(&format!("  (its batch is {})", path.display()));
                }
                self.at(step, &line);
                self.failed += 1;
            }
            // Kernels that agree are in the run's folder.
            Event::Native { step, change } if change.disagrees_on.is_some() => {
                self.at(step, &format!("{} {change}", file_name(&change.recipe)));
            }
            Event::Native { .. } => {}
            Event::Warned { step, message } => self.at(step, &format!("warning: {message}")),
            Event::Printed { step, line } => line.lines().for_each(|line| self.at(step, line)),
            Event::Evaluated {
                done,
                evaluation,
                example,
            } => {
                self.evaluations.push((done, evaluation.clone()));
                self.example = example.to_string();
                // An evaluation after a step is shown with what the script reports of the step.
                if done == self.done {
                    self.evaluation(None);
                }
            }
            Event::Step { row, .. } => self.step(row),
        }
    }

    fn fine_tuned(&self, done: u64, of: u64) {
        let message = format!("supervised fine-tuning {done}/{of}");
        self.printer.send(Output::Progress(self.done, message));
        if done == of {
            let seconds = self.started.elapsed().as_secs_f64();
            let text = "supervised fine-tuning is done";
            self.at(0, &format!("{text}: {of} updates in {seconds:.1} s"));
        }
    }

    fn step(&mut self, row: &Row) {
        self.steps += 1;
        self.done = row.step + 1;
        let pass = row.sampled.pass_at.at(1).unwrap_or(0.0);
        let message = format!("batch pass@1 {pass:.3}{}", self.speed(row));
        self.printer.send(Output::Progress(self.done, message));
        if row.evaluation.is_some() {
            self.evaluation(Some(row));
        }
    }

    /// What the run does, and how its recipe is edited.
    fn settings(&self, step: u64) {
        let config = &self.config;
        let text = format!(
            "{} with policy {}: {} x {} responses a step, steps {step} to {}, seed {}, in {}",
            config.task,
            config.policy,
            config.rollout_batch_size,
            config.group_size,
            config.steps,
            config.seed,
            self.folder.display()
        );
        self.wrapped("", &text);
        let recipe = &config.recipe;
        if Path::new(recipe).is_file() {
            let text = format!("edit {recipe} and save it: the next step uses it");
            self.wrapped("", &text);
        }
    }

    fn live(&mut self, step: u64, event: &LiveEvent) {
        let name = &self.name;
        match event {
            // The run itself reports these, as a switch and a failure of a step.
            LiveEvent::Published(_) | LiveEvent::Rejected { at_step: true, .. } => {}
            LiveEvent::Rejected {
                error, still_using, ..
            } => {
                self.say(&error.render_within(self.paint));
                self.at(step, &format!("{name}  still using {still_using}"));
                self.rejected += 1;
            }
            LiveEvent::Warned { version, warnings } => {
                for warning in warnings {
                    self.say(&warning.render_within(self.paint));
                }
                self.at(step, &format!("{name} {version} is used all the same"));
            }
            LiveEvent::PollingOnly { .. } => self.note(&event.to_string()),
            _ => self.at(step, &event.to_string()),
        }
    }

    /// Prints the last evaluation, with what the script reports of the step.
    fn evaluation(&self, row: Option<&Row>) {
        let Some((done, evaluation)) = self.evaluations.last() else {
            return;
        };
        let last = evaluation.pass_at.last().filter(|(k, _)| *k > 1);
        let last = last.map_or(String::new(), |(k, share)| format!("  pass@{k} {share:.3}"));
        let mut line = format!(
            "evaluation pass@1 {:.3} {}{last}  entropy {:.2}  length {:.1}",
            evaluation.pass_at.at(1).unwrap_or(0.0),
            sparkline(&self.evaluations, 8),
            evaluation.entropy,
            evaluation.length,
        );
        // `metrics.jsonl` has all of them.
        for (name, number) in row.iter().flat_map(|row| &row.metrics).take(3) {
            line.push_str(&format!("  {name} {}", value(*number)));
        }
        line.extend(row.map(|row| self.speed(row)));
        self.at(*done, &line);
    }

    /// How fast a language model samples and learns, and its GPU memory; nothing for a small policy.
    fn speed(&self, row: &Row) -> String {
        let config = &self.config;
        if config.policy == "mlp" {
            return String::new();
        }
        let responses = config.rollout_batch_size * config.group_size;
        let tokens = row.sampled.length * responses as f64;
        let each_second = |tokens: f64, ms: f64| value((tokens / ms.max(1e-3) * 1e3).round());
        let memory = row.device_memory.map_or(String::new(), |bytes| {
            format!("  {:.1} GiB of the GPU", bytes as f64 / f64::from(1 << 30))
        });
        let sampled = each_second(tokens, row.ms.sample);
        let learned = each_second(tokens * config.epochs as f64, row.ms.update);
        format!("  tokens/s {sampled} sampled, {learned} learned{memory}")
    }
}

fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The first and the last evaluation beside each other, and pass@1 of all; nothing if there is only one.
fn table(evaluations: &Evaluations) -> Vec<String> {
    let [(first, before), .., (last, after)] = evaluations else {
        return Vec::new();
    };
    let (first, last) = (format!("step {first}"), format!("step {last}"));
    let mut lines = vec![format!("\n  {:<10} {first:>10} {last:>10}", "evaluation")];
    let mut row = |name: &str, of: &dyn Fn(&Evaluation) -> Option<f64>| {
        if let (Some(before), Some(after)) = (of(before), of(after)) {
            lines.push(format!("  {name:<10} {before:>10.3} {after:>10.3}"));
        }
    };
    row("pass@1", &|e| e.pass_at.at(1));
    if let Some((k, _)) = after.pass_at.last().filter(|(k, _)| *k > 1) {
        row(&format!("pass@{k}"), &|e| e.pass_at.at(k));
    }
    row("length", &|e| Some(e.length));
    row("entropy", &|e| Some(e.entropy));
    let line = sparkline(evaluations, evaluations.len().min(40));
    lines.push(format!(
        "\n  pass@1 of each evaluation, from 0 to 1  {line}"
    ));
    lines
}

/// pass@1 of the last evaluations, from 0 to 1, always `room` letters wide.
fn sparkline(evaluations: &Evaluations, room: usize) -> String {
    let from = evaluations.len().saturating_sub(room);
    let shares = evaluations[from..].iter();
    let shares = shares.filter_map(|(_, evaluation)| evaluation.pass_at.at(1));
    let blocks: String = shares
        .map(|share| BLOCKS[((share * 8.0) as usize).min(7)])
        .collect();
    format!("[{blocks:·<room$}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluation(pass: f64) -> Evaluation {
        let json = serde_json::json!({ "pass@1": pass, "entropy": 1.0, "length": 9.0 });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_sparkline_is_as_wide_with_one_evaluation_as_with_many() {
        let few = [(0, evaluation(0.0)), (50, evaluation(1.0))];
        assert_eq!(sparkline(&few, 4), "[▁█··]");
        let many: Vec<_> = (0..9).map(|n| (n, evaluation(n as f64 / 8.0))).collect();
        assert_eq!(sparkline(&many, 4), "[▆▇██]");
    }

    #[test]
    fn the_table_compares_evaluations_alone() {
        let evaluations = [(0, evaluation(0.25)), (50, evaluation(0.5))];
        let text = table(&evaluations).join("\n");
        assert!(text.contains("evaluation     step 0    step 50"), "{text}");
        assert!(text.contains("pass@1          0.250      0.500"), "{text}");
        assert!(table(&evaluations[..1]).is_empty());
    }
}
