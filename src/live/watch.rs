//! Decides when the files are read again: after a file event of the system, or after a second without events. Also decides how
//! long the files must then stay unchanged.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, Event, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use crate::parallel::lock;
use crate::script::folder_of;

/// The time for which the files must stay unchanged before they are checked. An editor's save consists of several operations, a
/// few milliseconds apart: truncating, writing in pieces and closing, or writing a new file and renaming it. A user does not
/// notice a tenth of a second.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// The longest wait for the files to stay unchanged, so that a tool that writes them without a pause does not prevent new
/// versions forever. A half-written file that is then read rarely passes the checks; if it passes, the next event leads to the
/// complete version.
pub(super) const SETTLE_AT_MOST: Duration = Duration::from_secs(1);

/// The interval of polling. inotify reports nothing if another machine writes the file (NFS, Lustre, FUSE), or if the folder was
/// deleted and made again. Reading a few kilobytes once a second has no measurable cost.
const POLL: Duration = Duration::from_secs(1);

pub(super) struct Watch {
    rings: Receiver<Instant>,
    /// The system's watcher. `Err(Some)` means that the system gives no file events, and that this has not been reported yet;
    /// `Err(None)` means that it has been reported, or that the caller wants only polling.
    system: Result<RecommendedWatcher, Option<notify::Error>>,
    /// The names of the files, shared with the thread that receives the events.
    names: Arc<Mutex<BTreeSet<OsString>>>,
    folders: BTreeSet<PathBuf>,
}

impl Watch {
    /// Makes a watch without files, and the sender by which [`ring`] wakes it.
    pub(super) fn new(poll_only: bool) -> (Watch, SyncSender<Instant>) {
        let (bell, rings) = sync_channel(1);
        let names: Arc<Mutex<BTreeSet<OsString>>> = Arc::default();
        let handler = {
            let (bell, names) = (bell.clone(), names.clone());
            move |event: notify::Result<Event>| {
                if matters(&event, &lock(&names)) {
                    ring(&bell);
                }
            }
        };
        let watch = Watch {
            rings,
            system: if poll_only {
                Err(None)
            } else {
                notify::recommended_watcher(handler).map_err(Some)
            },
            names,
            folders: BTreeSet::new(),
        };
        (watch, bell)
    }

    /// Watches the folders of the given files, and no other folders. An error says why the system gives no events.
    ///
    /// Folders are watched instead of files because, if an editor replaces a file by renaming a new file, a watch of the file
    /// would keep watching the old file.
    pub(super) fn follow<'a>(
        &mut self,
        files: impl Iterator<Item = &'a Path>,
    ) -> Result<(), notify::Error> {
        let system = match &mut self.system {
            Ok(system) => system,
            Err(error) => return error.take().map_or(Ok(()), Err),
        };
        let mut folders = BTreeSet::new();
        let mut names = BTreeSet::new();
        for file in files {
            names.extend(file.file_name().map(OsString::from));
            // Links in the path are resolved, so that no folder is watched twice. A deleted folder cannot be watched; only
            // polling notices if it is made again.
            folders.extend(folder_of(file).canonicalize());
            if let Ok(target) = file.canonicalize() {
                names.extend(target.file_name().map(OsString::from));
                folders.extend(target.parent().map(Path::to_path_buf));
            }
        }
        *lock(&self.names) = names;
        for gone in self.folders.difference(&folders) {
            // The error is ignored, because a deleted folder has lost its watch already.
            let _ = system.unwatch(gone);
        }
        let mut outcome = Ok(());
        let mut watched: BTreeSet<PathBuf> = self.folders.intersection(&folders).cloned().collect();
        for folder in folders.difference(&self.folders) {
            match system.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder.clone());
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => outcome = Err(error),
            }
        }
        self.folders = watched;
        outcome
    }

    /// Waits for an event, and returns its time; `None` if no event comes within the polling interval.
    pub(super) fn wait(&self) -> Option<Instant> {
        self.rings.recv_timeout(POLL).ok()
    }

    /// Waits for [`SETTLE`] or until the next event, and returns whether there was no event.
    pub(super) fn is_quiet(&self) -> bool {
        self.rings.recv_timeout(SETTLE).is_err()
    }
}

/// Wakes the thread that follows the files. The error of a full channel is ignored, because the wake-up that is already pending
/// makes the thread read the files.
pub(super) fn ring(bell: &SyncSender<Instant>) {
    let _ = bell.try_send(Instant::now());
}

/// Returns whether an error means that a folder was deleted before it could be watched.
fn is_gone(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Returns whether an event can mean that the content of one of the files has changed.
fn matters(event: &notify::Result<Event>, names: &BTreeSet<OsString>) -> bool {
    let Ok(event) = event else {
        return true;
    };
    // Events of opening and reading are ignored, because otherwise our own reading would wake us again and again.
    let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
    let reads = matches!(event.kind, EventKind::Access(_)) && event.kind != closed;
    // Files are compared only by name, because links give a folder several paths, and a needless reading costs little.
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| names.contains(name));
    event.need_rescan() || !reads && (event.paths.is_empty() || event.paths.iter().any(named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, Flag, ModifyKind};

    fn event(kind: EventKind, path: &str) -> notify::Result<Event> {
        Ok(Event::new(kind).add_path(path.into()))
    }

    #[test]
    fn only_changes_of_the_files_themselves_matter() {
        let names: BTreeSet<OsString> = ["r.rhai".into(), "grpo.rhai".into()].into();
        let matters = |event| matters(&event, &names);
        assert!(matters(event(
            EventKind::Modify(ModifyKind::Any),
            "/a/r.rhai"
        )));
        assert!(matters(event(
            EventKind::Create(CreateKind::File),
            "/link/grpo.rhai"
        )));
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(matters(event(closed, "/a/r.rhai")));
        assert!(!matters(event(
            EventKind::Modify(ModifyKind::Any),
            "/a/metrics.jsonl"
        )));
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        assert!(!matters(event(opened, "/a/r.rhai")));
    }

    #[test]
    fn lost_events_and_failures_matter() {
        let names = BTreeSet::new();
        let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(matters(&Ok(lost), &names));
        assert!(matters(&Err(notify::Error::generic("overflow")), &names));
    }

    #[test]
    fn a_bell_that_rings_is_not_rung_again() {
        let (watch, bell) = Watch::new(true);
        for _ in 0..1000 {
            ring(&bell);
        }
        assert!(watch.wait().is_some());
        assert!(watch.is_quiet());
    }
}
