//! `advlab apply RECIPE INPUT...`: runs a recipe on existing rollouts of one or more steps.

mod files;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::number_text::{counted, in_json, time, value};
use crate::paint::laid_out;
use crate::report::show::shape_in;
use advlab::diagnostic::Severity;
use advlab::files::{AddedColumn, Dtype, ReadOptions, Rollouts, Tokenize, step_of};
use advlab::native::Native;
use advlab::plan::{Summand, terms};
use advlab::script::{Computed, Hook, Outcome, State, Statistics, Summary};
use advlab::tensor::Level;
use advlab::{Diagnostics, Host, Recipe};
use advlab_train::RunFolder;
use anyhow::{Context, Result};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use console::Term;
use serde_json::{Value, json};

use super::files::{Fields, is_stdout, read_rollouts, report_stream, spare_the_input, written};
use super::streams::{self, out, tell};
use super::{Natively, Tokenizing, end_cleanly, load, whole};
use crate::report::show::statistics;
use crate::report::study::outcome;
use crate::report::{Report, title};
use crate::{pair, wrong};

/// Compute advantages for rollouts in a file.
#[derive(Args)]
pub struct Apply {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts: .jsonl (.gz, .zst), .parquet or .safetensors; or a run's folder, whose last batch is used (with `--state` or
    /// `--metrics`, all batches). Several files, or a folder of files, are steps in the order of the numbers in their names, and
    /// the recipe's state lasts from step to step
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Write a copy of the input with the advantage added. The hooks `reward` and `returns` add `shaped_reward` and `returns`; the
    /// hook `weight` adds `weight`, unless the advantage is derived from a loss. For several inputs, the output is a folder. `-`
    /// is standard output; the summary then goes to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let the output replace the input
    #[arg(long, requires = "output")]
    force: bool,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    fields: Fields,
    /// The precision of token columns; if not given, f64 for JSONL and parquet, and the tensors' precision for safetensors
    #[arg(long, value_parser = PossibleValuesParser::new(["f32", "f64"])
        .map(|name| if name == "f32" { Dtype::F32 } else { Dtype::F64 }))]
    dtype: Option<Dtype>,
    /// For a run's folder, the batch of this step. For files, the number of the first step; if not given, the number in the
    /// file or, with several files or `--state`, in its name
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    step: Option<u64>,
    /// Write a row of numbers for each input
    #[arg(long, value_name = "FILE.jsonl")]
    metrics: Option<PathBuf>,
    /// Continue with the recipe's state in this file, if it exists, and save the state there after each input; a step
    /// that the saved state already includes is refused
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The seed of `batch.random`; if not given, the run's seed for a run's batch, 0 for a file
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Add metrics for each summand of the advantage, and of the reward that the recipe gives: its standard deviation, and its
    /// share of the sum of absolute values
    #[arg(long)]
    terms: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tokenizing: Tokenizing,
    #[command(flatten)]
    natively: Natively,
}

impl Apply {
    /// Applies the recipe to each input in order; the recipe's state carries over from one input to the next.
    pub fn run(self) -> Result<bool> {
        let mut runs = self.inputs.iter().filter_map(|input| RunFolder::of(input));
        let seed = self.seed.or_else(|| runs.next()?.seed());
        let host = Host::new()
            .with_seed(seed.unwrap_or_default())
            .with_native(&Native::new(self.natively.native));
        let recipe = load(&host, &self.recipe, &self.set)?;
        end_cleanly(streams::interrupted)?;
        let inputs = self.steps()?;
        let shows_lines = inputs.len() > 1 && !self.json;
        let outputs = self.outputs(&inputs)?;
        let _lock = self.lock()?;
        let (mut state, carried) = self.saved_state(&recipe)?;
        let tokenizer = self.tokenizing.load()?;
        let (tokenizer, reads) = (tokenizer.as_ref(), recipe.columns());
        let (mut next, mut metrics, mut columns) = (carried, None, Vec::new());
        let stream = report_stream(self.output.as_deref());
        if shows_lines {
            out!("{}", title(recipe.name(), &recipe, streams::on_stdout()));
        }
        for (index, input) in inputs.iter().enumerate() {
            let numbered = inputs.len() > 1 || self.state.is_some();
            let first = self.step.map(|first| first + index as u64);
            let step = first.or_else(|| step_of(input).filter(|_| numbered).or(next));
            let mut applied =
                self.apply(&recipe, tokenizer, reads.as_ref(), input, step, &mut state)?;
            let step = applied.rollouts.batch.step();
            self.check_step(input, step, carried)?;
            if let Some(output) = outputs.get(index) {
                columns = applied.write(output)?;
            }
            next = Some(step.saturating_add(1));
            if metrics.is_none() {
                // The file is opened only after an input is read, because opening it may delete rows of an earlier call.
                metrics = self.open_metrics(&recipe, carried)?;
            }
            if let Some((file, path)) = &mut metrics {
                // The row is written by a single `write_all`, so that a killed process rarely leaves a partial row;
                // `open_metrics` removes such a row.
                let row = format!("{}\n", applied.to_json());
                let written = file.write_all(row.as_bytes());
                let is_synced = self.state.is_some() && file.metadata()?.is_file();
                let written =
                    written.and_then(|()| if is_synced { file.sync_data() } else { Ok(()) });
                written.with_context(|| format!("{}: it cannot be written", path.display()))?;
            }
            // The state is saved last: if the process is killed before this line, the next call repeats the step.
            self.save_state(&recipe, &state, step, outputs.get(index))?;
            if shows_lines {
                applied.print_line(step, index == 0)?
            } else {
                applied.print(self.json, &stream)?
            }
        }
        if let Some(folder) = self.output.as_deref().filter(|_| shows_lines) {
            let files = counted(outputs.len(), "file");
            let columns = beside_advantage(&columns);
            out!("{files} written in {}{columns}", folder.display());
        }
        Ok(true)
    }

