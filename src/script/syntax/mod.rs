//! What the text of a script shows without being compiled: its tokens, the names in them, and operators that mean
//! something else in Python: `//`, and a minus before `**`.
//!
//! A script that compiles has the engine's tree besides; one that is wrong, or is still being typed, has its tokens only.

mod token;

use std::collections::HashSet;
use std::sync::Arc;

pub use self::token::{Token, TokenKind, Unfinished, code, lex, unfinished};
use super::members::ops;
use super::mistake::Mistake;
use crate::diagnostic::{Diagnostic, Span};

/// A token with the code around it.
#[derive(Clone, Copy)]
pub(crate) struct Site<'s, 'a> {
    pub(crate) code: &'s [Token<'a>],
    pub(crate) index: usize,
}

impl<'s, 'a> Site<'s, 'a> {
    /// The text of the token at this distance, negative before this one; empty if there is none.
    pub(crate) fn text(&self, offset: isize) -> &'a str {
        let index = self.index.checked_add_signed(offset);
        let token = index.and_then(|index| self.code.get(index));
        token.map_or("", |token| token.text)
    }

    pub(crate) fn before(&self) -> &'s [Token<'a>] {
        &self.code[..self.index]
    }

    /// Whether it is a function of that name where it is called.
    pub(crate) fn calls(&self, name: &str) -> bool {
        let is_call = matches!(self.text(1), "(" | "()") && self.text(-1) != "fn";
        is_call && self.text(0) == name
    }
}

pub(crate) fn sites<'s, 'a>(code: &'s [Token<'a>]) -> impl Iterator<Item = Site<'s, 'a>> {
    (0..code.len()).map(move |index| Site { code, index })
}

/// The texts of the tokens for which `is_it` holds.
fn texts<'a>(code: &[Token<'a>], is_it: impl Fn(&Site<'_, 'a>) -> bool) -> Vec<&'a str> {
    let found = sites(code).filter(is_it);
    found.map(|site| site.text(0)).collect()
}

/// The keys of map literals.
pub(crate) fn map_keys<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |site| site.text(1) == ":")
}

/// The parameters that a script declares: keys whose values are maps.
pub(crate) fn declared_parameters<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |site| site.text(1) == ":" && site.text(2) == "#{")
}

/// The names that are given to variables, parameters and functions.
pub(crate) fn declared_names<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |site| {
        let (before, after) = (site.text(-1), site.text(1));
        let is_parameter = ["(", ",", "|"].contains(&before) && [",", ")", "|"].contains(&after);
        let is_declared = ["let", "const", "for", "fn"].contains(&before);
        site.code[site.index].kind == TokenKind::Name && (is_declared || is_parameter)
    })
}

/// The most bytes of an operand that a message repeats.
const SHOWN: usize = 40;

/// Operators that mean something else in Python; `knows` tells which names are variables beside those of the text itself.
pub(crate) fn misread_operators(
    source: &Arc<str>,
    text: &Arc<str>,
    knows: &dyn Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let mut found = negated_powers(source, text);
    found.extend(floor_divisions(source, text, knows));
    found
}

/// Every `//` between an expression and what can only be an operand: here it begins a comment, which is dropped.
pub(crate) fn floor_divisions(
    source: &Arc<str>,
    text: &Arc<str>,
    knows: &dyn Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let all = lex(text);
    let declared: HashSet<&str> = declared_names(&all).into_iter().collect();
    let knows = |name: &str| declared.contains(name) || knows(name);
    let functions = all.windows(2).filter(|two| two[0].text == "fn");
    let functions: HashSet<&str> = functions.map(|two| two[1].text).collect();
    let divisions = (1..all.len()).filter_map(|index| {
        let (last, comment) = (&all[index - 1], &all[index]);
        let behind = comment.text.strip_prefix("//")?;
        let ends_operand = matches!(last.kind, TokenKind::Name | TokenKind::Number)
            || matches!(last.text, ")" | "]" | "()");
        if comment.kind != TokenKind::Comment || last.line != comment.line || !ends_operand {
            return None;
        }
        if !continues_expression(&code(behind), &knows, &functions) {
            return None;
        }
        let span = Span {
            length: 2,
            ..comment.span(source, text)
        };
        Some(Mistake::FloorDivision.at(Some(span)))
    });
    divisions.collect()
}

