//! Reads an answer: numbers with units, lists, sets, tuples, intervals, matrices, relations.

mod matrix;
mod quantity;

use matrix::matrix;
use quantity::quantity;

use super::clean::cleaned;
use super::expr::{Expr, Function};
use super::text;
use super::token::{Kind, Token, tokens};
use super::unit::Unit;

/// Longer answers are compared as texts alone.
pub(super) const LONGEST: usize = 12_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantity {
    pub(super) expr: Expr,
    /// Empty where there is none.
    pub(super) unit: Unit,
    pub(super) is_percent: bool,
}

/// How a relation's sides stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    About,
    In,
}

/// How sets of numbers are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(Quantity),
    /// Without brackets; and whether an `or` stands in it.
    List(Vec<Value>, bool),
    Set(Vec<Value>),
    Tuple(Vec<Value>),
    /// The ends, and which of them belong to it.
    Interval([Expr; 2], [bool; 2]),
    Reals,
    Joined(Join, Box<[Value; 2]>),
    Matrix(Vec<Vec<Expr>>),
    Relation(Vec<Value>, Vec<Order>),
    /// Digits in a base.
    Based(String, u32),
}

impl Value {
    fn number(expr: Expr) -> Value {
        Value::Number(Quantity {
            expr,
            unit: Unit::new(),
            is_percent: false,
        })
    }

    /// The expression of a number without unit.
    pub(super) fn plain(&self) -> Option<&Expr> {
        match self {
            Value::Number(Quantity {
                expr,
                unit,
                is_percent: false,
            }) if unit.is_empty() => Some(expr),
            _ => None,
        }
    }

    /// Whether this can be a name: a letter, letters, a function of letters.
    fn is_name(&self) -> bool {
        let is_letter = |expr: &Expr| matches!(expr, Expr::Variable(_) | Expr::E | Expr::I);
        match self {
            Value::Tuple(parts) => parts.iter().all(Value::is_name),
            other => other.plain().is_some_and(|expr| match expr {
                Expr::Product(parts) | Expr::Call(Function::Named(_), parts) => {
                    parts.iter().all(is_letter)
                }
                other => is_letter(other),
            }),
        }
    }
}

/// What an answer says; `None` where it is no mathematics, or none that can be read.
pub(super) fn read(source: &str) -> Option<Value> {
    if source.len() > LONGEST || text::is_ratio(source) {
        return None;
    }
    let source = cleaned(source);
    if is_words(&source) {
        return None;
    }
    if let Some(based) = based(&source) {
        return Some(based);
    }
    list(&tokens(&source)?)
}

/// Letters alone, with a word among them, are words: `odd` is no product.
fn is_words(source: &str) -> bool {
    let text = source.replace("\\text", " ").replace(['{', '}'], " ");
    let known =
        |word: &str| ["and", "or", "pi", "infinity"].contains(&word) || word.chars().count() < 2;
    text.chars()
        .all(|c| c.is_alphabetic() || c.is_whitespace() || c == ',')
        && !text.split([' ', ',', '\n', '\t']).all(known)
}

/// `101_2`, `\text{A1}_{16}`.
fn based(source: &str) -> Option<Value> {
    let text = source.replace("\\text", "").replace(['{', '}', ' '], "");
    let (digits, base) = text.split_once('_')?;
    let base: u32 = base.parse().ok().filter(|base| (2..=36).contains(base))?;
    let has_digit = digits.bytes().any(|byte| byte.is_ascii_digit());
    let is_digits = digits.len() < 100 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (has_digit && is_digits).then(|| Value::Based(digits.to_uppercase(), base))
}

/// How far a token goes into brackets or out of them.
fn nesting(kind: &Kind) -> i32 {
    match kind {
        Kind::Sign('(' | '[' | '{') => 1,
        Kind::Sign(')' | ']' | '}') => -1,
        Kind::Command(name) if name == "{" || name == "begin" => 1,
        Kind::Command(name) if name == "}" || name == "end" => -1,
        _ => 0,
    }
}

/// The parts between tokens outside of all brackets that separate, and those tokens.
fn split(tokens: &[Token], separates: impl Fn(&Kind) -> bool) -> (Vec<&[Token]>, Vec<&Kind>) {
    let (mut parts, mut separators) = (Vec::new(), Vec::new());
    let (mut start, mut depth) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        depth += nesting(&token.kind);
        if depth == 0 && separates(&token.kind) {
            parts.push(&tokens[start..at]);
            separators.push(&token.kind);
            start = at + 1;
        }
    }
    parts.push(&tokens[start..]);
    (parts, separators)
}

