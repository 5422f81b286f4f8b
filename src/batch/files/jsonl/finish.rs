//! Makes a batch of the columns of a JSONL file when its last line has been read.

use super::rows::Rows;
use super::shape::Basis;
use super::slot::{Fate, Here, Slot, Values};
use crate::batch::files::names::{self, Role};
use crate::batch::files::{Note, Origin, Parts, ReadError};
use crate::batch::{Batch, BatchBuilder, FloatBuffer, TokenValues};

impl Rows {
    /// Puts the columns together.
    pub(super) fn finish(mut self) -> Result<Parts, ReadError> {
        self.close()?;
        let known = self.tokens_known();
        let length = self
            .slots
            .iter()
            .any(|slot| slot.reading.ours == "length" && slot.is_filled());
        let mut columns = Columns {
            batch: Batch::builder(),
            notes: self.notes,
            tokens: known,
            words: !length && !matches!(self.basis, Some(Basis::Known | Basis::Array(_))),
            steps: None,
        };
        for slot in self.slots {
            columns.add(slot);
        }
        let Columns {
            mut batch,
            mut notes,
            steps,
            ..
        } = columns;
        if known {
            batch = batch.tokens(self.tokens);
        }
        if let Some((responses, line)) = self.bare {
            let first = format!("line {line}");
            notes.push(Note::NoTokens { responses, first });
        }
        // The same prompt may come again in another step: a dump numbers its prompts from 0 in each.
        let several = |steps: &Vec<f64>| steps.iter().any(|&step| step != steps[0]);
        let groups = match steps {
            Some(steps) if several(&steps) => {
                notes.push(Note::Steps { split: self.dump });
                match self.dump {
                    true => self.groups.split(&steps),
                    false => self.groups.finish(),
                }
            }
            steps => {
                let step = steps.and_then(|steps| names::step(*steps.first()?));
                batch = batch.step(step.unwrap_or_default());
                self.groups.finish()
            }
        };
        let lines = self.lines;
        let batch = batch.groups(groups).build();
        let batch = batch.map_err(|source| ReadError::Batch {
            line: source
                .response()
                .and_then(|response| lines.get(response).copied()),
            path: self.path,
            source,
        })?;
        Ok(Parts {
            batch,
            notes,
            origin: Origin::Lines(lines),
        })
    }

    /// Looks in every column for a response at the end that has no value.
    fn close(&mut self) -> Result<(), ReadError> {
        let here = Here {
            path: &self.path,
            text: "",
            number: 0,
            before: &self.lines,
        };
        for slot in &mut self.slots {
            if slot.fate == Fate::In && (slot.filled > 0 || slot.null.is_some()) {
                slot.close(here)?;
            }
        }
        Ok(())
    }

    /// Whether every line said how many tokens its response has.
    fn tokens_known(&mut self) -> bool {
        match self.basis {
            Some(Basis::Known | Basis::Length | Basis::Completion) => true,
            Some(Basis::Array(slot)) if self.slots[slot].is_filled() => {
                self.notes.push(Note::LengthOfArray {
                    field: self.slots[slot].reading.theirs.clone(),
                });
                true
            }
            Some(Basis::Array(_) | Basis::Nothing) | None => false,
        }
    }
}

/// The batch while its columns come in.
struct Columns {
    batch: BatchBuilder,
    notes: Vec<Note>,
    /// Whether the tokens of every response are known.
    tokens: bool,
    /// Whether the words of the completions are the lengths.
    words: bool,
    steps: Option<Vec<f64>>,
}

impl Columns {
    fn add(&mut self, slot: Slot) {
        let Slot {
            reading,
            values,
            fate,
            stray,
            masked,
            messages,
            ..
        } = slot;
        let leave_out = |notes: &mut Vec<Note>, why: String| {
            let field = reading.theirs.clone();
            notes.push(Note::LeftOut { field, why });
        };
        match fate {
            Fate::In => {}
            Fate::Silent => return,
            Fate::Out(_) if reading.role == Role::Completion && !self.words => return,
            Fate::Out(why) if reading.role == Role::Completion => {
                let field = reading.theirs;
                return self.notes.push(Note::NoLength { field, why });
            }
            Fate::Out(why) => return leave_out(&mut self.notes, why),
        }
        let values = match (reading.role, values) {
            (Role::Completion, Values::Responses(values)) => {
                if self.words {
                    self.notes.push(Note::LengthInWords {
                        field: reading.theirs,
                        messages,
                    });
                    self.with(|batch| batch.response("length", values));
                }
                return;
            }
            (Role::Step, Values::Responses(values)) => {
                self.steps = Some(values);
                return;
            }
            (_, Values::Responses(values)) => {
                return self.with(|batch| batch.response(reading.ours, values));
            }
            (_, Values::None) => return,
            (_, Values::F32(values)) => FloatBuffer::F32(values.into()),
            (_, Values::F64(values)) => FloatBuffer::F64(values.into()),
        };
        if !self.tokens {
            let why = "not every line says how many tokens its response has (`mask`, `length`)";
            return leave_out(&mut self.notes, why.to_string());
        }
        if let Some((count, line, token)) = stray {
            self.notes.push(Note::NotFinite {
                column: reading.ours.clone(),
                first: format!("line {line}, token {token}"),
                count,
            });
        }
        if let Some((responses, line, token)) = masked {
            self.notes.push(Note::MaskedReward {
                field: reading.theirs,
                responses,
                first: format!("line {line}, token {token}"),
            });
        }
        self.with(|batch| batch.token(reading.ours, TokenValues::Compact(values)));
    }

    fn with(&mut self, add: impl FnOnce(BatchBuilder) -> BatchBuilder) {
        self.batch = add(std::mem::take(&mut self.batch));
    }
}
