//! Resolves the imports of a script, which are built-ins or scripts in the script's folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rhai::{
    AST, ASTNode, Engine, EvalAltResult, Expr, Module, ModuleResolver, OptimizationLevel, Position,
    Scope, Shared, Stmt,
};

use super::engine::bare;
use super::error::{CallError, Raised};
use super::library::Builtin;
use super::source_files::{self, FileBytes};
use super::version::Sources;
use crate::diagnostic::Diagnostic;
use crate::parallel::lock;
use crate::suggest;

/// For each function name, the numbers of parameters of the functions that have this name.
pub(crate) type Arities = BTreeMap<String, Vec<usize>>;

pub(super) fn by_name(functions: impl IntoIterator<Item = (String, usize)>) -> Arities {
    let mut named = Arities::new();
    for (name, parameters) in functions {
        named.entry(name).or_default().push(parameters);
    }
    named
}

pub(crate) fn functions_of(ast: &AST) -> Arities {
    let functions = ast.iter_functions();
    by_name(functions.map(|f| (f.name.to_string(), f.params.len())))
}

/// Returns the path and the alias, which may be empty, of each top-level import of a script, if the path is a literal.
pub(crate) fn imports_of(ast: &AST) -> impl Iterator<Item = (&str, &str)> {
    ast.statements().iter().filter_map(|statement| {
        let Stmt::Import(import, _) = statement else {
            return None;
        };
        let Expr::StringConstant(path, _) = &import.0 else {
            return None;
        };
        Some((path.as_str(), import.1.name.as_str()))
    })
}

/// Returns the constants that a script's functions see: those whose values are literals, such as `const K = 4;`. A constant is
/// skipped if a parameter or a loop variable has the same name, because the optimiser would replace that variable.
pub(super) fn constants(text: &str) -> Scope<'static> {
    let mut scope = Scope::new();
    if !text.contains("const") {
        return scope;
    }
    // A bare engine suffices, because unknown functions compile and nothing is evaluated.
    let mut engine = bare();
    engine.set_optimization_level(OptimizationLevel::None);
    // The error is ignored here because the compilation that follows reports it.
    let Ok(ast) = engine.compile(text) else {
        return scope;
    };
    let (mut looped, mut captured) = (Vec::new(), Vec::new());
    ast.walk(&mut |path| {
        match path.last() {
            Some(ASTNode::Stmt(Stmt::For(parts, _))) => {
                looped.push(parts.0.name.clone());
                looped.extend(parts.1.iter().map(|count| count.name.clone()));
            }
            Some(ASTNode::Stmt(Stmt::Share(variables))) => {
                captured.extend(variables.iter().map(|(variable, _)| variable.name.clone()));
            }
            _ => {}
        }
        true
    });
    for (name, _, value) in ast.iter_literal_variables(true, false) {
        // Each variable that a closure captures is a parameter of the closure's function; such parameters do not count here.
        let is_parameter = |name| {
            let functions = ast.iter_functions().filter(|f| f.params.contains(&name));
            functions.count() > captured.iter().filter(|own| *own == name).count()
        };
        if !is_parameter(name) && !looped.iter().any(|variable| variable == name) {
            scope.push_constant_dynamic(name, value);
        }
    }
    scope
}

/// Finds imports first in the script's folder, if there is one, and then among the built-ins.
#[derive(Clone)]
pub(crate) struct Imports {
    folder: Option<PathBuf>,
    /// The contents of files that were read earlier; these files are not read again.
    pub(super) read: BTreeMap<PathBuf, FileBytes>,
    found: Arc<Mutex<FoundImports>>,
}

/// The imported scripts, by the path as it is written in the import.
pub(super) type Modules = BTreeMap<String, (AST, Shared<Module>)>;

/// The imports found so far.
#[derive(Default)]
pub(crate) struct FoundImports {
    pub(crate) sources: Sources,
    pub(super) modules: Modules,
    /// The imports that are being loaded, outermost first. An import of a script in this list is circular.
    loading: Vec<String>,
    /// The files in which imports were sought, with their contents.
    pub(super) files: BTreeMap<PathBuf, FileBytes>,
    /// The path of the import that could not be found or read, or that is circular. The error is placed at the `import` statement
    /// with this path, because the engine does not report a position.
    pub(super) missing: Option<String>,
}

