//! `advlab apply RECIPE INPUT...`: a recipe on rollouts that are there already, of one step or of many.

mod sequence;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use advlab::batch::{Dtype, Rollouts};
use advlab::diagnostic::{Diagnostic, Diagnostics, Severity};
use advlab::figures::{in_json, shape, time, value};
use advlab::native::Native;
use advlab::paint::laid_out;
use advlab::script::{Computed, Hook, Host, Outcome, Recipe, Spread, State, Summary};
use advlab::tensor::Level;
use advlab::train::Kept;
use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use console::Term;
use serde_json::{Map, json};

use super::{Computing, Natively, Tokenizing, load, pair, rollouts, streams, title};

/// Compute advantages for rollouts in a file.
#[derive(Args)]
pub struct Apply {
    /// A built-in's name, or the path of a .rhai file
    recipe: String,
    /// The rollouts: .jsonl (.gz, .zst), .parquet, .safetensors or .npz; a run's folder: its last batch; several files, or a
    /// folder of them: steps, in their order, over which the recipe's state lasts
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Write a copy of the input with the advantage added, and the recipe's `returns` where it has that hook; `-` is
    /// standard output, and the summary then goes to standard error; a folder for several inputs
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
    /// The step that the rollouts are of, or the first of them; theirs, or the number in their name, if not given
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Write a row of figures for each input
    #[arg(long, value_name = "FILE.jsonl")]
    metrics: Option<PathBuf>,
    /// Go on with the recipe's state in this file, if it is there, and keep the state there after each input; steps that
    /// it has seen are refused
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The seed of `batch.random`; the run's whose batch it is, or 0, if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tokenizing: Tokenizing,
    #[command(flatten)]
    computing: Computing,
    #[command(flatten)]
    natively: Natively,
}

impl Apply {
    pub fn run(self) -> Result<ExitCode> {
        let mut runs = self.inputs.iter().filter_map(|input| Kept::of(input));
        let seed = self.seed.or_else(|| runs.next()?.seed());
        let host = Host::new()
            .with_seed(seed.unwrap_or_default())
            .with_executor(self.computing.executor)
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
        applied.loss = loss(recipe, rollouts, outcome, state);
        Ok(applied)
    }

