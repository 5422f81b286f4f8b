//! Reads an answer: lists, relations, sets, tuples, intervals, matrices, numbers with units.

mod factor;
mod sum;

use super::expr::{Expr, REALS, Symbol};
use super::lexeme::{Lexeme, is_number, is_word, lexemes};
use super::{text, work};

/// Longer answers are compared as texts alone.
pub(super) const LONGEST: usize = 10_500;

/// Fractions, roots, powers and brackets inside of each other; what follows an operand, or unions, in one chain.
const DEEPEST: usize = 120;

/// What a cleaned answer says; `None` where it is no mathematics, or none that can be read.
pub(super) fn read(text: &str) -> Option<Expr> {
    if text.len() > LONGEST || text::is_ratio(text) || text::is_words(text) {
        return None;
    }
    if let Some(based) = based(text) {
        return Some(based);
    }
    let lexemes = lexemes(text)?;
    let mut parser = Parser {
        lexemes: &lexemes,
        at: 0,
        taken: 0,
        depth: 0,
        is_angle: false,
        plus_minus: 1,
        has_plus_minus: false,
        currency: None,
    };
    parser.list().filter(|_| parser.is(""))
}

/// `101_2`, `\text{A1}_{16}`.
fn based(source: &str) -> Option<Expr> {
    let text = source.replace("\\text", "").replace(['{', '}', ' '], "");
    let (digits, base) = text.split_once('_')?;
    let base: u32 = base.parse().ok().filter(|base| (2..=36).contains(base))?;
    let has_digit = digits.bytes().any(|byte| byte.is_ascii_digit());
    let is_digits = digits.len() < 100 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let digits = vec![Expr::Word(digits.to_uppercase())];
    (has_digit && is_digits).then_some(Expr::Node(Symbol::Based(base), digits))
}

/// How far a lexeme goes into brackets or out of them.
fn nesting(text: &str) -> i32 {
    match text {
        "(" | "[" | "{" | "\\{" | "\\begin" => 1,
        ")" | "]" | "}" | "\\}" | "\\end" => -1,
        _ => 0,
    }
}

/// The relation of a sign, and whether its sides change places.
fn relation(sign: &str) -> Option<(&'static str, bool)> {
    Some(match sign {
        "=" => ("=", false),
        "\\neq" => ("\\neq", false),
        "<" => ("<", false),
        "\\leq" => ("\\leq", false),
        ">" => ("<", true),
        "\\geq" => ("\\leq", true),
        "\\approx" => ("\\approx", false),
        "\\in" => ("\\in", false),
        _ => return None,
    })
}

fn set_operator(sign: &str) -> Option<&'static str> {
    let mut all = ["\\cup", "\\cap", "\\setminus"].into_iter();
    all.find(|own| *own == sign)
}

fn joins(text: &str) -> bool {
    text.eq_ignore_ascii_case("and") || text.eq_ignore_ascii_case("or")
}

fn is_comma(text: &str) -> bool {
    matches!(text, "," | ";")
}

/// Whether a condition follows, inside of braces.
fn is_bar(text: &str) -> bool {
    matches!(text, ":" | "|" | "\\mid")
}

/// Whether one side of a relation cannot go on here.
fn is_end(text: &str) -> bool {
    text.is_empty()
        || is_comma(text)
        || joins(text)
        || nesting(text) < 0
        || relation(text).is_some()
}

/// Reads the lexemes from one on; what it does not understand ends what it reads. As a copy it is a place to go back to.
#[derive(Clone, Copy)]
struct Parser<'t> {
    lexemes: &'t [Lexeme],
    at: usize,
    /// The digits of the number here that have been taken: `\frac12`.
    taken: usize,
    depth: usize,
    /// Inside of an angle, where degrees are a number.
    is_angle: bool,
    /// What `\pm` stands for, and whether it was met.
    plus_minus: i64,
    has_plus_minus: bool,
    /// The sign that stood before a number.
    currency: Option<&'static str>,
}

