//! A recipe: a script that has been compiled and checked, with its hooks, its parameters and its version.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rhai::{AST, Dynamic, EvalAltResult, Map, Position, Scope};
use sha2::{Digest, Sha256};

use super::batch_type::Call;
use super::error::{Diagnostic, Place, ScriptError, Severity};
use super::explain::Script;
use super::host::{Host, Shared};
use super::library::{Functions, Library, Sources};
use super::lint::{Known, lint};
use super::params::{ParameterError, Parameters, Setting};
use crate::suggest;

/// What a script can define for advlab to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// `reward(batch, p)` replaces the reward.
    Reward,
    /// `advantage(batch, p)` gives the advantage.
    Advantage,
    /// `loss(batch, p)` gives the loss, differentiable in `batch.logp`.
    Loss,
    /// `params()` declares the parameters.
    Params,
    /// `init(p)` makes the state.
    Init,
    /// `migrate(old, p)` carries the state of an older version over.
    Migrate,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Hook; 6] = [
        Hook::Reward,
        Hook::Advantage,
        Hook::Loss,
        Hook::Params,
        Hook::Init,
        Hook::Migrate,
    ];

    /// The function's name.
    pub const fn name(self) -> &'static str {
        match self {
            Hook::Reward => "reward",
            Hook::Advantage => "advantage",
            Hook::Loss => "loss",
            Hook::Params => "params",
            Hook::Init => "init",
            Hook::Migrate => "migrate",
        }
    }

    /// The function's parameters.
    const fn parameters(self) -> &'static [&'static str] {
        match self {
            Hook::Reward | Hook::Advantage | Hook::Loss => &["batch", "p"],
            Hook::Params => &[],
            Hook::Init => &["p"],
            Hook::Migrate => &["old", "p"],
        }
    }
}

/// The name of one exact content of a recipe with all that it imports: a SHA-256 in hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    pub(super) fn of(main: &str, text: &[u8], imports: &Sources) -> Version {
        let mut hash = Sha256::new();
        // The main script counts by its text alone: a copy of a built-in is the same version until it is edited.
        let mut add = |text: &[u8]| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(text);
        // In the order of the names that imports write: the folder that they were found in does not count either.
        let mut imports: Vec<_> = imports
            .iter()
            .filter(|(name, _)| &***name != main)
            .collect();
        imports.sort_by_key(|(name, _)| Path::new(&***name).file_stem());
        for (_, text) in imports {
            add(text.as_bytes());
        }
        Version(
            hash.finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first six digits, as messages show it.
    pub fn short(&self) -> &str {
        &self.0[..6]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({})", self.short())
    }
}

/// A script that has been compiled and checked, with the values of its parameters.
///
/// Cloning shares the compiled script; each clone has its own parameter values.
#[derive(Clone)]
pub struct Recipe {
    pub(super) script: Arc<Compiled>,
    pub(super) params: Parameters,
    pub(super) host: Arc<Shared>,
}

pub(super) struct Compiled {
    pub(super) name: Arc<str>,
    pub(super) ast: AST,
    pub(super) sources: Sources,
    hooks: Vec<Hook>,
    version: Version,
    doc: String,
    warnings: Vec<Diagnostic>,
    functions: Vec<String>,
}

impl Recipe {
    /// What messages call the recipe: a built-in's name, or the script's path.
    pub fn name(&self) -> &str {
        &self.script.name
    }

    /// The script's exact content, with all that it imports.
    pub fn version(&self) -> &Version {
        &self.script.version
    }

    /// The `//!` comment at the script's top, without the marks.
    pub fn doc(&self) -> &str {
        &self.script.doc
    }

    /// The first sentence of the doc comment.
    pub fn summary(&self) -> &str {
        let line = self.doc().lines().next().unwrap_or("");
        line.strip_suffix('.').unwrap_or(line)
    }

    /// The script's own text.
    pub fn text(&self) -> &str {
        self.script
            .sources
            .get(&self.script.name)
            .map_or("", |text| text)
    }

