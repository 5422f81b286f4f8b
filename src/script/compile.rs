//! Makes a recipe of a script: compiles it with its imports, reads its hooks and parameters, and lints it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Map, Scope};

use super::builtin::Builtin;
use super::explain::Script;
use super::hook::{Hook, Reads, Version};
use super::host::Host;
use super::library::{Functions, Library, by_name, constants, functions_of};
use super::lint::{LintInput, lint};
use super::mistake::Mistake;
use super::params::Parameters;
use super::recipe::{Compiled, Recipe};
use super::sandbox::on_deep_stack;
use super::source_files::LARGEST;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::suggest;

pub(super) fn compile(
    host: &Host,
    name: &str,
    text: &str,
    library: &Library,
) -> Result<Recipe, Diagnostics> {
    if text.len() > LARGEST {
        let bytes = &text.len().to_string();
        return Err(Mistake::ScriptTooLarge { name, bytes }.error());
    }
    on_deep_stack(|| compile_here(host, name, text, library))
}

fn compile_here(
    host: &Host,
    name: &str,
    text: &str,
    library: &Library,
) -> Result<Recipe, Diagnostics> {
    let mut engine = host.functions.engine(&host.call(0));
    engine.set_module_resolver(library.clone());
    let name: Arc<str> = name.into();
    let constants = constants(text);
    let compiled = engine.compile_into_self_contained(&constants, text);
    let (mut sources, imports) = {
        let found = library.found();
        (found.sources.clone(), found.functions.clone())
    };
    sources.insert(name.clone(), text.into());
    let natives = natives(&engine);
    let mut ast =
        compiled.map_err(|error| not_compiled(&error, Script::new(&name, &sources), library))?;
    ast.set_source(&*name);
    let mut functions = natives.clone();
    functions.append(&mut functions_of(&ast));
    let compiled = Compiled {
        name: name.clone(),
        hooks: hooks(&ast, &Script::new(&name, &sources))?,
        version: Version::of(&name, text.as_bytes(), &sources),
        builtin: Builtin::of(&name, text, &sources),
        doc: doc(ast.doc()),
        ast,
        sources,
        warnings: Vec::new(),
        reads: Reads::default(),
        constants: constants.into(),
        functions: functions.into_keys().collect(),
    };
    let mut recipe = Recipe {
        script: Arc::new(compiled),
        params: Parameters::default(),
        host: host.clone(),
    };
    recipe.params = declared(&recipe, &engine)?;
    let (warnings, reads) = linted(&recipe, &natives, &imports, library)?;
    if let Some(compiled) = Arc::get_mut(&mut recipe.script) {
        (compiled.warnings, compiled.reads) = (warnings, reads);
    }
    Ok(recipe)
}

/// The functions of an engine, by their names.
pub(crate) fn natives(engine: &Engine) -> Functions {
    by_name(engine.collect_fn_metadata(
        None,
        |info| Some((info.metadata.name.to_string(), info.metadata.num_params)),
        true,
    ))
}

fn not_compiled(error: &EvalAltResult, script: Script<'_>, library: &Library) -> Diagnostics {
    let diagnostic = script.explain(error);
    if diagnostic.span.is_some() {
        return diagnostic.into();
    }
    let import = library
        .found()
        .missing
        .clone()
        .and_then(|path| script.import(&path));
    diagnostic.at(import).into()
}

/// Lints the script and its imports: an error, or the warnings of the script itself, and the columns that all of them
/// read.
fn linted(
    recipe: &Recipe,
    natives: &Functions,
    imports: &BTreeMap<String, Functions>,
    library: &Library,
) -> Result<(Vec<Diagnostic>, Reads), Diagnostics> {
    let mut reads = Reads::default();
    if recipe.has(Hook::Loss) {
        // Its gradient is with respect to `logp`.
        reads.names.insert("logp".to_string());
    }
    let scripts = library.found().scripts.clone();
    let known = |name, is_import| LintInput {
        script: recipe.about_source(name),
        natives,
        imports,
        is_import,
    };
    let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
    let found = lint(
        &recipe.script.ast,
        &known(&recipe.script.name, false),
        &mut reads,
    );
    let (mut errors, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(is_error);
    for (name, ast) in &scripts {
        let found = lint(ast, &known(name, true), &mut reads);
        errors.extend(found.into_iter().filter(is_error));
    }
    match Diagnostics::several(listed(errors)) {
        Some(errors) => Err(errors),
        None => Ok((listed(warnings), reads)),
    }
}

/// The most findings of a version that are listed.
const LISTED: usize = 20;

/// The first findings, and how many more there are.
fn listed(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let more = found.len().saturating_sub(LISTED);
    if more > 0 {
        found.truncate(LISTED);
        let mut rest = Diagnostic::error(format!("and {more} more like these"));
        rest.severity = found[0].severity;
        found.push(rest);
    }
    found
}

/// The hooks that the script defines, with the right parameters.
fn hooks(ast: &AST, script: &Script<'_>) -> Result<Vec<Hook>, Diagnostics> {
    let mut hooks = Vec::new();
    for function in ast.iter_functions() {
        let hook = Hook::ALL.into_iter();
        let Some(hook) = hook.into_iter().find(|hook| hook.name() == function.name) else {
            continue;
        };
        if function.params.len() != hook.parameters().len() {
            let wrong = Mistake::HookParameters {
                hook: &format!("{}({})", hook.name(), hook.parameters().join(", ")),
                found: &format!("{}({})", function.name, function.params.join(", ")),
            };
            return Err(wrong.at(script.definition(function.name)).into());
        }
        hooks.push(hook);
    }
    hooks.sort();
    let computes = |hook: &Hook| matches!(hook, Hook::Advantage | Hook::Loss);
    if hooks.iter().any(computes) {
        Ok(hooks)
    } else {
        Err(no_hook(ast, script).into())
    }
}

fn no_hook(ast: &AST, script: &Script<'_>) -> Diagnostic {
    let names = ["advantage", "loss"];
    let slip = ast
        .iter_functions()
        .find_map(|f| Some((f.name.to_string(), suggest::nearest(f.name, names)?)));
    match slip {
        Some((function, hook)) => {
            let function = &function;
            Mistake::NearHook { function, hook }.at(script.definition(function))
        }
        None => Mistake::NoHook { name: script.name }.into(),
    }
}

/// Calls `params()`.
fn declared(recipe: &Recipe, engine: &Engine) -> Result<Parameters, Diagnostics> {
    if !recipe.has(Hook::Params) {
        return Ok(Parameters::default());
    }
    let called = engine.call_fn::<Dynamic>(
        &mut Scope::new(),
        &recipe.script.ast,
        Hook::Params.name(),
        (),
    );
    let value = called.map_err(|error| recipe.failed_in(Hook::Params, &error))?;
    let Some(map) = value.read_lock::<Map>() else {
        let found = &super::bind::kind(&value);
        return Err(recipe.at_hook(Hook::Params, Mistake::ParamsNoMap { found }.into()));
    };
    Parameters::declared(&map).map_err(|(name, error)| {
        let error = &error.to_string();
        let wrong = Mistake::WrongParameter { error };
        match recipe.about().key(&name) {
            Some(place) => wrong.at(Some(place)).into(),
            None => recipe.at_hook(Hook::Params, wrong.into()),
        }
    })
}

/// A doc comment without its marks.
fn doc(comment: &str) -> String {
    let lines = comment.lines().map(|line| {
        let line = line.trim_start().trim_start_matches("//!");
        line.strip_prefix(' ').unwrap_or(line)
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_string()
}
