//! The log of a run, `reloads.jsonl`: the versions that the run used, the rejected saves, the failures, the warnings, and the
//! platform.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{FAILED, RELOADS, SCRIPTS, write_folder};
use crate::error::{Result, damaged, io, no_run};
use crate::policy::Platform;
use advlab::batch::Batch;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::live::{Failed, LiveEvent, LiveRecipe, Published};
use advlab::replace::Replacement;
use advlab::script::{Builtin, Host, Recipe};

/// A line of `reloads.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogLine {
    /// The step of the event, such as the first step with a new version, or the step at which a version failed.
    pub step: u64,
    /// The event.
    #[serde(flatten)]
    pub event: LogEvent,
}

/// A new line of the log, and the text that the user sees.
#[derive(Clone, Debug)]
pub struct Notice {
    pub line: LogLine,
    pub text: String,
    /// The errors or warnings that the line reports, with their positions in the script.
    pub problems: Vec<Diagnostic>,
}

/// The event in a line of `reloads.jsonl`. A version is given by all 64 digits of its hash.
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum LogEvent {
    /// The versions at the start of the run, and the platform on which the policy's numbers depend.
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
        /// The file names of edited imports.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        imports: Vec<String>,
        /// The version's effect on the last batch, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        effect: Vec<String>,
    },
    /// A version failed at this step (`hook` is "step"), or its `migrate` failed before the step (`hook` is "migrate"). The
    /// version `back_to`, if any, was tried instead.
    Failed {
        #[serde(default)]
        hook: String,
        #[serde(flatten)]
        recipe: KeptVersion,
        error: String,
        back_to: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch: Option<String>,
    },
    /// A saved version failed its checks.
    Rejected {
        version: String,
        error: String,
        #[serde(default)]
        still_using: String,
    },
    /// The recipe's file contains the version in use again, after the file was missing or contained another version.
    Reverted { version: String },
    /// Another warning for the user, about the recipe's file, the run's numbers or the run's folder.
    Warning { message: String },
    /// An event that this version of advlab does not write.
    #[default]
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for LogLine {
    /// Accepts any JSON: a line that advlab does not write becomes [`LogEvent::Other`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let line = Value::deserialize(deserializer)?;
        let step = line.get("step").map_or(Some(0), Value::as_u64);
        let event = step.and_then(|_| LogEvent::deserialize(&line).ok());
        Ok(LogLine {
            step: step.unwrap_or_default(),
            event: event.unwrap_or_default(),
        })
    }
}

impl Notice {
    fn new(step: u64, event: LogEvent, text: impl ToString) -> Notice {
        Notice {
            line: LogLine { step, event },
            text: text.to_string(),
            problems: Vec::new(),
        }
    }

    /// Returns the notice that a run begins. `loss` is the run's loss recipe; a trainer's run has none.
    pub(crate) fn start(recipe: &Recipe, loss: Option<&Recipe>, platform: Platform) -> Notice {
        let kept = loss.map(KeptVersion::of);
        let (loss_script, loss_version) = kept.map(|kept| (kept.script, kept.version)).unzip();
        let start = LogEvent::Start {
            recipe: KeptVersion::of(recipe),
            loss_script,
            loss_version,
            platform,
        };
        Notice::new(0, start, "the run begins")
    }

    /// Returns the notice that a run is resumed.
    pub(crate) fn resume(step: u64, platform: Platform) -> Notice {
        Notice::new(step, LogEvent::Resume { platform }, "the run continues")
    }

    /// Returns the notice of an event of the recipe's file, or `None` if the step itself reports the event.
    pub(crate) fn live(step: u64, event: &LiveEvent) -> Option<Notice> {
        let message = event.to_string();
        let mut notice = Notice::new(step, LogEvent::Warning { message }, event);
        match event {
            LiveEvent::Published(_) | LiveEvent::Rejected { at_step: true, .. } => return None,
            LiveEvent::Rejected {
                version,
                error,
                still_using,
                ..
            } => {
                notice.line.event = LogEvent::Rejected {
                    version: version.as_str().to_string(),
                    error: one_line(error),
                    still_using: still_using.as_str().to_string(),
                };
                notice.text = format!("still using {still_using}");
                notice.problems = error.to_vec();
            }
            LiveEvent::Warned { version, warnings } => {
                notice.text = format!("using {version} anyway");
                notice.problems = warnings.clone();
            }
            LiveEvent::Reverted { version } => {
                let version = version.as_str().to_string();
                notice.line.event = LogEvent::Reverted { version };
            }
            _ => {}
        }
        Some(notice)
    }

