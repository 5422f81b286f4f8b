//! Collects the lines of a JSONL file into columns, and checks each line as it comes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::column;
use super::completion;
use super::dumps;
use super::groups::{self, Groups};
use super::json::{Field, Line, Value};
use super::shape::{Basis, Shape};
use super::slot::{Fate, Here, Slot};
use crate::batch::files::names::{self, ADVANTAGE, Names, REWARDS, Role};
use crate::batch::files::{Dtype, Note, ReadError, ReadOptions};
use crate::batch::layout::Tokens;

/// The lines so far, as columns.
pub(super) struct Rows {
    pub(super) path: PathBuf,
    pub(super) dtype: Dtype,
    pub(super) names: Names,
    /// The groups are those of another program's dump, which are told apart by step too.
    pub(super) dump: bool,
    pub(super) fields: Vec<Known>,
    pub(super) by_key: HashMap<Box<str>, usize>,
    pub(super) slots: Vec<Slot>,
    pub(super) groups: Groups,
    pub(super) tokens: Tokens,
    pub(super) basis: Option<Basis>,
    /// How many responses have no token where the mask is 1, and the line of the first.
    pub(super) bare: Option<(usize, usize)>,
    /// The line of each response.
    pub(super) lines: Vec<usize>,
    pub(super) notes: Vec<Note>,
    /// For each field of the line in hand, its place in `fields`.
    pub(super) order: Vec<usize>,
}

/// A field of the file.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) slots: Vec<usize>,
    /// The last line that had it.
    line: usize,
}

impl Rows {
    /// Starts with the fields of the first line, which show what kind of file it is.
    pub(super) fn new(
        path: &Path,
        options: &ReadOptions,
        text: &str,
        first: &Line,
    ) -> Result<Rows, ReadError> {
        let keys: Vec<Cow<str>> = first.fields.iter().map(|field| field.name(text)).collect();
        let fields = keys.iter().map(|key| &**key);
        let mut names = Names::mapped(path, options.map, fields.clone())?;
        let note = dumps::recognise(&mut names, text, first);
        let own = fields.clone().map(|field| (field, field));
        if !names.provides("group", own.clone()) {
            return Err(ReadError::NoGroup {
                path: path.to_path_buf(),
                wanted: "`group`",
                hint: names::group_hint(fields),
            });
        }
        if !REWARDS.iter().any(|ours| names.provides(ours, own.clone())) {
            return Err(ReadError::NoReward {
                path: path.to_path_buf(),
                wanted: "`reward`, `correct` or `token_reward`",
                hint: names::reward_hint(fields),
            });
        }
        let dumped = note.is_some() && names.reading("group").is_some_and(|group| !group.asked);
        Ok(Rows {
            path: path.to_path_buf(),
            dtype: options.dtype.unwrap_or(Dtype::F64),
            names,
            dump: dumped,
            fields: Vec::new(),
            by_key: HashMap::new(),
            slots: Vec::new(),
            groups: Groups::default(),
            tokens: Tokens::ragged(),
            basis: None,
            bare: None,
            lines: Vec::new(),
            notes: note.into_iter().collect(),
            order: Vec::new(),
        })
    }

    /// Adds a line.
    pub(super) fn add(&mut self, number: usize, text: &str, line: &Line) -> Result<(), ReadError> {
        self.index(number, text, line)?;
        let shape = self.shape(number, text, line)?;
        let basis = *self.basis.get_or_insert(shape.basis);
        if basis != shape.basis {
            self.basis = Some(Basis::Nothing);
        }
        for (place, field) in line.fields.iter().enumerate() {
            for which in 0..self.fields[self.order[place]].slots.len() {
                let slot = self.fields[self.order[place]].slots[which];
                self.put(slot, number, text, field, line, &shape)?;
            }
        }
        match (&shape.row, &shape.mask) {
            (_, Some(mask)) => {
                let mask = &line.numbers[mask.clone()];
                if !mask.is_empty() && !mask.contains(&1.0) {
                    let (count, _) = self.bare.get_or_insert((0, number));
                    *count += 1;
                }
                self.tokens.add(mask.iter().map(|&value| value == 1.0));
            }
            (Some((length, _)), None) => self.tokens.add_full(*length),
            (None, None) => self.tokens.add_full(0),
        }
        self.lines.push(number);
        Ok(())
    }

    /// Finds the line's fields among those of the file, and refuses one that stands twice.
    fn index(&mut self, number: usize, text: &str, line: &Line) -> Result<(), ReadError> {
        self.order.clear();
        for field in &line.fields {
            let key = &text[field.key.clone()];
            let known = match self.by_key.get(key) {
                Some(&known) => known,
                None => self.meet(key, &field.name(text)),
            };
            if self.fields[known].line == number {
                return Err(ReadError::Duplicate {
                    path: self.path.clone(),
                    line: number,
                    column: column(text, field.key.start),
                    field: self.fields[known].name.clone(),
                });
            }
            self.fields[known].line = number;
            self.order.push(known);
        }
        Ok(())
    }

    /// Takes in a key that is new as it stands there: a new field, or one that was written without escapes before.
    fn meet(&mut self, key: &str, name: &str) -> usize {
        let known = match self.by_key.get(name) {
            Some(&known) => known,
            None => self.field(name),
        };
        self.by_key.insert(key.into(), known);
        known
    }

    fn field(&mut self, key: &str) -> usize {
        let mut slots = Vec::new();
        self.notes.extend(self.names.shadowed(key, key));
        for reading in self.names.of(key, key) {
            if reading.ours == "advantage" {
                self.notes.push(Note::LeftOut {
                    field: key.to_string(),
                    why: ADVANTAGE.to_string(),
                });
                continue;
            }
            slots.push(self.slots.len());
            self.slots.push(Slot::new(reading));
        }
        self.fields.push(Known {
            name: key.to_string(),
            slots,
            line: 0,
        });
        self.by_key.insert(key.into(), self.fields.len() - 1);
        self.fields.len() - 1
    }

    /// Gives a response's value to one of its columns.
    fn put(
        &mut self,
        slot: usize,
        number: usize,
        text: &str,
        field: &Field,
        line: &Line,
        shape: &Shape,
    ) -> Result<(), ReadError> {
        let here = Here {
            path: &self.path,
            text,
            number,
            before: &self.lines,
        };
        let slot = &mut self.slots[slot];
        match (slot.reading.role, &field.value) {
            (Role::Group, value) => {
                let raw = &text[field.place.clone()];
                slot.claim(here)?;
                self.groups.add(raw, value).map_err(|found| {
                    here.wrong(&slot.reading.theirs, String::new(), found, groups::EXPECTED)
                })
            }
            (Role::Completion, Value::Null) => {
                slot.null.get_or_insert(number);
                Ok(())
            }
            // The words are needed only where nothing better says how long the response is.
            (Role::Completion, value) => match (shape.basis, &shape.row) {
                (Basis::Known | Basis::Length, _) => slot.response(here, 0.0),
                (Basis::Completion, Some((words, _))) => {
                    slot.messages |= *value != Value::Text;
                    slot.response(here, *words as f64)
                }
                _ => {
                    let found = value.describe(&text[field.place.clone()]);
                    let expected = completion::EXPECTED;
                    slot.fate = Fate::Out(format!(
                        "it is {found} in line {number}, and not {expected}"
                    ));
                    Ok(())
                }
            },
            _ => slot.put(here, field, line, shape, self.dtype),
        }
    }
}
