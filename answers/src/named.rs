//! Finds the formulas and the numbers of a text, and decides which of these a sentence names as its answer.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Match, Regex};

use super::clean::{GROUPING, cleaned, spelled_out};
use super::read::read;
use super::text::{self, pattern};

/// A formula, or a number outside formulas: the range that includes its marks, and the text inside the marks.
pub(super) struct Item<'t> {
    pub(super) at: Range<usize>,
    pub(super) inside: &'t str,
}

/// Returns the formulas of a text.
pub(super) fn formulas(text: &str) -> Vec<Item<'_>> {
    static MARK: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)\$\$?|\\."));
    let (mut found, mut open) = (Vec::new(), None::<Match>);
    for mark in MARK.find_iter(text) {
        let inside = open.map_or("", |open| &text[open.end()..mark.start()]);
        let closed = open.filter(|open| match (open.as_str(), mark.as_str()) {
            ("\\[", "\\]") | ("\\(", "\\)") => true,
            (open, close) => open == close && is_formula(inside, &text[mark.end()..]),
        });
        if let Some(begin) = closed {
            let at = begin.start()..mark.end();
            found.push(Item { at, inside });
            open = None;
        } else if matches!(mark.as_str(), "$$" | "$" | "\\[" | "\\(") {
            open = Some(mark);
        }
    }
    found
}

/// Returns whether the text between two dollar signs is a formula. The text is not a formula if the signs mean money, as in `$5
/// and that is $7`, or if the text spans two paragraphs.
fn is_formula(formula: &str, behind: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let is_open = formula.ends_with(' ') || behind.starts_with(is_digit);
    let is_money = formula.starts_with(is_digit) && is_open;
    !is_money && !formula.contains("\n\n")
}

/// Returns the formulas that are not empty, and the numbers between formulas.
pub(super) fn items(text: &str) -> Vec<Item<'_>> {
    let (mut items, mut end) = (Vec::new(), 0);
    for formula in formulas(text) {
        if !formula.inside.trim().is_empty() {
            add_numbers(&mut items, text, end..formula.at.start);
            end = formula.at.end;
            items.push(formula);
        }
    }
    add_numbers(&mut items, text, end..text.len());
    items
}

fn add_numbers<'t>(items: &mut Vec<Item<'t>>, text: &'t str, within: Range<usize>) {
    /// A number with its sign, fraction and percent sign, but not directly after a letter.
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
        let group = format!(r"(?:{GROUPING}|\\[,:;]|[\u{{a0}}\u{{2009}}\u{{202f}}])[0-9]{{3}}");
        let number = format!(r"\.?[0-9](?:(?:[0-9.,/⁄]|{group})*(?:[0-9]|{group}))?%?");
        let signed = format!(r"(?:^|[^\pL\pN)}}])([-−–]{number})");
        pattern(&format!(r"{signed}|(?:^|[^\pL0-9.,/⁄])[,/⁄]*({number})"))
    });
    let start = within.start;
    for found in NUMBER.captures_iter(&text[within]) {
        if let Some(number) = found.get(1).or(found.get(2)) {
            let at = start + number.start()..start + number.end();
            let inside = &text[at.clone()];
            items.push(Item { at, inside });
        }
    }
}

/// The way in which two values of a list are joined.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Joint {
    Blank,
    Comma,
    And,
    Or,
    /// A `/` or `|`, which separates boxes; between other values it can belong to a fraction, a unit or a table.
    Sign,
}

/// Returns how the text between two values joins them; `None` if the text has words that do not join values.
pub(super) fn joint(between: &str) -> Option<Joint> {
    static JOINT: LazyLock<Regex> = LazyLock::new(|| {
        let words = r"\b(?:and|also|as well as|plus|both)\b|和|及";
        let or = r"\b(?:or|else|either|even|maybe|perhaps|possibly|probably|alternatively|equivalently|versus)\b|\bvs\b\.?|或者?";
        pattern(&format!(
            r"(?i)^(?:[\s{{}}()*&]|\\text|\\\\|([,;])|({words})|({or})|([/|]|\\mid\b))*$"
        ))
    });
    // A longer text has words that do not join values.
    let text = Some(between).filter(|text| text.len() <= 200)?;
    let spelled = spelled_out(text);
    let found = JOINT.captures(&spelled)?;
    let has = |group| found.get(group).is_some();
    Some(match () {
        () if has(3) => Joint::Or,
        () if has(4) => Joint::Sign,
        () if has(2) => Joint::And,
        () if has(1) => Joint::Comma,
        () => Joint::Blank,
    })
}

/// Values that a text names together, each with its joint to the value before it.
pub(super) type Values<'t> = Vec<(Joint, &'t str)>;

