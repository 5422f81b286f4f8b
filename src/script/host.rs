//! The host: what loads recipes, and what bounds them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::builtin::{BUILTINS, Builtin};
use super::compile::compile;
use super::engine::Functions;
use super::library::Library;
use super::mistake::Mistake;
use super::recipe::{Recipe, Version};
use super::sandbox::guarded;
use super::source_files::{Content, SourceFiles};
use crate::diagnostic::Diagnostics;
use crate::native::Native;
use crate::suggest;
use crate::tensor::profile::Profile;
use crate::tensor::{Context, Executor, Guard};

/// The bounds of one call of a recipe: of [`Recipe::advantage`] with the hooks `reward` and `weight`, of each update's
/// [`Recipe::loss`], of [`Recipe::returns`]. [`Recipe::for_step`] puts several calls under one bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time that the hooks of the call have together; native code obeys it too.
    pub time: Duration,
    /// The bytes that the tensors of the call may hold at once.
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
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) functions: Functions,
    limits: Limits,
    pub(super) seed: u64,
    executor: Executor,
    profile: Option<Arc<Profile>>,
    /// What may answer hooks of built-ins in place of their scripts.
    pub(super) native: Option<Native>,
    /// One guard for all calls, where they have not one each.
    guard: Option<Arc<Guard>>,
    /// A run's loss recipe, where recipes are those of a run.
    loss: Option<Arc<Recipe>>,
}

/// The loss of a recipe that has none, where no run says another.
const DEFAULT_LOSS: &str = "ppo_clip";

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Host {
    /// A host with the default limits and the seed 0.
    pub fn new() -> Host {
        Host {
            functions: Functions::new(),
            limits: Limits::default(),
            seed: 0,
            executor: Executor::default(),
            profile: None,
            native: None,
            guard: None,
            loss: None,
        }
    }

    /// The same host with other limits.
    pub fn with_limits(self, limits: Limits) -> Host {
        Host { limits, ..self }
    }

    /// The bounds of one call.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The seed, from which `batch.random` draws.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The same host with another seed, from which `batch.random` draws.
    pub fn with_seed(self, seed: u64) -> Host {
        Host { seed, ..self }
    }

    /// The same host with another executor, for tests and benchmarks; the bits of results are the same.
    pub fn with_executor(self, executor: Executor) -> Host {
        Host { executor, ..self }
    }

    /// What computes the tensors of its recipes.
    pub fn executor(&self) -> Executor {
        self.executor
    }

    /// The same host, which notes down where the time of computations goes.
    pub fn with_profile(self, profile: Arc<Profile>) -> Host {
        let profile = Some(profile);
        Host { profile, ..self }
    }

    /// The same host with what may answer hooks of built-ins, or with nothing that does.
    pub(crate) fn with_kernels(self, native: Option<Native>) -> Host {
        Host { native, ..self }
    }

    /// Leaves a hook of a version to its script for good: its kernel has given other bits before.
    pub(crate) fn refuse_kernel(&self, version: &str, hook: &str) {
        if let Some(native) = &self.native {
            native.refuse(version, hook);
        }
    }

    /// The same host with the loss of recipes that have none: a run's, or `ppo_clip`.
    pub(crate) fn with_loss(self, loss: Option<Recipe>) -> Host {
        let loss = loss.map(Arc::new);
        Host { loss, ..self }
    }

    /// The loss that is followed with an advantage where its recipe has none.
    ///
    /// # Errors
    /// As [`Host::load`].
    pub(crate) fn loss(&self) -> Result<Recipe, Diagnostics> {
        match &self.loss {
            Some(loss) => Ok(loss.on(self)),
            None => self.load(DEFAULT_LOSS),
        }
    }

    /// What computes the tensors of a call with a guard.
    pub(super) fn context(&self, guard: Arc<Guard>) -> Context {
        Context {
            executor: self.executor,
            guard,
            profile: self.profile.clone(),
        }
    }

    /// The same host with one guard for all calls: who holds it can cancel whichever is running.
    pub fn with_guard(self, guard: Arc<Guard>) -> Host {
        let guard = Some(guard);
        Host { guard, ..self }
    }

    /// The guard of the next call.
    pub(crate) fn guard(&self) -> Arc<Guard> {
        let new = || Guard::new(Some(self.limits.time), self.limits.memory);
        self.guard.clone().unwrap_or_else(new)
    }

    /// Loads a recipe: a built-in by its name, or a script by its path.
    ///
    /// # Errors
    /// [`Diagnostics`] where there is no such recipe, or where it does not compile, fails the lint, or declares its
    /// parameters wrongly.
    pub fn load(&self, recipe: &str) -> Result<Recipe, Diagnostics> {
        self.load_reading(recipe).0
    }

    pub(crate) fn load_reading(&self, recipe: &str) -> (Result<Recipe, Diagnostics>, SourceFiles) {
        let path = Path::new(recipe);
        let error = if let Some(builtin) = Builtin::find(recipe) {
            return (
                self.compile(builtin.name, builtin.text),
                SourceFiles::default(),
            );
        } else if let Some(kind) = another_kind(path) {
            Mistake::NotARecipe { name: recipe, kind }.error()
        } else if recipe.contains(['/', '\\']) || recipe.ends_with(".rhai") || path.exists() {
            return self.load_read(&SourceFiles::of(path));
        } else {
            let names = BUILTINS.iter().map(|builtin| builtin.name);
            let file = format!("{recipe}.rhai");
            let help = &match suggest::nearest(recipe, names) {
                _ if Path::new(&file).is_file() => format!("the script is `{file}`"),
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "`advlab recipes` lists the built-ins; a script is given by its path, such \
                         as `my/recipe.rhai`"
                        .to_string()
                }
            };
            Mistake::NoRecipe { name: recipe, help }.error()
        };
        (Err(error), SourceFiles::default())
    }

    /// Compiles from the bytes of a reading, not from the file. The new reading has the imports that were needed too.
    pub(crate) fn load_read(
        &self,
        read: &SourceFiles,
    ) -> (Result<Recipe, Diagnostics>, SourceFiles) {
        let (Some(path), Some(content)) = (read.main.as_deref(), read.main_content()) else {
            unreachable!("the reading of a built-in is not compiled again")
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let name = path.display().to_string();
        let mut library = Library::new(Some(folder));
        library.read.clone_from(&read.files);
        let compiled = text_of(path, content).and_then(|text| {
            guarded("to compile the script", || {
                compile(self, &name, text, &library)
            })?
        });
        let found = library.found();
        let mut files = found.files.clone();
        files.insert(path.to_path_buf(), content.clone());
        let version = content.as_ref().ok();
        let version = version.map(|bytes| Version::of(&name, bytes, &found.sources));
        let reading = SourceFiles {
            main: Some(path.to_path_buf()),
            files,
            version,
        };
        (compiled, reading)
    }

    /// Compiles a recipe from a string. `name` is the one of messages; its imports are built-ins alone.
    ///
    /// # Errors
    /// As [`Host::load`].
    pub fn compile(&self, name: &str, text: &str) -> Result<Recipe, Diagnostics> {
        compile(self, name, text, &Library::new(None))
    }

    /// Compiles a recipe again from what another has as [`Recipe::name`] and [`Recipe::sources`], and from no file: the same
    /// version in another process or on another machine, whatever lies in the script's folder there.
    ///
    /// # Errors
    /// As [`Host::load`]; also where a built-in that it imports is not the same here.
    pub fn restore<'a>(
        &self,
        name: &str,
        sources: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Recipe, Diagnostics> {
        let folder = match Path::new(name).parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let (mut text, mut library) = ("", Library::new(Some(folder)));
        for (source, its) in sources {
            let here = Builtin::find(source);
            if source == name {
                text = its;
            } else if here.is_some() {
                library.hide(source);
            } else {
                library
                    .read
                    .insert(source.into(), Ok(its.as_bytes().into()));
            }
            if here.is_some_and(|here| here.text != its) {
                return Err(Mistake::OtherBuiltin { name: source }.error());
            }
        }
        compile(self, name, text, &library)
    }

    /// As [`Host::compile`], with imports of scripts in a folder too.
    pub(crate) fn compile_beside(
        &self,
        name: &str,
        text: &str,
        folder: &Path,
    ) -> Result<Recipe, Diagnostics> {
        compile(self, name, text, &Library::new(Some(folder)))
    }
}

