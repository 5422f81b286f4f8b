//! What the page is sent: of all runs at each update, and of one run when somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::batch::KeptBatch;
use super::run::{FollowedRun, line_of, mark_width, now};
use super::server::{UPDATE, parameter};
use crate::report::compare;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;
use advlab_train::{LogEvent, LogLine};

/// The parts of the page, put together when it is sent: a page is a single file.
const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const _: () = assert!(HTML.len() + STYLE.len() + SCRIPT.len() <= 30 << 10);

/// How often new runs are looked for: a folder of many takes a while to go through.
const RESCAN: Duration = Duration::from_secs(2);
/// The most bytes of responses in an exported page.
const EXPORTED: usize = 8 << 20;
/// Lines of a diff that are shown around those that differ, and how long it may take to find the smallest one.
const AROUND: usize = 3;
const PATIENCE: Duration = Duration::from_millis(50);

/// Which batch it is: the run's folder, how often that was read anew, and the step.
type BatchKey = (PathBuf, usize, u64);

/// Runs, and what the page shows of them.
pub struct Site {
    folders: Vec<PathBuf>,
    runs: Mutex<Runs>,
    /// The batch that was asked for last: somebody looks from group to group.
    last: Mutex<Option<(BatchKey, Arc<KeptBatch>)>>,
    /// Names the page's own script in its content security policy.
    nonce: String,
}

/// The runs, when new ones were looked for, and when all were read.
#[derive(Default)]
struct Runs {
    all: Vec<FollowedRun>,
    scanned: Option<Instant>,
    read: Option<Instant>,
}

/// What a page has been sent of a run.
#[derive(Default)]
pub(super) struct Sent {
    readings: usize,
    width: u64,
    /// The first step of the last mark, which may have changed since.
    from: u64,
    step: Option<u64>,
    events: usize,
    heading: Value,
}

impl Site {
    /// A page of the runs in some folders: each a run's, or one with runs in it, also those that begin later.
    pub fn of(folders: &[PathBuf]) -> Result<Site, Diagnostics> {
        for folder in folders {
            compare::folders_of_runs(folder)?;
        }
        let site = Site {
            folders: folders.to_vec(),
            runs: Mutex::default(),
            last: Mutex::default(),
            nonce: random()?,
        };
        drop(site.refreshed());
        Ok(site)
    }

