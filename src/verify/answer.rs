//! Which text of a completion is its answer.

use super::clean::{cleaned, without_stars};
use super::lexeme::is_name;
use super::read::read;
use super::text;

/// The answer of a text and how it was found.
pub(super) enum Found {
    /// Behind a mark: a box, `####`, `answer is`.
    Marked(String),
    /// A mark that says nothing: an empty box or one that is never closed, thoughts without an end.
    Nothing,
    /// There is no mark, and this is the text without its thoughts.
    Unmarked(String),
}

/// The text that the marks of a completion point at.
pub(super) fn marked(source: &str) -> Found {
    let text = match source.rsplit_once("</think>") {
        Some((_, text)) => text,
        None if source.contains("<think>") => return Found::Nothing,
        None => source,
    };
    match boxed(text) {
        Boxed::Open => return Found::Nothing,
        Boxed::Some(answer) => return Found::Marked(answer),
        Boxed::None => {}
    }
    if let Some((_, tail)) = text.rsplit_once("####") {
        let line = tail.lines().next().unwrap_or_default().trim();
        if !line.is_empty() {
            return Found::Marked(line.to_string());
        }
    }
    let plain = without_annotations(&without_stars(end_of(text)));
    match behind_phrase(&plain) {
        Some(answer) => Found::Marked(answer),
        None => Found::Unmarked(plain.trim().to_string()),
    }
}

enum Boxed {
    Some(String),
    /// Empty, or never closed.
    Open,
    None,
}

/// Where answers without a box are looked for: nobody writes more behind one.
const END: usize = 20_000;

fn end_of(text: &str) -> &str {
    let from = text.len().saturating_sub(END);
    let from = (from..text.len()).find(|&at| text.is_char_boundary(at));
    &text[from.unwrap_or(0)..]
}

/// The last box, and those that it is joined to by a comma, `and` or `or`.
fn boxed(text: &str) -> Boxed {
    let mut boxes: Vec<&str> = Vec::new();
    let mut from = 0;
    let mut last_end = 0;
    while let Some(at) = text[from..].find("box") {
        let found = from + at;
        from = found + 1;
        let mut names = ["\\boxed", "\\fbox"].into_iter();
        let Some((start, name)) = names.find_map(|name| {
            let start = found.checked_sub(name.find("box")?)?;
            text.get(start..)?
                .starts_with(name)
                .then_some((start, name))
        }) else {
            continue;
        };
        let behind = text[start + name.len()..].trim_start();
        let open = text.len() - behind.len();
        let Some(inside) = behind.strip_prefix('{').and_then(|_| closed(&text[open..])) else {
            return Boxed::Open;
        };
        if boxes.is_empty() || !is_joint(&text[last_end..start]) {
            boxes.clear();
        }
        boxes.push(inside);
        from = open + inside.len() + 2;
        last_end = from;
    }
    if boxes.is_empty() {
        return Boxed::None;
    }
    if boxes.iter().any(|inside| inside.trim().is_empty()) {
        return Boxed::Open;
    }
    Boxed::Some(boxes.join(", "))
}

/// The inside of the brace that a text begins with.
fn closed(text: &str) -> Option<&str> {
    let mut depth = 0usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[1..at]);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether what stands between two boxes makes a list of them.
fn is_joint(between: &str) -> bool {
    if between.len() > 40 || between.is_empty() {
        return false;
    }
    let between = between
        .replace("\\text", "")
        .replace(['$', '{', '}', '\\', '(', ')'], " ");
    let words: Vec<&str> = between.split_whitespace().collect();
    matches!(
        words[..],
        [","] | ["and"] | ["or"] | [",", "and"] | [",", "or"]
    )
}

/// GSM8K's `<<2+3=5>>` say again what stands around them.
fn without_annotations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("<<") {
        let Some(end) = rest[at..].find(">>") else {
            break;
        };
        out.push_str(&rest[..at]);
        rest = &rest[at + end + 2..];
    }
    out + rest
}

/// What stands behind the last `answer is` and its like.
fn behind_phrase(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let phrases = ["answer is", "answer:", "option is"];
    let last = phrases
        .iter()
        .filter_map(|phrase| Some(lower.rfind(phrase)? + phrase.len()));
    let at_line = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    let own = text
        .match_indices("A:")
        .map(|(at, _)| at)
        .filter(at_line)
        .last();
    let at = last.chain(own.map(|at| at + 2)).max()?;
    let tail = text[at..].trim_start_matches([':', ' ', '*', '\n', '\t']);
    if let Some((_, formula, _)) = formulas(tail)
        .into_iter()
        .next()
        .filter(|(at, ..)| *at == 0)
    {
        return Some(formula.to_string()).filter(|formula| !formula.trim().is_empty());
    }
    let sentence = sentence(tail);
    if sentence.is_empty() {
        return None;
    }
    let is_readable = |text: &str| read(&cleaned(text)).is_some();
    if is_readable(sentence) {
        return Some(sentence.to_string());
    }
    if let Some(choice) = text::choice(&cleaned(sentence)) {
        return Some(choice.to_string());
    }
    // `5, since 25 = 5 * 5`
    let mut clauses = sentence.split([',', ';', '(']);
    let clause = clauses
        .find(|clause| !clause.is_empty())
        .unwrap_or(sentence);
    let clause = clause.split(" because ").next().unwrap_or(clause).trim();
    let is_number = clause.len() < sentence.len() && is_readable(clause);
    Some(if is_number { clause } else { sentence }.to_string())
}

