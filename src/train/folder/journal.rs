//! A file of JSON lines that only grows, and survives being cut anywhere.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::diagnostic::Diagnostics;
use crate::train::error::io;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// The bytes of whole lines.
    length: u64,
}

impl Journal {
    /// Opens a journal, or makes it, and cuts it before the first line that `keep` refuses.
    pub(crate) fn open(path: &Path, keep: impl Fn(&Value) -> bool) -> Result<Journal, Diagnostics> {
        let kept = lines(path)?.into_iter().take_while(|(_, line)| keep(line));
        let length = kept.last().map_or(0, |(end, _)| end);
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io("write", path))?;
        file.set_len(length).map_err(io("write", path))?;
        Ok(Journal {
            path: path.to_path_buf(),
            file,
            length,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn append(&mut self, line: &Value) -> Result<(), Diagnostics> {
        let text = format!("{line}\n");
        // In one piece: a process that is killed leaves all of it or nothing, but on a disk that fills up.
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // What is left of the line is passed over by readers in any case.
            let _ = self.file.set_len(self.length);
            return Err(io("write", &self.path)(error));
        }
        self.length += text.len() as u64;
        Ok(())
    }

    /// After this, what was written survives a crash of the machine.
    pub(crate) fn sync(&self) -> Result<(), Diagnostics> {
        self.file.sync_data().map_err(io("write", &self.path))
    }
}

/// The lines of a journal; none where there is no file. A torn last line does not count.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, Diagnostics> {
    Ok(lines(path)?.into_iter().map(|(_, line)| line).collect())
}

/// The lines up to the first one that is torn or no JSON, each with the byte at which it ends.
fn lines(path: &Path) -> Result<Vec<(u64, Value)>, Diagnostics> {
    let bytes = match crate::regular_file::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io("read", path)(error)),
    };
    let mut end = 0;
    let mut lines = Vec::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        end += line.len() as u64;
        match serde_json::from_slice(line) {
            Ok(value) if line.ends_with(b"\n") => lines.push((end, value)),
            _ => break,
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use serde_json::json;

    #[test]
    fn a_journal_cut_anywhere_has_its_whole_lines_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, |_| true).unwrap();
        for step in 0..3 {
            journal.append(&json!({ "step": step })).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let lines = whole[..length]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            assert_eq!(read(&path).unwrap().len(), lines);
            let mut journal = Journal::open(&path, |line| line["step"] != 2).unwrap();
            journal.append(&json!({ "step": 7 })).unwrap();
            let steps: Vec<u64> = read(&path)
                .unwrap()
                .iter()
                .filter_map(|line| line["step"].as_u64())
                .collect();
            assert_eq!(steps[..steps.len() - 1], [0, 1][..lines.min(2)]);
            assert_eq!(steps.last(), Some(&7));
        }
    }

    #[test]
    fn a_journal_that_is_not_there_is_empty() {
        assert!(read(Path::new("/nowhere/journal")).unwrap().is_empty());
    }
}