impl<'t> Parser<'t> {
    /// The text of the lexeme here; empty at the end.
    fn text(&self) -> &'t str {
        &self.ahead(0)[self.taken..]
    }

    /// The text of one further on.
    fn ahead(&self, count: usize) -> &'t str {
        let lexeme = self.lexemes.get(self.at + count);
        lexeme.map_or("", |lexeme| &lexeme.text)
    }

    fn is(&self, text: &str) -> bool {
        self.text() == text
    }

    fn take(&mut self, text: &str) -> bool {
        let is_it = self.is(text);
        if is_it {
            self.advance(1);
        }
        is_it
    }

    fn advance(&mut self, count: usize) {
        self.at += count;
        self.taken = 0;
    }

    fn list(&mut self) -> Option<Expr> {
        let (elements, has_or) = self.elements()?;
        let symbol = if has_or { Symbol::Or } else { Symbol::List };
        Some(Expr::of(symbol, elements))
    }

    /// The elements of a list, and whether an `or` stands in it; one with `\pm` is two.
    fn elements(&mut self) -> Option<(Vec<Expr>, bool)> {
        let (mut elements, mut has_or) = (Vec::new(), false);
        let outer = (self.plus_minus, self.has_plus_minus);
        loop {
            let start = *self;
            (self.plus_minus, self.has_plus_minus) = (1, false);
            elements.push(self.element()?);
            if self.has_plus_minus {
                *self = Parser {
                    plus_minus: -1,
                    ..start
                };
                elements.push(self.element()?);
            }
            let has_comma = self.take(",") || self.take(";");
            let has_word = joins(self.text());
            if has_word {
                has_or |= self.text().eq_ignore_ascii_case("or");
                self.advance(1);
            }
            if !has_comma && !has_word {
                break;
            }
        }
        (self.plus_minus, self.has_plus_minus) = outer;
        Some((elements, has_or))
    }

    /// A relation, or a value.
    fn element(&mut self) -> Option<Expr> {
        let start = self.at;
        let (mut sides, mut signs) = (vec![self.side()], Vec::new());
        let head = &self.lexemes[start..self.at];
        while let Some(sign) = relation(self.text()) {
            self.advance(1);
            signs.push(sign);
            sides.push(self.side());
        }
        let last = sides.len() - 1;
        let find = |own| signs.iter().position(|(sign, _)| *sign == own);
        if let Some(at) = find("\\approx") {
            // What is about equal comes behind what is equal; a name in front of it is only a name.
            let exact = sides[at].take().filter(|value| !is_named(value));
            return exact.or_else(|| sides[at + 1].take());
        }
        if find("\\in").is_some() || last == 0 {
            return sides[last].take().filter(|_| last < 2);
        }
        if signs.iter().any(|(sign, _)| *sign != "=") {
            let sides = sides.into_iter().collect::<Option<Vec<Expr>>>()?;
            let pairs = signs.iter().zip(sides.windows(2));
            let relations = pairs.map(|((sign, is_turned), pair)| {
                let mut pair = pair.to_vec();
                if *is_turned {
                    pair.reverse();
                }
                Expr::Node(Symbol::Relation(sign), pair)
            });
            return Some(Expr::of(Symbol::List, relations.collect()));
        }
        let first = sides[0].take().or_else(|| odd_name(head))?;
        let last = sides[last].take()?;
        let is_known = |value: &Expr| Expr::variables(&[value]).is_empty() && !is_named(value);
        if signs.len() > 1 && !is_named(&first) || is_known(&first) && is_known(&last) {
            return Some(last);
        }
        Some(equations(first, last))
    }

    /// One side of a relation, or nothing up to the end of what cannot be read.
    fn side(&mut self) -> Option<Expr> {
        let start = *self;
        if let Some(value) = self.joined().filter(|_| is_end(self.text())) {
            return Some(value);
        }
        *self = start;
        let mut depth = 0;
        while !self.is("") && (depth > 0 || !is_end(self.text())) {
            depth += nesting(self.text());
            self.advance(1);
        }
        work::look(4 * (self.at - start.at) as u64)?;
        None
    }

    /// Unions and their like, from left to right.
    fn joined(&mut self) -> Option<Expr> {
        let mut value = self.single()?;
        for _ in 0..DEEPEST / 2 {
            let Some(operator) = set_operator(self.text()) else {
                return Some(value);
            };
            self.advance(1);
            value = Expr::Node(Symbol::Joined(operator), vec![value, self.single()?]);
        }
        None
    }

    /// What is no relation: a set, a tuple, an interval, a matrix, a number with its unit.
    fn single(&mut self) -> Option<Expr> {
        work::look(20)?;
        let text = self.text();
        let behind = self.ahead(1);
        match text {
            "\\emptyset" => {
                self.advance(1);
                Some(Expr::Node(Symbol::Set, Vec::new()))
            }
            REALS => {
                self.advance(1);
                Some(Expr::Name(text.to_string()))
            }
            "\\begin" => self.matrix(None),
            // Around an array they are a matrix's own.
            "(" | "[" | "{" if behind == "\\begin" => {
                self.advance(1);
                let matrix = self.matrix(None)?;
                (nesting(self.text()) < 0).then(|| self.advance(1))?;
                Some(matrix)
            }
            "\\{" => self.bracketed(),
            "(" | "[" | "{" if !self.inside(is_comma)?.is_empty() => self.bracketed(),
            _ => {
                let value = self.quantity()?;
                match self.is("\\begin") {
                    true => self.matrix(Some(value)),
                    false => Some(value),
                }
            }
        }
    }

    /// Where such lexemes stand inside of the bracket here, and not further in.
    fn inside(&self, is_one: fn(&str) -> bool) -> Option<Vec<usize>> {
        let (mut found, mut depth) = (Vec::new(), 0);
        for (at, lexeme) in self.lexemes.iter().enumerate().skip(self.at) {
            depth += nesting(&lexeme.text);
            if depth == 0 {
                work::look(4 * (at - self.at) as u64)?;
                break;
            }
            if depth == 1 && is_one(&lexeme.text) {
                found.push(at);
            }
        }
        Some(found)
    }

    /// A tuple, an interval, or a set: its elements, or a condition behind a name.
    fn bracketed(&mut self) -> Option<Expr> {
        let open = self.text();
        let is_set = open.ends_with('{');
        let closes_set = |parser: &mut Self| parser.take("\\}") || parser.take("}");
        if is_set && let [bar] = self.inside(is_bar)?[..] {
            self.at = bar + 1;
            return self.list().filter(|_| closes_set(self));
        }
        self.advance(1);
        if is_set && closes_set(self) {
            return Some(Expr::Node(Symbol::Set, Vec::new()));
        }
        let (parts, _) = self.elements()?;
        let close = self.text();
        self.advance(1);
        let is_closed = [open == "[", close == "]"];
        let are_ends = parts.len() == 2 && parts.iter().all(Expr::is_plain);
        let symbol = match close {
            "}" | "\\}" if is_set => Symbol::Set,
            ")" | "]" if !is_set && are_ends && is_closed != [false, false] => {
                Symbol::Interval(is_closed)
            }
            ")" | "]" if !is_set => Symbol::Tuple,
            _ => return None,
        };
        Some(Expr::Node(symbol, parts))
    }

    /// A matrix, with a factor before it; the number that a determinant is; what stands in an environment of lines.
    fn matrix(&mut self, factor: Option<Expr>) -> Option<Expr> {
        let environment = self.environment("\\begin")?;
        if environment.starts_with("align") {
            let inside = self.list().filter(|_| factor.is_none());
            return inside.filter(|_| self.environment("\\end") == Some(environment));
        }
        if environment == "array" {
            while !self.take("}") {
                (!self.is("")).then(|| self.advance(1))?;
            }
        }
        let (mut cells, mut widths) = (Vec::new(), vec![0]);
        while !self.is("\\end") {
            let cell = self.sum()?;
            cells.push(match &factor {
                Some(factor) => factor.clone().times(cell),
                None => cell,
            });
            *widths.last_mut()? += 1;
            if self.take("\\\\") && !self.is("\\end") {
                widths.push(0);
            } else {
                (self.take("&") || self.is("\\end")).then_some(())?;
            }
        }
        let width = widths[0];
        let is_closed = self.environment("\\end") == Some(environment);
        if !is_closed || widths.iter().any(|own| *own != width) || width == 0 {
            return None;
        }
        if environment == "vmatrix" {
            let [a, b, c, d] = <[Expr; 4]>::try_from(cells).ok()?;
            let parts = vec![a.times(d), b.times(c).signed(-1)];
            return (width == 2 && factor.is_none()).then(|| Expr::function("+", parts));
        }
        Some(Expr::Node(Symbol::Matrix(width), cells))
    }

    /// The name of an environment that begins or ends.
    fn environment(&mut self, mark: &str) -> Option<&'t str> {
        let is_mark = self.take(mark) && self.take("{");
        let name = self.text();
        self.advance(1);
        (is_mark && is_word(name) && self.take("}")).then_some(name)
    }
}

