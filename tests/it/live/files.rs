//! Saves in all their forms: what is published is whole, and what is said is said once.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use advlab::live::LiveOptions;

use super::lab::{Lab, PATIENCE, times};

/// Less than a file has to be quiet for before it is looked at.
const SETTLED: Duration = Duration::from_millis(80);

#[test]
fn a_save_is_published_with_what_changed() {
    let mut lab = Lab::new(&times(1));
    let first = lab.step();
    let published =
        lab.publish("fn advantage(batch, p) {\n    let r = batch.reward;\n    r * 2.0\n}\n");
    assert_eq!(published.from, *first.version());
    assert_eq!((published.lines_added, published.lines_removed), (2, 1));
    assert!(published.parameters.is_empty());
    let second = lab.step();
    assert_eq!(*second.version(), published.to);
    assert_eq!(second.serial(), 1);
    let (fallback, _) = lab.live.fallbacks().last().unwrap();
    assert_eq!(fallback.version(), first.version());
}

#[test]
fn a_save_of_the_same_bytes_is_none() {
    let lab = Lab::new(&times(1));
    lab.save(&times(1));
    lab.nothing();
    assert_eq!(lab.live.newest().serial(), 0);
}

#[test]
fn editors_that_rename_are_followed() {
    let lab = Lab::new(&times(1));
    // vim: the old file becomes the backup, the new one is written under the old name.
    std::fs::rename(lab.path("recipe.rhai"), lab.path("recipe.rhai~")).unwrap();
    lab.save(&times(2));
    std::fs::remove_file(lab.path("recipe.rhai~")).unwrap();
    lab.published();
    // Most others: written beside, renamed over. Twice, as the file that is watched is another one each time.
    for factor in 3..5 {
        lab.replace(&times(factor));
        lab.published();
        assert_eq!(lab.text(), times(factor));
    }
}

#[test]
fn what_is_half_written_is_not_looked_at() {
    let lab = Lab::new(&times(1));
    // Each piece up to the last is a recipe of its own, so that only the waiting can keep it out.
    let pieces = [times(2), "// more\n".repeat(100), "// end\n".into()];
    let mut file = File::create(lab.path("recipe.rhai")).unwrap();
    let mut longest = Duration::ZERO;
    for piece in &pieces {
        let started = Instant::now();
        file.write_all(piece.as_bytes()).unwrap();
        file.flush().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        longest = longest.max(started.elapsed());
    }
    drop(file);
    let whole = pieces.concat();
    let events = lab.until_text(&whole);
    // On a machine that stalled this thread for as long as the settling takes, the pieces were saves of their own.
    if longest < SETTLED {
        assert_eq!(events.len(), 1, "{events:#?}");
    }
}

