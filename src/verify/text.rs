//! Answers that are words: how two of them are the same, and the letters of choices.

use super::lexeme::is_name;

/// Letters without their accents, and the marks that make them.
fn plain(letter: char) -> Option<char> {
    Some(match letter {
        '\u{300}'..='\u{36f}' => return None,
        'à'..='å' => 'a',
        'ç' => 'c',
        'è'..='ë' => 'e',
        'ì'..='ï' => 'i',
        'ñ' => 'n',
        'ò'..='ö' => 'o',
        'ù'..='ü' => 'u',
        letter => letter,
    })
}

/// A cleaned text such that equal ones say the same: case, articles, blanks, fonts and marks between words do not count.
pub(super) fn folded(text: &str) -> String {
    let text = text.replace("\\text", "").to_lowercase();
    let text = text.replace(['{', '}', '¤'], "");
    let is_one = text.split_whitespace().nth(1).is_none();
    let is_article = |word: &&str| ["a", "an", "the"].contains(word);
    let words = text
        .split_whitespace()
        .filter(|word| is_one || !is_article(word));
    let mut out = String::with_capacity(text.len());
    for word in words {
        let letters: Vec<char> = word.chars().filter_map(plain).collect();
        for (index, &letter) in letters.iter().enumerate() {
            // The point of a number stays, that of `a.m.` goes.
            let before = index.checked_sub(1).map(|before| letters[before]);
            let in_number = before.is_some_and(|c| c.is_ascii_digit())
                && letters.get(index + 1).is_some_and(char::is_ascii_digit);
            if !matches!(letter, '.' | ',') || in_number {
                out.push(letter);
            }
        }
    }
    out
}

/// The letter of a choice in a cleaned text, such as that of `B`, `(B)`, `B. 42` and `Option B`.
pub(super) fn choice(text: &str) -> Option<char> {
    let text = text.replace("\\text", "").replace(['{', '}'], "");
    let mut text = text.trim();
    for word in ["option", "choice", "answer"] {
        let head = text
            .get(..word.len())
            .filter(|head| head.eq_ignore_ascii_case(word));
        if head.is_some() {
            text = text[word.len()..].trim_start();
        }
    }
    let inside = text.strip_prefix('(');
    let rest = inside.unwrap_or(text);
    let letter = rest.chars().next().filter(char::is_ascii_alphabetic)?;
    let rest = &rest[1..];
    let rest = match inside {
        Some(_) => rest.trim_start().strip_prefix(')')?,
        None if rest.trim().is_empty() => return letter.is_ascii_uppercase().then_some(letter),
        None => rest.strip_prefix([')', '.', ':'])?,
    };
    let is_behind = rest.is_empty() || rest.starts_with([' ', '.', ',', ':']);
    let rest = rest.trim_start_matches([' ', '.', ',', ':']);
    let starts_list = ["and ", "or "].iter().any(|word| rest.starts_with(word));
    let is_another = rest.contains('(') && rest.contains(')') && rest.len() < 8;
    let is_bare = rest.len() == 1 && rest.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_one = is_behind && !starts_list && !is_another && !is_bare;
    is_one.then_some(letter.to_ascii_uppercase())
}

/// Letters alone, with a word among them, are words: `odd` is no product, `sin x` is a function.
pub(super) fn is_words(source: &str) -> bool {
    let text = source.replace("\\text", " ").replace(['{', '}'], " ");
    let known =
        |word: &str| ["and", "or"].contains(&word) || is_name(word) || word.chars().count() < 2;
    text.chars()
        .all(|c| c.is_alphabetic() || c.is_whitespace() || c == ',')
        && !text.split([' ', ',', '\n', '\t']).all(known)
}

/// A time or a ratio: `3:00`, `1 : 2 : 3`, `7:45 a.m.`
pub(super) fn is_ratio(text: &str) -> bool {
    let text = folded(text);
    let text = text.trim_end_matches("am").trim_end_matches("pm");
    let mut parts = text.split(':');
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.contains(':') && parts.all(is_part)
}