    /// The script and all that it imports: names and texts, the script itself among them.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.script
            .sources
            .iter()
            .map(|(name, text)| (&**name, &**text))
    }

    /// Whether the script defines the hook.
    pub fn has(&self, hook: Hook) -> bool {
        self.script.hooks.contains(&hook)
    }

    /// The parameters with their values.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// Sets a parameter from a text, as in `--set k=8`.
    ///
    /// # Errors
    /// [`ParameterError`] names the nearest parameter, or what the parameter takes.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), ParameterError> {
        self.params.set_text(name, text)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// As [`Recipe::set_text`].
    pub fn set(&mut self, name: &str, setting: Setting) -> Result<(), ParameterError> {
        self.params.set(name, setting)
    }

    /// The same recipe, bounded by another host: its limits, its guard, its seed.
    pub(crate) fn on(&self, host: &Host) -> Recipe {
        Recipe {
            host: host.shared.clone(),
            ..self.clone()
        }
    }

    /// What the lint found odd, but not wrong.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.script.warnings
    }

    pub(super) fn explain(&self, error: &EvalAltResult) -> Diagnostic {
        self.about().explain(error)
    }

    pub(super) fn about(&self) -> Script<'_> {
        Script {
            name: &self.script.name,
            sources: &self.script.sources,
            parameters: self
                .params
                .iter()
                .map(|(parameter, _)| parameter.name.clone())
                .collect(),
            functions: self.script.functions.clone(),
        }
    }

    /// A diagnostic at the line where a hook is defined.
    pub(crate) fn at_hook(&self, hook: Hook, diagnostic: Diagnostic) -> ScriptError {
        let start = format!("fn {}", hook.name());
        let line = self
            .text()
            .lines()
            .position(|line| line.trim_start().starts_with(&start));
        let position = line.map_or(Position::NONE, |line| {
            Position::new((line + 1).min(65_535) as u16, 4)
        });
        diagnostic
            .at(self.about().place(&self.script.name, position))
            .into()
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({} {})", self.name(), self.version())
    }
}

/// Compiles a script with its imports, lints it, and reads its parameters.
pub(super) fn compile(
    host: Arc<Shared>,
    name: &str,
    text: &str,
    library: Arc<Library>,
) -> Result<Recipe, ScriptError> {
    let call = Call::new(host.guard(), 0, host.seed);
    let engine = host.functions.compiler(&library, &call);
    let name: Arc<str> = name.into();
    let compiled = engine.compile_into_self_contained(&Scope::new(), text);
    let (mut sources, imports) = library.imported();
    sources.insert(name.clone(), text.into());
    let natives: Functions = engine.collect_fn_metadata(
        None,
        |info| Some((info.metadata.name.to_string(), info.metadata.num_params)),
        true,
    );
    let mut names: Vec<String> = natives.iter().map(|(name, _)| name.clone()).collect();
    let mut ast = compiled.map_err(|error| {
        let script = Script {
            name: &name,
            sources: &sources,
            parameters: Vec::new(),
            functions: Vec::new(),
        };
        let diagnostic = script.explain(&error);
        if diagnostic.place.is_some() {
            return diagnostic;
        }
        let place = library.missing().and_then(|path| import_of(&script, &path));
        diagnostic.at(place)
    })?;
    ast.set_source(&*name);
    names.extend(ast.iter_functions().map(|f| f.name.to_string()));
    names.sort();
    names.dedup();
    let hooks = hooks(&ast, &name, &sources)?;
    let version = Version::of(&name, text.as_bytes(), &sources);
    let doc = doc(ast.doc());
    let mut compiled = Compiled {
        name: name.clone(),
        ast,
        sources,
        hooks,
        version,
        doc,
        warnings: Vec::new(),
        functions: names,
    };
    let mut recipe = Recipe {
        script: Arc::new(compiled),
        params: Parameters::default(),
        host,
    };
    recipe.params = declared(&recipe, &engine)?;
    let known = Known {
        script: recipe.about(),
        natives: &natives,
        imports: &imports,
    };
    let (errors, warnings): (Vec<_>, Vec<_>) = lint(&recipe.script.ast, &known)
        .into_iter()
        .partition(|diagnostic| diagnostic.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(ScriptError {
            diagnostics: errors,
        });
    }
    drop(known);
    compiled = match Arc::into_inner(recipe.script) {
        Some(compiled) => compiled,
        None => unreachable!("nobody has cloned a recipe that has not been returned"),
    };
    compiled.warnings = warnings;
    Ok(Recipe {
        script: Arc::new(compiled),
        params: recipe.params,
        host: recipe.host,
    })
}

