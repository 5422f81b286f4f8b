//! Lines of JSON, one response each: read block by block in parallel, and copied with values added.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32c::crc32c_append;

use super::format::is_parquet;
use super::json::{self, BYTE_ORDER_MARK, JsonType};
use super::names::{FileKind, Names, Schema};
use super::open::{self, LONGEST_LINE, Lines};
use super::origin::FileOrigin;
use super::parquet::{self, AddedValues, Shape};
use super::room::{ROW, Room};
use super::table::{FileColumn, Table};
use super::{Progress, Result, format};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parallel::each;
use crate::regular_file::cannot_be_read;
use crate::replace::{Replacement, cannot_be_written};

/// Bytes per thread that are read, parsed and processed together.
const BLOCK: usize = 1 << 20;

/// Bytes of lines that one thread parses at a time.
const PART: usize = 128 << 10;

/// A file of lines, some megabytes at a time: while one block is parsed, the previous one is processed and the next one read.
pub(super) struct Blocks<'a> {
    path: PathBuf,
    file: Lines<'a>,
    /// The next block, which is empty at the end of the file.
    block: Vec<u8>,
    /// The part of the next block that was read already: the beginning of its first line.
    rest: Vec<u8>,
    /// The checksum of all bytes so far.
    sum: u32,
    /// The blank lines before the first block.
    passed: usize,
}

/// New values of a line, in JSON: one per field, or `None` if the line keeps its own value.
pub(super) type Values = Vec<Option<Vec<u8>>>;

impl<'a> Blocks<'a> {
    pub(super) fn open(path: &Path, progress: &'a Progress) -> Result<Self> {
        let opened = open::lines(path, progress);
        Blocks::new(path, opened.map_err(|error| cannot_be_read(path, &error))?)
    }

    fn new(path: &Path, file: Lines<'a>) -> Result<Self> {
        let mut blocks = Blocks {
            path: path.to_path_buf(),
            file,
            block: Vec::new(),
            rest: Vec::new(),
            sum: 0,
            passed: 0,
        };
        blocks.block = blocks.next()?;
        Ok(blocks)
    }

    fn next(&mut self) -> Result<Vec<u8>> {
        let size = BLOCK * rayon::current_num_threads();
        let mut block = Vec::with_capacity(size + self.rest.len());
        block.append(&mut self.rest);
        loop {
            let before = block.len();
            let read = (&mut self.file).take(size as u64).read_to_end(&mut block);
            let read = read.map_err(|error| cannot_be_read(&self.path, &error))?;
            self.sum = crc32c_append(self.sum, &block[before..]);
            let end = block[before..].iter().rposition(|&byte| byte == b'\n');
            match end {
                _ if read == 0 => return Ok(block),
                Some(end) => {
                    self.rest = block.split_off(before + end + 1);
                    return Ok(block);
                }
                None if block.len() as u64 > LONGEST_LINE => {
                    let what = format!("a line has more than {LONGEST_LINE} bytes");
                    return Err(cannot_be_read(&self.path, &io::Error::other(what)));
                }
                // The line is longer than the block and continues.
                None => {}
            }
        }
    }

    /// Goes to the first block with a response, and gives the fields of that with the types of their values.
    pub(super) fn begin(&mut self) -> Result<Vec<(String, JsonType)>> {
        let room = Room::now();
        while !self.block.is_empty() {
            for (line, number) in lines(&self.block).zip(self.passed + 1..) {
                let here = |error: Diagnostic| error.on_line(number).in_file(&self.path);
                if let Some(text) = text(line).map_err(here)? {
                    return json::types(text).map_err(here);
                }
            }
            self.passed += lines(&self.block).count();
            let fits = room.check(ROW * self.passed as u64, "its lines take");
            fits.map_err(|error| cannot_be_read(&self.path, &error))?;
            self.block = self.next()?;
        }
        let error = Diagnostic::error("there is no response in the file");
        let error = error.expected("one JSON object per line, one line per response");
        Err(error.in_file(&self.path))
    }

