//! Reads lists and dicts that Python printed, as pandas writes them to CSV, and `json.dumps(.., default=str)` to JSON.

/// Returns a printed list or dict as JSON; `None` if it has other values than texts, numbers, lists, dicts, `True`, `False` and
/// `None`.
pub(super) fn json(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let word = rest
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(rest.len());
        let (taken, length) = match &rest[..word] {
            "" if matches!(letter, '\'' | '"') => string(rest, letter)?,
            "" => (letter.to_string(), letter.len_utf8()),
            "None" => ("null".to_string(), word),
            "True" | "False" => (rest[..word].to_lowercase(), word),
            _ => return None,
        };
        json += &taken;
        rest = &rest[length..];
    }
    Some(json)
}

/// Returns the string at the beginning of a text as JSON, and its length in the text.
fn string(text: &str, quote: char) -> Option<(String, usize)> {
    let mut json = "\"".to_string();
    let mut letters = text.char_indices().skip(1);
    loop {
        let (at, letter) = letters.next()?;
        match letter {
            _ if letter == quote => return Some((json + "\"", at + 1)),
            '"' => json += "\\\"",
            '\\' => match letters.next()?.1 {
                '\'' => json.push('\''),
                // Python writes the byte of a control character.
                'x' => json += "\\u00",
                escaped => json.extend(['\\', escaped]),
            },
            _ => json.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_python_prints_is_json() {
        for (text, expected) in [
            (
                r"[{'a': None, 'b': True}]",
                Some(r#"[{"a": null, "b": true}]"#),
            ),
            (
                r#"{'a': "it's", 'b': 'a "b"'}"#,
                Some(r#"{"a": "it's", "b": "a \"b\""}"#),
            ),
            (
                r"['a\\boxed{1}\n\x1b', 'it\'s é', -1.5]",
                Some(r#"["a\\boxed{1}\n\u001b", "it's é", -1.5]"#),
            ),
            ("[array([1])]", None),
            ("['a", None),
        ] {
            assert_eq!(super::json(text).as_deref(), expected, "{text}");
        }
    }
}
