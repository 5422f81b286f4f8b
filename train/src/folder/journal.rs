//! A JSONL file to which lines are appended. It stays readable even if a crash cuts the file at any byte.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Result, if_there, io};
use advlab::diagnostic::Diagnostic;
use advlab::number_text::counted;
use advlab::regular_file;
use advlab::replace::Replacement;

/// A journal that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// The number of bytes of all complete lines.
    length: u64,
}

impl Journal {
    /// Opens or creates a journal, and truncates it before the first line for which `keep` is false.
    pub(crate) fn open<T: DeserializeOwned>(
        path: &Path,
        keep: impl Fn(&T) -> bool,
    ) -> Result<Journal> {
        let kept = lines(path)?.into_iter().take_while(|(_, line)| keep(line));
        let length = kept.last().map_or(0, |(end, _)| end);
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        // The file is not opened for appending on Windows, because Windows does not truncate such files.
        let file = regular_file::open_as(path, options.append(cfg!(not(windows))));
        let file = file.map_err(io("write", path))?;
        let mut journal = Journal {
            path: path.to_path_buf(),
            file,
            length,
        };
        journal.cut().map_err(io("write", path))?;
        Ok(journal)
    }

    /// Truncates the file after the last complete line, so that the next line is written there.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length)).map(drop)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(line);
        let text = text.map_err(|error| io("write", &self.path)(error.into()))? + "\n";
        // The line is written in one call, so that a killed process leaves the complete line or nothing, except on a full disk.
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // An error is ignored, because readers skip an incomplete last line.
            let _ = self.cut();
            return Err(io("write", &self.path)(error));
        }
        self.length += text.len() as u64;
        // A removed or replaced file is an error, because writing to it succeeds although this and all later lines would be lost.
        let there = fs::metadata(&self.path).map(|file| file.len());
        let gone = || io::Error::other("it was removed or replaced during the run");
        let is_this = there.is_ok_and(|length| length == self.length);
        is_this
            .then_some(())
            .ok_or_else(|| io("write", &self.path)(gone()))
    }

    /// Syncs the file, so that the lines survive a crash of the machine.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(io("write", &self.path))
    }
}

/// Returns the lines of a journal; if there is no file, there are no lines. A last line that a crash has cut off is skipped.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    Ok(lines(path)?.into_iter().map(|(_, line)| line).collect())
}

/// Returns the lines, each with the byte offset of its end.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<(u64, T)>> {
    let mut end = 0;
    let bytes = if_there(path, regular_file::read(path))?.unwrap_or_default();
    let parsed = whole_lines(&bytes).enumerate().map(|(index, line)| {
        end += line.len() as u64;
        let value = serde_json::from_slice(line).map_err(|error| {
            let problem = Diagnostic::error(if error.is_data() {
                format!("the line is JSON, but not a line that a run writes: {error}")
            } else {
                "the line is damaged: it is not JSON".to_string()
            });
            let problem = problem.in_file(path).on_line(index + 1);
            problem.with_help("repair the line, or remove it by hand")
        })?;
        Ok((end, value))
    });
    parsed.collect()
}

fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines.filter(|line| line.ends_with(b"\n"))
}

/// Moves unreadable lines to the end of a file beside the journal, such as `metrics.damaged`. Returns a note for the user if
/// there are such lines.
pub(crate) fn set_damaged_aside<T: DeserializeOwned>(path: &Path) -> Result<Option<String>> {
    let bytes = if_there(path, regular_file::read(path))?.unwrap_or_default();
    let is_whole = |line: &&[u8]| serde_json::from_slice::<T>(line).is_ok();
    let (good, bad): (Vec<&[u8]>, Vec<&[u8]>) = whole_lines(&bytes).partition(is_whole);
    if bad.is_empty() {
        return Ok(None);
    }
    let aside = path.with_extension("damaged");
    let file = regular_file::open_as(&aside, File::options().create(true).append(true));
    let written = file.and_then(|mut file| {
        file.write_all(&bad.concat())?;
        file.sync_all()
    });
    written.map_err(io("write", &aside))?;
    Replacement::write(path, &good.concat())?;
    let name = path.file_name().unwrap_or_default().display();
    let (lines, aside) = (counted(bad.len(), "damaged line"), aside.display());
    Ok(Some(format!("moved {lines} of {name} to {aside}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_journal_cut_anywhere_has_its_whole_lines_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        assert!(read::<Value>(&path).unwrap().is_empty());
        let mut journal = Journal::open(&path, |_: &Value| true).unwrap();
        for step in 0..3 {
            journal.append(&json!({ "step": step })).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let is_end = |byte: &&u8| **byte == b'\n';
            let lines = whole[..length].iter().filter(is_end).count();
            assert_eq!(read::<Value>(&path).unwrap().len(), lines);
            let mut journal = Journal::open(&path, |line: &Value| line["step"] != 2).unwrap();
            journal.append(&json!({ "step": 7 })).unwrap();
            let lines_now: Vec<Value> = read(&path).unwrap();
            let steps: Vec<u64> = lines_now
                .iter()
                .filter_map(|l| l["step"].as_u64())
                .collect();
            assert_eq!(steps[..steps.len() - 1], [0, 1][..lines.min(2)]);
            assert_eq!(steps.last(), Some(&7));
        }
    }

    #[test]
    fn a_damaged_line_is_told_and_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text = "{\"step\":0}\n{\"st\u{0}p\":1}\n{\"step\":2}\n{\"ste";
        fs::write(&path, text).unwrap();
        for error in [
            read::<Value>(&path).unwrap_err(),
            Journal::open(&path, |_: &Value| false).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains("metrics.jsonl, line 2: "), "{text}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let aside = folder.path().join("metrics.damaged");
        let note = set_damaged_aside::<Value>(&path).unwrap().unwrap();
        let expected = format!(
            "moved 1 damaged line of metrics.jsonl to {}",
            aside.display()
        );
        assert_eq!(note, expected);
        assert_eq!(fs::read_to_string(&aside).unwrap(), "{\"st\u{0}p\":1}\n");
        let steps: Vec<Value> = read(&path).unwrap();
        assert_eq!(steps, [json!({ "step": 0 }), json!({ "step": 2 })]);
        assert_eq!(set_damaged_aside::<Value>(&path).unwrap(), None);
    }
}
