//! The page of runs: a server on this machine reads the folders of runs, during a run or after it, and shows them in a browser.
//! The same page can be exported as one file.
//!
//! The server only reads files, so it can run in the run's process or in another process. The page's script requests data by
//! addresses such as `lines?run=0&file=metrics&from=0`; an exported page contains the data of these addresses.

mod batch;
mod server;
mod shown_run;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use self::batch::KeptBatch;
pub use self::server::Server;
use self::shown_run::{ShownRun, for_others};
use super::compare::folders_of_runs;
use crate::{Result, lock};
use advlab::diagnostic::Diagnostic;
use advlab::replace::Replacement;
use advlab_train::{LogEvent, RunFolder};

/// The parts of the page, which are joined when the page is sent, because a page is a single file.
const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const _: () = assert!(HTML.len() + STYLE.len() + SCRIPT.len() < 40_000);

/// The size in bytes from which an exported page gets no more batches and script changes; also the size of a run's file beyond
/// which the page has only some of the file's lines.
const EXPORTED: usize = 8 << 20;
/// The server searches for new runs only at every tenth request for news, because a page sends two such requests a second.
const LOOKS: usize = 10;

/// The runs that the page shows, with their data.
pub struct Site {
    folders: Vec<PathBuf>,
    /// The runs, in the order in which they were found.
    runs: Mutex<Vec<ShownRun>>,
    /// The number of requests for news.
    asked: AtomicUsize,
    /// The batch that was requested last, with its file and the time when the file was written. The batch is cached because a
    /// user looks at one group after another.
    last: Mutex<Option<(PathBuf, SystemTime, Arc<KeptBatch>)>>,
    /// The number that identifies the page's script in the page's content security policy, so that no other script runs.
    nonce: String,
}

impl Site {
    /// Returns a page of the runs in some folders. Each folder is a run or contains runs; runs that begin later also appear.
    pub fn of(folders: &[PathBuf]) -> Result<Site> {
        for folder in folders {
            folders_of_runs(folder, &mut BTreeSet::new())?;
        }
        let site = Site {
            folders: folders.to_vec(),
            runs: Mutex::default(),
            asked: AtomicUsize::default(),
            last: Mutex::default(),
            nonce: random()?,
        };
        site.news();
        Ok(site)
    }

    /// Returns the data for a path with its query, or `None` if the path, the run or the group is unknown, or a parameter is
    /// missing.
    fn find(&self, path: &str, query: &str) -> Option<Value> {
        if path == "/news" {
            return Some(self.news());
        }
        let run = lock(&self.runs).get(number(query, "run")?)?.clone();
        let text = |name: &str| parameter(query, name);
        let step = number(query, "step");
        let batch = || Some(self.batch(&run.folder, step? as u64));
        let found = match path {
            "/lines" => {
                let file = text("file").filter(|file| ["metrics", "reloads"].contains(file))?;
                Ok(run.lines(file, number(query, "from")? as u64))
            }
            "/sample" => Ok(run.sample()),
            "/change" => Ok(run.change(text("from")?, text("to")?)),
            "/batch" => batch()?.map(|batch| batch.groups()),
            "/objective" => batch()?.and_then(|batch| batch.objective()),
            "/group" => {
                let group = number(query, "group")?;
                batch()?.map(|batch| batch.responses(group)).transpose()?
            }
            _ => return None,
        };
        Some(found.unwrap_or_else(|error| json!({ "error": error.to_string() })))
    }

    /// Returns the progress of all runs, and the server's time, with which the page compares the browser's clock. One call in
    /// `LOOKS` first adds new runs.
    fn news(&self) -> Value {
        let mut runs = lock(&self.runs);
        let looks = self
            .asked
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(LOOKS);
        let mut seen = BTreeSet::new();
        for folder in self.folders.iter().filter(|_| looks) {
            for path in folders_of_runs(folder, &mut seen).unwrap_or_default() {
                if !runs.iter().any(|run| run.folder == path) {
                    runs.push(ShownRun::new(path, folder));
                }
            }
        }
        let headings: Vec<Value> = runs.iter_mut().map(ShownRun::news).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        json!({ "now": now.map_or(0, |now| now.as_secs()), "runs": headings })
    }

