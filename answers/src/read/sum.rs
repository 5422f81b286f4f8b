//! Sums and products of factors, with the units after them.

use num_traits::{Signed, ToPrimitive};

use super::super::expr::{Expr, Function, Number, Symbol};
use super::super::lexeme::{is_letter, is_number, is_whole, is_word};
use super::super::units::unit;
use super::factor::is_command_of_factor;
use super::{Parser, joins};

/// Returns whether this node can be part of a fraction of whole numbers: a number of at least 0, a product or a reciprocal.
fn is_of_digits(part: &Expr) -> bool {
    match &part.symbol {
        Number(value, _) => value.is_integer() && !value.is_negative(),
        symbol => matches!(symbol, Function("*" | "1/")),
    }
}

impl Parser<'_> {
    /// Returns a value with the units and signs after it.
    pub(super) fn quantity(&mut self) -> Option<Expr> {
        let outer = self.currency.take();
        let mut value = self.sum()?;
        let mut parts: Vec<(String, i32)> = Vec::new();
        let (mut sign, mut power, mut unknown, mut is_percent) = (1, 1, 0, false);
        while !self.is_end() {
            if self.take("^") {
                let Number(exponent, None) = self.exponent()?.symbol else {
                    return None;
                };
                let (_, own) = parts.last_mut()?;
                *own = own.checked_mul(exponent.to_i32()?)?;
                continue;
            }
            let is_scale = parts.last().is_some_and(|(part, _)| part == "degree");
            let word = match self.text() {
                "C" if is_scale => "celsius".to_string(),
                "F" if is_scale => "fahrenheit".to_string(),
                text => text.to_lowercase(),
            };
            let name = unit(&word);
            if name.is_none() && !is_word(&word) {
                break;
            }
            self.advance(1);
            match name.unwrap_or(&word) {
                "%" => is_percent = true,
                "/" => sign = -1,
                "square" => power = 2,
                "cubic" => power = 3,
                tens if tens.starts_with("1e") => value = value.times(Expr::literal(tens)?),
                named => {
                    // One unknown word may follow: `12 apples`, but not `12 of them`.
                    unknown += i32::from(name.is_none());
                    (unknown < 2).then_some(())?;
                    for (part, own) in named.split('/').zip([1, -1]) {
                        let singular = part.strip_suffix('s').unwrap_or(part);
                        parts.push((singular.to_string(), own * sign * power));
                    }
                    (sign, power) = (1, 1);
                }
            }
        }
        // `$5`, `5 dollars` and `$5 dollars` are the same.
        let currency = std::mem::replace(&mut self.currency, outer);
        if let Some(currency) = currency.filter(|_| parts.is_empty()) {
            parts.push((currency.to_string(), 1));
        }
        if is_percent {
            value = Symbol::Percent.of([value]);
        }
        if parts.is_empty() {
            return Some(value);
        }
        parts.sort();
        Some(Symbol::Measured(format!("{parts:?}")).of([value]))
    }

    /// Returns a sum of products.
    pub(super) fn sum(&mut self) -> Option<Expr> {
        self.nested(|parser| {
            let mut terms = vec![parser.term()?];
            while let "+" | "-" | "\\pm" | "\\mp" = parser.text() {
                terms.push(parser.term()?);
            }
            Some(Function("+").joined(terms))
        })
    }

    /// Returns a product with its signs, including a currency sign.
    fn term(&mut self) -> Option<Expr> {
        let sign = self.text();
        let currency = unit(sign).filter(|_| matches!(sign, "¤" | "€" | "£" | "¥" | "₹"));
        if currency.is_none() && !matches!(sign, "+" | "-" | "\\pm" | "\\mp") {
            return self.product();
        }
        self.currency = currency.or(self.currency);
        self.advance(1);
        let term = self.nested(Self::term)?;
        Some(match sign {
            "-" => term.negated(),
            "\\pm" => Function("\\pm").of([term]),
            "\\mp" => Function("\\pm").of([term.negated()]),
            _ => term,
        })
    }

    /// Returns a value, with or without a minus before it.
    pub(super) fn signed(&mut self, read: fn(&mut Self) -> Option<Expr>) -> Option<Expr> {
        if self.take("-") {
            Some(read(self)?.negated())
        } else {
            read(self)
        }
    }

    fn product(&mut self) -> Option<Expr> {
        let start = self.at;
        let mut product = self.factor()?;
        let mut is_whole = self.at == start + 1 && is_whole(&self.lexemes[start].text);
        loop {
            let is_per = is_word(self.ahead(1)) && !joins(self.ahead(1));
            let is_divided = self.is("/") && !is_per;
            // In plain text, the `x` of `1.5 x 10^3` is a multiplication sign.
            let is_cross = self.is("x") && is_number(self.ahead(1)) && self.is_behind_number();
            if is_divided || is_cross || self.is("*") {
                self.advance(1);
                let factor = self.signed(Self::factor)?;
                product = if is_divided {
                    product.over(factor)
                } else {
                    product.times(factor)
                };
            } else if let Some(fraction) = self.slashed().filter(|_| is_whole) {
                self.advance(3);
                product = Function("+").of([product, fraction]);
            } else if self.starts_factor() {
                let may_be_mixed = is_whole && self.is("\\frac");
                let factor = self.factor()?;
                // `3\frac12` means a sum.
                product = if may_be_mixed && factor.walk().all(is_of_digits) {
                    Function("+").of([product, factor])
                } else {
                    product.times(factor)
                };
            } else {
                return Some(product);
            }
            is_whole = false;
        }
    }

    fn is_behind_number(&self) -> bool {
        self.at > 0 && is_number(&self.lexemes[self.at - 1].text)
    }

    /// Returns the fraction of a mixed number such as `3 1/2`, unless the fraction has a power.
    fn slashed(&self) -> Option<Expr> {
        let (above, below) = (self.text(), self.ahead(2));
        let is_fraction = is_whole(above) && self.ahead(1) == "/" && is_whole(below);
        let is_mixed = is_fraction && self.lexemes[self.at].is_apart && self.ahead(3) != "^";
        is_mixed.then_some(())?;
        Some(Expr::literal(above)?.over(Expr::literal(below)?))
    }

    pub(super) fn starts_factor(&self) -> bool {
        let Some(lexeme) = self.lexemes.get(self.at) else {
            return false;
        };
        // `ab` is a product, but `it is 5` is not.
        let is_behind_run = self.at > 0 && self.lexemes[self.at - 1].is_of_run;
        if lexeme.is_apart && (lexeme.is_of_run || is_behind_run) {
            return false;
        }
        match &*lexeme.text {
            "(" | "{" | "[" => true,
            // `2 3` is not a product, but `\pi 6` is.
            text if is_number(text) => !self.is_behind_number(),
            text if is_letter(text) => !self.is_unit(),
            text => is_command_of_factor(text),
        }
    }

    /// Returns whether the letter here is a known unit that is upright, or that follows a blank and ends a value.
    fn is_unit(&self) -> bool {
        let lexeme = &self.lexemes[self.at];
        let is_upright = lexeme.is_upright && !matches!(&*lexeme.text, "i" | "e");
        let is_last = matches!(self.ahead(1), "" | "/" | "^" | "}" | ",");
        let is_known = self.at > 0 && unit(&lexeme.text).is_some();
        (is_upright || lexeme.is_apart && is_last) && is_known
    }

    /// Returns a primary with its powers, exclamation marks and degrees: at most four, because each is a level of the tree.
    pub(super) fn factor(&mut self) -> Option<Expr> {
        self.nested(|parser| {
            let mut base = parser.primary()?;
            for _ in 0..5 {
                base = if parser.take("^") {
                    Function("^").of([base, parser.exponent()?])
                } else if parser.take("!") {
                    let is_double = parser.take("!");
                    Function(if is_double { "!!" } else { "!" }).of([base])
                } else if parser.is_angle && parser.take("\\degree") {
                    base.times(Expr::name("\\pi")).over(Expr::integer(180))
                } else {
                    return Some(base);
                };
            }
            None
        })
    }

    pub(super) fn exponent(&mut self) -> Option<Expr> {
        self.signed(|parser| {
            let text = parser.text();
            if !is_number(text) {
                return parser.argument();
            }
            parser.advance(1);
            let exponent = Expr::literal(text)?;
            // `2^3^2` is `2^9`.
            Some(if parser.take("^") {
                Function("^").of([exponent, parser.nested(Self::exponent)?])
            } else {
                exponent
            })
        })
    }

    /// Returns the argument of a command: a group in braces, or the next factor. If a whole number follows, the argument is its
    /// first digit that was not read yet.
    pub(super) fn argument(&mut self) -> Option<Expr> {
        let text = self.text();
        if text == "{" {
            return self.bracketed();
        }
        if !is_number(text) {
            return self.nested(Self::primary);
        }
        if !is_whole(text) || text.len() == 1 {
            self.advance(1);
            return Expr::literal(text);
        }
        self.taken += 1;
        Expr::literal(&text[..1])
    }
}
