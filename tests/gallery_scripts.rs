//! The gallery of wrong scripts: what each of them is told, beside it in a snapshot, and that none of them does harm.
//!
//! `tests/gallery/scripts/NAME.rhai` is wrong in the way that its name says; `NAME.snap` is the message. A script whose
//! name starts with `imported_` is there to be imported by another. A line `// --set k=9` sets a parameter, as the
//! command line would.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use advlab::batch::Batch;
use advlab::script::{Hook, Host, Limits, ScriptError};

const FOLDER: &str = "tests/gallery/scripts";

/// The scripts of the gallery, by their paths from the repository's root, in alphabetical order.
fn scripts() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(FOLDER).expect("the gallery is there");
    let mut scripts: Vec<PathBuf> = folder
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rhai"))
        .filter(|path| !name(path).starts_with("imported_"))
        .collect();
    scripts.sort();
    scripts
}

fn name(path: &Path) -> &str {
    path.file_stem()
        .and_then(|stem| stem.to_str())
        .expect("names are text")
}

/// Two groups, of three responses and of two; `noise` is NaN at one token.
fn batch() -> Batch<'static> {
    Batch::builder()
        .groups(["a", "a", "a", "b", "b"])
        .response("reward", vec![1.0, 0.0, 1.0, 0.0, 0.0])
        .ragged(
            "old_logp",
            rows([-0.5, -0.75, -1.0, -0.5, -0.25, -1.5, -0.5, -0.5, -0.25]),
        )
        .ragged(
            "ref_logp",
            rows([-0.75, -0.75, -1.5, -0.25, 0.0, -1.0, -0.625, -0.375, -0.75]),
        )
        .ragged(
            "entropy",
            rows([0.5, 0.75, 1.0, 0.5, 0.25, 1.5, 0.5, 0.5, 0.25]),
        )
        .ragged(
            "noise",
            rows([0.5, 0.75, 1.0, 0.5, f64::NAN, 1.5, 0.5, 0.5, 0.25]),
        )
        .build()
        .expect("the gallery's batch is right")
}

/// Nine tokens, as the lengths of the gallery's five responses divide them.
fn rows(tokens: [f64; 9]) -> Vec<Vec<f64>> {
    let mut tokens = tokens.into_iter();
    [2, 3, 1, 2, 1]
        .map(|length| tokens.by_ref().take(length).collect())
        .to_vec()
}

/// What bounds a script. One that allocates has the time that it takes until its memory is what ends it.
fn limits(name: &str) -> Limits {
    let time = match name.starts_with("allocates_") {
        true => Duration::from_secs(5),
        false => Duration::from_millis(500),
    };
    Limits {
        time,
        memory: 16 << 20,
    }
}

/// Everything that the script is told, warnings included.
fn told(path: &Path) -> String {
    let mut told = String::new();
    if let Err(error) = run(path, &mut told) {
        told.push_str(&error);
    }
    told
}

/// Loads the script, sets what it wants to be set, and runs its hooks; the error is what that ended with.
fn run(path: &Path, told: &mut String) -> Result<(), String> {
    let render = |error: ScriptError| error.render(false);
    let path = path.to_str().expect("paths are text");
    let host = Host::new().with_limits(limits(name(Path::new(path))));
    let mut recipe = host.load(path).map_err(render)?;
    told.extend(
        recipe
            .warnings()
            .iter()
            .map(|warning| warning.render(false)),
    );
    let settings: Vec<String> = recipe
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("// --set "))
        .map(str::to_string)
        .collect();
    for setting in settings {
        let (name, value) = setting.split_once('=').expect("name=value");
        recipe
            .set_text(name, value)
            .map_err(|error| format!("Error: --set {setting}: {error}\n"))?;
    }
    let batch = batch();
    let mut state = recipe.init().map_err(render)?;
    let before = state.clone();
    let result = recipe.advantage(&batch, &mut state).map_err(render);
    let result = match result {
        Ok(_) if recipe.has(Hook::Loss) => recipe
            .loss(&batch, None, &mut state)
            .map(|_| ())
            .map_err(render),
        result => result.map(|_| ()),
    };
    if result.is_err() {
        assert_eq!(
            state, before,
            "{path}: a hook that fails leaves no trace in the state"
        );
    }
    result
}

#[test]
fn each_wrong_script_is_told_what_is_wrong_and_what_to_do() {
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("gallery/scripts");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings
    };
    let scripts = scripts();
    assert!(scripts.len() > 150, "{} scripts", scripts.len());
    let changed: Vec<&str> = scripts
        .iter()
        .filter(|path| {
            let told = told(path);
            let assert = || settings.bind(|| insta::assert_snapshot!(name(path), told));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(assert)).is_err()
        })
        .map(|path| name(path))
        .collect();
    assert!(
        changed.is_empty(),
        "other messages than before: {changed:?}"
    );
}

/// The bounds hold within a second: a check of the clock comes every few microseconds.
#[test]
fn endless_scripts_end_with_their_time() {
    for path in scripts()
        .iter()
        .filter(|path| name(path).starts_with("endless_"))
    {
        let started = Instant::now();
        let told = told(path);
        assert!(told.contains("stopped"), "{}: {told}", path.display());
        let took = started.elapsed();
        assert!(
            took < Duration::from_secs(3),
            "{}: {took:?}",
            path.display()
        );
    }
}
