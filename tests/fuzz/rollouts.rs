//! Files of rollouts: a reader names the file in its error, or what it read survives every way to write and read it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use advlab::Batch;
use advlab::batch::{Computed, Level};
use advlab::diagnostic::Diagnostics;
use advlab::files::{self, ReadOptions, Rollouts};
use rand::RngExt;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{
    Rng, Target, contents as contents_of, files as files_in, json_or_bytes, mutated, pick, root,
    shaken,
};
use crate::parquet_rows;
use crate::texts::holds;

/// A folder in memory, if the machine has one.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.into()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(place).unwrap()
}

/// Two threads, for one input of eight: the fuzzer itself runs in a pool of one.
static TWO: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new().num_threads(2);
    pool.build().unwrap()
});

/// The result of a function by two threads; `None` for seven of eight inputs.
pub fn by_two<R: Send>(input: &[u8], run: impl FnOnce() -> R + Send) -> Option<R> {
    input.len().is_multiple_of(8).then(|| TWO.install(run))
}

/// Fields that readers know, and values that are hard to read.
const WORDS: &str = r#""group"~"reward":1~"correct":true~"mask":[1,0]~"old_logp":[]~"logp":[-0.5,NaN]~"length":3~"length":1e18~"completion"~
"prompt":null~"solution":7~"value":{"a":1}~"turn":1.5~"trajectory":"t"~"weight":-1~"step":3~"advantage":[1,2]~"input":"a"~"output":"b c"~
"score":0.5~"token_reward":[0,1]~[{"role":"user","content":"a"}]~null~true~NaN~-Infinity~"\ud800"~"\u0000"~[[1],[2]]~[]~{}~,~
~0.1e-400~"gr\u006fup"~"ids":[1,2]~"state":["a"]"#;
/// Names of fields, of tensors, and of what a header says of them.
const NAMES: &str = "group~reward~correct~mask~old_logp~length~completion~prompt~index~turn~trajectory~step~advantage~weight~rewards~values~\
     response_mask~token_level_rewards~old_log_probs~attention_mask~dtype~shape~data_offsets~__metadata__~texts~group_names~advlab~";
/// A format, by the ending of its files.
pub struct Reader {
    ending: &'static str,
    folder: TempDir,
}

/// All files of the tests' data with an ending.
fn data(ending: &str) -> Vec<Vec<u8>> {
    let mut all = files_in(&root("tests/data"));
    all.extend(files_in(&root("tests/fuzz/corpus/jsonl")));
    all.retain(|(path, _)| path.to_string_lossy().ends_with(ending));
    contents_of(all)
}

static LINES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| data(".jsonl"));

/// A safetensors file with another header, whose length is right.
fn with_header(rng: &mut Rng, file: &[u8]) -> Option<Vec<u8>> {
    let length = u64::from_le_bytes(file.get(..8)?.try_into().ok()?);
    let (header, data) = file[8..].split_at_checked(usize::try_from(length).ok()?)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    let header = shaken(rng, header, NAMES).to_string();
    let length = (header.len() as u64).to_le_bytes();
    Some([&length, header.as_bytes(), data].concat())
}

/// A parquet file with changes in its footer, whose length is right.
fn with_footer(rng: &mut Rng, file: &[u8]) -> Option<Vec<u8>> {
    let (rest, end) = file.split_at_checked(file.len().checked_sub(8)?)?;
    let length = u32::from_le_bytes(end[..4].try_into().ok()?) as usize;
    let (data, footer) = rest.split_at_checked(rest.len().checked_sub(length)?)?;
    let footer = mutated(rng, &[footer.to_vec()], "");
    let length = (footer.len() as u32).to_le_bytes();
    Some([data, &footer, &length, &end[4..]].concat())
}

impl Target for Reader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds = data(&format!(".{}", self.ending));
        seeds.extend(LINES.iter().filter_map(|lines| self.converted(lines)));
        seeds
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let seed = pick(rng, corpus);
        let made = match self.ending {
            "jsonl" => return json_or_bytes(rng, corpus, NAMES, WORDS),
            _ if rng.random_range(0..4) == 0 => None,
            "safetensors" => with_header(rng, &seed),
            "parquet" if rng.random() => with_footer(rng, &seed),
            _ => self.converted(&json_or_bytes(rng, &LINES, NAMES, WORDS)),
        };
        made.unwrap_or_else(|| mutated(rng, corpus, ""))
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let path = self.path("in");
        fs::write(&path, input).unwrap();
        let found = read(&path);
        if let (true, Ok(found)) = (self.ending.starts_with("jsonl."), &found) {
            self.check_unpacked(found)?;
        }
        match (&found, by_two(input, || read(&path))) {
            (Ok(found), Some(Ok(again))) => same("by 2 threads", &found.batch, &again.batch)?,
            (Err(error), Some(Err(again))) if *error != again => {
                return Err(format!("2 threads find another error: {error} | {again}"));
            }
            (Err(error), Some(Ok(_))) => return Err(format!("only 2 threads read it: {error}")),
            (Ok(_), Some(Err(error))) => return Err(format!("only 1 thread reads it: {error}")),
            _ => {}
        }
        match found {
            Ok(rollouts) => self.check_read(&rollouts).map(|()| true),
            Err(error) => self.is_named(&error).map(|()| false),
        }
    }
}

