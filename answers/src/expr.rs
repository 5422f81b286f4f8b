//! The meaning of an answer, as a tree. Numbers and names are its leaves; sums, lists and intervals are inner nodes.

use std::collections::BTreeSet;

use num_bigint::BigInt;

use super::number::{Rational, shifted, whole};

/// The form in which a decimal was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decimal {
    /// The number of digits after the point.
    pub(super) places: u32,
    /// The number of digits, from the first digit that is not 0.
    pub(super) significant: u32,
}

/// The operation that a node applies to its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Symbol {
    /// A number and, for a decimal, the form in which it was written.
    Number(Box<Rational>, Option<Decimal>),
    /// A variable, or one of [`CONSTANTS`].
    Name(String),
    /// A function of numbers, by its name. `+` and `*` have any number of parts; `^`, `binom`, `log` (base, number) and `root`
    /// (order, number) have two parts; `-`, `1/`, `\pm`, `!`, `!!` and named functions such as `sin` have one part.
    Function(&'static str),
    /// A function without a known definition, such as `f`.
    Unknown(String),
    Percent,
    /// A number in a unit, or in a base.
    Measured(String),
    /// A list without brackets, or a chain of inequalities such as `1 < x < 2`, all of which hold.
    List,
    /// A list with an `or` in it.
    Or,
    Set,
    Tuple,
    /// An interval between two ends; the flags say whether each end is included.
    Interval([bool; 2]),
    /// A matrix of rows, each of which is a matrix of cells.
    Matrix,
    /// `\cup`, `\cap` or `\setminus` of two sets.
    Joined(&'static str),
    /// `=`, `\neq`, `<` or `\leq` between two sides.
    Relation(&'static str),
}

pub(super) use Symbol::{Function, Name, Number};

impl Symbol {
    pub(super) fn of(self, parts: impl Into<Vec<Expr>>) -> Expr {
        let parts = parts.into();
        Expr {
            symbol: self,
            parts,
        }
    }

    /// Returns a node with the given parts; a single part is returned as it is.
    pub(super) fn joined(self, mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => self.of(parts),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expr {
    pub(super) symbol: Symbol,
    pub(super) parts: Vec<Expr>,
}

pub(super) const INFINITY: &str = "\\infty";
pub(super) const REALS: &str = "\\reals";

/// Names with a fixed meaning.
const CONSTANTS: [&str; 5] = ["\\pi", "e", "i", INFINITY, REALS];

impl Expr {
    pub(super) fn name(name: impl Into<String>) -> Expr {
        Name(name.into()).of([])
    }

    pub(super) fn integer(number: i64) -> Expr {
        Number(whole(number).into(), None).of([])
    }

    /// Returns the number that a text consists of, with or without a point and an exponent; `None` if the exponent is too large.
    pub(super) fn literal(text: &str) -> Option<Expr> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (before, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let digits = format!("{before}{fraction}");
        let number: BigInt = digits.parse().ok()?;
        let places = fraction.len() as u32;
        let value = shifted(number, exponent.checked_sub_unsigned(places)?)?;
        let form = (places > 0 && exponent == 0).then(|| Decimal {
            places,
            significant: digits.trim_start_matches('0').len() as u32,
        });
        Some(Number(value.into(), form).of([]))
    }

    pub(super) fn negated(self) -> Expr {
        match &self.symbol {
            Number(value, form) => Number((-&**value).into(), *form).of([]),
            _ => Function("-").of([self]),
        }
    }

    pub(super) fn over(self, divisor: Expr) -> Expr {
        self.times(Function("1/").of([divisor]))
    }

    pub(super) fn times(mut self, factor: Expr) -> Expr {
        if self.symbol != Function("*") {
            return Function("*").of([self, factor]);
        }
        self.parts.push(factor);
        self
    }

    pub(super) fn decimal(&self) -> Option<Decimal> {
        match self.symbol {
            Number(_, form) => form,
            _ => None,
        }
    }

    /// Returns whether this is a number, a name, or a function of these, without a unit; false for the set of real numbers.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.symbol, Number(..) | Name(_) | Function(_)) && !self.is(REALS)
    }

    /// Returns whether this can be the name of a value: a letter, points in a row such as `AB`, a ratio or the length `|AB|` of
    /// such points, an unknown function, a trigonometric function of angles, or a tuple of names. Other products and powers of
    /// letters are expressions of unknowns.
    pub(super) fn is_name(&self) -> bool {
        let is_angle = |name: &str| name.starts_with('\\') || name.starts_with(char::is_uppercase);
        match self.symbol {
            Symbol::Unknown(_) => true,
            Symbol::Tuple => self.parts.iter().all(Expr::is_name),
            Function("*") => self.is_of_points(),
            Function("abs") => self.parts[0].is_of_points(),
            // `\sin^2\theta` is a name, but `\sin^2 A = 1` and `\sin^2 x = 1` can be equations.
            Function("^") => {
                let mut names = Expr::variables(&[self]).into_iter();
                let base = &self.parts[0];
                base.variable().is_none()
                    && base.is_name()
                    && names.all(|name| name.starts_with('\\'))
            }
            Function("sin" | "cos" | "tan" | "cot" | "sec" | "csc") => {
                let names = Expr::variables(&[self]);
                !names.is_empty() && names.into_iter().all(is_angle)
            }
            _ => self.variable().is_some() || self.is("e") || self.is("i"),
        }
    }

    /// Returns whether all letters of a product, a ratio or a union name points or sets. Each such letter is a capital or, in a
    /// ratio, may have a subscript instead.
    fn is_of_points(&self) -> bool {
        let is_ratio = self.parts.iter().any(|part| part.symbol == Function("1/"));
        let is_point = |part: &Expr| match part.symbol {
            Function("*" | "1/") | Symbol::Joined(_) => part.is_of_points(),
            _ => part.variable().is_some_and(|name| {
                name.starts_with(char::is_uppercase) || is_ratio && name.contains('_')
            }),
        };
        match self.symbol {
            Name(_) => is_point(self),
            Function("*" | "1/") | Symbol::Joined(_) => self.parts.iter().all(is_point),
            _ => false,
        }
    }

    /// Returns the elements; each element with a `\pm` becomes two elements.
    pub(super) fn both_signs(elements: Vec<Expr>) -> Vec<Expr> {
        let signed = |element: Expr| {
            let has_both = element.walk().any(|part| part.symbol == Function("\\pm"));
            let other = has_both.then(|| element.clone().with_sign(true));
            std::iter::once(element.with_sign(false)).chain(other)
        };
        elements.into_iter().flat_map(signed).collect()
    }

    /// Returns this expression with each `\pm` replaced by a plus, or by a minus if `is_minus`.
    fn with_sign(self, is_minus: bool) -> Expr {
        let signed = self.parts.into_iter().map(|part| part.with_sign(is_minus));
        match self.symbol {
            Function("\\pm") if is_minus => Function("+").joined(signed.collect()).negated(),
            Function("\\pm") => Function("+").joined(signed.collect()),
            symbol => symbol.of(signed.collect::<Vec<Expr>>()),
        }
    }

    /// Returns whether this is the constant with this name.
    pub(super) fn is(&self, constant: &str) -> bool {
        matches!(&self.symbol, Name(name) if name == constant)
    }

    /// Returns 1 for infinity, -1 for minus infinity, and 0 for anything else.
    pub(super) fn infinity(&self) -> i32 {
        match self.symbol {
            Function("-") => -i32::from(self.parts[0].is(INFINITY)),
            _ => i32::from(self.is(INFINITY)),
        }
    }

    pub(super) fn variable(&self) -> Option<&str> {
        match &self.symbol {
            Name(name) if !CONSTANTS.contains(&&**name) => Some(name),
            _ => None,
        }
    }

    /// Returns the variables of the expressions, in alphabetical order.
    pub(super) fn variables<'e>(exprs: &[&'e Expr]) -> BTreeSet<&'e str> {
        let parts = exprs.iter().flat_map(|expr| expr.walk());
        parts.filter_map(Expr::variable).collect()
    }

    /// Returns this expression and its parts at all depths.
    pub(super) fn walk(&self) -> impl Iterator<Item = &Expr> {
        let mut left = vec![self];
        std::iter::from_fn(move || {
            let next = left.pop()?;
            left.extend(&next.parts);
            Some(next)
        })
    }
}
