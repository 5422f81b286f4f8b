//! `advlab apply RECIPE INPUT...`: a recipe on rollouts that are there already, of one step or of many.

mod sequence;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use advlab::batch::{Column, Dtype, Rollouts};
use advlab::diagnostic::{Diagnostic, Diagnostics, Severity};
use advlab::figures::{in_json, shape_in, time, value};
use advlab::native::Native;
use advlab::paint::laid_out;
use advlab::script::{Computed, Hook, Host, Outcome, Recipe, State, Statistics, Summary};
use advlab::tensor::Level;
use advlab_train::RunFolder;
use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use console::Term;
use serde_json::{Map, json};

use super::{Natively, Tokenizing, load, pair, rollouts, streams, title, whole};

/// Compute advantages for rollouts in a file.
#[derive(Args)]
pub struct Apply {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts: .jsonl (.gz, .zst), .parquet, .safetensors or .npz; a run's folder: its last batch; several files, or a
    /// folder of them: steps, in their order, over which the recipe's state lasts
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Write a copy of the input with the advantage added, and with `weight`, `shaped_reward` and `returns` if the recipe has
    /// the hooks `weight`, `reward`, `returns`; `-` is standard output, and the summary then goes to standard error; a folder for
    /// several inputs
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let the output replace the input
    #[arg(long, requires = "output")]
    force: bool,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    map: Vec<(String, String)>,
    /// The precision of token columns; the file's own (f64 for JSONL) if not given
    #[arg(long, value_parser = PossibleValuesParser::new(["f32", "f64"])
        .map(|name| if name == "f32" { Dtype::F32 } else { Dtype::F64 }))]
    dtype: Option<Dtype>,
    /// Of a run's folder, the batch of this step. Of files, the step that the recipe sees, or that of the first of them; theirs,
    /// or the number in their name, if not given
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    step: Option<u64>,
    /// Write a row of figures for each input
    #[arg(long, value_name = "FILE.jsonl")]
    metrics: Option<PathBuf>,
    /// Go on with the recipe's state in this file, if it is there, and keep the state there after each input; steps that
    /// it has seen are refused
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The seed of `batch.random`; the run's whose batch it is, or 0, if not given
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tokenizing: Tokenizing,
    #[command(flatten)]
    natively: Natively,
}

impl Apply {
    pub fn run(self) -> Result<ExitCode> {
        let mut runs = self.inputs.iter().filter_map(|input| RunFolder::of(input));
        let seed = self.seed.or_else(|| runs.next()?.seed());
        let host = Host::new()
            .with_seed(seed.unwrap_or_default())
            .with_native(&Native::new(self.natively.native));
        let recipe = load(&host, &self.recipe, &self.set)?;
        self.run_sequence(recipe)
    }

    /// The recipe on one input.
    fn apply(
        &self,
        recipe: &Recipe,
        input: &Path,
        step: Option<u64>,
        state: &mut State,
    ) -> Result<Applied> {
        let mut applied = self.advantage(recipe, input, step, state)?;
        let (rollouts, outcome) = (&applied.rollouts, &mut applied.outcome);
        let has_tokens = rollouts.batch.layout().tokens() > 0;
        // The loss of tokens of which none counts is 0; rollouts that say nothing of tokens have no loss.
        let is_loss = outcome.loss.is_some() && rollouts.batch.token_columns().next().is_some();
        if outcome.advantage.level() == Level::Token && !has_tokens && !is_loss {
            let message = format!(
                "{}: {} gives an advantage to each token, and no token counts here",
                rollouts.path().display(),
                recipe.name()
            );
            let help = "the rollouts need a `mask`, a `length`, a `completion`, or token arrays such as `old_logp`";
            return Err(Diagnostics::from(Diagnostic::error(message).with_help(help)).into());
        }
        applied.loss = loss(&applied.recipe, rollouts, outcome, state);
        Ok(applied)
    }

