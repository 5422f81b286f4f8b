//! Completions in a file of lines compared with their references, line by line: the file may be many times the memory.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use super::json::{self, Cursor, Type, unescape};
use super::jsonl::map_lines;
use super::replace::Replacement;
use super::{Progress, words};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;
use crate::verify::{self, Verdict};

/// The fields of completions and of their references, where nobody says otherwise.
const FIELDS: [(&str, &[&str]); 2] = [
    ("completion", &["completion", "output"]),
    ("solution", &["solution", "answer", "gts"]),
];

/// The values of some fields of a line, as texts; an empty one where there is none. Numbers stand as they are written, and of
/// a chat there is what its messages say.
fn texts<'l, const N: usize>(
    line: &'l str,
    fields: [&str; N],
) -> Result<[Cow<'l, str>; N], Diagnostic> {
    let mut found = [const { Cow::Borrowed("") }; N];
    Cursor::new(line).object(|cursor, key| {
        let key = unescape(&line[key.clone()]).unwrap_or(line[key].into());
        let (start, value) = (cursor.at, cursor.value_type());
        cursor.skip(0)?;
        let raw = cursor.since(start);
        for (field, text) in fields.iter().zip(&mut found) {
            if *field == key {
                *text = match value {
                    Type::String => unescape(&raw[1..raw.len() - 1]).unwrap_or_default(),
                    Type::Array => words::text_of_messages(raw).unwrap_or_default().into(),
                    Type::Null => Cow::default(),
                    _ => raw.into(),
                };
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// A line that was verified.
#[derive(Debug)]
pub struct Verified {
    /// From 1.
    pub line: usize,
    /// The reference's answer; `None` where there is none.
    pub reference: Option<String>,
    /// The completion's answer; `None` where there is none.
    pub answer: Option<String>,
    /// How they compare.
    pub verdict: Verdict,
}

/// Compares the completion of each line of a file with its solution, in parallel, and calls `told` with each in order. Where there is an `output`, each line is written there with the field `correct`.
///
/// `asked` has names for the fields of the completion and the solution, where they are not the usual ones.
///
/// # Errors
/// The line and what is wrong in it, a field that is not there, or why the output cannot be written; nothing half-written
/// is left.
pub fn verify_lines(
    path: &Path,
    asked: [Option<&str>; 2],
    progress: &(dyn Fn(u64, u64) + Sync),
    output: Option<&Path>,
    mut told: impl FnMut(Verified),
) -> Result<(), Diagnostics> {
    let names = fields_of(path, asked)?;
    let mut out = output.map(Replacement::new).transpose()?;
    let is_written = output.is_some();
    let of_line = |number, line: &str| {
        let [completion, solution] = texts(line, names.each_ref().map(String::as_str))?;
        let (verdict, reference, answer) = verify::compared(&solution, &completion);
        let room = is_written.then(|| room(line, "correct")).transpose()?;
        let line = number;
        Ok((
            Verified {
                line,
                reference,
                answer,
                verdict,
            },
            room,
        ))
    };
    let progress = Progress {
        told: Some(progress),
        ..Progress::default()
    };
    map_lines(path, &progress, of_line, |line, verified| {
        let Some((verified, room)) = verified else {
            if let Some(out) = &mut out {
                out.write_all(line.as_bytes())
                    .map_err(|error| out.error(&error))?;
            }
            return Ok(true);
        };
        if let (Some(out), Some((room, key))) = (&mut out, room) {
            let is_right = verified.verdict == Verdict::Equal;
            let parts = (&line[..room.start], &line[room.end..]);
            write!(out, "{}{key}{is_right}{}", parts.0, parts.1)
                .map_err(|error| out.error(&error))?;
        }
        told(verified);
        Ok(true)
    })?;
    progress.finish();
    out.map_or(Ok(()), Replacement::finish)
}

/// The fields of completions and solutions in a file of lines.
fn fields_of(path: &Path, asked: [Option<&str>; 2]) -> Result<[String; 2], Diagnostics> {
    let mut there = None;
    map_lines(
        path,
        &Progress::default(),
        |_, _| Ok(()),
        |line, is_response| {
            if is_response.is_some() {
                there = Some(json::fields(line)?);
            }
            Ok(there.is_none())
        },
    )?;
    let no_lines = || Diagnostic::error("there is no response in the file").in_file(path);
    let there = there.ok_or_else(no_lines)?;
    let all = there.iter().map(|(field, _)| field.as_str());
    let field = |at: usize| {
        let (ours, known) = FIELDS[at];
        let is_there = |name: &&str| all.clone().any(|field| field == *name);
        let found = match asked[at] {
            Some(asked) => Some(asked).filter(is_there),
            None => known.iter().copied().find(is_there),
        };
        found.map(str::to_string).ok_or_else(|| {
            let what = match asked[at] {
                Some(asked) => format!("there is no field `{asked}`"),
                None => format!("nothing says which field has the {ours}"),
            };
            let near = suggest::list(all.clone());
            let help =
                format!("there is {near}: `--{ours} FIELD` names the one that has the {ours}");
            Diagnostic::error(what).with_help(help).in_file(path)
        })
    };
    Ok([field(0)?, field(1)?])
}

/// The bytes of a line that a field's value takes or is to take, and what comes before it, in the style of the line.
fn room(line: &str, name: &str) -> Result<(Range<usize>, String), Diagnostic> {
    let (mut there, mut last, mut is_spaced) = (None, None, false);
    let close = Cursor::new(line).object(|cursor, key| {
        let start = cursor.at;
        is_spaced = line[key.end..start].ends_with(' ');
        cursor.skip(0)?;
        if &line[key] == name {
            there = Some(start..cursor.at);
        }
        last = Some(cursor.at);
        Ok(())
    })?;
    let end = last.unwrap_or(close);
    Ok(match (there, is_spaced) {
        (Some(there), _) => (there, String::new()),
        (None, true) => (end..end, format!(", \"{name}\": ")),
        (None, false) if last.is_some() => (end..end, format!(",\"{name}\":")),
        (None, false) => (end..end, format!("\"{name}\": ")),
    })
}