    /// The runs as their files are, or were at most [`UPDATE`] ago: all open pages share one reading.
    fn refreshed(&self) -> MutexGuard<'_, Runs> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |last: Option<Instant>, every| last.is_none_or(|last| last.elapsed() >= every);
        if !is_due(runs.read, UPDATE) {
            return runs;
        }
        runs.read = Some(Instant::now());
        if is_due(runs.scanned, RESCAN) {
            for folder in &self.folders {
                for path in compare::folders_of_runs(folder).unwrap_or_default() {
                    if !runs.all.iter().any(|run| run.folder == path) {
                        runs.all.push(FollowedRun::new(path, folder));
                    }
                }
            }
            runs.scanned = Some(Instant::now());
        }
        runs.all.iter_mut().for_each(FollowedRun::refresh);
        runs
    }

    /// What is new since the last message; `None` if nothing is.
    pub(super) fn news(&self, sent: &mut Vec<Sent>) -> Option<Value> {
        let runs = self.refreshed();
        sent.resize_with(runs.all.len(), Sent::default);
        let all = runs.all.iter().zip(sent).enumerate();
        let news = all.filter_map(|(id, (run, sent))| sent.news(id, run));
        let news: Vec<Value> = news.collect();
        (!news.is_empty()).then(|| json!({ "now": now(), "runs": news }))
    }

    /// The page as the server sends it.
    pub(super) fn page(&self) -> String {
        page(&self.nonce, &json!({}))
    }

    /// The answer to a path and its query; `None` if there is no such thing.
    pub(super) fn find(&self, path: &str, query: &str) -> Option<Value> {
        let or_error = |found: Result<Value, Diagnostics>| {
            found.unwrap_or_else(|error| json!({ "error": error.to_string() }))
        };
        match path {
            "/change" => self.change(query),
            "/batch" => Some(or_error(
                self.batch(query)?.and_then(|batch| batch.groups()),
            )),
            "/objective" => Some(or_error(
                self.batch(query)?.and_then(|batch| batch.objective()),
            )),
            "/group" => match self.batch(query)? {
                Ok(batch) => batch.responses(number(query, "group")? as usize),
                Err(error) => Some(or_error(Err(error))),
            },
            _ => None,
        }
    }

    /// Writes the page as a file that needs no server: with all changes of the scripts, and the last batch of each run as far
    /// as there is room.
    pub fn export(&self, path: &Path) -> Result<(), Diagnostics> {
        let mut news = self.news(&mut Vec::new()).unwrap_or_default();
        let (mut answers, mut size) = (Map::new(), 0);
        let mut add = |what: &str, query: String| {
            if size >= EXPORTED {
                return;
            }
            if let Some(found) = self.find(&format!("/{what}"), &query) {
                size += found.to_string().len();
                answers.insert(format!("{what}?{query}"), found);
            }
        };
        for run in news["runs"].as_array_mut().into_iter().flatten() {
            let id = run["id"].clone();
            for key in ["name", "folder"] {
                let path = &mut run["heading"][key];
                *path = last_names(path.as_str().unwrap_or_default()).into();
            }
            for index in 0..run["events"].as_array().map_or(0, Vec::len) {
                add("change", format!("run={id}&event={index}"));
            }
            let kept = run["heading"]["batches"].as_array_mut();
            let Some(step) = kept.and_then(Vec::pop) else {
                continue;
            };
            run["heading"]["batches"] = json!([step]);
            let query = format!("run={id}&step={step}");
            add("batch", query.clone());
            add("objective", query.clone());
            let batch = self.batch(&query).and_then(Result::ok);
            for group in 0..batch.map_or(0, |batch| batch.size()) {
                add("group", format!("{query}&group={group}"));
            }
        }
        let text = page(&self.nonce, &json!({ "news": news, "answers": answers }));
        Replacement::write(path, text.as_bytes())
    }

    /// The batch of a step.
    fn batch(&self, query: &str) -> Option<Result<Arc<KeptBatch>, Diagnostics>> {
        let step = number(query, "step")?;
        let (key, config) = {
            let runs = self.refreshed();
            let run = runs.all.get(number(query, "run")? as usize)?;
            ((run.folder.clone(), run.readings, step), run.config.clone())
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((own, batch)) = &*last
            && *own == key
        {
            return Some(Ok(batch.clone()));
        }
        Some(KeptBatch::open(&key.0, config.as_ref(), step).map(|batch| {
            let batch = Arc::new(batch);
            *last = Some((key, batch.clone()));
            batch
        }))
    }

    /// A change of the script: how the versions differ, and the numbers before it and after it.
    fn change(&self, query: &str) -> Option<Value> {
        let runs = self.refreshed();
        let run = runs.all.get(number(query, "run")? as usize)?;
        let index = number(query, "event")? as usize;
        let of_use =
            |line: &LogLine| matches!(line.event, LogEvent::Use { .. }).then_some(line.step);
        let line = run.events.get(index)?;
        let step = line.step;
        let LogEvent::Use { from, recipe, .. } = &line.event else {
            return None;
        };
        let before = run.events[..index].iter().rev().find_map(of_use);
        let after = run.events[index + 1..].iter().find_map(of_use);
        let bounds = (before.unwrap_or(0), after.unwrap_or(u64::MAX));
        Some(json!({
            "files": diff(&run.folder, [from, &recipe.version]),
            "around": run.around(step, bounds),
        }))
    }
}

impl Sent {
    fn news(&mut self, id: usize, run: &FollowedRun) -> Option<Value> {
        if self.readings != run.readings {
            *self = Sent {
                readings: run.readings,
                ..Sent::default()
            };
        }
        let is_new = self.step != run.step || self.events != run.events.len();
        if !is_new && self.heading == run.heading {
            return None;
        }
        let width = mark_width(run.step.unwrap_or(0));
        if width != self.width {
            (self.width, self.from) = (width, 0);
        }
        let events = run.events[self.events..].iter().map(line_of);
        let news = json!({
            "id": id,
            "heading": run.heading,
            "width": width,
            "from": self.from,
            "curves": run.marks(width, self.from),
            "events_from": self.events,
            "events": events.collect::<Vec<_>>(),
        });
        self.heading = run.heading.clone();
        // An evaluation after the last step stands one step further.
        self.from = run.step.unwrap_or(0) / width * width;
        self.step = run.step;
        self.events = run.events.len();
        Some(news)
    }
}

