//! The page's data from a run's folder: the run's progress, the lines of its files, and the changes of its scripts.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use similar::TextDiff;

use crate::report::compare::{own_settings, sources};
use crate::report::file_name;
use advlab::regular_file;
use advlab_train::{Row, RunFolder, RunKind, is_stopped};

/// The number of rows in a sample, which is shown until all rows are read, and the number of bytes that are read to find a row.
const SAMPLED: u64 = 400;
const PLACE: u64 = 8 << 10;
/// The largest number of bytes of a file in one HTTP response, and the number of bytes at a file's end that are read to find the
/// last line.
const PIECE: u64 = 4 << 20;
const END: u64 = 64 << 10;
/// The time limit for finding the smallest diff.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) struct ShownRun {
    /// The run's path below the folder that the user named.
    name: String,
    pub(super) folder: PathBuf,
    /// The last heading, with the sizes and modification times of the run's two files at the time when the heading was made.
    seen: Option<([FileState; 2], Value)>,
}

type FileState = Option<(u64, SystemTime)>;

impl ShownRun {
    /// Returns the run in a folder. The run's name is its path relative to `above`, or `above` if that is the run's folder.
    pub(super) fn new(folder: PathBuf, above: &Path) -> ShownRun {
        let below = folder.strip_prefix(above).ok();
        let below = below.filter(|below| !below.as_os_str().is_empty());
        let name = below.unwrap_or(&folder).display().to_string();
        ShownRun {
            name,
            folder,
            seen: None,
        }
    }

    /// Returns the current heading. The files are read again only if they have changed, because there may be many runs and the
    /// drive may be slow.
    pub(super) fn news(&mut self) -> Value {
        let files = ["metrics.jsonl", "reloads.jsonl"].map(|name| {
            let found = std::fs::metadata(self.folder.join(name)).ok()?;
            Some((found.len(), found.modified().ok()?))
        });
        let seen = self.seen.take();
        let seen = seen.filter(|(before, _)| *before == files && files[0].is_some());
        let mut heading = seen.map_or_else(|| self.heading(), |(_, heading)| heading);
        let done = heading["done"].as_u64().unwrap_or_default();
        heading["is_stopped"] = is_stopped(&self.folder, done).into();
        self.seen = Some((files, heading.clone()));
        heading
    }

    /// Returns the heading that the page shows above the curves, and the sizes of the files whose lines the page reads.
    fn heading(&self) -> Value {
        let run = RunFolder::read(&self.folder);
        let (kind, config) = run.kind_and_config().ok().unzip();
        // For a trainer's run, the number of steps, the seed and the settings are not known.
        let own = config.as_ref().filter(|_| kind == Some(RunKind::Own));
        let file = |name: &str| std::fs::metadata(self.folder.join(name)).ok();
        let size = |name: &str| file(name).map_or(0, |found| found.len());
        let written = file("metrics.jsonl").and_then(|found| found.modified().ok());
        let written = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let batches: Vec<u64> = run.batches().iter().map(|(step, _)| *step).collect();
        json!({
            "name": self.name,
            "folder": self.folder,
            "exists": self.folder.is_dir(),
            "done": self.done(size("metrics.jsonl")),
            "steps": own.map(|config| config.steps),
            "seed": own.map(|config| config.seed),
            "settings": own.map(own_settings),
            "recipe": config.as_ref().map(|config| file_name(&config.recipe)),
            "written": written.map(|time| time.as_secs()),
            "batches": batches,
            "metrics": size("metrics.jsonl"),
            "reloads": size("reloads.jsonl"),
        })
    }

    /// Returns the number of finished steps, which follows from the last row of `metrics.jsonl`; `size` is the file's size.
    fn done(&self, size: u64) -> u64 {
        let path = self.folder.join("metrics.jsonl");
        let (text, ..) = lines(&path, size.saturating_sub(END), PIECE).unwrap_or_default();
        let row = text.lines().next_back().map(serde_json::from_str::<Row>);
        row.map_or(0, |row| row.map_or(0, |row| row.step.saturating_add(1)))
    }

    /// Returns whole lines of `metrics` or `reloads`, beginning at the byte `from`, and the bytes at which the last of these
    /// lines begins and ends.
    pub(super) fn lines(&self, file: &str, from: u64) -> Value {
        match lines(&self.folder.join(format!("{file}.jsonl")), from, PIECE) {
            Ok((text, last, end)) => json!({ "text": text, "last": last, "end": end }),
            Err(error) => json!({ "error": format!("cannot read {file}.jsonl: {error}") }),
        }
    }

    /// Returns rows of `metrics.jsonl` near evenly spaced positions in the file, preferring rows with an evaluation. Most of a
    /// large file is not read.
    pub(super) fn sample(&self) -> Value {
        let path = self.folder.join("metrics.jsonl");
        let size = std::fs::metadata(&path).map_or(0, |found| found.len());
        let mut rows = String::new();
        for place in (0..SAMPLED).map(|index| index * size / SAMPLED) {
            let (piece, ..) = lines(&path, place, PLACE).unwrap_or_default();
            // The first line is skipped, because the piece may begin in the middle of a line.
            let whole: Vec<&str> = piece.split_inclusive('\n').skip(1).collect();
            let evaluated = whole.iter().find(|line| is_evaluated(line));
            rows.extend(evaluated.or(whole.first()).copied());
        }
        json!({ "text": rows })
    }

    /// Returns the lines of a file for an exported page. If the file is larger than `most` bytes, only evenly spaced rows and all
    /// rows with evaluations are returned.
    pub(super) fn exported_lines(&self, file: &str, most: usize) -> Value {
        let text = regular_file::read_to_string(&self.folder.join(format!("{file}.jsonl")));
        let text = text.unwrap_or_default();
        let every = text.len().div_ceil(most).max(1);
        let rows = text.lines().enumerate();
        let rows = rows.filter(|(index, line)| index.is_multiple_of(every) || is_evaluated(line));
        let rows = rows.map(|(_, line)| format!("{line}\n"));
        json!({ "text": rows.collect::<String>() })
    }

