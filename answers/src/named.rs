//! Finds the formulas and the numbers of a text, and decides which of these a sentence names as its answer.

use std::ops::Range;

use regex::Match;

use super::clause::{CASES, is_case, is_conditional, is_denied, is_otherwise, is_refuted};
use super::clean::{GROUPING, cleaned, spelled_out};
use super::read::read;
use super::text::{self, near, patterns};

/// A formula, or a number outside formulas: the range that includes its marks, and the text inside the marks.
pub(super) struct Item<'t> {
    pub(super) at: Range<usize>,
    pub(super) inside: &'t str,
}

/// Returns the formulas of a text.
pub(super) fn formulas(text: &str) -> Vec<Item<'_>> {
    patterns!(MARK = r"(?s)\$\$?|\\.");
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
    patterns! {
        /// A number with its sign, fraction and percent sign, but not directly after a letter.
        NUMBER = {
            let group = format!(r"(?:{GROUPING}|\\[,:;]|[\u{{a0}}\u{{2009}}\u{{202f}}])[0-9]{{3}}");
            let number = format!(r"\.?[0-9](?:(?:[0-9.,/⁄]|{group})*(?:[0-9]|{group}))?%?");
            format!(r"(?:^|[^\pL\pN)}}])([-−–]{number})|(?:^|[^\pL0-9.,/⁄])[,/⁄]*({number})")
        };
    }
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
    patterns! {
        JOINT = {
            let words = r"\b(?:and|also|as well as|plus|both|et|und)\b|和|及";
            let or = r"\b(?:or|ou|oder|else|either|even|maybe|perhaps|possibly|probably|alternatively|equivalently|versus)\b";
            // The sign or the number before an item of a list in Markdown.
            let bullet = r"\n\s*(?:[-+•‣▪●◦]|\(?(?:[0-9]{1,2}|[a-z]|[ivx]{1,4})[.)]|(?:case|answer|solution|root) ?[0-9]:)\s";
            let own = format!(r"([,;]|{bullet})|({words})|({or}|\bvs\b\.?|或者?)|([/|]|\\mid\b)");
            format!(r"(?i)^(?:[\s{{}}()*&]|\\text|\\\\|{own})*$")
        };
    }
    // A longer text is assumed to have words that do not join values.
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
    /// Whether the values follow a verb, begin the text, or stand before a condition, as in `18 if n = 3`.
    is_named: bool,
    /// Whether the values belong to a condition, as in `if n = 3`.
    is_conditional: bool,
    /// Whether the values belong to a case, such as `if n is odd` or `otherwise`, before or after them.
    is_case: bool,
    start: usize,
    /// The text between the previous run and this run, and between this run and the next run.
    around: [&'t str; 2],
}

