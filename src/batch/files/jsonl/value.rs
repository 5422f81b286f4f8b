//! One value of a line, and the columns' values that it becomes one of.

use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::discriminant;
use std::sync::Arc;

use crate::batch::GroupId;
use crate::batch::column::Ragged;
use crate::batch::files::json::{Type, shorten, unescape};
use crate::batch::files::raw::{RawColumn, Values, of_numbers};
use crate::batch::files::words::{self, Tokenize};

/// One value of a line.
pub(super) struct Value<'a> {
    pub(super) kind: Type,
    pub(super) raw: &'a str,
    /// Of a number or a boolean.
    pub(super) number: f64,
    /// Of an array of nothing but numbers.
    pub(super) numbers: &'a [f64],
    /// What an array is that has something else in it.
    pub(super) mixed: Option<&'static str>,
}

impl Value<'_> {
    /// Adds it to its column, or says what it is where that holds something else.
    pub(super) fn give_to(
        &self,
        column: &mut RawColumn,
        known: &mut HashSet<Arc<str>>,
        tokenizer: Option<&dyn Tokenize>,
    ) -> Result<(), String> {
        if matches!(column.values, Values::None) {
            column.values = self.first(column.texts.is_some());
        }
        match &mut column.values {
            Values::Words { counts, messages } => {
                let words = words::count(self.kind, self.raw, tokenizer)?;
                // A line has far fewer than 2^53 words.
                counts.push(words.ok_or_else(|| self.describe())? as f64);
                *messages |= self.kind != Type::String;
            }
            Values::Ids { ids, are_strings } => {
                let id = self.id(known).ok_or_else(|| self.describe())?;
                let is_string = matches!(self.kind, Type::String | Type::Array);
                if !ids.is_empty() && *are_strings != is_string {
                    let before = if is_string { "a number" } else { "a string" };
                    let found = self.describe();
                    return Err(format!("{found} where the lines before have {before}"));
                }
                *are_strings = is_string;
                ids.push(id);
            }
            Values::Numbers(numbers) if self.is_number() => numbers.push(self.number),
            Values::Arrays(rows) if self.is_numbers() => match column.is_unread {
                false => rows.push(self.numbers.iter().copied()),
                true => rows.push_length(self.numbers.len()),
            },
            Values::Strings(_) if self.kind == Type::String => {}
            // The messages of a chat.
            Values::Strings(_) if column.texts.is_some() && self.mixed.is_some() => {}
            _ => return Err(self.describe()),
        }
        if let Some(texts) = &mut column.texts {
            match (self.text(), texts.last()) {
                (None, _) => column.texts = None,
                // A prompt comes once for each of its responses.
                (Some(text), Some(last)) if **last == *text => texts.push(last.clone()),
                (Some(text), _) => texts.push(text.into()),
            }
        }
        Ok(())
    }

    /// The values of a column of which this is the first.
    fn first(&self, is_text: bool) -> Values {
        match self.kind {
            Type::Number | Type::Bool | Type::Null => Values::Numbers(Vec::new()),
            Type::Array if self.mixed.is_none() => Values::Arrays(Ragged::new(true)),
            Type::String => Values::Strings(self.describe()),
            Type::Array if is_text && words::text_of_messages(self.raw).is_some() => {
                Values::Strings(self.describe())
            }
            _ => Values::None,
        }
    }

    fn is_number(&self) -> bool {
        // Null is a number where it gets here.
        matches!(self.kind, Type::Number | Type::Bool | Type::Null)
    }

    fn is_numbers(&self) -> bool {
        self.kind == Type::Array && self.mixed.is_none()
    }

    /// A string, or the messages of a chat.
    fn text(&self) -> Option<Cow<'_, str>> {
        match self.kind {
            // Half of a surrogate pair stays the escape that it is.
            Type::String => {
                let raw = between(self.raw);
                Some(unescape(raw).unwrap_or(raw.into()))
            }
            Type::Array => words::text_of_messages(self.raw).map(Cow::Owned),
            _ => None,
        }
    }

    /// A string, a chat or a whole number as a group's name. A string that comes again is held once; a number is exact
    /// however large: one beyond 64 bits is a name like any string.
    fn id(&self, known: &mut HashSet<Arc<str>>) -> Option<GroupId> {
        match self.kind {
            Type::String => {
                return Some(held(known, unescape(between(self.raw))?).into());
            }
            Type::Array => return Some(held(known, self.text()?).into()),
            Type::Number => {}
            _ => return None,
        }
        if let Ok(number) = self.raw.parse() {
            return Some(GroupId::Number(number));
        }
        let mut bytes = self.raw.bytes();
        if bytes.all(|byte| byte == b'-' || byte.is_ascii_digit()) {
            return Some(self.raw.into());
        }
        // pandas writes the whole numbers of a column with gaps as 7.0. Up to 2^53 they are still apart.
        let exact = self.number.fract() == 0.0 && self.number.abs() <= 9_007_199_254_740_992.0;
        exact.then_some(GroupId::Number(self.number as i64))
    }

    /// It in words.
    fn describe(&self) -> String {
        match (self.kind, self.mixed) {
            (Type::String, _) => format!("the string {}", shorten(self.raw, 40)),
            (Type::Array, Some(mixed)) => mixed.to_string(),
            (Type::Array, None) => of_numbers(self.numbers.len()),
            (Type::Object, _) => "an object".to_string(),
            _ => self.raw.to_string(),
        }
    }
}

