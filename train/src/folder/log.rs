//! The log of a run: `reloads.jsonl`, a typed line for each thing that happened to its versions; and files of JSON lines.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{KeptVersion, RELOADS, RunFolder};
use crate::error::{io, no_run};
use crate::policy::Platform;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;
use advlab::script::Host;

/// A line of `reloads.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// The step at which it happened: the first one with a new version, or the one that failed.
    #[serde(default)]
    pub step: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: LogEvent,
}

/// What a line of `reloads.jsonl` tells. A version is all 64 digits of its hash.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum LogEvent {
    /// The versions that the run began with, and what its policy's numbers depend on.
    Start {
        #[serde(flatten)]
        recipe: KeptVersion,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_script: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_version: Option<String>,
        #[serde(default, skip_serializing_if = "Platform::is_empty")]
        platform: Platform,
    },
    /// The run was resumed.
    Resume { platform: Platform },
    /// Another version is used from this step on.
    Use {
        #[serde(flatten)]
        recipe: KeptVersion,
        #[serde(default)]
        from: String,
        #[serde(default)]
        lines_added: usize,
        #[serde(default)]
        lines_removed: usize,
        #[serde(default)]
        checked_in_ms: f64,
        #[serde(default)]
        ready_after_ms: f64,
    },
    /// A version failed at this step, or its `migrate` did (`hook`), and another one (`back_to`) did the step, if there was one.
    Failed {
        #[serde(default)]
        hook: String,
        #[serde(flatten)]
        recipe: KeptVersion,
        error: String,
        back_to: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch_not_kept: Option<String>,
    },
    /// A saved version did not pass its checks.
    Rejected {
        version: String,
        error: String,
        #[serde(default)]
        still_using: String,
    },
    /// The recipe's file is gone.
    Missing { why: String },
    /// The file holds the version in use again.
    Reverted { version: String },
    /// Warnings of the checks about a version that passed.
    Warned {
        version: String,
        warnings: Vec<String>,
    },
    /// The file is polled, as the system tells no changes.
    Polling { why: String },
    /// A kernel answers a hook from here on, or gave other bits than its script.
    Native {
        version: String,
        hook: String,
        agrees: bool,
        script_ms: f64,
        native_ms: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch_not_kept: Option<String>,
    },
    /// A warning about the run's numbers or its folder.
    Warning { message: String },
    /// A line that another program wrote.
    #[serde(other)]
    Other,
}

/// All lines of a run's log.
#[derive(Clone, Debug, Default)]
pub struct RunLog(pub Vec<LogLine>);

impl LogEvent {
    /// The version that this event is about and that the folder has kept.
    fn recipe(&self) -> Option<&KeptVersion> {
        match self {
            LogEvent::Start { recipe, .. }
            | LogEvent::Use { recipe, .. }
            | LogEvent::Failed { recipe, .. } => Some(recipe),
            _ => None,
        }
    }
}

impl RunLog {
    /// The versions that the run used, each with its first step: one that failed at a step gave way to that of an earlier one.
    pub fn versions(&self) -> Vec<(u64, &str)> {
        let mut used: Vec<(u64, &str)> = Vec::new();
        for LogLine { step, event } in &self.0 {
            let version = match event {
                LogEvent::Start { recipe, .. } | LogEvent::Use { recipe, .. } => &recipe.version,
                LogEvent::Failed {
                    back_to: Some(version),
                    ..
                } => version,
                _ => continue,
            };
            // A version that failed in its first step has done none.
            used.pop_if(|last| last.0 == *step);
            if used.last().is_none_or(|last| last.1 != version) {
                used.push((*step, version));
            }
        }
        used
    }

    /// The recipe and the loss that the run began with; no loss in the folder of a trainer's run, whose loss is the trainer's.
    ///
    /// # Errors
    /// [`Diagnostics`] if the log does not say: the run was killed before it wrote the line.
    pub(crate) fn start(
        &self,
        folder: &Path,
    ) -> Result<(KeptVersion, Option<KeptVersion>), Diagnostics> {
        match self.0.first().map(|line| &line.event) {
            Some(LogEvent::Start {
                recipe,
                loss_script,
                loss_version,
                ..
            }) => {
                let loss = loss_script.clone().zip(loss_version.clone());
                let loss = loss.map(|(script, version)| KeptVersion { script, version });
                Ok((recipe.clone(), loss))
            }
            _ => {
                let missing = "line in reloads.jsonl with the versions that it began with";
                Err(no_run(folder, missing))
            }
        }
    }

