//! The verifier: finds the answer of a completion and compares it with a reference.
//!
//! Answers are compared by their meaning, as exact numbers, decimals, quantities with units, lists, sets, tuples, intervals,
//! matrices, equations, inequalities, functions of variables, choices or words. If a comparison cannot be decided, the answer
//! counts as incorrect: the verdict is [`Verdict::Undecided`] or, for an element of a list or a set, [`Verdict::Different`].
//!
//! ```
//! use advlab_answers::{Verdict, answer, equal};
//!
//! assert_eq!(equal(r"\frac{3}{4}", "So the probability is $0.75$."), Verdict::Equal);
//! assert_eq!(equal("#### 72", r"It is \boxed{71}"), Verdict::Different);
//! assert_eq!(answer("The answer is 5 apples."), Some("5 apples".to_string()));
//! ```

mod clause;
mod clean;
mod compare;
mod expr;
mod find;
mod intervals;
mod lexeme;
mod named;
mod number;
mod read;
#[cfg(test)]
mod tests;
mod text;
mod turn;
mod units;
mod value;

use clean::cleaned;
use find::Found;
use read::read;

/// The result of a comparison. Only [`Verdict::Equal`] counts as correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer equals the reference's answer.
    Equal,
    /// The answers differ.
    Different,
    /// The completion or the reference has no answer.
    NoAnswer,
    /// The comparison exceeds its limit on work, or the answer cannot be read or cannot be compared with the reference's answer.
    Undecided,
}

impl Verdict {
    /// All verdicts, in the order of their declaration.
    pub const ALL: [Verdict; 4] = [
        Verdict::Equal,
        Verdict::Different,
        Verdict::NoAnswer,
        Verdict::Undecided,
    ];

    /// Returns the verdict in words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Equal => "right",
            Verdict::Different => "wrong",
            Verdict::NoAnswer => "no answer",
            Verdict::Undecided => "not decided",
        }
    }
}

/// Returns whether the answer in a completion equals the answer in a reference solution.
pub fn equal(gold: &str, completion: &str) -> Verdict {
    compared(gold, completion).0
}

/// Returns the verdict of [`equal`], with the answers of the reference and of the completion.
pub fn compared(gold: &str, completion: &str) -> (Verdict, Option<String>, Option<String>) {
    let gold = reference(gold);
    let read = gold.as_deref().filter(|gold| gold.len() <= read::LONGEST);
    let clean = cleaned(read.unwrap_or_default());
    let answer = of_completion(completion, &clean);
    let verdict = match (&gold, &answer) {
        (Some(gold), Some(answer)) => of_answers(gold, &clean, answer),
        _ => Verdict::NoAnswer,
    };
    (verdict, gold, answer)
}

/// Returns the answer of a text. A mark such as `<answer>`, `\boxed{}`, `####` or `answer is` gives the answer. Without a mark,
/// it is the whole text if that is a choice or one line of mathematics, else the last formula or number.
pub fn answer(text: &str) -> Option<String> {
    number::begin();
    of_completion(text, "")
}

/// Returns the answer of a reference solution, or its whole text if it has no mark. Returns `None` if there is no answer.
pub fn reference(gold: &str) -> Option<String> {
    number::begin();
    let answer = match find::marked(gold, "") {
        Found::Nothing => return None,
        Found::Answer(answer) => answer,
        Found::Sentence(sentence) => of_sentence(sentence, ""),
        Found::Text(text) if gold.len() <= read::LONGEST => text,
        Found::Text(_) => gold.trim().to_string(),
    };
    Some(answer).filter(|answer| !answer.is_empty())
}

/// Returns the model's turns in the text of a dialogue that still has its turn tokens.
pub fn turns(text: &str) -> Vec<String> {
    turn::turns(text, true)
}

/// Returns the answer of a completion. If the first turn has no answer, the last turn is searched: a base model that goes on
/// with the next question has given its answer in the first turn.
fn of_completion(completion: &str, gold: &str) -> Option<String> {
    of_turn(completion, gold).or_else(|| {
        let turns = turn::has_tags(completion).then(|| turns(completion));
        of_turn(&turn::last(turns.filter(|turns| turns.len() > 1)?), gold)
    })
}

