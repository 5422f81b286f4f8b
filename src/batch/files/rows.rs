//! Collects the lines of a JSONL file into columns, and checks each line as it comes.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::groups::{self, Groups};
use super::json::{Field, Line, Value, words};
use super::jsonl::column;
use super::names::{self, Names, REWARDS, Role};
use super::slot::{Fate, Here, Slot, Values};
use super::{Dtype, Note, Parts, ReadError, ReadOptions};
use crate::batch::layout::Tokens;
use crate::batch::{Batch, Floats, TokenValues};

/// The lines so far, as columns.
pub(super) struct Rows {
    path: PathBuf,
    dtype: Dtype,
    names: Names,
    /// Another program's dump: its groups are told apart by step too.
    dump: bool,
    fields: Vec<Known>,
    by_key: HashMap<Box<str>, usize>,
    slots: Vec<Slot>,
    groups: Groups,
    tokens: Tokens,
    basis: Option<Basis>,
    /// The line of each response.
    lines: Vec<usize>,
    notes: Vec<Note>,
    /// For each field of the line in hand, its place in `fields`.
    order: Vec<usize>,
}

/// A field of the file.
struct Known {
    name: String,
    slots: Vec<usize>,
    /// The last line that had it.
    line: usize,
}

/// What says how many tokens a response has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    /// `mask` or a known token column.
    Known,
    /// The number `length`.
    Length,
    /// An array that is no known column, by its slot.
    Array(usize),
    /// Nothing, or two arrays that differ.
    Nothing,
}

/// The tokens of one response.
pub(super) struct Shape {
    basis: Basis,
    /// The length of the row, and the field that set it.
    pub(super) row: Option<(usize, String)>,
    /// The mask's range of `Line::numbers`.
    pub(super) mask: Option<Range<usize>>,
}

impl Rows {
    /// Starts with the fields of the first line, which show what kind of file it is.
    pub(super) fn new(
        path: &Path,
        options: &ReadOptions,
        text: &str,
        first: &Line,
    ) -> Result<Rows, ReadError> {
        let fields = first.fields.iter().map(|field| &text[field.key.clone()]);
        let mut names = Names::mapped(path, options.map, fields.clone())?;
        let note = names.recognise(text, first);
        let has = |ours: &str| names.reading(ours).is_some() || fields.clone().any(|f| f == ours);
        if !has("group") {
            return Err(ReadError::NoGroup {
                path: path.to_path_buf(),
                wanted: "`group`",
                hint: names::group_hint(fields),
            });
        }
        if !REWARDS.iter().any(|ours| has(ours)) {
            return Err(ReadError::NoReward {
                path: path.to_path_buf(),
                wanted: "`reward`, `correct` or `token_reward`",
                hint: names::reward_hint(fields),
            });
        }
        Ok(Rows {
            path: path.to_path_buf(),
            dtype: options.dtype.unwrap_or(Dtype::F64),
            names,
            dump: note.is_some(),
            fields: Vec::new(),
            by_key: HashMap::new(),
            slots: Vec::new(),
            groups: Groups::default(),
            tokens: Tokens::ragged(),
            basis: None,
            lines: Vec::new(),
            notes: note.into_iter().collect(),
            order: Vec::new(),
        })
    }

