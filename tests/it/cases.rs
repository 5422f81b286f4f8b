//! Gallery files: many small cases in one file, each under a line with its name, and what is said of each in one snapshot.

use std::fs;
use std::path::Path;

use advlab::diagnostic::Diagnostic;

/// One case of a gallery file.
pub struct Case {
    pub name: String,
    /// The lines under its name, to the next name.
    pub text: String,
}

/// The cases of a gallery file: each begins with a line `==== NAME`, which may stand in a comment `//`.
pub fn cases(path: &Path) -> Vec<Case> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut cases: Vec<Case> = Vec::new();
    for line in text.split_inclusive('\n') {
        let name = line.strip_prefix("// ").unwrap_or(line);
        if let Some(name) = name.strip_prefix("==== ") {
            let name = name.trim_end().to_string();
            let text = String::new();
            cases.push(Case { name, text });
        } else if let Some(case) = cases.last_mut() {
            case.text.push_str(line);
        }
    }
    cases
}

/// The gallery files of a folder by their names, in alphabetical order.
pub fn files(folder: &Path, ending: &str) -> Vec<(String, Vec<Case>)> {
    let entries = fs::read_dir(folder).expect("the gallery is there");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|e| e == ending));
    let mut files: Vec<_> = paths
        .map(|path| {
            let name = path.file_stem().expect("a file").to_string_lossy();
            (name.into_owned(), cases(&path))
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// Pins what is said of each case: one snapshot for all, in a folder that is given from `tests/it`.
pub fn snapshot<'a>(folder: &str, name: &str, said: impl IntoIterator<Item = (&'a str, String)>) {
    let said = said.into_iter().map(|(name, said)| {
        let said = said.trim_end();
        format!("==== {name}\n{said}\n")
    });
    let said: Vec<String> = said.collect();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, said.join("\n")));
}

/// The same problem with a folder taken out of its path and its words.
pub fn without(diagnostic: &mut Diagnostic, folder: &str) {
    let without = |text: &str| text.replace(folder, "");
    if let Some(span) = &mut diagnostic.span {
        span.source = without(&span.source).into();
    }
    let diagnostic = &mut **diagnostic;
    let words = diagnostic.help.iter_mut().chain(&mut diagnostic.notes);
    for text in words.chain([&mut diagnostic.message]) {
        *text = without(text);
    }
}
