//! The files of `apply`: its inputs and outputs, the recipe's state, and the metrics.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{step_of, steps};
use advlab::regular_file;
use advlab::replace::{Replacement, TemporaryFile, cannot_be_written};
use advlab::script::{Recipe, State};
use advlab_train::RunFolder;
use anyhow::{Context, Result};
use same_file::Handle;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::files::{holds, is_same, is_stdout, resolved};
use super::super::streams::tell;
use super::{Apply, params};
use crate::wrong;

/// The contents of a state file: the recipe's state after a step.
#[derive(Serialize, Deserialize)]
struct SavedState {
    recipe: String,
    version: String,
    params: Value,
    next_step: u64,
    state: Value,
}

impl Apply {
    /// Returns the inputs, in the order of the numbers in their names. It is an error if one of several inputs does not exist.
    pub(super) fn steps(&self) -> Result<Vec<PathBuf>, Diagnostics> {
        let mut inputs = Vec::new();
        for input in &self.inputs {
            match (RunFolder::open(input), self.step) {
                (Ok(_), Some(_)) if self.inputs.len() > 1 => {
                    let what = "`--step` selects one batch of a run's folder, which must then be the only input";
                    return Err(Diagnostic::error(what).in_file(input).into());
                }
                (Ok(run), Some(step)) => inputs.push(run.at(step)?.to_path_buf()),
                (Ok(run), None) if self.metrics.is_some() || self.state.is_some() => {
                    inputs.extend(run.batches().iter().map(|(_, path)| path.clone()));
                }
                (Ok(_), None) => inputs.push(input.clone()),
                (Err(_), _) => inputs.extend(steps(input)?),
            }
        }
        if self.inputs.len() > 1 {
            // The files are sorted by step here, because the shell puts step_10 before step_9.
            inputs.sort_by_key(|input| step_of(input));
        }
        for input in &inputs {
            let shown = input.display().to_string();
            let is_setting = shown.contains('=');
            // If an input such as `k=8` does not exist, it is taken for a parameter without `--set`. Any other single input is
            // not checked here, because the reader gives a more detailed error.
            if let Err(error) = fs::metadata(input)
                && (is_setting || inputs.len() > 1)
            {
                let mut error = Diagnostic::error(format!("it cannot be read: {error}"));
                if is_setting {
                    error = error.with_help(format!("to set a parameter, write `--set {shown}`"));
                }
                return Err(error.in_file(input).into());
            }
        }
        Ok(inputs)
    }

    /// Returns the output for each input. Several inputs need an output folder, which is created; each output in it has the name
    /// of its input, with `.jsonl` added if the input is a folder. It is an error if two outputs (including `--state` and
    /// `--metrics`) are the same file, or if an output would overwrite an input or the script; the copy of a single input is not
    /// checked for overwriting.
    pub(super) fn outputs(&self, inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let is_single = inputs.len() == 1;
        let outputs: Vec<PathBuf> = match &self.output {
            None => Vec::new(),
            Some(output) if is_single => vec![output.clone()],
            Some(folder) if is_stdout(folder) || folder.extension().is_some() => {
                let message = format!(
                    "{}: several inputs need a folder for their outputs",
                    folder.display()
                );
                let help = "`-o FOLDER` writes one file for each input";
                return Err(wrong(message, help).into());
            }
            Some(folder) => {
                let output = |input: &PathBuf| {
                    let mut name = input.file_name().unwrap_or_default().to_os_string();
                    name.push(if input.is_dir() { ".jsonl" } else { "" });
                    folder.join(name)
                };
                inputs.iter().map(output).collect()
            }
        };
        let recipe = Path::new(&self.recipe);
        let read = inputs.iter().map(PathBuf::as_path);
        let read: Vec<&Path> = read.chain(recipe.is_file().then_some(recipe)).collect();
        let mut written: Vec<(String, &PathBuf)> = Vec::new();
        for (input, output) in inputs.iter().zip(&outputs) {
            if !is_stdout(output) {
                written.push((format!("the output of {}", input.display()), output));
            }
        }
        for (name, path) in [("`--state`", &self.state), ("`--metrics`", &self.metrics)] {
            written.extend(path.as_ref().map(|path| (name.to_string(), path)));
        }
        for (index, (what, path)) in written.iter().enumerate() {
            // `--force` decides whether the copy of a single input may replace the input; this is checked elsewhere.
            let is_for_force = is_single && outputs.contains(path);
            let over = read.iter().find(|read| !is_for_force && holds(read, path));
            let mut before = written[..index].iter();
            let message = match (over, before.find(|(_, other)| is_same(other, path))) {
                (Some(read), _) => format!("{what} would overwrite {}", read.display()),
                (_, Some((other, _))) => format!(
                    "{other} and {what} would be the same file, {}",
                    path.display()
                ),
                _ => continue,
            };
            return Err(wrong(message, "choose another name").into());
        }
        if let Some(folder) = self.output.as_ref().filter(|_| !is_single) {
            fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        }
        Ok(outputs)
    }

