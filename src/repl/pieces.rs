//! Script text in pieces: names, numbers, texts, comments and signs, for colours, completion and saving.
//!
//! The engine's own reader gives up where the text is not right yet, and text that is being typed never is.

use std::ops::Range;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word of the language: `let`, `fn`, `if`.
    Keyword,
    /// A name.
    Name,
    /// A number.
    Number,
    /// A text in quotes, also one that is not closed yet.
    Text,
    /// A comment.
    Comment,
    /// Spaces and line breaks.
    Space,
    /// Any other sign, one letter each.
    Sign,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) range: Range<usize>,
}

const KEYWORDS: [&str; 26] = [
    "let", "const", "fn", "private", "if", "else", "switch", "for", "in", "while", "loop", "do",
    "until", "break", "continue", "return", "throw", "try", "catch", "import", "export", "as",
    "true", "false", "this", "is",
];

/// The pieces of a text; together they are all of it.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let run = |test: &dyn Fn(char) -> bool| rest.find(|c| !test(c)).unwrap_or(rest.len());
        let (kind, length) = if first.is_whitespace() {
            (Kind::Space, run(&char::is_whitespace))
        } else if rest.starts_with("//") {
            (Kind::Comment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Kind::Comment, block(rest).unwrap_or(rest.len()))
        } else if ['"', '`', '\''].contains(&first) {
            (Kind::Text, quoted(rest, first))
        } else if first.is_ascii_digit() {
            (Kind::Number, number(rest))
        } else if first.is_alphabetic() || first == '_' {
            let length = run(&|c| c.is_alphanumeric() || c == '_');
            match KEYWORDS.contains(&&rest[..length]) {
                true => (Kind::Keyword, length),
                false => (Kind::Name, length),
            }
        } else {
            (Kind::Sign, first.len_utf8())
        };
        let range = start..start + length;
        start = range.end;
        pieces.push(Piece { kind, range });
    }
    pieces
}

/// Whether the text ends in a comment or a text that may go over lines and has not been closed.
///
/// The engine takes such a comment for no text at all, and blames the beginning of such a text.
pub(super) fn is_open(text: &str) -> bool {
    let last = pieces(text).pop();
    last.is_some_and(|piece| {
        let part = &text[piece.range];
        match piece.kind {
            Kind::Comment => part.starts_with("/*") && block(part).is_none(),
            Kind::Text => part.starts_with('`') && !part[1..].ends_with('`'),
            _ => false,
        }
    })
}

/// Whether a bracket is open at the end, and all before it is as it must be: whatever else is wrong is told when the
/// bracket has been closed.
pub(super) fn has_open_bracket(text: &str) -> bool {
    let mut open = Vec::new();
    for piece in pieces(text) {
        let part = &text[piece.range];
        match (piece.kind, part) {
            (Kind::Sign, "(") => open.push(")"),
            (Kind::Sign, "[") => open.push("]"),
            (Kind::Sign, "{") => open.push("}"),
            (Kind::Sign, ")" | "]" | "}") if open.pop() != Some(part) => return false,
            // One that ends with its line, and not with its quote.
            (Kind::Text, _) if part.len() < 2 || !part.ends_with(&part[..1]) => return false,
            _ => {}
        }
    }
    !open.is_empty()
}

/// The bytes of a comment in strokes and stars at the start, which may have others in it; `None` where it has no end.
fn block(rest: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0);
    loop {
        let (open, close) = (rest[at..].find("/*"), rest[at..].find("*/")?);
        match open {
            Some(open) if open < close => (at, depth) = (at + open + 2, depth + 1),
            _ => (at, depth) = (at + close + 2, depth - 1),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The bytes of a text in quotes at the start. One that stands in single or double quotes ends with its line.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (place, letter) in rest.char_indices().skip(1) {
        if !escaped && letter == quote {
            return place + letter.len_utf8();
        }
        if letter == '\n' && quote != '`' && !escaped {
            return place;
        }
        escaped = letter == '\\' && !escaped;
    }
    rest.len()
}

/// The bytes of a number at the start: `1_000`, `1.5`, `1e-6`, but not the point of `1.max(2)`.
fn number(rest: &str) -> usize {
    // No more than can belong to it: the rest may be a whole script.
    let belongs = |c: &char| c.is_ascii_alphanumeric() || "_.+-".contains(*c);
    let letters: Vec<char> = rest.chars().take_while(belongs).collect();
    let mut length = 0;
    while let Some(&letter) = letters.get(length) {
        let next_is_digit = || letters.get(length + 1).is_some_and(char::is_ascii_digit);
        let after_e = length > 0 && letters[length - 1] == 'e';
        let belongs = letter.is_ascii_alphanumeric()
            || letter == '_'
            || (letter == '.' && next_is_digit())
            || ((letter == '-' || letter == '+') && after_e && next_is_digit());
        if !belongs {
            break;
        }
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        let is_space = |piece: &Piece| piece.kind == Kind::Space;
        let all = pieces(text).into_iter().filter(|piece| !is_space(piece));
        all.map(|piece| (piece.kind, &text[piece.range])).collect()
    }

    #[test]
    fn signs_in_texts_and_comments_are_not_signs() {
        assert_eq!(kinds("'`' 1")[0], (Kind::Text, "'`'"));
        assert_eq!(
            kinds("/* a /* b */ c */ 1")[0],
            (Kind::Comment, "/* a /* b */ c */")
        );
        assert!(is_open("/* a /* b */ c") && !is_open("/* a /* b */ c */"));
        assert!(!is_open("let c = '`'"));
        assert_eq!(kinds("\"open\n1").last(), Some(&(Kind::Number, "1")));
    }

    #[test]
    fn a_bracket_is_open_until_it_is_closed_by_its_own() {
        assert!(has_open_bracket("fn f(x) {\n  1 2\n"));
        assert!(has_open_bracket("f(\"}\", '}', `)`"));
        assert!(!has_open_bracket("f(]"));
        assert!(!has_open_bracket("f(\"not closed"));
        assert!(!has_open_bracket("f(x) { }"));
        assert!(!has_open_bracket("// {"));
    }

    #[test]
    fn text_is_taken_apart_and_nothing_is_lost() {
        let text = "let a_1 = 1e-6 + x.mean(\"gro\\\"up\"); // why\n1.max(2) \"open";
        let whole: String = pieces(text)
            .into_iter()
            .map(|piece| &text[piece.range])
            .collect();
        assert_eq!(whole, text);
        let kinds = kinds(text);
        assert_eq!(kinds[0], (Kind::Keyword, "let"));
        assert_eq!(kinds[1], (Kind::Name, "a_1"));
        assert!(kinds.contains(&(Kind::Number, "1e-6")));
        assert!(kinds.contains(&(Kind::Text, "\"gro\\\"up\"")));
        assert!(kinds.contains(&(Kind::Comment, "// why")));
        assert!(kinds.contains(&(Kind::Number, "1")));
        assert_eq!(kinds.last(), Some(&(Kind::Text, "\"open")));
    }
}