    /// Reads an input. If `columns` are given, only these arrays and texts are read. `step` becomes the batch's step if the user
    /// gave `--step`, or if the file gives no step or the step 0.
    fn read(
        &self,
        recipe: &Recipe,
        tokenizer: Option<&Arc<dyn Tokenize>>,
        input: &Path,
        step: Option<u64>,
        columns: Option<&BTreeSet<String>>,
    ) -> Result<(Rollouts, Vec<String>), Diagnostics> {
        let mut rewards = ["reward", "correct", "token_reward", "verified"].iter();
        let options = ReadOptions {
            unrewarded: !rewards.any(|name| recipe.reads().contains(*name)),
            dtype: self.dtype,
            tokenizer,
            columns,
            // The bar is cleared when this function returns.
            progress: Some(&streams::bytes_bar("reading")),
            ..self.fields.options()
        };
        let (mut rollouts, notes) = read_rollouts(input, None, &options)?;
        if let Some(step) = step.filter(|_| self.step.is_some() || rollouts.batch.step() == 0) {
            rollouts.batch = rollouts.batch.at_step(step);
        }
        Ok((rollouts, notes))
    }

    /// Reads an input, and computes the advantage, the loss and, if an output is written, the returns.
    fn apply(
        &self,
        recipe: &Recipe,
        tokenizer: Option<&Arc<dyn Tokenize>>,
        columns: Option<&BTreeSet<String>>,
        input: &Path,
        step: Option<u64>,
        state: &mut State,
    ) -> Result<Applied> {
        let started = Instant::now();
        let (mut rollouts, mut notes) = self.read(recipe, tokenizer, input, step, columns)?;
        let reading = started.elapsed();
        if let Some(output) = &self.output {
            spare_the_input(rollouts.path(), output, self.force)?;
        }
        let before = state.clone();
        // The advantage and the loss together must stay within one step's limits of time and memory.
        let recipe = recipe.for_step();
        let mut computed = recipe.advantage(&rollouts.batch, state);
        if let Err(error) = &computed
            && columns.is_some()
            && error[0].missing_column().is_some()
        {
            // The file is read again with all columns, because the error lists the columns that the file has.
            (rollouts, notes) = self.read(&recipe, tokenizer, input, step, None)?;
            computed = recipe.advantage(&rollouts.batch, state);
        }
        let mut outcome = computed.map_err(with_source)?;
        if self.terms {
            let terms = terms(&recipe, &rollouts.batch, &before)?;
            outcome
                .reports
                .metrics
                .extend(terms.iter().flat_map(Summand::metrics));
        }
        let returns = match self.output {
            Some(_) => recipe.returns(&rollouts.batch, &before)?,
            None => None,
        };
        // A loss of 0 is valid if the mask excludes every token, but meaningless if there is no token column.
        let is_loss = outcome.loss.is_some() && rollouts.batch.token_columns().next().is_some();
        let has_tokens = rollouts.batch.layout().tokens() > 0 || is_loss;
        if outcome.advantage.level() == Level::Token && !has_tokens {
            let (path, name) = (rollouts.path().display(), recipe.name());
            let what = "gives an advantage to each token, but these rollouts have no tokens";
            let help = "the rollouts need a `mask`, a `length`, a `completion`, or token arrays such as `old_logp`";
            return Err(wrong(format!("{path}: {name} {what}"), help).into());
        }
        let loss = loss(&recipe, &rollouts, &mut outcome, state);
        if self.state.is_none() && self.metrics.is_none() && RunFolder::of(input).is_some() {
            notes.extend(RunFolder::state_note(&recipe));
        }
        outcome.reports.notes.splice(..0, notes);
        Ok(Applied {
            recipe,
            rollouts,
            outcome,
            returns,
            loss,
            reading,
            computing: started.elapsed() - reading,
            written: None,
        })
    }
}

