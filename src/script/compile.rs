//! Makes a recipe of a script: compiles it with its imports, reads its hooks and parameters, and lints it.

use std::sync::Arc;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Map, Scope};

use super::builtin::Builtin;
use super::explain::Script;
use super::hook::{Hook, Reads, Version};
use super::host::Host;
use super::library::{Functions, Library, by_name, constants, functions_of};
use super::lint;
use super::params::Parameters;
use super::recipe::{Compiled, Recipe};
use super::sandbox::on_deep_stack;
use super::source_files::LARGEST;
use super::value::describe;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;

pub(super) fn compile(
    host: &Host,
    name: &str,
    text: &str,
    library: &Library,
) -> Result<Recipe, Diagnostics> {
    if text.len() > LARGEST {
        let message = format!("{name}: the script has {} bytes", text.len());
        let help = "values by response or token are columns of the batch: a script is a formula";
        return Err(Diagnostic::error(message).with_help(help).into());
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
    let mut sources = library.found().sources.clone();
    sources.insert(name.clone(), text.into());
    let mut ast =
        compiled.map_err(|error| not_compiled(&error, Script::new(&name, &sources), library))?;
    ast.set_source(&*name);
    let natives = natives(&engine);
    let mut functions = natives.clone();
    functions.append(&mut functions_of(&ast));
    let mut compiled = Compiled {
        hooks: hooks(&ast, &Script::new(&name, &sources))?,
        version: Version::of(&name, text.as_bytes(), &sources),
        builtin: Builtin::of(&name, text, &sources),
        doc: doc(ast.doc()),
        name,
        ast,
        sources,
        warnings: Vec::new(),
        reads: Reads::default(),
        constants: constants.into(),
        functions: functions.into_keys().collect(),
    };
    for (source, _) in compiled.sources.iter() {
        let script = Script::new(source, &compiled.sources);
        lint::reads(script.code(source), &mut compiled.reads);
    }
    if compiled.hooks.contains(&Hook::Loss) {
        // Its gradient is with respect to `logp`.
        compiled.reads.names.insert("logp".to_string());
    }
    let mut recipe = Recipe {
        script: Arc::new(compiled),
        params: Parameters::default(),
        host: host.clone(),
    };
    recipe.params = declared(&recipe, &engine)?;
    let warnings = linted(&recipe, &natives, library)?;
    if let Some(compiled) = Arc::get_mut(&mut recipe.script) {
        compiled.warnings = warnings;
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
    let missing = library.found().missing.clone();
    diagnostic
        .at(missing.and_then(|path| script.import(&path)))
        .into()
}

/// Lints the script and its imports: an error, or the warnings of the script itself.
fn linted(
    recipe: &Recipe,
    natives: &Functions,
    library: &Library,
) -> Result<Vec<Diagnostic>, Diagnostics> {
    let (imported, functions) = {
        let found = library.found();
        (found.scripts.clone(), found.functions.clone())
    };
    let own = (&recipe.script.name, &recipe.script.ast);
    let mut errors = Vec::new();
    for (name, ast) in [own].into_iter().chain(&imported) {
        let script = recipe.about_source(name);
        errors.extend(lint::errors(ast, &script, natives, &functions));
    }
    if let Some(errors) = Diagnostics::several(errors) {
        return Err(errors);
    }
    Ok(lint::warnings(own.1, &recipe.about()))
}

/// The hooks that the script defines, with the right parameters.
fn hooks(ast: &AST, script: &Script<'_>) -> Result<Vec<Hook>, Diagnostics> {
    let mut hooks = Vec::new();
    for function in ast.iter_functions() {
        let mut all = Hook::ALL.into_iter();
        let Some(hook) = all.find(|hook| hook.name() == function.name) else {
            continue;
        };
        if function.params.len() != hook.parameters().len() {
            let (name, found) = (hook.name(), function.params.join(", "));
            let right = format!("{name}({})", hook.parameters().join(", "));
            let message = format!("the hook `{right}` is defined as `{name}({found})`");
            let help = format!("write `fn {right}`; a function of your own needs another name");
            let wrong = Diagnostic::error(message).with_help(help);
            return Err(wrong.at(script.definition(name)).into());
        }
        hooks.push(hook);
    }
    hooks.sort();
    if hooks.contains(&Hook::Advantage) || hooks.contains(&Hook::Loss) {
        return Ok(hooks);
    }
    let mut functions = ast.iter_functions();
    let slip = functions.find_map(|function| {
        let near = suggest::nearest(function.name, ["advantage", "loss"])?;
        Some((function.name.to_string(), near))
    });
    Err(match slip {
        Some((function, hook)) => Diagnostic::error(format!(
            "the script has no hook, and `{function}` is not one"
        ))
        .with_help(format!("did you mean `{hook}`?"))
        .at(script.definition(&function)),
        None => Diagnostic::error(format!(
            "{}: the script defines neither `advantage(batch, p)` nor `loss(batch, p)`",
            script.name
        ))
        .with_help("`advlab new FILE --from grpo` makes a recipe to start from"),
    }
    .into())
}

/// Calls `params()`.
fn declared(recipe: &Recipe, engine: &Engine) -> Result<Parameters, Diagnostics> {
    if !recipe.has(Hook::Params) {
        return Ok(Parameters::default());
    }
    let (ast, name) = (&recipe.script.ast, Hook::Params.name());
    let value = engine
        .call_fn::<Dynamic>(&mut Scope::new(), ast, name, ())
        .map_err(|error| recipe.failed_in(Hook::Params, &error))?;
    let example =
        "as in `k: #{ value: 4, min: 1, max: 8, doc: \"...\" }`, or with `choices: [\"a\", \"b\"]`";
    let Some(map) = value.read_lock::<Map>() else {
        let found = describe(&value);
        let message = format!("`params()` must return a map of parameters, it returned {found}");
        let wrong = Diagnostic::error(message).with_help(example);
        return Err(recipe.at_hook(Hook::Params, wrong));
    };
    Parameters::declared(&map).map_err(|(name, why)| {
        let wrong = Diagnostic::error(format!("parameter `{name}`: {why}")).with_help(example);
        match recipe.about().key(&name) {
            Some(place) => wrong.at(Some(place)).into(),
            None => recipe.at_hook(Hook::Params, wrong),
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
