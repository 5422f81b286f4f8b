//! Reads numbers and functions from lexemes.

mod primary;

use super::expr::{Expr, Symbol};
use super::lexeme::{Lexeme, function, is_number, is_whole, is_word, letter};
use super::unit;
use primary::is_command_of_factor;

/// Fractions, roots, powers and brackets inside of each other.
const DEEPEST: usize = 120;

/// Reads expressions; what it does not understand ends one.
pub(super) struct Parser<'t> {
    lexemes: &'t [Lexeme],
    at: usize,
    /// The digits of the number here that have been taken: `\frac12`.
    taken: usize,
    depth: usize,
    /// Steps of chains such as `1/2/3` on one path through what was read: their trees nest to the left.
    steps: usize,
    /// Inside of an angle, where degrees are a number.
    is_angle: bool,
    /// What `\pm` stands for, and whether it was met.
    plus_minus: i64,
    pub(super) has_sign: bool,
}

impl<'t> Parser<'t> {
    pub(super) fn new(lexemes: &'t [Lexeme], plus_minus: i64) -> Self {
        Parser {
            lexemes,
            at: 0,
            taken: 0,
            depth: 0,
            steps: 0,
            is_angle: false,
            plus_minus,
            has_sign: false,
        }
    }

    /// The text of the lexeme here; empty at the end.
    pub(super) fn text(&self) -> &'t str {
        &self.ahead(0)[self.taken..]
    }

    /// The text of one further on.
    fn ahead(&self, count: usize) -> &'t str {
        let lexeme = self.lexemes.get(self.at + count);
        lexeme.map_or("", |lexeme| &lexeme.text)
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.text() == text
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        let is_it = self.is(text);
        if is_it {
            self.advance(1);
        }
        is_it
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.at += count;
        self.taken = 0;
    }

    /// One level further in; `None` where that is too deep.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Expr>) -> Option<Expr> {
        self.depth += 1;
        let found = (self.depth <= DEEPEST).then(|| read(self)).flatten();
        self.depth -= 1;
        found
    }

    /// A chain of factors or powers, of which the steps add up to those of its longest part.
    fn chain(&mut self, read: impl FnOnce(&mut Self) -> Option<Expr>) -> Option<Expr> {
        let beside = std::mem::take(&mut self.steps);
        let found = read(self);
        self.steps = self.steps.max(beside);
        found
    }

    /// One level more on top of what the chain has so far; `None` where that is too deep.
    fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= DEEPEST).then_some(())
    }

    /// A sum of products.
    pub(super) fn expr(&mut self) -> Option<Expr> {
        self.nested(|parser| {
            let mut terms = vec![parser.term()?];
            while let Some(sign) = parser.sign() {
                terms.push(parser.term()?.signed(sign));
            }
            Some(Expr::of(Symbol::Sum, terms))
        })
    }

    /// The expression that all lexemes are.
    pub(super) fn whole(mut self) -> Option<Expr> {
        self.expr().filter(|_| self.is(""))
    }

    fn sign(&mut self) -> Option<i64> {
        let sign = match self.text() {
            "+" => 1,
            "-" => -1,
            "\\pm" => self.plus_minus,
            "\\mp" => -self.plus_minus,
            _ => return None,
        };
        self.has_sign |= self.text().starts_with('\\');
        self.advance(1);
        Some(sign)
    }

    /// A product with its signs.
    fn term(&mut self) -> Option<Expr> {
        let mut sign = 1;
        while let Some(own) = self.sign() {
            sign *= own;
        }
        Some(self.chain(Self::product)?.signed(sign))
    }

    fn product(&mut self) -> Option<Expr> {
        let start = self.at;
        let mut product = self.factor()?;
        // `3\frac12` and `3 1/2` are a sum.
        if self.at == start + 1
            && is_whole(&self.lexemes[start].text)
            && let Some(fraction) = self.fraction_of_digits()
        {
            product = Expr::Node(Symbol::Sum, vec![product, fraction]);
        }
        loop {
            let divides = self.is("/") && !is_word(self.ahead(1));
            if divides || self.is("*") || self.is_cross() {
                self.advance(1);
                let sign = self.sign().unwrap_or(1);
                let factor = self.factor()?.signed(sign);
                if divides || product.symbol() != Some(Symbol::Product) {
                    self.step()?;
                }
                product = match divides {
                    true => product.over(factor),
                    false => product.times(factor),
                };
            } else if self.starts_factor() {
                let factor = self.factor()?;
                if product.symbol() != Some(Symbol::Product) {
                    self.step()?;
                }
                product = product.times(factor);
            } else {
                return Some(product);
            }
        }
    }

    /// `1.5 x 10^3` in plain text.
    fn is_cross(&self) -> bool {
        self.is("x")
            && self.at > 0
            && is_number(&self.lexemes[self.at - 1].text)
            && is_number(self.ahead(1))
    }

    /// `\frac12`, `\frac{1}{2}` or ` 1/2` behind a number: found by its lexemes before it is read.
    fn fraction_of_digits(&mut self) -> Option<Expr> {
        let argument = |at: usize| match [0, 1, 2].map(|more| self.ahead(at + more)) {
            ["{", digits, "}"] if is_whole(digits) => Some(at + 3),
            [digits, ..] if is_whole(digits) && digits.len() == 1 => Some(at + 1),
            _ => None,
        };
        let (above, below) = (self.text(), self.ahead(2));
        let is_apart = self.lexemes.get(self.at).is_some_and(|own| own.is_apart);
        let is_slashed = is_apart && is_whole(above) && self.ahead(1) == "/" && is_whole(below);
        let length = match above {
            _ if is_slashed => 3,
            "\\frac" if self.ahead(1).len() == 2 && is_whole(self.ahead(1)) => 2,
            "\\frac" => argument(1).and_then(argument)?,
            _ => return None,
        };
        if self.ahead(length) == "^" {
            return None;
        }
        if is_slashed {
            self.advance(length);
            return Some(Expr::literal(above)?.over(Expr::literal(below)?));
        }
        self.primary()
    }

    fn starts_factor(&self) -> bool {
        let Some(lexeme) = self.lexemes.get(self.at) else {
            return false;
        };
        let before = self.at.checked_sub(1).map(|at| &self.lexemes[at]);
        // `ab` is a product, `it is 5` is none.
        let is_word = lexeme.is_of_run || before.is_some_and(|before| before.is_of_run);
        if lexeme.is_apart && is_word {
            return false;
        }
        match &*lexeme.text {
            "(" | "{" | "[" => true,
            // `2 3` is no product, `\pi 6` is one.
            text if is_number(text) => !before.is_some_and(|before| is_number(&before.text)),
            text if letter(text).is_some() => !self.is_unit(lexeme),
            text => is_command_of_factor(text),
        }
    }

    /// Whether a letter stands as a unit does: upright or apart, and known as one.
    fn is_unit(&self, lexeme: &Lexeme) -> bool {
        let is_upright = lexeme.is_upright && !matches!(&*lexeme.text, "i" | "e");
        let is_end = matches!(self.ahead(1), "" | "/" | "^" | "}" | ",");
        (is_upright || lexeme.is_apart && is_end)
            && self.at > 0
            && unit::known(&lexeme.text).is_some()
    }

    /// A primary with its powers and exclamation marks.
    fn factor(&mut self) -> Option<Expr> {
        self.nested(|parser| parser.chain(Self::powers))
    }

    fn powers(&mut self) -> Option<Expr> {
        let mut base = self.primary()?;
        loop {
            if let Some(length) = self.degree() {
                if !self.is_angle {
                    return Some(base);
                }
                self.advance(length);
                base = base.times(Expr::name("\\pi")).over(Expr::integer(180));
                self.step()?;
            } else if self.take("^") {
                base = base.power(self.exponent()?);
            } else if self.take("!") {
                let is_double = self.take("!");
                if is_double && self.is("!") {
                    return None;
                }
                let function = if is_double { "!!" } else { "!" };
                base = Expr::function(function, vec![base]);
            } else {
                return Some(base);
            }
            self.step()?;
        }
    }

    /// The length of `^\circ` or `^{\circ}`.
    pub(super) fn degree(&self) -> Option<usize> {
        match [0, 1, 2].map(|count| self.ahead(count)) {
            ["^", "\\circ", _] => Some(2),
            ["^", "{", "\\circ"] => Some(4),
            _ => None,
        }
    }

    fn exponent(&mut self) -> Option<Expr> {
        let sign = if self.take("-") { -1 } else { 1 };
        let exponent = match self.text() {
            text if is_number(text) => {
                self.advance(1);
                let number = Expr::literal(text)?;
                match self.take("^") {
                    true => number.power(self.nested(Self::exponent)?),
                    false => number,
                }
            }
            "(" => self.primary()?,
            _ => self.argument()?,
        };
        Some(exponent.signed(sign))
    }

    /// A group in braces, or one sign: of a number its first digit.
    fn argument(&mut self) -> Option<Expr> {
        if self.take("{") {
            let inner = self.expr()?;
            return self.take("}").then_some(inner);
        }
        let text = self.text();
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

    /// Factors beside each other, up to the next function.
    fn bare_argument(&mut self) -> Option<Expr> {
        let sign = if self.take("-") { -1 } else { 1 };
        let mut product = self.factor()?;
        while self.starts_factor() && self.text().strip_prefix('\\').and_then(function).is_none() {
            product = product.times(self.factor()?);
        }
        Some(product.signed(sign))
    }
}
