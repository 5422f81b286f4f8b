//! Completions in a file of lines compared with their references, line by line: the file may be many times the memory.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use rayon::prelude::*;

use super::json::{Cursor, Type, unescape};
use super::jsonl::{Blocks, Room, lines, text};
use super::lines::Sink;
use super::replace::{Replacement, cannot_be_written};
use super::words::{self, Tokenize};
use super::{Format, Progress};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;
use advlab_answers::Verdict;

/// The fields of completions and of their references, where nobody says otherwise.
const FIELDS: [(&str, &[&str]); 2] = [
    ("completion", &["completion", "output"]),
    ("solution", &["solution", "answer", "gts"]),
];

/// The field of verdicts.
const CORRECT: &str = "correct";

/// The field of lengths in tokens.
const LENGTH: &str = "length";

/// A line that was read: the texts of completion and solution, each empty where there is none, the completion's length in
/// tokens where nothing says it and a tokenizer counts them, and where the verdict goes. Numbers stand as they are written, and
/// of a chat there is what its messages say.
struct Texts<'l> {
    found: [Cow<'l, str>; 2],
    length: Option<usize>,
    room: Room,
}

impl<'l> Texts<'l> {
    fn of(
        line: &'l str,
        fields: &[String; 2],
        tokenizer: Option<&dyn Tokenize>,
    ) -> Result<Self, Diagnostic> {
        let mut found = [const { Cow::Borrowed("") }; 2];
        let (mut completion, mut has_length) = (None, false);
        let mut room = Room::default();
        let close = Cursor::new(line).object(|cursor, key| {
            let name = unescape(&line[key.clone()]).unwrap_or(line[key.clone()].into());
            let (start, kind) = (cursor.at, cursor.value_type());
            cursor.skip(0)?;
            let raw = cursor.since(start);
            let own = (name == CORRECT).then_some(0);
            room.pass(line, own, key.end, start..cursor.at);
            has_length |= name == LENGTH;
            if *fields[0] == *name {
                completion = Some((kind, raw));
            }
            for (_, text) in fields
                .iter()
                .zip(&mut found)
                .filter(|(own, _)| **own == name)
            {
                *text = match kind {
                    Type::String => unescape(&raw[1..raw.len() - 1]).unwrap_or_default(),
                    Type::Array => words::text_of_messages(raw).unwrap_or_default().into(),
                    Type::Null => Cow::default(),
                    _ => raw.into(),
                };
            }
            Ok(())
        })?;
        let room = room.close(close);
        let counted = tokenizer.zip(completion).filter(|_| !has_length);
        let length = counted.map(|(tokenizer, (kind, raw))| {
            let count = words::count(kind, raw, Some(tokenizer));
            count.map_err(|what| Diagnostic::error("").found(what).in_field(&fields[0]))
        });
        let length = length.transpose()?.flatten();
        Ok(Texts {
            found,
            length,
            room,
        })
    }
}

/// A line that was verified.
#[derive(Debug)]
pub struct Verified {
    /// The reference's answer; `None` where there is none.
    pub reference: Option<String>,
    /// The completion's answer; `None` where there is none.
    pub answer: Option<String>,
    /// How they compare.
    pub verdict: Verdict,
    /// The completion's tokens, where a tokenizer counted them.
    pub length: Option<usize>,
}

