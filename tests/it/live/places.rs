//! Where a script may be, and what a live recipe does without one.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use advlab::live::LiveOptions;
use advlab::{Host, LiveRecipe};
use tempfile::TempDir;

use super::lab::{A_WHILE, Lab, PATIENCE, set, times, within};

#[test]
fn a_builtin_has_nothing_to_follow() {
    let mut live = LiveRecipe::watch(&Host::new(), "passk", LiveOptions::default()).unwrap();
    live.begin_step().unwrap();
    assert_eq!(live.in_use().recipe().name(), "passk");
    assert!(live.events().is_empty());
}

#[test]
fn what_cannot_be_loaded_is_an_error_at_once() {
    let lossy = LiveOptions {
        requires: vec![advlab::script::Hook::Loss],
        ..LiveOptions::default()
    };
    for (recipe, options, why) in [
        ("nowhere/recipe.rhai", LiveOptions::default(), "cannot read"),
        ("paskk", LiveOptions::default(), "`passk`"),
        ("passk", set("kk", "8"), "`k`"),
        ("passk", set("k", "0"), "at least 1"),
        ("grpo", lossy, "no `loss`"),
    ] {
        let error = LiveRecipe::watch(&Host::new(), recipe, options).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The path from the current folder.
fn relative(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    up.join(path.strip_prefix("/").unwrap())
}

/// A folder with a script.
fn with_script() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recipe.rhai");
    std::fs::write(&path, times(1)).unwrap();
    (folder, path)
}

#[test]
fn a_relative_path_is_followed() {
    let (folder, path) = with_script();
    let lab = Lab::at(folder, &relative(&path), LiveOptions::default()).unwrap();
    lab.publish(&times(2));
}

/// Saves versions, which are found; `tests/live_timing.rs` measures that it is by events, not by the poll.
fn saves_are_found(lab: &Lab, file: &Path) {
    for factor in [5, 6, 2] {
        std::fs::write(file, times(factor)).unwrap();
        lab.published();
        assert_eq!(lab.text(), times(factor));
    }
}

#[test]
fn a_link_is_followed_at_both_ends() {
    let (real, target) = with_script();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("recipe.rhai");
    symlink(&target, &link).unwrap();
    let lab = Lab::at(folder, &link, LiveOptions::default()).unwrap();
    saves_are_found(&lab, &target);
    let other = real.path().join("other.rhai");
    std::fs::write(&other, times(3)).unwrap();
    symlink(&other, lab.path("new")).unwrap();
    std::fs::rename(lab.path("new"), &link).unwrap();
    lab.published();
    std::fs::write(&other, times(4)).unwrap();
    lab.published();
    assert_eq!(lab.text(), times(4));
}

#[test]
fn a_folder_that_cannot_be_written_is_followed() {
    let (folder, path) = with_script();
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder.path(), mode(0o555)).unwrap();
    let lab = Lab::at(folder, &path, LiveOptions::default()).unwrap();
    lab.publish(&times(2));
    std::fs::set_permissions(lab.folder.path(), mode(0o755)).unwrap();
}

#[test]
fn a_folder_that_is_made_again_is_followed_again() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    let path = inner.join("recipe.rhai");
    let make = |factor| {
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(&path, times(factor)).unwrap();
    };
    make(1);
    let lab = Lab::at(folder, &path, LiveOptions::default()).unwrap();
    std::fs::remove_dir_all(&inner).unwrap();
    lab.missing();
    make(2);
    lab.published();
    saves_are_found(&lab, &path);
}

#[test]
fn a_run_starts_with_the_version_that_it_has() {
    let host = Host::new();
    let start = host.compile("recipe.rhai", &times(1)).unwrap();
    let options = || LiveOptions {
        left: vec![(start.clone(), start.init().unwrap())],
        ..LiveOptions::default()
    };
    // The file was edited while the run was stopped: the first step has it.
    let mut lab = Lab::with(&times(2), options());
    assert_eq!(lab.step().recipe().text(), times(2));
    assert_eq!(lab.published().from, *start.version());
    // It was broken: it is said before the first step.
    let lab = Lab::with("fn", options());
    assert_eq!(lab.live.events().len(), 1);
    assert_eq!(lab.live.newest().version(), start.version());
    // It was deleted.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recipe.rhai");
    let lab = Lab::at(folder, &path, options()).unwrap();
    lab.missing();
    lab.publish(&times(3));
    // It is the same.
    Lab::with(&times(1), options()).nothing();
}

#[test]
fn dropping_does_not_wait_for_a_dry_run() {
    let lab = Lab::with(&times(1), within(u64::MAX));
    lab.save("fn advantage(batch, p) { let n = 0; while true { n += 1; } batch.reward }");
    std::thread::sleep(A_WHILE);
    let (tell, told) = channel();
    std::thread::spawn(move || {
        drop(lab);
        tell.send(())
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn a_version_does_not_depend_on_the_folder() {
    let script = "import \"grpo\" as grpo;\nimport \"mine\" as mine;\nfn params() { grpo::params() }\nfn advantage(batch, p) { mine::same(grpo::advantage(batch, p)) }\n";
    let folder = tempfile::tempdir().unwrap();
    // Built-in imports have no folder in their names, and sort before some paths and after others.
    let version = |place: &str| {
        let inner = folder.path().join(place);
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("mine.rhai"), "fn same(x) { x }\n").unwrap();
        std::fs::write(inner.join("recipe.rhai"), script).unwrap();
        let path = inner.join("recipe.rhai");
        [relative(&path), path].map(|path| {
            let recipe = Host::new().load(path.to_str().unwrap()).unwrap();
            recipe.version().clone()
        })
    };
    let [relative, absolute] = version("a");
    assert_eq!(absolute, relative);
    assert_eq!(version("z/y"), [relative, absolute]);
}
