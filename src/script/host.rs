//! The host: what loads recipes, and what bounds them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::compile::compile;
use super::engine::Functions;
use super::library::{BUILTINS, Builtin, Library};
use super::reading::{Content, Reading};
use super::recipe::{Recipe, Version};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;
use crate::tensor::{Executor, Guard, Naive};

/// What bounds one call of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time that all hooks of one step have together; native code obeys it too.
    pub time: Duration,
    /// The bytes that the tensors of one step may hold at once.
    pub memory: usize,
}

impl Default for Limits {
    /// A minute, and 4 GiB: far beyond what a step takes, and an end for a script that has none.
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(60),
            memory: 4 << 30,
        }
    }
}

/// Loads recipes, and holds what they share: functions, limits, an executor, a seed.
///
/// ```
/// use advlab::{Batch, Host};
///
/// let grpo = Host::new().load("grpo")?;
/// let batch = Batch::builder()
///     .groups(["a", "a"])
///     .response("reward", vec![1.0, 0.0])
///     .build()?;
/// let outcome = grpo.advantage(&batch, &mut grpo.init()?)?;
/// assert!(outcome.advantage.at(0, 0) > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Host {
    pub(super) shared: Arc<Shared>,
}

#[derive(Clone)]
pub(super) struct Shared {
    pub(super) functions: Functions,
    pub(super) limits: Limits,
    pub(super) seed: u64,
    pub(super) executor: Arc<dyn Executor>,
    /// What bounds all calls together, where that is not a guard of their own for each.
    guard: Option<Arc<Guard>>,
}

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Host {
    /// A host with the default limits and the seed 0.
    pub fn new() -> Host {
        let shared = Shared {
            functions: Functions::new(),
            limits: Limits::default(),
            seed: 0,
            executor: Arc::new(Naive),
            guard: None,
        };
        Host {
            shared: Arc::new(shared),
        }
    }

    /// The same host with other limits.
    pub fn with_limits(self, limits: Limits) -> Host {
        Host {
            shared: Arc::new(Shared {
                limits,
                ..(*self.shared).clone()
            }),
        }
    }

    /// What bounds one call.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// The same host with another seed, from which `batch.random` draws.
    pub fn with_seed(self, seed: u64) -> Host {
        Host {
            shared: Arc::new(Shared {
                seed,
                ..(*self.shared).clone()
            }),
        }
    }

    /// The same host with one guard for all calls: who holds it can cancel whichever is running.
    pub fn with_guard(self, guard: Arc<Guard>) -> Host {
        Host {
            shared: Arc::new(Shared {
                guard: Some(guard),
                ..(*self.shared).clone()
            }),
        }
    }

    /// Loads a recipe: a built-in by its name, or a script by its path.
    ///
    /// # Errors
    /// [`Diagnostics`] where there is no such recipe, or where it does not compile, fails the lint, or declares its
    /// parameters wrongly.
    pub fn load(&self, recipe: &str) -> Result<Recipe, Diagnostics> {
        self.load_reading(recipe).0
    }

    /// Loads a recipe, and says which files it was read from.
    pub(crate) fn load_reading(&self, recipe: &str) -> (Result<Recipe, Diagnostics>, Reading) {
        let path = Path::new(recipe);
        let error = if let Some(builtin) = Builtin::find(recipe) {
            return (self.compile(builtin.name, builtin.text), Reading::default());
        } else if let Some(kind) = another_kind(path) {
            Diagnostic::error(format!("`{recipe}` is {kind}, not a recipe")).with_help(
                "a recipe is a built-in's name, such as `grpo`, or the path of a .rhai script; rollouts stand behind it: `advlab apply grpo rollouts.jsonl`",
            )
        } else if recipe.contains(['/', '\\']) || recipe.ends_with(".rhai") || path.exists() {
            return self.load_file(path);
        } else {
            let names = BUILTINS.iter().map(|builtin| builtin.name);
            let file = format!("{recipe}.rhai");
            let help = match suggest::nearest(recipe, names) {
                _ if Path::new(&file).is_file() => format!("the script is `{file}`"),
                Some(near) => format!("did you mean `{near}`?"),
                None => "`advlab recipes` lists the built-ins; a script is given by its path, such as `my/recipe.rhai`".to_string(),
            };
            Diagnostic::error(format!("there is no recipe `{recipe}`")).with_help(help)
        };
        (Err(error.into()), Reading::default())
    }

    /// Loads a script by its path, and says which files it was read from.
    pub(crate) fn load_file(&self, path: &Path) -> (Result<Recipe, Diagnostics>, Reading) {
        let read = std::fs::read(path);
        let mut reading = Reading {
            main: Some(path.to_path_buf()),
            files: [(path.to_path_buf(), Content::of(&read))].into(),
            version: None,
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let name = path.display().to_string();
        let library = Library::new(Some(folder));
        let bytes = read.as_ref().map_or(Vec::new(), Vec::clone);
        // A panic of ours is an error like any other: a script must not end a run.
        let compiled = text_of(path, read).and_then(|text| {
            let compiled =
                AssertUnwindSafe(|| compile(self.shared.clone(), &name, &text, library.clone()));
            catch_unwind(compiled).unwrap_or_else(|_| {
                Err(
                    Diagnostic::error(format!("advlab itself failed to compile {name}"))
                        .with_help("this is a defect of advlab: please report it with the script")
                        .into(),
                )
            })
        });
        if let Some(Content::Bytes(_)) = reading.main_content() {
            reading.version = Some(Version::of(&name, &bytes, &library.imported().0));
        }
        reading.files.extend(library.files());
        (compiled, reading)
    }

    /// Compiles a recipe from its text. `name` is what messages call it; its imports are built-ins alone.
    ///
    /// # Errors
    /// As [`Host::load`].
    pub fn compile(&self, name: &str, text: &str) -> Result<Recipe, Diagnostics> {
        compile(self.shared.clone(), name, text, Library::new(None))
    }

    /// Compiles a recipe from its text, which imports built-ins and scripts of a folder.
    ///
    /// # Errors
    /// As [`Host::load`].
    pub(crate) fn compile_beside(
        &self,
        name: &str,
        text: &str,
        folder: &Path,
    ) -> Result<Recipe, Diagnostics> {
        compile(self.shared.clone(), name, text, Library::new(Some(folder)))
    }
}

impl Shared {
    pub(super) fn guard(&self) -> Arc<Guard> {
        match &self.guard {
            Some(guard) => guard.clone(),
            None => Guard::new(Some(self.limits.time), self.limits.memory),
        }
    }
}

/// What a path is that can be no script.
fn another_kind(path: &Path) -> Option<&'static str> {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_deref().and_then(|ending| ending.to_str()) {
        _ if path.is_dir() => Some("a folder"),
        Some("jsonl" | "ndjson" | "json" | "safetensors" | "npz" | "parquet") => {
            Some("a file of rollouts")
        }
        Some("toml") => Some("a configuration"),
        _ => None,
    }
}

/// The text of a script's file, or what is wrong with it.
fn text_of(path: &Path, read: std::io::Result<Vec<u8>>) -> Result<String, Diagnostics> {
    let bytes = read.map_err(|error| {
        let diagnostic = Diagnostic::error(format!("cannot read {}: {error}", path.display()));
        match error.kind() {
            std::io::ErrorKind::NotFound => diagnostic.with_help(
                "`advlab new FILE --from grpo` makes a recipe to edit, `advlab recipes` lists the built-ins",
            ),
            _ => diagnostic,
        }
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Diagnostic::error(format!(
            "{} is not text: its byte {place} is not UTF-8",
            path.display()
        ))
        .into()
    })
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("limits", &self.shared.limits)
            .field("seed", &self.shared.seed)
            .field("executor", &self.shared.executor)
            .finish()
    }
}
