//! Finds operators that mean something else in Python: `-x ** y`, and `//`, which begins a comment in a script.

use std::collections::HashSet;
use std::sync::Arc;

use super::engine::bare;
use super::reference::ops;
use super::syntax::{CodeSite, Token, TokenKind, code, declared_names, lex, sites};
use crate::diagnostic::{Diagnostic, Span};

/// Finds operators that mean something else in Python. `knows` says whether a name that is not declared in the text is a
/// variable.
pub(crate) fn misread_operators(
    source: &Arc<str>,
    text: &Arc<str>,
    knows: &dyn Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let code = code(text);
    let minuses = sites(&code).filter(|site| site.token().kind == TokenKind::Negation);
    // In a script, a minus sign binds more tightly than `**`; in Python, Julia and algebra, it applies to the power.
    let powers = minuses
        .filter(|minus| operator_after(&code[minus.index + 1..]) == Some("**"))
        .map(|minus| {
            let error = Diagnostic::error(
                "`-x ** y` is `(-x) ** y` here, and `-(x ** y)` in Python and in algebra",
            );
            let help = "write the brackets: `(-x) ** y` or `-(x ** y)`";
            let place = minus.token().span(source, text);
            error.with_help(help).at(Some(place))
        });
    let divisions = floor_divisions(source, text, knows);
    powers.chain(divisions).collect()
}

/// Returns the first operator, bracket or separator after the operand at the start of `code`. The operand includes its calls,
/// indices and members.
fn operator_after<'a>(code: &[Token<'a>]) -> Option<&'a str> {
    let mut depth = 0;
    let mut rest = code.iter().filter(|token| {
        let is_outside = depth == 0;
        depth += token.nesting();
        is_outside
    });
    let of_operand = [".", "?.", "::", "(", "()", "[", "?[", "!"];
    let ends =
        rest.find(|token| token.kind == TokenKind::Symbol && !of_operand.contains(&token.text));
    ends.map(|token| token.text)
}

/// Finds each `//` between an expression and a probable operand. In Rhai, `//` begins a comment, so no division happens.
pub(crate) fn floor_divisions(
    source: &Arc<str>,
    text: &Arc<str>,
    knows: &dyn Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let all = lex(text);
    let functions: HashSet<&str> = sites(&all)
        .filter(|site| site.text(-1) == "fn")
        .map(|site| site.text(0))
        .collect();
    let declared: HashSet<&str> = declared_names(&all).into_iter().collect();
    let is_variable =
        |name: &str| (declared.contains(name) || knows(name)) && !functions.contains(name);
    let divisions = all.windows(2).filter_map(|two| {
        let (last, comment) = (&two[0], &two[1]);
        let behind = comment.text.strip_prefix("//")?;
        let is_literal = last.kind == TokenKind::String || last.text == "}";
        let is_candidate = last.line == comment.line && last.ends_operand() && !is_literal;
        if !is_candidate || !is_operand(behind, &is_variable) {
            return None;
        }
        let span = Span {
            length: 2,
            ..comment.span(source, text)
        };
        let error = Diagnostic::error("`//` begins a comment here; in Python, it is floor division");
        let help = "write `floor(a / b)`; a comment that looks like an operand belongs on a line of its own";
        Some(error.with_help(help).at(Some(span)))
    });
    divisions.collect()
}

/// Returns whether the text of a comment is probably the right side of a division, perhaps with more code after it: an expression
/// of numbers, known variables and operations. If the text is only a number in brackets, such as the number of an equation, or
/// only 0, `p` or `batch`, it is taken for a comment.
fn is_operand(comment: &str, is_variable: &dyn Fn(&str) -> bool) -> bool {
    let (operand, rest) = comment.split_once(';').unwrap_or((comment, ""));
    let operand = operand.trim_end_matches(['{', ' ']);
    let mut tokens = code(operand);
    let mut open = 0;
    // A closing bracket without an opening bracket here belongs to a bracket before the `//`.
    let closing = tokens.iter().position(|token| {
        open += token.nesting();
        open < 0
    });
    let operand = closing.map_or(operand, |index| &operand[..tokens[index].start]);
    tokens.truncate(closing.unwrap_or(tokens.len()));
    let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    let is_remark = match texts[..] {
        [] | ["0" | "0.0" | "p" | "batch"] => true,
        ["(", number, ")"] => number.starts_with(|c: char| c.is_ascii_digit()),
        [first, ..] => !first.starts_with(|c: char| c.is_alphanumeric() || "_(".contains(c)),
    };
    let goes_on = code(rest)
        .first()
        .is_none_or(|next| next.kind == TokenKind::Keyword || is_variable(next.text));
    let is_known = |site: CodeSite<'_, '_>| {
        let (token, next) = (site.token(), tokens.get(site.index + 1));
        let is_called = next.is_some_and(|next| next.opens_call() && next.start == token.end());
        match token.kind {
            TokenKind::Name if site.text(-1) == "." => true,
            TokenKind::Name if is_called => ops(token.text).next().is_some(),
            TokenKind::Name => is_variable(token.text),
            _ => true,
        }
    };
    let is_expression = || bare().compile_expression(format!("[{operand}]")).is_ok();
    !is_remark && goes_on && sites(&tokens).all(is_known) && is_expression()
}