impl Imports {
    /// Makes a resolver for the script's folder and the built-ins; if `folder` is `None`, only built-ins can be imported.
    pub(crate) fn new(folder: Option<&Path>) -> Imports {
        Imports {
            folder: folder.map(Path::to_path_buf),
            read: BTreeMap::new(),
            found: Arc::default(),
        }
    }

    pub(crate) fn found(&self) -> MutexGuard<'_, FoundImports> {
        lock(&self.found)
    }

    /// Finds an imported script, and returns its name and its text.
    fn read(&self, path: &str) -> Result<(Arc<str>, Arc<str>), CallError> {
        const WHAT: &str =
            "an import is the name of a built-in, or of a file in the script's own folder";
        let name = path.strip_suffix(".rhai").unwrap_or(path);
        let is_plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err(CallError::new(format!("cannot import \"{path}\""), WHAT));
        }
        if let Some(folder) = &self.folder {
            let file = folder.join(format!("{name}.rhai"));
            let read = self.read.get(&file).cloned();
            let read = read.unwrap_or_else(|| source_files::read(&file));
            self.found().files.insert(file.clone(), read.clone());
            match source_files::text(&file, &read) {
                Ok(text) => return Ok((file.display().to_string().into(), text.into())),
                Err(_) if source_files::is_missing(&read) => {}
                Err(why) => {
                    let error = Diagnostic::error(format!("cannot import \"{path}\": {why}"));
                    return Err(error.into());
                }
            }
        }
        let mut builtins = Builtin::importable();
        if let Some(builtin) = builtins.find(|builtin| builtin.name == name) {
            return Ok((builtin.name.into(), builtin.text.into()));
        }
        let scripts = self.folder.as_deref().map(source_files::scripts_in);
        let beside = scripts.iter().flatten().map(String::as_str);
        let names = Builtin::importable().map(|builtin| builtin.name);
        let error = Diagnostic::error(format!("there is no recipe \"{name}\" to import"));
        let error = match suggest::nearest(name, names.chain(beside)) {
            Some(near) => {
                let help = format!("did you mean \"{near}\"?");
                error.with_help(help).with_fix(path, near)
            }
            None => error.with_help(format!("{WHAT}; `advlab recipes` lists the built-ins")),
        };
        Err(error.into())
    }

    fn compile(&self, engine: &Engine, path: &str) -> Raised<(AST, Module)> {
        let (name, text) = self
            .read(path)
            .inspect_err(|_| self.found().missing = Some(path.to_string()))?;
        self.found().sources.insert(name.clone(), text.clone());
        let in_module = |error| {
            let name = name.to_string();
            Box::new(EvalAltResult::ErrorInModule(name, error, Position::NONE))
        };
        let compiled = engine.compile_with_scope(&constants(&text), &text);
        let mut ast = compiled.map_err(|error| in_module(error.into()))?;
        ast.set_source(&*name);
        let module = Module::eval_ast_as_new(Scope::new(), &ast, engine).map_err(in_module)?;
        Ok((ast, module))
    }
}

impl ModuleResolver for Imports {
    fn resolve(
        &self,
        engine: &Engine,
        _: Option<&str>,
        path: &str,
        _: Position,
    ) -> Raised<Shared<Module>> {
        {
            let mut found = self.found();
            if let Some((_, module)) = found.modules.get(path) {
                return Ok(module.clone());
            }
            if found.loading.iter().any(|open| open == path) {
                found.missing = Some(path.to_string());
                let ring: String = found
                    .loading
                    .iter()
                    .map(|open| format!("\"{open}\" imports "))
                    .collect();
                let message = format!("circular import: {ring}\"{path}\"");
                let help = "put what the scripts share into another script, and import that script";
                return Err(CallError::new(message, help).into());
            }
            found.loading.push(path.to_string());
        }
        let compiled = self.compile(engine, path);
        let mut found = self.found();
        found.loading.pop();
        let (ast, module) = compiled?;
        let module = Shared::new(module);
        let imported = (ast, module.clone());
        found.modules.insert(path.to_string(), imported);
        Ok(module)
    }
}
