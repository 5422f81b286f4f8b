//! Each version of a recipe that a run used, with all that it imports, so that it can be loaded again; and when it was.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{BATCHES, PART, RELOADS, STATES, journal, make_folder, read_config, sync_folder};
use crate::config::{Config, settings};
use crate::error::{damaged, io, no_run};
use crate::policy::Platform;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::{Builtin, Hook, Host, Recipe, State};

/// A version that was kept in `scripts/`, a folder for each version, named by it: its script's path in the run's
/// folder, and its hash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptVersion {
    pub(crate) script: String,
    pub(crate) version: String,
}

pub(super) const SCRIPTS: &str = "scripts";

/// How many steps are named where there is no batch of the one that was asked for.
const NEAREST: usize = 12;

impl KeptVersion {
    /// Keeps a version in a run's folder, unless it is kept already.
    pub(super) fn keep(run: &Path, recipe: &Recipe) -> Result<KeptVersion, Diagnostics> {
        let version = recipe.version().as_str();
        let kept = KeptVersion {
            script: format!("{SCRIPTS}/{version}/{}", file_name(recipe.name())),
            version: version.to_string(),
        };
        let folder = kept.folder(run);
        // A machine that stopped may have left the folder with files that were never written out.
        let mut sources = recipe.sources();
        let is_kept = |(source, text): (&str, &str)| {
            advlab::regular_file::read(&folder.join(file_name(source)))
                .is_ok_and(|kept| kept == text.as_bytes())
        };
        if sources.all(is_kept) {
            return Ok(kept);
        }
        // Written beside and renamed: a version's folder has all of it or is not there.
        let part = run
            .join(SCRIPTS)
            .join(format!("{}{version}{}", PART.0, PART.1));
        for old in [&part, &folder] {
            if old.exists() {
                fs::remove_dir_all(old).map_err(io("remove", old))?;
            }
        }
        make_folder(&part)?;
        for (source, text) in recipe.sources() {
            let path = part.join(file_name(source));
            fs::write(&path, text).map_err(io("write", &path))?;
        }
        fs::rename(&part, &folder).map_err(io("write", &folder))?;
        Ok(kept)
    }

    /// After this, the version survives a crash of the machine.
    pub(super) fn sync(&self, run: &Path) -> Result<(), Diagnostics> {
        let folder = self.folder(run);
        let entries = fs::read_dir(&folder).map_err(io("read", &folder))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let synced = fs::File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(io("write", &path))?;
        }
        sync_folder(&folder)?;
        sync_folder(&run.join(SCRIPTS))
    }

    fn folder(&self, run: &Path) -> PathBuf {
        run.join(SCRIPTS).join(&self.version)
    }

    /// Loads the version under the name that it had: a built-in's, or that of its file.
    pub(crate) fn load(&self, run: &Path, host: &Host) -> Result<Recipe, Diagnostics> {
        let path = run.join(&self.script);
        let is_this = |recipe: &Recipe| recipe.version().as_str() == self.version;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy());
        if let Some(builtin) = stem.and_then(|stem| Builtin::find(&stem)) {
            let recipe = host.load(builtin.name)?;
            if is_this(&recipe) {
                return Ok(recipe);
            }
        }
        let text = advlab::regular_file::read_to_string(&path).map_err(io("read", &path))?;
        let name = path.file_name().map(|name| name.to_string_lossy());
        let folder = path.parent().unwrap_or(run);
        let recipe = host.compile_beside(&name.unwrap_or_default(), &text, folder)?;
        if is_this(&recipe) {
            return Ok(recipe);
        }
        let now = recipe.version().short();
        let kept: String = self.version.chars().take(6).collect();
        let what = format!(
            "it is version {now} now, and was kept as {kept}: has it been edited? It is a record of the run"
        );
        Err(damaged(&path, what))
    }
}

/// The name of a file that holds the script: a built-in's gets its ending. A script without one may import one of its name.
fn file_name(source: &str) -> String {
    let name = Path::new(source).file_name();
    let name = name.map_or(source.into(), |name| name.to_string_lossy());
    match Builtin::find(source) {
        Some(builtin) => format!("{}.rhai", builtin.name),
        None => name.into_owned(),
    }
}