/// Returns the values of a text in runs, and the positions where verbs end.
fn runs(text: &str) -> (Vec<Run<'_>>, Vec<usize>) {
    patterns! {
        VERB = {
            let verbs = r"=|≈|:\s|\b(?:is|are|was|were|be|equals?|gets?|gives?|obtain|yields?)\b";
            let adverbs = "about|approximately|exactly|precisely|only|just|simply|therefore|thus|then|hence|now|also|indeed|equal|given|\
                by|to|either|both|the|number|value|integer";
            format!(r"(?i)(?:{verbs})\s*(?:(?:{adverbs})\b[\s:,]*)*")
        };
        AND = r"\b(?:and|but|(or))\b";
        STOP = r"[.?!]\s|\n";
        CLAUSE = r"^(?s:.*)(?:[,;:.?!\n]|\bthen\b)";
        /// The condition of the next value, as in `if n is even, it is 6`.
        CASE = format!(r"(?i)(?:^|[,;:.]|\b(?:and|or|but))\s*(?:{CASES})\b[^,;:.]*(?:,|\bthen)$");
    }
    let items = items(text);
    let is_outside = |verb: &Match| {
        let next = items.partition_point(|item| item.at.end <= verb.start());
        items
            .get(next)
            .is_none_or(|item| item.at.start > verb.start())
    };
    let verbs = VERB.find_iter(text).filter(is_outside);
    let verbs: Vec<usize> = verbs.map(|verb| verb.end()).collect();
    let (mut runs, mut end) = (Vec::<Run>::new(), 0);
    let mut clause = String::new();
    for (index, item) in items.iter().enumerate() {
        let between = &text[end..item.at.start];
        let next = items
            .get(index + 1)
            .map_or(text.len(), |next| next.at.start);
        let behind = &text[item.at.end..next];
        clause += between;
        let cut = CLAUSE.find(&clause).map_or(0, |earlier| earlier.end());
        let has_case = is_otherwise(between) || CASE.is_match(&clause[..cut]);
        // The words of a condition are not far from its value, and a limit on the clause bounds the work.
        clause = near(&clause[cut..], clause.len() - cut, 150).to_string();
        end = item.at.end;
        let from = text[..item.at.start]
            .trim_end_matches(['$', '(', ' '])
            .len();
        let verb = verbs.partition_point(|verb| *verb < from);
        let is_behind = |verb: &usize| *verb <= item.at.start;
        let is_conditional = is_conditional(&clause, item.inside);
        let is_case = has_case || !is_conditional && is_case(behind);
        let is_named = from == 0 || is_case || verbs.get(verb).is_some_and(is_behind);
        clause.push('0');
        let joint = joint(between)
            .filter(|joint| !matches!(joint, Joint::Blank | Joint::Sign))
            .or_else(|| {
                let last = runs.last().filter(|_| !STOP.is_match(between))?;
                let and = AND.captures(between)?;
                let is_joined = last.is_conditional == is_conditional && last.is_named && is_named;
                is_joined.then(|| and.get(1).map_or(Joint::And, |_| Joint::Or))
            });
        match (joint, runs.last_mut()) {
            (Some(joint), Some(run)) => {
                run.values.push((joint, item.inside));
                run.is_case |= is_case;
                run.around[1] = behind;
            }
            _ => runs.push(Run {
                values: vec![(Joint::Blank, item.inside)],
                is_named,
                is_conditional,
                is_case,
                start: item.at.start,
                around: [between, behind],
            }),
        }
    }
    (runs, verbs)
}

/// Returns the values of several cases as a list, as in `5 if n is odd and 6 if n is even`; `None` if there are no such cases, or
/// if the run at `at` belongs to none.
fn cases(runs: &[Run], at: usize) -> Option<String> {
    let cases = runs.iter().filter(|run| run.is_case && runs[at].is_case);
    let values = cases.flat_map(|run| &run.values);
    let values: Values = values.map(|(_, value)| (Joint::Or, *value)).collect();
    (values.len() > 1).then(|| list(values))
}

/// Returns the values of several cases if the text begins with one of them.
pub(super) fn cases_of(text: &str) -> Option<String> {
    let runs = runs(text).0;
    (!runs.is_empty()).then(|| cases(&runs, 0)).flatten()
}

/// Returns whether a text has a value in a condition.
pub(super) fn has_condition(text: &str) -> bool {
    let runs = runs(text).0;
    runs.iter().any(|run| run.is_conditional || run.is_case)
}

/// Returns the position of the last run that is named and belongs to no condition. If there is none, returns the position of the
/// last named run, else of the last run without a condition, else of the last run.
fn chosen(runs: &[Run]) -> Option<usize> {
    let last = |is_it: fn(&Run) -> bool| runs.iter().rposition(is_it);
    last(|run| run.is_named && !run.is_conditional)
        .or_else(|| last(|run| run.is_named))
        .or_else(|| last(|run| !run.is_conditional))
        .or(runs.len().checked_sub(1))
}

