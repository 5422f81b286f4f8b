//! Reads an answer: lists, relations, sets, tuples, intervals, matrices, numbers with units.

mod factor;
mod sum;

use std::sync::LazyLock;

use regex::Regex;

use super::expr::{Expr, Function, Symbol};
use super::lexeme::{Lexeme, is_number, is_word, lexemes};
use super::text::{self, pattern};
use super::work;

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
        ..Parser::default()
    };
    parser.list().filter(|_| parser.is(""))
}

/// `101_2`, `\text{A1}_{16}`.
fn based(source: &str) -> Option<Expr> {
    static BASED: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^([A-Za-z]*[0-9][0-9A-Za-z]*)_([0-9]{1,2})$"));
    let text = source.replace("\\text", "").replace(['{', '}', ' '], "");
    let found = BASED.captures(&text)?;
    let base: u32 = found[2].parse().ok()?;
    let based = Symbol::Based(found[1].to_uppercase(), base);
    (2..=36).contains(&base).then(|| based.of([]))
}

/// How far a lexeme goes into brackets or out of them.
fn nesting(text: &str) -> i32 {
    match text {
        "(" | "[" | "{" | "\\{" | "\\begin" => 1,
        ")" | "]" | "}" | "\\}" | "\\end" => -1,
        _ => 0,
    }
}

const RELATIONS: [&str; 8] = ["=", "\\neq", "<", "\\leq", ">", "\\geq", "\\approx", "\\in"];
const SET_OPERATORS: [&str; 3] = ["\\cup", "\\cap", "\\setminus"];

fn one_of<const N: usize>(signs: [&'static str; N], text: &str) -> Option<&'static str> {
    signs.into_iter().find(|own| *own == text)
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
        || one_of(RELATIONS, text).is_some()
}

/// Reads the lexemes from one on; what it does not understand ends what it reads. As a copy it is a place to go back to.
#[derive(Clone, Copy, Default)]
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
        Some(symbol.joined(elements))
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
                *self = start;
                self.plus_minus = -1;
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
        while let Some(sign) = one_of(RELATIONS, self.text()) {
            self.advance(1);
            signs.push(sign);
            sides.push(self.side());
        }
        let last = sides.len() - 1;
        let find = |own| signs.iter().position(|sign| *sign == own);
        if let Some(at) = find("\\approx") {
            // What is about equal comes behind what is equal; a name in front of it is only a name.
            let exact = sides[at].take().filter(|value| !is_named(value));
            return exact.or_else(|| sides[at + 1].take());
        }
        if find("\\in").is_some() || last == 0 {
            return sides[last].take().filter(|_| last < 2);
        }
        if signs.iter().any(|sign| *sign != "=") {
            let sides = sides.into_iter().collect::<Option<Vec<Expr>>>()?;
            let pairs = signs.iter().zip(sides.windows(2));
            let relations = pairs.map(|(sign, pair)| {
                let turned = || [pair[1].clone(), pair[0].clone()];
                match *sign {
                    ">" => Symbol::Relation("<").of(turned()),
                    "\\geq" => Symbol::Relation("\\leq").of(turned()),
                    sign => Symbol::Relation(sign).of(pair.to_vec()),
                }
            });
            return Some(Symbol::List.joined(relations.collect()));
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
            let Some(operator) = one_of(SET_OPERATORS, self.text()) else {
                return Some(value);
            };
            self.advance(1);
            value = Symbol::Joined(operator).of([value, self.single()?]);
        }
        None
    }

    /// What is no relation: a set, a tuple, an interval, a matrix, a number with its unit.
    fn single(&mut self) -> Option<Expr> {
        work::look(20)?;
        match self.text() {
            "\\begin" => self.matrix(None),
            // Around an array they are a matrix's own.
            "(" | "[" | "{" if self.ahead(1) == "\\begin" => {
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
            return Some(Symbol::Set.of([]));
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
        Some(symbol.of(parts))
    }

    /// A matrix, with a factor before it; the number that a determinant is; what stands in an environment of lines.
    fn matrix(&mut self, factor: Option<Expr>) -> Option<Expr> {
        let environment = self.environment("\\begin")?;
        if let "align" | "aligned" = environment {
            let inside = self.nested(Self::list).filter(|_| factor.is_none());
            return inside.filter(|_| self.environment("\\end") == Some(environment));
        }
        if environment == "array" {
            while !self.take("}") {
                (!self.is("")).then(|| self.advance(1))?;
            }
        }
        let mut rows = vec![Vec::new()];
        // The factor is made of what is read by now.
        let copied = 30 * self.at as u64;
        while !self.is("\\end") {
            let cell = self.sum()?;
            rows.last_mut()?.push(match &factor {
                Some(factor) => {
                    work::look(copied)?;
                    factor.clone().times(cell)
                }
                None => cell,
            });
            if self.take("\\\\") {
                // Empty rows are none.
                while self.take("\\\\") {}
                if !self.is("\\end") {
                    rows.push(Vec::new());
                }
            } else if !self.is("\\end") {
                (self.take("&") && !self.is("\\end")).then_some(())?;
            }
        }
        (self.environment("\\end") == Some(environment)).then_some(())?;
        if environment != "vmatrix" {
            let rows = rows.into_iter().map(|row| Symbol::Matrix.of(row));
            return Some(Symbol::Matrix.of(rows.collect::<Vec<_>>()));
        }
        let [ab, cd] = <[Vec<Expr>; 2]>::try_from(rows).ok()?;
        let ([a, b], [c, d]) = (ab.try_into().ok()?, cd.try_into().ok()?);
        let value = Function("+").of([a.times(d), b.times(c).signed(-1)]);
        factor.is_none().then_some(value)
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
    let equation = |(first, last)| Symbol::Relation("=").of([first, last]);
    match (first, last) {
        (Expr::Node(Symbol::Tuple, names), Expr::Node(Symbol::Tuple, values))
            if names.len() == values.len() =>
        {
            let pairs = names.into_iter().zip(values);
            Symbol::List.of(pairs.map(equation).collect::<Vec<_>>())
        }
        sides => equation(sides),
    }
}