/// The configuration of a run and the lines of its `reloads.jsonl`.
pub(crate) struct History {
    pub(crate) config: Config,
    pub(crate) folder: PathBuf,
    /// The versions that the run began with.
    pub(crate) recipe: KeptVersion,
    /// None in the folder of a trainer's run, whose loss is the trainer's.
    loss: Option<KeptVersion>,
    reloads: Vec<Value>,
}

impl History {
    pub(crate) fn read(folder: &Path) -> Result<History, Diagnostics> {
        let config = read_config(folder)?;
        let reloads = journal::read(&folder.join(RELOADS))?;
        let first = reloads.first().filter(|line| line["event"] == "start");
        let start = |prefix| kept(first?, prefix);
        let Some(recipe) = start("") else {
            // It was killed before it wrote the line.
            let missing = "line in reloads.jsonl with the versions that it began with";
            return Err(no_run(folder, missing));
        };
        Ok(History {
            config,
            folder: folder.to_path_buf(),
            recipe,
            loss: start("loss_"),
            reloads,
        })
    }

    /// The run's loss recipe; the default one for a trainer's run.
    pub fn loss(&self, host: &Host) -> Result<Recipe, Diagnostics> {
        let loss = match &self.loss {
            Some(kept) => kept.load(&self.folder, host)?,
            None => host.load(&self.config.loss_recipe)?,
        };
        self.config.set_loss(loss)
    }

    /// As [`in_use`].
    pub(crate) fn in_use(&self) -> Vec<(u64, &str)> {
        in_use(&self.reloads)
    }

    /// A version that the folder has kept, whose name begins so.
    fn named(&self, version: &str) -> Option<KeptVersion> {
        let mut all = self.reloads.iter().filter_map(|line| kept(line, ""));
        all.find(|kept| kept.version.starts_with(version))
    }

    /// The versions that steps after the first one began with, or tried to: those whose `migrate` failed.
    pub(crate) fn switches(&self) -> impl Iterator<Item = (u64, KeptVersion)> {
        let is_switch = |line: &&Value| line["event"] == "use" || line["hook"] == "migrate";
        let version = |line: &Value| Some((line["step"].as_u64()?, kept(line, "")?));
        self.reloads.iter().filter(is_switch).filter_map(version)
    }

    /// Leaves the hooks to their scripts whose kernels gave other bits in this run.
    pub(crate) fn refuse_kernels(&self, host: &Host) {
        let disagreed = |line: &&Value| line["event"] == "native" && line["agrees"] == false;
        for line in self.reloads.iter().filter(disagreed) {
            if let (Some(version), Some(hook)) = (line["version"].as_str(), line["hook"].as_str()) {
                host.refuse_kernel(version, hook);
            }
        }
    }

    /// How the platform is not the one that the run was recorded on, where it matters and is so.
    pub(crate) fn other_platform(&self, now: &Platform) -> Option<String> {
        let lines = self.reloads.iter();
        let mut changed = lines.map(|line| changes(line, now));
        let changed = changed.find(|changed| !changed.is_empty())?.join("; ");
        Some(format!(
            "the run was recorded with {changed}: numbers of its policy may be others in their last digits"
        ))
    }

    /// The versions that were rejected or failed before a step: a run that was never stopped would not try them again.
    pub(crate) fn rejected_before(&self, step: u64) -> Vec<String> {
        let is_before = |line: &&Value| line["step"].as_u64().is_some_and(|own| own < step);
        let mut rejected = Vec::new();
        for line in self.reloads.iter().filter(is_before) {
            match (line["event"].as_str(), line["version"].as_str()) {
                (Some("rejected" | "failed"), Some(version)) => rejected.push(version.to_string()),
                // It was saved again, and passed.
                (Some("use"), Some(version)) => rejected.retain(|old| old != version),
                _ => {}
            }
        }
        rejected
    }
}

/// How a platform is not the one that a line of `reloads.jsonl` states.
fn changes(line: &Value, now: &Platform) -> Vec<String> {
    let recorded = line["platform"].as_object().into_iter().flatten();
    let changed = recorded.filter_map(|(name, recorded)| {
        let (recorded, now) = (
            recorded.as_str()?,
            now.get(name).map_or("nothing", |now| now),
        );
        (recorded != now).then(|| format!("{name} {recorded}, and now {now}"))
    });
    changed.collect()
}

