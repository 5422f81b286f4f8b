//! How long a completion is, in words: one string, or the messages of a chat.

use serde_json::{Map, Value as Json};

/// The values that a completion may have, for messages.
pub(super) const EXPECTED: &str = "a string or a list of messages with `content`";

/// The words in all messages of a chat, as TRL's conversational format has them.
pub(super) fn of_messages(raw: &str) -> Option<usize> {
    let messages: Vec<Map<String, Json>> = serde_json::from_str(raw).ok()?;
    let mut words = 0;
    for message in &messages {
        words += match message.get("content")? {
            Json::String(text) => text.split_whitespace().count(),
            // A message may be a call of a tool alone.
            Json::Null => 0,
            // Some chats hold a message in parts, of which those of text have a `text`.
            Json::Array(parts) => parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .map(|text| text.split_whitespace().count())
                .sum(),
            _ => return None,
        };
    }
    Some(words)
}

/// The number of words, separated by white space, in a string as it stands between its quotes.
pub(super) fn of_string(raw: &str) -> usize {
    let mut count = 0;
    let mut inside = false;
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        let space = match letter {
            '\\' => match letters.next() {
                Some('n' | 't' | 'r' | 'f') => true,
                Some('u') => {
                    let code = letters.by_ref().take(4).fold(0, |code, digit| {
                        code * 16 + digit.to_digit(16).unwrap_or_default()
                    });
                    char::from_u32(code).is_some_and(char::is_whitespace)
                }
                _ => false,
            },
            letter => letter.is_whitespace(),
        };
        count += usize::from(inside && space);
        inside = !space;
    }
    count + usize::from(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_through_escapes() {
        assert_eq!(of_string(r"one two\nthree\u0020four  five\u00e9 "), 5);
        assert_eq!(of_string(r"\n"), 0);
        assert_eq!(of_string(""), 0);
        assert_eq!(of_string(r"a\\nb"), 1, "a backslash, then an n");
        assert_eq!(
            of_string(r"a\ud800b"),
            1,
            "half a surrogate pair is no white space"
        );
    }

    #[test]
    fn messages_are_counted_by_their_content() {
        assert_eq!(
            of_messages(r#"[{"role":"a","content":"one\ntwo"},{"content":"x"}]"#),
            Some(3)
        );
        assert_eq!(
            of_messages(r#"[{"content":null,"tool_calls":[1]}]"#),
            Some(0)
        );
        assert_eq!(
            of_messages(r#"[{"content":[{"type":"text","text":"a b"},{"type":"image"}]}]"#),
            Some(2)
        );
        for other in [
            r#"[{"text":"a"}]"#,
            r#"[{"content":1}]"#,
            r#"["a b"]"#,
            "{}",
        ] {
            assert_eq!(of_messages(other), None, "{other}");
        }
    }
}
