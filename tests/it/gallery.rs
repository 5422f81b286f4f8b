//! The gallery of wrong scripts: what each of them is told, beside it in a snapshot, and that none of them does harm.
//!
//! `tests/gallery/scripts/NAME.rhai` is wrong in the way that its name says; `NAME.snap` is the message. A script whose
//! name starts with `imported_` is there to be imported by another. A line `// --set k=9` sets a parameter, as the
//! command line would.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::script::{Hook, Host, Limits};
use rayon::prelude::*;

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
fn batch() -> Batch {
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

/// What bounds a script. One that loops without an end has a few milliseconds; one that allocates has the limits of
/// everyday use, of which the time is not what ends it.
fn limits(name: &str) -> Limits {
    match name.starts_with("endless_") {
        true => Limits {
            time: Duration::from_millis(5),
            ..Limits::default()
        },
        false => Limits::default(),
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
    let render = |error: Diagnostics| error.render(false);
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

/// What a script was told, and how long that took.
struct Told {
    path: PathBuf,
    message: String,
    took: Duration,
}

impl Told {
    fn name(&self) -> &str {
        name(&self.path)
    }
}

/// All scripts, each run once for all tests.
fn gallery() -> &'static [Told] {
    static GALLERY: OnceLock<Vec<Told>> = OnceLock::new();
    GALLERY.get_or_init(|| {
        scripts()
            .into_par_iter()
            .map(|path| {
                let started = Instant::now();
                let message = told(&path);
                let took = started.elapsed();
                Told {
                    path,
                    message,
                    took,
                }
            })
            .collect()
    })
}

/// The messages of a text: each starts with its severity.
fn messages(told: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = ["Error:", "Warning:"]
        .iter()
        .flat_map(|severity| told.match_indices(severity))
        .map(|(start, _)| start)
        .filter(|&start| start == 0 || told[..start].ends_with('\n'))
        .collect();
    starts.sort_unstable();
    starts.push(told.len());
    let ranges = starts.windows(2);
    ranges.map(|range| &told[range[0]..range[1]]).collect()
}

#[test]
fn each_wrong_script_is_told_what_is_wrong_and_what_to_do() {
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../gallery/scripts");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings
    };
    assert!(gallery().len() > 200, "{} scripts", gallery().len());
    let changed: Vec<&str> = gallery()
        .iter()
        .filter(|told| {
            let assert = || settings.bind(|| insta::assert_snapshot!(told.name(), told.message));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(assert)).is_err()
        })
        .map(Told::name)
        .collect();
    assert!(
        changed.is_empty(),
        "other messages than before: {changed:?}"
    );
}

/// Words of the engine under the script, and of Rust, which say nothing to a researcher.
const FORBIDDEN: [&str; 32] = [
    "alloc::",
    "advlab::",
    "rhai::",
    "core::",
    "std::",
    "Dynamic",
    "ImmutableString",
    "FnPtr",
    "EvalAlt",
    "INT",
    "FLOAT",
    "i64",
    "f64",
    "&str",
    "&mut",
    "rust_decimal",
    "on_progress",
    "anon$",
    "getter",
    "setter",
    "BLOB",
    "blob",
    "token::",
    "closure$",
    "Some(",
    "None",
    "Unit",
    "panicked",
    "unwrap",
    "Data race",
    "JavaScript",
    "not registered",
];

#[test]
fn no_message_speaks_of_what_is_underneath() {
    let mut found = Vec::new();
    for told in gallery() {
        for message in messages(&told.message) {
            // The script's own lines, which ariadne shows after a number and a bar, say what they like.
            let own = message.lines().filter(|line| {
                let line = line.trim_start();
                !(line.starts_with(|c: char| c.is_ascii_digit()) && line.contains('│'))
            });
            let own: String = own.collect::<Vec<_>>().join("\n");
            let own = match told.name() {
                // Its message is about the word.
                "python_none" => own.replace("`None`", ""),
                "rust_type" | "rust_as" => own.replace("f64", ""),
                _ => own,
            };
            for word in FORBIDDEN.iter().filter(|word| own.contains(**word)) {
                found.push(format!("{}: {word}", told.name()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_message_shows_a_place_or_says_what_to_do() {
    let mute: Vec<&str> = gallery()
        .iter()
        .filter(|told| {
            let messages = messages(&told.message);
            messages.is_empty()
                || messages.iter().any(|message| {
                    !message.contains("╭─[")
                        && !message.contains("Help:")
                        && !message.contains("--set")
                })
        })
        .map(Told::name)
        .collect();
    assert!(mute.is_empty(), "{mute:?}");
}

/// A script without an end has its time and not much more; one that grows has an end long before that.
#[test]
fn no_script_runs_on() {
    for told in gallery() {
        let took = told.took;
        assert!(took < Duration::from_secs(15), "{}: {took:?}", told.name());
        if told.name().starts_with("endless_") {
            assert!(told.message.contains("stopped"), "{}", told.message);
        }
        if told.name().starts_with("allocates_") || told.name().starts_with("deep_") {
            assert!(
                !told.message.contains("stopped after"),
                "{}: {}",
                told.name(),
                told.message
            );
        }
    }
}

/// Every category that a researcher may meet has its script.
#[test]
fn the_gallery_has_every_category() {
    let has = |start: &str| gallery().iter().any(|told| told.name().starts_with(start));
    for start in [
        "level_wrong",
        "column_unknown",
        "function_misspelt",
        "and_of_tensors",
        "endless_loop",
        "allocates_",
        "deep_",
        "recursion",
        "operations_",
        "import_misspelt",
        "import_outside",
        "k_larger_than_group",
        "parameter_out_of_range",
        "python_",
        "torch_",
        "import_with_",
        "closure_",
        "state_",
    ] {
        assert!(has(start), "{start}");
    }
}
