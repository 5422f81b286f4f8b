//! Operators that mean something else in Python: `//`, and a minus before `**`.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Token, TokenKind, code, declared_names, lex};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::members::ops;
use crate::script::mistake::Mistake;

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
        let behind_code = code(behind);
        if !continues_expression(&behind_code, &knows, &functions) {
            return None;
        }
        let end = behind_code[operand_end(&behind_code, 0)? - 1].end();
        let first = operand_start(&all[..index]);
        let a = shown(&text[all[first].start..last.end()], "a");
        let b = shown(behind[..end].trim(), "b");
        let span = Span {
            length: 2,
            ..comment.span(source, text)
        };
        Some(Mistake::FloorDivision { a, b }.at(Some(span)))
    });
    divisions.collect()
}

/// An operand as a message repeats it: by a letter if it is long.
fn shown<'a>(operand: &'a str, letter: &'a str) -> &'a str {
    match operand.len() {
        ..=SHOWN => operand,
        _ => letter,
    }
}

/// The index of the first token of the operand at the end of some tokens, with its calls, indices and members.
fn operand_start(tokens: &[Token<'_>]) -> usize {
    let mut start = tokens.len();
    loop {
        let last = &tokens[start - 1];
        let mut depth = 0;
        start = tokens[..start]
            .iter()
            .rposition(|token| {
                depth -= token.nesting();
                depth <= 0
            })
            .unwrap_or(0);
        let Some(before) = start.checked_sub(1).map(|before| &tokens[before]) else {
            return 0;
        };
        let is_bracket = |token: &Token<'_>| matches!(token.text, ")" | "]" | "()");
        let is_call = is_bracket(last)
            && (before.kind == TokenKind::Name || is_bracket(before))
            && before.end() == tokens[start].start;
        let is_member = matches!(before.text, "." | "?." | "::");
        match (is_call, is_member) {
            (false, true) if start > 1 => start -= 1,
            (true, _) => {}
            _ => return start,
        }
    }
}

/// Whether a comment's tokens can only be the right side of a division, and what may come after it.
///
/// A comment in words is none: its names are no variables, or no operator stands between them. Neither is a minus (code
/// that was taken out), `(1)` (the number of an equation) or 0.
fn continues_expression(
    tokens: &[Token<'_>],
    knows: &dyn Fn(&str) -> bool,
    functions: &HashSet<&str>,
) -> bool {
    const OPERATORS: &str = "+ - * / % ** == != < <= > >= & | && ||";
    if matches!(tokens, [only] if only.text.parse() == Ok(0.0)) {
        return false;
    }
    let (mut wants_operand, mut depth) = (true, 0);
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1);
        let next_text = next.map_or("", |next| next.text);
        let touches_next = next.is_some_and(|next| next.start == token.end());
        let is_behind = index > 0 && tokens[index - 1].end() == token.start;
        let is_operand = match token.kind {
            TokenKind::Number => depth > 0 || !token.text.starts_with('-'),
            TokenKind::String => depth > 0,
            TokenKind::Name if index > 0 && matches!(tokens[index - 1].text, "." | "?.") => true,
            TokenKind::Name if touches_next && matches!(next_text, "(" | "()") => {
                knows(token.text) || ops(token.text).next().is_some()
            }
            // The name of a function without a call is a word.
            TokenKind::Name => {
                let is_alone = next_text != "." && ["batch", "p"].contains(&token.text);
                !is_alone && !functions.contains(token.text) && knows(token.text)
            }
            _ => false,
        };
        match token.text {
            _ if wants_operand && is_operand => wants_operand = false,
            "(" if wants_operand => {
                let number = next.is_some_and(|next| next.kind == TokenKind::Number);
                let is_label = number && tokens.get(index + 2).is_some_and(|two| two.text == ")");
                if depth == 0 && is_label {
                    return false;
                }
                depth += 1;
            }
            _ if wants_operand => {
                if token.kind != TokenKind::Negation || depth == 0 {
                    return false;
                }
            }
            "." | "?." if is_behind && touches_next => wants_operand = true,
            "()" if is_behind => {}
            "(" | "[" if is_behind => (depth, wants_operand) = (depth + 1, true),
            ")" | "]" => depth -= 1,
            "{" | "}" if depth <= 0 => {}
            ";" if depth <= 0 => {
                return next.is_none_or(|next| next.kind == TokenKind::Keyword || knows(next.text));
            }
            "," => wants_operand = next.is_some(),
            sign => {
                wants_operand = OPERATORS.split(' ').any(|operator| operator == sign);
                if !wants_operand {
                    return false;
                }
            }
        }
    }
    !wants_operand && depth <= 0
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
        let operand = |from: usize, to: usize| {
            let words: Vec<&str> = text[from..to].split_whitespace().collect();
            words.join(" ")
        };
        let base = operand(minus.start + 1, code[sign - 1].end());
        let exponent = operand(code[sign + 1].start, last);
        let whole = text[minus.start..last].lines().next().unwrap_or("-");
        let span = Span {
            length: whole.chars().count(),
            ..minus.span(source, text)
        };
        let (base, exponent) = (shown(&base, "x"), shown(&exponent, "y"));
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
