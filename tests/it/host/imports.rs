//! Imports: from the stdlib and the script's own folder, and the version that names all of them.

use std::fs;
use std::path::Path;

use advlab::diagnostic::Diagnostics;
use advlab::script::{Host, Recipe};

use super::lab::{step, values};

fn load(path: &Path) -> Result<Recipe, Diagnostics> {
    Host::new().load(path.to_str().expect("a path in UTF-8"))
}

const MAIN: &str =
    "import \"scale\" as scale;\nfn advantage(batch, p) { scale::by(batch.reward) }\n";

fn folder(main: &str, scale: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("main.rhai"), main).unwrap();
    fs::write(folder.path().join("scale.rhai"), scale).unwrap();
    folder
}

/// What has been loaded is whole: what happens to the files later does not reach it. Each script sees its own constants.
#[test]
fn a_script_beside_it_can_be_imported_and_is_not_needed_later() {
    let main = "import \"scale\" as scale;\nconst K = 1;\nfn advantage(batch, p) { K * scale::by(batch.reward) }\n";
    let folder = folder(main, "const K = 3; fn by(x) { K * x }");
    let recipe = load(&folder.path().join("main.rhai")).unwrap();
    drop(folder);
    let outcome = step(&recipe, &mut recipe.init().unwrap());
    assert_eq!(values(&outcome.advantage), [3., 0., 0., 1.5, -3.]);
    assert_eq!(recipe.sources().count(), 2);
}

/// A function keeps its own constants if another script calls it, and a script's top level has those above it.
#[test]
fn a_function_given_to_an_import_keeps_its_constants() {
    let main = "import \"scale\" as scale;\nconst K = 2;\nfn scaled(x) { K * x }\n\
        fn advantage(batch, p) { scale::each(batch, scaled) }\n";
    let scale =
        "const K = 3; fn twice(x) { K * x } const T = twice(2); fn each(b, f) { f.call(b.reward) }";
    let folder = folder(main, scale);
    let recipe = load(&folder.path().join("main.rhai")).unwrap();
    let outcome = step(&recipe, &mut recipe.init().unwrap());
    assert_eq!(values(&outcome.advantage), [2., 0., 0., 1., -2.]);
}

/// A restored recipe reads no file of its folder, even one that has the name of code that built-ins share.
#[test]
fn a_restored_recipe_reads_no_files() {
    let of = "aggregate::of(batch, -batch.logp, #{ aggregate: \"token\" })";
    let main = format!("import \"aggregate\" as aggregate;\nfn loss(batch, p) {{ {of} }}\n");
    let folder = folder(&main, "");
    let recipe = load(&folder.path().join("main.rhai")).unwrap();
    let other = folder.path().join("aggregate.rhai");
    fs::write(other, "fn of(batch, x, p) { x }").unwrap();
    let restored = Host::new().restore(recipe.name(), recipe.sources());
    assert_eq!(restored.unwrap().version(), recipe.version());
}

#[test]
fn the_version_names_the_content_of_all_files_and_nothing_else() {
    let version = |main: &str, scale: &str| {
        let folder = folder(main, scale);
        let recipe = load(&folder.path().join("main.rhai"));
        recipe.unwrap().version().clone()
    };
    let first = version(MAIN, "fn by(x) { 3 * x }");
    assert_eq!(first, version(MAIN, "fn by(x) { 3 * x }"));
    assert_ne!(first, version(MAIN, "fn by(x) { 4 * x }"));
    let other = MAIN.replace("reward", "correct");
    assert_ne!(first, version(&other, "fn by(x) { 3 * x }"));
    assert_eq!(first.as_str().len(), 64);
    assert!(first.as_str().starts_with(first.short()));
}

#[test]
fn a_copy_of_a_built_in_is_the_same_version() {
    let host = Host::new();
    for builtin in advlab::script::BUILTINS {
        let copy = host.compile("copy", builtin.text).unwrap();
        let own = host.load(builtin.name).unwrap();
        assert_eq!(copy.version(), own.version(), "{}", builtin.name);
    }
}

#[test]
fn imports_stay_within_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.rhai"), "fn by(x) { x }").unwrap();
    let inside = outside.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let absolute = outside.path().join("secret").display().to_string();
    for import in "../secret ./../secret ~/secret a/../../secret"
        .split(' ')
        .chain([&*absolute])
    {
        let text = MAIN.replace("\"scale\"", &format!("{import:?}"));
        fs::write(inside.join("main.rhai"), text).unwrap();
        assert!(load(&inside.join("main.rhai")).is_err(), "{import}");
    }
}

/// Compiling takes seconds for each megabyte, and a run looks at its files each second.
#[test]
fn what_is_too_large_for_a_script_is_not_read() {
    let large = format!("fn by(x) {{ x }} // {}", "x".repeat(256 << 10));
    let folder = folder(MAIN, &large);
    for file in ["main.rhai", "scale.rhai"] {
        let error = load(&folder.path().join(file)).expect_err("256 KiB and some");
        assert!(
            error.to_string().contains("at most 256 KiB"),
            "{file}: {error}"
        );
    }
}

#[test]
fn scripts_that_import_each_other_end() {
    let back = "import \"main\" as main;\nfn by(x) { main::advantage(x, 1) }";
    for (scale, file) in [(back, "main.rhai"), (MAIN, "scale.rhai")] {
        let folder = folder(MAIN, scale);
        assert!(load(&folder.path().join(file)).is_err(), "{file}");
    }
}

/// A file beside the script goes before a built-in of its name, as modules do in Python: an edited copy is what is meant.
#[test]
fn a_file_beside_the_script_goes_before_a_built_in() {
    let main = "import \"dr_grpo\" as base;\nfn advantage(batch, p) { base::advantage(batch, p) }";
    let folder = folder(main, "");
    let own = "fn advantage(batch, p) { 100 * batch.reward }";
    fs::write(folder.path().join("dr_grpo.rhai"), own).unwrap();
    let recipe = load(&folder.path().join("main.rhai")).unwrap();
    let outcome = step(&recipe, &mut recipe.init().unwrap());
    assert_eq!(outcome.advantage.at(0, 0), 100.0);
}
