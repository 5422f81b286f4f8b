//! Reads an expression from tokens.

mod command;

use command::is_factor;

use super::expr::{Decimal, Expr, Function, Rational};
use super::token::{Kind, Token};
use super::unit;

/// Brackets, fractions and roots inside of each other.
const DEEPEST: usize = 120;

/// Reads expressions from a slice of tokens; what it does not understand ends one.
pub(super) struct Parser<'t> {
    pub(super) tokens: &'t [Token],
    pub(super) at: usize,
    /// A number whose first digits have been taken: `\frac12`.
    split: Option<&'t str>,
    depth: usize,
    /// Inside of an angle, where degrees are a number.
    is_angle: bool,
    /// What `\pm` stands for, and whether it was met.
    sign: i64,
    pub(super) has_sign: bool,
}

impl<'t> Parser<'t> {
    pub(super) fn new(tokens: &'t [Token], sign: i64) -> Self {
        Parser {
            tokens,
            at: 0,
            split: None,
            depth: 0,
            is_angle: false,
            sign,
            has_sign: false,
        }
    }

    pub(super) fn peek(&self) -> Option<&'t Kind> {
        Some(&self.tokens.get(self.at)?.kind)
    }

    pub(super) fn is_sign(&self, sign: char) -> bool {
        self.peek() == Some(&Kind::Sign(sign))
    }

    pub(super) fn is_command(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Kind::Command(own)) if own == name)
    }

    pub(super) fn take_sign(&mut self, sign: char) -> bool {
        let is_it = self.is_sign(sign);
        self.at += usize::from(is_it);
        is_it
    }

    pub(super) fn take_command(&mut self, name: &str) -> bool {
        let is_it = self.is_command(name);
        self.at += usize::from(is_it);
        is_it
    }

    /// A sum of products.
    pub(super) fn expr(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut terms = vec![self.term()?];
        loop {
            let sign = if self.take_sign('+') {
                1
            } else if self.take_sign('-') {
                -1
            } else if let Some(sign) = self.plus_minus() {
                sign
            } else {
                break;
            };
            let term = self.term()?;
            terms.push(if sign < 0 { term.negated() } else { term });
        }
        self.depth -= 1;
        Some(match terms.len() {
            1 => terms.swap_remove(0),
            _ => Expr::Sum(terms),
        })
    }

    fn plus_minus(&mut self) -> Option<i64> {
        let sign = match self.take_command("pm") {
            true => self.sign,
            false => self.take_command("mp").then_some(-self.sign)?,
        };
        self.has_sign = true;
        Some(sign)
    }

    /// A product with its signs.
    fn term(&mut self) -> Option<Expr> {
        let mut sign = 1;
        loop {
            if self.take_sign('-') {
                sign = -sign;
            } else if let Some(own) = self.plus_minus() {
                sign *= own;
            } else if !self.take_sign('+') {
                break;
            }
        }
        let product = self.product()?;
        Some(if sign < 0 { product.negated() } else { product })
    }

    fn product(&mut self) -> Option<Expr> {
        let mut product = self.mixed()?;
        loop {
            if self.take_sign('*') {
                let factor = self.signed_factor()?;
                product = times(product, factor);
            } else if self.is_cross() {
                self.at += 1;
                let factor = self.signed_factor()?;
                product = times(product, factor);
            } else if self.is_sign('/') && !self.is_unit_behind() {
                self.at += 1;
                let divisor = self.signed_factor()?;
                product = product.over(divisor);
            } else if self.starts_factor() {
                let factor = self.factor()?;
                product = times(product, factor);
            } else {
                return Some(product);
            }
        }
    }

    /// `1.5 x 10^3` in plain text.
    fn is_cross(&self) -> bool {
        let around = [self.at.wrapping_sub(1), self.at + 1].map(|at| self.tokens.get(at));
        let is_number = |token: Option<&Token>| {
            matches!(
                token,
                Some(Token {
                    kind: Kind::Number(..),
                    ..
                })
            )
        };
        let is_letter = matches!(self.peek(), Some(Kind::Letter('x')));
        is_letter && around.into_iter().all(is_number)
    }

    fn signed_factor(&mut self) -> Option<Expr> {
        match self.take_sign('-') {
            true => Some(self.factor()?.negated()),
            false => {
                self.take_sign('+');
                self.factor()
            }
        }
    }

    /// A number with a fraction behind it, `3\frac12` or `3 1/2`, is their sum; else a factor.
    fn mixed(&mut self) -> Option<Expr> {
        let start = self.at;
        let whole = self.whole_number();
        if let Some(whole) = whole
            && let Some(fraction) = self.fraction_of_numbers()
        {
            return Some(Expr::Sum(vec![whole, fraction]));
        }
        self.at = start;
        self.split = None;
        self.factor()
    }

    fn whole_number(&mut self) -> Option<Expr> {
        let Kind::Number(text, _) = self.peek()? else {
            return None;
        };
        self.at += 1;
        let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
        is_whole.then(|| Expr::literal(text)).flatten()
    }

    fn fraction_of_numbers(&mut self) -> Option<Expr> {
        let fraction = if self.is_command("frac") {
            if !self.is_fraction_of_digits() {
                return None;
            }
            self.factor_of_command()?
        } else {
            let is_apart = self.tokens.get(self.at).is_some_and(|token| token.is_apart);
            let numerator = self.whole_number().filter(|_| is_apart)?;
            if !self.take_sign('/') {
                return None;
            }
            numerator.over(self.whole_number()?)
        };
        let is_number = |expr: &Expr| matches!(expr, Expr::Number(value, _) if value.is_integer());
        let is_plain = match &fraction {
            Expr::Quotient(a, b) => is_number(a) && is_number(b),
            _ => false,
        };
        (is_plain && !self.is_sign('^')).then_some(fraction)
    }

    /// `\frac12`, `\frac{1}{2}`: found by its tokens, as what is in it must not be read twice.
    fn is_fraction_of_digits(&self) -> bool {
        let kind = |at: usize| self.tokens.get(at).map(|token| &token.kind);
        let mut at = self.at + 1;
        for _ in 0..2 {
            match (kind(at), kind(at + 1), kind(at + 2)) {
                (Some(Kind::Number(digits, _)), ..) => {
                    // Two digits are both of them.
                    if digits.len() > 1 {
                        return digits.len() == 2 && at == self.at + 1;
                    }
                    at += 1;
                }
                (Some(Kind::Sign('{')), Some(Kind::Number(..)), Some(Kind::Sign('}'))) => at += 3,
                _ => return false,
            }
        }
        true
    }

    /// Whether a `/` stands before a unit: `12 m/s`.
    fn is_unit_behind(&self) -> bool {
        matches!(
            self.tokens.get(self.at + 1),
            Some(Token {
                kind: Kind::Word(_),
                ..
            })
        )
    }

    fn starts_factor(&self) -> bool {
        let Some(token) = self.tokens.get(self.at) else {
            return false;
        };
        let before = self.at.checked_sub(1).map(|at| &self.tokens[at]);
        // `ab` is a product, `it is 5` is none.
        let is_word = token.is_of_run || before.is_some_and(|before| before.is_of_run);
        if token.is_apart && is_word {
            return false;
        }
        match &token.kind {
            Kind::Letter(_) => !self.is_unit(token),
            Kind::Word(_) => false,
            Kind::Sign(sign) => matches!(sign, '(' | '{' | '['),
            // `2 3` is no product, `\pi 6` is one.
            Kind::Number(..) => {
                !before.is_some_and(|before| matches!(before.kind, Kind::Number(..)))
            }
            Kind::Command(name) => is_factor(name),
        }
    }

    /// Whether a letter stands as a unit does: upright or apart, and known as one.
    fn is_unit(&self, token: &Token) -> bool {
        let Kind::Letter(letter) = token.kind else {
            return false;
        };
        let name = letter.to_string();
        let is_upright = token.is_upright && letter != 'i' && letter != 'e';
        let is_behind = token.is_apart && self.at > 0;
        let next = self.tokens.get(self.at + 1).map(|token| &token.kind);
        let is_end = matches!(next, None | Some(Kind::Sign('/' | '^' | '}' | ',')));
        (is_upright || is_behind && is_end) && self.at > 0 && unit::known(&name).is_some()
    }

    /// A primary with its powers and exclamation marks.
    fn factor(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut base = self.primary()?;
        loop {
            if self.is_sign('^') {
                if self.is_degree() {
                    if !self.is_angle {
                        break;
                    }
                    self.at += if self
                        .tokens
                        .get(self.at + 1)
                        .is_some_and(|token| token.kind == Kind::Sign('{'))
                    {
                        4
                    } else {
                        2
                    };
                    base = Expr::Product(vec![base, Expr::Pi]).over(Expr::integer(180));
                    continue;
                }
                self.at += 1;
                base = base.power(self.exponent()?);
            } else if self.take_sign('!') {
                let is_double = self.take_sign('!');
                if is_double && self.is_sign('!') {
                    return None;
                }
                let function = if is_double {
                    Function::DoubleFactorial
                } else {
                    Function::Factorial
                };
                base = Expr::Call(function, vec![base]);
            } else {
                break;
            }
        }
        self.depth -= 1;
        Some(base)
    }

    /// `^\circ` or `^{\circ}`.
    pub(super) fn is_degree(&self) -> bool {
        let kind = |ahead: usize| self.tokens.get(self.at + ahead).map(|token| &token.kind);
        let is_circle =
            |kind: Option<&Kind>| matches!(kind, Some(Kind::Command(name)) if name == "circ");
        self.is_sign('^')
            && (is_circle(kind(1)) || kind(1) == Some(&Kind::Sign('{')) && is_circle(kind(2)))
    }

    fn exponent(&mut self) -> Option<Expr> {
        let is_negative = self.take_sign('-');
        let exponent = match self.peek()? {
            Kind::Sign('{') => self.argument()?,
            Kind::Number(text, _) => {
                self.at += 1;
                let number = Expr::literal(text)?;
                match self.take_sign('^') {
                    true => number.power(self.nested_exponent()?),
                    false => number,
                }
            }
            Kind::Sign('(') => self.primary()?,
            _ => self.argument()?,
        };
        Some(if is_negative {
            exponent.negated()
        } else {
            exponent
        })
    }

    fn nested_exponent(&mut self) -> Option<Expr> {
        self.depth += 1;
        let exponent = (self.depth <= DEEPEST).then(|| self.exponent()).flatten()?;
        self.depth -= 1;
        Some(exponent)
    }

    /// A group in braces, or one sign: of a number its first digit.
    fn argument(&mut self) -> Option<Expr> {
        if self.split.is_none() && self.take_sign('{') {
            let inner = self.expr()?;
            return self.take_sign('}').then_some(inner);
        }
        let Kind::Number(text, _) = self.peek()? else {
            return self.atom();
        };
        let digits = self.split.take().unwrap_or(text);
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain || digits.len() == 1 {
            self.at += 1;
            return Expr::literal(digits);
        }
        self.split = Some(&digits[1..]);
        Expr::literal(&digits[..1])
    }

    /// A primary without what is behind it.
    fn atom(&mut self) -> Option<Expr> {
        self.depth += 1;
        let atom = (self.depth <= DEEPEST).then(|| self.primary()).flatten()?;
        self.depth -= 1;
        Some(atom)
    }

    fn primary(&mut self) -> Option<Expr> {
        let token = self.tokens.get(self.at)?;
        match &token.kind {
            Kind::Number(text, _) => {
                let digits = self.split.take();
                self.at += 1;
                match digits {
                    Some(digits) => Expr::literal(digits),
                    None => self.number(text),
                }
            }
            Kind::Letter(letter) => {
                self.at += 1;
                self.letter(*letter)
            }
            Kind::Sign(open @ ('(' | '{' | '[')) => {
                self.at += 1;
                let inner = self.expr()?;
                if *open == '{' && self.take_command("choose") {
                    let below = self.expr()?;
                    return self
                        .take_sign('}')
                        .then(|| Expr::Call(Function::Binomial, vec![inner, below]));
                }
                if *open == '{' && self.take_command("over") {
                    let below = self.expr()?;
                    return self.take_sign('}').then(|| inner.over(below));
                }
                let close = match open {
                    '(' => ')',
                    '{' => '}',
                    _ => ']',
                };
                self.take_sign(close).then_some(inner)
            }
            Kind::Sign('|') => {
                self.at += 1;
                let inner = self.expr()?;
                self.take_sign('|')
                    .then(|| Expr::Call(Function::Abs, vec![inner]))
            }
            Kind::Command(_) => self.factor_of_command(),
            _ => None,
        }
    }

    /// A number with what makes it repeat: `0.1\overline{6}`, `0.333\ldots`.
    fn number(&mut self, text: &str) -> Option<Expr> {
        let overline = self.is_command("overline") && text.contains('.');
        if overline {
            self.at += 1;
            let has_brace = self.take_sign('{');
            let Kind::Number(period, _) = self.peek()? else {
                return None;
            };
            self.at += 1;
            if has_brace && !self.take_sign('}') {
                return None;
            }
            return repeating(text, period);
        }
        if text.contains('.') && self.is_command("ldots") {
            self.at += 1;
            let (_, fraction) = text.split_once('.')?;
            let period = (1..=fraction.len() / 2).find(|&length| {
                let (head, period) = fraction.split_at(fraction.len() - length);
                let before = head.strip_suffix(period);
                before.is_some_and(|head| length > 1 || head.ends_with(period))
            })?;
            let (head, period) = text.split_at(text.len() - period);
            return repeating(head, period);
        }
        Expr::literal(text)
    }

    fn letter(&mut self, letter: char) -> Option<Expr> {
        if matches!(letter, 'f' | 'g' | 'h') && self.is_sign('(') {
            let inner = self.primary()?;
            return Some(Expr::Call(Function::Named(letter), vec![inner]));
        }
        let subscript = self.subscript()?;
        Some(match letter {
            'e' if subscript.is_empty() => Expr::E,
            'i' if subscript.is_empty() => Expr::I,
            letter => Expr::Variable(format!("{letter}{subscript}")),
        })
    }

    /// The text of a subscript; empty where there is none.
    fn subscript(&mut self) -> Option<String> {
        if !self.take_sign('_') {
            return Some(String::new());
        }
        let has_brace = self.take_sign('{');
        let mut text = String::from("_");
        loop {
            match self.peek()? {
                Kind::Number(digits, _) => text.push_str(digits),
                Kind::Letter(letter) => text.push(*letter),
                Kind::Word(word) | Kind::Command(word) => text.push_str(word),
                Kind::Sign('}') if has_brace => {
                    self.at += 1;
                    return Some(text);
                }
                Kind::Sign(sign) => text.push(*sign),
            }
            self.at += 1;
            if !has_brace {
                return Some(text);
            }
        }
    }
}

fn times(a: Expr, b: Expr) -> Expr {
    match a {
        Expr::Product(mut parts) => {
            parts.push(b);
            Expr::Product(parts)
        }
        a => Expr::Product(vec![a, b]),
    }
}

/// A decimal whose last digits go on for ever.
fn repeating(head: &str, period: &str) -> Option<Expr> {
    if period.is_empty() || !period.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let places = head.split_once('.')?.1.len();
    let nines = Expr::literal(&"9".repeat(period.len()))?.exact()?;
    let unit = Expr::literal(&format!("1e-{places}"))?.exact()?;
    let head = head.strip_suffix('.').unwrap_or(head);
    let value: Rational =
        Expr::literal(head)?.exact()? + Expr::literal(period)?.exact()? / nines * unit;
    Some(Expr::Number(value, None::<Decimal>))
}
