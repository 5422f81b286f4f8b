//! Selects the parts of a column's values that are kept in memory, and reads the texts of such a column.

use std::borrow::Cow;
use std::sync::Arc;

use super::cell::{Cell, JsonType};
use super::messages::{self, TextKind};
use super::schema::{PART, Reading, Role, Schema};
use super::words::{self, Tokenize};

/// Selects the parts of a column's values that are kept in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Keep {
    /// Whether integers are kept as names of groups.
    pub(super) ids: bool,
    /// Whether texts and the numbers of arrays are kept. Otherwise, only the lengths of arrays are kept.
    pub(super) values: bool,
    /// Whether null and a missing field count as values: NaN in a column of numbers, and an empty text in a column of
    /// completions or references.
    pub(super) nulls: bool,
    /// Whether the values are rewards, so that a column of nulls is a column of NaN.
    pub(super) scores: bool,
    /// Whether nothing says what the column means, so that it is left out if few responses have a value.
    pub(super) unknown: bool,
    /// Whether a string may hold a number, as it does for the step in the tables that TRL logs.
    pub(super) digits: bool,
    pub(super) kind: TextKind,
    /// Whether the words or tokens of each text are counted.
    pub(super) counts: bool,
    pub(super) tokenizer: Option<Arc<dyn Tokenize>>,
}

impl Keep {
    /// Returns which parts of a field's values are kept for all columns that are read from the field.
    pub(super) fn of(field: &str, schema: &Schema) -> Keep {
        let readings = schema.of(field);
        let any = |is: &dyn Fn(&Reading) -> bool| readings.iter().any(is);
        let has = |role: Role| any(&|one| one.role == role);
        let named = |names: &[&str]| any(&|one| names.contains(&&*one.ours));
        let is_read = |one: &Reading| schema.reads(&one.ours);
        let is_epoch = named(&["epoch"]);
        let is_reference = any(&Reading::is_reference);
        let is_text = has(Role::Completion) || is_reference;
        let is_compared = is_text && schema.references.is_some();
        let is_part = any(&|one| one.ours.starts_with(PART));
        let is_summand = schema.rewards.iter().any(|reward| reward == field);
        let scores = named(&["reward", "correct"]) || is_part || is_summand;
        Keep {
            ids: has(Role::Group),
            // Some columns are needed even if the recipe does not read them: completions and references may give the reward, the
            // names of trajectories determine the levels, and the correct responses may be derived from `token_reward`.
            values: any(&is_read)
                || has(Role::Group)
                || has(Role::Mask)
                || is_compared
                || named(&["trajectory", "token_reward"]),
            nulls: scores
                || has(Role::Step)
                || has(Role::Completion)
                || is_epoch
                || is_compared
                || any(&|one| one.role == Role::Any && is_read(one)),
            scores,
            unknown: !scores
                && !is_text
                && !is_epoch
                && !any(&|one| one.role != Role::Any || one.asked),
            digits: has(Role::Step),
            kind: if has(Role::Completion) {
                TextKind::Completion(schema.dump.is_some_and(|dump| dump.dialogue))
            } else if is_reference {
                TextKind::Reference
            } else {
                TextKind::Any
            },
            counts: schema.count_words && has(Role::Completion),
            tokenizer: schema.tokenizer.clone(),
        }
    }

    /// Returns the text of a value; the error describes a value that has no text.
    pub(super) fn read<'a>(&self, cell: &'a Cell) -> Result<Cow<'a, str>, String> {
        if let (Cell::Text(text), TextKind::Any) = (cell, self.kind) {
            return Ok(Cow::Borrowed(text));
        }
        match cell.json() {
            Cow::Borrowed(raw) => self.kind.read(raw),
            Cow::Owned(raw) => self.kind.read(&raw).map(|text| text.into_owned().into()),
        }
    }

    /// Adds a string or a chat: the text, the number of its words or tokens, both or neither, as this `Keep` selects.
    pub(super) fn text(
        &self,
        cell: &Cell,
        texts: &mut Vec<Arc<str>>,
        counts: &mut Vec<f64>,
    ) -> Result<(), String> {
        let is_string = cell.kind() == JsonType::String;
        let may_be_chat = || match cell {
            Cell::Json(raw) => messages::may_be_chat(&raw[1..]),
            Cell::Text(text) => messages::may_be_chat(text),
            _ => false,
        };
        let has_turns =
            matches!(self.kind, TextKind::Completion(is_dialogue) if is_dialogue || may_be_chat());
        if is_string && !self.values && !has_turns {
            // The words are counted without decoding the text, because decoding would take half of the time of reading the file.
            let words = match (&self.tokenizer, cell) {
                (None, Cell::Json(raw)) if self.counts => words::count_in_json(raw),
                (None, Cell::Text(text)) if self.counts => words::count(text, None).ok(),
                _ => None,
            };
            counts.extend(words.map(|words| words as f64));
            if words.is_some() || !self.counts {
                return Ok(());
            }
        }
        if let Cell::Json(raw) = cell
            && self.ids
            && is_string
            && raw.contains('\\')
            && serde_json::from_str::<String>(raw).is_err()
        {
            // The name is refused, because different names with half of a surrogate pair would become equal.
            let found = cell.describe();
            return Err(format!("{found}, which contains half of a surrogate pair"));
        }
        let raw;
        let text = if self.counts {
            raw = cell.json();
            let said = self.kind.said(&raw)?;
            let tokens = said
                .iter()
                .map(|text| words::count(text, self.tokenizer.as_deref()));
            // The conversion is exact, because a text has far fewer than 2^53 words.
            counts.push(tokens.sum::<Result<usize, String>>()? as f64);
            messages::answer(said)
        } else {
            let wrong = |found| match self.ids && cell.id().is_some() {
                true => of_other_kind(cell, "string"),
                false => found,
            };
            self.read(cell).map_err(wrong)?
        };
        if self.values {
            // A text that repeats the previous text shares its memory, because a prompt occurs once for each of its responses.
            let last = texts.last().filter(|last| ***last == *text).cloned();
            texts.push(last.unwrap_or_else(|| text.into()));
        }
        Ok(())
    }
}

/// Describes a value of another type than the earlier values.
pub(super) fn of_other_kind(cell: &Cell, kind: &str) -> String {
    format!("{}, but the earlier lines have a {kind}", cell.describe())
}