/// Whether this is a name, or a tuple of names.
fn is_named(value: &Expr) -> bool {
    match value {
        Expr::Node(Symbol::Tuple, parts) => parts.iter().all(Expr::is_name),
        other => other.is_name(),
    }
}

/// What cannot be read on the left is a name, such as `\angle A`.
fn odd_name(lexemes: &[Lexeme]) -> Option<Expr> {
    let is_letter = |lexeme: &Lexeme| !is_number(&lexeme.text) && !is_word(&lexeme.text);
    let is_short = (1..=6).contains(&lexemes.len()) && lexemes.iter().all(is_letter);
    let texts: Vec<&str> = lexemes.iter().map(|lexeme| &*lexeme.text).collect();
    (lexemes.len() == 1 || is_short).then(|| Expr::Name(texts.join(" ")))
}

/// An equation; `(x, y) = (1, 2)` is several.
fn equations(first: Expr, last: Expr) -> Expr {
    let equation = |(first, last)| Expr::Node(Symbol::Relation("="), vec![first, last]);
    match (first, last) {
        (Expr::Node(Symbol::Tuple, names), Expr::Node(Symbol::Tuple, values))
            if names.len() == values.len() =>
        {
            let pairs = names.into_iter().zip(values);
            Expr::Node(Symbol::List, pairs.map(equation).collect())
        }
        sides => equation(sides),
    }
}
