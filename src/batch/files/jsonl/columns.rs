//! The columns of a file of lines, as line after line gives its values to them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::blocks::{lines, text};
use super::value::Value;
use crate::batch::files::json::{Cursor, Type, unescape};
use crate::batch::files::names::{Names, Role};
use crate::batch::files::raw::{Blank, Odd, RawColumn, Values};
use crate::diagnostic::Diagnostic;

/// The columns of the lines so far.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) names: Arc<Names>,
    pub(super) columns: Vec<RawColumn>,
    /// For each column, how many lines were begun when it was last met.
    met: Vec<usize>,
    /// For each column, its key as it first stood between its quotes.
    keys: Vec<Box<str>>,
    by_key: HashMap<Box<str>, usize>,
    /// The column that most lines have next.
    next: usize,
    /// The strings that name groups, each held once: one may be a whole prompt.
    ids: HashSet<Arc<str>>,
    /// How many responses there are.
    responses: usize,
    pub(super) blank: Blank,
    /// The numbers of the array that is being read.
    array: Vec<f64>,
}

impl Columns {
    /// Columns of lines that come after so many others, which are blank.
    pub(super) fn new(names: Arc<Names>, blank: usize) -> Self {
        let mut columns = Columns {
            names,
            ..Columns::default()
        };
        columns.blank.add(0, blank);
        columns
    }

    /// How many lines there are.
    fn lines(&self) -> usize {
        self.responses + self.blank.count()
    }

    /// Adds more lines, one after another.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), Diagnostic> {
        for line in lines(bytes) {
            let number = self.lines() + 1;
            let here = |error: Diagnostic| error.on_line(number);
            match text(line).map_err(here)? {
                Some(text) => self.line(text).map_err(here)?,
                None => self.blank.add(self.responses, 1),
            }
        }
        Ok(())
    }

    /// Whether columns of the lines that follow can be added as they are: each has a value of the same kind in every line,
    /// or its values no longer matter.
    pub(super) fn goes_on_in(&self, more: &Columns) -> bool {
        let (before, added) = (self.responses, more.responses);
        more.columns.iter().all(|column| {
            let known = self.by_key.get(&*column.name);
            known.is_some_and(|&known| {
                let known = &self.columns[known];
                let are_null = known.filled == 0 && column.filled == 0;
                let are_full = known.filled == before && column.filled == added;
                known.odd.is_some()
                    || column.odd.is_none()
                        && (are_null || are_full && known.values.are_as(&column.values))
            })
        })
    }

    /// Adds the columns of the lines that follow.
    pub(super) fn append(&mut self, more: Columns) {
        for column in more.columns {
            let known = &mut self.columns[self.by_key[&*column.name]];
            if known.odd.is_none() {
                known.filled += column.filled;
                known.values.append(column.values, &mut self.ids);
                match (&mut known.texts, column.texts) {
                    (Some(texts), Some(more)) => texts.extend(more),
                    (texts, _) => *texts = None,
                }
            }
        }
        self.blank.append(self.responses, &more.blank);
        self.responses += more.responses;
    }

    /// All columns, now that no more lines follow: one whose last values are missing is odd.
    pub(super) fn finish(mut self) -> Self {
        let responses = self.responses;
        for column in &mut self.columns {
            if column.odd.is_none() && (1..responses).contains(&column.filled) {
                column.end(0);
            }
        }
        self
    }

    fn line(&mut self, text: &str) -> Result<(), Diagnostic> {
        let response = self.responses;
        Cursor::new(text).object(|cursor, key| {
            let index = self.column(&text[key.clone()]);
            if std::mem::replace(&mut self.met[index], response + 1) > response {
                let name = &self.columns[index].name;
                let what =
                    format!("the field `{name}` stands twice in this line; keep one of them");
                cursor.at = key.start;
                return Err(cursor.error(Diagnostic::error(what)));
            }
            self.value(index, response, cursor)
        })?;
        self.responses += 1;
        Ok(())
    }

    /// The column of a key as it stands between its quotes. Most lines have the same fields in the same order.
    fn column(&mut self, key: &str) -> usize {
        let index = match self.keys.get(self.next) {
            Some(next) if **next == *key => self.next,
            _ => match self.by_key.get(key) {
                Some(&known) => known,
                None => self.add_key(key),
            },
        };
        self.next = (index + 1) % self.columns.len();
        index
    }

    fn add_key(&mut self, key: &str) -> usize {
        let name = unescape(key).unwrap_or(key.into());
        let index = self.by_key.get(&*name).copied().unwrap_or_else(|| {
            let readings = self.names.of(&name);
            let is = |role: Role| readings.iter().any(|reading| reading.role == role);
            let values = if is(Role::Group) {
                let (ids, are_strings) = (Vec::new(), false);
                Values::Ids { ids, are_strings }
            } else if is(Role::Completion) && self.names.count_words {
                let (counts, messages) = (Vec::new(), false);
                Values::Words { counts, messages }
            } else {
                Values::None
            };
            self.met.push(0);
            self.keys.push(key.into());
            let mut column = RawColumn::new(name.to_string(), values);
            column.is_unread = !readings.iter().any(|reading| self.names.wants(reading));
            let mut readings = readings.iter();
            let is_text = readings.any(|reading| self.names.wants_text(reading));
            column.texts = is_text.then(Vec::new);
            column.is_summand = self.names.rewards.contains(&column.name);
            self.columns.push(column);
            self.by_key.insert((*name).into(), self.columns.len() - 1);
            self.columns.len() - 1
        });
        self.by_key.insert(key.into(), index);
        index
    }

    /// Gives a response's value to its column.
    fn value(
        &mut self,
        index: usize,
        response: usize,
        cursor: &mut Cursor,
    ) -> Result<(), Diagnostic> {
        let column = &mut self.columns[index];
        let (start, kind) = (cursor.at, cursor.value_type());
        self.array.clear();
        let (mut mixed, mut number) = (None, f64::NAN);
        match kind {
            Type::Array if column.odd.is_none() => mixed = cursor.array(&mut self.array)?,
            Type::String | Type::Array | Type::Object => cursor.skip(0)?,
            Type::Null | Type::Bool | Type::Number => number = cursor.scalar()?,
        }
        if column.odd.is_some() {
            return Ok(());
        }
        if kind == Type::Null && !column.is_summand {
            column.null.get_or_insert(response);
            return Ok(());
        }
        let value = Value {
            kind,
            raw: cursor.since(start),
            number,
            numbers: &self.array,
            mixed,
        };
        let tokenizer = self.names.tokenizer.as_deref();
        match value.give_to(column, &mut self.ids, tokenizer) {
            Ok(()) => column.take(response),
            Err(found) => {
                if column.filled == 0 {
                    column.values = Values::Other(found.clone());
                }
                column.odd = Some(Odd {
                    response,
                    found,
                    other: 0,
                });
            }
        }
        Ok(())
    }
}