    /// Reads an input, and computes its advantage, and the returns if they are written.
    fn advantage(
        &self,
        recipe: &Recipe,
        input: &Path,
        step: Option<u64>,
        state: &mut State,
    ) -> Result<Applied> {
        let tokenizer = self.tokenizing.load()?;
        let mut reading = Duration::ZERO;
        let mut read = |columns: Option<&[String]>| {
            let started = Instant::now();
            let (mut rollouts, notes) =
                rollouts(input, &self.map, self.dtype, columns, tokenizer.as_ref())?;
            reading += started.elapsed();
            if let Some(step) = step.filter(|_| self.step.is_some() || rollouts.batch.step() == 0) {
                rollouts.batch = rollouts.batch.at_step(step);
            }
            Ok::<_, anyhow::Error>((rollouts, notes))
        };
        let reads = recipe.reads();
        let names: Vec<String> = reads.names.iter().cloned().collect();
        let (mut rollouts, mut notes) = read((!reads.is_computed).then_some(&names))?;
        if let Some(output) = &self.output {
            streams::spare_the_input(rollouts.path(), output, self.force)?;
        }
        let before = state.clone();
        let timed = recipe.for_step();
        let mut computed = timed.advantage(&rollouts.batch, state);
        if computed.is_err() && rollouts.is_partial() {
            // The error is to name the columns that the file has, not those that were read.
            (rollouts, notes) = read(None)?;
            *state = before.clone();
            computed = timed.advantage(&rollouts.batch, state);
        }
        let mut outcome = computed?;
        let returns = self.output.as_ref();
        let returns = returns.map(|_| timed.returns(&rollouts.batch, &before));
        let goes_on = self.state.is_some() || self.metrics.is_some();
        if !goes_on && RunFolder::of(input).is_some() {
            notes.extend(RunFolder::state_note(recipe));
        }
        outcome.notes.splice(..0, notes);
        let returns = returns.transpose()?.flatten();
        Ok(Applied {
            // Its loss has what is left of the step's time.
            recipe: timed,
            outcome,
            returns,
            rollouts,
            loss: None,
            reading,
            writing: None,
        })
    }
}

/// The recipe's own loss with the spread of dloss/dlogp; what it reports joins the outcome's. The advantage stands also
/// where the loss lacks something, such as log-probs.
fn loss(
    recipe: &Recipe,
    rollouts: &Rollouts,
    outcome: &mut Outcome,
    state: &mut State,
) -> Option<(f64, Statistics)> {
    if let Some(loss) = outcome.loss {
        // The advantage is -M times the gradient there.
        let tokens = rollouts.batch.layout().tokens() as f64;
        return Some((loss, spread(&outcome.advantage, -1.0 / tokens)));
    }
    if !recipe.has(Hook::Loss) {
        return None;
    }
    match recipe.loss(
        &outcome.weighted(&rollouts.batch),
        Some(&outcome.advantage),
        state,
    ) {
        Ok(loss) => {
            let shown = (loss.value, spread(&loss.gradient, 1.0));
            outcome.add_reports(loss);
            Some(shown)
        }
        Err(mut error) => {
            let first = error.first_mut();
            first.severity = Severity::Warning;
            first.message = format!("the loss is not computed: {}", first.message);
            streams::tell(&error);
            None
        }
    }
}

fn spread(values: &Computed, scale: f64) -> Statistics {
    Statistics::of(values.buffer().iter().map(|value| scale * value))
}

fn write(applied: &Applied, output: &Path) -> Result<()> {
    let rollouts = &applied.rollouts;
    streams::written(output, rollouts.path(), |output| {
        let bar = streams::bytes_bar("writing");
        Ok(rollouts.write_outputs(output, &applied.columns(), &bar)?)
    })
}

struct Applied {
    recipe: Recipe,
    rollouts: Rollouts,
    outcome: Outcome,
    /// What a critic is to learn, where the recipe says it and it is written.
    returns: Option<Computed>,
    /// The recipe's own loss, with the spread of dloss/dlogp.
    loss: Option<(f64, Statistics)>,
    reading: Duration,
    /// The output, whether a file was there before, and how long writing it took.
    writing: Option<(PathBuf, bool, Duration)>,
}

impl Applied {
    /// What is written: all that says how the batch is to be trained on.
    fn columns(&self) -> Vec<(Column, &Computed)> {
        let outcome = &self.outcome;
        // An advantage that is equivalent to a loss has the weights in it; others than the recipe's are in the input.
        let is_weighted = outcome.loss.is_none() && self.recipe.has(Hook::Weight);
        let columns = [
            (Column::Advantage, Some(&outcome.advantage)),
            (Column::Returns, self.returns.as_ref()),
            (
                Column::Weight,
                outcome.weight.as_ref().filter(|_| is_weighted),
            ),
            (Column::ShapedReward, outcome.reward.as_ref()),
        ];
        let columns = columns.into_iter();
        columns
            .filter_map(|(column, values)| Some((column, values?)))
            .collect()
    }

