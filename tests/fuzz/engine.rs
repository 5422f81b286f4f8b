//! The fuzzer: makes inputs from seeds, each by the run's seed and its own number, tries them, and keeps what went wrong.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::watch::{end_hangs, measured};

pub type Rng = ChaCha8Rng;

/// Something that reads inputs.
pub trait Target {
    /// Inputs to begin with, besides those in the folder of its name in `corpus`.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Another input.
    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8>;

    /// Whether the input is accepted; the error says what must not be.
    fn check(&self, input: &[u8]) -> Result<bool, String>;
}

/// How long a run is: until it has done so many inputs, or so much time has passed.
pub struct Plan {
    pub seed: u64,
    pub count: u64,
    pub time: Duration,
    /// Whether inputs that take long are reported; otherwise only those that take minutes, which end the process.
    pub is_timed: bool,
}

/// The longest that an input may take, on a machine with other work too.
const SLOWEST: Duration = Duration::from_secs(10);
/// Different problems after which a run ends.
const ENOUGH: usize = 20;

/// Panics that nobody expected, wherever they were caught.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn panics() -> MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of an environment variable `ADVLAB_FUZZ_...`.
pub fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(format!("ADVLAB_FUZZ_{name}"));
    value.ok()?.parse().ok()
}

/// The path of a file or folder of the repository.
pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The files in a folder and below it, in the order of their paths.
pub fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| match fs::read(&path) {
        Ok(bytes) => vec![(path, bytes)],
        Err(_) => files(&path),
    };
    paths.into_iter().flat_map(read).collect()
}

pub fn contents(files: Vec<(PathBuf, Vec<u8>)>) -> Vec<Vec<u8>> {
    files.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Runs a target, and returns the share of inputs that it accepted. Each input of its folder in `corpus` comes first.
pub fn run(name: &str, target: &dyn Target, most_bytes: usize, plan: &Plan) -> f64 {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).unwrap();
    let last = folder.join(format!("{name}.last"));
    let (mut last_file, started) = (File::create(&last).unwrap(), Instant::now());
    end_hangs(if plan.is_timed { 6 } else { 60 } * SLOWEST, last);
    let only: Option<PathBuf> = asked("INPUT");
    let mut corpus = match &only {
        Some(only) => vec![fs::read(only).unwrap()],
        None => contents(files(&root("tests/fuzz/corpus").join(name))),
    };
    let given = corpus.len() as u64;
    corpus.extend(target.seeds());
    let (mut findings, mut done, mut accepted) = (BTreeMap::new(), 0, 0);
    let (mut most, mut slowest) = (0, Duration::ZERO);
    let goes_on = |done: u64| {
        let is_within = done.saturating_sub(given) < plan.count && started.elapsed() < plan.time;
        done < given || is_within && only.is_none()
    };
    while goes_on(done) && findings.len() < ENOUGH {
        let mut rng = Rng::seed_from_u64(plan.seed);
        rng.set_stream(done);
        let input = if done < given {
            corpus[done as usize].clone()
        } else {
            target.make(&mut rng, &corpus)
        };
        // Whatever ends the process, the input can be found.
        let written = last_file.rewind().and_then(|()| last_file.set_len(0));
        written.and_then(|()| last_file.write_all(&input)).unwrap();
        let check = || catch_unwind(AssertUnwindSafe(|| target.check(&input)));
        let (result, bytes, took) = measured(check);
        (most, slowest) = (most.max(bytes), slowest.max(took));
        accepted += u64::from(done >= given && matches!(result, Ok(Ok(true))));
        let panicked = std::mem::take(&mut *panics()).into_iter().next();
        let problem = panicked.or_else(|| result.ok()?.err());
        let is_large = (bytes > most_bytes).then(|| format!("too much memory: {bytes} bytes"));
        let is_slow = (plan.is_timed && took > SLOWEST).then(|| format!("too slow: {took:.1?}"));
        if let Some(problem) = problem.or(is_large).or(is_slow) {
            // One of each kind: by its text up to the first detail.
            let kind = problem.split(": ").next().unwrap_or_default().to_string();
            findings.entry(kind).or_insert_with(|| {
                let path = folder.join(format!("{name}-{}-{done}", plan.seed));
                fs::write(&path, &input).unwrap();
                format!("{problem}\n    the input is {}", path.display())
            });
        }
        done += 1;
    }
    let (time, share) = (
        started.elapsed(),
        accepted as f64 / (done - given).max(1) as f64,
    );
    println!(
        "{name}: {done} inputs in {time:.1?}, seed {}, {:.1} % accepted, at most {:.1} MB and {slowest:.2?}",
        plan.seed,
        100.0 * share,
        most as f64 / 1e6,
    );
    let findings: Vec<String> = findings.into_values().collect();
    if !findings.is_empty() {
        fail(&format!("{name}:\n{}", findings.join("\n")));
    }
    share
}

/// Collects panics, but for those that the library turns into errors, for the rest of the process.
pub fn collect_panics() {
    std::panic::set_hook(Box::new(|info| panics().push(info.to_string())));
    advlab::panics::silence_caught();
}

/// Ends the test with a message, which a panic would not print.
pub fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}

pub fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())].clone()
}

