//! Random saves of all kinds while a run goes on: each step has a version that is whole and right.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use advlab::live::LiveEvent;
use rand::{RngExt, SeedableRng};

use super::lab::{Lab, batch, times, within};

/// Fails where anything of it is missing.
fn valid(number: u32) -> String {
    format!(
        "import \"scale\" as scale;\nfn init(p) {{ #{{ steps: 0 }} }}\nfn advantage(batch, p) {{\n    this.steps += 1;\n    scale::by(batch.reward, {number}.0)\n}}\n"
    )
}

fn scale(number: u32) -> String {
    format!("fn by(x, factor) {{ x * factor * {number}.0 }}\n")
}

const BAD: [&str; 6] = [
    "",
    "fn advantage(batch, p) { batch.reward / 0.0 }",
    "fn advantage(batch, p) { batch.reward.mean(\"batch\") }",
    "fn advantage(batch, p) { let n = 0; while true { n += 1; } batch.reward }",
    "fn advantage(batch, p) { throw \"no\" }",
    "import \"nowhere\" as n;\nfn advantage(batch, p) { n::f(batch.reward) }",
];

#[test]
fn a_storm_of_saves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recipe.rhai");
    std::fs::write(folder.path().join("scale.rhai"), scale(1)).unwrap();
    std::fs::write(&path, valid(1)).unwrap();
    let mut lab = Lab::at(folder, &path, within(300)).unwrap();
    let file = |name: &str| lab.folder.path().join(name);
    let (recipe, import, beside) = (file("recipe.rhai"), file("scale.rhai"), file(".tmp"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = rand::rngs::ChaCha8Rng::seed_from_u64(7);
            for number in 2..122 {
                match random.random_range(0..10) {
                    0..3 => std::fs::write(&recipe, valid(number)).unwrap(),
                    3 | 4 => {
                        let bad = BAD[random.random_range(0..BAD.len())];
                        std::fs::write(&recipe, bad).unwrap();
                    }
                    5 => {
                        std::fs::write(&beside, valid(number)).unwrap();
                        std::fs::rename(&beside, &recipe).unwrap();
                    }
                    6 => {
                        let text = valid(number);
                        let (half, rest) = text.split_at(random.random_range(0..text.len()));
                        let mut file = File::create(&recipe).unwrap();
                        file.write_all(half.as_bytes()).unwrap();
                        std::thread::sleep(Duration::from_millis(random.random_range(0..30)));
                        file.write_all(rest.as_bytes()).unwrap();
                    }
                    7 => {
                        let text = valid(number);
                        std::fs::write(&recipe, &text[..random.random_range(0..text.len())])
                            .unwrap();
                    }
                    8 => {
                        // It may be gone already.
                        let _ = std::fs::remove_file(&recipe);
                    }
                    _ => std::fs::write(&import, scale(number)).unwrap(),
                }
                std::thread::sleep(Duration::from_millis(random.random_range(0..60)));
                // Now and then there is time to look at it.
                if random.random_range(0..8) == 0 {
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
            std::fs::write(&import, scale(1)).unwrap();
            std::fs::write(&recipe, valid(1000)).unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
        let mut steps = 0;
        let mut seen = BTreeSet::new();
        let mut events = Vec::new();
        loop {
            let is_last = is_over.load(Ordering::Relaxed) && lab.text() == valid(1000);
            let step = lab.live.step(&batch()).expect("a version that worked");
            steps += 1;
            let state = lab.live.state().to_json();
            assert_eq!(state["map"]["steps"], steps, "no step is lost");
            seen.insert(step.loaded.serial());
            // Whole, though its file was cut anywhere: the closing brace is the text's last but one character.
            let text = step.loaded.recipe().text();
            assert!(text.ends_with("}\n") || text.ends_with('}'), "{text}");
            assert!(text.starts_with("import \"scale\""), "{text}");
            events.extend(step.events);
            if is_last {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let count = |is: fn(&LiveEvent) -> bool| events.iter().filter(|event| is(event)).count();
        let published = count(|event| matches!(event, LiveEvent::Published(_)));
        assert!(published >= seen.len() - 1);
        assert!(seen.len() > 5, "{seen:?}");
        assert!(count(|event| matches!(event, LiveEvent::Rejected { .. })) > 1);
        let at_step = |event: &_| matches!(event, LiveEvent::Rejected { at_step: true, .. });
        assert!(!events.iter().any(at_step));
    });
    lab.save(&times(1));
    lab.until(|event| matches!(event, LiveEvent::Published(_)));
}