#[test]
fn a_broken_save_is_said_once_and_changes_nothing() {
    let mut lab = Lab::new(&times(1));
    let broken = "fn advantage(batch, p) { batch.reward + }";
    lab.reject(broken, "recipe.rhai:1:");
    lab.save(broken);
    lab.nothing();
    lab.reject(&broken.replace('+', "-"), "recipe.rhai:1:");
    lab.reject("", "defines neither");
    std::fs::write(lab.path("recipe.rhai"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(lab.rejected().contains("not valid UTF-8"));
    assert_eq!(lab.step().serial(), 0);
    lab.publish(&times(2));
    // Only a version in between makes it news again.
    lab.reject(broken, "recipe.rhai:1:");
    lab.revert(&times(2));
    assert_eq!(lab.step().serial(), 1);
}

#[test]
fn a_deleted_file_keeps_the_version_and_comes_back() {
    let mut lab = Lab::new(&times(1));
    lab.delete();
    lab.nothing();
    assert_eq!(lab.step().serial(), 0);
    lab.publish(&times(2));
    lab.delete();
    lab.revert(&times(2));
    // A folder in its place is no script either.
    std::fs::remove_file(lab.path("recipe.rhai")).unwrap();
    std::fs::create_dir(lab.path("recipe.rhai")).unwrap();
    lab.missing();
}

#[test]
fn imports_are_followed_as_they_come_and_go() {
    let body = "fn advantage(batch, p) { other::scale(batch.reward) }";
    let importing = |what: &str| format!("import \"{what}\" as other;\n{body}\n");
    let scale = |factor: u32| format!("fn scale(x) {{ x * {factor}.0 }}\n");
    let lab = Lab::new(&times(1));
    lab.write("a.rhai", &scale(1));
    lab.write("b.rhai", &scale(2));
    lab.publish(&importing("a"));
    lab.write("a.rhai", &scale(3));
    let published = lab.published();
    assert_eq!((published.lines_added, published.lines_removed), (1, 1));
    assert_eq!(published.imports, ["a.rhai"]);
    let told = published.to_string();
    assert!(
        told.contains("(+1 -1 lines, a.rhai edited, checked in"),
        "{told}"
    );
    // Not imported.
    lab.write("b.rhai", &scale(4));
    lab.nothing();
    lab.publish(&importing("b"));
    lab.write("a.rhai", &scale(5));
    lab.nothing();
    // An import that breaks is an error in its own file; one that is missing is found when it comes.
    lab.write("b.rhai", "fn scale(x) { x * }");
    assert!(lab.rejected().contains("b.rhai:1:"));
    lab.reject(&importing("c"), "no recipe \"c\"");
    lab.write("c.rhai", &scale(6));
    lab.published();
    lab.publish(&times(2));
    lab.write("c.rhai", &scale(7));
    lab.nothing();
}

#[test]
fn a_file_that_shadows_a_builtin_import_is_a_new_version() {
    let script = "import \"grpo\" as grpo;\nfn params() { grpo::params() }\nfn advantage(batch, p) { grpo::advantage(batch, p) }\n";
    let lab = Lab::new(script);
    let own = lab.live.newest().version().clone();
    let builtin = advlab::script::Builtin::find("grpo").unwrap().text;
    lab.write("grpo.rhai", &format!("{builtin}// mine\n"));
    lab.published();
    std::fs::remove_file(lab.path("grpo.rhai")).unwrap();
    assert_eq!(lab.published().to, own);
}

#[test]
fn the_last_of_many_saves_is_the_one_in_use() {
    let mut lab = Lab::new(&times(1));
    // A save that no other one follows for as long as the settling takes is a version of its own.
    let (mut alone, mut saved) = (0, Instant::now());
    for factor in 2..52 {
        alone += usize::from(saved.elapsed() > SETTLED);
        saved = Instant::now();
        lab.save(&times(factor));
        std::thread::sleep(Duration::from_millis(u64::from(factor % 7)));
    }
    let events = lab.until_text(&times(51));
    assert!(events.len() < 10 + alone, "{events:#?}");
    assert_eq!(lab.step().recipe().text(), times(51));
    lab.nothing();
}

#[test]
fn other_files_of_the_folder_do_not_hold_a_save_up() {
    let lab = Lab::new(&times(1));
    let mut log = File::create(lab.path("metrics.jsonl")).unwrap();
    lab.save(&times(2));
    let started = Instant::now();
    while lab.text() != times(2) {
        log.write_all(b"{}\n").unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert!(started.elapsed() < PATIENCE, "it waits for the log");
    }
}

#[test]
fn a_file_that_is_written_without_a_pause_gets_through() {
    let lab = Lab::new(&times(1));
    let started = Instant::now();
    let mut factor = 2;
    while lab.live.newest().serial() == 0 {
        lab.replace(&times(factor));
        factor += 1;
        std::thread::sleep(Duration::from_millis(10));
        assert!(started.elapsed() < PATIENCE, "it waits for a pause");
    }
}

#[test]
fn the_poll_alone_finds_everything() {
    let options = LiveOptions {
        poll_only: true,
        ..LiveOptions::default()
    };
    let lab = Lab::with(&times(1), options);
    let path = lab.path("recipe.rhai");
    let time = path.metadata().unwrap().modified().unwrap();
    // The same length, the same time: only reading tells.
    lab.save(&times(2));
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
    lab.published();
    lab.delete();
    lab.replace(&times(3));
    lab.published();
    lab.nothing();
}
