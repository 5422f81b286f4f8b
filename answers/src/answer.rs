//! Which text of a completion is its answer.

use std::sync::LazyLock;

use regex::{Match, Regex};

use super::clean::{cleaned, without_stars};
use super::read::read;
use super::text::{self, pattern};

/// Answers without a box are searched for in this many bytes at the end.
const END: usize = 20_000;

/// The answer that the marks of a completion (a box, `####`, `answer is`) give: `None` for an empty box, for a box that is
/// never closed, and for thoughts without an end. Without a mark, the error is the text without its thoughts.
pub(super) fn marked(source: &str) -> Result<Option<String>, String> {
    let text = match source.rsplit_once("</think>") {
        Some((_, text)) => text,
        None if source.contains("<think>") => return Ok(None),
        None => source,
    };
    if let Some(inside) = boxed(text) {
        return Ok(inside);
    }
    if let Some((_, tail)) = text.rsplit_once("####") {
        let line = tail.lines().next().unwrap_or_default().trim();
        if !line.is_empty() {
            return Ok(Some(line.to_string()));
        }
    }
    let from = text.len().saturating_sub(END);
    let end = (from..).find_map(|at| text.get(at..)).unwrap_or_default();
    let plain = without_stars(end);
    let answer = behind_phrase(&plain);
    answer.map_or_else(|| Err(plain.trim().to_string()), |answer| Ok(Some(answer)))
}

/// The content of the last box, and of the boxes joined to it by a comma, `and` or `or`, if there is a box; nothing
/// if one of them is empty or never closed. A box without a brace counts only at the end of a text.
fn boxed(text: &str) -> Option<Option<String>> {
    static BOX: LazyLock<Regex> = LazyLock::new(|| pattern(r"\\(?:boxed|fbox)\s*(?:\{|$)"));
    static JOINT: LazyLock<Regex> = LazyLock::new(|| {
        let blank = r"(?:\\text|[\s\\${}()])*";
        pattern(&format!("^{blank},?{blank}(?:,|and|or){blank}$"))
    });
    // The pattern is slow on text that consists mostly of backslashes.
    if !text.contains("box") {
        return None;
    }
    let (mut boxes, mut end) = (Vec::new(), 0);
    while let Some(mark) = BOX.find_at(text, end) {
        let Some(inside) = closed(&text[mark.end()..]) else {
            return Some(None);
        };
        if !JOINT.is_match(&text[end..mark.start()]) {
            boxes.clear();
        }
        boxes.push(inside);
        end = mark.end() + inside.len() + 1;
    }
    let are_full = boxes.iter().all(|inside| !inside.trim().is_empty());
    (!boxes.is_empty()).then(|| are_full.then(|| boxes.join(", ")))
}

/// The text before the closing brace of a brace that was opened earlier.
fn closed(text: &str) -> Option<&str> {
    let mut depth = 0;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(&text[..at]),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The text after the last `answer is` or a similar phrase: a formula, a number, the words up to the end of the sentence.
fn behind_phrase(text: &str) -> Option<String> {
    static PHRASE: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?:(?i:answer is|answer:|option is)|(?m:^)A:)[: *\n\t]*"));
    /// A period after a word, but not the one in `a.m.`
    static STOP: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?:^|\s)(?:[^\s.]{2,}|[^\s.a-z])?([.?])(?:\s|$)"));
    /// An explanation after an answer, as in `5, since 25 = 5 * 5`: the answer ends at the comma.
    static CLAUSE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[,;]| \(| because "));
    let tail = &text[PHRASE.find_iter(text).last()?.end()..];
    let formulas = formulas(tail);
    let line = tail.lines().next().unwrap_or_default();
    let stop = STOP.captures(line).and_then(|found| found.get(1));
    let sentence = &line[..stop.map_or(line.len(), |stop| stop.start())];
    let is_readable = |text: &&str| read(&cleaned(text)).is_some();
    let clause = || CLAUSE.split(sentence).next().filter(is_readable);
    let found = match formulas.first() {
        Some((0, formula, _)) => formula,
        _ if is_readable(&sentence) => sentence,
        _ => clause().unwrap_or(sentence),
    };
    Some(found.trim().to_string()).filter(|found| !found.is_empty())
}

/// The formulas of a text: the start, the content and the end of each.
fn formulas(text: &str) -> Vec<(usize, &str, usize)> {
    static MARK: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)\$\$?|\\."));
    let (mut found, mut open) = (Vec::new(), None::<Match>);
    for mark in MARK.find_iter(text) {
        let inside = open.map_or("", |open| &text[open.end()..mark.start()]);
        let closed = open.filter(|open| match (open.as_str(), mark.as_str()) {
            ("\\[", "\\]") | ("\\(", "\\)") => true,
            (open, close) => open == close && is_formula(inside, &text[mark.end()..]),
        });
        if let Some(begin) = closed {
            found.push((begin.start(), inside, mark.end()));
            open = None;
        } else if matches!(mark.as_str(), "$$" | "$" | "\\[" | "\\(") {
            open = Some(mark);
        }
    }
    found
}

/// Money is no formula: `$5 and that is $7`.
fn is_formula(formula: &str, behind: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_open = formula.ends_with(' ') || behind.starts_with(is_digit);
    let is_money = formula.starts_with(is_digit) && is_open;
    !is_money && !formula.contains("\n\n")
}

/// Whether a text without a mark is an answer as a whole: one line of mathematics, well written or not.
pub(super) fn is_whole(text: &str, clean: &str) -> bool {
    static WORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\pL{2,}[,.:;?!]*$"));
    /// `So x = 5`
    static PROSE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\p{Lu}\p{Ll}+,? "));
    if text::choice(clean).is_some() {
        return true;
    }
    if text.lines().count() != 1 || PROSE.is_match(text) {
        return false;
    }
    if read(clean).is_some() || text::is_ratio(clean) {
        return true;
    }
    let plain = text.replace("\\text", "");
    let words = plain.split(|c: char| c.is_whitespace() || c == '$');
    text.contains(['\\', '^', '_', '{', '}', '=', '<', '>', '('])
        && words.filter(|word| WORD.is_match(word)).count() < 2
        && formulas(text).is_empty()
}

/// The last formula of a text, or the last number outside of one, whichever ends later.
pub(super) fn last_of(text: &str) -> Option<String> {
    /// With its sign, its fraction and its percent sign, but not after a letter.
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
        let number = r"\.?[0-9](?:[0-9.,/⁄]*[0-9])?%?";
        let signed = format!(r"(?:^|[^\pL\pN)}}])([-−–]{number})");
        pattern(&format!(r"{signed}|(?:^|[^\pL0-9.,/⁄])[,/⁄]*({number})"))
    });
    let formulas = formulas(text);
    let is_full = |(_, inside, _): &&(usize, &str, usize)| !inside.trim().is_empty();
    let formula = formulas.iter().rfind(is_full);
    let behind = &text[formula.map_or(0, |(.., end)| *end)..];
    let number = NUMBER.find_iter(behind).last();
    let number = number.and_then(|last| NUMBER.captures_at(behind, last.start()));
    let number = number.and_then(|found| found.get(1).or(found.get(2)));
    let formula = formula.map(|(_, inside, _)| *inside);
    Some(
        number
            .map(|number| number.as_str())
            .or(formula)?
            .to_string(),
    )
}