fn is_word(kind: &Kind, name: &str) -> bool {
    matches!(kind, Kind::Word(word) if word.eq_ignore_ascii_case(name))
}

fn list(tokens: &[Token]) -> Option<Value> {
    let is_conjunction = |kind: &Kind| is_word(kind, "and") || is_word(kind, "or");
    let separates = |kind: &Kind| matches!(kind, Kind::Sign(',' | ';')) || is_conjunction(kind);
    let (parts, separators) = split(tokens, separates);
    let has_or = separators.iter().any(|kind| is_word(kind, "or"));
    let mut values = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        // `1, 2, and 3`
        let is_between = index > 0
            && separators
                .get(index)
                .is_some_and(|kind| is_conjunction(kind))
            && *separators[index - 1] == Kind::Sign(',');
        if part.is_empty() && is_between {
            continue;
        }
        match element(part)? {
            Value::List(both, true) if parts.len() > 1 => values.extend(both),
            value => values.push(value),
        }
    }
    Some(match values.len() {
        1 => values.swap_remove(0),
        _ => Value::List(values, has_or),
    })
}

fn order(kind: &Kind) -> Option<Order> {
    Some(match kind {
        Kind::Sign('=') => Order::Equal,
        Kind::Sign('<') => Order::Less,
        Kind::Sign('>') => Order::Greater,
        Kind::Command(name) => match &**name {
            "neq" => Order::Unequal,
            "leq" => Order::LessOrEqual,
            "geq" => Order::GreaterOrEqual,
            "approx" => Order::About,
            "in" => Order::In,
            _ => return None,
        },
        _ => return None,
    })
}

/// A relation, or a value.
fn element(tokens: &[Token]) -> Option<Value> {
    let (parts, separators) = split(tokens, |kind| order(kind).is_some());
    let mut orders: Vec<Order> = separators.into_iter().filter_map(order).collect();
    if orders.is_empty() {
        return joined(tokens);
    }
    if let Some(at) = orders.iter().position(|order| *order == Order::About) {
        // What is about equal comes behind what is equal; a name in front of it is only a name.
        let before = parts[..=at].last().filter(|part| !part.is_empty());
        let exact = before
            .and_then(|part| joined(part))
            .filter(|value| !value.is_name());
        return exact.or_else(|| joined(parts[at + 1]));
    }
    if orders[0] == Order::In {
        return joined(parts[1]).filter(|_| orders.len() == 1);
    }
    let last = joined(parts.last()?)?;
    let is_equation = orders.iter().all(|order| *order == Order::Equal);
    // What cannot be read on the left is a name, such as `\angle A`.
    let first = joined(parts[0]).or_else(|| {
        let is_letter = |token: &Token| !matches!(token.kind, Kind::Number(..) | Kind::Word(_));
        let is_short = is_equation
            && (parts[0].len() == 1
                || (1..=6).contains(&parts[0].len()) && parts[0].iter().all(is_letter));
        let name = || {
            format!(
                "{:?}",
                parts[0].iter().map(|token| &token.kind).collect::<Vec<_>>()
            )
        };
        is_short.then(|| Value::number(Expr::Variable(name())))
    })?;
    if is_equation {
        let has_variables = |value: &Value| {
            let mut count = 0;
            if let Some(expr) = value.plain() {
                expr.each_variable(&mut |_| count += 1);
            }
            count > 0 || value.is_name()
        };
        if orders.len() > 1 && !first.is_name() || !has_variables(&first) && !has_variables(&last) {
            return Some(last);
        }
        return spread(first, last);
    }
    let mut sides = vec![first];
    for part in &parts[1..parts.len() - 1] {
        sides.push(joined(part)?);
    }
    sides.push(last);
    // `3 > x > 1` is read from the least on.
    let is_falling = |order: &Order| matches!(order, Order::Greater | Order::GreaterOrEqual);
    if orders.iter().all(is_falling) {
        sides.reverse();
        orders.reverse();
        orders.iter_mut().for_each(|order| {
            *order = match order {
                Order::Greater => Order::Less,
                _ => Order::LessOrEqual,
            };
        });
    }
    Some(Value::Relation(sides, orders))
}