    /// Reads an input, and computes its advantage, and the returns where they are written.
    fn advantage(
        &self,
        recipe: &Recipe,
        input: &Path,
        step: Option<u64>,
        state: &mut State,
    ) -> Result<Applied> {
        // Only what the sources name.
        let named = named(recipe);
        let mut columns = named.as_deref();
        let tokenizer = self.tokenizing.load()?;
        let mut reading = Duration::ZERO;
        loop {
            let started = Instant::now();
            let (mut rollouts, mut notes) =
                rollouts(input, &self.map, self.dtype, columns, tokenizer.as_ref())?;
            let goes_on = self.state.is_some() || self.metrics.is_some();
            if !goes_on && Kept::of(input).is_some() {
                notes.extend(Kept::state_note(recipe));
            }
            reading += started.elapsed();
            if let Some(output) = &self.output {
                streams::spare_the_input(rollouts.path(), output, self.force)?;
            }
            if let Some(step) = step.filter(|_| self.step.is_some() || rollouts.batch.step() == 0) {
                rollouts.batch = rollouts.batch.at_step(step);
            }
            let (before, timed) = (state.clone(), recipe.for_step());
            let computed = timed.advantage(&rollouts.batch, state);
            let both = computed.and_then(|outcome| {
                let asked = self.output.is_some();
                let returns = asked.then(|| timed.returns(&rollouts.batch, &before));
                Ok((outcome, returns.transpose()?.flatten()))
            });
            match both {
                Ok((mut outcome, returns)) => {
                    outcome.notes.splice(..0, notes);
                    return Ok(Applied {
                        recipe: recipe.clone(),
                        outcome,
                        returns,
                        rollouts,
                        loss: None,
                        reading,
                        writing: None,
                    });
                }
                // A pipe is read once.
                Err(_) if rollouts.is_partial() && (input.is_file() || input.is_dir()) => {
                    (columns, *state) = (None, before)
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// All words of a recipe's sources, but the keys of maps: the columns that it uses are among them. Each parameter has a
/// `value:`. `None` where names are put together.
fn named(recipe: &Recipe) -> Option<Vec<String>> {
    let is_made = |text: &str| text.contains(".column(") || text.contains(".columns(");
    if recipe
        .sources()
        .any(|(_, text)| is_made(text) || asks_for_any(text))
    {
        return None;
    }
    let is_between = |letter: char| !letter.is_alphanumeric() && letter != '_';
    let words = recipe
        .sources()
        .flat_map(|(_, text)| text.lines())
        .map(without_comment)
        .flat_map(|code| code.split_inclusive(is_between))
        .filter(|word| !word.ends_with(':'))
        .map(|word| word.trim_end_matches(is_between));
    // The gradient of a loss is by `logp`.
    let by_logp = recipe.has(Hook::Loss).then_some("logp");
    let words: BTreeSet<&str> = words.chain(by_logp).collect();
    Some(words.into_iter().map(str::to_string).collect())
}

/// Whether a script asks `batch.has(...)` for a name that is not written there: what is not read would not be there.
fn asks_for_any(text: &str) -> bool {
    text.split(".has(").skip(1).any(|rest| {
        let name = rest.trim_start().strip_prefix('"');
        let behind = name.and_then(|name| name.split_once('"'));
        behind.is_none_or(|(_, behind)| !behind.trim_start().starts_with(')'))
    })
}

/// A comment that speaks of prompts reads none: they may be most of a file. Within a text, `//` begins no comment.
fn without_comment(line: &str) -> &str {
    let (code, _) = line.split_once("//").unwrap_or((line, ""));
    match code.matches(['"', '`']).count() % 2 {
        0 => code,
        _ => line,
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

fn spread(values: &Computed, scale: f64) -> Spread {
    Spread::of(values.buffer().iter().map(|value| scale * value))
}

fn write(applied: &Applied, output: &Path) -> Result<()> {
    let (rollouts, advantage) = (&applied.rollouts, &applied.outcome.advantage);
    let returns = applied.returns.as_ref();
    streams::written(output, rollouts.path(), |output| {
        let bar = streams::bytes_bar("writing");
        Ok(rollouts.write_outputs(output, advantage, returns, &bar)?)
    })
}

struct Applied {
    recipe: Recipe,
    rollouts: Rollouts,
    outcome: Outcome,
    /// What a critic is to learn, where the recipe says it and it is written.
    returns: Option<Computed>,
    /// The recipe's own loss, with the spread of dloss/dlogp.
    loss: Option<(f64, Spread)>,
    reading: Duration,
    /// The output, and how long writing it took.
    writing: Option<(PathBuf, Duration)>,
}

impl Applied {
    /// Prints the summary where the rollouts are not printed.
    fn tell(&self, json: bool) -> Result<()> {
        let writing = self.writing.as_ref();
        let mut out = match writing.filter(|(output, _)| streams::is_stdout(output)) {
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
        let shape = shape(self.rollouts.batch.layout());
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
        if let Some((_, writing)) = &self.writing {
            times.push_str(&format!("   write {}", time(*writing)));
        }
        rows.push(("time", times));
        let written = match &self.writing {
            None => "nothing: `-o FILE` keeps the advantages".to_string(),
            Some((output, _)) if streams::is_stdout(output) => "standard output".to_string(),
            Some((output, _)) => output.display().to_string(),
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
            "seconds": {
                "read": self.reading.as_secs_f64(),
                "recipe": outcome.time.as_secs_f64(),
                "write": self.writing.as_ref().map(|(_, writing)| writing.as_secs_f64()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::without_comment;

    #[test]
    fn comments_are_told_from_texts() {
        for (line, code) in [
            ("batch.reward // of the prompt", "batch.reward "),
            ("/// batch.prompt", ""),
            (
                r#"batch.has("a//b") || batch.agent"#,
                r#"batch.has("a//b") || batch.agent"#,
            ),
        ] {
            assert_eq!(without_comment(line), code);
        }
    }
}
