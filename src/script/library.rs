//! Where recipes and their imports come from: the built-ins, and the script's own folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rhai::{AST, Dynamic, Engine, EvalAltResult, Module, ModuleResolver, Position, Scope, Shared};

use super::error::Problem;
use super::reading::{self, Content, Reading};
use crate::suggest;

/// A recipe that comes with advlab.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name, as in `advlab apply passk`.
    pub name: &'static str,
    /// Its script, unchanged.
    pub text: &'static str,
}

macro_rules! builtins {
    ($($name:literal),+ $(,)?) => {
        &[$(Builtin { name: $name, text: include_str!(concat!("../../stdlib/", $name, ".rhai")) }),+]
    };
}

/// The recipes that come with advlab, in the order in which a newcomer meets them.
pub const BUILTINS: &[Builtin] = builtins![
    "grpo",
    "dr_grpo",
    "rloo",
    "passk",
    "grpo_lambda",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gae",
    "pacs",
    "ppo_clip",
    "policy_gradient",
];

impl Builtin {
    /// The built-in of that name.
    pub fn find(name: &str) -> Option<&'static Builtin> {
        BUILTINS.iter().find(|builtin| builtin.name == name)
    }
}

/// The scripts that a recipe is made of, by their names, with their texts.
pub(super) type Sources = BTreeMap<Arc<str>, Arc<str>>;

/// Functions by their names, each with the numbers of parameters that it takes.
pub(super) type Functions = BTreeMap<String, Vec<usize>>;

pub(super) fn by_name(functions: impl IntoIterator<Item = (String, usize)>) -> Functions {
    let mut named = Functions::new();
    for (name, parameters) in functions {
        named.entry(name).or_default().push(parameters);
    }
    named
}

pub(super) fn functions_of(ast: &AST) -> Functions {
    by_name(
        ast.iter_functions()
            .map(|f| (f.name.to_string(), f.params.len())),
    )
}

/// Finds imports: beside the script for a file, among the built-ins for all.
pub(super) struct Library {
    folder: Option<PathBuf>,
    /// Files that have been read already.
    read: BTreeMap<PathBuf, Content>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    sources: Sources,
    modules: BTreeMap<String, (Shared<Module>, Functions)>,
    /// The imported scripts, by their names.
    scripts: BTreeMap<String, AST>,
    /// The imports that are being loaded, outermost first: a recipe that imports itself would have no end.
    loading: Vec<String>,
    /// The files that imports were looked for in.
    files: BTreeMap<PathBuf, Content>,
    /// The import that could not be found or read, or that closes a circle.
    missing: Option<String>,
}

impl Library {
    /// `folder` is the script's own; `None` for a built-in.
    pub(super) fn new(folder: Option<&Path>) -> Arc<Self> {
        Arc::new(Library {
            folder: folder.map(Path::to_path_buf),
            read: BTreeMap::new(),
            found: Mutex::default(),
        })
    }

    /// The folder of a script, whose files are taken from a reading as far as it has them.
    pub(super) fn of_reading(folder: &Path, reading: &Reading) -> Arc<Self> {
        Arc::new(Library {
            folder: Some(folder.to_path_buf()),
            read: reading.files.clone(),
            found: Mutex::default(),
        })
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The imported scripts: their texts by name, and their functions by the path that the import wrote.
    pub(super) fn imported(&self) -> (Sources, BTreeMap<String, Functions>) {
        let found = self.found();
        let modules = found.modules.iter();
        let functions = modules.map(|(path, (_, functions))| (path.clone(), functions.clone()));
        (found.sources.clone(), functions.collect())
    }

    /// The path of the import that could not be found or read. The engine does not say where it stands.
    pub(super) fn missing(&self) -> Option<String> {
        self.found().missing.clone()
    }

    pub(super) fn scripts(&self) -> BTreeMap<String, AST> {
        self.found().scripts.clone()
    }

    pub(super) fn files(&self) -> BTreeMap<PathBuf, Content> {
        self.found().files.clone()
    }

    /// The name and text of what an import means.
    fn read(&self, path: &str) -> Result<(String, String), Problem> {
        let name = path.strip_suffix(".rhai").unwrap_or(path);
        let plain = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "_-.".contains(c))
            && !name.starts_with('.');
        if !plain {
            let problem = Problem::new(format!("cannot import \"{path}\""));
            return Err(problem.help(
                "an import is the name of a built-in, or of a file in the script's own folder",
            ));
        }
        if let Some(folder) = &self.folder {
            let file = folder.join(format!("{name}.rhai"));
            let read = self.read.get(&file).cloned();
            let read = read.unwrap_or_else(|| reading::read(&file));
            self.found().files.insert(file.clone(), read.clone());
            let cannot = |why: String| {
                let file = file.display();
                Problem::new(format!("cannot import \"{path}\": {file}: {why}"))
            };
            match read {
                Ok(bytes) => {
                    let text = String::from_utf8(bytes.to_vec());
                    let text = text.map_err(|error| cannot(error.to_string()))?;
                    return Ok((file.display().to_string(), text));
                }
                Err(unread) if unread.kind == std::io::ErrorKind::NotFound => {}
                Err(unread) => return Err(cannot(unread.why)),
            }
        }
        match Builtin::find(name) {
            Some(builtin) => Ok((builtin.name.to_string(), builtin.text.to_string())),
            None => {
                let beside = self.beside();
                let names = BUILTINS
                    .iter()
                    .map(|builtin| builtin.name)
                    .chain(beside.iter().map(String::as_str));
                let help = match suggest::nearest(name, names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "an import is the name of a built-in (`advlab recipes` lists them), or of a file in the script's own folder".to_string(),
                };
                Err(Problem::new(format!("there is no recipe \"{name}\" to import")).help(help))
            }
        }
    }