/// Up to the end of the line or of the sentence.
fn sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    let ends = line.match_indices(['.', '!', '?']).map(|(at, _)| at);
    let is_end = |at: &usize| {
        let before = line[..*at]
            .rsplit(|c: char| c.is_whitespace())
            .next()
            .unwrap_or_default();
        let is_short = before.len() == 1 && before.bytes().all(|b| b.is_ascii_lowercase())
            || before.contains('.');
        line[at + 1..]
            .chars()
            .next()
            .is_none_or(char::is_whitespace)
            && !is_short
    };
    let end = ends
        .filter(|at| line.as_bytes()[*at] != b'!')
        .find(is_end)
        .unwrap_or(line.len());
    line[..end].trim()
}

/// The formulas of a text: where each begins, its inside, and where it ends.
fn formulas(text: &str) -> Vec<(usize, &str, usize)> {
    const MARKS: [(&str, &str); 4] = [("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")];
    let (mut found, mut at) = (Vec::new(), 0);
    // What nothing closes here is closed nowhere further on.
    let mut can_close = [true; 4];
    while let Some(next) = text[at..].find(['$', '\\']) {
        let start = at + next;
        let rest = &text[start..];
        let Some(mark) = MARKS.iter().position(|(open, _)| rest.starts_with(open)) else {
            at = start + 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let (open, close) = MARKS[mark];
        at = start + open.len();
        let inside = &text[at..];
        let end = can_close[mark].then(|| inside.find(close)).flatten();
        can_close[mark] = end.is_some();
        if let Some(end) = end.filter(|end| open != "$" || is_formula(inside, *end)) {
            at += end + close.len();
            found.push((start, &inside[..end], at));
        }
    }
    found
}

/// Money is no formula: `$5 and that is $7`.
fn is_formula(inside: &str, end: usize) -> bool {
    let formula = &inside[..end];
    let is_tight = !formula.starts_with(' ') && !formula.ends_with(' ');
    let behind = inside[end + 1..].chars().next();
    let is_money = formula.starts_with(|c: char| c.is_ascii_digit())
        && behind.is_some_and(|c| c.is_ascii_digit());
    (is_tight || !formula.starts_with(|c: char| c.is_ascii_digit()))
        && !is_money
        && !formula.contains("\n\n")
}

/// Whether a text without a mark is meant as a whole: one line that is mathematics, well written or not.
pub(super) fn is_whole(text: &str, clean: &str) -> bool {
    if text.lines().count() != 1 {
        return false;
    }
    if read(clean).is_some() || text::is_ratio(clean) || text::choice(clean).is_some() {
        return true;
    }
    let plain = text.replace("\\text", "");
    let words = plain.split(|c: char| c.is_whitespace() || c == '$');
    let is_word = |word: &&str| {
        let word = word.trim_end_matches([',', '.', ':', ';', '?', '!']);
        word.chars().count() > 1 && word.chars().all(char::is_alphabetic)
    };
    let has_formula = !formulas(text).is_empty();
    text.contains(['\\', '^', '_', '{', '}', '=', '<', '>', '('])
        && words.filter(is_word).count() < 2
        && !has_formula
}

/// The relation behind the word that begins a line: `Therefore x = 5`.
pub(super) fn behind_word(text: &str) -> Option<&str> {
    let (word, rest) = text.split_once(' ')?;
    let word = word.trim_end_matches(',');
    let is_capital = word.starts_with(char::is_uppercase);
    let is_word = word.chars().count() > 1 && word.chars().skip(1).all(char::is_lowercase);
    let is_read = || !is_name(&word.to_lowercase()) && read(&cleaned(rest)).is_some();
    (is_capital && is_word && rest.contains('=') && is_read()).then_some(rest)
}

/// The last formula of a text, or the last number outside of one, whichever ends later.
pub(super) fn last_of(text: &str) -> Option<String> {
    let formula = formulas(text)
        .into_iter()
        .rfind(|(_, inside, _)| !inside.trim().is_empty());
    let number = last_number(&text[formula.map_or(0, |(.., end)| end)..]);
    number
        .or_else(|| formula.map(|(_, inside, _)| inside))
        .map(str::to_string)
}

/// The last number of a text with its sign, its fraction and its percent sign. Digits behind a letter are none.
fn last_number(text: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '/' | '\u{2044}');
    let mut end = text.len();
    loop {
        let stop = text[..end].rfind(|c: char| c.is_ascii_digit())? + 1;
        let start = text[..stop].rfind(|c: char| !is_part(c));
        let start = start.map_or(0, |at| {
            at + text[at..].chars().next().map_or(1, char::len_utf8)
        });
        let before = text[..start].chars().next_back();
        if before.is_some_and(char::is_alphabetic) {
            end = start;
            continue;
        }
        let start = start
            + text[start..stop]
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(0);
        let sign = text[..start]
            .chars()
            .next_back()
            .filter(|c| matches!(c, '-' | '−' | '–'));
        let sign = sign.map_or(0, char::len_utf8);
        let ahead = text[..start - sign].chars().next_back();
        let is_minus = ahead.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, ')' | '}'));
        let start = if is_minus { start - sign } else { start };
        let percent = usize::from(text[stop..].starts_with('%'));
        return Some(&text[start..stop + percent]);
    }
}
