//! Names in front of a value: `|AB| =`, `P(X=1) =`, `\lim_{x\to 0} f(x) =`, but not `xy =` or `2x =`, which are equations of
//! unknowns.

use super::super::expr::Expr;
use super::super::lexeme::{Lexeme, is_letter, is_number};
use super::nesting;

/// Operators, whose terms need no brackets.
const OPERATORS: &str = r"\lim \limsup \liminf \sum \prod \int \iint \oint \max \min \sup \inf \gcd \lcm \deg \det \dim";

/// Functions of several letters in plain text.
const FUNCTIONS: &str = "Pr Var Cov gcd lcm deg det dim max min sup inf arg sgn";

/// The left side of an equation as a name, if it is one that does not read as an expression, or reads as another one.
pub(super) fn label(head: &[Lexeme], side: Option<&Expr>) -> Option<Expr> {
    let is_label = match side {
        None => is_odd_name(head),
        Some(_) => is_applied(head) || is_derivative(head) || is_run_of_word(head),
    };
    let name = || head.iter().map(|lexeme| &*lexeme.text);
    let is_bracket = |text: &&str| nesting(text) == 0;
    is_label.then(|| Expr::name(name().filter(is_bracket).collect::<Vec<_>>().join(" ")))
}

/// Not a product with a number, and no sum unless it is that of an operator.
fn is_odd_name(head: &[Lexeme]) -> bool {
    let mut depth = 0;
    let mut is_behind_angle = false;
    let begins = |own: &str| head.first().is_some_and(|first| first.text == own);
    let is_plain = |lexeme: &Lexeme| {
        let text = &*lexeme.text;
        depth += nesting(text);
        let is_outside = depth == 0;
        let is_free = !is_number(text) || std::mem::replace(&mut is_behind_angle, false);
        is_behind_angle = text == "\\angle";
        !is_outside || is_free && !matches!(text, "+" | "-" | "\\pm" | "\\ldots")
    };
    let is_fraction = begins("\\frac") && head.get(2).is_some_and(|above| is_number(&above.text));
    let is_of_operator = OPERATORS.split(' ').any(begins);
    let is_name = !is_fraction && head.iter().all(is_plain) || is_of_operator;
    !head.is_empty() && head.len() <= 60 && is_name
}

/// A function with its argument in brackets: `P(X=1)`, `E[X]`, `f^{-1}(3)`; `x(x+1)` is a product.
fn is_applied(head: &[Lexeme]) -> bool {
    let open = head
        .iter()
        .position(|lexeme| matches!(&*lexeme.text, "(" | "["));
    let Some((function, argument)) = open.map(|open| head.split_at(open)) else {
        return false;
    };
    let mut depth = 0;
    let end = argument.iter().position(|lexeme| {
        depth += nesting(&lexeme.text);
        depth == 0
    });
    if end.is_none_or(|end| end + 1 < argument.len()) {
        return false;
    }
    let texts: Vec<&str> = function.iter().map(|lexeme| &*lexeme.text).collect();
    let Some((first, power)) = texts.split_first() else {
        return false;
    };
    let inside = &argument[1..argument.len() - 1];
    let letter = first.split('_').next().unwrap_or_default();
    let has_own = inside.iter().any(|lexeme| lexeme.text == *first);
    let is_name = letter.starts_with(char::is_uppercase) || "fghpqrsuvw".contains(letter);
    let is_one =
        |lexeme: &Lexeme| is_number(&lexeme.text) || lexeme.text.starts_with(char::is_uppercase);
    let is_value = inside.len() == 1 && inside.iter().all(is_one);
    let is_greek = letter.starts_with('\\') && inside.len() == 1;
    if is_letter(first) && (power.is_empty() || power[0] == "^") {
        !has_own && (is_name || power.is_empty() && (is_value || is_greek))
    } else {
        let is_run = function.iter().all(|lexeme| lexeme.is_of_run);
        is_run && FUNCTIONS.split(' ').any(|own| own == texts.concat())
    }
}

/// `\frac{dy}{dx}`
fn is_derivative(head: &[Lexeme]) -> bool {
    let text = head.iter().map(|lexeme| &*lexeme.text).collect::<String>();
    text.starts_with("\\frac{d") && text.contains("}{d") && text.ends_with('}')
}

/// `sum`, `Ann`: short letters in a row that have a vowel and are no variables.
fn is_run_of_word(head: &[Lexeme]) -> bool {
    let text = head.iter().map(|lexeme| &*lexeme.text).collect::<String>();
    let lower = text
        .get(1..)
        .is_some_and(|rest| rest.chars().all(char::is_lowercase));
    let is_run = head.len() == 3 && head.iter().all(|lexeme| lexeme.is_of_run);
    let are_variables = |set: &str| text.chars().all(|letter| set.contains(letter));
    is_run
        && lower
        && text.to_lowercase().contains(['a', 'e', 'i', 'o', 'u'])
        && !are_variables("abcd")
}