/// Returns the values as the text of a list.
pub(super) fn list(values: Values) -> String {
    let mut list = String::new();
    for (joint, value) in values {
        if !list.is_empty() {
            list += match joint {
                Joint::Or | Joint::Sign => " or ",
                Joint::Blank => " ",
                _ => ", ",
            };
        }
        list += value.trim();
    }
    list
}

/// Values that a sentence names together.
struct Run<'t> {
    values: Values<'t>,
    /// Whether the values follow a verb, or begin the text.
    is_named: bool,
    /// The text between the previous run and this run.
    before: &'t str,
}

/// Returns the value that a sentence names, as in `The largest $n$ is 34`: the last value after a verb or at the beginning or, if
/// there is none, the last value. Joined values are returned as one list. Returns `None` if the value follows a word such as
/// `not`, or if the text has mathematics outside formulas, because a number may then be only a part of the answer.
pub(super) fn named(text: &str) -> Option<String> {
    static VERB: LazyLock<Regex> = LazyLock::new(|| {
        let adverbs = "about|approximately|exactly|precisely|only|just|simply|therefore|thus|then|hence|now|also|indeed|equal|given|\
             by|to|either|both|the|number|value|integer";
        pattern(&format!(
            r"(?i)(?:=|≈|:\s|\b(?:is|are|was|were|be|equals?)\b)\s*(?:(?:{adverbs})\b[\s:,]*)*"
        ))
    });
    /// Signs of mathematics outside a formula, or of a time. A number in such a text is only a part of an answer.
    static PART: LazyLock<Regex> = LazyLock::new(|| pattern(r"\\[A-Za-z]|[\^_+*]|[0-9]:[0-9]"));
    static AND: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:and|but|(or))\b"));
    static LAST_AND: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:and|or)[\s$(]*$"));
    static STOP: LazyLock<Regex> = LazyLock::new(|| pattern(r"[.?!]\s|\n"));
    static NOT: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\b(?:not|never|neither|nor|cannot|unknown)\b|n't\b"));
    let verbs: Vec<usize> = VERB.find_iter(text).map(|verb| verb.end()).collect();
    let (mut runs, mut end, mut words) = (Vec::<Run>::new(), 0, String::new());
    for item in items(text) {
        let between = &text[end..item.at.start];
        words += between;
        words.push('0');
        end = item.at.end;
        let from = text[..item.at.start]
            .trim_end_matches(['$', '(', ' '])
            .len();
        let next = verbs.partition_point(|verb| *verb < from);
        let is_behind = |verb: &usize| *verb <= item.at.start;
        let is_named = from == 0 || verbs.get(next).is_some_and(is_behind);
        let joint = joint(between)
            .filter(|joint| !matches!(joint, Joint::Blank | Joint::Sign))
            .or_else(|| {
                let last = runs.last().filter(|_| !STOP.is_match(between))?;
                let and = AND.captures(between)?;
                let is_joined = last.is_named && is_named || LAST_AND.is_match(between);
                is_joined.then(|| and.get(1).map_or(Joint::And, |_| Joint::Or))
            });
        match (joint, runs.last_mut()) {
            (Some(joint), Some(run)) => run.values.push((joint, item.inside)),
            _ => runs.push(Run {
                values: vec![(Joint::Blank, item.inside)],
                is_named,
                before: between,
            }),
        }
    }
    words += &text[end..];
    let at = runs.iter().rposition(|run| run.is_named);
    let at = at.or(runs.len().checked_sub(1));
    let run = at.map(|at| runs.swap_remove(at));
    let is_one = run.as_ref().is_none_or(|run| run.values.len() == 1);
    if let Some(tail) = verbs.last().map(|verb| &text[*verb..]).filter(|_| is_one) {
        let clean = cleaned(tail);
        if read(&clean).is_some() || text::is_ratio(&clean) {
            return Some(tail.trim().to_string());
        }
    }
    let run = run.filter(|run| !PART.is_match(&words) && !NOT.is_match(run.before))?;
    Some(list(run.values))
}

/// Returns the last formula or number of a text, with the values before it if an `and` or `or` joins them to it.
pub(super) fn last_of(text: &str) -> Option<String> {
    let items = items(text);
    let (last, others) = items.split_last()?;
    let (mut values, mut start) = (vec![(Joint::Blank, last.inside)], last.at.start);
    for item in others.iter().rev() {
        let joint = joint(&text[item.at.end..start])
            .filter(|joint| !matches!(joint, Joint::Blank | Joint::Sign));
        let (Some(joint), Some(value)) = (joint, values.last_mut()) else {
            break;
        };
        value.0 = joint;
        values.push((Joint::Blank, item.inside));
        start = item.at.start;
    }
    let is_list = |(joint, _): &(Joint, &str)| matches!(joint, Joint::And | Joint::Or);
    if !values.iter().any(is_list) {
        values.truncate(1);
    }
    values.reverse();
    Some(list(values))
}