/// The versions that a run used, each with its first step, as the lines of its `reloads.jsonl` tell it: one that failed
/// at a step gave way to that of an earlier one.
pub(crate) fn in_use(reloads: &[Value]) -> Vec<(u64, &str)> {
    let mut used: Vec<(u64, &str)> = Vec::new();
    for line in reloads {
        let key = match line["event"].as_str() {
            Some("start" | "use") => "version",
            Some("failed") => "back_to",
            _ => continue,
        };
        let Some((step, version)) = line["step"].as_u64().zip(line[key].as_str()) else {
            continue;
        };
        // What failed in its first step has done none.
        used.pop_if(|last| last.0 == step);
        if used.last().is_none_or(|last| last.1 != version) {
            used.push((step, version));
        }
    }
    used
}

/// The version that a line names, whose keys begin with `prefix`.
fn kept(line: &Value, prefix: &str) -> Option<KeptVersion> {
    let field = |key| Some(line.get(format!("{prefix}{key}"))?.as_str()?.to_string());
    Some(KeptVersion {
        script: field("script")?,
        version: field("version")?,
    })
}

/// The folder of a run, for reading; the run may be going on.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    batches: Vec<(u64, PathBuf)>,
}

impl Kept {
    /// Looks into a folder.
    ///
    /// # Errors
    /// [`Diagnostics`] where it holds no batches of a run.
    pub fn open(folder: &Path) -> Result<Kept, Diagnostics> {
        let batches = BATCHES.all(folder).unwrap_or_default();
        if batches.is_empty() {
            let folder = folder.display();
            let problem =
                Diagnostic::error(format!("{folder} is a folder without batches of a run"));
            let help =
                "a run keeps them as batches/step-*.safetensors, unless its `batch_every` is 0";
            return Err(problem.with_help(help).into());
        }
        Ok(Kept {
            folder: folder.to_path_buf(),
            batches,
        })
    }

    /// The run that a path is of: its folder, or one of its batches.
    pub fn of(path: &Path) -> Option<Kept> {
        let batches = path
            .parent()
            .filter(|above| above.ends_with(BATCHES.folder));
        let folder = batches
            .filter(|_| path.is_file())
            .map_or(Some(path), Path::parent);
        Kept::open(folder?).ok()
    }

    /// The run's seed, from which `batch.random` drew, where its configuration can be read.
    pub fn seed(&self) -> Option<u64> {
        Some(read_config(&self.folder).ok()?.seed)
    }

    /// What is to be known of a recipe that keeps a state, and is tried on a batch by itself.
    pub fn state_note(recipe: &Recipe) -> Option<String> {
        let note = "the recipe keeps a state, and has it here as before its first step";
        recipe.has(Hook::Init).then(|| note.to_string())
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The batches by their steps, in order: one at least. Those on which a version failed are not among them.
    pub fn batches(&self) -> &[(u64, PathBuf)] {
        &self.batches
    }

    /// The last batch and its step.
    pub fn last(&self) -> (u64, &Path) {
        match self.batches.last() {
            Some((step, path)) => (*step, path),
            None => unreachable!("a folder without batches is not opened"),
        }
    }

    /// The batch of a step.
    ///
    /// # Errors
    /// Which batches are nearest, where the run has kept none of that step.
    pub fn at(&self, step: u64) -> Result<&Path, Diagnostics> {
        if let Some((_, path)) = self.batches.iter().find(|(own, _)| *own == step) {
            return Ok(path);
        }
        let mut steps: Vec<u64> = self.batches.iter().map(|(own, _)| *own).collect();
        steps.sort_by_key(|own| own.abs_diff(step));
        steps.truncate(NEAREST);
        steps.sort_unstable();
        let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
        let help = format!("the nearest are those of {}", steps.join(", "));
        let what = format!("the run has kept no batch of step {step}");
        Err(Diagnostic::error(what).with_help(help).into())
    }

    /// The version of the recipe that a step used, with the run's settings.
    ///
    /// # Errors
    /// [`Diagnostics`] where the folder does not say it, or the script that was kept is missing or has been edited.
    pub fn recipe_at(&self, host: &Host, step: u64) -> Result<Recipe, Diagnostics> {
        let history = History::read(&self.folder)?;
        let used = history.in_use();
        let used = used.iter().rev().find(|(first, _)| *first <= step);
        let kept = used.and_then(|(_, version)| history.named(version));
        load_set(&history, host, kept.as_ref().unwrap_or(&history.recipe))
    }

    /// The state that a step began with; `None` where the folder has not kept it, as only a trainer's does.
    ///
    /// # Errors
    /// [`Diagnostics`] where it cannot be read.
    pub fn state_at(&self, step: u64) -> Result<Option<State>, Diagnostics> {
        let path = STATES.path(&self.folder, step);
        let text = match advlab::regular_file::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("read", &path)(error)),
        };
        let state =
            serde_json::from_slice(&text).map_err(|error| damaged(&path, error.to_string()))?;
        Ok(Some(State::from_json(&state)?))
    }

    /// The run's loss recipe, with its settings: what versions without a loss are followed by.
    ///
    /// # Errors
    /// As [`Kept::recipe_at`].
    pub fn loss(&self, host: &Host) -> Result<Recipe, Diagnostics> {
        History::read(&self.folder)?.loss(host)
    }

    /// The version whose name begins so, with the run's settings; `None` where the run has kept no such version.
    ///
    /// # Errors
    /// As [`Kept::recipe_at`].
    pub fn recipe_named(&self, host: &Host, version: &str) -> Result<Option<Recipe>, Diagnostics> {
        let history = History::read(&self.folder)?;
        let named = history.named(version);
        named
            .map(|kept| load_set(&history, host, &kept))
            .transpose()
    }
}