/// The hooks that the script defines, with the right parameters.
fn hooks(ast: &AST, name: &Arc<str>, sources: &Sources) -> Result<Vec<Hook>, ScriptError> {
    let script = Script {
        name,
        sources,
        parameters: Vec::new(),
        functions: Vec::new(),
    };
    let defined = |name: &str, line: Option<usize>| {
        let position = line.map_or(Position::NONE, |line| {
            Position::new((line + 1).min(65_535) as u16, 4)
        });
        let _ = name;
        script.place(script.name, position)
    };
    let line_of = |function: &str| {
        let text = sources.get(name)?;
        text.lines()
            .position(|line| line.trim_start().starts_with(&format!("fn {function}")))
    };
    let mut hooks = Vec::new();
    for function in ast.iter_functions() {
        let Some(hook) = Hook::ALL
            .into_iter()
            .find(|hook| hook.name() == function.name)
        else {
            continue;
        };
        if function.params.len() != hook.parameters().len() {
            let wanted = format!("{}({})", hook.name(), hook.parameters().join(", "));
            let found = format!("{}({})", function.name, function.params.join(", "));
            let message = format!("the hook is `{wanted}`, this is `{found}`");
            return Err(Diagnostic::error(message)
                .with_help("a function of your own needs another name")
                .at(defined(function.name, line_of(function.name)))
                .into());
        }
        hooks.push(hook);
    }
    hooks.sort();
    let computes = |hook: &Hook| matches!(hook, Hook::Advantage | Hook::Loss);
    if hooks.iter().any(computes) {
        return Ok(hooks);
    }
    let names = ["advantage", "loss"];
    let slip = ast
        .iter_functions()
        .find_map(|f| Some((f.name.to_string(), suggest::nearest(f.name, names)?)));
    let diagnostic = match slip {
        Some((function, near)) => {
            Diagnostic::error(format!("the script has no hook: `{function}` is none"))
                .with_help(format!("did you mean `{near}`?"))
                .at(defined(&function, line_of(&function)))
        }
        None => Diagnostic::error(format!(
            "{name}: the script defines neither `advantage(batch, p)` nor `loss(batch, p)`"
        ))
        .with_help("`advlab new FILE --from grpo` makes a recipe to start from"),
    };
    Err(diagnostic.into())
}

/// The place of an import in the script, or in one that it imports.
fn import_of(script: &Script<'_>, path: &str) -> Option<Place> {
    let written = format!("\"{path}\"");
    script.sources.iter().find_map(|(source, text)| {
        text.lines().enumerate().find_map(|(line, content)| {
            let column = content
                .trim_start()
                .starts_with("import")
                .then(|| content.find(&written))??;
            let column = content[..column].chars().count() + 1;
            script.place(
                source,
                Position::new((line + 1).min(65_535) as u16, column.min(65_535) as u16),
            )
        })
    })
}

/// Calls `params()`.
fn declared(recipe: &Recipe, engine: &rhai::Engine) -> Result<Parameters, ScriptError> {
    if !recipe.has(Hook::Params) {
        return Ok(Parameters::default());
    }
    let value: Dynamic = engine
        .call_fn(
            &mut Scope::new(),
            &recipe.script.ast,
            Hook::Params.name(),
            (),
        )
        .map_err(|error| ScriptError::from(recipe.explain(&error)))?;
    let Some(map) = value.read_lock::<Map>() else {
        let found = super::engine::returned(&value);
        let message = format!("`params()` must return a map of parameters, it returned {found}");
        let help = "as in `fn params() { #{ k: #{ value: 4, min: 1, doc: \"...\" } } }`";
        return Err(recipe.at_hook(Hook::Params, Diagnostic::error(message).with_help(help)));
    };
    Parameters::declared(&map)
        .map_err(|error| recipe.at_hook(Hook::Params, Diagnostic::error(error.to_string())))
}

/// A doc comment without its marks.
fn doc(comment: &str) -> String {
    let lines = comment.lines().map(|line| {
        let line = line.trim_start().trim_start_matches("//!");
        line.strip_prefix(' ').unwrap_or(line)
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_string()
}
