//! `advlab apply RECIPE INPUT`: a recipe on rollouts that are there already.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use advlab::batch::{Dtype, ReadOptions, Rollouts, read};
use advlab::diagnostic::{Diagnostic, Diagnostics, Severity};
use advlab::figures::{counted, time, value};
use advlab::paint::{beside, width};
use advlab::script::{Computed, Hook, Host, Outcome, Recipe, Spread, State, Summary};
use advlab::tensor::Level;
use advlab::train::Kept;
use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use console::Term;
use serde_json::{Map, json};

use super::progress::Progress;
use super::{Setting, load, mappings, style};

/// Compute advantages for rollouts in a file.
#[derive(Args)]
pub struct Apply {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts: .jsonl, .safetensors or .npz, or a run's folder: its last batch
    input: PathBuf,
    /// Write a copy of the input with the advantage added; `-` is standard output, and the summary then goes to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let the output replace the input
    #[arg(long, requires = "output")]
    force: bool,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Setting>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS")]
    map: Vec<Setting>,
    /// The precision of token columns; the file's own (f64 for JSONL) if not given
    #[arg(long, value_parser = PossibleValuesParser::new(["f32", "f64"])
        .map(|name| if name == "f32" { Dtype::F32 } else { Dtype::F64 }))]
    dtype: Option<Dtype>,
    /// The seed of `batch.random`
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

impl Apply {
    pub fn run(mut self) -> Result<ExitCode> {
        let host = Host::new().with_seed(self.seed);
        let recipe = load(&host, &self.recipe, &self.set)?;
        let mut notes = Vec::new();
        if self.input.is_dir() {
            let batch = Kept::open(&self.input)?.last().1.to_path_buf();
            let (run, batch_shown) = (self.input.display(), batch.display());
            notes.push(format!(
                "{run} is a run's folder: this is its last batch, {batch_shown}"
            ));
            self.input = batch;
        }
        self.spare_the_input()?;

        let started = Instant::now();
        let rollouts = self.read()?;
        let reading = started.elapsed();
        let mut state = recipe.init()?;
        let mut outcome = recipe.advantage(&rollouts.batch, &mut state)?;
        if outcome.advantage.level() == Level::Token && rollouts.batch.layout().tokens() == 0 {
            let message = format!(
                "{}: {} gives an advantage to each token, and no token counts here",
                self.input.display(),
                recipe.name()
            );
            let help = "the rollouts need a `mask`, a `length`, a `completion`, or token arrays such as `old_logp`";
            return Err(Diagnostics::from(Diagnostic::error(message).with_help(help)).into());
        }
        let loss = loss(&recipe, &rollouts, &mut outcome, &mut state);
        notes.extend(rollouts.notes.iter().map(ToString::to_string));
        notes.append(&mut outcome.notes);

        let started = Instant::now();
        if let Some(output) = &self.output {
            write(&rollouts, &outcome.advantage, output)?;
        }
        let writing = self.output.as_ref().map(|_| started.elapsed());
        let applied = Applied {
            recipe,
            rollouts,
            outcome,
            loss,
            notes,
            reading,
            writing,
            output: self.output,
        };
        applied.tell(self.json)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses an output that is the input, also by way of a link.
    fn spare_the_input(&self) -> Result<(), Diagnostics> {
        let is_input = |output| same_file::is_same_file(&self.input, output).unwrap_or(false);
        match &self.output {
            Some(output) if !self.force && is_input(output) => {
                let message = format!("{} is the input itself", output.display());
                let help = "choose another name, or `--force` to replace it";
                Err(Diagnostic::error(message).with_help(help).into())
            }
            _ => Ok(()),
        }
    }

    fn read(&self) -> Result<Rollouts> {
        let map = mappings(&self.map);
        let progress = Progress::new("reading");
        let tell = |done, total| progress.at(done, total);
        let options = ReadOptions {
            map: &map,
            dtype: self.dtype,
            progress: Some(&tell),
            ..ReadOptions::default()
        };
        Ok(read(&self.input, &options)?)
    }
}

/// The recipe's own loss with the spread of dloss/dlogp; what it reports joins the outcome's. The advantage stands also
/// where the loss lacks something, such as log-probs.
fn loss(
    recipe: &Recipe,
    rollouts: &Rollouts,
    outcome: &mut Outcome,
    state: &mut State,
) -> Option<(f64, Spread)> {
    if let Some(loss) = outcome.loss {
        // The advantage is -M times the gradient there.
        let tokens = rollouts.batch.layout().tokens() as f64;
        return Some((loss, spread(&outcome.advantage, -1.0 / tokens)));
    }
    if !recipe.has(Hook::Loss) {
        return None;
    }
    match recipe.loss(&rollouts.batch, Some(&outcome.advantage), state) {
        Ok(loss) => {
            let shown = (loss.value, spread(&loss.gradient, 1.0));
            outcome.add_reports(loss);
            Some(shown)
        }
        Err(mut error) => {
            let first = error.first_mut();
            first.severity = Severity::Warning;
            first.message = format!("the loss is not computed: {}", first.message);
            style::tell(&error);
            None
        }
    }
}

fn spread(values: &Computed, scale: f64) -> Spread {
    Spread::of(values.buffer().iter().map(|value| scale * value))
}

fn write(rollouts: &Rollouts, advantage: &Computed, output: &Path) -> Result<()> {
    if !is_stdout(output) {
        rollouts.write_advantage(output, advantage)?;
        return Ok(());
    }
    // Whole in a file first: who reads the pipe gets all of it or nothing.
    let name = rollouts.path().file_name().unwrap_or_default();
    let file = tempfile::Builder::new().suffix(name).tempfile()?;
    rollouts.write_advantage(file.path(), advantage)?;
    let mut out = io::stdout().lock();
    io::copy(&mut File::open(file.path())?, &mut out)?;
    // At the exit nobody would be told of what cannot be written.
    out.flush()?;
    Ok(())
}

fn is_stdout(output: &Path) -> bool {
    output == Path::new("-")
}

struct Applied {
    recipe: Recipe,
    rollouts: Rollouts,
    outcome: Outcome,
    /// The recipe's own loss, with the spread of dloss/dlogp.
    loss: Option<(f64, Spread)>,
    notes: Vec<String>,
    reading: Duration,
    writing: Option<Duration>,
    output: Option<PathBuf>,
}

impl Applied {
    /// Prints the summary where the rollouts are not printed.
    fn tell(&self, json: bool) -> Result<()> {
        let is_taken = self.output.as_deref().is_some_and(is_stdout);
        let mut out = if is_taken {
            Term::stderr()
        } else {
            Term::stdout()
        };
        let paint = style::whole(&out);
        if json {
            writeln!(out, "{}", self.to_json())?;
            return Ok(());
        }
        for line in &self.outcome.prints {
            writeln!(out, "{line}")?;
        }
        for note in &self.notes {
            style::tell(&[Diagnostic::note(note)]);
        }
        let settings = self.recipe.params().iter();
        let settings: Vec<String> = settings
            .map(|(parameter, value)| format!("{}={value}", parameter.name))
            .collect();
        let version = self.recipe.version().short();
        let head = format!("{} {}", paint.bold(self.recipe.name()), paint.dim(version));
        let settings = paint.dim(&settings.join(" "));
        writeln!(
            out,
            "{}",
            beside(&head, width(&head) + 2, &settings, paint.width)
        )?;
        let summary = Summary::of(&self.outcome);
        let [least, most] = summary.group_size;
        let to_most = if least == most {
            String::new()
        } else {
            format!(" to {most}")
        };
        let responses = counted(summary.responses, "response");
        let groups = counted(summary.groups, "group");
        let tokens = counted(summary.tokens, "token");
        let input = self.rollouts.path().display();
        writeln!(
            out,
            "{input}: {responses} in {groups} of {least}{to_most}, {tokens}\n"
        )?;
        for (name, text) in self.rows() {
            writeln!(out, "  {name:<11} {text}")?;
        }
        Ok(())
    }