    /// Processes all blocks: `parse` converts each part of some lines, in parallel; `take` gets each part and its result, in
    /// order.
    fn each<P: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> P + Sync,
        mut take: impl FnMut(&[u8], P) -> Result<()> + Send,
    ) -> Result<()> {
        let parse = |block: &[u8]| -> Vec<(Range<usize>, P)> {
            let parts = parts(block);
            let parsed = each(parts.len(), 1, &|at| parse(&block[parts[at].clone()]));
            parts.into_iter().zip(parsed).collect()
        };
        let mut take = |(block, parsed): (Vec<u8>, Vec<(Range<usize>, P)>)| {
            let mut parsed = parsed.into_iter();
            parsed.try_for_each(|(part, made)| take(&block[part], made))
        };
        let mut block = std::mem::take(&mut self.block);
        let (mut parsed, mut failed) = (None, Ok(()));
        while !block.is_empty() {
            let before = parsed.take();
            let take = || before.map_or(Ok(()), &mut take);
            let ((taken, made), next) =
                rayon::join(|| rayon::join(take, || parse(&block)), || self.next());
            taken?;
            // Errors in the lines read so far are reported before a failure to read on.
            let next = next.unwrap_or_else(|error| {
                failed = Err(error);
                Vec::new()
            });
            parsed = Some((std::mem::replace(&mut block, next), made));
        }
        parsed.map_or(Ok(()), take)?;
        failed
    }

    /// Processes all lines: `parse` converts each line that is not blank, in parallel; `take` gets the number of each line, its
    /// bytes and its result, in order.
    fn each_line<P: Send>(
        &mut self,
        parse: impl Fn(&str) -> Result<P> + Sync,
        mut take: impl FnMut(usize, &[u8], Option<P>) -> Result<()> + Send,
    ) -> Result<()> {
        let (path, mut number) = (self.path.clone(), self.passed);
        let parse = |part: &[u8]| -> Vec<Result<Option<P>>> {
            let parsed = lines(part).map(|line| text(line)?.map(&parse).transpose());
            parsed.collect()
        };
        self.each(parse, |part, parsed| {
            for (line, parsed) in lines(part).zip(parsed) {
                number += 1;
                let here = |error: Diagnostic| error.on_line(number).in_file(&path);
                take(number, line, parsed.map_err(here)?)?;
            }
            Ok(())
        })
    }

    /// Copies the lines to a file, if one is given, with new values for some fields and otherwise byte for byte. `parse` runs in
    /// parallel on each line that is not blank; `values` then gives each line's values, in order, by the line's number. The
    /// columns of a copy of a parquet file stay as they are. If the file was read before, it must be the same still.
    pub(super) fn copy<P: Send>(
        &mut self,
        output: Option<&Path>,
        fields: &[(&str, Shape)],
        parse: impl Fn(&[(&str, &str)]) -> Result<P> + Sync,
        mut values: impl FnMut(usize, P) -> Result<Values> + Send,
        origin: Option<&FileOrigin>,
    ) -> Result<(), Diagnostics> {
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let parse = |line: &str| {
            let fields = json::fields(line)?;
            Ok((parse(&fields)?, json::places(line, &fields, &names)))
        };
        let input = self.path.clone();
        if let Some(output) = output {
            format::check_copy("a column", &input, output)?;
        }
        let mut file = output.map(Replacement::new).transpose()?;
        match (output, &mut file) {
            (Some(output), Some(file)) if !is_parquet(&input) => {
                open::write_lines(output, file, |out| {
                    let failed = |error: io::Error| cannot_be_written(output, &error);
                    self.each_line(parse, |number, line, made| {
                        let Some((made, places)) = made else {
                            return out.write_all(line).map_err(failed);
                        };
                        let values = values(number, made)?;
                        json::write_values(out, line, &places, &names, &values).map_err(failed)
                    })
                })?;
            }
            (_, file) => {
                let mut rows = Vec::new();
                self.each_line(parse, |number, _, made| {
                    let made = made.map(|(made, _)| values(number, made)).transpose()?;
                    rows.extend(made.filter(|_| file.is_some()));
                    Ok(())
                })?;
                if let Some(file) = file {
                    let mut column = |at: usize| -> Vec<Option<Vec<u8>>> {
                        rows.iter_mut()
                            .map(|row: &mut Values| row[at].take())
                            .collect()
                    };
                    let columns = fields.iter().zip(0..).map(|(&(name, shape), at)| {
                        (name, AddedValues::of_json(shape, column(at)))
                    });
                    // Without a tokenizer no length was counted: the file keeps its own.
                    let given = columns.filter(|(_, values)| !values.is_empty());
                    parquet::write_copy(&input, &given.collect::<Vec<_>>(), file)?;
                }
            }
        }
        if let Some(origin) = origin {
            origin.check(match is_parquet(&input) {
                true => open::checksum_of_end(&input).unwrap_or_default(),
                false => self.sum,
            })?;
        }
        file.map_or(Ok(()), Replacement::finish)
    }
}

