//! Finds the answer in a completion by its mark: a box, `####`, a tag, or "the answer is". A text without a mark has its answer
//! at its end.

use std::ops::Range;

use regex::{Match, Regex};

use super::clause::{is_case, is_conditional, is_denied, is_otherwise};
use super::clean::{cleaned, without_stars};
use super::lexeme::is_number;
use super::named::{Item, Joint, Values, cases_of, formulas, has_condition, items, joint, list};
use super::read::{LONGEST, read};
use super::text::{self, near, patterns};
use super::turn;

/// If a text has neither a box nor `####`, only this many bytes at its end are searched for the answer.
const END: usize = 20_000;

/// The result of the search for the marks of an answer in a text.
pub(super) enum Found {
    /// There is no answer: a box or tag is empty, a box is never closed, the thoughts do not end, or no phrase names an answer.
    Nothing,
    Answer(String),
    /// The text after a mark or inside a tag; it contains the answer, or is the answer in words.
    Sentence(String),
    /// There is no mark. This is the text without its thoughts, or only the end of that text if it is long.
    Text(String),
}

/// Returns the answer that the marks of a completion give: `<answer>`, a box, `####`, `answer is`. Some sentences give no answer if
/// the cleaned reference `gold` is a value or a choice.
pub(super) fn marked(source: &str, gold: &str) -> Found {
    if !turn::has_tags(source) {
        return first_answer(source, gold);
    }
    let Some(text) = turn::own(source) else {
        return Found::Nothing;
    };
    let Some(inside) = tagged(&text) else {
        return first_answer(&text, gold);
    };
    match untagged(&inside, gold) {
        Found::Text(text) if text.is_empty() => Found::Nothing,
        Found::Text(text) => Found::Sentence(text),
        found => found,
    }
}

/// Returns the answer in front of the next question if a base model went on with the questions of its prompt.
fn first_answer(text: &str, gold: &str) -> Found {
    patterns!(
        QUESTION = r"\n(?:#+ ?|\*\*)?(?:Question|Problem|Q|Exercise|问题|题目)(?: ?[0-9]+)?[.:：]"
    );
    // The first questions are enough, and a limit bounds the work.
    let mut questions = QUESTION.find_iter(text).take(8).map(|found| found.start());
    let first = questions.find_map(|question| {
        let found = untagged(&text[..question], gold);
        let is_answer = match &found {
            Found::Text(text) => text.len() <= LONGEST && is_whole(text, &cleaned(text)),
            Found::Nothing => false,
            _ => true,
        };
        // A box in a later part is the answer to all parts.
        let is_answer = is_answer && (has_box(&text[..question]) || !has_box(&text[question..]));
        is_answer.then_some(found)
    });
    first.unwrap_or_else(|| untagged(text, gold))
}

fn untagged(text: &str, gold: &str) -> Found {
    if has_box(text)
        && let Some((values, end)) = last_marks(text, &BOX, closed)
    {
        let is_full = |(_, inside): &(Joint, &str)| !inside.trim().is_empty();
        let Some(values) = values.filter(|values| values.iter().all(is_full)) else {
            return Found::Nothing;
        };
        let values = list(values);
        // In `\boxed{12}. The answer is (C).`, the box is not the choice.
        let is_choice = |text: &str| text::choice(text).is_some();
        let choice = (is_choice(gold) && !is_choice(&cleaned(&values)))
            .then(|| behind_phrase(&text[end..], gold))
            .flatten();
        return choice.unwrap_or(Found::Answer(values));
    }
    let marked = behind_mark(text);
    if let Some((line, true)) = marked {
        return Found::Sentence(line.to_string());
    }
    let plain = without_stars(near(text, text.len(), END));
    behind_phrase(&plain, gold).unwrap_or_else(|| match marked {
        Some((line, _)) => Found::Sentence(line.to_string()),
        // A number in a heading is no answer.
        None if plain.contains('#') => {
            let is_heading = |line: &str| line.trim_start().starts_with('#') && STEP.is_match(line);
            let lines: Vec<&str> = plain.lines().filter(|line| !is_heading(line)).collect();
            Found::Text(lines.join("\n").trim().to_string())
        }
        None => Found::Text(plain.trim().to_string()),
    })
}