    fn batch(&self, run: &Path, step: u64) -> Result<Arc<KeptBatch>> {
        let kept = RunFolder::read(run);
        let path = kept.batches().iter().find(|(own, _)| *own == step);
        let path = path.map_or(Path::new(""), |(_, path)| path);
        let Ok(written) = std::fs::metadata(path).and_then(|file| file.modified()) else {
            let message = format!("the batch of step {step} is no longer kept");
            return Err(Diagnostic::error(message).into());
        };
        let mut last = lock(&self.last);
        match &*last {
            Some((own, time, batch)) if own == path && *time == written => Ok(batch.clone()),
            _ => {
                let batch = Arc::new(KeptBatch::open(&kept, step, path)?);
                *last = Some((path.to_path_buf(), written, batch.clone()));
                Ok(batch)
            }
        }
    }

    /// Returns the page; `embedded` contains the data that the page needs if there is no server.
    fn page(&self, embedded: &Value) -> String {
        // `<` is escaped, so that no text can end the script element that contains the data.
        let data = embedded.to_string().replace('<', "\\u003c");
        HTML.replace("/*STYLE*/", STYLE)
            .replace("/*SCRIPT*/", SCRIPT)
            .replace("/*NONCE*/", &self.nonce)
            .replace("/*DATA*/", &data)
    }

    /// Writes the page as a file that needs no server. Up to the size limit `EXPORTED`, the page contains the changes of the
    /// scripts and the last batch of each run.
    pub fn export(&self, path: &Path) -> Result<()> {
        let (mut news, mut answers, mut size) = (self.news(), Map::new(), 0);
        let mut add = |path: &str, query: String| {
            if size < EXPORTED
                && let Some(found) = self.find(&format!("/{path}"), &query)
            {
                size += found.to_string().len();
                answers.insert(format!("{path}?{query}"), found);
            }
        };
        let runs = lock(&self.runs).clone();
        for (id, run) in runs.iter().enumerate() {
            let heading = &mut news["runs"][id];
            for line in RunFolder::read(&run.folder).log().unwrap_or_default().0 {
                if let LogEvent::Use { recipe, from, .. } = line.event {
                    let to = recipe.version;
                    add("change", format!("run={id}&from={from}&to={to}"));
                }
            }
            let steps = heading["batches"].as_array_mut();
            let last = steps.and_then(Vec::pop).and_then(|step| step.as_u64());
            heading["batches"] = last.into_iter().collect();
            if let Some(step) = last {
                let query = format!("run={id}&step={step}");
                add("batch", query.clone());
                add("objective", query.clone());
                let batch = self.batch(&run.folder, step);
                let groups = 0..batch.map_or(0, |batch| batch.size());
                groups.for_each(|group| add("group", format!("{query}&group={group}")));
            }
        }
        for (id, run) in runs.iter().enumerate() {
            for file in ["metrics", "reloads"] {
                let address = format!("lines?run={id}&file={file}&from=0");
                answers.insert(address, run.exported_lines(file, EXPORTED));
            }
        }
        // Paths are shortened only in news, reloads and errors; responses and scripts are not changed.
        let is_said = |address: &str, answer: &Value| {
            address.contains("=reloads") || !answer["error"].is_null()
        };
        for (_, answer) in answers
            .iter_mut()
            .filter(|(address, answer)| is_said(address, answer))
        {
            *answer = for_others(answer);
        }
        news = for_others(&news);
        answers.insert("news?".to_string(), news);
        let text = self.page(&json!({ "answers": answers }));
        Replacement::write(path, text.as_bytes())
    }
}

fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(pairs.find(|(own, _)| *own == name)?.1)
}

fn number(query: &str, name: &str) -> Option<usize> {
    parameter(query, name)?.parse().ok()
}

/// Returns 256 bits from the system's random number generator, in hexadecimal.
fn random() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Diagnostic::error(format!("the system has no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
