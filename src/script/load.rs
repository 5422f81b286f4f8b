//! Loads recipes: built-ins by their names, scripts by their paths, or from text.

use std::path::Path;

use super::builtin::{BUILTINS, Builtin};
use super::compile::compile;
use super::hook::Version;
use super::host::Host;
use super::library::Library;
use super::mistake::Mistake;
use super::recipe::Recipe;
use super::sandbox::guarded;
use super::source_files::{Content, SourceFiles};
use crate::diagnostic::Diagnostics;
use crate::suggest;

/// The loss of a recipe that has none, unless the run names another.
const DEFAULT_LOSS: &str = "ppo_clip";

impl Host {
    /// The loss for an advantage whose recipe has none.
    ///
    /// # Errors
    /// As [`Host::load`].
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

    /// Compiles from the bytes of a reading, not from the file. The new reading also has the imports that were needed.
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

    /// Compiles a recipe from a string. Messages call it `name`; it can only import built-ins.
    ///
    /// # Errors
    /// As [`Host::load`].
    pub fn compile(&self, name: &str, text: &str) -> Result<Recipe, Diagnostics> {
        compile(self, name, text, &Library::new(None))
    }

    /// Compiles a recipe again from [`Recipe::name`] and [`Recipe::sources`] of another, without its files: the same version
    /// in another process or on another machine, whatever is in the script's folder there.
    ///
    /// # Errors
    /// As [`Host::load`]; also if a built-in that it imports has another text here.
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

/// The script in a path's folder with the nearest name.
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
