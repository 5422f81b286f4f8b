//! The gallery of wrong scripts: what each of them is told, beside it in a snapshot, and that none of them does harm.
//!
//! `tests/gallery/scripts/TOPIC.rhai` holds cases, each under a line `// ==== NAME` and wrong in the way that its name
//! says; `TOPIC.snap` holds what each is told. A case whose lines are indented is the body of `advantage(batch, p)`. One
//! whose name starts with `imported_` is there to be imported by another. A line `// --set k=9` sets a parameter, as the
//! command line would.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use advlab::batch::{Batch, Computed, Level};
use advlab::diagnostic::{Diagnostic, Diagnostics, Severity};
use advlab::script::{Hook, Host, Limits};
use rayon::prelude::*;

use crate::cases::{self, Case};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/gallery/scripts");

/// The example batch, with a column `noise` that is NaN at one token.
fn batch() -> Batch {
    let noise = vec![0.5, 0.75, 1.0, 0.5, f64::NAN, 1.5, 0.5, 0.5, 0.25];
    let batch = Batch::example();
    let noise = Computed::new(batch.layout().clone(), Level::Token, noise);
    batch.with("noise", &noise).unwrap()
}

/// One for all cases: each new host registers all functions.
static HOST: LazyLock<Host> = LazyLock::new(Host::new);

/// Loads the script, sets what it wants to be set, and runs its hooks; the error is what that ended with.
fn run(folder: &Path, case: &Case, told: &mut Vec<Diagnostic>) -> Result<(), Diagnostics> {
    let path = folder.join(format!("{}.rhai", case.name));
    // So much time that this is not what ends a script, however busy the machine is.
    let limits = Limits {
        time: Duration::from_secs(3600),
        ..Limits::default()
    };
    let host = HOST.clone().with_limits(limits);
    let mut recipe = host.load(path.to_str().expect("paths are text"))?;
    told.extend(recipe.warnings().iter().cloned());
    let lines = case.text.lines();
    for setting in lines.filter_map(|line| line.strip_prefix("// --set ")) {
        let (name, value) = setting.split_once('=').expect("name=value");
        recipe
            .set_text(name, value)
            .map_err(|error| Diagnostic::error(format!("{setting}: {error}")))?;
    }
    let batch = batch();
    let mut state = recipe.init()?;
    let before = state.clone();
    let result = match recipe.advantage(&batch, &mut state) {
        Ok(_) if recipe.has(Hook::Loss) => recipe.loss(&batch, None, &mut state).map(|_| ()),
        result => result.map(|_| ()),
    };
    if result.is_err() {
        assert_eq!(
            state, before,
            "{}: a hook that fails leaves no trace in the state",
            case.name
        );
    }
    result
}

/// What a script was told.
struct Told {
    name: String,
    diagnostics: Vec<Diagnostic>,
}

impl Told {
    /// What matters of each message: severity, span, sentence, help and notes.
    fn summary(&self) -> String {
        let mut summary = String::new();
        for diagnostic in &self.diagnostics {
            let severity = match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            summary.push_str(severity);
            if let Some(span) = &diagnostic.span {
                let line = span.text.lines().nth(span.line - 1).unwrap_or_default();
                let under = line.chars().skip(span.column - 1).take(span.length);
                let source = span.source.strip_suffix(".rhai").unwrap_or(&span.source);
                let source = if source == self.name {
                    ""
                } else {
                    &span.source
                };
                let at = format!("{source}:{}:{}", span.line, span.column);
                let at = at.trim_start_matches(':');
                write!(summary, " at {at} `{}`", under.collect::<String>()).unwrap();
            }
            writeln!(summary, ": {}", sentence(diagnostic)).unwrap();
            if let Some(help) = &diagnostic.help {
                writeln!(summary, "  help: {help}").unwrap();
            }
            for note in &diagnostic.notes {
                writeln!(summary, "  note: {note}").unwrap();
            }
        }
        summary
    }
}

/// A problem's sentence alone, with what was found and expected.
fn sentence(diagnostic: &Diagnostic) -> String {
    let mut alone = diagnostic.clone();
    (alone.span, alone.help) = (None, None);
    alone.to_string()
}

