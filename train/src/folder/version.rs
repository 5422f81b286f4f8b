//! A version of a recipe that a run used, stored with all its imports, so that it can be loaded again.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{SCRIPTS, write_folder};
use crate::error::{Result, damaged, io};
use advlab::script::{Builtin, Host, Recipe};

/// A version in `scripts/`, in a folder named by its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptVersion {
    /// The path of its script in the run's folder.
    #[serde(default)]
    pub script: String,
    /// Its hash, all 64 digits.
    pub version: String,
}

impl KeptVersion {
    /// The place of a version in any run's folder.
    pub(crate) fn of(recipe: &Recipe) -> KeptVersion {
        let version = recipe.version().as_str();
        KeptVersion {
            script: format!("{SCRIPTS}/{version}/{}", file_name(recipe.name())),
            version: version.to_string(),
        }
    }

    /// Writes a version into a run's folder, unless it is there already.
    pub(crate) fn keep(run: &Path, recipe: &Recipe) -> Result<()> {
        let folder = run.join(SCRIPTS).join(recipe.version().as_str());
        if folder.is_dir() {
            return Ok(());
        }
        write_folder(&folder, |part| {
            recipe.sources().try_for_each(|(source, text)| {
                let path = part.join(file_name(source));
                let written = File::create(&path).and_then(|mut file| {
                    file.write_all(text.as_bytes())?;
                    file.sync_all()
                });
                written.map_err(io("write", &path))
            })
        })
    }

    /// Loads the version under its original name: a built-in's, or the name of its file.
    pub(crate) fn load(&self, run: &Path, host: &Host) -> Result<Recipe> {
        let path = run.join(&self.script);
        let is_this = |recipe: &Recipe| recipe.version().as_str() == self.version;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(builtin) = Builtin::find(&stem) {
            let recipe = host.load(builtin.name)?;
            if is_this(&recipe) {
                return Ok(recipe);
            }
        }
        let text = advlab::regular_file::read_to_string(&path).map_err(io("read", &path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let recipe = host.compile_beside(&name, &text, path.parent().unwrap_or(run))?;
        if is_this(&recipe) {
            return Ok(recipe);
        }
        let what = "it is not the version that the run used: has it been edited? It is a record of the run";
        Err(damaged(&path, what))
    }
}

/// The file name for a script; a built-in gets the ending. A script without an ending may import one with the same name.
fn file_name(source: &str) -> String {
    match Builtin::find(source) {
        Some(builtin) => format!("{}.rhai", builtin.name),
        None => {
            let name = Path::new(source).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
    }
}
