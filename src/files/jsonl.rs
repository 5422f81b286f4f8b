//! JSONL files with one response per line: this module reads a file as a table, and writes a copy with values added.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::added::NewColumn;
use super::blocks::{Blocks, lines, text};
use super::cell::{Cell, JsonType};
use super::json;
use super::options::ReadOptions;
use super::place::{Place, Result, changed};
use super::room::{ROW, Room};
use super::schema::{Fields, FileKind, Schema};
use super::table::{FileColumn, Table};
use super::text::Lines;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::regular_file::cannot_be_read;

/// Writes a copy of a file that was read and has `rows` responses, with columns added or replaced.
pub(super) fn add(
    lines: io::Result<Lines>,
    place: &Place,
    added: &[NewColumn],
    rows: usize,
    out: &Path,
) -> Result<(), Diagnostics> {
    let blocks = Blocks::new(&place.path, lines, None);
    let mut blocks = blocks.map_err(|error| changed(&place.path, &error.message))?;
    let names: Vec<&str> = added.iter().map(|column| column.name).collect();
    let mut rows = 0..rows;
    let values = |_, ()| match rows.next() {
        Some(row) => Ok(added.iter().map(|column| Some(column.json(row))).collect()),
        None => Err(changed(&place.path, "it has more lines")),
    };
    blocks.copy(out, &names, |_| Ok(()), values, Some(place))
}

/// Reads a file of lines as a table.
pub(super) fn read(mut blocks: Blocks, options: &ReadOptions) -> Result<Table> {
    let (path, first) = (blocks.path.clone(), blocks.begin()?);
    let schema = Schema::new(&path, options, &first, FileKind::Lines)?;
    let place = Place {
        path: path.clone(),
        blank: Some(vec![0; blocks.passed]),
        sum: 0,
    };
    let mut table = Table::new(Arc::new(schema), place);
    let schema = table.schema.clone();
    let parse = |part: &[u8]| {
        let mut rows = Table::new(schema.clone(), Place::default());
        let added = lines(part).try_for_each(|line| rows.add(line));
        added.map_err(|error| (rows.lines(), error)).map(|()| rows)
    };
    let room = Room::now();
    blocks.each(parse, |bytes, part| {
        let here = |(before, error): (usize, Diagnostic)| error.on_line(table.lines() + before + 1);
        let part = part.map_err(|error| here(error).in_file(&path))?;
        table.append(part, bytes)?;
        let values = table.columns.iter().map(FileColumn::size).sum::<u64>();
        let fits = room.check(8 * values + ROW * table.lines() as u64, "its lines take");
        fits.map_err(|error| cannot_be_read(&path, &error))
    })?;
    table.place.sum = blocks.sum;
    table.check_late(&first, options)?;
    Ok(table.finish())
}

/// Returns the error for a field whose first value comes after the first lines.
pub(super) fn too_late(field: &str) -> Diagnostic {
    let what = format!(
        "`{field}` has its first value here, but the first lines (at least 128 kB) decide how fields are read"
    );
    let help = "put a line with this field first, or remove the field from all lines (decompress a compressed file before; if the \
        files of a folder are read as one, the line belongs into the first file)";
    Diagnostic::error(what).with_help(help)
}

impl Table {
    /// Refuses a file if a field that has no value in the first lines, whose fields are `first`, would change the result; notes a
    /// field that would only get another name.
    fn check_late(&mut self, first: Fields, options: &ReadOptions) -> Result<()> {
        let is_null = |kind: &JsonType| *kind == JsonType::Null;
        let is_late = |column: &&FileColumn| {
            let name = column.name();
            let is_known = first.get(name).is_some_and(|kind| !is_null(kind));
            !is_null(&column.first.1) && !is_known && !self.schema.nested.contains(name)
        };
        let late: Vec<&FileColumn> = self.columns.iter().filter(is_late).collect();
        if late.is_empty() {
            return Ok(());
        }
        let mut fields = first.clone();
        for column in &late {
            let (name, kind) = (column.name().to_string(), column.first.1);
            // TRL writes rewards behind the completion. The place of a late field in its line is not kept, so the name decides.
            let is_reward = name.contains("reward") && !first.contains_key(&name);
            match first.get_index_of("completion").filter(|_| is_reward) {
                Some(completion) => fields.shift_insert(completion + 1, name, kind),
                None => fields.insert(name, kind),
            };
        }
        let Ok(schema) = Schema::new(&self.place.path, options, &fields, FileKind::Lines) else {
            return Ok(());
        };
        let changes = schema.changes(&self.schema, &fields);
        let is_other_sum = schema.rewards != self.schema.rewards;
        if is_other_sum || changes.iter().any(|(_, decides)| *decides) {
            let decides = |column: &&&FileColumn| {
                let is_it =
                    |path: &str| path == column.name() || json::is_inside(path, column.name());
                changes
                    .iter()
                    .any(|(path, decides)| *decides && is_it(path))
            };
            let field = late.iter().find(decides).unwrap_or(&late[0]);
            let error = too_late(field.name());
            return Err(self.place.error(Some(field.first.0), error));
        }
        let note = |column: &&FileColumn| {
            let (name, line) = (column.name(), self.place.line(column.first.0));
            let line = line.map_or(String::new(), |line| format!(", in line {line},"));
            format!(
                "`{name}` keeps its name, because its first value{line} comes after the first lines, which decide how fields are read"
            )
        };
        let is_renamed =
            |column: &&&FileColumn| changes.iter().any(|(path, _)| path == column.name());
        let renamed = late.iter().filter(is_renamed);
        let notes: Vec<String> = renamed.map(note).collect();
        Arc::make_mut(&mut self.schema).notes.extend(notes);
        Ok(())
    }