/// Returns the value that a sentence names, as in `The largest $n$ is 34`: the last value after a verb or at the beginning or, if
/// there is none, the last value. A value in a condition, as in `when n = 3`, is taken only if no value outside conditions is
/// named. Joined values and the values of several cases are returned as one list. Returns `None` if the text denies or bounds the
/// value, or if mathematics outside formulas follows the verb, because a number may be only a part of it.
pub(super) fn named(text: &str) -> Option<String> {
    patterns! {
        /// Signs of mathematics outside a formula, or of a time. A number in such a text is only a part of an answer.
        PART = r"\\[A-Za-z]|[\^_+*]|[0-9]:[0-9]";
    }
    let (mut runs, verbs) = runs(text);
    let at = chosen(&runs);
    if let Some(cases) = at.and_then(|at| cases(&runs, at)) {
        return Some(cases);
    }
    let run = at.map(|at| runs.swap_remove(at));
    let start = run.as_ref().map_or(text.len(), |run| run.start);
    let verb = verbs.iter().rfind(|verb| **verb <= start);
    let around = run
        .as_ref()
        .map_or([&text[..*verb.unwrap_or(&0)], ""], |run| run.around);
    if is_denied(around) {
        return None;
    }
    let is_one = run.as_ref().is_none_or(|run| run.values.len() == 1);
    if let Some(tail) = verb.map(|verb| &text[*verb..]).filter(|_| is_one) {
        let clean = cleaned(tail);
        if read(&clean).is_some() || text::is_ratio(&clean) {
            return Some(tail.trim().to_string());
        }
    }
    let tail = &text[verb.map_or(0, |verb| *verb)..];
    let mut words = tail.to_string();
    for item in items(tail).into_iter().rev() {
        words.replace_range(item.at, "0");
    }
    let run = run.filter(|_| !PART.is_match(&words))?;
    Some(list(run.values))
}

/// Returns the value after a label, as in `\text{Total: } 12` and `\text{The total is } 12`; `None` if the label denies or bounds
/// the value, or is a condition.
pub(super) fn without_label(text: &str) -> Option<&str> {
    patterns! {
        WRONG = r"(?i)\b(?:wrong|incorrect|false|error)\b";
        LABEL = r"^(?:\\text)?[{\s]*(\pL[\pL ,'’-]+?(?:\b(?:is|are|equals)\b|[\s}]*:))[\s}:]*(.+)$";
    }
    let found = LABEL.captures(text)?;
    let [label, value] = [1, 2].map(|group| found.get(group).map_or("", |at| at.as_str()));
    let is_open = value.matches('}').count() > value.matches('{').count();
    let value = value.strip_suffix(if is_open { "}" } else { "" });
    value
        .filter(|_| !WRONG.is_match(label) && !is_denied([label, ""]) && !is_conditional(label, ""))
}

/// Returns the last formula or number of a text, with the values before it if an `and` or `or` joins them to it. A last value
/// after a word such as `if` is skipped if its sentence names another value, and several cases are returned as one list. Returns
/// `None` if the words around the value refute it.
pub(super) fn last_of(text: &str) -> Option<String> {
    patterns! {
        STOP = r"[.?!]\s|\n\s*\n";
        IF = format!(r"(?i)^[^,;.]*\b(?:{CASES})\b[^,;.]*$");
        /// The text before the last number of a computation, as in `480 + 240, or 720`.
        SIGN = r"[0-9)%]\s*[-−+*×÷/x]\s*\$*$";
        /// The text after the result of a computation, as in `8 x 21 = 168 slices in 21 pizzas`.
        IN = r"(?i)^[^,;.=\n]*\b(?:in|for|per|after|with|on|at|of|to|by|from|each|every)(?: \pL+)? [$(]*$";
    }
    let items = items(text);
    let (last, others) = items.split_last()?;
    let before = others.last().map_or(0, |other| other.at.end);
    let around = [&text[before..last.at.start], &text[last.at.end..]];
    let sign = others
        .last()
        .map(|result| near(text, result.at.start, 5).trim_end_matches([' ', '$']));
    let is_behind = sign.is_some_and(|sign| sign.ends_with('=')) && IN.is_match(around[0]);
    if is_behind || is_case(around[1]) || IF.is_match(around[0]) {
        let stop = STOP.find_iter(&text[..last.at.start]).last();
        let mut runs = runs(&text[stop.map_or(0, |stop| stop.end())..]).0;
        let cases = cases(&runs, runs.len().saturating_sub(1));
        let is_other = |run: &Run| run.is_named && !run.is_conditional;
        let other = runs.iter().rposition(is_other);
        let other = other.map(|at| list(runs.swap_remove(at).values));
        if let Some(found) = cases.or(other) {
            return Some(found);
        }
    }
    if is_refuted(around) {
        return None;
    }
    let (mut values, mut start) = (vec![(Joint::Blank, last.inside)], last.at.start);
    for item in others.iter().rev() {
        let joint = joint(&text[item.at.end..start])
            .filter(|joint| !matches!(joint, Joint::Blank | Joint::Sign))
            .filter(|_| !SIGN.is_match(near(text, item.at.start, 20)));
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