    /// Locks the state until the returned files are dropped, because two processes that continue from one state would overwrite
    /// each other's result.
    pub(super) fn lock(&self) -> Result<Option<(TemporaryFile, File)>, Diagnostics> {
        let Some(state) = &self.state else {
            return Ok(None);
        };
        let failed = |error| cannot_be_written(state, &error);
        // The lock is a separate file, because each step replaces the state file. Symbolic links are resolved, so that they
        // share the lock of the state file.
        let mut path = resolved(state).into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let mut options = File::options();
            // The file is not truncated, because Windows may refuse to truncate it while another process holds the lock.
            let options = options.create(true).truncate(false).write(true);
            let file = regular_file::open_as(&path, options).map_err(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let error = Diagnostic::error("another `apply --state` is using it");
                    let help = "wait until that call ends, or name another state file";
                    return Err(error.in_file(state).with_help(help).into());
                }
                // `Unsupported` is ignored, because some network drives do not support locks.
                Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                    return Err(failed(error).into());
                }
                _ => {}
            }
            // If the path now leads to another file, the lock is taken again, because the process that held the lock may have
            // removed the locked file.
            let handle = file.try_clone().and_then(Handle::from_file);
            if handle.ok() == Handle::from_path(&path).ok() {
                return Ok(Some((TemporaryFile::there(&path).map_err(failed)?, file)));
            }
        }
    }

    /// Returns the state that an earlier call saved, and the number of the next step; if there is no saved state, returns the
    /// initial state. Unless `--json` is given, a note is printed if the state is from another version or other parameters.
    pub(super) fn saved_state(&self, recipe: &Recipe) -> Result<(State, Option<u64>)> {
        let Some(path) = self.state.as_deref().filter(|path| path.exists()) else {
            return Ok((recipe.init()?, None));
        };
        let wrong = |message: String| {
            let help = "name a file that `apply --state` wrote for this recipe, or one that does not exist yet";
            Diagnostics::from(Diagnostic::error(message).in_file(path).with_help(help))
        };
        let text = regular_file::read_to_string(path);
        let text = text.with_context(|| format!("{}", path.display()))?;
        let saved: SavedState =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if saved.recipe != recipe.name() {
            return Err(wrong(format!("it is the state of {:?}", saved.recipe)).into());
        }
        // The parameters are compared as text, because a number may have another type after it has been written and read.
        let [then, now] = [&saved.params, &params(recipe)].map(Value::to_string);
        let other = match (then != now, saved.version != recipe.version().as_str()) {
            (true, _) => Some("the recipe with other parameters"),
            (_, true) => Some("another version of the recipe"),
            _ => None,
        };
        if let Some(other) = other.filter(|_| !self.json) {
            let note = format!("the state was written by {other}");
            tell(&[Diagnostic::note(note).in_file(path)]);
        }
        let state = State::from_json(&saved.state).map_err(|error| error.in_file(path));
        Ok((state.map_err(Diagnostics::from)?, Some(saved.next_step)))
    }

    /// Refuses a step whose number is below `carried` (the state's next step), because the state already includes the step.
    pub(super) fn check_step(
        &self,
        input: &Path,
        step: u64,
        carried: Option<u64>,
    ) -> Result<(), Diagnostics> {
        let (Some(path), Some(next)) = (&self.state, carried.filter(|next| step < *next)) else {
            return Ok(());
        };
        let (state, last) = (path.display(), next - 1);
        let message =
            format!("this is step {step}, but the state in {state} already includes step {last}");
        let help = format!(
            "continue with step {next}, correct the number with `--step`, or begin with another `--state`"
        );
        let error = Diagnostic::error(message).in_file(input);
        Err(error.with_help(help).into())
    }

    /// Saves the state after a step, once the step's `output` and the step's row of metrics are on the disk.
    pub(super) fn save_state(
        &self,
        recipe: &Recipe,
        state: &State,
        step: u64,
        output: Option<&PathBuf>,
    ) -> Result<()> {
        let Some(path) = &self.state else {
            return Ok(());
        };
        // The folders of output and metrics are synced before the state is written, so that after a power failure the state does
        // not include a step whose output or metrics are missing.
        for named in [output, self.metrics.as_ref()].into_iter().flatten() {
            let folder = resolved(named).parent().map(File::open);
            // The error is ignored, because some systems cannot sync a folder.
            let _ = folder.map(|folder| folder.and_then(|folder| folder.sync_all()));
        }
        let saved = serde_json::to_string_pretty(&SavedState {
            recipe: recipe.name().to_string(),
            version: recipe.version().as_str().to_string(),
            params: params(recipe),
            next_step: step.saturating_add(1),
            state: state.to_json(),
        })?;
        Ok(Replacement::write(path, format!("{saved}\n").as_bytes())?)
    }

    /// Opens the metrics file. If the state continues at the step `next`, the recipe's rows from that step on are removed,
    /// because an earlier call wrote them and was killed before it saved the state; without a `next`, all rows are removed.
    pub(super) fn open_metrics(
        &self,
        recipe: &Recipe,
        next: Option<u64>,
    ) -> Result<Option<(File, &Path)>> {
        let Some(path) = self.metrics.as_deref() else {
            return Ok(None);
        };
        if let Some(next) = next.filter(|_| path.is_file()) {
            let rows = regular_file::read(path).with_context(|| format!("{}", path.display()))?;
            let is_kept = |row: &&[u8]| match serde_json::from_slice::<Value>(row) {
                Ok(row) => {
                    let is_seen = row["step"].as_u64().is_none_or(|step| step < next);
                    is_seen || row["recipe"] != recipe.name()
                }
                // A row that cannot be read and has no newline was cut off when the process was killed; it is removed.
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
                    "this recipe's rows from step {next} on are removed, because the state does not include these steps"
                );
                tell(&[Diagnostic::note(note).in_file(path)]);
            }
        }
        let mut options = File::options();
        let options = options.create(true).write(true).append(next.is_some());
        let file = options.truncate(next.is_none()).open(path);
        let file = file.map_err(|error| Diagnostics::from(cannot_be_written(path, &error)))?;
        Ok(Some((file, path)))
    }
}
