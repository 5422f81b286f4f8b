//! A run as its files tell it while they grow: numbers by name, and what happened to its script.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::train::{Config, Kept, flatten};

/// The end of what was read of a file is kept so long: where it is another one, the file was cut and went on.
const MEMORY: usize = 128;
/// Bookkeeping of a row that no curve is wanted of.
const UNSHOWN: [&str; 7] = [
    "step",
    "batch_step",
    "crc32c",
    "responses",
    "groups",
    "device_memory",
    "ms/native",
];

/// Numbers after so many steps.
pub(super) type Points = Vec<(u32, f32)>;

/// A run that is followed.
pub(super) struct Followed {
    name: String,
    pub(super) folder: PathBuf,
    metrics: Tail,
    reloads: Tail,
    /// By name; an evaluation's number stands after the steps that were done before it.
    pub(super) curves: BTreeMap<String, Points>,
    /// The lines of `reloads.jsonl`.
    pub(super) events: Vec<Value>,
    /// The newest step that has a row.
    pub(super) step: Option<u64>,
    /// How often its files were cut and it was read anew.
    pub(super) readings: usize,
    pub(super) config: Option<Config>,
    /// What is said of the run at each update.
    pub(super) heading: Value,
}

impl Followed {
    /// A run in a folder, which has its name below `above`.
    pub(super) fn new(folder: PathBuf, above: &Path) -> Followed {
        let below = folder.strip_prefix(above).unwrap_or(above);
        let name = if below.as_os_str().is_empty() {
            folder.as_path()
        } else {
            below
        };
        Followed {
            name: name.display().to_string(),
            metrics: Tail::new(folder.join("metrics.jsonl")),
            reloads: Tail::new(folder.join("reloads.jsonl")),
            curves: BTreeMap::new(),
            events: Vec::new(),
            step: None,
            readings: 0,
            config: None,
            heading: Value::Null,
            folder,
        }
    }

    /// Reads what the files have beyond what was read.
    pub(super) fn refresh(&mut self) {
        if self.metrics.is_cut() || self.reloads.is_cut() {
            *self = Followed {
                name: self.name.clone(),
                readings: self.readings + 1,
                ..Followed::new(self.folder.clone(), &self.folder)
            };
        }
        if self.config.is_none() {
            self.config = Config::read(&self.folder.join("config.toml")).ok();
        }
        let (curves, last) = (&mut self.curves, &mut self.step);
        self.metrics.lines(|row| {
            let step = step_of(&row).or(last.map(|last| last + 1));
            let step = *last.insert(step.unwrap_or(0));
            for (path, value) in flatten(&row) {
                add(curves, step, path, &value);
            }
        });
        self.reloads.lines(|event| self.events.push(event));
        self.heading = self.said();
    }

    fn said(&self) -> Value {
        let written = std::fs::metadata(&self.metrics.path).and_then(|file| file.modified());
        let written = written
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let batches = Kept::open(&self.folder).map(|kept| {
            let steps = kept.batches().iter().map(|(step, _)| *step);
            steps.collect::<Vec<_>>()
        });
        let config = self.config.as_ref();
        let recipe = config.map(|config| Path::new(&config.recipe));
        let recipe = recipe.and_then(Path::file_name);
        // How many steps a trainer will do is not known here.
        let steps = config.filter(|config| config.task != "trainer");
        json!({
            "name": self.name,
            "folder": self.folder,
            "recipe": recipe.map(|name| name.to_string_lossy()),
            "steps": steps.map(|config| config.steps),
            "seed": steps.map(|config| config.seed),
            "step": self.step,
            "written": written.map(|time| time.as_secs()),
            "batches": batches.unwrap_or_default(),
        })
    }
}

/// Seconds since 1970, which the page's clock is compared with.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// The step of a line; none that is beyond four billion.
pub(super) fn step_of(line: &Value) -> Option<u64> {
    line["step"]
        .as_u64()
        .filter(|step| *step < u64::from(u32::MAX))
}

/// A file of lines, and how much of it was read.
struct Tail {
    path: PathBuf,
    end: u64,
    /// The last bytes before `end`.
    last: Vec<u8>,
}

impl Tail {
    fn new(path: PathBuf) -> Tail {
        Tail {
            path,
            end: 0,
            last: Vec::new(),
        }
    }

    /// Whether the file has no longer what was read of it.
    fn is_cut(&self) -> bool {
        let Ok(mut file) = File::open(&self.path) else {
            return self.end > 0;
        };
        let mut found = vec![0; self.last.len()];
        let from = SeekFrom::Start(self.end - self.last.len() as u64);
        let read = file.seek(from).and_then(|_| file.read_exact(&mut found));
        read.is_err() || found != self.last
    }

    /// Takes the whole lines that are new, up to the first that is no JSON.
    fn lines(&mut self, mut take: impl FnMut(Value)) {
        let Ok(mut file) = File::open(&self.path) else {
            return;
        };
        if file.seek(SeekFrom::Start(self.end)).is_err() {
            return;
        }
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line).is_ok() && line.ends_with(b"\n") {
            let Ok(value) = serde_json::from_slice(&line) else {
                return;
            };
            take(value);
            self.end += line.len() as u64;
            self.last = line.split_off(line.len().saturating_sub(MEMORY));
            line.clear();
        }
    }
}

/// Adds a number of a row to its curve.
fn add(curves: &mut BTreeMap<String, Points>, step: u64, path: String, value: &Value) {
    // Seven digits of a number are enough.
    let number = value.as_f64().map(|number| number as f32);
    let is_shown = |number: &f32| number.is_finite() && !UNSHOWN.contains(&&*path);
    let Some(number) = number.filter(is_shown) else {
        return;
    };
    let (path, after) = match path.split_once('/') {
        Some(("initial_evaluation", rest)) => (format!("evaluation/{rest}"), 0),
        Some(("evaluation", _)) => (path, 1),
        _ => (path, 0),
    };
    let point = ((step + after) as u32, number);
    curves.entry(path).or_default().push(point);
}