/// Whether a comment's tokens can only be the right side of a division, and what may come after it.
///
/// A comment in words is none: its names are no variables, or two words stand side by side. Neither is a minus (code that
/// was taken out), `(1)` (the number of an equation) or 0.
fn continues_expression(
    tokens: &[Token<'_>],
    knows: &dyn Fn(&str) -> bool,
    functions: &HashSet<&str>,
) -> bool {
    const OPERATORS: &str = "+ - * / % ** == != < <= > >= & | && || . ?.";
    const BRACKETS: &str = "( () ) [ ] { } ,";
    let end = tokens.iter().position(|token| token.text == ";");
    let (tokens, rest) = tokens.split_at(end.unwrap_or(tokens.len()));
    let goes_on = |next: &Token<'_>| next.kind == TokenKind::Keyword || knows(next.text);
    if !rest.get(1).is_none_or(goes_on) {
        return false;
    }
    let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    let is_label = |number: &str| number.starts_with(|c: char| c.is_ascii_digit());
    match texts[..] {
        [] | ["0" | "0.0" | "batch" | "p"] => return false,
        [name] if functions.contains(name) => return false,
        ["(", number, ")"] if is_label(number) => return false,
        // An operand begins with a number, a name or a bracket.
        [first, ..] if !first.starts_with(|c: char| c.is_alphanumeric() || "_(".contains(c)) => {
            return false;
        }
        [.., last] if OPERATORS.split(' ').any(|operator| operator == last) => return false,
        _ => {}
    }
    (0..tokens.len()).all(|index| {
        let (token, next) = (&tokens[index], tokens.get(index + 1));
        let is_called = next.is_some_and(Token::opens_call);
        let is_glued = next.is_some_and(|next| next.start == token.end());
        match token.kind {
            TokenKind::Symbol => {
                let mut known = OPERATORS.split(' ').chain(BRACKETS.split(' '));
                known.any(|symbol| symbol == token.text)
            }
            TokenKind::Negation => true,
            // Two words side by side are none of an expression, nor is a name apart from its arguments.
            _ if next.is_some_and(|next| !matches!(next.kind, TokenKind::Symbol)) => false,
            TokenKind::Name if index > 0 && tokens[index - 1].text == "." => true,
            TokenKind::Name if is_called => {
                is_glued && (knows(token.text) || ops(token.text).next().is_some())
            }
            TokenKind::Name => !functions.contains(token.text) && knows(token.text),
            kind => matches!(kind, TokenKind::Number | TokenKind::String),
        }
    })
}

/// Every minus before an operand of `**` without brackets: here it belongs to the operand, and in Python, Julia and
/// algebra to the power.
fn negated_powers(source: &Arc<str>, text: &Arc<str>) -> Vec<Diagnostic> {
    let code = code(text);
    let powers = (0..code.len()).filter_map(|index| {
        let minus = &code[index];
        let first = match minus.kind {
            TokenKind::Negation => index + 1,
            TokenKind::Number if minus.text.starts_with('-') => index,
            _ => return None,
        };
        let sign = operand_end(&code, first)?;
        code.get(sign).filter(|token| token.text == "**")?;
        let end = operand_end(&code, sign + 1)?;
        let last = code[end - 1].end();
        let operand = |from: usize, to: usize, letter: &str| {
            let words: Vec<&str> = text[from..to].split_whitespace().collect();
            let words = words.join(" ");
            if words.len() > SHOWN {
                letter.to_string()
            } else {
                words
            }
        };
        let base = &operand(minus.start + 1, code[sign - 1].end(), "x");
        let exponent = &operand(code[sign + 1].start, last, "y");
        let whole = text[minus.start..last].lines().next().unwrap_or("-");
        let span = Span {
            length: whole.chars().count(),
            ..minus.span(source, text)
        };
        Some(Mistake::NegatedPower { base, exponent }.at(Some(span)))
    });
    powers.collect()
}

/// The index after the operand that begins at `start`, with its calls, indices and members.
fn operand_end(code: &[Token<'_>], start: usize) -> Option<usize> {
    let mut end = start;
    while matches!(code.get(end)?.text, "!" | "-" | "+") {
        end += 1;
    }
    end = bracket_end(code, end)?;
    while let Some(token) = code.get(end) {
        end = match token.text {
            "." | "?." | "::" => end + 2,
            "(" | "()" | "[" | "?[" => bracket_end(code, end)?,
            _ => break,
        };
    }
    (end <= code.len()).then_some(end)
}

/// The index after this token, or after the bracket that it opens.
fn bracket_end(code: &[Token<'_>], start: usize) -> Option<usize> {
    let mut depth = 0;
    let length = code.get(start..)?.iter().position(|token| {
        depth += token.nesting();
        depth <= 0
    });
    Some(start + length? + 1)
}
