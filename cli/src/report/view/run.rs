//! A run that is followed by its files while they grow: numbers by name, and the events of its script.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use advlab_train::{Config, LogEvent, LogLine, RunFolder, flatten, is_stopped};

/// Bytes of the end of what was read of a file that are kept: if they change, the file was cut and went on.
const MEMORY: usize = 128;
/// The most marks of a curve: a screen cannot show more.
const MARKS: u64 = 400;
/// Bookkeeping in a row, which has no curve.
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
pub(super) struct FollowedRun {
    name: String,
    pub(super) folder: PathBuf,
    metrics: Tail,
    reloads: Tail,
    /// By name; an evaluation's number is at the number of steps that were done before it.
    pub(super) curves: BTreeMap<String, Points>,
    /// The lines of `reloads.jsonl`.
    pub(super) events: Vec<LogLine>,
    /// The newest step that has a row.
    pub(super) step: Option<u64>,
    /// How often its files were cut and read anew.
    pub(super) readings: usize,
    pub(super) config: Option<Config>,
    configured: Option<Stamp>,
    /// What the page shows above the curves.
    pub(super) heading: Value,
}

impl FollowedRun {
    /// A run in a folder, named by its path below `above`.
    pub(super) fn new(folder: PathBuf, above: &Path) -> FollowedRun {
        let below = folder.strip_prefix(above).unwrap_or(above);
        let name = if below.as_os_str().is_empty() {
            folder.as_path()
        } else {
            below
        };
        FollowedRun {
            name: name.display().to_string(),
            metrics: Tail::new(folder.join("metrics.jsonl")),
            reloads: Tail::new(folder.join("reloads.jsonl")),
            curves: BTreeMap::new(),
            events: Vec::new(),
            step: None,
            readings: 0,
            config: None,
            configured: None,
            heading: Value::Null,
            folder,
        }
    }

    /// Reads what was added to the files.
    pub(super) fn refresh(&mut self) {
        if self.metrics.is_cut() || self.reloads.is_cut() {
            *self = FollowedRun {
                name: self.name.clone(),
                readings: self.readings + 1,
                ..FollowedRun::new(self.folder.clone(), &self.folder)
            };
        }
        let path = self.folder.join("config.toml");
        let configured = stamp(&path);
        if configured != self.configured {
            // A resumed run may do more steps.
            (self.config, self.configured) = (Config::read(&path).ok(), configured);
        }
        let (curves, last) = (&mut self.curves, &mut self.step);
        self.metrics.lines(|row| {
            let step = step_of(&row).or(last.map(|last| last + 1));
            let step = *last.insert(step.unwrap_or(0));
            for (path, value) in flatten(&row) {
                add(curves, step, path, &value);
            }
        });
        self.reloads
            .lines(|line| self.events.push(LogLine::of(&line)));
        self.heading = self.heading();
    }

    fn heading(&self) -> Value {
        let written = stamp(&self.metrics.path);
        let batches = RunFolder::open(&self.folder).map(|kept| {
            let steps = kept.batches().iter().map(|(step, _)| *step);
            steps.collect::<Vec<_>>()
        });
        let config = self.config.as_ref();
        let recipe = config.map(|config| Path::new(&config.recipe));
        let recipe = recipe.and_then(Path::file_name);
        // The number of a trainer's steps is not known.
        let steps = config.filter(|config| config.task != "trainer");
        let (at, is_over) = self.place(steps.map(|config| config.steps));
        json!({
            "at": at,
            "is_over": is_over,
            "name": self.name,
            "folder": self.folder,
            "recipe": recipe.map(|name| name.to_string_lossy()),
            "steps": steps.map(|config| config.steps),
            "seed": steps.map(|config| config.seed),
            "step": self.step,
            "written": written.map(|(time, _)| time.as_secs()),
            "batches": batches.unwrap_or_default(),
        })
    }

    /// How far it is, or why that is not known; and whether it is over.
    fn place(&self, steps: Option<u64>) -> (String, bool) {
        if !self.folder.is_dir() {
            return ("the folder is gone".to_string(), true);
        }
        let problems = [&self.metrics, &self.reloads].map(|tail| tail.problem.clone());
        if let Some(problem) = problems.into_iter().flatten().next() {
            return (problem, true);
        }
        let done = self.step.map_or(0, |step| step + 1);
        let at = match steps {
            _ if done == 0 => "the first step".to_string(),
            Some(steps) => format!("step {done} of {steps}"),
            None => format!("step {done}"),
        };
        if done > 0 && steps.is_some_and(|steps| done >= steps) {
            (format!("{at}, finished"), true)
        } else if is_stopped(&self.folder, done) {
            let before = if done == 0 { "before" } else { "at" };
            (format!("stopped {before} {at}"), true)
        } else if done == 0 {
            (format!("waiting for {at}"), false)
        } else {
            (at, false)
        }
    }

