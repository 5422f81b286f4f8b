//! The other work that a run waits for: reading, steps of the maze, and a new version of a script.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

use advlab::files::{ReadOptions, read};
use advlab::{Batch, Host, LiveRecipe};
use advlab_train::{Config, Run};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

use crate::{IS_SHORT, Shape, batch};

/// JSONL with one line per response, and safetensors with all columns.
#[divan::bench(args = ["jsonl", "safetensors"])]
fn reading(bencher: Bencher<'_, '_>, kind: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("rollouts.{kind}"));
    if kind == "jsonl" {
        let rollouts = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rollouts.jsonl");
        let text = fs::read_to_string(rollouts).expect("rollouts");
        fs::write(&path, text.repeat(if *IS_SHORT { 4 } else { 256 })).expect("a file");
    } else {
        let shape = Shape(if *IS_SHORT { 4 } else { 128 }, 16, 4096);
        batch(shape).write_safetensors(&path).expect("a file");
    }
    let bytes = fs::metadata(&path).expect("a file").len();
    let bencher = bencher.counter(BytesCount::new(bytes));
    bencher.bench(|| read(&path, &ReadOptions::default()).expect("rollouts"));
}

/// Steps of the maze as in a run, but without evaluations. The time is for all steps together.
#[divan::bench(sample_count = 5)]
fn maze_steps(bencher: Bencher<'_, '_>) {
    let steps = if *IS_SHORT { 2 } else { 20 };
    let run = || {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config {
            steps,
            eval_every: 0,
            out: folder.path().join("run").display().to_string(),
            ..Config::default()
        };
        (Run::create(config).expect("a run"), folder)
    };
    bencher
        .with_inputs(run)
        .counter(ItemsCount::new(steps))
        .bench_local_values(|(mut run, folder)| {
            let ending = run.go(&AtomicBool::new(false), &mut |_| {});
            ending.expect("an end");
            folder
        });
}

/// Times a reload, from the save of a script to the step that uses it: the events settle, then the checks run.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn reload(bencher: Bencher<'_, '_>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.rhai");
    let mut saves = 0;
    let mut save = || {
        saves += 1;
        let text = format!("fn advantage(batch, p) {{ batch.reward * {saves} }}\n");
        fs::write(&path, text).expect("a file");
    };
    save();
    let name = path.display().to_string();
    let live = LiveRecipe::watch(&Host::new(), &name, Default::default());
    let (mut live, batch) = (live.expect("a recipe"), Batch::example());
    bencher.bench_local(|| {
        let step = |live: &mut LiveRecipe| live.step(&batch).expect("a step").loaded.serial();
        let before = step(&mut live);
        save();
        while step(&mut live) == before {
            sleep(Duration::from_millis(1));
        }
    });
}