    /// Returns the notice that from `step` on, another version is used instead of `before`.
    pub(crate) fn switched(step: u64, live: &LiveRecipe, before: &Published) -> Notice {
        let mut change = live.change(before, live.in_use());
        let switch = LogEvent::Use {
            recipe: KeptVersion::of(live.in_use().recipe()),
            from: change.from.as_str().to_string(),
            lines_added: change.lines_added,
            lines_removed: change.lines_removed,
            checked_in_ms: change.checked_in.as_secs_f64() * 1e3,
            ready_after_ms: change.ready_after.as_secs_f64() * 1e3,
            imports: change.imports.clone(),
            effect: change.effect.clone(),
        };
        // The effects after the first are problems, which are shown as warnings.
        let worse = change.effect.split_off(change.effect.len().min(1));
        Notice {
            problems: worse.into_iter().map(Diagnostic::warning).collect(),
            ..Notice::new(step, switch, &change)
        }
    }

    /// Returns the notice that a version failed at a step on `batch` or, if `batch` is `None`, that its `migrate` failed.
    pub(crate) fn failed(step: u64, failed: &Failed, batch: Option<&Batch>) -> Notice {
        let recipe = failed.loaded.recipe();
        let back_to = failed.back_to.as_ref().map(|loaded| loaded.version());
        // If there is no other version, the run ends with this error.
        let text = back_to.map(|back_to| format!("  back to {back_to}"));
        let text = format!("{} failed{}", recipe.version(), text.unwrap_or_default());
        let event = LogEvent::Failed {
            hook: batch.map_or("migrate", |_| "step").to_string(),
            recipe: KeptVersion::of(recipe),
            error: one_line(&failed.error),
            back_to: back_to.map(|version| version.as_str().to_string()),
            batch: batch.map(|_| FAILED.name(step, &format!("-{}", recipe.version()))),
        };
        Notice {
            problems: back_to.map_or(Vec::new(), |_| failed.error.to_vec()),
            ..Notice::new(step, event, text)
        }
    }

    /// Returns a warning about the run's numbers or the run's folder.
    pub(crate) fn warning(step: u64, message: String) -> Notice {
        let text = format!("warning: {message}");
        Notice::new(step, LogEvent::Warning { message }, text)
    }
}

/// Returns an error as a single line, for the log.
fn one_line(error: &Diagnostics) -> String {
    error.to_string().replace('\n', " ")
}

/// All lines of a run's log.
#[derive(Clone, Debug, Default)]
pub struct RunLog(pub Vec<LogLine>);

