//! Each version of a recipe that a run used, with all that it imports, so that it can be loaded again.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sync_folder;
use crate::diagnostic::Diagnostics;
use crate::script::{Builtin, Host, Recipe};
use crate::train::error::{damaged, io};

/// `scripts/` of a run's folder: a folder for each version, named by it.
#[derive(Debug)]
pub(in crate::train) struct Scripts {
    run: PathBuf,
}

/// A version that was kept: its script's path in the run's folder, and its hash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::train) struct KeptVersion {
    pub(in crate::train) script: String,
    pub(in crate::train) version: String,
}

const FOLDER: &str = "scripts";

impl Scripts {
    pub(in crate::train) fn of(run: &Path) -> Scripts {
        Scripts {
            run: run.to_path_buf(),
        }
    }

    /// Keeps a version, unless it is kept already.
    pub(in crate::train) fn keep(&self, recipe: &Recipe) -> Result<KeptVersion, Diagnostics> {
        let name = file_name(recipe.name());
        let version = recipe.version().as_str();
        let kept = KeptVersion {
            script: format!("{FOLDER}/{version}/{name}"),
            version: version.to_string(),
        };
        let folder = self.run.join(FOLDER).join(version);
        let texts: Vec<(String, &str)> = recipe
            .sources()
            .map(|(source, text)| (file_name(source), text))
            .collect();
        // A machine that stopped may have left the folder with files that were never written out.
        let is_kept = |(file, text): &(String, &str)| {
            fs::read(folder.join(file)).is_ok_and(|kept| kept == text.as_bytes())
        };
        if texts.iter().all(is_kept) {
            return Ok(kept);
        }
        // Written beside and renamed: a version's folder has all of it or is not there.
        let part = self.run.join(FOLDER).join(format!(".{version}.part"));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(io("remove", &part))?;
        }
        fs::create_dir_all(&part).map_err(io("make the folder", &part))?;
        for (file, text) in texts {
            let path = part.join(file);
            fs::write(&path, text).map_err(io("write", &path))?;
        }
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(io("remove", &folder))?;
        }
        fs::rename(&part, &folder).map_err(io("write", &folder))?;
        Ok(kept)
    }

    /// After this, a version that was kept survives a crash of the machine.
    pub(super) fn sync(&self, version: &str) -> Result<(), Diagnostics> {
        let folder = self.run.join(FOLDER).join(version);
        let entries = fs::read_dir(&folder).map_err(io("read", &folder))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            fs::File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(io("write", &path))?;
        }
        sync_folder(&folder)?;
        sync_folder(&self.run.join(FOLDER))
    }

    /// Loads a version that was kept under the name that it had: a built-in's, or that of its file.
    pub(in crate::train) fn load(
        &self,
        host: &Host,
        KeptVersion { script, version }: &KeptVersion,
    ) -> Result<Recipe, Diagnostics> {
        let path = self.run.join(script);
        let stem = path.file_stem().map(|stem| stem.to_string_lossy());
        if let Some(builtin) = stem.and_then(|stem| Builtin::find(&stem)) {
            let recipe = host.load(builtin.name)?;
            if recipe.version().as_str() == *version {
                return Ok(recipe);
            }
        }
        let text = fs::read_to_string(&path).map_err(io("read", &path))?;
        let name = path.file_name().map(|name| name.to_string_lossy());
        let folder = path.parent().unwrap_or(&self.run);
        let recipe = host.compile_beside(&name.unwrap_or_default(), &text, folder)?;
        if recipe.version().as_str() == *version {
            return Ok(recipe);
        }
        let now = recipe.version().short();
        let kept: String = version.chars().take(6).collect();
        let what = format!(
            "it is version {now} now, and was kept as {kept}: has it been edited? It is a record of the run"
        );
        Err(damaged(&path, what))
    }
}

/// The name of a file that holds the script: a built-in's gets its ending.
fn file_name(source: &str) -> String {
    let name = Path::new(source).file_name();
    let name = name.map_or(source.into(), |name| name.to_string_lossy());
    if name.ends_with(".rhai") {
        name.into_owned()
    } else {
        format!("{name}.rhai")
    }
}
