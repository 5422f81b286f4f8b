//! Numbers with their units, percent signs and currencies.

use super::super::expr::{Expr, Symbol};
use super::super::lexeme::{Lexeme, is_whole};
use super::super::number;
use super::super::parse::Parser;
use super::super::unit::{self, Unit};

/// A number with what stands around it; of `\pm` both.
pub(super) fn quantity(lexemes: &[Lexeme]) -> Option<Expr> {
    let at = usize::from(lexemes.first().is_some_and(|first| first.text == "-"));
    let currency = lexemes
        .get(at)
        .filter(|lexeme| "¤€£¥₹".contains(&*lexeme.text));
    let without: Vec<Lexeme>;
    let (lexemes, front) = match currency {
        None => (lexemes, Unit::new()),
        Some(currency) => {
            without = [&lexemes[..at], &lexemes[at + 1..]].concat();
            (&*without, unit::parts(&currency.text))
        }
    };
    let (plus, has_sign) = signed(lexemes, 1, &front)?;
    if !has_sign {
        return Some(plus);
    }
    let (minus, _) = signed(lexemes, -1, &front)?;
    Some(Expr::Node(Symbol::Or, vec![plus, minus]))
}

/// With `\pm` for `+` or for `-`, and whether there is one.
fn signed(lexemes: &[Lexeme], sign: i64, front: &Unit) -> Option<(Expr, bool)> {
    let mut parser = Parser::new(lexemes, sign);
    let expr = parser.expr()?;
    let (expr, mut unit) = units(&mut parser, expr)?;
    // `$5` and `5 dollars`, `$5 dollars` too.
    if unit.is_empty() {
        unit.clone_from(front);
    }
    unit.sort();
    let expr = match unit.is_empty() {
        true => expr,
        false => Expr::Measured(Box::new(expr), unit),
    };
    Some((expr, parser.has_sign))
}

/// With the words and signs behind a number, to the end.
fn units(parser: &mut Parser<'_>, mut expr: Expr) -> Option<(Expr, Unit)> {
    let mut unit = Unit::new();
    let (mut sign, mut power, mut unknown, mut is_percent) = (1, 1, 0, false);
    while !parser.is("") {
        if let Some(length) = parser.degree() {
            parser.advance(length);
            unit.extend(unit::parts("degree"));
            continue;
        }
        let text = parser.text().to_lowercase();
        parser.advance(1);
        match &*text {
            "^" => {
                let has_brace = parser.take("{");
                let digits = Some(parser.text()).filter(|text| is_whole(text))?;
                parser.advance(1);
                let (_, power) = unit.last_mut()?;
                *power = power.checked_mul(digits.parse::<i32>().ok()?.clamp(0, 9))?;
                if has_brace && !parser.take("}") {
                    return None;
                }
            }
            "%" | "percent" | "percentage" | "pct" => is_percent = true,
            "points" | "point" if is_percent => {}
            "/" | "per" => sign = -1,
            "square" | "sq" => power = 2,
            "cubic" => power = 3,
            word if unit::power_of_ten(word).is_some() => {
                let ten = Expr::integer(10).power(Expr::integer(unit::power_of_ten(word)?));
                expr = number::folded(expr.times(ten));
            }
            word if word.starts_with(char::is_alphabetic) || "¤€£¥₹¢".contains(word) => {
                // `12 apples`, but not `12 of them`.
                unknown += usize::from(unit::known(word).is_none());
                if unknown > 1 {
                    return None;
                }
                let parts = unit::parts(word).into_iter();
                unit.extend(parts.map(|(name, own)| (name, own * sign * power)));
                (sign, power) = (1, 1);
            }
            _ => return None,
        }
    }
    if is_percent {
        expr = Expr::Node(Symbol::Percent, vec![expr]);
    }
    Some((expr, unit))
}