impl RunLog {
    /// Returns the versions that the run used, each with its first step. From a step at which a version failed, the list has
    /// the version that completed the step.
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
            // A version that failed in its first step has not completed any step.
            used.pop_if(|last| last.0 == *step);
            if used.last().is_none_or(|last| last.1 != version) {
                used.push((*step, version));
            }
        }
        used
    }

    /// Returns the recipe with which the run began. It is an error if the run was killed before it logged its start.
    pub(crate) fn start(&self, folder: &Path) -> Result<&KeptVersion> {
        match self.0.first().map(|line| &line.event) {
            Some(LogEvent::Start { recipe, .. }) => Ok(recipe),
            _ => {
                let missing = format!("line in {RELOADS} with the versions that it began with");
                Err(no_run(folder, &missing))
            }
        }
    }

    /// Returns the script and the version of the loss with which the run began, if the log has both; the log of a trainer's run
    /// has no loss.
    pub fn loss(&self) -> Option<(&str, &str)> {
        match &self.0.first()?.event {
            LogEvent::Start {
                loss_script,
                loss_version,
                ..
            } => loss_script.as_deref().zip(loss_version.as_deref()),
            _ => None,
        }
    }

    /// Returns the saved version whose hash begins with `version`. An empty `version` finds nothing; several matches are an
    /// error.
    pub(crate) fn kept(&self, version: &str) -> Result<Option<&KeptVersion>> {
        let kept = self.0.iter().filter_map(|line| match &line.event {
            LogEvent::Start { recipe, .. }
            | LogEvent::Use { recipe, .. }
            | LogEvent::Failed { recipe, .. } => Some(recipe),
            _ => None,
        });
        let is_meant = |kept: &&KeptVersion| kept.version.starts_with(version);
        let mut kept = kept.filter(|kept| !version.is_empty() && is_meant(kept));
        let first = kept.next();
        if kept.any(|other| first.is_some_and(|first| first.version != other.version)) {
            let message = format!("several versions begin with `{version}`: give more digits");
            return Err(Diagnostic::error(message).into());
        }
        Ok(first)
    }

    /// Returns the versions that came into use after the start of the run, or whose `migrate` failed, each with its step.
    pub(crate) fn switches(&self) -> impl Iterator<Item = (u64, &KeptVersion)> {
        self.0.iter().filter_map(|line| match &line.event {
            LogEvent::Use { recipe, .. } => Some((line.step, recipe)),
            LogEvent::Failed { hook, recipe, .. } if hook == "migrate" => Some((line.step, recipe)),
            _ => None,
        })
    }

    /// Returns the difference between the current platform and the first platform of the recording that differs from it, if there
    /// is one.
    pub(crate) fn other_platform(&self, now: &Platform) -> Option<String> {
        let changes = self.0.iter().find_map(|line| {
            let (LogEvent::Start { platform, .. } | LogEvent::Resume { platform }) = &line.event
            else {
                return None;
            };
            let changes = platform.iter().filter_map(|(name, recorded)| {
                let now = now.get(name).map_or("nothing", |now| now);
                (recorded != now).then(|| format!("{name} {recorded} (now {now})"))
            });
            Some(changes.collect::<Vec<_>>().join("; ")).filter(|changes| !changes.is_empty())
        })?;
        Some(format!(
            "the run was recorded with {changes}: numbers of its policy may differ in their last digits"
        ))
    }

    /// Returns the versions that were rejected or failed before a step and have not been used since. A resumed run must not try
    /// them again, because a run that was never stopped would not try them.
    pub(crate) fn rejected_before(&self, step: u64) -> Vec<String> {
        let mut rejected: Vec<String> = Vec::new();
        for line in self.0.iter().filter(|line| line.step < step) {
            match &line.event {
                LogEvent::Rejected { version, .. } => rejected.push(version.clone()),
                LogEvent::Failed { recipe, .. } => rejected.push(recipe.version.clone()),
                // This version was saved again and passed its checks.
                LogEvent::Use { recipe, .. } => rejected.retain(|old| *old != recipe.version),
                _ => {}
            }
        }
        rejected
    }
}

/// A version that is saved in `scripts/`, in a folder named after its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptVersion {
    /// The path of the script, relative to the run's folder.
    #[serde(default)]
    pub script: String,
    /// All 64 digits of the version's hash.
    pub version: String,
}

impl KeptVersion {
    /// Returns a version with the path that it has in every run's folder.
    pub(crate) fn of(recipe: &Recipe) -> KeptVersion {
        let version = recipe.version().as_str();
        KeptVersion {
            script: format!("{SCRIPTS}/{version}/{}", file_name(recipe.name())),
            version: version.to_string(),
        }
    }

    /// Saves a version in a run's folder, unless the folder already has it.
    pub(crate) fn keep(run: &Path, recipe: &Recipe) -> Result<()> {
        let folder = run.join(SCRIPTS).join(recipe.version().as_str());
        if folder.is_dir() {
            return Ok(());
        }
        write_folder(&folder, |part| {
            recipe.sources().try_for_each(|(source, text)| {
                Replacement::write(&part.join(file_name(source)), text.as_bytes())
            })
        })
    }

