//! What an answer says, as one tree: numbers and names are its leaves, sums, lists and intervals its nodes.

use std::collections::BTreeSet;

use num_bigint::BigInt;
use num_rational::BigRational;

use super::value;

pub(super) type Rational = BigRational;

/// How a decimal was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decimal {
    /// Digits behind the point.
    pub(super) places: u32,
    /// Digits from the first that is not 0.
    pub(super) significant: u32,
}

/// What a node makes of its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Symbol {
    /// A function of numbers by its name: `+` and `*` of any count, `^`, `-`, `1/` and `\pm` of one, `sin`, `log` of a base
    /// and a number, `root` of an order and a number, `!` and `!!`.
    Function(&'static str),
    /// A function that nobody knows, such as `f`.
    Unknown(String),
    Percent,
    /// A number in a unit, or in a base.
    Measured(String),
    /// Parts that all hold, without brackets; inequalities such as `1 < x < 2` among them.
    List,
    /// A list with an `or` in it.
    Or,
    Set,
    Tuple,
    /// Which of the two ends belong to it.
    Interval([bool; 2]),
    /// Rows, each a matrix of its cells.
    Matrix,
    /// `\cup`, `\cap` or `\setminus` of two sets.
    Joined(&'static str),
    /// `=`, `\neq`, `<` or `\leq` between two sides.
    Relation(&'static str),
}

pub(super) use Symbol::Function;

impl Symbol {
    pub(super) fn of(self, parts: impl Into<Vec<Expr>>) -> Expr {
        Expr::Node(self, parts.into())
    }

    /// A node of the parts; of one part that part.
    pub(super) fn joined(self, mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => self.of(parts),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// And how it was written, if as a decimal.
    Number(Rational, Option<Decimal>),
    /// A variable, or one of [`CONSTANTS`].
    Name(String),
    Node(Symbol, Vec<Expr>),
}

pub(super) const INFINITY: &str = "\\infty";
pub(super) const REALS: &str = "\\reals";

/// Names that have a meaning of their own.
const CONSTANTS: [&str; 5] = ["\\pi", "e", "i", INFINITY, REALS];

impl Expr {
    pub(super) fn integer(number: i64) -> Expr {
        Expr::Number(Rational::from_integer(number.into()), None)
    }

    /// The number that digits with a point and an exponent are; `None` where the exponent is too large.
    pub(super) fn literal(text: &str) -> Option<Expr> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let digits = format!("{whole}{fraction}");
        let number: BigInt = digits.parse().ok()?;
        let places = fraction.len() as u32;
        let value = value::shifted(number, exponent.checked_sub_unsigned(places)?)?;
        let form = (places > 0 && exponent == 0).then(|| Decimal {
            places,
            significant: digits.trim_start_matches('0').len() as u32,
        });
        Some(Expr::Number(value, form))
    }

    pub(super) fn negated(self) -> Expr {
        match self {
            Expr::Number(value, form) => Expr::Number(-value, form),
            other => Function("-").of([other]),
        }
    }

    pub(super) fn over(self, divisor: Expr) -> Expr {
        self.times(Function("1/").of([divisor]))
    }

    pub(super) fn times(self, factor: Expr) -> Expr {
        match self {
            Expr::Node(Function("*"), mut parts) => {
                parts.push(factor);
                Function("*").of(parts)
            }
            other => Function("*").of([other, factor]),
        }
    }

    pub(super) fn symbol(&self) -> Option<&Symbol> {
        match self {
            Expr::Node(symbol, _) => Some(symbol),
            _ => None,
        }
    }

    pub(super) fn parts(&self) -> &[Expr] {
        match self {
            Expr::Node(_, parts) => parts,
            _ => &[],
        }
    }

    pub(super) fn decimal(&self) -> Option<Decimal> {
        match self {
            Expr::Number(_, form) => *form,
            _ => None,
        }
    }

    /// Whether this is a number or a function of variables, without unit.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Expr::Number(..) => true,
            Expr::Name(name) => name != REALS,
            other => matches!(other.symbol(), Some(Function(_))),
        }
    }

    /// Whether this can be a name: a letter, letters beside each other, a function, a tuple of names.
    pub(super) fn is_name(&self) -> bool {
        match self {
            Expr::Node(Symbol::Unknown(_), _) => true,
            Expr::Node(Function("*") | Symbol::Tuple, parts) => parts.iter().all(Expr::is_name),
            other => other.variable().is_some() || other.is("e") || other.is("i"),
        }
    }

    /// The elements, where one with `\pm` is two.
    pub(super) fn both_signs(elements: Vec<Expr>) -> Vec<Expr> {
        let has_both = |part: &Expr| part.symbol() == Some(&Function("\\pm"));
        let signed = |element: Expr| {
            let other = element
                .walk()
                .any(has_both)
                .then(|| element.clone().with_sign(true));
            std::iter::once(element.with_sign(false)).chain(other)
        };
        elements.into_iter().flat_map(signed).collect()
    }

    /// With a sign for each `\pm`.
    fn with_sign(self, is_minus: bool) -> Expr {
        let Expr::Node(symbol, parts) = self else {
            return self;
        };
        let signed = parts.into_iter().map(|part| part.with_sign(is_minus));
        let mut parts: Vec<Expr> = signed.collect();
        match (symbol == Function("\\pm")).then(|| parts.pop()).flatten() {
            Some(part) if is_minus => part.negated(),
            Some(part) => part,
            None => symbol.of(parts),
        }
    }

    /// Whether this is the constant of a name.
    pub(super) fn is(&self, constant: &str) -> bool {
        matches!(self, Expr::Name(name) if name == constant)
    }

    /// The sign of an infinity, 0 of all else.
    pub(super) fn infinity(&self) -> i32 {
        match self {
            Expr::Node(Function("-"), part) => -i32::from(part[0].is(INFINITY)),
            other => i32::from(other.is(INFINITY)),
        }
    }

    pub(super) fn variable(&self) -> Option<&str> {
        match self {
            Expr::Name(name) if !CONSTANTS.contains(&&**name) => Some(name),
            _ => None,
        }
    }

    /// The variables in expressions, in their order.
    pub(super) fn variables<'e>(exprs: &[&'e Expr]) -> BTreeSet<&'e str> {
        let parts = exprs.iter().flat_map(|expr| expr.walk());
        parts.filter_map(Expr::variable).collect()
    }

    /// This and all parts of it.
    pub(super) fn walk(&self) -> impl Iterator<Item = &Expr> {
        let mut left = vec![self];
        std::iter::from_fn(move || {
            let next = left.pop()?;
            left.extend(next.parts());
            Some(next)
        })
    }
}