patterns! {
    /// The beginning of a heading: `Step 2`, `2. Conclusion`.
    STEP = {
        let parts = "step|part|case|method|approach|example|problem|question|task|phase|stage|section|option|solution|attempt|\
            scenario|check|test|claim|lemma|exercise|equation|figure|day|round";
        format!(r"(?i)^[#*\s]*(?:[0-9]+[.)]\s+\S|(?:{parts})\b)")
    };
    /// `\boxed` without a brace counts only at the end of a text, where it is a box that was cut off.
    BOX = r"\\(?:boxed|fbox)\s*(?:\{|$)";
}

/// Returns the last line after `####` that as a whole is an answer, with true. Otherwise returns the text's last line, with
/// false, if it follows `####`; it is an answer in words unless a phrase marks another answer. Headings (`#### Step 2`) are
/// skipped.
fn behind_mark(source: &str) -> Option<(&str, bool)> {
    let mut last = None;
    // The limit suffices for the headings of a text, and bounds the work.
    for (at, mark) in source.rmatch_indices("####").take(20) {
        let tail = source[at + mark.len()..].trim();
        let line = tail.lines().next().unwrap_or_default().trim();
        if line.is_empty() || STEP.is_match(line) {
            continue;
        }
        let clean = cleaned(if line.len() <= LONGEST { line } else { "" });
        if text::choice(&clean).is_some() || text::is_ratio(&clean) || read(&clean).is_some() {
            return Some((line, true));
        }
        last = last.or((line == tail).then_some((line, false)));
    }
    last
}

/// Returns whether a text has a box. `box` is searched for first, because the pattern is slow on many backslashes.
fn has_box(text: &str) -> bool {
    text.contains("box") && BOX.is_match(text)
}

