//! The log of a run: which versions it used, and on which platform.

use std::path::Path;

use super::{KeptVersion, RELOADS};
use crate::error::{Result, no_run};
use crate::event::{LogEvent, LogLine, MIGRATE};
use crate::policy::Platform;

/// All lines of a run's log.
#[derive(Clone, Debug, Default)]
pub struct RunLog(pub Vec<LogLine>);

impl RunLog {
    /// The versions that the run used, each with its first step. A failed version is followed by the version that did
    /// the step instead.
    pub fn versions(&self) -> Vec<(u64, &str)> {
        let mut used: Vec<(u64, &str)> = Vec::new();
        for LogLine { step, event, .. } in &self.0 {
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

    /// The recipe and the loss that the run began with, unless it was killed before it wrote the line. A trainer's run has
    /// no loss here.
    pub(crate) fn start(&self, folder: &Path) -> Result<(KeptVersion, Option<KeptVersion>)> {
        let Some(LogEvent::Start {
            recipe,
            loss_script,
            loss_version,
            ..
        }) = self.0.first().map(|line| &line.event)
        else {
            let missing = format!("line in {RELOADS} with the versions that it began with");
            return Err(no_run(folder, &missing));
        };
        let loss = loss_script.clone().zip(loss_version.clone());
        let loss = loss.map(|(script, version)| KeptVersion { script, version });
        Ok((recipe.clone(), loss))
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
        let mut kept = self.0.iter().filter_map(|line| match &line.event {
            LogEvent::Start { recipe, .. }
            | LogEvent::Use { recipe, .. }
            | LogEvent::Failed { recipe, .. } => Some(recipe),
            _ => None,
        });
        kept.find(|kept| kept.version.starts_with(version))
    }

    /// The versions with which steps after the first began, or tried to begin if `migrate` failed.
    pub(crate) fn switches(&self) -> impl Iterator<Item = (u64, &KeptVersion)> {
        self.0.iter().filter_map(|line| match &line.event {
            LogEvent::Use { recipe, .. } => Some((line.step, recipe)),
            LogEvent::Failed { hook, recipe, .. } if hook == MIGRATE => Some((line.step, recipe)),
            _ => None,
        })
    }

    /// The difference between the present platform and the one of the recording, if there is one.
    pub(crate) fn other_platform(&self, now: &Platform) -> Option<String> {
        self.0.iter().find_map(|line| {
            let (LogEvent::Start { platform, .. } | LogEvent::Resume { platform }) = &line.event
            else {
                return None;
            };
            let changes = platform.iter().filter_map(|(name, recorded)| {
                let now = now.get(name).map_or("nothing", |now| now);
                (recorded != now).then(|| format!("{name} {recorded}, and now {now}"))
            });
            let changes = changes.collect::<Vec<_>>().join("; ");
            (!changes.is_empty()).then(|| {
                format!("the run was recorded with {changes}: numbers of its policy may differ in their last digits")
            })
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each kind of line in the form of earlier runs: it is read correctly, and written unchanged.
    #[test]
    fn the_lines_of_a_log_keep_their_form() {
        let known = r#"
{"step":0,"event":"start","script":"scripts/a/m.rhai","version":"a","loss_script":"scripts/b/l.rhai","loss_version":"b","platform":{"threads":"2"}}
{"step":0,"event":"start","script":"scripts/a/m.rhai","version":"a"}
{"step":5,"event":"resume","platform":{"threads":"2"}}
{"step":4,"event":"use","script":"s","version":"b","from":"a","lines_added":1,"lines_removed":2,"checked_in_ms":0.5,"ready_after_ms":1.5}
{"step":4,"event":"failed","hook":"step","script":"s","version":"b","error":"e","back_to":null,"batch":"batches/failed-000004-b.safetensors"}
{"step":4,"event":"failed","hook":"migrate","script":"s","version":"b","error":"e","back_to":"a"}
{"step":4,"event":"rejected","version":"b","error":"e","still_using":"a"}
{"step":4,"event":"warning","message":"m"}"#;
        for line in known.lines().skip(1) {
            let read: LogLine = serde_json::from_str(line).unwrap();
            assert!(read.event != LogEvent::Other, "{line}");
            assert_eq!(serde_json::to_string(&read).unwrap(), line);
        }
        // Another program's, and a kind of earlier runs.
        for event in ["moved", "missing"] {
            let read = LogLine::of(&json!({ "step": 4, "event": event, "why": "w" }));
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
            // It did not complete a step.
            (12, "failed", "c", Some("a"), &aba),
            (15, "failed", "a", None, &aba),
        ] {
            log.0.push(line(step, event, version, back_to));
            assert_eq!(log.versions(), expected, "{log:?}");
        }
    }
}