/// Reads a file of lines as a table.
pub(super) fn read(mut blocks: Blocks, schema: Schema) -> Result<Table> {
    let names = Arc::new(schema(&blocks.begin()?, FileKind::Lines)?);
    let mut rows = TableBuilder::new(&names);
    rows.lines = blocks.passed;
    rows.blank = vec![0; blocks.passed];
    let parse = |part: &[u8]| {
        let mut rows = TableBuilder::new(&names);
        let mut lines = lines(part);
        let added = lines.try_for_each(|line| rows.add(line));
        added.map_err(|error| (rows.lines, error)).map(|()| rows)
    };
    let (path, room) = (blocks.path.clone(), Room::now());
    blocks.each(parse, |bytes, part| {
        let here = |(line, error): (usize, Diagnostic)| error.on_line(rows.lines + line);
        let part = part.map_err(|error| here(error).in_file(&path))?;
        rows.append(part, bytes)?;
        let values = rows.columns.iter().map(FileColumn::size).sum::<u64>();
        let fits = room.check(8 * values + ROW * rows.lines as u64, "its lines take");
        fits.map_err(|error| cannot_be_read(&path, &error))
    })?;
    let (columns, responses) = (rows.columns, rows.responses);
    let origin = FileOrigin {
        path,
        blank: Some(rows.blank),
        sum: blocks.sum,
    };
    Ok(Table::of_lines(names, columns, responses, origin))
}

/// Columns that are filled line by line.
#[derive(Default)]
struct TableBuilder {
    names: Arc<Names>,
    columns: Vec<FileColumn>,
    by_name: HashMap<String, usize>,
    /// The column that most lines have next.
    next: usize,
    lines: usize,
    responses: usize,
    /// For each blank line, the index of the response after it.
    blank: Vec<usize>,
}

impl TableBuilder {
    fn new(names: &Arc<Names>) -> Self {
        let names = names.clone();
        TableBuilder {
            names,
            ..TableBuilder::default()
        }
    }

    fn add(&mut self, line: &[u8]) -> Result<()> {
        self.lines += 1;
        let Some(line) = text(line)? else {
            self.blank.push(self.responses);
            return Ok(());
        };
        let (fields, response) = (json::fields(line)?, self.responses);
        for &(key, raw) in &fields {
            let column = self.column(&json::text(key));
            if column.end > response {
                let name = &column.name;
                let what =
                    format!("the field `{name}` stands twice in this line; keep one of them");
                let before = line[..json::place(line, key).start].chars().count();
                return Err(Diagnostic::error(what).at_column(before + 2));
            }
            column.end = response + 1;
            column.push(response, raw);
        }
        for at in 0..self.names.nested.len() {
            let path = self.names.nested[at].clone();
            let (raw, column) = (json::value_at(&fields, &path), self.column(&path));
            raw.into_iter().for_each(|raw| column.push(response, raw));
        }
        self.responses += 1;
        Ok(())
    }

    /// Adds the rows of the lines that follow.
    fn append(&mut self, part: TableBuilder, bytes: &[u8]) -> Result<()> {
        let start = self.responses;
        for more in part.columns {
            let column = self.column(&more.name);
            if column.append(more, start) {
                continue;
            }
            let texts = lines(bytes).filter_map(|line| text(line).transpose());
            for (response, line) in (start..).zip(texts) {
                let fields = json::fields(line?)?;
                if let Some(raw) = json::value_at(&fields, &column.name) {
                    column.push(response, raw);
                }
            }
        }
        self.blank.extend(part.blank.iter().map(|at| at + start));
        self.responses += part.responses;
        self.lines += part.lines;
        Ok(())
    }

    /// The column of a name. Most lines have the same fields in the same order.
    fn column(&mut self, name: &str) -> &mut FileColumn {
        let next = self.columns.get(self.next);
        let found = match next.is_some_and(|next| next.name == name) {
            true => self.next,
            false => *self.by_name.entry(name.to_string()).or_insert_with(|| {
                self.columns.push(FileColumn::new(name, &self.names));
                self.columns.len() - 1
            }),
        };
        self.next = (found + 1) % self.columns.len();
        &mut self.columns[found]
    }
}

