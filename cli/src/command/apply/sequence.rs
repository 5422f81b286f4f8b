//! One input after another: what lasts between them, and what is kept of each.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use advlab::batch::{Replacement, Unfinished, cannot_be_written, step_of, steps};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{counted, shape_in, value};
use advlab::paint::laid_out;
use advlab::regular_file;
use advlab::script::{Recipe, State, Summary};
use advlab_train::RunFolder;
use anyhow::{Context, Result};
use console::Term;
use same_file::Handle;
use serde_json::{Value, json};

use super::super::streams::{interrupted, is_stdout, on_stdout, out, tell, whole};
use super::super::{end_cleanly, holds, is_same, resolved, title};
use super::{Applied, Apply, write};

/// Refuses a file that is not there before anything is computed of those before it, and a setting that stands among them.
fn check_inputs(inputs: &[PathBuf]) -> Result<(), Diagnostics> {
    for input in inputs {
        let shown = input.display().to_string();
        let (Err(error), is_setting) = (fs::metadata(input), shown.contains('=')) else {
            continue;
        };
        let missing = Diagnostic::error(format!("it cannot be read: {error}")).in_file(input);
        match is_setting {
            true => {
                let help = format!("a parameter is set by `--set {shown}`");
                return Err(missing.with_help(help).into());
            }
            false if inputs.len() > 1 => return Err(missing.into()),
            // Who reads it says more.
            false => {}
        }
    }
    Ok(())
}

