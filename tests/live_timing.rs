//! How long a reload takes: from the save until it is ready, and of the run's own time. Only on request, as it needs a machine that
//! does nothing else: `cargo test --release --test live_timing -- --ignored --nocapture --test-threads 1`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use advlab::live::LiveOptions;
use advlab::{Batch, Host, LiveRecipe};

fn script(version: u32) -> String {
    format!(
        "fn params() {{ #{{ k: #{{ value: {version}, min: 1 }} }} }}
fn init(p) {{ #{{ n: 0, means: [] }} }}
fn migrate(old, p) {{ old.n += 1; old.means.push(p.k * 0.5); old }}
fn advantage(batch, p) {{
    let r = batch.reward;
    (r - r.mean(\"group\")) / (r.std(\"group\") + 1e-6) * p.k
}}
"
    )
}

/// A step's batch of 64 x 16 responses.
fn batch() -> Batch {
    let rows = (0..1024).map(|i| vec![-0.5f32; 1 + i % 16]);
    let rewards: Vec<f64> = (0..1024).map(|i| f64::from(i % 3 == 0)).collect();
    let batch = Batch::builder()
        .groups((0..1024).map(|i| i64::from(i / 16)))
        .response("reward", rewards)
        .ragged("old_logp", rows.clone())
        .ragged("logp", rows);
    batch.build().unwrap()
}

struct Run {
    live: LiveRecipe,
    path: PathBuf,
}

/// Saves the scripts of several runs at once, `rounds` times: how long each save took until `newest` gave it, and how long
/// the `begin_step` after it took.
fn reloads(runs: usize, rounds: u32) -> (Vec<Duration>, Vec<Duration>) {
    let folder = tempfile::tempdir().unwrap();
    let batch = batch();
    let start = |run: usize| {
        let path = folder.path().join(format!("recipe{run}.rhai"));
        std::fs::write(&path, script(1)).unwrap();
        let live = LiveRecipe::watch(&Host::new(), path.to_str().unwrap(), LiveOptions::default());
        let live = live.unwrap();
        Run { live, path }
    };
    let mut runs: Vec<Run> = (0..runs).map(start).collect();
    let (mut ready, mut begun) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for run in &mut runs {
            run.live.observe(&batch);
        }
        let saved = Instant::now();
        for run in &runs {
            std::fs::write(&run.path, script(round + 1)).unwrap();
        }
        for run in &mut runs {
            while run.live.newest().serial() < u64::from(round) {
                let is_late = saved.elapsed() > Duration::from_secs(20);
                assert!(!is_late, "{:?}", run.live.events());
                std::thread::sleep(Duration::from_micros(500));
            }
            ready.push(saved.elapsed());
            let before = Instant::now();
            run.live.begin_step().unwrap();
            begun.push(before.elapsed());
            assert_eq!(run.live.state().to_json()["map"]["n"], round);
        }
    }
    ready.sort();
    begun.sort();
    (ready, begun)
}

fn show(times: &[Duration]) -> String {
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    let (median, most, max) = (at(50), at(90), at(100));
    format!("median {median:?}, 90 % {most:?}, max {max:?}")
}

#[test]
#[ignore = "measures times"]
fn a_save_is_ready_within_300_ms_and_takes_less_than_1_ms_of_the_run() {
    let (ready, _) = reloads(1, 20);
    println!("from the save until it is ready: {}", show(&ready));
    let (_, begun) = reloads(5, 20);
    println!("begin_step with a new version:   {}", show(&begun));
    let within = |times: &[Duration], limit| times.iter().filter(|time| **time < limit).count();
    // A machine that does much else may stall one in twenty.
    assert!(within(&ready, Duration::from_millis(300)) >= 19);
    assert!(within(&begun, Duration::from_millis(1)) >= 95);
}

/// Behind a link, and in a folder that was made again, saves are found by events: the poll would take a second.
#[cfg(unix)]
#[test]
#[ignore = "measures times"]
fn a_save_elsewhere_is_ready_before_the_poll() {
    let folder = tempfile::tempdir().unwrap();
    let [inner, target, link] =
        ["inner", "inner/recipe.rhai", "link.rhai"].map(|name| folder.path().join(name));
    let write = |version| std::fs::write(&target, script(version)).unwrap();
    std::fs::create_dir(&inner).unwrap();
    write(1);
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for path in [&link, &target] {
        let live = LiveRecipe::watch(&Host::new(), path.to_str().unwrap(), LiveOptions::default());
        let live = live.unwrap();
        if path == &target {
            std::fs::remove_dir_all(&inner).unwrap();
            std::fs::create_dir(&inner).unwrap();
            write(2);
            while live.newest().serial() < 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for version in 3..6 {
            let (before, saved) = (live.newest().serial(), Instant::now());
            write(version);
            while live.newest().serial() == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(saved.elapsed() < Duration::from_millis(900));
        }
    }
}