    /// Returns the number of lines that were added, including blank lines.
    fn lines(&self) -> usize {
        self.responses + self.place.blank.as_ref().map_or(0, Vec::len)
    }

    fn add(&mut self, line: &[u8]) -> Result<()> {
        let response = self.responses;
        let Some(line) = text(line)? else {
            self.place.blank.get_or_insert_default().push(response);
            return Ok(());
        };
        let fields = json::fields(line)?;
        for &(key, raw) in &fields {
            let column = self.column(&json::text(key));
            if column.end > response {
                let name = column.name();
                let what =
                    format!("the field `{name}` occurs twice in this line; keep one of them");
                let before = line[..json::place(line, key).start].chars().count();
                return Err(Diagnostic::error(what).at_column(before + 2));
            }
            column.push(response, &Cell::Json(raw.into()));
        }
        for path in &self.schema.clone().nested {
            let (raw, column) = (json::value_at(&fields, path)?, self.column(path));
            if let Some(raw) = raw {
                column.push(response, &Cell::Json(raw.into()));
            }
        }
        self.responses += 1;
        Ok(())
    }

    /// Appends the table of the next part, whose lines are `bytes`.
    fn append(&mut self, part: Table, bytes: &[u8]) -> Result<()> {
        let start = self.responses;
        for more in part.columns {
            let column = self.column(more.name());
            if column.append(more, start) {
                continue;
            }
            let texts = lines(bytes).filter_map(|line| text(line).transpose());
            for (response, line) in (start..).zip(texts) {
                let fields = json::fields(line?)?;
                if let Some(raw) = json::value_at(&fields, column.name())? {
                    column.push(response, &Cell::Json(raw.into()));
                }
            }
        }
        let blank = part.place.blank.into_iter().flatten();
        let own = self.place.blank.get_or_insert_default();
        own.extend(blank.map(|at| at + start));
        self.responses += part.responses;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;
    use crate::files::blocks::BLOCK;

    /// Yields some lines, then fails.
    struct Torn<'a>(&'a [u8]);

    impl Read for Torn<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("the disk is gone")),
                read => Ok(read),
            }
        }
    }

    /// Describes each column: its name, its first invalid value, and its values or, if one is invalid, only their type.
    fn columns(rows: &Table) -> Vec<String> {
        let columns = rows.columns.iter().map(|column| {
            let values = format!("{:?}", column.data);
            let kind = values.split('(').next().unwrap().to_string();
            let values = if column.odd.is_none() { values } else { kind };
            format!("{} {:?} {values}", column.name(), column.odd)
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
            let schema = Schema { count_words: true, columns: (!texts).then(BTreeSet::new), ..Schema::default() };
            let schema = Arc::new(schema);
            let table = || Table::new(schema.clone(), Place::default());
            let (mut whole, mut parts) = (table(), table());
            lines.iter().for_each(|line| whole.add(line).unwrap());
            for lines in lines.chunks(size) {
                let mut part = table();
                lines.iter().for_each(|line| part.add(line).unwrap());
                parts.append(part, &lines.concat()).unwrap();
            }
            prop_assert_eq!(columns(&whole), columns(&parts));
        }
    }

    #[test]
    fn a_wrong_line_is_told_before_a_failure_to_read_on() {
        // The lines fill more than a block, so that the I/O error comes after them.
        let right = "{\"group\":1,\"reward\":0.5}\n";
        let lines = right.repeat((BLOCK * rayon::current_num_threads()) / right.len() + 2);
        let told = |lines: &str| {
            let torn = Box::new(Torn(lines.as_bytes()));
            let blocks = Blocks::new(Path::new("x.jsonl"), Ok(torn), None);
            let table = read(blocks.unwrap(), &ReadOptions::default());
            format!("{:?}", table.map(drop).expect_err("it is torn"))
        };
        assert!(told(&lines).contains("the disk is gone"));
        let wrong = lines.replacen("0.5", "0.5.5", 1);
        assert!(!told(&wrong).contains("the disk is gone"));
    }
}
