//! JSONL, one response a line: reads blocks of lines into columns, in parallel, and writes the lines back with the
//! advantage put in.

mod blocks;
mod columns;
mod room;
mod value;

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use self::blocks::line_end;
pub(super) use self::blocks::{Blocks, lines, text};
use self::columns::Columns;
pub(super) use self::room::Room;
use super::lines::Sink;
use super::names::Names;
use super::raw::{Header, Origin, Raw, Schema};
use super::replace::{Replacement, cannot_be_written};
use super::spread::Spread;
use super::{Progress, changed};
use crate::diagnostic::Diagnostic;

/// Bytes of a block that one thread parses at a time.
const PART: usize = 128 << 10;

/// Lines that follow each other in a block, read into columns of their own; `None` where one of them is wrong.
struct Part {
    lines: Range<usize>,
    columns: Option<Columns>,
}

impl Part {
    /// Parses the lines of a block in parallel, in parts of at least so many bytes.
    fn all(block: &[u8], least: usize, names: &Arc<Names>) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut end = 0;
        while end < block.len() {
            let start = end;
            end = block.len().min(start + least);
            end += line_end(&block[end..]);
            parts.push(start..end);
        }
        let parts = parts.into_par_iter().map(|lines| {
            let bytes = &block[lines.clone()];
            let mut columns = Columns::new(names.clone(), 0);
            let is_right = columns.read(bytes).is_ok();
            Part {
                columns: is_right.then_some(columns),
                lines,
            }
        });
        parts.collect()
    }
}

impl Columns {
    /// Adds a parsed block. A part that is wrong, or in which a column is no longer of one kind, is read once more, line by
    /// line as all would be by one thread: it has the errors and the remarks that the file has.
    fn add(&mut self, block: &[u8], parts: Vec<Part>) -> Result<(), Diagnostic> {
        for part in parts {
            match part.columns {
                Some(columns) if self.goes_on_in(&columns) => self.append(columns),
                _ => self.read(&block[part.lines])?,
            }
        }
        Ok(())
    }
}

/// Reads a file.
pub(super) fn read(path: &Path, schema: Schema, progress: &Progress) -> Result<Raw, Diagnostic> {
    read_blocks(Blocks::open(path, progress)?, schema)
}

fn read_blocks(mut blocks: Blocks<impl Read + Send>, schema: Schema) -> Result<Raw, Diagnostic> {
    let fields = blocks.begin()?;
    let names = Arc::new(schema(&fields, &Header::Lines)?);
    let mut columns = Columns::new(names.clone(), blocks.passed);
    let path = blocks.path.clone();
    blocks.each(
        |block| Part::all(block, PART, &names),
        |block, parts| {
            let added = columns.add(block, parts);
            added.map_err(|error| error.in_file(&path))
        },
    )?;
    drop(names);
    let columns = columns.finish();
    Ok(Raw {
        path,
        header: Header::Lines,
        names: Arc::unwrap_or_clone(columns.names),
        columns: columns.columns,
        origin: Origin::Lines {
            blank: columns.blank,
            sum: blocks.sum,
        },
    })
}

