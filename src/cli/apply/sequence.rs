//! One input after another: what lasts between them, and what is kept of each.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use advlab::batch::{Replacement, step_of, steps};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{shape, value};
use advlab::script::{Recipe, State, Summary};
use advlab::train::Kept;
use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::streams::{on_stdout, out, tell};
use super::super::{end_cleanly, title};
use super::{Applied, Apply, is_stdout, write};

impl Apply {
    pub(super) fn run_sequence(self, recipe: Recipe) -> Result<ExitCode> {
        end_cleanly()?;
        let inputs = self.sequence()?;
        let is_many = inputs.len() > 1;
        self.check_output(is_many)?;
        let (mut state, mut next) = self.carried(&recipe)?;
        let mut metrics = self.open_metrics(next.is_some())?;
        if is_many && !self.json {
            let paint = on_stdout();
            out!("{}", title(recipe.name(), &recipe, paint));
        }
        for (index, input) in inputs.iter().enumerate() {
            let step = match self.step {
                Some(first) => Some(first + index as u64),
                None => step_of(input).filter(|_| is_many).or(next),
            };
            let mut applied = self.apply(&recipe, input, step, &mut state)?;
            let started = Instant::now();
            if let Some(output) = self.output.as_deref() {
                let output = place(output, input, &applied, is_many)?;
                write(&applied.rollouts, &applied.outcome.advantage, &output)?;
                applied.writing = Some((output, started.elapsed()));
            }
            let step = applied.rollouts.batch.step();
            next = Some(step + 1);
            self.keep(&recipe, &state, step)?;
            if let Some((file, path)) = &mut metrics {
                let row = format!("{}\n", applied.to_json());
                let written = file.write_all(row.as_bytes());
                written.with_context(|| format!("{}: it cannot be written", path.display()))?;
            }
            match is_many && !self.json {
                true => applied.tell_line(step, index == 0)?,
                false => applied.tell(self.json)?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The inputs one by one, in the order of their steps.
    fn sequence(&self) -> Result<Vec<PathBuf>, Diagnostics> {
        let mut inputs = Vec::new();
        for input in &self.inputs {
            match Kept::open(input) {
                Ok(kept) if self.metrics.is_some() || self.state.is_some() => {
                    inputs.extend(kept.batches().iter().map(|(_, path)| path.clone()));
                }
                Ok(_) => inputs.push(input.clone()),
                Err(_) => inputs.extend(steps(input)?),
            }
        }
        if self.inputs.len() > 1 {
            // The shell puts step_10 before step_9.
            inputs.sort_by_key(|input| step_of(input));
        }
        Ok(inputs)
    }

    fn check_output(&self, is_many: bool) -> Result<()> {
        let Some(output) = self.output.as_deref().filter(|_| is_many) else {
            return Ok(());
        };
        if is_stdout(output) || output.extension().is_some() {
            let output = output.display();
            let error = Diagnostic::error(format!("{output}: several inputs have several outputs"));
            let help = "`-o FOLDER` writes one file into it for each of them";
            return Err(Diagnostics::from(error.with_help(help)).into());
        }
        fs::create_dir_all(output).with_context(|| format!("{}", output.display()))
    }

    /// The state to begin with, and the step after the last one, where an earlier call left them.
    fn carried(&self, recipe: &Recipe) -> Result<(State, Option<u64>)> {
        let Some(path) = self.state.as_deref().filter(|path| path.exists()) else {
            return Ok((recipe.init()?, None));
        };
        let wrong = |what: String| {
            let help = "it is no state that `apply --state` left, or name another file";
            Diagnostics::from(Diagnostic::error(what).in_file(path).with_help(help))
        };
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let kept: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if kept["recipe"] != recipe.name() {
            return Err(wrong(format!("it is the state of {}", kept["recipe"])).into());
        }
        if kept["version"] != recipe.version().as_str() && !self.json {
            let note = "the state is of another version of the recipe";
            tell(&[Diagnostic::note(note).in_file(path)]);
        }
        let state = State::from_json(&kept["state"]).map_err(|error| error.in_file(path));
        Ok((
            state.map_err(Diagnostics::from)?,
            kept["next_step"].as_u64(),
        ))
    }

    /// Keeps the state as it is after a step.
    fn keep(&self, recipe: &Recipe, state: &State, step: u64) -> Result<(), Diagnostics> {
        let Some(path) = &self.state else {
            return Ok(());
        };
        let kept = json!({
            "recipe": recipe.name(),
            "version": recipe.version().as_str(),
            "next_step": step + 1,
            "state": state.to_json(),
        });
        Replacement::write(path, format!("{kept:#}\n").as_bytes())
    }

    /// The file of metrics, which goes on where the state does.
    fn open_metrics(&self, goes_on: bool) -> Result<Option<(File, &Path)>> {
        let Some(path) = self.metrics.as_deref() else {
            return Ok(None);
        };
        let mut options = File::options();
        options
            .create(true)
            .write(true)
            .append(goes_on)
            .truncate(!goes_on);
        let file = options
            .open(path)
            .with_context(|| format!("{}", path.display()))?;
        Ok(Some((file, path)))
    }
}

/// The output for an input: of several, one of its name in the folder.
fn place(output: &Path, input: &Path, applied: &Applied, is_many: bool) -> Result<PathBuf> {
    if !is_many {
        return Ok(output.to_path_buf());
    }
    let mut name = input.file_name().unwrap_or_default().to_os_string();
    if input.is_dir() {
        name.push(".jsonl");
    }
    let output = output.join(name);
    if same_file::is_same_file(&output, applied.rollouts.path()).unwrap_or(false) {
        let error = Diagnostic::error(format!("{} is an input itself", output.display()));
        let help = "choose another folder for the outputs";
        return Err(Diagnostics::from(error.with_help(help)).into());
    }
    Ok(output)
}

impl Applied {
    /// Prints a step of several in a line; what is to note of all is told with the first.
    fn tell_line(&self, step: u64, is_first: bool) -> Result<()> {
        let outcome = &self.outcome;
        let rows = Summary::of(outcome).rows();
        let advantage = rows.iter().find(|(name, _)| *name == "advantage");
        let advantage = advantage.map_or("", |(_, text)| text);
        let shape = shape(self.rollouts.batch.layout());
        let mut line = format!("step {step:<6} {shape}   advantage {advantage}");
        for (name, x) in &outcome.metrics {
            line.push_str(&format!("   {name} {}", value(*x)));
        }
        out!("{line}");
        outcome.prints.iter().try_for_each(|text| -> Result<()> {
            out!("  {text}");
            Ok(())
        })?;
        for note in outcome.notes.iter().filter(|_| is_first) {
            tell(&[Diagnostic::note(note)]);
        }
        Ok(())
    }
}