    /// Loads the version under its original name, which is a built-in's name or the name of a file.
    pub(crate) fn load(&self, run: &Path, host: &Host) -> Result<Recipe> {
        let path = run.join(&self.script);
        let is_this = |recipe: &Recipe| recipe.version().as_str() == self.version;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(builtin) = Builtin::find(&stem) {
            let recipe = host.load(builtin.name)?;
            if is_this(&recipe) {
                return Ok(recipe);
            }
        }
        let text = advlab::regular_file::read_to_string(&path).map_err(io("read", &path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match host.compile_beside(&name, &text, path.parent().unwrap_or(run)) {
            Ok(recipe) if is_this(&recipe) => Ok(recipe),
            Ok(_) => Err(damaged(
                &path,
                "this file is the run's record of a version, but its text is not that version's: was the file edited?",
            )),
            Err(mut error) => {
                let note = format!("this is the script that the run kept, {}", path.display());
                error.first_mut().notes.push(note);
                Err(error)
            }
        }
    }
}

/// Returns the file name under which a script is saved. The ending `.rhai` is added only for a built-in, because a script without
/// an ending may import a script of the same name with the ending.
fn file_name(source: &str) -> String {
    match Builtin::find(source) {
        Some(builtin) => format!("{}.rhai", builtin.name),
        None => {
            let name = Path::new(source).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each kind of line in the form that earlier runs wrote can be read, and is written unchanged.
    #[test]
    fn the_lines_of_a_log_keep_their_form() {
        let known = r#"
{"step":0,"event":"start","script":"scripts/a/m.rhai","version":"a","loss_script":"scripts/b/l.rhai","loss_version":"b","platform":{"threads":"2"}}
{"step":0,"event":"start","script":"scripts/a/m.rhai","version":"a"}
{"step":5,"event":"resume","platform":{"threads":"2"}}
{"step":4,"event":"use","script":"s","version":"b","from":"a","lines_added":1,"lines_removed":2,"checked_in_ms":0.5,"ready_after_ms":1.5}
{"step":4,"event":"use","script":"s","version":"b","from":"a","lines_added":1,"lines_removed":2,"checked_in_ms":0.5,"ready_after_ms":1.5,"imports":["a.rhai"],"effect":["e"]}
{"step":4,"event":"reverted","version":"b"}
{"step":4,"event":"failed","hook":"step","script":"s","version":"b","error":"e","back_to":null,"batch":"batches/failed-000004-b.safetensors"}
{"step":4,"event":"failed","hook":"migrate","script":"s","version":"b","error":"e","back_to":"a"}
{"step":4,"event":"rejected","version":"b","error":"e","still_using":"a"}
{"step":4,"event":"warning","message":"m"}"#;
        for line in known.lines().skip(1) {
            let read: LogLine = serde_json::from_str(line).unwrap();
            assert!(read.event != LogEvent::Other, "{line}");
            assert_eq!(serde_json::to_string(&read).unwrap(), line);
        }
        // The first event is written by another program, and the second was written only by earlier versions.
        for event in ["moved", "missing"] {
            let line = json!({ "step": 4, "event": event, "why": "w" });
            let read: LogLine = serde_json::from_value(line).unwrap();
            assert_eq!((read.step, read.event), (4, LogEvent::Other));
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
    fn a_version_is_named_by_the_digits_that_no_other_has() {
        let used = [
            (0, "start", "aa1"),
            (4, "use", "aa2"),
            (9, "use", "aa1"),
            (12, "use", "b"),
        ];
        let used = used.map(|(step, event, version)| line(step, event, version, None));
        let log = RunLog(used.to_vec());
        let kept = |digits: &str| log.kept(digits).unwrap().map(|kept| kept.version.as_str());
        for (digits, expected) in [
            ("aa1", Some("aa1")),
            ("b", Some("b")),
            ("c", None),
            ("", None),
        ] {
            assert_eq!(kept(digits), expected, "{digits}");
        }
        let error = log.kept("aa").unwrap_err().to_string();
        assert_eq!(error, "several versions begin with `aa`: give more digits");
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
            // `migrate` failed, so the version in use did not change.
            (7, "failed", "c", Some("b"), &ab),
            (9, "failed", "b", Some("a"), &aba),
            (12, "use", "c", None, &abac),
            // This version did not complete a step.
            (12, "failed", "c", Some("a"), &aba),
            (15, "failed", "a", None, &aba),
        ] {
            log.0.push(line(step, event, version, back_to));
            assert_eq!(log.versions(), expected, "{log:?}");
        }
    }
}
