//! Reads an answer: lists, relations, sets, tuples, intervals, matrices, numbers with units.

mod matrix;
mod quantity;

use super::expr::{Expr, REALS, Symbol};
use super::lexeme::{Lexeme, is_name, is_number, is_word, lexemes};
use super::text;
use super::work;
use matrix::matrix;
use quantity::quantity;

/// Longer answers are compared as texts alone.
pub(super) const LONGEST: usize = 10_500;

/// What a cleaned answer says; `None` where it is no mathematics, or none that can be read.
pub(super) fn read(text: &str) -> Option<Expr> {
    if text.len() > LONGEST || text::is_ratio(text) || is_words(text) {
        return None;
    }
    based(text).or_else(|| list(&lexemes(text)?))
}

/// Letters alone, with a word among them, are words: `odd` is no product, `sin x` is a function.
fn is_words(source: &str) -> bool {
    let text = source.replace("\\text", " ").replace(['{', '}'], " ");
    let known =
        |word: &str| ["and", "or"].contains(&word) || is_name(word) || word.chars().count() < 2;
    text.chars()
        .all(|c| c.is_alphabetic() || c.is_whitespace() || c == ',')
        && !text.split([' ', ',', '\n', '\t']).all(known)
}

/// `101_2`, `\text{A1}_{16}`.
fn based(source: &str) -> Option<Expr> {
    let text = source.replace("\\text", "").replace(['{', '}', ' '], "");
    let (digits, base) = text.split_once('_')?;
    let base: u32 = base.parse().ok().filter(|base| (2..=36).contains(base))?;
    let has_digit = digits.bytes().any(|byte| byte.is_ascii_digit());
    let is_digits = digits.len() < 100 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let digits = vec![Expr::Name(digits.to_uppercase())];
    (has_digit && is_digits).then_some(Expr::Node(Symbol::Based(base), digits))
}

/// How far a lexeme goes into brackets or out of them.
fn nesting(text: &str) -> i32 {
    match text {
        "(" | "[" | "{" | "\\{" | "\\begin" => 1,
        ")" | "]" | "}" | "\\}" | "\\end" => -1,
        _ => 0,
    }
}

/// The parts between lexemes outside of all brackets that separate, and those lexemes; `None` after too much work.
fn split(
    lexemes: &[Lexeme],
    separates: impl Fn(&str) -> bool,
) -> Option<(Vec<&[Lexeme]>, Vec<&str>)> {
    work::look(4 * lexemes.len() as u64)?;
    let (mut parts, mut separators) = (Vec::new(), Vec::new());
    let (mut start, mut depth) = (0, 0);
    for (at, Lexeme { text, .. }) in lexemes.iter().enumerate() {
        depth += nesting(text);
        if depth == 0 && separates(text) {
            parts.push(&lexemes[start..at]);
            separators.push(&**text);
            start = at + 1;
        }
    }
    parts.push(&lexemes[start..]);
    Some((parts, separators))
}

fn is_comma(text: &str) -> bool {
    matches!(text, "," | ";")
}

fn list(lexemes: &[Lexeme]) -> Option<Expr> {
    Some(match elements(lexemes)? {
        (mut parts, _) if parts.len() == 1 => parts.swap_remove(0),
        (parts, false) => Expr::Node(Symbol::List, parts),
        (parts, true) => Expr::Node(Symbol::Or, parts),
    })
}

/// The elements of a list, and whether an `or` stands in it.
fn elements(lexemes: &[Lexeme]) -> Option<(Vec<Expr>, bool)> {
    let is = |text: &str, word| text.eq_ignore_ascii_case(word);
    let joins = |text: &str| is(text, "and") || is(text, "or");
    let (parts, separators) = split(lexemes, |text| is_comma(text) || joins(text))?;
    let mut elements = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        // `1, 2, and 3`
        let is_between = index > 0
            && separators[index - 1] == ","
            && separators.get(index).is_some_and(|text| joins(text));
        if part.is_empty() && is_between {
            continue;
        }
        match element(part)? {
            Expr::Node(Symbol::Or, both) if parts.len() > 1 => elements.extend(both),
            element => elements.push(element),
        }
    }
    let has_or = separators.iter().any(|text| is(text, "or"));
    Some((elements, has_or))
}

/// Signs between the sides of a relation, which of these it is, and whether its sides change places.
const RELATIONS: [(&str, Symbol, bool); 6] = [
    ("=", Symbol::Equal, false),
    ("\\neq", Symbol::Unequal, false),
    ("<", Symbol::Less, false),
    ("\\leq", Symbol::LessOrEqual, false),
    (">", Symbol::Less, true),
    ("\\geq", Symbol::LessOrEqual, true),
];

fn relation(sign: &str, left: Expr, right: Expr) -> Option<Expr> {
    let (_, symbol, is_turned) = RELATIONS.into_iter().find(|(own, ..)| *own == sign)?;
    let sides = if is_turned {
        vec![right, left]
    } else {
        vec![left, right]
    };
    Some(Expr::Node(symbol, sides))
}

