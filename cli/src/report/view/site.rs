//! What the page is told: of all runs at each update, and of one where somebody asks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::batch::Seen;
use super::curve::{around, curves, width};
use super::follow::{Followed, line_of, now};
use super::http::{Answer, Request, number};
use super::server::UPDATE;
use super::versions;
use crate::report::compare;
use advlab::batch::Replacement;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab_train::{LogEvent, LogLine};

/// The parts of the page, put together when it is sent: a file of its own is sent to somebody.
const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const _: () = assert!(HTML.len() + STYLE.len() + SCRIPT.len() <= 30 << 10);

/// How often runs are looked for that have begun since: a folder of many takes a while to go through.
const RESCAN: Duration = Duration::from_secs(2);

/// The most bytes of responses that a file is given.
const ROOM: usize = 8 << 20;

/// Which batch it is: the run's folder, how often that was read anew, and the step.
type Place = (PathBuf, usize, u64);

/// Runs, and what the page shows of them.
pub struct Site {
    folders: Vec<PathBuf>,
    runs: Mutex<Vec<Followed>>,
    /// When runs were looked for, and when they were read.
    times: Mutex<(Option<Instant>, Option<Instant>)>,
    last: Mutex<Option<(Place, Arc<Seen>)>>,
    /// Names the page's own script in its content security policy.
    nonce: String,
}

/// What a page has been sent of a run.
#[derive(Default)]
pub(super) struct Sent {
    readings: usize,
    width: u64,
    /// The first step of the last mark, which may have become another one since.
    from: u64,
    step: Option<u64>,
    events: usize,
    heading: Value,
}

impl Site {
    /// A page of the runs in some folders: each a run's, or one that has runs in it, also those that are still to come.
    ///
    /// # Errors
    /// [`Diagnostics`] where a folder has no run.
    pub fn of(folders: &[PathBuf]) -> Result<Site, Diagnostics> {
        for folder in folders {
            compare::folders_of_runs(folder)?;
        }
        let site = Site {
            folders: folders.to_vec(),
            runs: Mutex::default(),
            times: Mutex::default(),
            last: Mutex::default(),
            nonce: random()?,
        };
        drop(site.refreshed());
        Ok(site)
    }