/// Writes the lines of `input` to `out`, each with its values of `spreads`, and otherwise to the byte as it is.
pub(super) fn write(
    input: &Path,
    origin: &Origin,
    spreads: &[Spread],
    place: &Path,
    file: &mut Replacement,
    progress: &Progress,
) -> Result<(), Diagnostic> {
    let Origin::Lines { sum, .. } = origin else {
        unreachable!("lines are written for a file that was read as lines");
    };
    let blocks = Blocks::open(input, progress);
    let mut blocks = blocks.map_err(|error| changed(input, &error.message))?;
    let failed = |error: io::Error| cannot_be_written(place, &error);
    let mut out = Sink::new(place, file).map_err(failed)?;
    blocks.start()?;
    out.write_all(blocks.mark).map_err(failed)?;
    let mut responses = 0..spreads.first().map_or(0, Spread::responses);
    let names: Vec<&str> = spreads.iter().map(|spread| spread.name).collect();
    let written = blocks.each(
        |block| {
            let lines: Vec<&[u8]> = lines(block).collect();
            let rooms = lines.into_par_iter().map(|line| {
                let text = text(line)?;
                text.map(|text| Room::of(text, &names)).transpose()
            });
            rooms.collect::<Result<Vec<Option<Room>>, Diagnostic>>()
        },
        |block, rooms| {
            let rooms = rooms.map_err(|error| changed(input, error))?;
            for (line, room) in lines(block).zip(rooms) {
                let Some(room) = room else {
                    out.write_all(line).map_err(failed)?;
                    continue;
                };
                let response = responses.next();
                let response = response.ok_or_else(|| changed(input, "it has more lines"))?;
                let value = |spread: &Spread| {
                    let mut value = Vec::new();
                    spread.json(response, &mut value);
                    (spread.name, value)
                };
                let values: Vec<_> = spreads.iter().map(value).collect();
                room.fill(line, &values, &mut out).map_err(failed)?;
            }
            Ok(())
        },
    );
    written?;
    if blocks.sum != *sum || !responses.is_empty() {
        return Err(changed(input, "its bytes are others"));
    }
    progress.finish();
    out.finish().map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::blocks::BLOCK;
    use super::*;

    /// The fields of a line are these or none: values of all kinds, most of them alike.
    const FIELDS: [(&str, [&str; 5]); 6] = [
        ("group", ["1", "1", "2", "\"a\"", "null"]),
        ("reward", ["0.5", "1", "true", "null", "\"x\""]),
        ("old_logp", ["[1, 2]", "[]", "[3]", "null", "[\"x\"]"]),
        ("completion", ["\"a b\"", "\"\"", "\"c\"", "[]", "null"]),
        ("note", ["null", "null", "null", "1", "[1]"]),
        ("text", ["\"a\"", "\"b\"", "\"c\"", "{}", "2"]),
    ];

    fn line(odd: bool) -> impl Strategy<Value = String> {
        let kinds: usize = if odd { 6 } else { 3 };
        let fields = FIELDS.map(|(name, values)| {
            (0..kinds).prop_map(move |kind| {
                let value = values.get(kind)?;
                Some(format!("\"{name}\":{value}"))
            })
        });
        fields.prop_map(|fields| {
            let fields: Vec<String> = fields.into_iter().flatten().collect();
            format!("{{{}}}\n", fields.join(","))
        })
    }

    /// Gives some lines, then fails.
    struct Torn<'a>(&'a [u8]);

    impl Read for Torn<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("the disk is gone")),
                read => Ok(read),
            }
        }
    }

    #[test]
    fn a_wrong_line_is_told_before_a_failure_to_read_on() {
        // More than a block, so that the failure comes after the lines.
        let right = "{\"group\":1,\"reward\":0.5}\n";
        let lines = right.repeat((BLOCK * rayon::current_num_threads()) / right.len() + 2);
        let schema = |_: &[(String, super::super::json::Type)], _: &Header| Ok(Names::default());
        let told = |lines: &str| {
            let file = Torn(lines.as_bytes());
            let blocks = Blocks::new(Path::new("x.jsonl"), file);
            let raw = read_blocks(blocks, &schema);
            format!("{:?}", raw.map(drop).expect_err("it is torn"))
        };
        assert!(told(&lines).contains("the disk is gone"));
        let wrong = lines.replacen("0.5", "0.5.5", 1);
        assert!(!told(&wrong).contains("the disk is gone"));
    }

    proptest! {
        #[test]
        fn parts_give_the_columns_and_the_errors_of_the_lines_one_by_one(
            lines in prop::collection::vec(prop_oneof![
                8 => line(false), 2 => line(true), 1 => Just("\n".to_string()), 1 => Just("{\"group\":}\n".to_string())
            ], 1..12),
            least in 1usize..200,
        ) {
            let block = lines.concat().into_bytes();
            let mut names = Names::default();
            names.count_words = true;
            let names = Arc::new(names);
            let mut all = Columns::new(names.clone(), 0);
            let expected = all.read(&block);
            let parts = Part::all(&block, least, &names);
            let mut columns = Columns::new(names, 0);
            let added = columns.add(&block, parts);
            prop_assert_eq!(format!("{added:?}"), format!("{expected:?}"));
            if expected.is_ok() {
                let found = columns.finish();
                let expected = all.finish();
                prop_assert_eq!(&found.blank, &expected.blank);
                prop_assert_eq!(format!("{:?}", found.columns), format!("{:?}", expected.columns));
            }
        }
    }
}