fn read(path: &Path) -> Result<Rollouts, Diagnostics> {
    files::read(path, &ReadOptions::default())
}

impl Reader {
    pub fn of(ending: &'static str) -> Box<dyn Target> {
        let folder = folder();
        Box::new(Reader { ending, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.{}", self.ending))
    }

    /// That an error names the input's file.
    fn is_named(&self, error: &Diagnostics) -> Result<(), String> {
        let path = self.path("in");
        let is_named = error.iter().all(|at| at.file.path == path);
        holds(is_named, || {
            format!("an error does not name the file: {error}")
        })
    }

    /// Lines in this format, with an advantage if the library writes it.
    fn converted(&self, lines: &[u8]) -> Option<Vec<u8>> {
        let (plain, packed) = (self.folder.path().join("plain.jsonl"), self.path("packed"));
        fs::write(&plain, lines).unwrap();
        match self.ending {
            "parquet" => parquet_rows::write(&packed, std::str::from_utf8(lines).ok()?)?,
            "safetensors" => read(&plain).ok()?.batch.write_safetensors(&packed).ok()?,
            _ => written(&read(&plain).ok()?, &packed).ok()?,
        }
        fs::read(packed).ok()
    }

    /// That a compressed file reads as its lines do.
    fn check_unpacked(&self, rollouts: &Rollouts) -> Result<(), String> {
        let copies = [
            self.path("repacked"),
            self.folder.path().join("unpacked.jsonl"),
        ];
        if copies.iter().any(|copy| written(rollouts, copy).is_err()) {
            return Ok(());
        }
        let [packed, unpacked] = copies.map(|copy| read(&copy));
        match (packed, unpacked) {
            (Ok(packed), Ok(unpacked)) => same("unpacked", &packed.batch, &unpacked.batch),
            (Err(error), _) | (_, Err(error)) => Err(format!("a copy cannot be read: {error}")),
        }
    }

    fn check_read(&self, rollouts: &Rollouts) -> Result<(), String> {
        let batch = &rollouts.batch;
        // A length may be billions of tokens, which is a batch, and no padded file.
        if batch.layout().tokens() > 1 << 16 {
            return Ok(());
        }
        let failed = |how: &'static str| move |error: Diagnostics| format!("{how} fails: {error}");
        let none = BTreeSet::new();
        let options = ReadOptions {
            columns: Some(&none),
            ..ReadOptions::default()
        };
        let bare = files::read(self.path("in"), &options).map_err(failed("reading no array"))?;
        let (bare, layout) = (bare.batch.layout(), batch.layout());
        holds(bare == layout, || {
            "another layout without arrays".to_string()
        })?;
        let saved = self.folder.path().join("saved.safetensors");
        batch.write_safetensors(&saved).map_err(failed("saving"))?;
        let read_back = read(&saved).map_err(failed("reading what is saved"))?;
        same("saved", batch, &read_back.batch)?;
        let copy = self.path("copy");
        if written(rollouts, &copy).is_ok() {
            let copy = read(&copy).map_err(failed("reading the copy"))?.batch;
            let is_there = match copy.response_column("advantage") {
                Some(values) => values.iter().all(|&value| value == 0.5),
                None => copy.token_column("advantage").is_some(),
            };
            holds(is_there, || "the copy has another advantage".to_string())?;
        }
        Ok(())
    }
}

/// Writes a copy with an advantage of a half for each response.
fn written(rollouts: &Rollouts, copy: &Path) -> Result<(), Diagnostics> {
    let layout = rollouts.batch.layout();
    let halves = vec![0.5; layout.responses()];
    let advantage = Computed::new(layout.clone(), Level::Response, halves);
    rollouts.write_advantage(copy, &advantage)
}

/// Everything in a batch as text; numbers by their bits, any NaN alike.
fn contents(batch: &Batch) -> String {
    let layout = batch.layout();
    let bits = |value: f64| (!value.is_nan()).then(|| value.to_bits());
    let mut text = format!("{:?}\n", batch.given_step());
    for response in 0..layout.responses() {
        let group = layout.group_id(layout.group_of(response));
        text += &format!("{group:?} {:?}", layout.runs(response));
        for (name, column) in batch.token_columns() {
            let values: Vec<_> = column.of_response(layout, response).map(bits).collect();
            text += &format!(" {name} {values:?}");
        }
        for (name, column) in batch.response_columns() {
            text += &format!(" {name} {:?}", bits(column[response]));
        }
        for (name, texts) in batch.texts() {
            text += &format!(" {name} {:?}", texts[response]);
        }
        text += "\n";
    }
    text
}

/// That two batches have the same contents, if these are not too large to be compared as text.
fn same(how: &str, a: &Batch, b: &Batch) -> Result<(), String> {
    if a.layout().tokens().max(b.layout().tokens()) > 1 << 16 {
        return Ok(());
    }
    let (a, b) = (contents(a), contents(b));
    let differ = || a.lines().zip(b.lines()).find(|(a, b)| a != b);
    holds(a == b, || format!("another batch {how}: {:?}", differ()))
}
