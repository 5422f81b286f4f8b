//! A file of JSON lines that only grows, and survives being cut anywhere.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{RELOADS, read_config};
use crate::config::TRAINER;
use crate::error::io;
use advlab::batch::Replacement;
use advlab::diagnostic::{Diagnostic, Diagnostics};

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
///
/// # Errors
/// [`Diagnostics`] where the file cannot be read, or another line is not JSON, with its number.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, Diagnostics> {
    Ok(lines(path)?.into_iter().map(|(_, line)| line).collect())
}

/// The lines, each with the byte at which it ends.
fn lines(path: &Path) -> Result<Vec<(u64, Value)>, Diagnostics> {
    let mut end = 0;
    let mut lines = Vec::new();
    for (number, line) in whole_lines(&bytes(path)?).enumerate() {
        end += line.len() as u64;
        match serde_json::from_slice(line) {
            Ok(value) => lines.push((end, value)),
            Err(_) => {
                let problem = Diagnostic::error("the line is damaged: it is not JSON");
                let problem = problem.in_file(path).on_line(number + 1);
                return Err(problem.with_help(help(path)).into());
            }
        }
    }
    Ok(lines)
}

/// What to do about a damaged line.
fn help(path: &Path) -> &'static str {
    let config = path.parent().map(read_config);
    let is_trainers =
        config.is_some_and(|config| config.is_ok_and(|config| config.task == TRAINER));
    if path.ends_with(RELOADS) {
        "repair it, or remove it by hand: the versions are in `scripts/`, and each row of `metrics.jsonl` names its own"
    } else if is_trainers {
        "repair it, or remove it by hand"
    } else {
        "repair it, or `advlab train --resume RUN --force` moves such lines to a file beside it and goes on"
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    match advlab::regular_file::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(io("read", path)),
    }
}

/// The lines without the last one if a crash has cut it short.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines.filter(|line| line.ends_with(b"\n"))
}

/// Moves the lines that are not JSON to the end of a file beside the journal, `metrics.damaged`; gives the file and how many
/// they are, if there are any.
pub(crate) fn set_damaged_aside(path: &Path) -> Result<Option<(PathBuf, usize)>, Diagnostics> {
    let bytes = bytes(path)?;
    let is_well = |line: &&[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let (well, bad): (Vec<&[u8]>, Vec<&[u8]>) = whole_lines(&bytes).partition(is_well);
    if bad.is_empty() {
        return Ok(None);
    }
    let aside = path.with_extension("damaged");
    let file = File::options().create(true).append(true).open(&aside);
    let written = file.and_then(|mut file| {
        file.write_all(&bad.concat())?;
        file.sync_all()
    });
    written.map_err(io("write", &aside))?;
    Replacement::write(path, &well.concat())?;
    Ok(Some((aside, bad.len())))
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
    fn a_damaged_line_is_told_and_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text = "{\"step\":0}\n{\"st\u{0}p\":1}\n{\"step\":2}\n{\"ste";
        fs::write(&path, text).unwrap();
        for error in [
            read(&path).unwrap_err(),
            Journal::open(&path, |_| false).unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("metrics.jsonl, line 2: "),
                "{error}"
            );
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let aside = folder.path().join("metrics.damaged");
        assert_eq!(set_damaged_aside(&path).unwrap(), Some((aside.clone(), 1)));
        assert_eq!(fs::read_to_string(&aside).unwrap(), "{\"st\u{0}p\":1}\n");
        let steps = read(&path).unwrap();
        assert_eq!(steps, [json!({ "step": 0 }), json!({ "step": 2 })]);
        assert_eq!(set_damaged_aside(&path).unwrap(), None);
    }

    #[test]
    fn a_journal_that_is_not_there_is_empty() {
        assert!(read(Path::new("/nowhere/journal")).unwrap().is_empty());
    }
}