/// Returns the content of the last tag that marks an answer; the closing tag may be missing. Returns `None` if there is no such
/// tag or if a box follows it.
fn tagged(text: &str) -> Option<String> {
    const TAG: &str = "(?:(?:final[-_ ]?)?(?:answer|solution)|final|ans)";
    patterns! {
        OPEN = format!(r"(?i)<\s*{TAG}(?:\s[^<>]*)?>|<\|begin_of_(?:solution|answer|box)\|>|\[{TAG}\]");
        CLOSE = format!(r"(?i)<\s*/\s*{TAG}\s*>|<\|end_of_(?:solution|answer|box)\|>|\[/{TAG}\]");
    }
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
    patterns! {
        NAME = r"[A-Za-z\\][\\\w{}'()]{0,12}\s*=\s*$";
        REMARK = r"^\s*\((?:[a-z]|case|if|when|for)\b[^()]{1,40}\)";
    }
    let (mut values, mut end) = (Values::new(), 0);
    while let Some(mark) = open.find_at(text, end) {
        let behind = &text[mark.end()..];
        let Some((inside, length)) = content(behind) else {
            return Some((None, text.len()));
        };
        let value = &behind[inside];
        let before = (end > 0).then(|| &text[end..mark.start()]);
        let listed = |between: &str| joint(between).filter(|joint| *joint != Joint::Blank);
        let joint = before.and_then(|between| {
            joint(between)
                // `- \boxed{5}.` is an item of a list, and `\boxed{5} (n odd), \boxed{6}` has a remark.
                .or_else(|| listed(&REMARK.replace(between.trim_start_matches('.'), "")))
                // In `x = \boxed{2}, y = \boxed{3}`, the second name is ignored, so that a comma joins the boxes.
                .or_else(|| listed(&between[..NAME.find(between)?.start()]))
                // In `\boxed{5} if n is odd, \boxed{6} if n is even`, both boxes are values of one answer.
                .or_else(|| {
                    let are_cases = is_case(between) && is_case(&behind[length..]);
                    (are_cases || is_otherwise(between)).then_some(Joint::Or)
                })
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

/// Returns the answer after the last `answer is` or similar phrase that is not denied and that names an answer: a list of formulas,
/// a number, or a sentence.
fn behind_phrase(text: &str, gold: &str) -> Option<Found> {
    patterns! {
        PHRASE = {
            let phrase = r"(?i:answers? (?:is|are|(?:must|should|would|will) be)|answers?\s?[:：]|option is)|(?m:^)(?:A|Option|Choice):";
            let chinese = r"【答案】|(?:答案|选项)(?:是|为|选|[:：])|(?:故|应|因此|所以)选";
            let choice = r"(?i:(?:correct|right|true|best|final|my|answer) (?:choice|option)(?: is|\s?[:：]))";
            let heading = r"(?im:^[#\s]*(?:the )?final answers?[ \t]*$|^#+[ \t]*answers?[ \t]*$)";
            format!(r"(?:{phrase}|{chinese}|{choice}|{heading})[:： *\n\t]*")
        };
        /// Words that deny the phrase after them, as in `I do not think that the answer is 5`.
        DENIAL = {
            let denials = r"\b(?:not|never|nobody|no one|doubt|wrong|false|incorrect|unlikely|impossible|untrue|cannot)|n[’']t";
            let verbs = "thinks?|believes?|says?|know|mean|claims?|agree|feel|be|to|true|certain|sure|likely|possible|correct|\
                right|clear|the case";
            let the = r"(?: (?:that|if|whether))?(?: (?:the|my|our|this|its))?";
            format!(r"(?i)(?:{denials})(?: (?:{verbs}))*{the}(?: \pL+)? ?$")
        };
        /// A choice before the verb.
        CHOICE = {
            let choice = r"(?:(?:\b(?i:option|choice|answer)\s*|(?m:^)|[.!?:,]\s+)\(?|\s\()([A-J])\)?";
            let verb = r"is (?:the )?(?:correct|right|best)(?: (?:option|choice|answer)|\.|$)";
            format!(r"{choice} {verb}")
        };
    }
    // In `所以选项B是正确的`, the word is `选项`.
    let is_phrase = |phrase: &Match| !text[phrase.end()..].starts_with('项');
    let phrases: Vec<Match> = PHRASE.find_iter(text).filter(is_phrase).collect();
    let Some(first) = phrases.first() else {
        let mut found = CHOICE.captures_iter(text);
        let first = found.next()?.get(1)?.as_str();
        let is_one = found.all(|other| &other[1] == first);
        return is_one.then(|| Found::Answer(first.to_string()));
    };
    let is_denied = |phrase: &&Match| DENIAL.is_match(near(text, phrase.start(), 100));
    let named = phrases.iter().rev().filter(|phrase| !is_denied(phrase));
    // The limit suffices for phrases that name no answer, and bounds the work.
    for phrase in named.take(100) {
        let found = first_of(&text[phrase.end()..]);
        if phrase == first || !is_idle(found.as_ref(), gold) {
            return found;
        }
    }
    Some(Found::Nothing)
}

/// Returns whether the words after a phrase name no answer although the reference is a value or a choice, as in `The answer is
/// rounded`. A retraction, such as `The answer is wrong`, counts as an answer.
fn is_idle(found: Option<&Found>, gold: &str) -> bool {
    patterns!(NAMES = r"[0-9$\\]|\b(?:[A-J]|wrong|incorrect|false)\b");
    let Some(Found::Sentence(sentence)) = found else {
        return found.is_none();
    };
    let is_value = || text::choice(gold).is_some() || read(gold).is_some();
    !NAMES.is_match(sentence) && !is_denied([sentence, ""]) && is_value()
}

/// Returns the answer at the beginning of a text: a list of formulas, a number, or a sentence.
fn first_of(tail: &str) -> Option<Found> {
    patterns! {
        /// The text after the name of a value, as in `$x$ = 5`.
        VERB = r"^\s*(?:[=≈:]|(?:is|are|equals?)\b)";
    }
    let formulas = formulas(tail);
    let Some(first) = formulas.first().filter(|first| first.at.start == 0) else {
        return of_words(tail);
    };
    let (behind, inside) = (&tail[first.at.end..], first.inside.trim());
    if VERB.is_match(behind) || inside.ends_with('=') {
        let found = of_words(tail);
        let is_name = || read(&cleaned(inside)).is_some_and(|name| name.is_name());
        if matches!(found, Some(Found::Answer(_))) || is_name() {
            return found;
        }
    }
    let line = tail.lines().next().map_or(0, str::len).max(first.at.end);
    let line = &tail[..line];
    let items = items(line);
    let next = items.get(1).map_or(line.len(), |next| next.at.start);
    if is_denied(["", &line[first.at.end..next]]) {
        return Some(Found::Sentence(line.to_string()));
    }
    let found = cases_of(line).unwrap_or_else(|| list(joined(tail, items)));
    (!inside.is_empty()).then_some(Found::Answer(found))
}

/// Returns the answer at the beginning of a text that begins with words or a number.
fn of_words(tail: &str) -> Option<Found> {
    patterns! {
        /// The end of a sentence: a period or a question mark after a word, but not the periods of `a.m.`
        STOP = r"(?:^|\s)(?:[^\s.]{2,}|[^\s.a-z])?([.?])(?:\s|$)|(。)";
        /// The sign or word at which an explanation begins, such as the comma in `5, since 25 = 5 * 5`.
        CLAUSE = r"[,;]| \(| because ";
    }
    let line = tail.lines().next().unwrap_or_default();
    let stop = STOP
        .captures(line)
        .and_then(|found| found.get(1).or(found.get(2)));
    let sentence = line[..stop.map_or(line.len(), |stop| stop.start())].trim();
    // `The answer is ...` is cut off.
    if sentence.trim_matches(['.', '…']).is_empty() {
        return None;
    }
    let is_condition = |text: &str| {
        let first = items(text).into_iter().next();
        first.is_some_and(|first| is_conditional(&text[..first.at.start], first.inside))
    };
    // `For n = 3` is no equation.
    let is_equation = |text: &str| !text.contains('=') || !is_condition(text);
    let is_readable = |text: &&str| read(&cleaned(text)).is_some() && is_equation(text);
    if is_readable(&sentence) || text::choice(&cleaned(sentence)).is_some() {
        return Some(Found::Answer(sentence.to_string()));
    }
    let clause = CLAUSE.split(sentence).next().filter(is_readable);
    // `34, or maybe 35` names two answers.
    let is_hedged = |clause: &&str| {
        let rest = &sentence[clause.len()..];
        let next = items(rest).into_iter().next();
        let behind = next.as_ref().map_or(rest, |next| &rest[..next.at.start]);
        is_denied(["", behind])
            || next.is_some() && (joint(behind) == Some(Joint::Or) || is_otherwise(behind))
    };
    let clause = clause.filter(|clause| !is_hedged(clause));
    Some(clause.map_or_else(
        || Found::Sentence(sentence.to_string()),
        |clause| Found::Answer(clause.trim().to_string()),
    ))
}

/// Returns the values at the start of a text, up to the first value that is not joined to the value before it.
fn joined<'t>(text: &str, items: Vec<Item<'t>>) -> Values<'t> {
    let (mut values, mut end) = (Vec::new(), 0);
    for item in items {
        let inside = item.inside.trim();
        let is_weak = |joint: &Joint| matches!(joint, Joint::Blank | Joint::Sign);
        let joint = joint(&text[end..item.at.start])
            .filter(|joint| end == 0 || is_number(inside) || !is_weak(joint));
        let Some(joint) = joint else {
            break;
        };
        values.push((joint, inside));
        end = item.at.end;
    }
    values
}

/// Returns whether a whole text without a mark is an answer: a choice, a ratio, or one line of mathematics, even a line that
/// cannot be read.
pub(super) fn is_whole(text: &str, clean: &str) -> bool {
    patterns! {
        WORD = r"^\pL{2,}[,.:;?!]*$";
        /// The beginning of a sentence, such as `So` in `So x = 5`.
        PROSE = r"^\p{Lu}\p{Ll}+,? ";
    }
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
        && !has_condition(text)
}
