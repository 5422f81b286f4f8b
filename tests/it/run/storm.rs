//! Three hundred saves of all kinds at random moments of a run: each step uses a version that is whole and right, and the
//! run repeats itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use advlab::Host;
use advlab::native::Mode;
use advlab_train::{Ending, Event, Run};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::lab::{Lab, go, lines, replayed, rows};

const SAVES: u32 = 300;

/// Fails where anything of it is missing. Counts its steps, whatever version does them.
fn valid(number: u32) -> String {
    format!(
        "import \"scale\" as scale;\nfn init(p) {{ #{{ steps: 0 }} }}\nfn advantage(batch, p) {{\n    this.steps += 1;\n    metric(\"steps\", this.steps);\n    let r = batch.reward - batch.reward.mean(\"batch\");\n    scale::by(r, {number}.0)\n}}\n"
    )
}

fn scale(number: u32) -> String {
    format!("fn by(x, factor) {{ x * factor * 0.00{number} }}\n")
}

const BAD: [&str; 8] = [
    "",
    "fn advantage(batch, p) { batch.reward / 0.0 }",
    "fn advantage(batch, p) { batch.reward.mean(\"batch\") }",
    "fn advantage(batch, p) { let n = 0; while true { n += 1; } batch.reward }",
    "fn advantage(batch, p) { throw \"no\" }",
    "fn advantage(batch, p) { batch.rewrad }",
    "fn advantage(batch p) { batch.reward }",
    "import \"nowhere\" as n;\nfn advantage(batch, p) { n::f(batch.reward) }",
];

/// One save, in one of the ways of editors and accidents.
fn save(random: &mut ChaCha8Rng, folder: &Path, number: u32) {
    let [recipe, import, beside] =
        ["recipe.rhai", "scale.rhai", ".recipe.rhai.swp"].map(|name| folder.join(name));
    let text = valid(number);
    let short = |random: &mut ChaCha8Rng| {
        std::thread::sleep(Duration::from_millis(random.random_range(0..30)));
    };
    match random.random_range(0..11) {
        0..3 => std::fs::write(&recipe, text).unwrap(),
        3 | 4 => std::fs::write(&recipe, BAD[random.random_range(0..BAD.len())]).unwrap(),
        5 => {
            std::fs::write(&beside, text).unwrap();
            std::fs::rename(&beside, &recipe).unwrap();
        }
        6 => {
            let (half, rest) = text.split_at(random.random_range(0..text.len()));
            let mut file = File::create(&recipe).unwrap();
            file.write_all(half.as_bytes()).unwrap();
            short(random);
            file.write_all(rest.as_bytes()).unwrap();
        }
        7 => std::fs::write(&recipe, &text[..random.random_range(0..text.len())]).unwrap(),
        8 => {
            // It may be gone already.
            let _ = std::fs::remove_file(&recipe);
            short(random);
            std::fs::write(&recipe, text).unwrap();
        }
        9 => {
            let _ = std::fs::remove_file(&recipe);
        }
        _ => std::fs::write(&import, scale(number)).unwrap(),
    }
    short(random);
    // Now and then there is time to look at it.
    if random.random_range(0..8) == 0 {
        std::thread::sleep(Duration::from_millis(160));
    }
}

#[test]
fn a_storm_of_saves_during_a_run() {
    let mut lab = Lab::new(&valid(1));
    let folder = lab.folder.path().to_path_buf();
    std::fs::write(folder.join("scale.rhai"), scale(1)).unwrap();
    lab.config.steps = 1_000_000;
    lab.config.checkpoint_every = 100;
    lab.config.tensorboard = false;
    lab.config.check_deadline_ms = 250;
    let stop = AtomicBool::new(false);
    let mut run = lab.create();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = ChaCha8Rng::seed_from_u64(11);
            for number in 2..SAVES + 2 {
                save(&mut random, &folder, number);
            }
            // The last one is right, so that there is something to wait for.
            std::fs::write(folder.join("scale.rhai"), scale(1)).unwrap();
            std::fs::write(folder.join("recipe.rhai"), valid(1000)).unwrap();
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
        });
        let mut observer = |event: &Event<'_>| {
            if let Event::Step { .. } = event {
                std::thread::sleep(Duration::from_millis(3));
            }
        };
        let ending = run.go(&stop, &mut observer).unwrap();
        assert_eq!(ending, Ending::Stopped(run.step()));
    });
    let steps = run.step();
    drop(run);

    let mut used = BTreeSet::new();
    let rows = rows(&lab.run());
    for (step, row) in rows.iter().enumerate() {
        assert_eq!(row["step"], step);
        assert_eq!(row["metrics"]["steps"], (step + 1) as f64, "none is lost");
        assert_eq!(row.get("failed"), None);
        used.insert(row["version"].as_str().unwrap());
    }
    // Each version that was used is kept, whole, and is one of the right ones; the last save is the last version.
    let kept = |version: &str| {
        let script = lab.file(&format!("scripts/{version}/recipe.rhai"));
        let kept = Host::new().load(script.to_str().unwrap()).unwrap();
        assert_eq!(kept.version().as_str(), version);
        (1..=1000).find(|number| kept.text() == valid(*number))
    };
    assert!(used.iter().all(|version| kept(version).is_some()));
    let last = &rows[rows.len() - 1]["version"];
    assert_eq!(kept(last.as_str().unwrap()), Some(1000));
    let reloads = lines(&lab.file("reloads.jsonl"));
    let count = |name: &str| reloads.iter().filter(|line| line["event"] == name).count();
    let (versions, rejected) = (used.len(), count("rejected"));
    println!("{steps} steps, {versions} versions, {rejected} rejected");
    assert!(versions > 5 && count("use") >= versions - 1, "{versions}");
    assert!(rejected > 5);
    assert_eq!(count("failed"), 0);

    // It ends as any run does, and repeats itself.
    go(&mut Run::resume(&lab.run(), Some(steps + 5), Mode::Off).unwrap());
    assert_eq!(replayed(&lab.run()), (steps + 5, None));
}
