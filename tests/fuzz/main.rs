//! Inputs that nobody would write, for everything that reads some, in this process: short in `cargo test`, long on request.
//!
//! No input may make it panic, hang, or take memory out of bounds; what else must hold is said at each target. A long run of one:
//!
//! ```sh
//! ADVLAB_FUZZ_SEED=7 ADVLAB_FUZZ_SECONDS=600 cargo test --release --features full --test fuzz -- --ignored parquet
//! ```
//!
//! `ADVLAB_FUZZ_COUNT` bounds the inputs, and `ADVLAB_FUZZ_INPUT` is a file to try alone. Each input that went wrong is kept in
//! `target/tmp/fuzz`; once it is mended, it belongs in `corpus/NAME`.

mod engine;
mod folders;
#[cfg(feature = "torch")]
mod models;
#[path = "../parquet_rows.rs"]
mod parquet_rows;
mod rollouts;
mod scripts;
mod texts;
mod watch;

use std::time::Duration;

use advlab::deep_stack;
use rayon::ThreadPoolBuilder;

use engine::{Plan, Target, asked};
use folders::{Folders, Page};
use rollouts::Reader;

/// A target: the inputs of a short run, the bytes that an input may allocate, and how it begins.
type Entry = (&'static str, u64, usize, fn() -> Box<dyn Target>);

const MB: usize = 1 << 20;

const TARGETS: &[Entry] = &[
    ("jsonl", 200, 64 * MB, || Reader::of("jsonl")),
    ("gz", 150, 64 * MB, || Reader::of("jsonl.gz")),
    ("zst", 150, 64 * MB, || Reader::of("jsonl.zst")),
    ("parquet", 150, 64 * MB, || Reader::of("parquet")),
    ("safetensors", 200, 64 * MB, || Reader::of("safetensors")),
    ("config", 300, 64 * MB, || Box::new(texts::Configs)),
    ("state", 500, 64 * MB, || Box::new(texts::States)),
    ("tokenizer", 100, 64 * MB, texts::Tokenizers::start),
    ("answers", 800, 64 * MB, || Box::new(texts::Answers)),
    ("scripts", 100, 224 * MB, scripts::Scripts::start),
    ("run", 12, 64 * MB, Folders::read),
    ("resume", 12, 64 * MB, Folders::resumed),
    #[cfg(feature = "torch")]
    ("model", 100, 64 * MB, models::start),
    ("page", 200, 64 * MB, Page::start),
];

/// Runs all targets for a moment, one after the other as they share what counts bytes; those that are named; or, with
/// `--ignored`, these for long. Options of the usual harness mean nothing here.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // The values of the usual harness's options are no names.
    let with_value = [
        "--test-threads",
        "--skip",
        "--format",
        "--color",
        "--logfile",
        "-Z",
    ];
    let (mut names, mut before): (Vec<&str>, &str) = (Vec::new(), "");
    for argument in &arguments {
        if !argument.starts_with('-') && !with_value.contains(&before) {
            names.push(argument);
        }
        before = argument;
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(*part));
    engine::collect_panics();
    if !TARGETS.iter().any(|target| is_chosen(target.0)) {
        let all: Vec<&str> = TARGETS.iter().map(|target| target.0).collect();
        println!(
            "no target has such a name: there are {}; `model` takes `--features torch`",
            all.join(", ")
        );
    }
    for (name, few, most_bytes, start) in TARGETS.iter().filter(|target| is_chosen(target.0)) {
        if has("--list") {
            println!("{name}: test");
            continue;
        }
        let is_long = has("--ignored");
        let asked = |name: &str| asked(name).filter(|_| is_long);
        let count = if is_long { u64::MAX } else { *few };
        let plan = Plan {
            seed: asked("SEED").unwrap_or(1),
            count: asked("COUNT").unwrap_or(count),
            time: if is_long {
                Duration::from_secs(asked("SECONDS").unwrap_or(60))
            } else {
                Duration::MAX
            },
            is_timed: is_long,
        };
        // No other thread has to be woken for an input.
        let alone = deep_stack::pool(ThreadPoolBuilder::new().num_threads(1)).build();
        let run = || engine::run(name, &*start(), *most_bytes, &plan);
        let share = alone.unwrap().install(run);
        // Scripts are written so that they run, and files so that some of them are read.
        let least = if *name == "scripts" { 0.5 } else { 0.01 };
        if !is_long && share <= least {
            engine::fail(&format!("{name}: only {share} of the inputs are accepted"));
        }
    }
}
