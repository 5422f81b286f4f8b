//! Matrices and other environments of lines.

use super::super::expr::{Expr, Symbol};
use super::super::lexeme::{Lexeme, is_word};
use super::super::parse::Parser;
use super::{list, split};

/// A matrix, with a factor before it; the number that a determinant is; what stands in an environment of lines.
pub(super) fn matrix(lexemes: &[Lexeme]) -> Option<Expr> {
    let is = |lexeme: &Lexeme, text: &str| lexeme.text == text;
    let begin = lexemes.iter().position(|lexeme| is(lexeme, "\\begin"))?;
    let end = lexemes.iter().rposition(|lexeme| is(lexeme, "\\end"))?;
    let name = |at: usize| match lexemes.get(at + 1..at + 4)? {
        [open, word, close] if is(open, "{") && is_word(&word.text) && is(close, "}") => {
            Some(&*word.text)
        }
        _ => None,
    };
    let environment = name(begin).filter(|own| name(end) == Some(own))?;
    let mut body = lexemes.get(begin + 4..end)?;
    let has_more = |lexeme: &Lexeme| is(lexeme, "\\begin") || is(lexeme, "\\end");
    if end + 4 != lexemes.len() || body.iter().any(has_more) {
        return None;
    }
    match environment {
        "aligned" | "align" => return (begin == 0).then(|| list(body)).flatten(),
        "array" => body = &body[body.iter().position(|lexeme| is(lexeme, "}"))? + 1..],
        _ => {}
    }
    let (lines, _) = split(body, |text| text == "\\\\")?;
    let (mut cells, mut widths) = (Vec::new(), Vec::new());
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let (row, _) = split(line, |text| text == "&")?;
        widths.push(row.len());
        for cell in row {
            cells.push(Parser::new(cell, 1).whole()?);
        }
    }
    let width = *widths.first()?;
    if widths.iter().any(|own| *own != width) {
        return None;
    }
    if environment == "vmatrix" {
        let [a, b, c, d] = <[Expr; 4]>::try_from(cells).ok()?;
        let parts = vec![a.times(d), b.times(c).negated()];
        return (width == 2 && begin == 0).then_some(Expr::Node(Symbol::Sum, parts));
    }
    if begin > 0 {
        let factor = Parser::new(&lexemes[..begin], 1).whole()?;
        cells = cells
            .into_iter()
            .map(|cell| factor.clone().times(cell))
            .collect();
    }
    Some(Expr::Node(Symbol::Matrix(width), cells))
}
