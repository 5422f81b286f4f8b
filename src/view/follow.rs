//! A run as its files tell it while they grow: numbers by name, and what happened to its script.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

use crate::train::{Config, Kept};

/// The end of what was read of a file is kept so long: where it is another one, the file was cut and went on.
const MEMORY: usize = 128;
/// Bookkeeping of a row that no curve is wanted of.
const UNSHOWN: [&str; 6] = [
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
}

impl Followed {
    pub(super) fn new(folder: PathBuf) -> Followed {
        Followed {
            metrics: Tail::new(folder.join("metrics.jsonl")),
            reloads: Tail::new(folder.join("reloads.jsonl")),
            curves: BTreeMap::new(),
            events: Vec::new(),
            step: None,
            readings: 0,
            config: None,
            folder,
        }
    }

    /// Reads what the files have beyond what was read.
    pub(super) fn refresh(&mut self) {
        if self.metrics.is_cut() || self.reloads.is_cut() {
            let readings = self.readings + 1;
            *self = Followed::new(self.folder.clone());
            self.readings = readings;
        }
        if self.config.is_none() {
            self.config = Config::read(&self.folder.join("config.toml")).ok();
        }
        let (curves, step) = (&mut self.curves, &mut self.step);
        self.metrics.lines(|line| {
            let next = step.map_or(0, |step| step + 1);
            let mut row = Row { curves, step: next };
            let mut json = serde_json::Deserializer::from_slice(line);
            let seed = Numbers {
                row: &mut row,
                path: &mut String::new(),
            };
            let is_row = seed.deserialize(&mut json).is_ok();
            if is_row {
                *step = Some(row.step);
            }
            is_row
        });
        let events = &mut self.events;
        self.reloads
            .lines(|line| match serde_json::from_slice(line) {
                Ok(event) => {
                    events.push(event);
                    true
                }
                Err(_) => false,
            });
    }

    /// What is said of the run at each update.
    pub(super) fn heading(&self) -> Value {
        let written = std::fs::metadata(&self.metrics.path).and_then(|file| file.modified());
        let written = written
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let name = self.folder.file_name().map(|name| name.to_string_lossy());
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
            "name": name.unwrap_or_else(|| self.folder.to_string_lossy()),
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

    /// Takes the whole lines that are new, up to the first that is refused.
    fn lines(&mut self, mut take: impl FnMut(&[u8]) -> bool) {
        let Ok(mut file) = File::open(&self.path) else {
            return;
        };
        if file.seek(SeekFrom::Start(self.end)).is_err() {
            return;
        }
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line).is_ok() && line.ends_with(b"\n") && take(&line) {
            self.end += line.len() as u64;
            self.last.clear();
            self.last.extend(&line[line.len().saturating_sub(MEMORY)..]);
            line.clear();
        }
    }
}

/// A row that is being read.
struct Row<'a> {
    curves: &'a mut BTreeMap<String, Points>,
    step: u64,
}

impl Row<'_> {
    fn add(&mut self, path: &str, number: f64) {
        if path == "step" {
            // A step is a whole number.
            self.step = number as u64;
            return;
        }
        let (path, after) = match path.split_once('/') {
            Some(("initial_evaluation", rest)) => (format!("evaluation/{rest}"), 0),
            Some(("evaluation", _)) => (path.to_string(), 1),
            _ if UNSHOWN.contains(&path) || !number.is_finite() => return,
            _ => (path.to_string(), 0),
        };
        // Four billion steps are enough, and seven digits of a number.
        let point = ((self.step + after) as u32, number as f32);
        match self.curves.get_mut(&path) {
            Some(points) => points.push(point),
            None => drop(self.curves.insert(path, vec![point])),
        }
    }
}

/// Takes the numbers of a row by their paths, without making values of it: a long run has many.
struct Numbers<'a, 'b> {
    row: &'a mut Row<'b>,
    path: &'a mut String,
}

impl<'de> DeserializeSeed<'de> for Numbers<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Numbers<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.row.add(self.path, number);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let length = self.path.len();
        while let Some(name) = entries.next_key::<String>()? {
            if length > 0 {
                self.path.push('/');
            }
            self.path.push_str(&name);
            entries.next_value_seed(Numbers {
                row: self.row,
                path: self.path,
            })?;
            self.path.truncate(length);
        }
        Ok(())
    }
}
