//! Finds the answer in a completion by its mark: a box, `####`, a tag, or "the answer is". A text without a mark has its answer
//! at its end.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::clean::{cleaned, without_stars};
use super::lexeme::is_number;
use super::named::{Item, Joint, Values, formulas, items, joint, list};
use super::read::read;
use super::text::{self, pattern};
use super::turn;

/// If a text has neither a box nor `####`, only this many bytes at its end are searched for the answer.
const END: usize = 20_000;

/// The result of the search for the marks of an answer in a text.
pub(super) enum Found {
    /// There is a mark, but no answer: an empty box or tag, a box that is never closed, or thoughts that do not end.
    Nothing,
    Answer(String),
    /// The text after a mark or inside a tag; it contains the answer, or is the answer in words.
    Sentence(String),
    /// There is no mark. This is the text without its thoughts, or only the end of that text if it is long.
    Text(String),
}

/// Returns the answer that the marks of a completion give: `<answer>`, a box, `####`, `answer is`.
pub(super) fn marked(source: &str) -> Found {
    if !turn::has_tags(source) {
        return untagged(source);
    }
    let Some(text) = turn::own(source) else {
        return Found::Nothing;
    };
    let Some(inside) = tagged(&text) else {
        return untagged(&text);
    };
    match untagged(&inside) {
        Found::Text(text) if text.is_empty() => Found::Nothing,
        Found::Text(text) => Found::Sentence(text),
        found => found,
    }
}

fn untagged(text: &str) -> Found {
    if has_box(text)
        && let Some((values, _)) = last_marks(text, &BOX, closed)
    {
        let is_full = |(_, inside): &(Joint, &str)| !inside.trim().is_empty();
        let values = values.filter(|values| values.iter().all(is_full));
        return values.map_or(Found::Nothing, |values| Found::Answer(list(values)));
    }
    if let Some((_, tail)) = text.rsplit_once("####") {
        let line = tail.lines().next().unwrap_or_default().trim();
        if !line.is_empty() {
            return Found::Sentence(line.to_string());
        }
    }
    let from = text.len().saturating_sub(END);
    let end = (from..).find_map(|at| text.get(at..)).unwrap_or_default();
    let plain = without_stars(end);
    behind_phrase(&plain).unwrap_or_else(|| Found::Text(plain.trim().to_string()))
}

/// `\boxed` without a brace counts only at the end of a text, where it is a box that was cut off.
static BOX: LazyLock<Regex> = LazyLock::new(|| pattern(r"\\(?:boxed|fbox)\s*(?:\{|$)"));

/// Returns whether a text has a box. `box` is searched for first, because the pattern is slow on many backslashes.
fn has_box(text: &str) -> bool {
    text.contains("box") && BOX.is_match(text)
}

/// Returns the content of the last tag that marks an answer; the closing tag may be missing. Returns `None` if there is no such
/// tag or if a box follows it.
fn tagged(text: &str) -> Option<String> {
    const TAG: &str = "(?:(?:final[-_ ]?)?(?:answer|solution)|final|ans)";
    static OPEN: LazyLock<Regex> = LazyLock::new(|| {
        let token = r"<\|begin_of_(?:solution|answer|box)\|>";
        pattern(&format!(r"(?i)<\s*{TAG}(?:\s[^<>]*)?>|{token}|\[{TAG}\]"))
    });
    static CLOSE: LazyLock<Regex> = LazyLock::new(|| {
        let token = r"<\|end_of_(?:solution|answer|box)\|>";
        pattern(&format!(r"(?i)<\s*/\s*{TAG}\s*>|{token}|\[/{TAG}\]"))
    });
    let content = |text: &str| {
        let close = CLOSE.find(text);
        let (end, behind) = close.map_or((text.len(), text.len()), |at| (at.start(), at.end()));
        let nested = OPEN.find_iter(&text[..end]).last();
        Some((nested.map_or(0, |open| open.end())..end, behind))
    };
    let (values, end) = last_marks(text, &OPEN, content)?;
    values.filter(|_| !has_box(&text[end..])).map(list)
}