    /// Adds a line.
    pub(super) fn add(&mut self, number: usize, text: &str, line: &Line) -> Result<(), ReadError> {
        self.index(number, text, line)?;
        let shape = self.shape(number, line)?;
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
            (_, Some(mask)) => self
                .tokens
                .add(line.numbers[mask.clone()].iter().map(|&value| value == 1.0)),
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
                None => self.meet(key),
            };
            if self.fields[known].line == number {
                return Err(ReadError::Duplicate {
                    path: self.path.clone(),
                    line: number,
                    column: column(text, field.key.start),
                    field: key.to_string(),
                });
            }
            self.fields[known].line = number;
            self.order.push(known);
        }
        Ok(())
    }

    fn meet(&mut self, key: &str) -> usize {
        let mut slots = Vec::new();
        for reading in self.names.of(key, key) {
            if reading.ours == "advantage" {
                self.notes.push(Note::LeftOut {
                    field: key.to_string(),
                    why: "an advantage is what a recipe makes (`--map NAME=advantage` reads it under another name)"
                        .to_string(),
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

    /// How many tokens the response has, and which count.
    fn shape(&self, number: usize, line: &Line) -> Result<Shape, ReadError> {
        let mut shape = Shape {
            basis: Basis::Nothing,
            row: None,
            mask: None,
        };
        let mut length = None;
        let mut arrays: Option<(usize, usize)> = None;
        let mut differ = false;
        for (field, &known) in line.fields.iter().zip(&self.order) {
            for &slot in &self.fields[known].slots {
                let name = &self.fields[known].name;
                match (self.slots[slot].reading.role, &field.value) {
                    (Role::Mask, Value::Numbers(range)) => {
                        self.check_mask(number, name, &line.numbers[range.clone()])?;
                        shape.mask = Some(range.clone());
                        self.agree(number, &mut shape.row, name, range.len())?;
                    }
                    (Role::Token, Value::Numbers(range)) => {
                        self.agree(number, &mut shape.row, name, range.len())?;
                    }
                    (Role::Response, &Value::Number(value))
                        if self.slots[slot].reading.ours == "length"
                            && (0.0..=f64::from(u32::MAX)).contains(&value) =>
                    {
                        length = Some((value.round() as usize, name.clone()));
                    }
                    (Role::Any, Value::Numbers(range)) if self.slots[slot].fate == Fate::In => {
                        let (_, first) = *arrays.get_or_insert((slot, range.len()));
                        differ |= first != range.len();
                    }
                    _ => {}
                }
            }
        }
        if shape.row.is_some() {
            shape.basis = Basis::Known;
        } else if length.is_some() {
            shape.basis = Basis::Length;
            shape.row = length;
        } else if let Some((slot, length)) = arrays
            && !differ
        {
            shape.basis = Basis::Array(slot);
            shape.row = Some((length, self.slots[slot].reading.theirs.clone()));
        }
        Ok(shape)
    }

    /// Makes sure that an array is as long as the response's other ones.
    fn agree(
        &self,
        number: usize,
        row: &mut Option<(usize, String)>,
        field: &str,
        found: usize,
    ) -> Result<(), ReadError> {
        let (expected, from) = row.get_or_insert_with(|| (found, field.to_string()));
        if *expected == found {
            return Ok(());
        }
        Err(ReadError::RowLength {
            path: self.path.clone(),
            line: number,
            field: field.to_string(),
            found,
            expected: *expected,
            from: from.clone(),
        })
    }

    fn check_mask(&self, number: usize, field: &str, mask: &[f64]) -> Result<(), ReadError> {
        match mask.iter().position(|&value| value != 0.0 && value != 1.0) {
            None => Ok(()),
            Some(token) => Err(ReadError::Field {
                path: self.path.clone(),
                line: number,
                field: field.to_string(),
                place: format!(", token {token},"),
                found: mask[token].to_string(),
                expected: "1 for a token that counts or 0 for one that does not",
            }),
        }
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
            (Role::Completion, Value::Text) => match shape.basis {
                // The words are needed only where nothing better says how long the response is.
                Basis::Known | Basis::Length => Ok(()),
                Basis::Array(_) | Basis::Nothing => {
                    slot.response(here, words(&text[field.place.clone()]) as f64)
                }
            },
            (Role::Completion, _) => Ok(()),
            _ => slot.put(here, field, line, shape, self.dtype),
        }
    }

    /// Puts the columns together.
    pub(super) fn finish(mut self) -> Result<Parts, ReadError> {
        let here = Here {
            path: &self.path,
            text: "",
            number: 0,
            before: &self.lines,
        };
        let first = self.lines.first().copied().unwrap_or_default();
        for slot in &mut self.slots {
            if slot.fate == Fate::In && (slot.filled > 0 || slot.null.is_some()) {
                slot.close(here, first)?;
            }
        }
        let basis = self.basis.unwrap_or(Basis::Nothing);
        let array = match basis {
            Basis::Array(slot) if self.slots[slot].fate == Fate::In => Some(slot),
            _ => None,
        };
        let tokens_known = array.is_some() || matches!(basis, Basis::Known | Basis::Length);
        if let Some(slot) = array {
            self.notes.push(Note::LengthOfArray {
                field: self.slots[slot].reading.theirs.clone(),
            });
        }
        let mut batch = Batch::builder();
        if tokens_known {
            batch = batch.tokens(self.tokens);
        }
        let has_length = (self.slots.iter())
            .any(|slot| slot.reading.ours == "length" && slot.fate == Fate::In && slot.filled > 0);
        let mut steps = None;
        for slot in self.slots {
            let Slot {
                reading,
                values,
                fate,
                stray,
                ..
            } = slot;
            let why = match fate {
                Fate::In => None,
                Fate::Out(why) => Some(why),
                Fate::Silent => continue,
            };
            let words = !tokens_known && !has_length;
            match (reading.role, why, values) {
                (Role::Completion, None, Values::Responses(values)) if words => {
                    self.notes.push(Note::LengthInWords {
                        field: reading.theirs,
                    });
                    batch = batch.response("length", values);
                }
                (Role::Completion, ..) => {}
                (Role::Step, None, Values::Responses(values)) => steps = Some(values),
                (_, Some(why), _) => self.notes.push(Note::LeftOut {
                    field: reading.theirs,
                    why,
                }),
                (_, None, Values::Responses(values)) => {
                    batch = batch.response(reading.ours, values)
                }
                (_, None, Values::F32(_) | Values::F64(_)) if !tokens_known => {
                    self.notes.push(Note::LeftOut {
                        field: reading.theirs,
                        why: "nothing says in every line how many tokens the response has (`mask`, `length`)".to_string(),
                    });
                }
                (_, None, values @ (Values::F32(_) | Values::F64(_))) => {
                    if let Some((count, line, token)) = stray {
                        self.notes.push(Note::NotFinite {
                            column: reading.ours.clone(),
                            first: format!("line {line}, token {token}"),
                            count,
                        });
                    }
                    let values = match values {
                        Values::F32(values) => Floats::F32(values.into()),
                        Values::F64(values) => Floats::F64(values.into()),
                        Values::None | Values::Responses(_) => continue,
                    };
                    batch = batch.token(reading.ours, TokenValues::Compact(values));
                }
                (_, None, Values::None) => {}
            }
        }
        // The same prompt may come again in another step: a dump numbers its prompts from 0 in each.
        let several = steps
            .as_ref()
            .is_some_and(|steps| steps.iter().any(|&step| step != steps[0]));
        if several {
            self.notes.push(Note::Steps { split: self.dump });
        } else if let Some(&step) = steps.as_ref().and_then(|steps| steps.first())
            && step >= 0.0
        {
            batch = batch.step(step as u64);
        }
        let groups = match steps {
            Some(steps) if several && self.dump => self.groups.split(&steps),
            _ => self.groups.finish(),
        };
        let batch = batch
            .groups(groups)
            .build()
            .map_err(|source| ReadError::Batch {
                line: source
                    .response()
                    .and_then(|response| self.lines.get(response).copied()),
                path: self.path.clone(),
                source,
            })?;
        Ok(Parts {
            batch,
            notes: self.notes,
            lines: self.lines,
            width: None,
        })
    }
}