/// A relation, or a value.
fn element(lexemes: &[Lexeme]) -> Option<Expr> {
    let is_sign = |text: &str| {
        matches!(text, "\\approx" | "\\in") || RELATIONS.iter().any(|(own, ..)| *own == text)
    };
    let (parts, signs) = split(lexemes, is_sign)?;
    if signs.is_empty() {
        return joined(lexemes);
    }
    if let Some(at) = signs.iter().position(|sign| *sign == "\\approx") {
        // What is about equal comes behind what is equal; a name in front of it is only a name.
        let exact = joined(parts[at]).filter(|value| !is_named(value));
        return exact.or_else(|| joined(parts[at + 1]));
    }
    if signs[0] == "\\in" {
        return joined(parts[1]).filter(|_| signs.len() == 1);
    }
    if signs.iter().any(|sign| *sign != "=") {
        let sides: Option<Vec<Expr>> = parts.into_iter().map(joined).collect();
        let sides = sides?;
        let pairs = signs.iter().zip(sides.windows(2));
        let relations = pairs.map(|(sign, pair)| relation(sign, pair[0].clone(), pair[1].clone()));
        return Some(Expr::of(Symbol::List, relations.collect::<Option<_>>()?));
    }
    let last = joined(parts[parts.len() - 1])?;
    let first = joined(parts[0]).or_else(|| odd_name(parts[0]))?;
    let is_known = |value: &Expr| !value.has_variables() && !is_named(value);
    if signs.len() > 1 && !is_named(&first) || is_known(&first) && is_known(&last) {
        return Some(last);
    }
    Some(equations(first, last))
}

/// Whether this is a name, or a tuple of names.
fn is_named(value: &Expr) -> bool {
    match value {
        Expr::Node(Symbol::Tuple, parts) => parts.iter().all(Expr::is_name),
        other => other.is_name(),
    }
}

/// What cannot be read on the left is a name, such as `\angle A`.
fn odd_name(lexemes: &[Lexeme]) -> Option<Expr> {
    let is_letter = |lexeme: &Lexeme| !is_number(&lexeme.text) && !is_word(&lexeme.text);
    let is_short = (1..=6).contains(&lexemes.len()) && lexemes.iter().all(is_letter);
    let texts: Vec<&str> = lexemes.iter().map(|lexeme| &*lexeme.text).collect();
    (lexemes.len() == 1 || is_short).then(|| Expr::Name(texts.join(" ")))
}

/// An equation; `(x, y) = (1, 2)` and `x = \pm 1` are several.
fn equations(first: Expr, last: Expr) -> Expr {
    let equation = |(first, last)| Expr::Node(Symbol::Equal, vec![first, last]);
    match (first, last) {
        (Expr::Node(Symbol::Tuple, names), Expr::Node(Symbol::Tuple, values))
            if names.len() == values.len() =>
        {
            let pairs = names.into_iter().zip(values);
            Expr::Node(Symbol::List, pairs.map(equation).collect())
        }
        (name, Expr::Node(symbol @ (Symbol::List | Symbol::Or), values)) => {
            let pairs = values.into_iter().map(|value| (name.clone(), value));
            Expr::Node(symbol, pairs.map(equation).collect())
        }
        sides => equation(sides),
    }
}

/// Unions and their like, from left to right.
fn joined(lexemes: &[Lexeme]) -> Option<Expr> {
    let symbol = |text: &str| match text {
        "\\cup" => Some(Symbol::Union),
        "\\cap" => Some(Symbol::Intersection),
        "\\setminus" => Some(Symbol::Difference),
        _ => None,
    };
    let (parts, separators) = split(lexemes, |text| symbol(text).is_some())?;
    if separators.len() > 50 {
        return None;
    }
    let mut value = single(parts[0])?;
    for (part, separator) in parts[1..].iter().zip(separators) {
        value = Expr::Node(symbol(separator)?, vec![value, single(part)?]);
    }
    Some(value)
}

/// The inside of the one pair of brackets that encloses all lexemes.
fn enclosed(lexemes: &[Lexeme]) -> Option<(&str, &[Lexeme], &str)> {
    let [first, inner @ .., last] = lexemes else {
        return None;
    };
    let mut depth = nesting(&first.text);
    for lexeme in inner {
        depth += nesting(&lexeme.text);
        if depth <= 0 {
            return None;
        }
    }
    let is_closed = depth == 1 && nesting(&last.text) < 0;
    is_closed.then_some((&first.text, inner, &last.text))
}

fn single(lexemes: &[Lexeme]) -> Option<Expr> {
    match lexemes {
        [] => return None,
        [only] if only.text == "\\emptyset" => return Some(Expr::Node(Symbol::Set, Vec::new())),
        [only] if only.text == REALS => return Some(Expr::name(REALS)),
        _ => {}
    }
    if let Some(value) = matrix(lexemes) {
        return Some(value);
    }
    if let Some((open, inner, close)) = enclosed(lexemes) {
        let has_commas = !split(inner, is_comma)?.1.is_empty();
        match (open, has_commas) {
            ("\\{", _) | ("{", true) => return set(inner),
            // `[` around an array is a matrix's own.
            ("{" | "(" | "[", false) => {
                if let Some(value) = matrix(inner) {
                    return Some(value);
                }
            }
            ("(" | "[", true) => return bracketed(open, inner, close),
            _ => {}
        }
    }
    quantity(lexemes)
}

/// The inside of braces: elements, or a condition behind a name.
fn set(inner: &[Lexeme]) -> Option<Expr> {
    if inner.is_empty() {
        return Some(Expr::Node(Symbol::Set, Vec::new()));
    }
    let (parts, bars) = split(inner, |text| matches!(text, ":" | "|" | "\\mid"))?;
    if bars.len() == 1 {
        return list(parts[1]);
    }
    Some(Expr::Node(Symbol::Set, elements(inner)?.0))
}

fn bracketed(open: &str, inner: &[Lexeme], close: &str) -> Option<Expr> {
    let (parts, _) = elements(inner)?;
    let is_closed = [open == "[", close == "]"];
    let are_ends = parts.len() == 2 && parts.iter().all(Expr::is_plain);
    Some(match are_ends && is_closed != [false, false] {
        true => Expr::Node(Symbol::Interval(is_closed), parts),
        false => Expr::Node(Symbol::Tuple, parts),
    })
}