/// Returns the contents of the last mark and of the marks joined to it, each with its joint to the content before it; and the
/// position where the last mark ends. Returns `None` if there is no mark, and no contents if a mark is never closed. `content`
/// takes the text after a mark, and returns the range of the content and the position where the mark ends.
fn last_marks<'t>(
    text: &'t str,
    open: &Regex,
    content: impl Fn(&'t str) -> Option<(Range<usize>, usize)>,
) -> Option<(Option<Values<'t>>, usize)> {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"[A-Za-z\\][\\\w{}'()]{0,12}\s*=\s*$"));
    let (mut values, mut end) = (Values::new(), 0);
    while let Some(mark) = open.find_at(text, end) {
        let behind = &text[mark.end()..];
        let Some((inside, length)) = content(behind) else {
            return Some((None, text.len()));
        };
        let value = &behind[inside];
        let between = &text[end..mark.start()];
        // In `x = \boxed{2}, y = \boxed{3}`, the second name is ignored, so that a comma joins the boxes.
        let joint = joint(between).or_else(|| {
            let name = NAME.find(between)?;
            joint(&between[..name.start()]).filter(|joint| *joint != Joint::Blank)
        });
        let last = values.last().map_or("", |(_, last)| last.trim());
        // A box that repeats the box before it is the same answer; an empty box is replaced by the next box.
        let is_again = joint == Some(Joint::Blank) && [value.trim(), ""].contains(&last);
        if joint.is_none() {
            values.clear();
        } else if is_again {
            values.pop();
        }
        // Two boxes with a blank between them are two values, because no box holds only the unit of another box's value.
        let joint = joint.filter(|joint| matches!(joint, Joint::Or | Joint::Sign));
        values.push((joint.unwrap_or(Joint::Comma), value));
        end = mark.end() + length;
    }
    (end > 0).then_some((Some(values), end))
}

/// Takes the text after an opening brace, and returns the range up to the closing brace and the position after that brace.
fn closed(text: &str) -> Option<(Range<usize>, usize)> {
    let mut depth = 0;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some((0..at, at + 1)),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the answer after the last `answer is` or similar phrase: a list of formulas, a number, or a sentence.
fn behind_phrase(text: &str) -> Option<Found> {
    static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
        let phrase =
            r"(?i:answers? (?:is|are)|answers?\s?[:：]|option is)|答案(?:是|为|[:：])|(?m:^)A:";
        let heading = r"(?im:^[#\s]*(?:the )?final answers?[ \t]*$)";
        pattern(&format!(r"(?:{phrase}|{heading})[:： *\n\t]*"))
    });
    /// The end of a sentence: a period or a question mark after a word, but not the periods of `a.m.`
    static STOP: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?:^|\s)(?:[^\s.]{2,}|[^\s.a-z])?([.?])(?:\s|$)|(。)"));
    /// The sign or word at which an explanation begins, such as the comma in `5, since 25 = 5 * 5`.
    static CLAUSE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[,;]| \(| because "));
    let tail = &text[PHRASE.find_iter(text).last()?.end()..];
    let line = tail.lines().next().unwrap_or_default();
    let formulas = formulas(tail);
    if let Some(first) = formulas.first().filter(|first| first.at.start == 0) {
        let inside = first.inside.trim();
        let items = items(&tail[..line.len().max(first.at.end)]);
        let found = list(joined(tail, items));
        return (!inside.is_empty()).then_some(Found::Answer(found));
    }
    let stop = STOP
        .captures(line)
        .and_then(|found| found.get(1).or(found.get(2)));
    let sentence = line[..stop.map_or(line.len(), |stop| stop.start())].trim();
    let is_readable = |text: &&str| read(&cleaned(text)).is_some();
    if is_readable(&sentence) {
        return Some(Found::Answer(sentence.to_string()));
    }
    let clause = CLAUSE.split(sentence).next().filter(is_readable);
    // `34, or maybe 35` names two answers.
    let is_hedged = |clause: &&str| {
        let rest = &sentence[clause.len()..];
        let next = items(rest).into_iter().next();
        next.is_some_and(|next| joint(&rest[..next.at.start]) == Some(Joint::Or))
    };
    let clause = clause.filter(|clause| !is_hedged(clause));
    let found = clause.map_or_else(
        || Found::Sentence(sentence.to_string()),
        |clause| Found::Answer(clause.trim().to_string()),
    );
    (!sentence.is_empty()).then_some(found)
}

/// Returns the values at the start of a text, up to the first value that is not joined to the value before it.
fn joined<'t>(text: &str, items: Vec<Item<'t>>) -> Values<'t> {
    /// The beginnings of a unit that is a separate formula, as in `$5$ $\text{cm}$`.
    const UNIT: [&str; 5] = ["\\text", "\\mathrm", "\\%", "\\circ", "^"];
    let (mut values, mut end) = (Vec::new(), 0);
    for item in items {
        let inside = item.inside.trim();
        let joint = match joint(&text[end..item.at.start]) {
            Some(Joint::Blank) if end == 0 || UNIT.iter().any(|unit| inside.starts_with(unit)) => {
                Joint::Blank
            }
            Some(Joint::Blank) if is_number(inside) => Joint::Comma,
            Some(Joint::Sign) if is_number(inside) => Joint::Sign,
            None | Some(Joint::Blank | Joint::Sign) => break,
            Some(joint) => joint,
        };
        values.push((joint, inside));
        end = item.at.end;
    }
    values
}

/// Returns whether a whole text without a mark is an answer: a choice, a ratio, or one line of mathematics, even a line that
/// cannot be read.
pub(super) fn is_whole(text: &str, clean: &str) -> bool {
    static WORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\pL{2,}[,.:;?!]*$"));
    /// The beginning of a sentence, such as `So` in `So x = 5`.
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
