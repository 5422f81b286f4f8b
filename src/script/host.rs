//! The host: what recipes share, their limits, and how they are loaded: built-ins by their names, scripts by their paths, or from text.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::call::Call;
use super::compile::compile;
use super::engine::Functions;
use super::library::{BUILTINS, Builtin, Library};
use super::recipe::{Recipe, Version};
use super::source_files::{FileBytes, SourceFiles, folder_of, is_missing, scripts_in, text};
use crate::batch::large::SpareMemory;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::native::Native;
use crate::suggest;
use crate::tensor::profile::Profile;
use crate::tensor::{Executor, Guard};

/// The bounds of one call of a recipe: [`Recipe::advantage`] with the hooks `reward` and `weight`, each update's
/// [`Recipe::loss`], [`Recipe::returns`]. [`Recipe::for_step`] puts several calls under one bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time limit for all hooks of the call together; native code obeys it too.
    pub time: Duration,
    /// The bytes that the tensors of the call may hold at once.
    pub memory: usize,
}

impl Default for Limits {
    /// A minute and 4 GiB: far more than a step needs, and a bound for a script that does not terminate.
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(60),
            memory: 4 << 30,
        }
    }
}

/// Loads recipes, and holds their shared data: functions, limits, an executor, a seed. The seed is 0 unless it is set.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub(crate) functions: Functions,
    limits: Limits,
    pub(super) seed: u64,
    pub(super) executor: Executor,
    /// Whether results by token are written as the rows of an array [B, T].
    pub(super) by_rows: bool,
    pub(super) profile: Option<Arc<Profile>>,
    /// The kernels of built-ins.
    pub(super) native: Native,
    /// One guard for all calls; without it each call has its own.
    guard: Option<Arc<Guard>>,
    /// Memory of earlier calls.
    spare: SpareMemory,
    /// The loss recipe of a run.
    pub(super) loss: Option<Arc<Recipe>>,
}