    /// The rows of the table below the head: a title and a value.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Summary::of(&self.outcome).rows();
        let mut row = |name, text| rows.push((name, text));
        if let Some((loss, gradient)) = &self.loss {
            let of_what = match self.outcome.loss {
                Some(_) => "   (the advantage is the equivalent one, -M dloss/dlogp)",
                None => "",
            };
            row("loss", format!("{}{of_what}", value(*loss)));
            let [mean, std, min, max] =
                [gradient.mean, gradient.std, gradient.min, gradient.max].map(value);
            let text = format!("mean {mean}   std {std}   min {min}   max {max}");
            row("dloss/dlogp", text);
        }
        for (name, number) in &self.outcome.metrics {
            row("metric", format!("{name} {}", value(*number)));
        }
        let (reading, computing) = (time(self.reading), time(self.outcome.time));
        let writing = self
            .writing
            .map(|writing| format!("   write {}", time(writing)));
        let writing = writing.unwrap_or_default();
        row(
            "time",
            format!("read {reading}   recipe {computing}{writing}"),
        );
        if let Some(output) = &self.output {
            row(
                "written",
                if is_stdout(output) {
                    "standard output".to_string()
                } else {
                    output.display().to_string()
                },
            );
        }
        rows
    }

    fn to_json(&self) -> serde_json::Value {
        let Applied {
            recipe, outcome, ..
        } = self;
        let params = recipe.params().iter();
        let params: Map<_, _> = params
            .map(|(parameter, value)| (parameter.name.clone(), json!(value)))
            .collect();
        let metrics = outcome.metrics.iter();
        let metrics: Map<_, _> = metrics
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        json!({
            "recipe": recipe.name(),
            "version": recipe.version().as_str(),
            "params": params,
            "input": self.rollouts.path(),
            "summary": Summary::of(outcome),
            "loss": self.loss.map(|(loss, _)| loss),
            "gradient": self.loss.map(|(_, gradient)| gradient),
            "metrics": metrics,
            "notes": self.notes,
            "prints": outcome.prints,
            "seconds": {
                "read": self.reading.as_secs_f64(),
                "recipe": outcome.time.as_secs_f64(),
                "write": self.writing.map(|writing| writing.as_secs_f64()),
            },
        })
    }
}