    /// The version of the loss recipe.
    pub fn loss_version(&self) -> Option<&str> {
        match &self.0.first()?.event {
            LogEvent::Start { loss_version, .. } => loss_version.as_deref(),
            _ => None,
        }
    }

    /// A version that was kept and whose hash begins with `version`.
    pub(crate) fn kept(&self, version: &str) -> Option<&KeptVersion> {
        let mut kept = self.0.iter().filter_map(|line| line.event.recipe());
        kept.find(|kept| kept.version.starts_with(version))
    }

    /// The versions that later steps than the first began with, or tried to begin with if `migrate` failed.
    pub(crate) fn switches(&self) -> impl Iterator<Item = (u64, &KeptVersion)> {
        let is_switch = |line: &&LogLine| match &line.event {
            LogEvent::Use { .. } => true,
            LogEvent::Failed { hook, .. } => hook == MIGRATE,
            _ => false,
        };
        let switches = self.0.iter().filter(is_switch);
        switches.filter_map(|line| Some((line.step, line.event.recipe()?)))
    }

    /// Leaves those hooks to their scripts whose kernels gave other bits in this run.
    pub(crate) fn refuse_kernels(&self, host: &Host) {
        for line in &self.0 {
            if let LogEvent::Native {
                version,
                hook,
                agrees: false,
                ..
            } = &line.event
            {
                host.refuse_kernel(version, hook);
            }
        }
    }

    /// How the platform differs from the one that the run was recorded on, if it does.
    pub(crate) fn other_platform(&self, now: &Platform) -> Option<String> {
        let mut changed = self.0.iter().filter_map(|line| match &line.event {
            LogEvent::Start { platform, .. } | LogEvent::Resume { platform } => {
                let changes = platform.iter().filter_map(|(name, recorded)| {
                    let now = now.get(name).map_or("nothing", |now| now);
                    (recorded != now).then(|| format!("{name} {recorded}, and now {now}"))
                });
                Some(changes.collect::<Vec<_>>()).filter(|changes| !changes.is_empty())
            }
            _ => None,
        });
        let changed = changed.next()?.join("; ");
        Some(format!(
            "the run was recorded with {changed}: numbers of its policy may differ in their last digits"
        ))
    }

    /// The versions that were rejected or failed before a step: a run that was never stopped would not try them again.
    pub(crate) fn rejected_before(&self, step: u64) -> Vec<String> {
        let mut rejected: Vec<String> = Vec::new();
        for line in self.0.iter().filter(|line| line.step < step) {
            match &line.event {
                LogEvent::Rejected { version, .. } => rejected.push(version.clone()),
                LogEvent::Failed { recipe, .. } => rejected.push(recipe.version.clone()),
                // It was saved again, and passed.
                LogEvent::Use { recipe, .. } => rejected.retain(|old| *old != recipe.version),
                _ => {}
            }
        }
        rejected
    }
}

/// The hook of a line [`LogEvent::Failed`]: a step, or taking over the state before it.
pub(super) const STEP: &str = "step";
pub(super) const MIGRATE: &str = "migrate";

/// A file of JSON lines that only grows, and survives being cut anywhere.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// The bytes of whole lines.
    length: u64,
}

impl Journal {
    /// Opens a journal, or makes it, and cuts it before the first line that `keep` refuses.
    pub(crate) fn open(path: &Path, keep: impl Fn(&Value) -> bool) -> Result<Journal, Diagnostics> {
        let kept = lines(path)?.into_iter().take_while(|(_, line)| keep(line));
        let length = kept.last().map_or(0, |(end, _)| end);
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io("write", path))?;
        file.set_len(length).map_err(io("write", path))?;
        Ok(Journal {
            path: path.to_path_buf(),
            file,
            length,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn append(&mut self, line: &impl Serialize) -> Result<(), Diagnostics> {
        let text =
            serde_json::to_string(line).map_err(|error| io("write", &self.path)(error.into()))?;
        let text = text + "\n";
        // In one piece: a process that is killed leaves all of it or nothing, except on a disk that fills up.
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Readers skip what is left of the line in any case.
            let _ = self.file.set_len(self.length);
            return Err(io("write", &self.path)(error));
        }
        self.length += text.len() as u64;
        Ok(())
    }

    /// After this, what was written survives a crash of the machine.
    pub(crate) fn sync(&self) -> Result<(), Diagnostics> {
        self.file.sync_data().map_err(io("write", &self.path))
    }
}

/// The lines of a journal; none if there is no file. A torn last line does not count.
///
/// # Errors
/// [`Diagnostics`] if the file cannot be read, or another line is not JSON, with its number.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, Diagnostics> {
    Ok(lines(path)?.into_iter().map(|(_, line)| line).collect())
}