impl Values {
    /// Whether both are of one kind.
    pub(super) fn are_as(&self, more: &Values) -> bool {
        match (self, more) {
            (
                Values::Ids { are_strings, .. },
                Values::Ids {
                    are_strings: more, ..
                },
            ) => are_strings == more,
            _ => discriminant(self) == discriminant(more),
        }
    }

    /// Adds the values of more responses, which are of the same kind.
    pub(super) fn append(&mut self, more: Values, known: &mut HashSet<Arc<str>>) {
        match (self, more) {
            (Values::Numbers(numbers), Values::Numbers(more)) => numbers.extend(more),
            (Values::Arrays(rows), Values::Arrays(more)) => rows.append(&more),
            (Values::Ids { ids, .. }, Values::Ids { ids: more, .. }) => {
                ids.extend(more.into_iter().map(|id| match id {
                    GroupId::String(name) => held(known, name).into(),
                    number => number,
                }));
            }
            (
                Values::Words { counts, messages },
                Values::Words {
                    counts: more,
                    messages: are,
                },
            ) => {
                counts.extend(more);
                *messages |= are;
            }
            _ => {}
        }
    }
}

/// The characters between the quotes of a string.
fn between(raw: &str) -> &str {
    &raw[1..raw.len() - 1]
}

/// A name, in the one place where it is held.
fn held<N: AsRef<str> + Into<Arc<str>>>(known: &mut HashSet<Arc<str>>, name: N) -> Arc<str> {
    known.get(name.as_ref()).cloned().unwrap_or_else(|| {
        let name: Arc<str> = name.into();
        known.insert(name.clone());
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::files::json::Cursor;

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        let id = |raw: &str| {
            let mut cursor = Cursor::new(raw);
            let value = Value {
                kind: cursor.value_type(),
                raw,
                number: cursor.scalar().unwrap_or(f64::NAN),
                numbers: &[],
                mixed: None,
            };
            value.id(&mut HashSet::new())
        };
        assert_eq!(id("9007199254740993"), Some(9007199254740993_i64.into()));
        assert_eq!(id("-3"), Some((-3).into()));
        assert_eq!(id("7.0"), Some(7.into()));
        let beyond = "18446744073709551617";
        assert_eq!(id(beyond), Some(beyond.into()));
        assert_eq!(id(r#""a\u00e9\"""#), Some("aé\"".into()));
        assert_eq!(id(r#""""#), Some("".into()));
        for wrong in [
            "0.5",
            "1e300",
            "true",
            "null",
            "[1]",
            "{}",
            "NaN",
            r#""\ud800""#,
        ] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }
}
