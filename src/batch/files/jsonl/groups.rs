//! The group of each response, as JSON says it: a text or a whole number, one of the two throughout a file.

use std::collections::HashSet;
use std::sync::Arc;

use super::json::Value;
use crate::batch::GroupId;

pub(super) const EXPECTED: &str = "a text or a whole number that names the prompt";

/// The groups so far. A text that comes again, which may be a whole prompt, is held once.
#[derive(Debug, Default)]
pub(super) struct Groups {
    ids: Vec<GroupId>,
    texts: HashSet<Arc<str>>,
    text: Option<bool>,
}

impl Groups {
    /// Adds a response's group, or says what was found instead.
    pub(super) fn add(&mut self, raw: &str, value: &Value) -> Result<(), String> {
        let id = match value {
            Value::Text => self.text(raw),
            Value::Number(value) => whole(raw, *value),
            _ => None,
        };
        let id = id.ok_or_else(|| value.describe(raw))?;
        let text = *value == Value::Text;
        if *self.text.get_or_insert(text) != text {
            return Err(match text {
                true => format!(
                    "{} where the lines before have a number",
                    value.describe(raw)
                ),
                false => format!("the number {raw} where the lines before have a text"),
            });
        }
        self.ids.push(id);
        Ok(())
    }

    /// `None` where an escape is half of a surrogate pair.
    fn text(&mut self, raw: &str) -> Option<GroupId> {
        let decoded;
        let text = if raw.contains('\\') {
            decoded = serde_json::from_str::<String>(raw).ok()?;
            &decoded
        } else {
            raw.get(1..raw.len() - 1)?
        };
        if let Some(known) = self.texts.get(text) {
            return Some(GroupId::Text(known.clone()));
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        Some(GroupId::Text(text))
    }

    /// The groups, those of different steps apart.
    pub(super) fn split(self, steps: &[f64]) -> Vec<GroupId> {
        let ids = self.ids.into_iter().zip(steps);
        ids.map(|(id, step)| match id {
            GroupId::Number(number) => format!("step {step}, {number}").into(),
            GroupId::Text(text) => format!("step {step}, {text}").into(),
        })
        .collect()
    }

    pub(super) fn finish(self) -> Vec<GroupId> {
        self.ids
    }
}

/// A whole number, exact however large: one beyond 64 bits is a name like any text.
fn whole(raw: &str, value: f64) -> Option<GroupId> {
    if let Ok(number) = raw.parse() {
        return Some(GroupId::Number(number));
    }
    if raw
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_digit())
    {
        return Some(raw.into());
    }
    // pandas writes the whole numbers of a column with gaps as 7.0. Up to 2^53 they are still apart.
    let exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
    exact.then_some(GroupId::Number(value as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::files::jsonl::json::Line;

    fn id(raw: &str) -> Result<GroupId, String> {
        let mut line = Line::default();
        line.scan(&format!("{{\"group\":{raw}}}")).unwrap();
        let mut groups = Groups::default();
        groups.add(raw, &line.fields[0].value)?;
        Ok(groups.finish().remove(0))
    }

    #[test]
    fn ids_are_exact_and_nothing_else_is_one() {
        assert_eq!(id("9007199254740993"), Ok(9007199254740993_i64.into()));
        assert_eq!(id("-3"), Ok((-3).into()));
        assert_eq!(id("7.0"), Ok(7.into()));
        assert_eq!(
            id("18446744073709551617"),
            Ok("18446744073709551617".into())
        );
        assert_eq!(id(r#""a\u00e9\"""#), Ok("aé\"".into()));
        assert_eq!(id(r#""""#), Ok("".into()));
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
            assert!(id(wrong).is_err(), "{wrong}");
        }
    }
}
