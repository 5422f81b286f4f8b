//! Reads an answer: lists, relations, unions, and matrices; [`sum`] and [`factor`] read their parts.

mod factor;
mod label;
mod sum;

use super::expr::{Expr, Function, REALS, Symbol};
use super::lexeme::{Lexeme, is_word, is_words, lexemes};
use super::number::look;
use super::text::{folded, patterns};
use label::label;

/// The maximum number of bytes of an answer that is read. A longer answer is compared only as text.
pub(super) const LONGEST: usize = 10_500;

/// The maximum depth of nested sums and factors; a bracket takes two levels. Half of it bounds the length of a chain of unions.
const DEEPEST: usize = 120;

/// Returns the meaning of a cleaned answer; `None` if it is not mathematics, or cannot be read.
pub(super) fn read(text: &str) -> Option<Expr> {
    if text.len() > LONGEST {
        return None;
    }
    if is_words(text) {
        let all = ["allrealnumber", "allreal", "anyrealnumber"];
        return all.contains(&&*folded(text)).then(|| Expr::name(REALS));
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

/// Reads a number with a base, such as `101_2`. The base is treated like a unit.
fn based(text: &str) -> Option<Expr> {
    const NAMES: &str = "zero|one|two|three|four|five|six|seven|eight|nine|ten";
    patterns!(BASED = format!(r"^\(?([0-9]+)\)?(?:_|base)([0-9]+|{NAMES})$"));
    let text = text.replace("\\text", "").replace(['{', '}', ' '], "");
    let found = BASED.captures(&text)?;
    let named = NAMES.split('|').position(|name| *name == found[2]);
    let base = named.map_or(found[2].to_string(), |base| base.to_string());
    let base = format!("base {base}");
    Some(Symbol::Measured(base).of([Expr::literal(&found[1])?]))
}

/// Returns 1 for an opening bracket, -1 for a closing bracket, and 0 for any other lexeme.
fn nesting(text: &str) -> i32 {
    match text {
        "(" | "[" | "{" | "\\{" | "\\begin" | "\\lfloor" | "\\lceil" => 1,
        ")" | "]" | "}" | "\\}" | "\\end" | "\\rfloor" | "\\rceil" => -1,
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

/// Signs before the condition in a set such as `{x : x > 1}`.
const BARS: [&str; 3] = [":", "|", "\\mid"];

/// Reads the lexemes from a position on, up to the first lexeme that it does not understand. Copying the parser saves the
/// position, so that reading can return to it.
#[derive(Clone, Copy, Default)]
struct Parser<'t> {
    lexemes: &'t [Lexeme],
    at: usize,
    /// The number of digits of the current number that have been read: in `\frac12`, one number gives two arguments.
    taken: usize,
    depth: usize,
    /// Whether the position is inside `| |` or `\{ \}`, where a bar ends a value.
    has_bars: bool,
    /// Whether the position is inside the argument of a function, where an angle in degrees is a number.
    is_angle: bool,
    /// The currency sign before the current number.
    currency: Option<&'static str>,
}

impl<'t> Parser<'t> {
    /// Returns the part of the current lexeme that was not read yet; empty at the end.
    fn text(&self) -> &'t str {
        &self.ahead(0)[self.taken..]
    }

    /// Returns the text of the lexeme `count` lexemes ahead; empty after the end.
    fn ahead(&self, count: usize) -> &'t str {
        let lexeme = self.lexemes.get(self.at + count);
        lexeme.map_or("", |lexeme| &lexeme.text)
    }

    fn is(&self, text: &str) -> bool {
        self.text() == text
    }

    /// Returns whether a side of a relation must end here.
    fn is_end(&self) -> bool {
        let text = self.text();
        matches!(text, "" | "," | ";")
            || joins(text)
            || self.has_bars && BARS.contains(&text)
            || nesting(text) < 0
            || one_of(RELATIONS, text).is_some()
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

    /// Reads one level deeper; `None` if that is too deep, or if `read` fails.
    fn nested(&mut self, read: fn(&mut Self) -> Option<Expr>) -> Option<Expr> {
        look(20)?;
        self.depth += 1;
        let found = (self.depth <= DEEPEST).then(|| read(self)).flatten();
        self.depth -= 1;
        found
    }

    fn list(&mut self) -> Option<Expr> {
        let (elements, has_or) = self.elements()?;
        let symbol = if has_or { Symbol::Or } else { Symbol::List };
        Some(symbol.joined(Expr::both_signs(elements)))
    }

    /// Returns the elements of a list, and whether it contains an `or`.
    fn elements(&mut self) -> Option<(Vec<Expr>, bool)> {
        let (mut elements, mut has_or) = (Vec::new(), false);
        loop {
            let is_behind_value = elements.last().is_some_and(Expr::is_plain);
            elements.push(self.element()?);
            // In `18, attained at x = 3`, the words are a condition of 18, and not the name of a second value.
            let name = elements
                .last()
                .and_then(|last| last.parts.first()?.variable());
            let has_words = |name: &str| name.contains(' ') && name.split(' ').any(is_word);
            (!is_behind_value || !name.is_some_and(has_words)).then_some(())?;
            let has_comma = self.take(",") || self.take(";");
            let has_word = joins(self.text());
            if has_word {
                has_or |= self.text().eq_ignore_ascii_case("or");
                self.advance(1);
            }
            if !has_comma && !has_word {
                return Some((elements, has_or));
            }
        }
    }

    /// Returns a relation, or a value.
    fn element(&mut self) -> Option<Expr> {
        let start = self.at;
        let (mut sides, mut signs) = (vec![self.side()], Vec::new());
        let head = &self.lexemes[start..self.at];
        while let Some(sign) = one_of(RELATIONS, self.text()) {
            self.advance(1);
            signs.push(sign);
            sides.push(self.side());
        }
        if let Some(at) = signs.iter().position(|sign| *sign == "\\approx") {
            // The exact value stands before `\approx`. If only a name stands there, the value is the approximation.
            let exact = sides[at].take().filter(|value| !value.is_name());
            return exact.or_else(|| sides[at + 1].take());
        }
        if signs.is_empty() || signs.contains(&"\\in") {
            return sides.pop()?.filter(|_| signs.len() < 2);
        }
        if signs.iter().any(|sign| *sign != "=") {
            let sides = sides.into_iter().collect::<Option<Vec<Expr>>>()?;
            let relations = signs.iter().zip(sides.windows(2)).map(|(sign, pair)| {
                let mut pair = pair.to_vec();
                let turned = match *sign {
                    ">" => "<",
                    "\\geq" => "\\leq",
                    sign => return Symbol::Relation(sign).of(pair),
                };
                pair.reverse();
                Symbol::Relation(turned).of(pair)
            });
            return Some(Symbol::List.joined(relations.collect()));
        }
        let name = label(head, sides[0].as_ref());
        let first = name.or_else(|| sides[0].take());
        let last = sides.pop()??;
        let is_known = |value: &Expr| Expr::variables(&[value]).is_empty() && !value.is_name();
        let Some(first) = first else {
            // The last side of a chain is its value, whatever its first side means.
            return Some(last).filter(|last| signs.len() > 1 && is_known(last));
        };
        if signs.len() > 1 && !first.is_name() || is_known(&first) && is_known(&last) {
            return Some(last);
        }
        Some(Symbol::Relation("=").of([first, last]))
    }

    /// Reads one side of a relation. If the side cannot be read, skips to its end and returns `None`.
    fn side(&mut self) -> Option<Expr> {
        let start = *self;
        // The elements that a list leaves out are compared as one element.
        if self.take("\\ldots") && self.is_end() {
            return Some(Expr::name("\\ldots"));
        }
        *self = start;
        if let Some(value) = self.union().filter(|_| self.is_end()) {
            return Some(value);
        }
        *self = start;
        let mut depth = 0;
        while !self.is("") && (depth > 0 || !self.is_end()) {
            depth += nesting(self.text());
            self.advance(1);
        }
        look(4 * (self.at - start.at) as u64)?;
        None
    }

    /// Returns a value, or a chain of unions, intersections and differences of sets, which is evaluated from left to right.
    fn union(&mut self) -> Option<Expr> {
        let mut value = self.quantity()?;
        for _ in 0..DEEPEST / 2 {
            let Some(operator) = one_of(SET_OPERATORS, self.text()) else {
                return Some(value);
            };
            self.advance(1);
            value = Symbol::Joined(operator).of([value, self.quantity()?]);
        }
        None
    }

    /// Returns the content of brackets: a value (perhaps its floor, ceiling or absolute value), a set, a tuple or an interval.
    /// The content of `{x : x > 1}` is its condition.
    fn bracketed(&mut self) -> Option<Expr> {
        let open = self.text();
        self.advance(1);
        let had_bars = std::mem::replace(&mut self.has_bars, matches!(open, "\\{" | "|"));
        let mut parts = if open == "\\{" && self.is("\\}") {
            Vec::new()
        } else {
            self.elements()?.0
        };
        if open == "\\{" && BARS.contains(&self.text()) {
            self.advance(1);
            let set = self.list().filter(|_| self.take("\\}"));
            self.has_bars = had_bars;
            return set;
        }
        self.has_bars = had_bars;
        let close = self.text();
        self.advance(1);
        if parts.len() == 1 {
            match (open, close) {
                ("(", ")") | ("[", "]") | ("{", "}") => return parts.pop(),
                ("|", "|") => return Some(Function("abs").of(parts)),
                ("\\lfloor", "\\rfloor") => return Some(Function("floor").of(parts)),
                ("\\lceil", "\\rceil") => return Some(Function("ceil").of(parts)),
                _ => {}
            }
        }
        let is_closed = [open == "[", close == "]"];
        let are_ends = parts.len() == 2 && parts.iter().all(Expr::is_plain);
        let symbol = match (open, close) {
            ("{" | "\\{", "}" | "\\}") => Symbol::Set,
            ("(", ")") => Symbol::Tuple,
            ("(" | "[", ")" | "]") if are_ends => Symbol::Interval(is_closed),
            ("(" | "[", ")" | "]") => Symbol::Tuple,
            _ => return None,
        };
        Some(symbol.of(Expr::both_signs(parts)))
    }

    /// Returns a matrix; `None` for a determinant.
    fn matrix(&mut self) -> Option<Expr> {
        let environment = self.environment("\\begin")?;
        if environment == "array" {
            while !self.take("}") {
                (!self.is("")).then(|| self.advance(1))?;
            }
        }
        let mut rows = Vec::new();
        while !self.is("\\end") {
            let mut row = vec![self.sum()?];
            while self.take("&") {
                row.push(self.sum()?);
            }
            rows.push(Symbol::Matrix.of(row));
            // Empty rows are skipped.
            let is_row_over = self.is("\\\\");
            while self.take("\\\\") {}
            (is_row_over || self.is("\\end")).then_some(())?;
        }
        let is_whole = self.environment("\\end") == Some(environment);
        // A determinant is a number, not a matrix.
        (is_whole && !environment.ends_with("vmatrix")).then(|| Symbol::Matrix.of(rows))
    }

    /// Returns the name of the environment that `mark` begins or ends here.
    fn environment(&mut self, mark: &str) -> Option<&'t str> {
        let is_mark = self.take(mark) && self.take("{");
        let name = self.text();
        self.advance(1);
        (is_mark && is_word(name) && self.take("}")).then_some(name)
    }
}