impl Apply {
    pub(super) fn run_sequence(self, recipe: Recipe) -> Result<ExitCode> {
        end_cleanly(interrupted)?;
        let inputs = self.sequence()?;
        let is_many = inputs.len() > 1;
        self.check_output(is_many)?;
        let outputs = self.outputs(&inputs)?;
        self.check_places(&inputs, &outputs)?;
        check_inputs(&inputs)?;
        self.make_folder(is_many)?;
        let _lock = self.lock()?;
        let (mut state, carried) = self.carried(&recipe)?;
        let (mut next, mut metrics, mut named) = (carried, None, String::new());
        if is_many && !self.json {
            let paint = on_stdout();
            out!("{}", title(recipe.name(), &recipe, paint));
        }
        for (index, input) in inputs.iter().enumerate() {
            let step = match self.step {
                Some(first) => Some(first + index as u64),
                None => step_of(input)
                    .filter(|_| is_many || self.state.is_some())
                    .or(next),
            };
            let mut applied = self.apply(&recipe, input, step, &mut state)?;
            let step = applied.rollouts.batch.step();
            self.check_step(input, step, carried)?;
            let started = Instant::now();
            if let Some(output) = outputs.get(index) {
                let was_there = output.is_file();
                write(&applied, output)?;
                applied.writing = Some((output.clone(), was_there, started.elapsed()));
                named = applied.named();
            }
            next = Some(step.saturating_add(1));
            if metrics.is_none() {
                // What was read is not lost to a read that fails.
                metrics = self.open_metrics(&recipe, carried)?;
            }
            if let Some((file, path)) = &mut metrics {
                let row = format!("{}\n", applied.to_json());
                let written = file.write_all(row.as_bytes());
                written.with_context(|| format!("{}: it cannot be written", path.display()))?;
            }
            self.keep(&recipe, &state, step)?;
            match is_many && !self.json {
                true => applied.tell_line(step, index == 0)?,
                false => applied.tell(self.json)?,
            }
        }
        if let Some(folder) = self.output.as_deref().filter(|_| is_many && !self.json) {
            out!(
                "{} written in {}{named}",
                counted(outputs.len(), "file"),
                folder.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The inputs one by one, in the order of their steps.
    fn sequence(&self) -> Result<Vec<PathBuf>, Diagnostics> {
        let mut inputs = Vec::new();
        for input in &self.inputs {
            match (RunFolder::open(input), self.step) {
                (Ok(_), Some(_)) if self.inputs.len() > 1 => {
                    let what =
                        "`--step` takes one batch of a run's folder, and there are other inputs";
                    return Err(Diagnostic::error(what).in_file(input).into());
                }
                (Ok(kept), Some(step)) => inputs.push(kept.at(step)?.to_path_buf()),
                (Ok(kept), None) if self.metrics.is_some() || self.state.is_some() => {
                    inputs.extend(kept.batches().iter().map(|(_, path)| path.clone()));
                }
                (Ok(_), None) => inputs.push(input.clone()),
                (Err(_), _) => inputs.extend(steps(input)?),
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
        Ok(())
    }

    fn make_folder(&self, is_many: bool) -> Result<()> {
        let Some(output) = self.output.as_deref().filter(|_| is_many) else {
            return Ok(());
        };
        fs::create_dir_all(output).with_context(|| format!("{}", output.display()))
    }

    /// The output for each input: of several, one of its name in the folder.
    fn outputs(&self, inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Diagnostics> {
        let Some(folder) = self.output.as_deref() else {
            return Ok(Vec::new());
        };
        if let [_] = inputs {
            return Ok(vec![folder.to_path_buf()]);
        }
        let mut outputs: Vec<PathBuf> = Vec::new();
        for input in inputs {
            let mut name = input.file_name().unwrap_or_default().to_os_string();
            if input.is_dir() {
                name.push(".jsonl");
            }
            let output = folder.join(name);
            let (shown, help) = (output.display(), "choose another folder for the outputs");
            if inputs.iter().any(|input| holds(input, &output)) {
                let error = Diagnostic::error(format!("{shown} is an input itself"));
                return Err(error.with_help(help).into());
            }
            let mut before = outputs.iter().zip(inputs);
            if let Some((_, first)) = before.find(|(other, _)| is_same(other, &output)) {
                let (first, input) = (first.display(), input.display());
                let what = format!("{shown} would be the output of both {first} and {input}");
                let help = "apply it to each folder by itself, with an `-o` of its own, or give the files different names";
                return Err(Diagnostic::error(what).with_help(help).into());
            }
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Refuses to write two things into one file, or metrics and state over an input.
    fn check_places(&self, inputs: &[PathBuf], outputs: &[PathBuf]) -> Result<(), Diagnostics> {
        let metrics = self.metrics.as_deref().map(|path| ("--metrics", path));
        let state = self.state.as_deref().map(|path| ("--state", path));
        let refused = |flag: &str, path: &Path, what: &str| {
            let error = format!("`{flag} {}` names {what}", path.display());
            let help = "it would be overwritten: choose another name";
            Err(Diagnostic::error(error).with_help(help).into())
        };
        for (flag, path) in metrics.into_iter().chain(state) {
            if inputs.iter().any(|input| holds(input, path)) {
                return refused(flag, path, "an input");
            }
            if Path::new(&self.recipe).is_file() && is_same(Path::new(&self.recipe), path) {
                return refused(flag, path, "the recipe");
            }
            let mut files = outputs.iter().filter(|output| !is_stdout(output));
            if files.any(|output| is_same(output, path)) {
                return refused(flag, path, "the output, too");
            }
        }
        match (metrics, state) {
            (Some((flag, metrics)), Some((_, state))) if is_same(metrics, state) => {
                refused(flag, metrics, "the file of `--state`, too")
            }
            _ => Ok(()),
        }
    }

    /// Refuses a step that the state has seen.
    fn check_step(&self, input: &Path, step: u64, carried: Option<u64>) -> Result<(), Diagnostics> {
        let (Some(path), Some(next)) = (&self.state, carried.filter(|next| step < *next)) else {
            return Ok(());
        };
        let (state, last) = (path.display(), next - 1);
        let what =
            format!("this is step {step}, and the state in {state} is that after step {last}");
        let help = format!(
            "go on with the inputs from step {next}, say which step it is with `--step`, or begin again with another `--state`"
        );
        let error = Diagnostic::error(what).in_file(input);
        Err(error.with_help(help).into())
    }

    /// Keeps the state to this call, until it ends: of two that go on from one state, one would be lost.
    fn lock(&self) -> Result<Option<(Unfinished, File)>> {
        let Some(state) = &self.state else {
            return Ok(None);
        };
        // Beside the file itself: links to it have no locks of their own.
        let mut path = resolved(state).into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let mut options = File::options();
            let file = options.create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(|error| Diagnostics::from(cannot_be_written(state, &error)))?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let what = "another `apply --state` is at work on it";
                    let help = "wait until it ends, or keep another state with another name";
                    let error = Diagnostic::error(what).in_file(state).with_help(help);
                    return Err(Diagnostics::from(error).into());
                }
                // Some network drives have no locks: better no lock than no state.
                Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                    return Err(error).with_context(|| format!("{}", path.display()));
                }
                _ => {}
            }
            // Who had it before may have removed it since it was opened.
            if Handle::from_file(file.try_clone()?).ok() == Handle::from_path(&path).ok() {
                return Ok(Some((Unfinished::there(&path)?, file)));
            }
        }
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
        let text =
            regular_file::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let kept: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if kept["recipe"] != recipe.name() {
            return Err(wrong(format!("it is the state of {}", kept["recipe"])).into());
        }
        if kept["version"] != recipe.version().as_str() && !self.json {
            let note = "the state is of another version of the recipe";
            tell(&[Diagnostic::note(note).in_file(path)]);
        }
        if kept["params"].is_object() && kept["params"] != params(recipe)? && !self.json {
            let note = "the state is of the recipe with other parameters";
            tell(&[Diagnostic::note(note).in_file(path)]);
        }
        let state = State::from_json(&kept["state"]).map_err(|error| error.in_file(path));
        Ok((
            state.map_err(Diagnostics::from)?,
            kept["next_step"].as_u64(),
        ))
    }

    /// Keeps the state as it is after a step.
    fn keep(&self, recipe: &Recipe, state: &State, step: u64) -> Result<()> {
        let Some(path) = &self.state else {
            return Ok(());
        };
        let kept = json!({
            "recipe": recipe.name(),
            "version": recipe.version().as_str(),
            "params": params(recipe)?,
            "next_step": step.saturating_add(1),
            "state": state.to_json(),
        });
        Ok(Replacement::write(path, format!("{kept:#}\n").as_bytes())?)
    }

    /// The file of metrics, which goes on where the state does: rows of the recipe's steps from `next` on, which a call left that
    /// was killed before it kept the state, are done again.
    fn open_metrics(&self, recipe: &Recipe, next: Option<u64>) -> Result<Option<(File, &Path)>> {
        let Some(path) = self.metrics.as_deref() else {
            return Ok(None);
        };
        if let Some(next) = next
            && path.is_file()
        {
            let rows = regular_file::read(path).with_context(|| format!("{}", path.display()))?;
            let is_kept = |row: &&[u8]| match serde_json::from_slice::<Value>(row) {
                Ok(row) => {
                    let is_seen = row["step"].as_u64().is_none_or(|step| step < next);
                    is_seen || row["recipe"] != recipe.name()
                }
                // Its end is cut off.
                Err(_) => row.ends_with(b"\n"),
            };
            let kept = rows.split_inclusive(|&byte| byte == b'\n').filter(is_kept);
            let mut kept = kept.collect::<Vec<_>>().concat();
            if !kept.is_empty() && !kept.ends_with(b"\n") {
                kept.push(b'\n');
            }
            if kept != rows {
                Replacement::write(path, &kept)?;
                let note = format!(
                    "rows that the state has not seen are gone: it is that before step {next}"
                );
                tell(&[Diagnostic::note(note).in_file(path)]);
            }
        }
        let mut options = File::options();
        options
            .create(true)
            .write(true)
            .append(next.is_some())
            .truncate(next.is_none());
        let file = options.open(path);
        let file = file.map_err(|error| Diagnostics::from(cannot_be_written(path, &error)))?;
        Ok(Some((file, path)))
    }
}

/// The parameters of a recipe, as they read back from a file.
fn params(recipe: &Recipe) -> Result<Value> {
    let params = recipe.params().iter();
    let params = params.map(|(parameter, value)| (parameter.name.clone(), json!(value)));
    let text = Value::Object(params.collect()).to_string();
    Ok(serde_json::from_str(&text)?)
}

impl Applied {
    /// Prints a step of several in a line; what is to note of all is told with the first.
    fn tell_line(&self, step: u64, is_first: bool) -> Result<()> {
        let outcome = &self.outcome;
        let rows = Summary::of(outcome).rows();
        let advantage = rows.iter().find(|(name, _)| *name == "advantage");
        let advantage = advantage.map_or("", |(_, text)| text);
        let shape = shape_in(self.rollouts.batch.layout(), self.rollouts.unit);
        let mut line = format!("step {step:<6} {shape}   advantage {advantage}");
        for (name, x) in &outcome.metrics {
            line.push_str(&format!("   {name} {}", value(*x)));
        }
        out!("{}", laid_out("", &line, whole(&Term::stdout()).width));
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