    /// The marks of all curves from a step on, which is the first of a mark: `[step, mean, least, most]`, or `[step, value]`
    /// if each step has its own.
    pub(super) fn marks(&self, width: u64, from: u64) -> Value {
        let mark_of = |point: &(u32, f32)| u64::from(point.0) / width;
        let mark = |all: &[(u32, f32)]| {
            let (step, values) = (all[0].0, all.iter().map(|point| point.1));
            let mean = values.clone().map(f64::from).sum::<f64>() / all.len() as f64;
            if width == 1 {
                return json!([step, rounded(mean)]);
            }
            let ends = [values.clone().reduce(f32::min), values.reduce(f32::max)];
            let [least, most] = ends.map(|end| rounded(end.unwrap_or(f32::NAN).into()));
            json!([step, rounded(mean), least, most])
        };
        let curves = self.curves.iter().filter_map(|(name, points)| {
            let first = points.partition_point(|point| u64::from(point.0) < from);
            let all = points[first..].chunk_by(|a, b| mark_of(a) == mark_of(b));
            let marks: Vec<Value> = all.map(mark).collect();
            (!marks.is_empty()).then(|| (name.clone(), marks.into()))
        });
        curves.collect::<serde_json::Map<_, _>>().into()
    }

    /// The numbers before a step, and from it on: means over as many steps as there are between it and the next change on
    /// either side, at most 50.
    pub(super) fn around(&self, step: u64, (least, most): (u64, u64)) -> Value {
        let from = least.max(step.saturating_sub(50));
        let to = most.min(step + 50);
        let mean = |points: &Points, from: u64, to: u64| {
            let place = |step: u64| points.partition_point(|point| u64::from(point.0) < step);
            let own = points.get(place(from)..place(to)).unwrap_or_default();
            let sum: f64 = own.iter().map(|point| f64::from(point.1)).sum();
            (!own.is_empty()).then(|| rounded(sum / own.len() as f64))
        };
        let of = |(name, points): (&String, &Points)| {
            // An evaluation after the step before is one of what was before.
            let late = u64::from(name.starts_with("evaluation/"));
            // The first one of all comes before the first step.
            let first = if from == 0 { 0 } else { from + late };
            let before = mean(points, first, step + late);
            json!([name, before, mean(points, step + late, to + late)])
        };
        json!({ "from": from, "to": to, "means": self.curves.iter().map(of).collect::<Vec<_>>() })
    }
}

/// How many steps a mark stands for: a power of two, so that existing marks stay when a run goes on.
pub(super) fn mark_width(steps: u64) -> u64 {
    (steps / MARKS + 1).next_power_of_two()
}

