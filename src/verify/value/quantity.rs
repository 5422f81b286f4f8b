//! Numbers with their units, percent signs and currencies.

use super::super::expr::Expr;
use super::super::parse::Parser;
use super::super::token::{Kind, Token};
use super::super::unit::{self, Unit};
use super::{Quantity, Value};

/// A number with what stands around it.
pub(super) fn quantity(tokens: &[Token]) -> Option<Value> {
    let currencies = ['¤', '€', '£', '¥', '₹'];
    let currency = |token: &Token| match token.kind {
        Kind::Sign(sign) if currencies.contains(&sign) => Some(unit::parts(&sign.to_string())),
        _ => None,
    };
    let at = usize::from(matches!(
        tokens.first().map(|token| &token.kind),
        Some(Kind::Sign('-'))
    ));
    let front = tokens.get(at).and_then(currency);
    let mut tokens = tokens.to_vec();
    if front.is_some() {
        tokens.remove(at);
    }
    let (plus, has_sign) = signed(&tokens, 1)?;
    let with_unit = |mut quantity: Quantity| {
        if let Some(front) = &front {
            // `$5` and `5 dollars`, `$5 dollars` too.
            if quantity.unit.is_empty() {
                quantity.unit.clone_from(front);
            }
        }
        Value::Number(quantity)
    };
    if !has_sign {
        return Some(with_unit(plus));
    }
    let (minus, _) = signed(&tokens, -1)?;
    Some(Value::List(vec![with_unit(plus), with_unit(minus)], true))
}

/// With `\pm` for `+` or for `-`, and whether there is one.
fn signed(tokens: &[Token], sign: i64) -> Option<(Quantity, bool)> {
    let mut parser = Parser::new(tokens, sign);
    let expr = parser.expr()?;
    let mut quantity = Quantity {
        expr,
        unit: Unit::new(),
        is_percent: false,
    };
    units(&mut parser, &mut quantity)?;
    quantity.unit.sort();
    (parser.at == tokens.len()).then_some((quantity, parser.has_sign))
}

/// The words and signs behind a number.
fn units(parser: &mut Parser<'_>, quantity: &mut Quantity) -> Option<()> {
    let (mut sign, mut power, mut unknown) = (1, 1, 0);
    while let Some(kind) = parser.peek() {
        if parser.is_degree() {
            parser.at += if parser.tokens[parser.at + 1].kind == Kind::Sign('{') {
                4
            } else {
                2
            };
            quantity.unit.extend(unit::parts("degree"));
            continue;
        }
        parser.at += 1;
        let word = match kind {
            Kind::Word(word) => word.to_lowercase(),
            Kind::Letter(letter) => letter.to_string(),
            Kind::Sign('%') => "percent".to_string(),
            Kind::Sign('/') => "per".to_string(),
            Kind::Sign(sign) if "¤€£¥₹¢".contains(*sign) => sign.to_string(),
            Kind::Sign('^') => {
                let has_brace = parser.take_sign('{');
                let Some(Kind::Number(digits, _)) = parser.peek() else {
                    return None;
                };
                parser.at += 1;
                quantity.unit.last_mut()?.1 *= digits.parse::<i32>().ok()?.clamp(0, 9);
                if has_brace && !parser.take_sign('}') {
                    return None;
                }
                continue;
            }
            _ => return None,
        };
        match &*word {
            "percent" | "percentage" | "pct" => quantity.is_percent = true,
            "points" | "point" if quantity.is_percent => {}
            "per" => sign = -1,
            "square" | "sq" => power = 2,
            "cubic" => power = 3,
            word => match unit::power_of_ten(word) {
                Some(ten) => {
                    let factor = Expr::literal(&format!("1e{ten}"))?;
                    let expr = std::mem::replace(&mut quantity.expr, Expr::Pi);
                    let value = Expr::Product(vec![expr, factor]);
                    quantity.expr = value
                        .exact()
                        .map_or(value, |value| Expr::Number(value, None));
                }
                None => {
                    // `12 apples`, but not `12 of them`.
                    unknown += usize::from(unit::known(word).is_none());
                    if unknown > 1 {
                        return None;
                    }
                    let parts = unit::parts(word).into_iter();
                    quantity
                        .unit
                        .extend(parts.map(|(name, own)| (name, own * sign * power)));
                    (sign, power) = (1, 1);
                }
            },
        }
    }
    Some(())
}