/// The lines, each with the byte at which it ends.
fn lines(path: &Path) -> Result<Vec<(u64, Value)>, Diagnostics> {
    let mut end = 0;
    let mut lines = Vec::new();
    for (number, line) in whole_lines(&bytes(path)?).enumerate() {
        end += line.len() as u64;
        match serde_json::from_slice(line) {
            Ok(value) => lines.push((end, value)),
            Err(_) => {
                let problem = Diagnostic::error("the line is damaged: it is not JSON");
                let problem = problem.in_file(path).on_line(number + 1);
                return Err(problem.with_help(help(path)).into());
            }
        }
    }
    Ok(lines)
}

/// What to do about a damaged line.
fn help(path: &Path) -> &'static str {
    let config = path.parent().map(|run| RunFolder::read(run).config());
    let is_recorded = config.is_some_and(|config| config.is_ok_and(|config| config.is_recorded()));
    if path.ends_with(RELOADS) {
        "repair it, or remove it by hand: the versions are in `scripts/`, and each row of `metrics.jsonl` names its own"
    } else if is_recorded {
        "repair it, or remove it by hand"
    } else {
        "repair it, or `advlab train --resume RUN --force` moves such lines to a file beside it and goes on"
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    match advlab::regular_file::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(io("read", path)),
    }
}

/// The lines without the last one if a crash has cut it short.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines.filter(|line| line.ends_with(b"\n"))
}