/// Five digits of a number: a screen cannot show more.
pub(super) fn rounded(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

/// When a file was written, since 1970, and its length: two saves within a tick of the clock have one time.
type Stamp = (Duration, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    let written = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((written, file.len()))
}

/// The first digits of a version, as in messages.
fn short(version: &str) -> &str {
    version.get(..6).unwrap_or(version)
}

/// An event as the page shows it: its step, its kind, which is how its mark looks, and its line. None of what nobody looks for.
pub(super) fn line_of(line: &LogLine) -> Value {
    let step = line.step;
    let (kind, text) = match &line.event {
        LogEvent::Start { recipe, .. } => ("", format!("{} begins", short(&recipe.version))),
        LogEvent::Use {
            recipe,
            from,
            lines_added,
            lines_removed,
            ..
        } => {
            let (from, version) = (short(from), short(&recipe.version));
            let text = format!("{from} → {version}  +{lines_added} −{lines_removed}");
            ("use", text)
        }
        LogEvent::Rejected { version, error, .. } => {
            ("bad", format!("rejected {}: {error}", short(version)))
        }
        LogEvent::Failed { recipe, error, .. } => {
            ("bad", format!("failed {}: {error}", short(&recipe.version)))
        }
        LogEvent::Warning { message } => ("note", message.clone()),
        _ => return json!({ "step": step }),
    };
    json!({ "step": step, "kind": kind, "line": text })
}

/// Seconds since 1970, with which the page compares its clock.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// The step of a line; none that is beyond four billion.
pub fn step_of(line: &Value) -> Option<u64> {
    line["step"]
        .as_u64()
        .filter(|step| *step < u64::from(u32::MAX))
}

/// A file of lines that grows, and how much of it was read.
struct Tail {
    path: PathBuf,
    end: u64,
    /// The last bytes before `end`.
    last: Vec<u8>,
    /// The number of lines that were read.
    read: u64,
    /// Why it cannot be read, or not beyond some line.
    problem: Option<String>,
}

impl Tail {
    fn new(path: PathBuf) -> Tail {
        Tail {
            path,
            end: 0,
            last: Vec::new(),
            read: 0,
            problem: None,
        }
    }

    /// Whether the file no longer has what was read of it.
    fn is_cut(&self) -> bool {
        let Ok(mut file) = advlab::regular_file::open(&self.path) else {
            return self.end > 0;
        };
        let mut found = vec![0; self.last.len()];
        let from = SeekFrom::Start(self.end - self.last.len() as u64);
        let read = file.seek(from).and_then(|_| file.read_exact(&mut found));
        read.is_err() || found != self.last
    }

    /// Passes on the new whole lines, up to the first that is not JSON.
    fn lines(&mut self, take: impl FnMut(Value)) {
        self.problem = match self.read_on(take) {
            // It does not exist yet.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                let name = self.path.file_name().unwrap_or_default();
                Some(format!("cannot read {}: {error}", name.display()))
            }
            Ok(()) => None,
        };
    }

    fn read_on(&mut self, mut take: impl FnMut(Value)) -> io::Result<()> {
        let mut file = advlab::regular_file::open(&self.path)?;
        file.seek(SeekFrom::Start(self.end))?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            let value = serde_json::from_slice(&line).map_err(|error| {
                io::Error::other(format!("its line {} is no JSON: {error}", self.read + 1))
            })?;
            take(value);
            self.read += 1;
            self.end += line.len() as u64;
            self.last = line.split_off(line.len().saturating_sub(MEMORY));
            line.clear();
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_run_says_how_far_it_is_or_why_that_is_not_known() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("run");
        fs::create_dir_all(run.join("checkpoints")).unwrap();
        let mut followed = FollowedRun::new(run.clone(), place.path());
        let mut expect = |at: &str, is_over: bool| {
            followed.refresh();
            let heading = &followed.heading;
            assert_eq!(heading["at"], at);
            assert_eq!(heading["is_over"], is_over, "{at}");
        };
        let metrics = |text: &str| fs::write(run.join("metrics.jsonl"), text).unwrap();
        let checkpoint = |name: &str| fs::create_dir(run.join("checkpoints").join(name)).unwrap();
        let lock = std::fs::File::create(run.join("lock")).unwrap();
        lock.lock().unwrap();
        expect("waiting for the first step", false);
        checkpoint("000000");
        expect("waiting for the first step", false);
        lock.unlock().unwrap();
        expect("stopped before the first step", true);
        // A run that was killed, or is of another machine: nothing is known.
        metrics("{\"step\":0}\n{\"step\":1}\n");
        expect("step 2", false);
        checkpoint("000002");
        expect("stopped at step 2", true);
        lock.lock().unwrap();
        expect("step 2", false);
        fs::write(run.join("config.toml"), "steps = 2\n").unwrap();
        expect("step 2 of 2, finished", true);
        // It goes on to more steps.
        fs::write(run.join("config.toml"), "steps = 400\n").unwrap();
        expect("step 2 of 400", false);
        fs::remove_file(run.join("config.toml")).unwrap();
        metrics("{\"step\":0}\n{\"step\":1}\nnothing\n");
        let broken = "its line 3 is no JSON: expected ident at line 1 column 2";
        expect(&format!("cannot read metrics.jsonl: {broken}"), true);
        metrics("{\"step\":0}\n{\"step\":1}\n{\"st");
        expect("step 2", false);
        fs::remove_file(run.join("metrics.jsonl")).unwrap();
        fs::create_dir(run.join("metrics.jsonl")).unwrap();
        if cfg!(unix) {
            let folder = "cannot read metrics.jsonl: it is a folder";
            expect(folder, true);
        }
        fs::remove_dir_all(&run).unwrap();
        expect("the folder is gone", true);
    }

    #[test]
    fn marks_are_few_and_keep_the_extremes() {
        let mut run = FollowedRun::new("nowhere".into(), Path::new("nowhere"));
        let points = (0..100_000u32).map(|step| (step, f32::from(u8::from(step == 77_777))));
        run.curves
            .insert("reward_mean".to_string(), points.collect());
        let width = mark_width(100_000);
        let all = run.marks(width, 0);
        let marks = all["reward_mean"].as_array().unwrap();
        assert!(marks.len() as u64 <= MARKS, "{}", marks.len());
        let most = marks.iter().filter_map(|mark| mark[3].as_f64());
        assert_eq!(most.fold(0.0, f64::max), 1.0);
        // From a mark on, they are the same marks.
        let tail = run.marks(width, 99_999 / width * width);
        assert_eq!(tail["reward_mean"][0], *marks.last().unwrap());
    }

    #[test]
    fn means_around_a_change_end_at_its_neighbours() {
        let mut run = FollowedRun::new("nowhere".into(), Path::new("nowhere"));
        let points = (0..100u32).map(|step| (step, if step < 40 { 1.0 } else { 3.0 }));
        run.curves.insert("loss".to_string(), points.collect());
        let evaluations = vec![(0, 5.0), (40, 6.0), (80, 8.0)];
        run.curves
            .insert("evaluation/pass@1".to_string(), evaluations);
        let all = run.around(40, (20, 60));
        let expected = json!([["evaluation/pass@1", 6.0, null], ["loss", 1.0, 3.0]]);
        assert_eq!(all["means"], expected);
        // The evaluation before the first step is one of the first version.
        let all = run.around(30, (0, 60));
        let expected = json!([["evaluation/pass@1", 5.0, 6.0], ["loss", 1.0, 2.3333]]);
        assert_eq!(all["means"], expected);
    }
}