    /// Returns the differences between two versions of the run's script: the name of each file that differs, and a unified diff.
    pub(super) fn change(&self, from: &str, to: &str) -> Value {
        let [old, new] = [from, to].map(|version| sources(&self.folder, version));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let files = names.into_iter().map(|name| {
            let [old, new] = [&old, &new].map(|files| files.get(name).map_or("", String::as_str));
            let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
            let text = diff.unified_diff().missing_newline_hint(false).to_string();
            json!({ "name": name, "diff": text })
        });
        json!({ "files": files.filter(|file| file["diff"] != "").collect::<Value>() })
    }
}

/// Makes JSON that can be given to other people: it cuts absolute paths in texts, if they begin with `/`, to their last two
/// names, because folders may name the user or the machine. A path may contain spaces, and ends at a punctuation character that
/// messages put after a path.
pub(super) fn for_others(json: &Value) -> Value {
    let text = json.to_string();
    let (mut shown, mut rest) = (String::new(), 0);
    for (at, _) in text.match_indices('/') {
        if at < rest || !begins_path(&text[..at], &text[at + 1..]) {
            continue;
        }
        let end = text[at..].find(|letter: char| "\\\"'`,:;()[]<>".contains(letter));
        let end = end.map_or(text.len(), |length| at + length);
        let names: Vec<&str> = text[at..end].split('/').collect();
        let last = &names[names.len().saturating_sub(2).max(1)..];
        shown += &format!("{}{}", &text[rest..at], last.join("/"));
        rest = end;
    }
    serde_json::from_str(&(shown + &text[rest..])).unwrap_or_default()
}

/// Returns whether an absolute path begins at the `/` between two texts. Returns `false` if the `/` is within a relative path or
/// in the `//` of an address.
fn begins_path(before: &str, after: &str) -> bool {
    let left = before.trim_end_matches('/');
    let is_address = left.ends_with(':') && before.len() == left.len() + 1;
    // The lines are JSON strings inside JSON, so a line break is a backslash and a letter, and this letter is not part of a name.
    let escape = left.rfind('\\').map(|at| &left[at + 1..]);
    let is_escape =
        escape.is_some_and(|text| text.len() == 1 || text.len() == 5 && text.starts_with('u'));
    let is_in_name = |letter: char| letter.is_alphanumeric() || "._-~".contains(letter);
    let is_after_name = left.ends_with(is_in_name) && !is_escape;
    !is_address && !is_after_name && !after.starts_with([' ', '/'])
}

fn is_evaluated(row: &str) -> bool {
    row.contains("\"evaluation\":")
}

/// Reads at most `most` bytes of a file, beginning at the byte `from`. Returns the whole lines in these bytes, and the bytes at
/// which the last of these lines begins and ends. A file that does not exist has no lines.
fn lines(path: &Path, from: u64, most: u64) -> io::Result<(String, u64, u64)> {
    let mut file = match regular_file::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Default::default()),
        file => file?,
    };
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let after_line_break = |bytes: &[u8]| {
        let place = bytes.iter().rposition(|byte| *byte == b'\n');
        place.map_or(0, |place| place + 1)
    };
    bytes.truncate(after_line_break(&bytes));
    let last = after_line_break(&bytes[..bytes.len().saturating_sub(1)]);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((text, from + last as u64, from + bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_run_says_how_far_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        fs::create_dir_all(path.join("checkpoints")).unwrap();
        let mut run = ShownRun::new(path.clone(), place.path());
        let mut expect = |done: u64, is_stopped: bool, steps: Option<u64>| {
            let heading = run.news();
            let found = [&heading["done"], &heading["is_stopped"], &heading["steps"]];
            assert_eq!(found, [&json!(done), &json!(is_stopped), &json!(steps)]);
        };
        let write = |name: &str, text: &str| fs::write(path.join(name), text).unwrap();
        let checkpoint = |name: &str| fs::create_dir(path.join("checkpoints").join(name)).unwrap();
        let lock = fs::File::create(path.join("lock")).unwrap();
        lock.lock().unwrap();
        expect(0, false, None);
        checkpoint("000000");
        expect(0, false, None);
        lock.unlock().unwrap();
        expect(0, true, None);
        // It is unknown whether the run stopped: it may have been killed, or may run on another machine.
        write("metrics.jsonl", "{\"step\":0}\n{\"step\":1}\n");
        expect(2, false, None);
        checkpoint("000002");
        expect(2, true, None);
        lock.lock().unwrap();
        write("config.toml", "steps = 400\n");
        write("metrics.jsonl", "{\"step\":0}\n{\"step\":1}\n{\"st");
        expect(2, false, Some(400));
        // As long as the run's files do not change, only the lock is checked again.
        write("config.toml", "steps = 800\n");
        lock.unlock().unwrap();
        expect(2, true, Some(400));
        write(
            "metrics.jsonl",
            "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n",
        );
        expect(3, false, Some(800));
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(run.news()["exists"], false);
    }

    #[test]
    fn a_version_is_a_folder_of_the_run_only() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("scripts/ab12")).unwrap();
        fs::write(place.path().join("scripts/ab12/a.rhai"), "1").unwrap();
        fs::write(place.path().join("secret"), "1").unwrap();
        assert_eq!(sources(place.path(), "ab12").len(), 1);
        for outside in ["..", "", "../..", "ab12/.."] {
            assert!(sources(place.path(), outside).is_empty(), "{outside}");
        }
    }
}