/// Adds a note that says which trainers record `teacher_logp`, if the error is that this column is missing.
fn with_source(mut error: Diagnostics) -> Diagnostics {
    if error[0].missing_column() == Some("teacher_logp") {
        let note = "`teacher_logp` comes from a trainer with a teacher: verl with `distillation.enabled=True`, or your own code (docs/mixing.md)";
        error.first_mut().notes.push(note.to_string());
    }
    error
}

/// Returns the recipe's own loss, the statistics of dloss/dlogp, and the sum of |dloss/dlogp|; the reports of a loss that is
/// computed here are added to the outcome's reports. Returns `None` if the recipe has no loss, or if its loss fails, for instance
/// because the batch lacks log-probs; a warning then says why the loss failed.
fn loss(
    recipe: &Recipe,
    rollouts: &Rollouts,
    outcome: &mut Outcome,
    state: &mut State,
) -> Option<(f64, Statistics, f64)> {
    let spread = |values: &Computed, scale: f64| {
        Statistics::of(values.buffer().iter().map(|value| scale * value))
    };
    if let Some(loss) = outcome.loss {
        // Here, the advantage is -M times the loss's gradient (M is the number of tokens), so it also gives the gradient.
        let tokens = rollouts.batch.layout().tokens() as f64;
        let mass = outcome::magnitude(&outcome.advantage) / tokens;
        return Some((loss, spread(&outcome.advantage, -1.0 / tokens), mass));
    }
    if !recipe.has(Hook::Loss) {
        return None;
    }
    let batch = outcome.weighted(&rollouts.batch);
    match batch.and_then(|batch| recipe.loss(&batch, Some(&outcome.advantage), state)) {
        Ok(loss) => {
            let mass = outcome::magnitude(&loss.gradient);
            let shown = (loss.value, spread(&loss.gradient, 1.0), mass);
            outcome.reports.add(loss.reports);
            Some(shown)
        }
        Err(mut error) => {
            let first = error.first_mut();
            first.severity = Severity::Warning;
            first.message = format!("the loss is not computed: {}", first.message);
            tell(&error);
            None
        }
    }
}

/// The results of the recipe for one input.
struct Applied {
    recipe: Recipe,
    rollouts: Rollouts,
    outcome: Outcome,
    /// The returns (a critic's targets), if the recipe gives returns and an output is written.
    returns: Option<Computed>,
    /// The recipe's own loss, the statistics of dloss/dlogp, and the sum of |dloss/dlogp|.
    loss: Option<(f64, Statistics, f64)>,
    reading: Duration,
    computing: Duration,
    /// The output's name as the user sees it, the names of the added columns, and the time that writing took.
    written: Option<(String, Vec<&'static str>, Duration)>,
}

/// Returns a colon and the names of the written columns, or an empty string if at most one column was written.
fn beside_advantage(names: &[&str]) -> String {
    match names {
        [] | [_] => String::new(),
        names => format!(": {}", names.join(", ")),
    }
}

impl Applied {
    /// Writes a copy of the input with the added columns, and returns the names of these columns.
    fn write(&mut self, output: &Path) -> Result<Vec<&'static str>> {
        let (started, was_there) = (Instant::now(), output.is_file());
        let (rollouts, columns) = (&self.rollouts, self.columns());
        written(output, rollouts.path(), |output| {
            let bar = streams::bytes_bar("writing");
            Ok(rollouts.write_outputs(output, &columns, &bar)?)
        })?;
        let names: Vec<&str> = columns.iter().map(|(column, _)| column.name()).collect();
        let place = match (is_stdout(output), was_there) {
            (true, _) => "standard output".to_string(),
            (_, true) => format!("{} (replaced)", output.display()),
            _ => output.display().to_string(),
        };
        self.written = Some((place, names.clone(), started.elapsed()));
        Ok(names)
    }

    /// Returns the columns to write: the advantage, and the results of the recipe's hooks `returns`, `reward` and, unless the
    /// advantage is derived from a loss, `weight`.
    fn columns(&self) -> Vec<(AddedColumn, &Computed)> {
        let outcome = &self.outcome;
        // Weights are not written in two cases: an advantage that is equivalent to a loss already includes the weights, and if
        // the recipe has no hook `weight`, the batch's weights come from the input.
        let is_weighted = outcome.loss.is_none() && self.recipe.has(Hook::Weight);
        let weight = outcome.weight.as_ref().filter(|_| is_weighted);
        let columns = [
            (AddedColumn::Advantage, Some(&outcome.advantage)),
            (AddedColumn::Returns, self.returns.as_ref()),
            (AddedColumn::Weight, weight),
            (AddedColumn::ShapedReward, outcome.reward.as_ref()),
        ];
        let columns = columns.into_iter();
        let columns = columns.filter_map(|(column, values)| Some((column, values?)));
        columns.collect()
    }