    fn names(&self) -> Vec<&'static str> {
        let columns = self.columns().into_iter();
        columns.map(|(column, _)| column.name()).collect()
    }

    /// The names of what is written, where it is more than the advantage.
    fn named(&self) -> String {
        match &self.names()[..] {
            [_] => String::new(),
            names => format!(": {}", names.join(", ")),
        }
    }

    /// Prints the summary where the rollouts are not printed.
    fn tell(&self, json: bool) -> Result<()> {
        let writing = self.writing.as_ref();
        let mut out = match writing.filter(|(output, ..)| streams::is_stdout(output)) {
            Some(_) => Term::stderr(),
            None => Term::stdout(),
        };
        if json {
            writeln!(out, "{}", self.to_json())?;
            return Ok(());
        }
        for line in &self.outcome.prints {
            writeln!(out, "{line}")?;
        }
        for note in &self.outcome.notes {
            streams::tell(&[Diagnostic::note(note)]);
        }
        let paint = streams::whole(&out);
        let title = title(self.recipe.name(), &self.recipe, paint);
        let shape = shape_in(self.rollouts.batch.layout(), self.rollouts.unit);
        let input = self.rollouts.path().display();
        writeln!(out, "{title}\n{input}: {shape}\n")?;
        for (name, text) in self.rows() {
            let start = format!("  {name:<11} ");
            writeln!(out, "{}", laid_out(&start, &text, paint.width))?;
        }
        Ok(())
    }

    /// The rows of the table below the head: a title and a value.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Summary::of(&self.outcome).rows();
        if let Some((loss, gradient)) = &self.loss {
            let of_what = match self.outcome.loss {
                Some(_) => "   (the advantage is the equivalent one, -M dloss/dlogp)",
                None => "",
            };
            rows.push(("loss", format!("{}{of_what}", value(*loss))));
            let [mean, std, min, max] =
                [gradient.mean, gradient.std, gradient.min, gradient.max].map(value);
            let text = format!("mean {mean}   std {std}   min {min}   max {max}");
            rows.push(("dloss/dlogp", text));
        }
        let metrics = self.outcome.metrics.iter();
        rows.extend(metrics.map(|(name, x)| ("metric", format!("{name} {}", value(*x)))));
        let (reading, computing) = (time(self.reading), time(self.outcome.time));
        let natively = if self.outcome.native.is_some() {
            " (native)"
        } else {
            ""
        };
        let mut times = format!("read {reading}   recipe {computing}{natively}");
        if let Some((.., writing)) = &self.writing {
            times.push_str(&format!("   write {}", time(*writing)));
        }
        rows.push(("time", times));
        let written = match &self.writing {
            None => "nothing: `-o FILE` keeps the advantages".to_string(),
            Some((output, ..)) if streams::is_stdout(output) => {
                format!("standard output{}", self.named())
            }
            Some((output, was_there, _)) => {
                let replaced = if *was_there { " (replaced)" } else { "" };
                format!("{}{replaced}{}", output.display(), self.named())
            }
        };
        rows.push(("written", written));
        rows
    }

    fn to_json(&self) -> serde_json::Value {
        let (recipe, outcome) = (&self.recipe, &self.outcome);
        let params = recipe.params().iter();
        let params = params.map(|(parameter, value)| (parameter.name.clone(), json!(value)));
        let metrics = outcome.metrics.iter();
        let metrics = metrics.map(|(name, value)| (name.clone(), in_json(*value)));
        json!({
            "recipe": recipe.name(),
            "version": recipe.version().as_str(),
            "params": params.collect::<Map<_, _>>(),
            "input": self.rollouts.path(),
            "step": self.rollouts.batch.step(),
            "summary": Summary::of(outcome),
            "loss": self.loss.map(|(loss, _)| loss),
            "gradient": self.loss.map(|(_, gradient)| gradient),
            "metrics": metrics.collect::<Map<_, _>>(),
            "notes": outcome.notes,
            "prints": outcome.prints,
            "native": outcome.native.is_some(),
            "written": self.writing.as_ref().map(|_| self.names()),
            "seconds": {
                "read": self.reading.as_secs_f64(),
                "recipe": outcome.time.as_secs_f64(),
                "write": self.writing.as_ref().map(|(.., writing)| writing.as_secs_f64()),
            },
        })
    }
}