/// The topics of the gallery with what their scripts were told, each run once for all tests.
fn topics() -> &'static [(String, Vec<Told>)] {
    static GALLERY: OnceLock<Vec<(String, Vec<Told>)>> = OnceLock::new();
    GALLERY.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut topics = cases::files(Path::new(FOLDER), "rhai");
        for case in topics.iter_mut().flat_map(|(_, cases)| cases) {
            let text = case.text.trim_end();
            case.text = if text.starts_with(' ') {
                format!("fn advantage(batch, p) {{\n{text}\n}}\n")
            } else {
                format!("{text}\n")
            };
            let path = folder.path().join(format!("{}.rhai", case.name));
            std::fs::write(path, &case.text).expect("a script in the folder");
        }
        let run = |case: &Case| {
            let mut diagnostics = Vec::new();
            if let Err(error) = run(folder.path(), case, &mut diagnostics) {
                diagnostics.extend(error.iter().cloned());
            }
            let here = format!("{}/", folder.path().display());
            for diagnostic in &mut diagnostics {
                cases::without(diagnostic, &here);
            }
            Told {
                name: case.name.clone(),
                diagnostics,
            }
        };
        topics
            .iter()
            .map(|(topic, cases)| {
                let wrong = cases.par_iter();
                let wrong = wrong.filter(|case| !case.name.starts_with("imported_"));
                (topic.clone(), wrong.map(run).collect())
            })
            .collect()
    })
}

fn gallery() -> impl Iterator<Item = &'static Told> {
    topics().iter().flat_map(|(_, told)| told)
}

#[test]
fn each_wrong_script_is_told_what_is_wrong_and_what_to_do() {
    let scripts = gallery().count();
    assert!(scripts >= 140, "{scripts} scripts");
    for (topic, told) in topics() {
        let told = told.iter().map(|told| (told.name.as_str(), told.summary()));
        cases::snapshot("../gallery/scripts", topic, told);
    }
}

/// A few as a terminal shows them: with help, with a trace through an import, a warning, several at once, letters wider
/// than a byte, and without a span.
#[test]
fn a_message_is_drawn_under_its_line() {
    let drawn = [
        "column_unknown",
        "import_with_unknown_column",
        "letter_of_another_alphabet",
        "parameter_never_read",
        "parameter_out_of_range",
        "throws_in_helper",
        "torch_dim",
    ]
    .map(|name| {
        let told = gallery().find(|told| told.name == name).expect(name);
        let lines = told
            .diagnostics
            .iter()
            .map(|d| Diagnostics::from(d.clone()).render(false));
        (name, lines.collect::<String>())
    });
    cases::snapshot("../gallery/scripts", "drawn", drawn);
}

/// Words of the engine under the script, and of Rust, which say nothing to a researcher.
const FORBIDDEN: &str = "alloc:: advlab:: rhai:: core:: std:: Dynamic ImmutableString FnPtr EvalAlt INT FLOAT i64 f64 &str \
                         &mut rust_decimal on_progress anon$ getter setter BLOB blob token:: closure$ Some( None Unit \
                         panicked unwrap Data JavaScript registered";

#[test]
fn no_message_speaks_of_what_is_underneath() {
    let mut found = Vec::new();
    for told in gallery() {
        let words = |diagnostic: &Diagnostic| {
            let mut words = vec![sentence(diagnostic)];
            words.extend(diagnostic.help.clone());
            words.extend(diagnostic.notes.clone());
            words.join("\n")
        };
        let own: Vec<String> = told.diagnostics.iter().map(words).collect();
        let own = own.join("\n");
        let own = match told.name.as_str() {
            // Its message is about the word.
            "python_none" => own.replace("`None`", ""),
            "rust_type" | "rust_as" => own.replace("f64", ""),
            _ => own,
        };
        let words = FORBIDDEN.split(' ').filter(|word| own.contains(word));
        found.extend(words.map(|word| format!("{}: {word}", told.name)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_message_shows_a_place_or_says_what_to_do() {
    let speaks = |d: &Diagnostic| {
        let drawn = Diagnostics::from(d.clone()).render(false);
        let drawn = ["Error: ", "Warning: "]
            .iter()
            .any(|word| drawn.starts_with(word));
        let place = d.message.split_once(": ").map_or("", |(place, _)| place);
        // Of a setting the message begins with it.
        drawn && (d.span.is_some() || d.help.is_some() || place.contains('='))
    };
    let mute: Vec<&str> = gallery()
        .filter(|told| told.diagnostics.is_empty() || !told.diagnostics.iter().all(speaks))
        .map(|told| told.name.as_str())
        .collect();
    assert!(mute.is_empty(), "{mute:?}");
}

/// A script without an end is stopped by its operations; one that grows has an end long before that.
#[test]
fn no_script_runs_on() {
    for told in gallery() {
        let (name, said) = (&told.name, told.summary());
        if name.starts_with("endless_") {
            assert!(said.contains("stopped after 20 million"), "{name}: {said}");
        }
        if name.starts_with("allocates_") || name.starts_with("deep_") {
            assert!(
                said.contains("stopped") || name == "deep_brackets",
                "{name}: {said}"
            );
            assert!(!said.contains("stopped after"), "{name}: {said}");
        }
    }
}
