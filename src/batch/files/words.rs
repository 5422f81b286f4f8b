//! How long a completion is, in words: one string, or the messages of a chat.

use serde_json::{Map, Value as Json};

use std::fmt;
use std::ops::Range;

use super::eight::{HIGH, LOW, before, beyond_ascii, eight, equal};
use super::json::{Type, unescape};

/// What makes tokens of a text.
pub trait Tokenize: fmt::Debug + Send + Sync {
    /// Its name in messages.
    fn name(&self) -> String;

    /// How many tokens a text has.
    ///
    /// # Errors
    /// Why it has none, such as a part for which there is no token.
    fn count(&self, text: &str) -> Result<usize, String>;

    /// The bytes of the text that each of its tokens stands for; none for a token that the tokenizer adds.
    ///
    /// # Errors
    /// As [`Tokenize::count`].
    fn spans(&self, text: &str) -> Result<Vec<Range<usize>>, String>;
}

/// The parts of a completion that are its tokens, or its words: where there are as many as tokens that count, or one less by a
/// tokenizer, as the token at which a response ended has no text.
pub fn spans(
    text: &str,
    length: usize,
    tokenizer: Option<&dyn Tokenize>,
) -> Option<Vec<Range<usize>>> {
    let by_tokenizer = tokenizer.and_then(|tokenizer| tokenizer.spans(text).ok());
    let by_tokenizer = by_tokenizer.map(|mut spans| {
        if spans.len() + 1 == length {
            spans.push(text.len()..text.len());
        }
        spans
    });
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let words = || {
        let words = text.split_whitespace();
        words
            .map(|word| start(word)..start(word) + word.len())
            .collect()
    };
    Some(by_tokenizer.unwrap_or_else(words)).filter(|spans: &Vec<_>| spans.len() == length)
}

/// The values that a completion may have, for messages.
pub(super) const EXPECTED: &str = "a string or a list of messages with `content`";

/// The words of a string or of a chat in JSON, or their tokens; `None` where it is something else, and an error where the
/// tokenizer refuses it.
pub(super) fn count(
    kind: Type,
    raw: &str,
    tokenizer: Option<&dyn Tokenize>,
) -> Result<Option<usize>, String> {
    let between = || &raw[1..raw.len() - 1];
    match (kind, tokenizer) {
        (Type::String, None) => Ok(Some(of_string(between()))),
        (Type::String, Some(tokenizer)) => {
            let text = unescape(between());
            text.map(|text| tokenizer.count(&text)).transpose()
        }
        _ => of_messages(raw, tokenizer),
    }
}

/// The words in all messages of a chat, as TRL's conversational format has them, or their tokens.
fn of_messages(raw: &str, tokenizer: Option<&dyn Tokenize>) -> Result<Option<usize>, String> {
    let Ok(messages) = serde_json::from_str::<Vec<Map<String, Json>>>(raw) else {
        return Ok(None);
    };
    let count = |text: &str| match tokenizer {
        Some(tokenizer) => tokenizer.count(text),
        None => Ok(text.split_whitespace().count()),
    };
    let mut words = 0;
    for message in &messages {
        words += match message.get("content") {
            Some(Json::String(text)) => count(text)?,
            // A message may be a call of a tool alone.
            Some(Json::Null) => 0,
            // Some chats hold a message in parts, of which those of text have a `text`.
            Some(Json::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
                texts.map(count).sum::<Result<usize, String>>()?
            }
            _ => return Ok(None),
        };
    }
    Ok(Some(words))
}

/// The messages of a chat as one text, each after its role where there are several; as they stand where there is more to
/// them than roles and texts.
pub(super) fn text_of_messages(raw: &str) -> Option<String> {
    let messages: Vec<Map<String, Json>> = serde_json::from_str(raw).ok()?;
    let text = |message: &Map<String, Json>| -> Option<String> {
        let content = message.get("content")?.as_str()?;
        match message.get("role") {
            // Rows of a table have null for what other messages have.
            _ if message.values().filter(|value| !value.is_null()).count() > 2 => None,
            Some(role) if messages.len() > 1 => Some(format!("{}: {content}", role.as_str()?)),
            _ => Some(content.to_string()),
        }
    };
    let texts: Option<Vec<String>> = messages.iter().map(text).collect();
    let texts = texts.map_or(raw.to_string(), |texts| texts.join("\n"));
    (!messages.is_empty()).then_some(texts)
}