fn load_set(history: &History, host: &Host, kept: &KeptVersion) -> Result<Recipe, Diagnostics> {
    let mut recipe = kept.load(&history.folder, host)?;
    for (name, text) in settings(&history.config.params) {
        // A version that has not the parameter, or has it otherwise, ran without the setting.
        let _ = recipe.set_text(&name, &text);
    }
    Ok(recipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rejected_version_is_one_no_more_once_it_is_used() {
        let kept = KeptVersion {
            script: String::new(),
            version: String::new(),
        };
        let line = |step: u64, event: &str, version: &str| json!({ "step": step, "event": event, "version": version });
        let history = History {
            config: Config::default(),
            folder: PathBuf::new(),
            recipe: kept.clone(),
            loss: Some(kept),
            reloads: vec![
                line(2, "rejected", "a"),
                line(3, "failed", "b"),
                line(5, "use", "a"),
                line(7, "failed", "a"),
            ],
        };
        for (step, expected) in [
            (3, &["a"][..]),
            (5, &["a", "b"]),
            (6, &["b"]),
            (8, &["b", "a"]),
        ] {
            assert_eq!(history.rejected_before(step), expected, "{step}");
        }
    }

    #[test]
    fn the_versions_in_use_are_those_that_failures_go_back_to() {
        let mut lines = Vec::new();
        let mut expect = |line: Value, expected: &[(u64, &str)]| {
            lines.push(line);
            assert_eq!(in_use(&lines), expected, "{lines:?}");
        };
        let [a, b, c] = ["a", "b", "c"].map(str::to_string);
        expect(
            json!({ "step": 0, "event": "start", "version": a }),
            &[(0, &a)],
        );
        let ab = [(0, &*a), (4, &*b)];
        expect(json!({ "step": 4, "event": "use", "version": b }), &ab);
        expect(json!({ "step": 6, "event": "rejected", "version": c }), &ab);
        // `migrate` failed, and nothing changed.
        expect(
            json!({ "step": 7, "event": "failed", "version": c, "back_to": b }),
            &ab,
        );
        let aba = [ab[0], ab[1], (9, &a)];
        expect(
            json!({ "step": 9, "event": "failed", "version": b, "back_to": a }),
            &aba,
        );
        expect(
            json!({ "step": 12, "event": "use", "version": c }),
            &[ab[0], ab[1], (9, &a), (12, &c)],
        );
        // It did not do one step.
        expect(
            json!({ "step": 12, "event": "failed", "version": c, "back_to": a }),
            &aba,
        );
        expect(
            json!({ "step": 15, "event": "failed", "version": a, "back_to": null }),
            &aba,
        );
    }
}