impl Host {
    /// A host with the default limits and the seed 0.
    pub fn new() -> Host {
        Host::default()
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
    pub fn seed(&self) -> u64 {
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

    /// The same host for callers that take results by [`Computed::into_rows`](crate::batch::Computed::into_rows): they are written
    /// where they belong, instead of being copied there.
    pub fn with_padded_results(self) -> Host {
        let by_rows = true;
        Host { by_rows, ..self }
    }

    /// The same host, which records the time of computations in a profile.
    pub fn with_profile(self, profile: Arc<Profile>) -> Host {
        let profile = Some(profile);
        Host { profile, ..self }
    }

    /// The same host with kernels for the built-ins' hooks; the bits of results are the same.
    pub fn with_native(self, native: &Native) -> Host {
        let native = native.clone();
        Host { native, ..self }
    }

    /// The same host with a loss for recipes that have none: a run's, or `ppo_clip`.
    pub(crate) fn with_loss(self, loss: Option<Recipe>) -> Host {
        let loss = loss.map(Arc::new);
        Host { loss, ..self }
    }

    /// A call at a step, with its own bounds.
    pub(crate) fn call(&self, step: u64) -> Arc<Call> {
        Call::new(self, &self.guard(), step, None)
    }

    /// The same host with one guard for all calls: the holder of the guard can cancel the running call.
    pub fn with_guard(self, guard: Arc<Guard>) -> Host {
        let guard = Some(guard);
        Host { guard, ..self }
    }

    /// The guard of the next call.
    pub fn guard(&self) -> Arc<Guard> {
        let new = || self.guard_for(self.limits.time);
        self.guard.clone().unwrap_or_else(new)
    }

    /// A guard with the host's limit of memory and another of time.
    pub(crate) fn guard_for(&self, time: Duration) -> Arc<Guard> {
        Guard::sharing(&self.spare, Some(time), self.limits.memory)
    }
}

/// The loss for recipes that have none, unless the run names another.
const DEFAULT_LOSS: &str = "ppo_clip";

impl Host {
    /// The loss for a recipe that has only an advantage.
    pub fn loss(&self) -> Result<Recipe, Diagnostics> {
        match &self.loss {
            Some(loss) => Ok(loss.on(self)),
            None => self.load(DEFAULT_LOSS),
        }
    }

    /// Loads a recipe: a built-in by its name, or a script by its path.
    ///
    /// # Errors
    /// [`Diagnostics`] if there is no such recipe, or if it does not compile, fails the lint, or declares its parameters
    /// wrongly.
    pub fn load(&self, recipe: &str) -> Result<Recipe, Diagnostics> {
        self.load_reading(recipe).0
    }

    /// As [`Host::load`], with the files that were read, also if the script does not compile.
    pub fn load_reading(&self, recipe: &str) -> (Result<Recipe, Diagnostics>, SourceFiles) {
        let path = Path::new(recipe);
        if let Some(builtin) = Builtin::find(recipe) {
            let compiled = self.compile(builtin.name, builtin.text);
            return (compiled, SourceFiles::default());
        }
        let is_path = recipe.contains(['/', '\\']) || recipe.ends_with(".rhai") || path.exists();
        let error = match another_kind(path) {
            Some(kind) => Diagnostic::error(format!("`{recipe}` is {kind}, not a recipe")).with_help(
                "a recipe is a built-in's name, such as `grpo`, or the path of a .rhai script; rollouts stand behind it: \
                 `advlab apply grpo rollouts.jsonl`",
            ),
            None if is_path => return self.load_read(&SourceFiles::of(path)),
            None => {
                let names = BUILTINS.iter().map(|builtin| builtin.name);
                let file = format!("{recipe}.rhai");
                let help = match suggest::nearest(recipe, names) {
                    _ if Path::new(&file).is_file() => format!("the script is `{file}`"),
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`advlab recipes` lists the built-ins; a script is given by its path, such as `my/recipe.rhai`"
                        .to_string(),
                };
                Diagnostic::error(format!("there is no recipe `{recipe}`")).with_help(help)
            }
        };
        (Err(error.into()), SourceFiles::default())
    }

    /// Compiles from the bytes of a reading, not from the file. The new reading also has the imports that were needed.
    pub(crate) fn load_read(
        &self,
        read: &SourceFiles,
    ) -> (Result<Recipe, Diagnostics>, SourceFiles) {
        let (Some(path), Some(content)) = (read.main.as_deref(), read.main_content()) else {
            unreachable!("the reading of a built-in is not compiled again")
        };
        let name = path.display().to_string();
        let mut library = Library::new(Some(folder_of(path)));
        library.read.clone_from(&read.files);
        let compiled = match text(path, content) {
            Err(why) => Err(unreadable(path, content, &why).into()),
            Ok(text) => compile(self, &name, text, &library),
        };
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

    /// Compiles a recipe from a string. Messages call it `name`; it can only import built-ins.
    pub fn compile(&self, name: &str, text: &str) -> Result<Recipe, Diagnostics> {
        compile(self, name, text, &Library::new(None))
    }

    /// Compiles a recipe again from its [`Recipe::name`] and [`Recipe::sources`], without its files: this gives the same version
    /// in another process or on another machine, independently of the files there.
    ///
    /// # Errors
    /// As [`Host::load`]; also if a built-in that it imports has another text here.
    pub fn restore<'a>(
        &self,
        name: &str,
        sources: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Recipe, Diagnostics> {
        let folder = folder_of(Path::new(name));
        let (mut script, mut library) = ("", Library::new(Some(folder)));
        for (source, text) in sources {
            let builtin = Builtin::importable().find(|builtin| builtin.name == source);
            if source == name {
                script = text;
            } else if builtin.is_some() {
                // A file of that name is ignored.
                let missing = Err((ErrorKind::NotFound, String::new()));
                let file = folder.join(format!("{source}.rhai"));
                library.read.insert(file, missing);
            } else {
                let content: FileBytes = Ok(text.as_bytes().into());
                library.read.insert(source.into(), content);
            }
            if builtin.is_some_and(|here| here.text != text) {
                let message = format!("`{source}` is not the built-in of this version of advlab");
                let help = match Builtin::find(source) {
                    Some(_) => {
                        format!("import a copy of it: `advlab new mine.rhai --from {source}`")
                    }
                    None => "use the version of advlab that wrote it".to_string(),
                };
                return Err(Diagnostic::error(message).with_help(help).into());
            }
        }
        compile(self, name, script, &library)
    }

    /// As [`Host::compile`], with imports of scripts in a folder too.
    pub fn compile_beside(
        &self,
        name: &str,
        text: &str,
        folder: &Path,
    ) -> Result<Recipe, Diagnostics> {
        compile(self, name, text, &Library::new(Some(folder)))
    }
}

/// The kind of a path that cannot be a script.
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

fn unreadable(path: &Path, content: &FileBytes, why: &str) -> Diagnostic {
    let error = Diagnostic::error(format!("cannot read {why}"));
    if !is_missing(content) {
        return error;
    }
    let name = path.file_stem().and_then(|name| name.to_str());
    let names = scripts_in(folder_of(path));
    let near = suggest::nearest(name.unwrap_or(""), names.iter().map(String::as_str));
    error.with_help(match near {
        Some(near) => {
            let file = path.with_file_name(format!("{near}.rhai"));
            format!("did you mean `{}`?", file.display())
        }
        None => "`advlab new FILE --from grpo` makes a recipe to edit, `advlab recipes` lists the built-ins".to_string(),
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