/// Returns the answer of a turn. If a turn has no mark but the same text as `gold`, the cleaned reference, the whole turn is its
/// answer.
fn of_turn(turn: &str, gold: &str) -> Option<String> {
    match find::marked(turn, gold) {
        Found::Nothing => None,
        Found::Answer(answer) => Some(answer),
        Found::Sentence(sentence) => Some(of_sentence(sentence, gold)),
        Found::Text(text) if is_whole(&text, gold) => Some(text).filter(|text| !text.is_empty()),
        Found::Text(text) => {
            // A choice such as `B) 36%` counts only if it is the last line and no other line is a choice.
            let is_choice = |line: &&str| text::choice(&cleaned(line)).is_some();
            let mut choices = text.lines().filter(is_choice);
            let choice = text::choice(gold).and_then(|_| choices.next());
            let choice = choice.filter(|choice| text.ends_with(choice) && choices.next().is_none());
            choice.map_or_else(|| named::last_of(&text), |choice| Some(choice.to_string()))
        }
    }
}

/// Returns the value that a sentence names, or the whole sentence if it is an answer as a whole or names no value. Several lines
/// of mathematics are one list.
fn of_sentence(sentence: String, gold: &str) -> String {
    let has_words = sentence.contains(char::is_alphabetic) || sentence.contains('\n');
    if !has_words || sentence.len() > read::LONGEST {
        return sentence;
    }
    let lines = sentence.lines().filter(|line| !line.trim().is_empty());
    if sentence.contains('\n') && lines.clone().all(|line| read(&cleaned(line)).is_some()) {
        return lines.collect::<Vec<&str>>().join(", ");
    }
    let clean = cleaned(&sentence);
    // A sentence that equals a reference in words is kept whole.
    if find::is_whole(&sentence, &clean) || is_text(&clean, gold) && read(gold).is_none() {
        return sentence;
    }
    named::named(&sentence).unwrap_or(sentence)
}

/// Returns whether a text as a whole is an answer: a choice, a line of mathematics, or the reference's text.
fn is_whole(text: &str, gold: &str) -> bool {
    text.len() <= read::LONGEST && {
        let clean = cleaned(text);
        is_text(&clean, gold) || find::is_whole(text, &clean)
    }
}

/// Returns whether two cleaned texts are the same once they are folded.
fn is_text(text: &str, gold: &str) -> bool {
    !gold.is_empty() && text::folded(text) == text::folded(gold)
}

fn of_answers(gold: &str, clean: &str, answer: &str) -> Verdict {
    let verdict = |is_equal| match is_equal {
        Some(true) => Verdict::Equal,
        Some(false) => Verdict::Different,
        None => Verdict::Undecided,
    };
    if gold.len().max(answer.len()) > read::LONGEST {
        return verdict((gold.trim() == answer.trim()).then_some(true));
    }
    let answer = cleaned(answer);
    let (letter, found) = (text::choice(clean), text::choice(&answer));
    // `(B) yes` names the choice by its letter and by its text.
    let answer = match &found {
        Some((_, behind)) if letter.is_none() && !behind.is_empty() => behind,
        _ => &*answer,
    };
    let (gold, answer) = match (text::named_ratio(clean), text::named_ratio(answer)) {
        (Some(gold), None) => (gold, answer),
        (None, Some(answer)) => (clean, answer),
        _ => (clean, answer),
    };
    if gold.is_empty() {
        return Verdict::NoAnswer;
    }
    if gold == answer {
        return Verdict::Equal;
    }
    if let (Some((letter, _)), Some((found, _))) = (&letter, &found) {
        return verdict(Some(found == letter));
    }
    // `xy` and `x, y` are the same text when they are folded, but not the same mathematics.
    if letter.is_none()
        && let (Some(gold), Some(answer)) = (read(gold), read(answer))
    {
        return verdict(compare::same(&gold, &answer));
    }
    let folded = text::folded(gold);
    let is_same = folded == text::folded(answer);
    // `1 7` and `17` are the same text too, but not the same number.
    if is_same && !folded.contains(|c: char| c.is_ascii_digit()) {
        return Verdict::Equal;
    }
    let read = |text| read(text).or_else(|| read(named::without_label(text)?));
    verdict(match (read(gold), read(answer)) {
        (Some(gold), Some(answer)) => compare::same(&gold, &answer),
        (None, None) => Some(is_same),
        (Some(_), None) => None,
        (None, Some(_)) => Some(false),
    })
}
