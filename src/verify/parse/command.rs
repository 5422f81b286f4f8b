//! Commands with what belongs to them: fractions, roots, functions.

use super::super::expr::{Expr, Function};
use super::super::token::Kind;
use super::{Parser, times};

/// Greek letters that are variables.
const GREEK: &str = "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi varphi \
    chi psi omega";

fn is_greek(name: &str) -> bool {
    GREEK.split(' ').any(|own| own == name)
}

impl Parser<'_> {
    pub(super) fn factor_of_command(&mut self) -> Option<Expr> {
        let Kind::Command(name) = self.peek()? else {
            return None;
        };
        self.at += 1;
        match &**name {
            "frac" => {
                let above = self.argument()?;
                Some(above.over(self.argument()?))
            }
            "binom" => {
                let above = self.argument()?;
                Some(Expr::Call(
                    Function::Binomial,
                    vec![above, self.argument()?],
                ))
            }
            "sqrt" | "root" => {
                let mut order = Expr::integer(2);
                if self.take_sign('[') {
                    order = self.expr()?;
                    if !self.take_sign(']') {
                        return None;
                    }
                }
                let inside = match (&**name, self.peek()?) {
                    (_, Kind::Sign('(')) | ("root", Kind::Number(..)) => self.atom()?,
                    _ => self.argument()?,
                };
                Some(Expr::Call(Function::Root, vec![order, inside]))
            }
            "lfloor" | "lceil" => {
                let inner = self.expr()?;
                let (close, function) = match &**name {
                    "lfloor" => ("rfloor", Function::Floor),
                    _ => ("rceil", Function::Ceil),
                };
                self.take_command(close)
                    .then(|| Expr::Call(function, vec![inner]))
            }
            "pi" => Some(Expr::Pi),
            "infty" | "infinity" => Some(Expr::Infinity),
            name if is_greek(name) => {
                let subscript = self.subscript()?;
                Some(Expr::Variable(format!("{name}{subscript}")))
            }
            name => self.applied(Function::of(name)?),
        }
    }

    /// A function with its power, its base and its argument: `\sin^2 x`, `\log_2 8`, `\max(1, 2)`.
    fn applied(&mut self, function: Function) -> Option<Expr> {
        let mut base = None;
        if function == Function::Log && self.take_sign('_') {
            base = Some(self.argument()?);
        }
        let mut exponent = None;
        if self.is_sign('^') && !self.is_degree() {
            self.at += 1;
            exponent = Some(self.exponent()?);
        }
        let was_angle = std::mem::replace(&mut self.is_angle, true);
        let mut parts = self.arguments()?;
        self.is_angle = was_angle;
        let takes_several = matches!(
            function,
            Function::Gcd | Function::Lcm | Function::Max | Function::Min
        );
        if parts.len() != 1 && !takes_several {
            return None;
        }
        let function = match function {
            // Without a base it is the natural one, or that of ten: nobody can say.
            Function::Log if base == Some(Expr::E) => Function::of("ln")?,
            Function::Log => {
                parts.insert(0, base.unwrap_or(Expr::integer(10)));
                Function::Log
            }
            function => function,
        };
        let minus_one = Expr::integer(-1);
        match exponent {
            Some(power) if power == minus_one => {
                let inverse = ["sin", "cos", "tan"]
                    .into_iter()
                    .find(|name| Function::of(name) == Some(function))?;
                let inverse = Function::of(&format!("a{inverse}"))?;
                Some(Expr::Call(inverse, parts))
            }
            Some(power) => Some(Expr::Call(function, parts).power(power)),
            None => Some(Expr::Call(function, parts)),
        }
    }

    fn arguments(&mut self) -> Option<Vec<Expr>> {
        let close = if self.take_sign('(') {
            Some(Kind::Sign(')'))
        } else if self.take_command("{") {
            Some(Kind::Command("}".to_string()))
        } else {
            None
        };
        let Some(close) = close else {
            return Some(vec![self.bare_argument()?]);
        };
        let mut parts = vec![self.expr()?];
        while self.take_sign(',') {
            parts.push(self.expr()?);
        }
        if self.peek()? != &close {
            return None;
        }
        self.at += 1;
        Some(parts)
    }

    /// Factors beside each other, up to the next function.
    fn bare_argument(&mut self) -> Option<Expr> {
        let sign = self.take_sign('-');
        let mut product = self.factor()?;
        loop {
            let ends = match self.peek() {
                Some(Kind::Command(name)) => Function::of(name).is_some(),
                _ => false,
            };
            if ends || !self.starts_factor() {
                break;
            }
            let factor = self.factor()?;
            product = times(product, factor);
        }
        Some(if sign { product.negated() } else { product })
    }
}

/// Whether a command begins a factor.
pub(super) fn is_factor(name: &str) -> bool {
    let others = "frac binom sqrt root lfloor lceil pi infty infinity";
    others.split(' ').any(|own| own == name) || is_greek(name) || Function::of(name).is_some()
}