/// One of some words, which `~` separates.
pub fn word<'a>(rng: &mut Rng, words: &'a str) -> &'a str {
    let words: Vec<&str> = words.split('~').collect();
    pick(rng, &words)
}

/// Numbers at the edges of their types.
const NUMBERS: &str = "0~1~-1~2~7~0.5~-0.0~1.5~255~65536~2147483648~4294967295~4294967296~9007199254740993~1152921504606846976~\
     9223372036854775807~-9223372036854775808~18446744073709551615~99999999999999999999~1e308~1e-320~-1e999";

/// An input of the corpus with a few changes; `words` are pieces that the format knows.
pub fn mutated(rng: &mut Rng, corpus: &[Vec<u8>], words: &str) -> Vec<u8> {
    let mut bytes = pick(rng, corpus);
    for _ in 0..pick(rng, &[1, 1, 1, 2, 3, 8]) {
        if bytes.is_empty() {
            bytes.push(b'x');
        }
        let at = rng.random_range(0..bytes.len());
        let end = (at + rng.random_range(1..40)).min(bytes.len());
        match rng.random_range(0..10) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let (piece, to) = (bytes[at..end].to_vec(), rng.random_range(0..bytes.len()));
                bytes.splice(to..to, piece);
            }
            5 => {
                let other = pick(rng, corpus);
                let from = rng.random_range(0..=other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
            6 => {
                let number = 1u64 << rng.random_range(0..64);
                let number = number.wrapping_sub(rng.random_range(0..2)).to_le_bytes();
                let width = pick(rng, &[2, 4, 8]).min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            7 => drop(bytes.splice(at..at, word(rng, words).bytes())),
            8 => bytes[at..end].fill(pick(rng, &[0, 255])),
            _ => {
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let from = at
                    + bytes[at..]
                        .iter()
                        .take_while(|byte| !is_digit(byte))
                        .count();
                let length = bytes[from..].iter().take_while(|byte| is_digit(byte));
                let length = length.count();
                bytes.splice(from..from + length, word(rng, NUMBERS).bytes());
            }
        }
    }
    // What grows from input to input would slow all down.
    bytes.truncate(1 << 16);
    bytes
}

/// An input of the corpus with a few values of its JSON changed, or of one of its lines; or with a few of its bytes changed.
pub fn json_or_bytes(rng: &mut Rng, corpus: &[Vec<u8>], names: &str, words: &str) -> Vec<u8> {
    let seed = pick(rng, corpus);
    let text = String::from_utf8_lossy(&seed);
    let mut lines: Vec<&str> = match serde_json::from_str::<IgnoredAny>(&text) {
        Ok(_) => vec![&text],
        Err(_) => text.lines().collect(),
    };
    let chosen = rng.random_range(0..lines.len().max(1));
    let line = lines.get(chosen).filter(|_| rng.random_range(0..3) > 0);
    match line.and_then(|line| serde_json::from_str(line).ok()) {
        Some(json) => {
            let json = shaken(rng, json, names).to_string();
            lines[chosen] = &json;
            (lines.join("\n") + "\n").into_bytes()
        }
        None => mutated(rng, corpus, words),
    }
}

/// JSON with a few of its values changed: replaced, left out, doubled, renamed, or put elsewhere.
pub fn shaken(rng: &mut Rng, mut json: Value, names: &str) -> Value {
    for _ in 0..pick(rng, &[1, 1, 1, 2, 4]) {
        let donor = random_node(rng, &mut json).clone();
        let node = random_node(rng, &mut json);
        let value = match rng.random_range(0..8) {
            0 => donor,
            1 => Value::Null,
            2 => word(rng, "~a~\0~é~NaN~1~😀 b").into(),
            3 => Value::Array(Vec::new()),
            4 => vec![donor.clone(), donor].into(),
            5 => rng.random::<bool>().into(),
            _ => serde_json::from_str(word(rng, NUMBERS)).unwrap_or_default(),
        };
        match (node, rng.random_range(0..6)) {
            (Value::Object(map), 0..3) if !map.is_empty() => {
                let key = map.keys().nth(rng.random_range(0..map.len())).cloned();
                let key = key.unwrap_or_default();
                let old = map.remove(&key).unwrap_or_default();
                match rng.random_range(0..3) {
                    0 => {}
                    1 => drop(map.insert(word(rng, names).to_string(), old)),
                    _ => drop(map.insert(key, value)),
                }
            }
            (Value::Object(map), 3) => drop(map.insert(word(rng, names).to_string(), value)),
            (Value::Array(array), 0) => drop(array.pop()),
            (Value::Array(array), 1) => array.push(value),
            (node, _) => *node = value,
        }
    }
    json
}

/// A value in a value: itself, or deeper.
fn random_node<'a>(rng: &mut Rng, json: &'a mut Value) -> &'a mut Value {
    let inner = match json {
        Value::Object(map) => map.len(),
        Value::Array(array) => array.len(),
        _ => 0,
    };
    if inner == 0 || rng.random_range(0..6) == 0 {
        return json;
    }
    let index = rng.random_range(0..inner);
    match json {
        Value::Object(map) => random_node(rng, map.values_mut().nth(index).unwrap()),
        Value::Array(array) => random_node(rng, &mut array[index]),
        _ => unreachable!("it has no values in it"),
    }
}
