//! What an answer says, as one tree: numbers and names are its leaves, sums, lists and intervals its nodes.

use std::collections::BTreeSet;

use num_bigint::BigInt;
use num_rational::BigRational;

use super::number;
use super::unit::Unit;

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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Symbol {
    Sum,
    Product,
    Quotient,
    Power,
    Negative,
    /// A function of numbers: `sin`; `log` of a base and a number; `root` of an order and a number; `!` and `!!`.
    Function(&'static str),
    /// A function that is only a letter, such as f.
    Named(char),
    Percent,
    /// Parts that all hold, without brackets; inequalities such as `1 < x < 2` among them.
    List,
    /// A list with an `or` in it.
    Or,
    Set,
    Tuple,
    /// Which of the two ends belong to it.
    Interval([bool; 2]),
    /// Rows of so many cells.
    Matrix(usize),
    Union,
    Intersection,
    Difference,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    /// Digits, as a name, in a base.
    Based(u32),
}

use Symbol::*;

impl Symbol {
    fn is_of_numbers(self) -> bool {
        matches!(
            self,
            Sum | Product | Quotient | Power | Negative | Function(_) | Named(_)
        )
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// And how it was written, if as a decimal.
    Number(Rational, Option<Decimal>),
    /// A variable, or one of [`CONSTANTS`].
    Name(String),
    Node(Symbol, Vec<Expr>),
    Measured(Box<Expr>, Unit),
}

pub(super) const INFINITY: &str = "\\infty";
pub(super) const REALS: &str = "\\reals";

/// Names that have a meaning of their own.
const CONSTANTS: [&str; 5] = ["\\pi", "e", "i", INFINITY, REALS];

impl Expr {
    pub(super) fn integer(number: i64) -> Expr {
        Expr::Number(Rational::from_integer(number.into()), None)
    }

    pub(super) fn name(name: &str) -> Expr {
        Expr::Name(name.to_string())
    }

    pub(super) fn function(name: &'static str, parts: Vec<Expr>) -> Expr {
        Expr::Node(Function(name), parts)
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
        let value = number::shifted(number, exponent.checked_sub_unsigned(places)?)?;
        let form = (places > 0 && exponent == 0).then(|| Decimal {
            places,
            significant: digits.trim_start_matches('0').len() as u32,
        });
        Some(Expr::Number(value, form))
    }

    pub(super) fn negated(self) -> Expr {
        match self {
            Expr::Number(value, form) => Expr::Number(-value, form),
            Expr::Node(Negative, mut parts) if parts.len() == 1 => parts.swap_remove(0),
            other => Expr::Node(Negative, vec![other]),
        }
    }

    pub(super) fn signed(self, sign: i64) -> Expr {
        if sign < 0 { self.negated() } else { self }
    }

    pub(super) fn power(self, exponent: Expr) -> Expr {
        Expr::Node(Power, vec![self, exponent])
    }

    pub(super) fn over(self, divisor: Expr) -> Expr {
        Expr::Node(Quotient, vec![self, divisor])
    }

    pub(super) fn times(self, factor: Expr) -> Expr {
        match self {
            Expr::Node(Product, mut parts) => {
                parts.push(factor);
                Expr::Node(Product, parts)
            }
            other => Expr::Node(Product, vec![other, factor]),
        }
    }

    /// A node of the parts; of one part that part.
    pub(super) fn of(symbol: Symbol, mut parts: Vec<Expr>) -> Expr {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => Expr::Node(symbol, parts),
        }
    }

    pub(super) fn symbol(&self) -> Option<Symbol> {
        match self {
            Expr::Node(symbol, _) => Some(*symbol),
            _ => None,
        }
    }

    pub(super) fn parts(&self) -> &[Expr] {
        match self {
            Expr::Node(_, parts) => parts,
            Expr::Measured(part, _) => std::slice::from_ref(part),
            _ => &[],
        }
    }

    /// Whether this is a number or a function of variables, without unit.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Expr::Number(..) => true,
            Expr::Name(name) => name != REALS,
            Expr::Node(symbol, _) => symbol.is_of_numbers(),
            Expr::Measured(..) => false,
        }
    }

    /// Whether this can be a name: a letter, letters beside each other, a function of letters.
    pub(super) fn is_name(&self) -> bool {
        let is_letter = |expr: &Expr| expr.variable().is_some() || expr.is("e") || expr.is("i");
        match self {
            Expr::Node(Product | Named(_), parts) => parts.iter().all(is_letter),
            other => is_letter(other),
        }
    }

    /// Whether this is the constant of a name.
    pub(super) fn is(&self, constant: &str) -> bool {
        matches!(self, Expr::Name(name) if name == constant)
    }

    pub(super) fn variable(&self) -> Option<&str> {
        match self {
            Expr::Name(name) if !CONSTANTS.contains(&&**name) => Some(name),
            _ => None,
        }
    }

    /// Adds the variables in it to others.
    pub(super) fn variables<'e>(&'e self, names: &mut BTreeSet<&'e str>) {
        names.extend(self.variable());
        for part in self.parts() {
            part.variables(names);
        }
    }

    pub(super) fn has_variables(&self) -> bool {
        self.any(&|part| part.variable().is_some())
    }

    /// Whether this or a part of it is as asked.
    pub(super) fn any(&self, is_one: &dyn Fn(&Expr) -> bool) -> bool {
        is_one(self) || self.parts().iter().any(|part| part.any(is_one))
    }
}