/// Whole lines of some 128 kB.
fn parts(block: &[u8]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < block.len() {
        let least = (start + PART).min(block.len());
        let end = least + line_end(&block[least..]);
        parts.push(start..end);
        start = end;
    }
    parts
}

/// The bytes of a line, including its ending.
fn line_end(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    // Memory can always be read.
    rest.skip_until(b'\n').unwrap_or(bytes.len())
}

fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (line, rest) = bytes.split_at(line_end(bytes));
        bytes = rest;
        (!line.is_empty()).then_some(line)
    })
}

/// A line as a string; `None` if it is blank.
fn text(line: &[u8]) -> Result<Option<&str>> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let (before, after) = line.split_at(error.valid_up_to());
        let byte = after.first().copied().unwrap_or_default();
        let before = String::from_utf8_lossy(before);
        Diagnostic::error("")
            .found(format!("the byte 0x{byte:02x}, which is not UTF-8 there"))
            .expected("text in UTF-8")
            .at_column(before.trim_start_matches(BYTE_ORDER_MARK).chars().count() + 1)
    })?;
    let after_mark = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let is_blank = after_mark.bytes().all(|byte| b" \t\r\n".contains(&byte));
    Ok((!is_blank).then_some(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

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

    /// Of each column its name, its first odd value, its kind, and its values if none is odd.
    fn columns(rows: &TableBuilder) -> Vec<String> {
        let columns = rows.columns.iter().map(|column| {
            let values = format!("{:?}", column.data);
            let kind = values.split('(').next().unwrap().to_string();
            let values = if column.odd.is_none() { values } else { kind };
            format!("{} {:?} {values}", column.name, column.odd)
        });
        columns.collect()
    }

    const VALUES: &str = r#"null|null|1|1|-2.5|true|"a b"|"a b"|"\u0020c"|[]|[1,2]|[NaN]|["a"]|{}|[{"content":"x"}]|18446744073709551615"#;

    proptest! {
        #[test]
        fn lines_read_in_parts_are_those_read_at_once(
            lines in prop::collection::vec((0..4usize, prop::collection::vec(0..20usize, 3)), 1..12),
            size in 1..4usize,
            texts: bool,
        ) {
            let values: Vec<&str> = VALUES.split('|').collect();
            let names = ["group", "completion", "mine"];
            let line = |(usual, others): &(usize, Vec<usize>)| {
                // Most values are of one kind.
                let at = |other: usize| if *usual > 0 { 2 + usual } else { other };
                let fields = names.iter().zip(others).filter_map(|(name, &other)| {
                    Some(format!("\"{name}\": {}", values.get(at(other))?))
                });
                format!("{{{}}}\n", fields.collect::<Vec<_>>().join(", ")).into_bytes()
            };
            let lines: Vec<Vec<u8>> = lines.iter().map(line).collect();
            let names = Arc::new(Names { count_words: true, columns: (!texts).then(BTreeSet::new), ..Names::default() });
            let (mut whole, mut parts) = (TableBuilder::new(&names), TableBuilder::new(&names));
            lines.iter().for_each(|line| whole.add(line).unwrap());
            for lines in lines.chunks(size) {
                let mut part = TableBuilder::new(&names);
                lines.iter().for_each(|line| part.add(line).unwrap());
                parts.append(part, &lines.concat()).unwrap();
            }
            prop_assert_eq!(columns(&whole), columns(&parts));
        }
    }

    #[test]
    fn a_wrong_line_is_told_before_a_failure_to_read_on() {
        // More than a block, so that the failure comes after the lines.
        let right = "{\"group\":1,\"reward\":0.5}\n";
        let lines = right.repeat((BLOCK * rayon::current_num_threads()) / right.len() + 2);
        let told = |lines: &str| {
            let torn = Box::new(Torn(lines.as_bytes()));
            let blocks = Blocks::new(Path::new("x.jsonl"), torn);
            let table = read(blocks.unwrap(), &|_, _| Ok(Names::default()));
            format!("{:?}", table.map(drop).expect_err("it is torn"))
        };
        assert!(told(&lines).contains("the disk is gone"));
        let wrong = lines.replacen("0.5", "0.5.5", 1);
        assert!(!told(&wrong).contains("the disk is gone"));
    }
}