    /// Prints the summary.
    fn print(&self, json: bool, stream: &Term) -> Result<()> {
        if json {
            return Ok(stream.write_line(&self.to_json().to_string())?);
        }
        streams::note(&self.outcome.reports.notes);
        let mut report = Report::new(streams::whole(stream));
        let prints = self.outcome.reports.prints.iter();
        prints.for_each(|line| report.line(line));
        report.title(&self.recipe);
        let path = self.rollouts.path().display();
        report.line(format!("{path}: {}\n", self.shape()));
        report.outcome_rows(&self.rows());
        Ok(streams::lines(stream, &report.text)?)
    }

    fn shape(&self) -> String {
        shape_in(self.rollouts.batch.layout(), self.rollouts.unit)
    }

    /// Prints a line for one of several steps, and the lines that the recipe printed. Notes are printed for the first step only.
    fn print_line(&self, step: u64, is_first: bool) -> Result<()> {
        let rows = Summary::of(&self.outcome).rows();
        let advantage = rows.iter().find(|(name, _)| *name == "advantage");
        let advantage = advantage.map_or("", |(_, text)| text);
        let mut line = format!("step {step:<6} {}   advantage {advantage}", self.shape());
        for (name, x) in &self.outcome.reports.metrics {
            line.push_str(&format!("   {name} {}", value(*x)));
        }
        let width = streams::whole(&Term::stdout()).width;
        out!("{}", laid_out("", &line, width));
        for text in &self.outcome.reports.prints {
            out!("  {text}");
        }
        if is_first {
            streams::note(&self.outcome.reports.notes);
        }
        Ok(())
    }

    /// Returns the rows of the summary's table.
    fn rows(&self) -> Vec<outcome::Row> {
        let of_what = match self.outcome.loss {
            Some(_) => "   (the advantage is -M dloss/dlogp of this loss, for M tokens)",
            None => "",
        };
        let started = Instant::now();
        let summary = Summary::of(&self.outcome);
        let loss = match self.loss {
            Some((loss, gradient, mass)) => {
                let loss = format!("{}{of_what}", outcome::loss_text(loss, mass));
                vec![("loss", loss), ("dloss/dlogp", statistics(gradient))]
            }
            None => outcome::zero_loss(&summary).into_iter().collect(),
        };
        let mut rows = outcome::rows(&self.outcome, &summary, loss);
        let parts = [self.reading, self.computing, started.elapsed()];
        let [reading, computing, summing] = parts.map(time);
        let native = self.outcome.reports.native.map_or("", |_| " (native)");
        let mut times = format!("read {reading}   recipe {computing}{native}   summary {summing}");
        let written = match &self.written {
            None => "nothing: `-o FILE` saves the advantages".to_string(),
            Some((place, names, writing)) => {
                times.push_str(&format!("   write {}", time(*writing)));
                format!("{place}{}", beside_advantage(names))
            }
        };
        rows.extend([("time", times), ("written", written)]);
        rows
    }

    fn to_json(&self) -> Value {
        let (recipe, outcome) = (&self.recipe, &self.outcome);
        let metrics = outcome.reports.metrics.iter();
        let metrics = metrics.map(|(name, value)| (name.clone(), in_json(*value)));
        let written = self.written.as_ref();
        json!({
            "recipe": recipe.name(),
            "version": recipe.version().as_str(),
            "params": params(recipe),
            "input": self.rollouts.path(),
            "step": self.rollouts.batch.step(),
            "summary": Summary::of(outcome),
            "loss": self.loss.map(|(loss, ..)| loss),
            "gradient": self.loss.map(|(_, gradient, _)| gradient),
            "metrics": metrics.collect::<Value>(),
            "notes": outcome.reports.notes,
            "prints": outcome.reports.prints,
            "native": outcome.reports.native.is_some(),
            "written": written.map(|(_, names, _)| names),
            "seconds": {
                "read": self.reading.as_secs_f64(),
                "recipe": self.computing.as_secs_f64(),
                "write": written.map(|(.., writing)| writing.as_secs_f64()),
            },
        })
    }
}

/// Returns a recipe's parameters as a JSON object of values by name.
fn params(recipe: &Recipe) -> Value {
    let params = recipe.params().iter();
    let pairs = params.map(|(parameter, value)| (parameter.name.clone(), json!(value)));
    pairs.collect()
}