/// Compares the completion of each line of a file with its solution, in parallel, and calls `told` with each and its line's
/// number in order. Where there is an `output`, each line is written there with the field `correct`.
///
/// `asked` has names for the fields of the completion and the solution, where they are not the usual ones. A tokenizer counts
/// the tokens of completions in lines without a `length`, and that is written too.
///
/// # Errors
/// The line and what is wrong in it, a field that is not there, or why the output cannot be written; nothing half-written
/// is left.
pub fn verify_lines(
    path: &Path,
    asked: [Option<&str>; 2],
    tokenizer: Option<&dyn Tokenize>,
    progress: &(dyn Fn(u64, u64) + Sync),
    output: Option<&Path>,
    mut told: impl FnMut(usize, Verified) + Send,
) -> Result<(), Diagnostics> {
    if Format::named(path).is_some_and(|format| format != Format::Lines) {
        let error = Diagnostic::error("it holds tensors, and answers are compared in lines");
        let help = "`advlab convert` writes its texts as lines, where it has some";
        return Err(error.in_file(path).with_help(help).into());
    }
    if let Some(output) = output {
        let checked = Format::Lines.check_copy("the verdict", output);
        checked.map_err(|error| error.in_file(output))?;
    }
    let progress = Progress::told(progress);
    let mut blocks = Blocks::open(path, &progress)?;
    let there = blocks.begin()?;
    let all: Vec<&str> = there.iter().map(|(field, _)| field.as_str()).collect();
    let names = [
        field_of(0, asked[0], &all).map_err(|error| error.in_file(path))?,
        field_of(1, asked[1], &all).map_err(|error| error.in_file(path))?,
    ];
    let failed = |error: io::Error| cannot_be_written(output.unwrap_or(path), &error);
    let mut file = output.map(Replacement::new).transpose()?;
    let out = output.zip(file.as_mut());
    let out = out.map(|(place, file)| Sink::new(place, file));
    let mut out = out.transpose().map_err(failed)?;
    let mut number = blocks.passed;
    blocks.each(
        |block| {
            let lines: Vec<&[u8]> = lines(block).collect();
            let verified = lines
                .into_par_iter()
                .map(|line| verified(line, &names, tokenizer));
            verified.collect::<Vec<_>>()
        },
        |block, verified| {
            for (line, verified) in lines(block).zip(verified) {
                number += 1;
                let here = |error: Diagnostic| error.on_line(number).in_file(path);
                let verified = verified.map_err(here)?;
                if let Some(out) = &mut out {
                    let written = match &verified {
                        None => out.write_all(line),
                        Some((verified, room)) => {
                            let is_right = (verified.verdict == Verdict::Equal).to_string();
                            let length = verified.length.map(|length| length.to_string());
                            let values = [(CORRECT, Some(is_right)), (LENGTH, length)];
                            let values = values.into_iter();
                            let values: Vec<_> = values
                                .filter_map(|(name, value)| Some((name, value?.into_bytes())))
                                .collect();
                            room.fill(line, &values, out)
                        }
                    };
                    written.map_err(failed)?;
                }
                if let Some((verified, _)) = verified {
                    told(number, verified);
                }
            }
            Ok(())
        },
    )?;
    progress.finish();
    out.map(Sink::finish).transpose().map_err(failed)?;
    file.map_or(Ok(()), Replacement::finish)
}

/// What a line says, and where its verdict goes; `None` where it is blank.
fn verified(
    line: &[u8],
    names: &[String; 2],
    tokenizer: Option<&dyn Tokenize>,
) -> Result<Option<(Verified, Room)>, Diagnostic> {
    let Some(line) = text(line)? else {
        return Ok(None);
    };
    let texts = Texts::of(line, names, tokenizer)?;
    let [completion, solution] = texts.found;
    let (verdict, reference, answer) = advlab_answers::compared(&solution, &completion);
    let verified = Verified {
        reference,
        answer,
        verdict,
        length: texts.length,
    };
    Ok(Some((verified, texts.room)))
}

/// The field of completions (0) or of solutions (1) in lines that have all these.
fn field_of(at: usize, asked: Option<&str>, all: &[&str]) -> Result<String, Diagnostic> {
    let (ours, known) = FIELDS[at];
    let is_there = |name: &&str| all.contains(name);
    let found = match asked {
        Some(asked) => Some(asked).filter(is_there),
        None => known.iter().copied().find(is_there),
    };
    found.map(str::to_string).ok_or_else(|| {
        let what = match asked {
            Some(asked) => format!("there is no field `{asked}`"),
            None => format!("nothing says which field has the {ours}"),
        };
        let near = suggest::list(all.iter().copied());
        let help = format!("there is {near}: `--{ours} FIELD` names the one that has the {ours}");
        Diagnostic::error(what).with_help(help)
    })
}