/// The page, with the answers that it needs if there is no server to ask.
fn page(nonce: &str, embedded: &Value) -> String {
    // Without `<`, no text can end the script element that the data is in.
    let data = embedded.to_string().replace('<', "\\u003c");
    HTML.replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", SCRIPT)
        .replace("/*NONCE*/", nonce)
        .replace("/*DATA*/", &data)
}

/// A path for a file that others get: of an absolute one, the last two names, as the rest says whose machine it was.
fn last_names(path: &str) -> String {
    let path = Path::new(path);
    let hidden = match path.is_absolute() {
        true => path.iter().count().saturating_sub(2).max(1),
        false => 0,
    };
    let shown: PathBuf = path.iter().skip(hidden).collect();
    shown.display().to_string()
}

/// The number of that name in a query.
fn number(query: &str, name: &str) -> Option<u64> {
    parameter(query, name)?.parse().ok()
}

/// 256 bits of the system's random number generator, in hexadecimal.
pub(super) fn random() -> Result<String, Diagnostics> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Diagnostic::error(format!("the system has no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The files of a version: the script, under its own name, and what it imports.
fn sources(run: &Path, version: &str) -> BTreeMap<String, String> {
    // It is the name of a folder, and comes from a file that anybody may have written.
    if version.is_empty() || !version.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return BTreeMap::new();
    }
    let entries = std::fs::read_dir(run.join("scripts").join(version));
    let entries = entries.into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let text = advlab::regular_file::read_to_string(&entry.path()).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), text))
    };
    entries.filter_map(read).collect()
}

/// How two versions of a run's script differ: of each file that does, its name and its lines as [`lines`] has them.
fn diff(run: &Path, versions: [&str; 2]) -> Value {
    let [old, new] = versions.map(|version| sources(run, version));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let files = names.into_iter().filter_map(|name| {
        let [old, new] = [&old, &new].map(|files| files.get(name).map_or("", String::as_str));
        let lines = lines(old, new);
        (!lines.is_empty()).then(|| json!({ "name": name, "lines": lines }))
    });
    files.collect()
}

/// The lines by which two texts differ: `["+", line]`, `["-", line]`, `[" ", line]` of those around, and `["@", number]` where
/// lines before were left out.
fn lines(old: &str, new: &str) -> Vec<Value> {
    let [old, new]: [Vec<&str>; 2] = [old, new].map(|text| text.lines().collect());
    let deadline = Some(Instant::now() + PATIENCE);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let mut lines = Vec::new();
    for group in group_diff_ops(operations, AROUND) {
        let first = group.first().map_or(0, |one| one.new_range().start);
        lines.push(json!(["@", first + 1]));
        for one in group {
            let mut add = |sign: &str, of: &[&str]| {
                lines.extend(of.iter().map(|line| json!([sign, line])));
            };
            if one.tag() == DiffTag::Equal {
                add(" ", &new[one.new_range()]);
            } else {
                add("-", &old[one.old_range()]);
                add("+", &new[one.new_range()]);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_come_with_those_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let new = old.replace("f\n", "F\n");
        let shown: Vec<String> = lines(old, &new).iter().map(Value::to_string).collect();
        let expected = [
            "[\"@\",3]",
            "[\" \",\"c\"]",
            "[\" \",\"d\"]",
            "[\" \",\"e\"]",
            "[\"-\",\"f\"]",
            "[\"+\",\"F\"]",
            "[\" \",\"g\"]",
            "[\" \",\"h\"]",
        ];
        assert_eq!(shown, expected);
        assert!(lines(old, old).is_empty());
    }

    #[test]
    fn a_version_is_a_folder_of_the_run_alone() {
        let run = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(run.path().join("scripts/ab12")).unwrap();
        std::fs::write(run.path().join("scripts/ab12/a.rhai"), "1").unwrap();
        std::fs::write(run.path().join("secret"), "1").unwrap();
        assert_eq!(sources(run.path(), "ab12").len(), 1);
        for outside in ["..", "", "../..", "ab12/.."] {
            assert!(sources(run.path(), outside).is_empty(), "{outside}");
        }
    }
}
