//! A version of a recipe that a run used, kept with all that it imports, so that it can be loaded again.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{PART, SCRIPTS, make_folder, sync_folder};
use crate::error::{damaged, io};
use advlab::diagnostic::Diagnostics;
use advlab::script::{Builtin, Host, Recipe};

/// A version in `scripts/`, in a folder that is named by its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptVersion {
    /// The path of its script in the run's folder.
    #[serde(default)]
    pub script: String,
    /// Its hash, all 64 digits.
    pub version: String,
}

impl KeptVersion {
    /// Keeps a version in a run's folder, unless it is kept already.
    pub(crate) fn keep(run: &Path, recipe: &Recipe) -> Result<KeptVersion, Diagnostics> {
        let version = recipe.version().as_str();
        let kept = KeptVersion {
            script: format!("{SCRIPTS}/{version}/{}", file_name(recipe.name())),
            version: version.to_string(),
        };
        let folder = kept.folder(run);
        // A crash of the machine may have left the folder with files that were never written out.
        let mut sources = recipe.sources();
        let is_kept = |(source, text): (&str, &str)| {
            advlab::regular_file::read(&folder.join(file_name(source)))
                .is_ok_and(|kept| kept == text.as_bytes())
        };
        if sources.all(is_kept) {
            return Ok(kept);
        }
        // Written beside and renamed: a version's folder has all of it or is not there.
        let part = run
            .join(SCRIPTS)
            .join(format!("{}{version}{}", PART.0, PART.1));
        for old in [&part, &folder] {
            if old.exists() {
                fs::remove_dir_all(old).map_err(io("remove", old))?;
            }
        }
        make_folder(&part)?;
        for (source, text) in recipe.sources() {
            let path = part.join(file_name(source));
            fs::write(&path, text).map_err(io("write", &path))?;
        }
        fs::rename(&part, &folder).map_err(io("write", &folder))?;
        Ok(kept)
    }

    /// After this, the version survives a crash of the machine.
    pub(super) fn sync(&self, run: &Path) -> Result<(), Diagnostics> {
        let folder = self.folder(run);
        let entries = fs::read_dir(&folder).map_err(io("read", &folder))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let synced = fs::File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(io("write", &path))?;
        }
        sync_folder(&folder)?;
        sync_folder(&run.join(SCRIPTS))
    }

    fn folder(&self, run: &Path) -> PathBuf {
        run.join(SCRIPTS).join(&self.version)
    }

    /// Loads the version under the name that it had: a built-in's, or that of its file.
    pub(crate) fn load(&self, run: &Path, host: &Host) -> Result<Recipe, Diagnostics> {
        let path = run.join(&self.script);
        let is_this = |recipe: &Recipe| recipe.version().as_str() == self.version;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy());
        if let Some(builtin) = stem.and_then(|stem| Builtin::find(&stem)) {
            let recipe = host.load(builtin.name)?;
            if is_this(&recipe) {
                return Ok(recipe);
            }
        }
        let text = advlab::regular_file::read_to_string(&path).map_err(io("read", &path))?;
        let name = path.file_name().map(|name| name.to_string_lossy());
        let folder = path.parent().unwrap_or(run);
        let recipe = host.compile_beside(&name.unwrap_or_default(), &text, folder)?;
        if is_this(&recipe) {
            return Ok(recipe);
        }
        let now = recipe.version().short();
        let kept: String = self.version.chars().take(6).collect();
        let what = format!(
            "it is version {now} now, and was kept as {kept}: has it been edited? It is a record of the run"
        );
        Err(damaged(&path, what))
    }
}

/// The name of a file that holds the script: a built-in's gets its ending. A script without one may import one of its name.
fn file_name(source: &str) -> String {
    let name = Path::new(source).file_name();
    let name = name.map_or(source.into(), |name| name.to_string_lossy());
    match Builtin::find(source) {
        Some(builtin) => format!("{}.rhai", builtin.name),
        None => name.into_owned(),
    }
}