/// Moves the lines that are not JSON to the end of a file beside the journal, `metrics.damaged`; gives that file and the number
/// of these lines, if there are any.
pub(crate) fn set_damaged_aside(path: &Path) -> Result<Option<(PathBuf, usize)>, Diagnostics> {
    let bytes = bytes(path)?;
    let is_json = |line: &&[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let (good, bad): (Vec<&[u8]>, Vec<&[u8]>) = whole_lines(&bytes).partition(is_json);
    if bad.is_empty() {
        return Ok(None);
    }
    let aside = path.with_extension("damaged");
    let file = File::options().create(true).append(true).open(&aside);
    let written = file.and_then(|mut file| {
        file.write_all(&bad.concat())?;
        file.sync_all()
    });
    written.map_err(io("write", &aside))?;
    Replacement::write(path, &good.concat())?;
    Ok(Some((aside, bad.len())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use serde_json::json;

    #[test]
    fn a_journal_cut_anywhere_has_its_whole_lines_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, |_| true).unwrap();
        for step in 0..3 {
            journal.append(&json!({ "step": step })).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let lines = whole[..length]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            assert_eq!(read(&path).unwrap().len(), lines);
            let mut journal = Journal::open(&path, |line| line["step"] != 2).unwrap();
            journal.append(&json!({ "step": 7 })).unwrap();
            let steps: Vec<u64> = read(&path)
                .unwrap()
                .iter()
                .filter_map(|line| line["step"].as_u64())
                .collect();
            assert_eq!(steps[..steps.len() - 1], [0, 1][..lines.min(2)]);
            assert_eq!(steps.last(), Some(&7));
        }
    }

    #[test]
    fn a_damaged_line_is_told_and_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text = "{\"step\":0}\n{\"st\u{0}p\":1}\n{\"step\":2}\n{\"ste";
        fs::write(&path, text).unwrap();
        for error in [
            read(&path).unwrap_err(),
            Journal::open(&path, |_| false).unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("metrics.jsonl, line 2: "),
                "{error}"
            );
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let aside = folder.path().join("metrics.damaged");
        assert_eq!(set_damaged_aside(&path).unwrap(), Some((aside.clone(), 1)));
        assert_eq!(fs::read_to_string(&aside).unwrap(), "{\"st\u{0}p\":1}\n");
        let steps = read(&path).unwrap();
        assert_eq!(steps, [json!({ "step": 0 }), json!({ "step": 2 })]);
        assert_eq!(set_damaged_aside(&path).unwrap(), None);
    }

    #[test]
    fn a_journal_that_is_not_there_is_empty() {
        assert!(read(Path::new("/nowhere/journal")).unwrap().is_empty());
    }

    /// Each kind of line as earlier runs have it: it reads as what it says, and is written as it was.
    #[test]
    fn the_lines_of_a_log_keep_their_form() {
        for (line, is_known) in [
            (
                r#"{"step":0,"event":"start","script":"scripts/a/m.rhai","version":"a","loss_script":"scripts/b/l.rhai","loss_version":"b","platform":{"threads":"2"}}"#,
                true,
            ),
            (
                r#"{"step":0,"event":"start","script":"scripts/a/m.rhai","version":"a"}"#,
                true,
            ),
            (
                r#"{"step":5,"event":"resume","platform":{"threads":"2"}}"#,
                true,
            ),
            (
                r#"{"step":4,"event":"use","script":"s","version":"b","from":"a","lines_added":1,"lines_removed":2,"checked_in_ms":0.5,"ready_after_ms":1.5}"#,
                true,
            ),
            (
                r#"{"step":4,"event":"failed","hook":"step","script":"s","version":"b","error":"e","back_to":null,"batch":"batches/failed-000004-b.safetensors"}"#,
                true,
            ),
            (
                r#"{"step":4,"event":"failed","hook":"migrate","script":"s","version":"b","error":"e","back_to":"a"}"#,
                true,
            ),
            (
                r#"{"step":4,"event":"rejected","version":"b","error":"e","still_using":"a"}"#,
                true,
            ),
            (r#"{"step":4,"event":"missing","why":"w"}"#, true),
            (r#"{"step":4,"event":"reverted","version":"b"}"#, true),
            (
                r#"{"step":4,"event":"warned","version":"b","warnings":["w"]}"#,
                true,
            ),
            (r#"{"step":4,"event":"polling","why":"w"}"#, true),
            (
                r#"{"step":4,"event":"native","version":"b","hook":"loss","agrees":false,"script_ms":1.0,"native_ms":0.25,"batch_not_kept":"e"}"#,
                true,
            ),
            (r#"{"step":4,"event":"warning","message":"m"}"#, true),
            (r#"{"step":4,"event":"moved"}"#, false),
        ] {
            let read: LogLine = serde_json::from_str(line).unwrap();
            assert_eq!(read.event != LogEvent::Other, is_known, "{line}");
            if is_known {
                assert_eq!(serde_json::to_string(&read).unwrap(), line);
            }
        }
    }

    fn line(step: u64, event: &str, version: &str, back_to: Option<&str>) -> LogLine {
        let line = json!({
            "step": step, "event": event, "version": version, "back_to": back_to,
            "error": "", "hook": "step", "script": "", "from": "", "lines_added": 0, "lines_removed": 0,
        });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn a_rejected_version_is_one_no_more_once_it_is_used() {
        let log = RunLog(vec![
            line(2, "rejected", "a", None),
            line(3, "failed", "b", None),
            line(5, "use", "a", None),
            line(7, "failed", "a", None),
        ]);
        for (step, expected) in [
            (3, &["a"][..]),
            (5, &["a", "b"]),
            (6, &["b"]),
            (8, &["b", "a"]),
        ] {
            assert_eq!(log.rejected_before(step), expected, "{step}");
        }
    }

    #[test]
    fn the_versions_in_use_are_those_that_failures_go_back_to() {
        let ab = [(0, "a"), (4, "b")];
        let aba = [ab[0], ab[1], (9, "a")];
        let abac = [ab[0], ab[1], (9, "a"), (12, "c")];
        let mut log = RunLog::default();
        for (step, event, version, back_to, expected) in [
            (0, "start", "a", None, &ab[..1]),
            (4, "use", "b", None, &ab),
            (6, "rejected", "c", None, &ab),
            // `migrate` failed, and nothing changed.
            (7, "failed", "c", Some("b"), &ab),
            (9, "failed", "b", Some("a"), &aba),
            (12, "use", "c", None, &abac),
            // It did not do one step.
            (12, "failed", "c", Some("a"), &aba),
            (15, "failed", "a", None, &aba),
        ] {
            log.0.push(line(step, event, version, back_to));
            assert_eq!(log.versions(), expected, "{log:?}");
        }
    }
}