/// An equation; `(x, y) = (1, 2)` and `x = \pm 1` are several.
fn spread(first: Value, last: Value) -> Option<Value> {
    let equation =
        |first: Value, last: Value| Value::Relation(vec![first, last], vec![Order::Equal]);
    Some(match (first, last) {
        (Value::Tuple(names), Value::Tuple(values)) if names.len() == values.len() => {
            let pairs = names.into_iter().zip(values);
            Value::List(
                pairs.map(|(name, value)| equation(name, value)).collect(),
                false,
            )
        }
        (name, Value::List(values, is_or)) => {
            let each = values
                .into_iter()
                .map(|value| equation(name.clone(), value));
            Value::List(each.collect(), is_or)
        }
        (first, last) => equation(first, last),
    })
}

/// Unions and their like, from left to right.
fn joined(tokens: &[Token]) -> Option<Value> {
    let join = |kind: &Kind| match kind {
        Kind::Command(name) => match &**name {
            "cup" => Some(Join::Union),
            "cap" => Some(Join::Intersection),
            "setminus" => Some(Join::Difference),
            _ => None,
        },
        _ => None,
    };
    let (parts, separators) = split(tokens, |kind| join(kind).is_some());
    if separators.len() > 50 {
        return None;
    }
    let mut value = single(parts[0])?;
    for (part, separator) in parts[1..].iter().zip(separators) {
        value = Value::Joined(join(separator)?, Box::new([value, single(part)?]));
    }
    Some(value)
}

/// Whether one pair of brackets encloses all tokens.
fn is_enclosed(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let ends = |token: &Token| {
        depth += nesting(&token.kind);
        depth <= 0
    };
    tokens.len() > 1
        && nesting(&tokens[0].kind) > 0
        && tokens.iter().position(ends) == Some(tokens.len() - 1)
}

fn single(tokens: &[Token]) -> Option<Value> {
    let [first, middle @ ..] = tokens else {
        return None;
    };
    if let Kind::Command(name) = &first.kind
        && middle.is_empty()
    {
        match &**name {
            "emptyset" => return Some(Value::Set(Vec::new())),
            "reals" => return Some(Value::Reals),
            _ => {}
        }
    }
    if let Some(value) = matrix(tokens) {
        return Some(value);
    }
    if is_enclosed(tokens) {
        let inner = &tokens[1..tokens.len() - 1];
        let close = &tokens[tokens.len() - 1].kind;
        let has_commas = split(inner, |kind| matches!(kind, Kind::Sign(',' | ';')))
            .0
            .len()
            > 1;
        match &first.kind {
            Kind::Command(name) if name == "{" => return set(inner),
            Kind::Sign('{') if has_commas => return set(inner),
            // `[` around an array is a matrix's own.
            Kind::Sign('{' | '(' | '[') if !has_commas => {
                if let Some(value) = matrix(inner) {
                    return Some(value);
                }
            }
            Kind::Sign(open @ ('(' | '[')) if has_commas => return bracketed(*open, inner, close),
            _ => {}
        }
    }
    quantity(tokens)
}

fn elements(tokens: &[Token]) -> Option<Vec<Value>> {
    Some(match list(tokens)? {
        Value::List(values, _) => values,
        value => vec![value],
    })
}

/// The inside of braces: elements, or a condition behind a name.
fn set(inner: &[Token]) -> Option<Value> {
    if inner.is_empty() {
        return Some(Value::Set(Vec::new()));
    }
    let is_bar = |kind: &Kind| {
        matches!(kind, Kind::Sign(':' | '|')) || *kind == Kind::Command("mid".to_string())
    };
    let (parts, bars) = split(inner, is_bar);
    if bars.len() == 1 {
        return list(parts[1]);
    }
    Some(Value::Set(elements(inner)?))
}

fn bracketed(open: char, inner: &[Token], close: &Kind) -> Option<Value> {
    let values = elements(inner)?;
    let is_closed = [open == '[', *close == Kind::Sign(']')];
    let ends = match &values[..] {
        [from, to] => from.plain().zip(to.plain()),
        _ => None,
    };
    Some(match ends {
        Some((from, to)) if is_closed != [false, false] => {
            Value::Interval([from.clone(), to.clone()], is_closed)
        }
        _ => Value::Tuple(values),
    })
}