/// The number of words, separated by white space, in a string as it stands between its quotes.
fn of_string(raw: &str) -> usize {
    let bytes = raw.as_bytes();
    let (mut at, mut count, mut inside) = (0, 0, false);
    while at < bytes.len() {
        // JSON writes all white space of ASCII but the space as escapes.
        let word = eight(&bytes[at..]);
        let plain = before(equal(word, b'\\') | beyond_ascii(word)).min(bytes.len() - at);
        // A word ends at each space that something else stands before.
        let spaces = spaces(word) & u64::MAX.checked_shr(64 - 8 * plain as u32).unwrap_or(0);
        let ends = spaces & !(spaces << 8 | u64::from(!inside) << 7);
        count += ends.count_ones() as usize;
        if plain > 0 {
            inside = spaces >> (8 * plain - 1) == 0;
        }
        at += plain;
        let (space, length) = match bytes.get(at) {
            Some(b'\\') => escape(&bytes[at + 1..]),
            Some(0x80..) => {
                let letter = raw[at..].chars().next().unwrap_or_default();
                (letter.is_whitespace(), letter.len_utf8())
            }
            _ => continue,
        };
        count += usize::from(inside & space);
        inside = !space;
        at += length;
    }
    count + usize::from(inside)
}

/// The highest bit of each byte that is a space, in eight bytes of ASCII.
fn spaces(word: u64) -> u64 {
    let other = word ^ (LOW * u64::from(b' '));
    // No byte of ASCII carries over into the next one.
    !other.wrapping_add(LOW * 0x7f) & HIGH
}

/// Whether an escape, of which `rest` is what follows the backslash, is white space, and how many bytes it has.
fn escape(rest: &[u8]) -> (bool, usize) {
    match rest {
        [b'n' | b't' | b'r' | b'f', ..] => (true, 2),
        [b'u', a, b, c, d, ..] => {
            let digits = [a, b, c, d]
                .into_iter()
                .map(|&digit| char::from(digit).to_digit(16));
            let code = digits.fold(0, |code, digit| 16 * code + digit.unwrap_or_default());
            let letter = char::from_u32(code);
            (letter.is_some_and(char::is_whitespace), 6)
        }
        _ => (false, 2),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each letter is a token.
    #[derive(Debug)]
    struct Letters;

    impl Tokenize for Letters {
        fn name(&self) -> String {
            "letters".to_string()
        }

        fn count(&self, text: &str) -> Result<usize, String> {
            Ok(text.chars().count())
        }

        fn spans(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
            let starts = text.char_indices();
            Ok(starts.map(|(at, one)| at..at + one.len_utf8()).collect())
        }
    }

    #[test]
    fn tokens_have_their_parts_of_a_text_where_their_number_is_right() {
        assert_eq!(spans("a bc", 2, None), Some(vec![0..1, 2..4]));
        assert_eq!(spans("a bc", 3, None), None);
        assert_eq!(spans("aé", 2, Some(&Letters)), Some(vec![0..1, 1..3]));
        // The end of the response.
        assert_eq!(spans("aé", 3, Some(&Letters)), Some(vec![0..1, 1..3, 3..3]));
        assert_eq!(spans("aé", 4, Some(&Letters)), None);
    }

    #[test]
    fn words_are_counted_through_escapes() {
        assert_eq!(of_string(r"one two\nthree\u0020four  five\u00e9 "), 5);
        assert_eq!(of_string(r"\n"), 0);
        assert_eq!(of_string(""), 0);
        assert_eq!(of_string("\u{3000}eins\u{a0}zwei ünf\u{2003}"), 3);
        assert_eq!(of_string(r"a\\nb"), 1, "a backslash, then an n");
        assert_eq!(
            of_string(r"a\ud800b"),
            1,
            "half a surrogate pair is no white space"
        );
    }

    proptest! {
        #[test]
        fn words_of_json_are_those_of_its_string(text in r#"([ a-c\t\n\\"\u{b}é\u{85}\u{2003}]|[a-z ]{8}){0,24}"#) {
            let json = serde_json::to_string(&text).unwrap();
            let raw = &json[1..json.len() - 1];
            prop_assert_eq!(of_string(raw), text.split_whitespace().count(), "{}", json);
        }
    }

    #[test]
    fn messages_are_counted_by_their_content() {
        assert_eq!(
            of_messages(
                r#"[{"role":"a","content":"one\ntwo"},{"content":"x"}]"#,
                None
            )
            .unwrap(),
            Some(3)
        );
        assert_eq!(
            of_messages(r#"[{"content":null,"tool_calls":[1]}]"#, None).unwrap(),
            Some(0)
        );
        assert_eq!(
            of_messages(
                r#"[{"content":[{"type":"text","text":"a b"},{"type":"image"}]}]"#,
                None
            )
            .unwrap(),
            Some(2)
        );
        for other in [
            r#"[{"text":"a"}]"#,
            r#"[{"content":1}]"#,
            r#"["a b"]"#,
            "{}",
        ] {
            assert_eq!(of_messages(other, None).unwrap(), None, "{other}");
        }
    }
}
