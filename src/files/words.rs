//! Counts the words or tokens of a text, and finds their positions in the text.

use std::fmt;
use std::ops::Range;

/// A tokenizer.
pub trait Tokenize: fmt::Debug + Send + Sync {
    /// Returns the tokenizer's name, which messages show.
    fn name(&self) -> String;

    /// Returns the number of tokens in a text.
    ///
    /// # Errors
    /// The text cannot be tokenized, for example because there is no token for a part of it.
    fn count(&self, text: &str) -> Result<usize, String>;

    /// Returns the byte range of each token in the text. The range is empty if the tokenizer added the token.
    ///
    /// # Errors
    /// The errors of [`Tokenize::count`].
    fn spans(&self, text: &str) -> Result<Vec<Range<usize>>, String>;
}

/// Returns the byte ranges of a completion's tokens or, if there is no tokenizer or it fails, of its words. Returns `None` if
/// their number is not `length`; a tokenizer may find one token fewer, because the token that ended the response has no text.
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

/// Returns the number of tokens in a text or, if there is no tokenizer, the number of words.
pub(super) fn count(text: &str, tokenizer: Option<&dyn Tokenize>) -> Result<usize, String> {
    if let Some(tokenizer) = tokenizer {
        return tokenizer.count(text);
    }
    if !text.is_ascii() {
        return Ok(text.split_whitespace().count());
    }
    Ok(starts(text.as_bytes(), true))
}

/// Returns the number of words in a JSON string without decoding it; `None` if it is not ASCII or has `\u` escapes.
pub(super) fn count_in_json(raw: &str) -> Option<usize> {
    let mut rest = raw.get(1..raw.len() - 1).filter(|text| text.is_ascii())?;
    let (mut words, mut after_space) = (0, true);
    while let Some(at) = rest.find('\\') {
        words += starts(&rest.as_bytes()[..at], after_space);
        after_space = match at.checked_sub(1) {
            Some(last) => is_space(rest.as_bytes()[last]),
            None => after_space,
        };
        let is_break = match rest.as_bytes().get(at + 1)? {
            b'n' | b't' | b'r' | b'f' => true,
            b'"' | b'\\' | b'/' | b'b' => false,
            _ => return None,
        };
        words += usize::from(after_space && !is_break);
        after_space = is_break;
        rest = &rest[at + 2..];
    }
    Some(words + starts(rest.as_bytes(), after_space))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the number of words that start in an ASCII text. A word starts at each byte that is not a space and follows a space.
fn starts(text: &[u8], after_space: bool) -> usize {
    let pairs = text.iter().zip(text.iter().skip(1));
    let starts = pairs.map(|(&one, &next)| usize::from(is_space(one) & !is_space(next)));
    let is_first = after_space && text.first().is_some_and(|&first| !is_space(first));
    starts.sum::<usize>() + usize::from(is_first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A tokenizer for which each letter is a token.
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
        // The last part is empty, because it is the token that ended the response.
        assert_eq!(spans("aé", 3, Some(&Letters)), Some(vec![0..1, 1..3, 3..3]));
        assert_eq!(spans("aé", 4, Some(&Letters)), None);
    }

    #[test]
    fn words_in_json_need_no_text_unless_it_has_other_letters() {
        for (raw, words) in [
            (r#""""#, Some(0)),
            (r#"" a\nb \\ c""#, Some(4)),
            (r#""\n\n""#, Some(0)),
            (r#""a\\\nb\"""#, Some(2)),
            (r#""a\u0020b""#, None),
            (r#""é""#, None),
        ] {
            assert_eq!(count_in_json(raw), words, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn words_are_those_between_white_space(text in r"([ a-c\t\n\u{b}\u{c}\r\u{1c}é\u{85}\u{2003}]|[a-z ]{8}){0,24}") {
            prop_assert_eq!(count(&text, None), Ok(text.split_whitespace().count()));
            let ascii = text.replace(|letter: char| !letter.is_ascii(), "");
            prop_assert_eq!(count(&ascii, None), Ok(ascii.split_whitespace().count()));
        }

        #[test]
        fn words_in_json_are_those_of_its_text(text in r#"([ ab"\\\n\t/\u{b}\u{1c}]|[a-z ]{8}){0,24}"#) {
            let raw = serde_json::to_string(&text).unwrap();
            let words = text.split_whitespace().count();
            prop_assert_eq!(count_in_json(&raw).unwrap_or(words), words, "{}", raw);
            prop_assert_eq!(count_in_json(&raw).is_none(), raw.contains("\\u00"), "{}", raw);
        }
    }
}