/// The kind of a path that can be no script.
fn another_kind(path: &Path) -> Option<&'static str> {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_deref().and_then(|ending| ending.to_str()) {
        _ if path.is_dir() => Some("a folder"),
        Some("jsonl" | "ndjson" | "gz" | "zst" | "json" | "safetensors" | "npz" | "parquet") => {
            Some("a file of rollouts")
        }
        Some("toml") => Some("a configuration"),
        _ => None,
    }
}

/// The script in a path's folder that has nearly its name.
fn near(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    let here = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let names: Vec<String> = std::fs::read_dir(here)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".rhai"))
        .collect();
    let name = path.file_name()?.to_str()?;
    let near = suggest::nearest(name, names.iter().map(String::as_str))?;
    Some(folder.join(near).display().to_string())
}

fn text_of<'a>(path: &Path, content: &'a Content) -> Result<&'a str, Diagnostics> {
    let near = near(path);
    let path = &path.display().to_string();
    let bytes = content.as_ref().map_err(|unread| {
        let why = &unread.why;
        if unread.kind != std::io::ErrorKind::NotFound {
            return Mistake::UnreadableScript { path, why }.error();
        }
        let help = &match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`advlab new FILE --from grpo` makes a recipe to edit, `advlab recipes` lists \
                     the built-ins"
                .to_string(),
        };
        Mistake::MissingScript { path, why, help }.error()
    })?;
    std::str::from_utf8(bytes).map_err(|error| {
        let byte = &error.valid_up_to().to_string();
        Mistake::NotText { path, byte }.error()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::tensor::op;

    #[test]
    fn every_example_of_the_op_table_gives_what_it_shows() {
        let (host, batch) = (Host::new(), Batch::example());
        for op in op::table() {
            let got = match host.evaluate(op.example, &batch) {
                Ok(answer) => answer.numbers(),
                Err(error) => panic!("{}: {}", op.name, error.render(false)),
            };
            assert_eq!(got.len(), op.shows.len(), "{}: {got:?}", op.name);
            for (got, shown) in got.iter().zip(op.shows) {
                assert!(
                    (got - shown).abs() <= 1e-15 * shown.abs().max(1.0),
                    "{}: {got:?} {shown:?}",
                    op.name
                );
            }
        }
    }
}
