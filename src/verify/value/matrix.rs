//! Matrices and other environments of lines.

use super::super::expr::Expr;
use super::super::parse::Parser;
use super::super::token::{Kind, Token};
use super::{Value, list, split};

/// A matrix, with a factor before it; the number that a determinant is; what stands in an environment of lines.
pub(super) fn matrix(tokens: &[Token]) -> Option<Value> {
    let is = |token: &Token, name: &str| matches!(&token.kind, Kind::Command(own) if own == name);
    let begin = tokens.iter().position(|token| is(token, "begin"))?;
    let end = tokens.iter().rposition(|token| is(token, "end"))?;
    let name = |at: usize| match tokens.get(at + 1..at + 4)? {
        [open, word, close] if open.kind == Kind::Sign('{') && close.kind == Kind::Sign('}') => {
            match &word.kind {
                Kind::Word(word) => Some(&**word),
                _ => None,
            }
        }
        _ => None,
    };
    let environment = name(begin).filter(|own| name(end) == Some(own))?;
    let mut body = tokens.get(begin + 4..end)?;
    if end + 4 != tokens.len()
        || body
            .iter()
            .any(|token| is(token, "begin") || is(token, "end"))
    {
        return None;
    }
    if environment == "aligned" || environment == "align" {
        return (begin == 0).then(|| list(body)).flatten();
    }
    if environment == "array" {
        let columns = body
            .iter()
            .position(|token| token.kind == Kind::Sign('}'))?;
        body = &body[columns + 1..];
    }
    let (lines, _) = split(body, |kind| *kind == Kind::Command("\\".to_string()));
    let whole = |cell: &[Token]| {
        let mut parser = Parser::new(cell, 1);
        let expr = parser.expr()?;
        (parser.at == cell.len()).then_some(expr)
    };
    let mut rows = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let (cells, _) = split(line, |kind| *kind == Kind::Sign('&'));
        rows.push(
            cells
                .into_iter()
                .map(whole)
                .collect::<Option<Vec<Expr>>>()?,
        );
    }
    let width = rows.first()?.len();
    if rows.iter().any(|row| row.len() != width) {
        return None;
    }
    if environment == "vmatrix" {
        let [[a, b], [c, d]] = [rows.first()?.get(..2)?, rows.get(1)?.get(..2)?]
            .map(|row| [row[0].clone(), row[1].clone()]);
        let determinant = Expr::Sum(vec![
            Expr::Product(vec![a, d]),
            Expr::Product(vec![b, c]).negated(),
        ]);
        return (rows.len() == 2 && width == 2 && begin == 0).then(|| Value::number(determinant));
    }
    if begin > 0 {
        let factor = whole(&tokens[..begin])?;
        for cell in rows.iter_mut().flatten() {
            *cell = Expr::Product(vec![factor.clone(), cell.clone()]);
        }
    }
    Some(Value::Matrix(rows))
}