    /// The runs as their files have them now, or had them [`UPDATE`] ago: pages that look on share one reading.
    fn refreshed(&self) -> MutexGuard<'_, Vec<Followed>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |last: Option<Instant>, every| last.is_none_or(|last| last.elapsed() >= every);
        let (scanned, read) = &mut *times;
        if !is_due(*read, UPDATE) {
            return runs;
        }
        *read = Some(Instant::now());
        if is_due(*scanned, RESCAN) {
            for folder in &self.folders {
                for path in compare::folders_of_runs(folder).unwrap_or_default() {
                    if !runs.iter().any(|run| run.folder == path) {
                        runs.push(Followed::new(path, folder));
                    }
                }
            }
            *scanned = Some(Instant::now());
        }
        runs.iter_mut().for_each(Followed::refresh);
        runs
    }

    /// What is new since the last message; `None` where nothing is.
    pub(super) fn news(&self, sent: &mut Vec<Sent>) -> Option<Value> {
        let runs = self.refreshed();
        sent.resize_with(runs.len(), Sent::default);
        let all = runs.iter().zip(sent).enumerate();
        let news: Vec<Value> = all
            .filter_map(|(id, (run, sent))| sent.news(id, run))
            .collect();
        (!news.is_empty()).then(|| json!({ "now": now(), "runs": news }))
    }

    /// Answers a GET request, except for the stream of events.
    pub(super) fn answer(&self, request: &Request) -> Answer {
        if request.path == "/" {
            return Answer {
                status: "200 OK",
                kind: "text/html; charset=utf-8",
                body: page(&self.nonce, &json!({})).into_bytes(),
            };
        }
        let found = self.find(&request.path, &request.query);
        found.map_or_else(
            || Answer::refusal("404 Not Found", ""),
            |value| Answer::json(&value),
        )
    }

    /// What a path says; `None` where there is nothing of the kind.
    fn find(&self, path: &str, query: &str) -> Option<Value> {
        match path {
            "/change" => self.change(query),
            "/batch" => Some(told(self.seen(query)?.and_then(|seen| seen.groups()))),
            "/objective" => Some(told(self.seen(query)?.and_then(|seen| seen.objective()))),
            "/group" => match self.seen(query)? {
                Ok(seen) => seen.responses(number(query, "group")? as usize),
                Err(error) => Some(told(Err(error))),
            },
            _ => None,
        }
    }

    /// The page as a file that needs no server: with all changes of the scripts, and the last batch of each run as far as
    /// there is room.
    ///
    /// # Errors
    /// [`Diagnostics`] where it cannot be written.
    pub fn export(&self, path: &Path) -> Result<(), Diagnostics> {
        let mut news = self.news(&mut Vec::new()).unwrap_or_default();
        let mut answers = Map::new();
        let mut size = 0;
        let mut add = |what: &str, query: String| {
            if size >= ROOM {
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
                *path = below_home(path.as_str().unwrap_or_default()).into();
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
            let groups = self.seen(&query).and_then(|seen| Some(seen.ok()?.size()));
            for group in 0..groups.unwrap_or(0) {
                add("group", format!("{query}&group={group}"));
            }
        }
        let text = page(&self.nonce, &json!({ "news": news, "answers": answers }));
        Replacement::write(path, text.as_bytes())
    }

    /// The batch of a step; the last one is kept, as somebody looks from group to group.
    fn seen(&self, query: &str) -> Option<Result<Arc<Seen>, Diagnostics>> {
        let step = number(query, "step")?;
        let (folder, config, place) = {
            let runs = self.refreshed();
            let run = runs.get(number(query, "run")? as usize)?;
            (
                run.folder.clone(),
                run.config.clone(),
                (run.folder.clone(), run.readings, step),
            )
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((own, seen)) = &*last
            && *own == place
        {
            return Some(Ok(seen.clone()));
        }
        Some(Seen::open(&folder, config.as_ref(), step).map(|seen| {
            let seen = Arc::new(seen);
            *last = Some((place, seen.clone()));
            seen
        }))
    }

    /// A change of the script: how the versions differ, and the numbers before it and after it.
    fn change(&self, query: &str) -> Option<Value> {
        let runs = self.refreshed();
        let run = runs.get(number(query, "run")? as usize)?;
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
            "files": versions::diff(&run.folder, from, &recipe.version),
            "around": around(run, step, bounds),
        }))
    }
}

/// The page, with what it is to show where nobody will be there to ask.
fn page(nonce: &str, embedded: &Value) -> String {
    // `<` is written so in a script that is data: a text that has a tag ends nothing.
    let data = embedded.to_string().replace('<', "\\u003c");
    HTML.replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", SCRIPT)
        .replace("/*NONCE*/", nonce)
        .replace("/*DATA*/", &data)
}

/// A path as a file for others has it: of an absolute one, the last two names, as the rest says whose machine it was.
fn below_home(path: &str) -> String {
    let path = Path::new(path);
    let names = path.iter().count();
    let hidden = if path.is_absolute() {
        names.saturating_sub(2).max(1)
    } else {
        0
    };
    path.iter()
        .skip(hidden)
        .collect::<PathBuf>()
        .display()
        .to_string()
}

/// What is shown, or why it is not.
fn told(found: Result<Value, Diagnostics>) -> Value {
    found.unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

/// 256 bits of the system's random number generator, in hexadecimal.
pub(super) fn random() -> Result<String, Diagnostics> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Diagnostic::error(format!("the system has no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Sent {
    fn news(&mut self, id: usize, run: &Followed) -> Option<Value> {
        let heading = &run.heading;
        if self.readings != run.readings {
            *self = Sent {
                readings: run.readings,
                ..Sent::default()
            };
        }
        let is_new = self.step != run.step || self.events != run.events.len();
        if !is_new && self.heading == *heading {
            return None;
        }
        let width = width(run.step.unwrap_or(0));
        if width != self.width {
            (self.width, self.from) = (width, 0);
        }
        let news = json!({
            "id": id,
            "heading": heading,
            "width": width,
            "from": self.from,
            "curves": curves(run, width, self.from),
            "events_from": self.events,
            "events": run.events[self.events..].iter().map(line_of).collect::<Vec<_>>(),
        });
        self.heading = heading.clone();
        // An evaluation after the last step stands one step further.
        self.from = run.step.unwrap_or(0) / width * width;
        self.step = run.step;
        self.events = run.events.len();
        Some(news)
    }
}
