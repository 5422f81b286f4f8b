//! The batch on which a script is tried: the last batch of the newest run with this recipe, the batch that a setting names, the
//! built-in batch, or a generated batch with more columns.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use advlab::check::usual;
use advlab::files::ReadOptions;
use advlab::script::{Host, Recipe};
use advlab::session::{Answer, Session};
use advlab::{Batch, Diagnostic};
use advlab_train::RunFolder;

use super::Server;
use crate::loaded::LoadedBatch;
use crate::paint::Paint;
use crate::report::show;
use crate::report::show::shape;

/// The search for runs covers at most `DEPTH` levels below the workspace, and at most `FOLDERS` folders.
const DEPTH: usize = 6;
const FOLDERS: usize = 1000;
/// The names of folders that are not searched, because they usually contain many folders but no runs.
const SKIPPED: [&str; 4] = ["target", "node_modules", "checkpoints", "site-packages"];
/// The colours and the width of text in an editor's window.
pub(super) const PLAIN: Paint = Paint {
    color: false,
    width: 72,
};

/// A generated batch with all usual columns, for scripts that read a column which the built-in batch lacks.
static USUAL: LazyLock<Arc<Batch>> = LazyLock::new(|| Arc::new(usual()));

/// A run's folder or the path that the setting `batch` names, with the time when the run's last batch or this path was written;
/// `None` for the built-in or the generated batch.
pub(super) type Source = Option<(PathBuf, Option<SystemTime>)>;

/// A run that has batches.
pub(super) struct Run {
    folder: PathBuf,
    /// The file of the recipe.
    recipe: PathBuf,
    /// The time when the last batch was written.
    written: Option<SystemTime>,
}

impl Server<'_> {
    /// Returns the source of the batch for a script: the newest run whose recipe is this script or, if there is no such run, the
    /// path that the setting `batch` names, relative to the first folder of the workspace; `None` if the setting is empty.
    pub(super) fn source(&self, script: &Path) -> Source {
        let script = fs::canonicalize(script).unwrap_or_default();
        let own = self.runs.iter().filter(|run| run.recipe == script);
        let newest = own.max_by_key(|run| run.written);
        let setting = || {
            let name = self.settings["batch"].as_str();
            let name = name.filter(|name| !name.is_empty())?;
            let folder = self.folders.first();
            let path = folder.map_or(name.into(), |folder| folder.join(name));
            Some((path.clone(), written(&path)))
        };
        let run = newest.map(|run| (run.folder.clone(), run.written));
        run.or_else(setting)
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// Searches folders for runs that have batches and whose recipe is a file. The search is breadth-first, so that a large
/// subtree does not use up the limit of folders before runs at higher levels are found.
pub(super) fn runs(folders: &[PathBuf]) -> Vec<Run> {
    let mut found = Vec::new();
    let mut queue: VecDeque<_> = folders.iter().map(|folder| (folder.clone(), 0)).collect();
    let mut left = 0..FOLDERS;
    while let (Some(_), Some((folder, depth))) = (left.next(), queue.pop_front()) {
        let run = RunFolder::read(&folder);
        if run.has_config() && !run.batches().is_empty() {
            let config = run.config().ok();
            let recipe = config.and_then(|config| fs::canonicalize(config.recipe).ok());
            found.extend(recipe.map(|recipe| Run {
                written: written(run.last().1),
                folder,
                recipe,
            }));
            continue;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let file = entry.file_name();
            let name = file.to_string_lossy();
            let is_skipped = name.starts_with('.') || SKIPPED.contains(&&*name);
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && !is_skipped && depth < DEPTH {
                queue.push_back((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// The value of a name or a column, stored as text because storing all numbers would take too much memory.
pub(super) struct Held {
    /// The level of a tensor; an empty string for other values.
    pub(super) level: &'static str,
    /// The value as the prompt shows it.
    pub(super) shown: String,
}

impl Held {
    pub(super) fn of(answer: &Answer) -> Held {
        let level = match answer {
            Answer::Tensor(computed) => computed.level().name(),
            _ => "",
        };
        let shown = show::answer(answer, PLAIN).unwrap_or_default();
        Held { level, shown }
    }
}

/// A batch on which scripts are tried, with the texts about the batch that the editor shows.
pub(super) struct Tried {
    pub(super) source: Source,
    /// The errors from reading the source; if there are any, the built-in or the generated batch is used instead.
    pub(super) unread: Vec<Diagnostic>,
    /// A line that describes the batch.
    pub(super) about: String,
    pub(super) batch: Arc<Batch>,
    pub(super) seed: u64,
    /// The run's version of the recipe, with its settings.
    pub(super) run: Option<Recipe>,
    /// The columns: their names, their contents, and whether they are derived from other columns.
    pub(super) columns: Vec<(String, Held, bool)>,
}

impl Tried {
    /// Opens the batch of a source. If there is no source, or if it cannot be read, returns the built-in batch or, if the script
    /// reads columns that only the generated batch has, the generated batch.
    pub(super) fn of(source: Source, recipe: Option<&Recipe>) -> Tried {
        let open = |(path, _): &(PathBuf, _)| {
            LoadedBatch::open(&Host::new(), path, &ReadOptions::default())
        };
        let opened = source.as_ref().map(open).transpose();
        let errors = opened
            .as_ref()
            .err()
            .into_iter()
            .flat_map(|errors| errors.iter());
        let noted = |error: &Diagnostic| error.clone().with_note("another batch is used instead");
        let (unread, opened) = (errors.map(noted).collect(), opened.ok().flatten());
        let is_builtin = opened.is_none();
        let loaded = opened.unwrap_or_else(LoadedBatch::builtin);
        let (mut name, mut batch) = (loaded.name, loaded.batch);
        let run = loaded.run.as_ref().map(|(run, _)| run);
        if let Some((run, step)) = &loaded.run {
            name = format!("the last batch of {}, step {step}", run.folder().display());
        } else if is_builtin && lacks(&batch, recipe) {
            name = "a generated batch with all usual columns".to_string();
            batch = USUAL.clone();
        }
        let mut columns = Vec::new();
        // An error is ignored, because columns that do not fit in memory are just not shown.
        let all = Session::new(&Host::new(), &batch).evaluate("batch");
        if let Ok(Answer::Batch(all)) = all.map(|evaluated| evaluated.answer) {
            for (index, (name, computed)) in all.columns.into_iter().enumerate() {
                columns.push((name, Held::of(&Answer::Tensor(computed)), index >= all.own));
            }
        }
        Tried {
            about: format!("{name}: {}", shape(batch.layout())),
            seed: run.and_then(RunFolder::seed).unwrap_or_default(),
            run: loaded.recipe,
            source,
            unread,
            batch,
            columns,
        }
    }

    /// Returns the path of the source.
    pub(super) fn place(&self) -> Option<PathBuf> {
        self.source.as_ref().map(|(path, _)| path.clone())
    }

    /// Returns whether this is still the batch of `source` and, if there is no source, has all usual columns that the script
    /// reads.
    pub(super) fn serves(&self, source: &Source, recipe: Option<&Recipe>) -> bool {
        self.source == *source && (source.is_some() || !lacks(&self.batch, recipe))
    }
}

/// Returns whether a script reads a column that the batch lacks although the generated batch `USUAL` has it.
fn lacks(batch: &Batch, recipe: Option<&Recipe>) -> bool {
    let has = |batch: &Batch, name: &str| batch.has(name) || batch.text(name).is_some();
    let mut reads = recipe.iter().flat_map(|recipe| recipe.reads());
    reads.any(|name| !has(batch, name) && has(&USUAL, name))
}
