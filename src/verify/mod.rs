//! The verifier: finds the answer of a completion and compares it with a reference.
//!
//! Answers are compared as what they say: exact numbers, decimals, quantities with units, lists, sets, tuples, intervals,
//! matrices, equations, inequalities, functions of variables, choices, words. What cannot be decided counts as wrong, and
//! is said to be undecided.
//!
//! ```
//! use advlab::verify::{Verdict, answer, equal};
//!
//! assert_eq!(equal(r"\frac{3}{4}", "So the probability is $0.75$."), Verdict::Equal);
//! assert_eq!(equal("#### 72", r"It is \boxed{71}"), Verdict::Different);
//! assert_eq!(answer("The answer is 5 apples."), Some("5 apples".to_string()));
//! ```

mod answer;
mod approx;
mod clean;
mod compare;
mod expr;
mod parse;
mod region;
#[cfg(test)]
mod tests;
mod text;
mod token;
mod unit;
mod value;
mod work;

use answer::Found;

/// What became of a comparison. Only [`Verdict::Equal`] is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer is that of the reference.
    Equal,
    /// It is another one.
    Different,
    /// The completion has none.
    NoAnswer,
    /// Nobody can say in the time that a comparison may take, or the answer cannot be read.
    Undecided,
}

/// Whether the answer of a completion is that of a reference solution.
pub fn equal(gold: &str, completion: &str) -> Verdict {
    compared(gold, completion).0
}

/// As [`equal`], with the answers of the reference and of the completion.
pub fn compared(gold: &str, completion: &str) -> (Verdict, Option<String>, Option<String>) {
    let gold = reference(gold);
    let answer = of_completion(completion, gold.as_deref().unwrap_or_default());
    let verdict = match (&gold, &answer) {
        (Some(gold), Some(answer)) => of_answers(gold, answer),
        _ => Verdict::NoAnswer,
    };
    (verdict, gold, answer)
}

/// The answer of a text: what its last mark points at, such as `\boxed{}`, `####` or `answer is`; the text itself where it
/// is one line of mathematics; else its last formula or number.
pub fn answer(text: &str) -> Option<String> {
    of_completion(text, "")
}

/// The answer of a reference solution: without a mark its whole text. `None` where it is empty.
pub fn reference(gold: &str) -> Option<String> {
    let answer = match answer::marked(gold) {
        Found::Marked(answer) => answer,
        Found::Unmarked(_) => gold.trim().to_string(),
        Found::Nothing => return None,
    };
    Some(answer).filter(|answer| !answer.is_empty())
}

fn of_completion(completion: &str, gold: &str) -> Option<String> {
    match answer::marked(completion) {
        Found::Marked(answer) => Some(answer),
        Found::Nothing => None,
        Found::Unmarked(text) if text.is_empty() => None,
        Found::Unmarked(text) => {
            let is_short = text.len().max(gold.len()) <= value::LONGEST;
            let is_gold = is_short && !gold.is_empty() && text::folded(&text) == text::folded(gold);
            match is_gold || answer::is_whole(&text) {
                true => Some(text),
                false => answer::last_of(&text),
            }
        }
    }
}

fn of_answers(gold: &str, answer: &str) -> Verdict {
    if gold.len().max(answer.len()) > value::LONGEST {
        return match gold.trim() == answer.trim() {
            true => Verdict::Equal,
            false => Verdict::Undecided,
        };
    }
    work::begin();
    let folded = [gold, answer].map(text::folded);
    if folded[0].is_empty() {
        return Verdict::NoAnswer;
    }
    // Without their blanks, `1 7` and `17` are one text.
    let has_numbers = folded[0].contains(|c: char| c.is_ascii_digit());
    let is_same_text =
        folded[0] == folded[1] && (!has_numbers || clean::cleaned(gold) == clean::cleaned(answer));
    if is_same_text {
        return Verdict::Equal;
    }
    let verdict = |is_equal| {
        if is_equal {
            Verdict::Equal
        } else {
            Verdict::Different
        }
    };
    if let Some(letter) = text::choice(gold)
        && let Some(found) = text::choice(answer)
    {
        return verdict(found == letter);
    }
    match (value::read(gold), value::read(answer)) {
        (Some(gold), Some(answer)) => match compare::same(&gold, &answer) {
            Some(is_equal) => verdict(is_equal),
            None => Verdict::Undecided,
        },
        (None, None) => verdict(folded[0] == folded[1]),
        (Some(_), None) => Verdict::Undecided,
        (None, Some(_)) => Verdict::Different,
    }
}
