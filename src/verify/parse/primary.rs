//! What stands alone: numbers, letters, brackets, and commands with what belongs to them.

use num_bigint::BigInt;

use super::super::expr::{Expr, INFINITY, Symbol};
use super::super::lexeme::{function, is_number, is_whole, letter};
use super::super::number::{quotient, shifted};
use super::Parser;

/// Greek letters that are variables.
const GREEK: &str = "\\alpha \\beta \\gamma \\delta \\epsilon \\varepsilon \\zeta \\eta \\theta \\kappa \\lambda \\mu \\nu \
    \\xi \\rho \\sigma \\tau \\phi \\varphi \\chi \\psi \\omega";

/// Commands that begin a factor, beside letters and functions.
const OTHERS: &str = "\\frac \\binom \\sqrt \\root \\lfloor \\lceil \\pi \\infty \\infinity";

pub(super) fn is_command_of_factor(text: &str) -> bool {
    let mut names = OTHERS.split(' ').chain(GREEK.split(' '));
    text.strip_prefix('\\')
        .is_some_and(|name| function(name).is_some() || names.any(|own| own == text))
}

impl<'t> Parser<'t> {
    pub(super) fn primary(&mut self) -> Option<Expr> {
        let text = self.text();
        if is_number(text) {
            let is_rest = self.taken > 0;
            self.advance(1);
            return if is_rest {
                Expr::literal(text)
            } else {
                self.number(text)
            };
        }
        self.advance(1);
        if let Some(letter) = letter(text) {
            return match matches!(letter, 'f' | 'g' | 'h') && self.is("(") {
                true => Some(Expr::Node(Symbol::Named(letter), vec![self.primary()?])),
                false => self.name(text),
            };
        }
        match text {
            "(" => self.until(")"),
            "[" => self.until("]"),
            "{" => self.braced(),
            "|" => Some(Expr::function("abs", vec![self.until("|")?])),
            "\\lfloor" => Some(Expr::function("floor", vec![self.until("\\rfloor")?])),
            "\\lceil" => Some(Expr::function("ceil", vec![self.until("\\rceil")?])),
            "\\frac" => Some(self.argument()?.over(self.argument()?)),
            "\\binom" => Some(Expr::function(
                "binom",
                vec![self.argument()?, self.argument()?],
            )),
            "\\sqrt" | "\\root" => self.root(text),
            "\\pi" => Some(Expr::name(text)),
            "\\infty" | "\\infinity" => Some(Expr::name(INFINITY)),
            _ if GREEK.split(' ').any(|own| own == text) => self.name(text),
            text => self.applied(function(text.strip_prefix('\\')?)?),
        }
    }

    fn until(&mut self, close: &str) -> Option<Expr> {
        let inner = self.expr()?;
        self.take(close).then_some(inner)
    }

    /// A group, a fraction with `\over`, or a binomial with `\choose`.
    fn braced(&mut self) -> Option<Expr> {
        let above = self.expr()?;
        let inner = if self.take("\\choose") {
            Expr::function("binom", vec![above, self.expr()?])
        } else if self.take("\\over") {
            above.over(self.expr()?)
        } else {
            above
        };
        self.take("}").then_some(inner)
    }

    fn root(&mut self, command: &str) -> Option<Expr> {
        let order = match self.take("[") {
            true => self.until("]")?,
            false => Expr::integer(2),
        };
        let is_plain = self.is("(") || command == "\\root" && is_number(self.text());
        let inside = match is_plain {
            true => self.nested(Self::primary)?,
            false => self.argument()?,
        };
        Some(Expr::function("root", vec![order, inside]))
    }

    /// A number with what makes it repeat: `0.1\overline{6}`, `0.333\ldots`.
    fn number(&mut self, text: &str) -> Option<Expr> {
        let fraction = text.split_once('.').map(|(_, fraction)| fraction);
        let Some(fraction) = fraction else {
            return Expr::literal(text);
        };
        if self.take("\\overline") {
            let has_brace = self.take("{");
            let period = self.text();
            self.advance(1);
            let is_closed = !has_brace || self.take("}");
            return is_closed.then(|| repeating(text, period)).flatten();
        }
        if self.take("\\ldots") {
            let length = (1..=fraction.len() / 2).find(|&length| {
                let (head, period) = fraction.split_at(fraction.len() - length);
                let before = head.strip_suffix(period);
                before.is_some_and(|head| length > 1 || head.ends_with(period))
            })?;
            let (head, period) = text.split_at(text.len() - length);
            return repeating(head, period);
        }
        Expr::literal(text)
    }

    /// A letter with its subscript.
    fn name(&mut self, letter: &str) -> Option<Expr> {
        let mut name = letter.to_string();
        if self.take("_") {
            name.push('_');
            let has_brace = self.take("{");
            loop {
                let text = self.text();
                self.advance(1);
                match text {
                    "" => return None,
                    "}" if has_brace => break,
                    text => name.push_str(text.trim_start_matches('\\')),
                }
                if !has_brace {
                    break;
                }
            }
        }
        Some(Expr::Name(name))
    }

    /// A function with its power, its base and its argument: `\sin^2 x`, `\log_2 8`, `\max(1, 2)`.
    fn applied(&mut self, function: &'static str) -> Option<Expr> {
        let has_base = function == "log" && self.take("_");
        let base = if has_base {
            Some(self.argument()?)
        } else {
            None
        };
        let has_power = self.degree().is_none() && self.take("^");
        let power = if has_power {
            Some(self.exponent()?)
        } else {
            None
        };
        let was_angle = std::mem::replace(&mut self.is_angle, true);
        let mut parts = self.arguments()?;
        self.is_angle = was_angle;
        if parts.len() != 1 && !matches!(function, "gcd" | "lcm" | "max" | "min") {
            return None;
        }
        let is_natural = base.as_ref().is_some_and(|base| base.is("e"));
        if function == "log" && !is_natural {
            // Without a base it is the natural one, or that of ten: nobody can say.
            parts.insert(0, base.unwrap_or(Expr::integer(10)));
        }
        let function = if is_natural { "ln" } else { function };
        let inverse = match function {
            "sin" => Some("asin"),
            "cos" => Some("acos"),
            "tan" => Some("atan"),
            _ => None,
        };
        Some(match power {
            Some(power) if power == Expr::integer(-1) => Expr::function(inverse?, parts),
            Some(power) => Expr::function(function, parts).power(power),
            None => Expr::function(function, parts),
        })
    }

    fn arguments(&mut self) -> Option<Vec<Expr>> {
        let close = match self.text() {
            "(" => ")",
            "\\{" => "\\}",
            _ => return Some(vec![self.bare_argument()?]),
        };
        self.advance(1);
        let mut parts = vec![self.expr()?];
        while self.take(",") {
            parts.push(self.expr()?);
        }
        self.take(close).then_some(parts)
    }
}

/// A decimal whose last digits go on for ever.
fn repeating(head: &str, period: &str) -> Option<Expr> {
    if !is_whole(period) {
        return None;
    }
    let (whole, fraction) = head.split_once('.')?;
    let number = |digits: &str| digits.parse::<BigInt>().ok();
    let nines = number(&"9".repeat(period.len()))?;
    let above = number(&format!("0{whole}{fraction}"))? * &nines + number(period)?;
    let value = quotient(above, nines)?;
    let unit = shifted(1.into(), -(fraction.len() as i32))?;
    quotient(value.numer() * unit.numer(), value.denom() * unit.denom())
        .map(|value| Expr::Number(value, None))
}
