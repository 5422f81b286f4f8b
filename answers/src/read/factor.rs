//! Single factors: numbers, letters, brackets, and commands with their arguments.

use super::super::expr::{Expr, Function, INFINITY, REALS, Symbol};
use super::super::lexeme::{function, is_letter, is_number, is_whole};
use super::Parser;

/// Commands, other than letters and functions, that begin a factor.
const OTHERS: &str = "\\frac \\binom \\sqrt \\root \\lfloor \\lceil \\pi \\infty \\infinity";

pub(super) fn is_command_of_factor(text: &str) -> bool {
    let is_function = text.strip_prefix('\\').and_then(function).is_some();
    is_function || OTHERS.split(' ').any(|own| own == text)
}

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Option<Expr> {
        let text = self.text();
        match text {
            "(" | "[" | "{" | "\\{" | "|" | "\\lfloor" | "\\lceil" => return self.bracketed(),
            "\\begin" => return self.matrix(),
            _ => {}
        }
        let is_rest = self.taken > 0;
        self.advance(1);
        match text {
            _ if is_number(text) && is_rest => Expr::literal(text),
            _ if is_number(text) => self.number(text),
            "f" | "g" | "h" if self.is("(") => {
                Some(Symbol::Unknown(text.to_string()).of([self.primary()?]))
            }
            "\\frac" => Some(self.argument()?.over(self.argument()?)),
            "\\binom" => Some(Function("binom").of([self.argument()?, self.argument()?])),
            "\\sqrt" | "\\root" => self.root(text),
            "\\emptyset" => Some(Symbol::Set.of([])),
            "\\infty" | "\\infinity" => Some(Expr::name(INFINITY)),
            "\\pi" | REALS => Some(Expr::name(text)),
            _ if is_letter(text) => Some(Expr::name(text)),
            _ => self.applied(function(text.strip_prefix('\\')?)?),
        }
    }

    fn root(&mut self, command: &str) -> Option<Expr> {
        let order = if self.is("[") {
            self.bracketed()?
        } else {
            Expr::integer(2)
        };
        let is_plain = self.is("(") || command == "\\root" && is_number(self.text());
        let inside = if is_plain {
            self.nested(Self::primary)?
        } else {
            self.argument()?
        };
        Some(Function("root").of([order, inside]))
    }

    /// Returns a number, which may have a mark of repeating digits: `0.1\overline{6}`, `0.333\ldots`.
    fn number(&mut self, text: &str) -> Option<Expr> {
        let Some((_, fraction)) = text.split_once('.') else {
            return Expr::literal(text);
        };
        if self.take("\\overline") {
            let mut period = self.overlined()?.to_string();
            // In `0.\dot{1}4\dot{2}`, the dots mark the first and the last repeating digit.
            if is_whole(self.text()) && self.ahead(1) == "\\overline" {
                period += self.text();
                self.advance(1);
            }
            if self.take("\\overline") {
                period += self.overlined()?;
            }
            return repeating(text, &period);
        }
        if self.take("\\ldots") {
            // A single digit must occur three times to count as repeating, and several digits twice.
            let repeats = |length: &usize| {
                let (head, period) = fraction.split_at(fraction.len() - length);
                let before = head.strip_suffix(period);
                before.is_some_and(|head| *length > 1 || head.ends_with(period))
            };
            let length = (1..=fraction.len() / 2).find(repeats)?;
            let (head, period) = text.split_at(text.len() - length);
            return repeating(head, period);
        }
        Expr::literal(text)
    }

    /// Returns the digits after `\overline`.
    fn overlined(&mut self) -> Option<&str> {
        let has_brace = self.take("{");
        let digits = self.text();
        self.advance(1);
        (!has_brace || self.take("}")).then_some(digits)
    }

    /// Returns a function with its power, its base and its argument: `\sin^2 x`, `\log_2 8`.
    fn applied(&mut self, function: &'static str) -> Option<Expr> {
        let base = if function == "log" && self.take("_") {
            self.argument()?
        } else {
            // If there is no base, 10 is assumed, although some texts mean the natural logarithm.
            Expr::integer(10)
        };
        let power = if self.take("^") {
            Some(self.exponent()?)
        } else {
            None
        };
        let was_angle = std::mem::replace(&mut self.is_angle, true);
        let argument = if self.is("(") {
            self.nested(Self::primary)?
        } else {
            self.signed(Self::bare_argument)?
        };
        self.is_angle = was_angle;
        let is_inverse = power == Some(Expr::integer(-1));
        let value = match function {
            _ if is_inverse => Function(inverse(function)?).of([argument]),
            "log" if !base.is("e") => Function("log").of([base, argument]),
            "log" => Function("ln").of([argument]),
            _ => Function(function).of([argument]),
        };
        Some(match power.filter(|_| !is_inverse) {
            Some(power) => Function("^").of([value, power]),
            None => value,
        })
    }

    /// Returns an argument without brackets: adjacent factors, up to the next function.
    fn bare_argument(&mut self) -> Option<Expr> {
        let mut product = self.factor()?;
        while self.starts_factor() && self.text().strip_prefix('\\').and_then(function).is_none() {
            product = product.times(self.factor()?);
        }
        Some(product)
    }
}

/// Returns the inverse function: `asin` for `\sin^{-1}`.
fn inverse(name: &str) -> Option<&'static str> {
    function(&format!("a{name}"))
}

/// Returns a decimal whose last digits repeat forever.
fn repeating(head: &str, period: &str) -> Option<Expr> {
    let places = head.split_once('.').filter(|_| is_whole(period))?.1.len();
    let nines = format!("{}{}", "9".repeat(period.len()), "0".repeat(places));
    let tail = Expr::literal(period)?.over(Expr::literal(&nines)?);
    let head = Expr::literal(head.trim_end_matches('.'))?;
    Some(Function("+").of([head, tail]))
}