    /// The names of the scripts in the folder.
    fn beside(&self) -> Vec<String> {
        let entries = self
            .folder
            .as_deref()
            .and_then(|folder| std::fs::read_dir(folder).ok());
        let names = entries.into_iter().flatten().flatten().filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".rhai")
                .map(str::to_string)
        });
        names.collect()
    }

    fn load(&self, engine: &Engine, path: &str) -> Result<Shared<Module>, Box<EvalAltResult>> {
        {
            let mut found = self.found();
            if let Some((module, _)) = found.modules.get(path) {
                return Ok(module.clone());
            }
            if found.loading.iter().any(|open| open == path) {
                let ring = found
                    .loading
                    .iter()
                    .map(|open| format!("\"{open}\" imports "));
                let ring: String = ring.collect();
                let problem = Problem::new(format!("circular import: {ring}\"{path}\""));
                found.missing = Some(path.to_string());
                return Err(problem
                    .help("put what both need into a script of its own, and import that")
                    .into());
            }
            found.loading.push(path.to_string());
        }
        let loaded = self.compile(engine, path);
        let mut found = self.found();
        found.loading.pop();
        let (module, functions) = loaded?;
        found
            .modules
            .insert(path.to_string(), (module.clone(), functions));
        Ok(module)
    }

    fn compile(
        &self,
        engine: &Engine,
        path: &str,
    ) -> Result<(Shared<Module>, Functions), Box<EvalAltResult>> {
        let (name, text) = self.read(path).inspect_err(|_| {
            let mut found = self.found();
            found.missing = Some(path.to_string());
        })?;
        let text: Arc<str> = text.into();
        self.found()
            .sources
            .insert(name.as_str().into(), text.clone());
        let in_module = |error: Box<EvalAltResult>| {
            Box::new(EvalAltResult::ErrorInModule(
                name.clone(),
                error,
                Position::NONE,
            ))
        };
        let mut ast: AST = engine
            .compile(&*text)
            .map_err(|error| in_module(error.into()))?;
        ast.set_source(name.as_str());
        let functions = functions_of(&ast);
        let module = Module::eval_ast_as_new(Scope::new(), &ast, engine).map_err(in_module)?;
        self.found().scripts.insert(name, ast);
        Ok((module.into(), functions))
    }
}

pub(super) struct Resolver(pub(super) Arc<Library>);

impl ModuleResolver for Resolver {
    fn resolve(
        &self,
        engine: &Engine,
        _: Option<&str>,
        path: &str,
        _: Position,
    ) -> Result<Shared<Module>, Box<EvalAltResult>> {
        self.0.load(engine, path)
    }
}

/// An import whose path is not a literal is met only when the script runs; it is refused there.
pub(super) struct NoImports;

impl ModuleResolver for NoImports {
    fn resolve(
        &self,
        _: &Engine,
        _: Option<&str>,
        path: &str,
        position: Position,
    ) -> Result<Shared<Module>, Box<EvalAltResult>> {
        let problem = Problem::new(format!("cannot import \"{path}\" here"))
            .help("imports come at the top of the script, with their names written out");
        Err(EvalAltResult::ErrorRuntime(Dynamic::from(problem), position).into())
    }
}
