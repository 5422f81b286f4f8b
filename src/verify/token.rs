//! The tokens of a cleaned text.

use super::unit;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Digits with at most one point, without separators of thousands; and whether those were there.
    Number(String, bool),
    /// A variable: a letter.
    Letter(char),
    /// Letters that are no product of variables: a unit, `and`, any word.
    Word(String),
    /// A command of LaTeX, or a function's name in plain text.
    Command(String),
    /// Any other sign.
    Sign(char),
}

/// A token, and how it stands.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Behind a blank.
    pub(super) is_apart: bool,
    /// Inside of `\text{}`.
    pub(super) is_upright: bool,
    /// A letter of several in a row: `ab`, but also `is`.
    pub(super) is_of_run: bool,
}

/// More are not read.
const MOST: usize = 20_000;

/// Names in plain text that mean what the command means.
const NAMES: [&str; 34] = [
    "sqrt", "pi", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "ln", "log", "exp", "abs", "gcd", "lcm", "max", "min",
    "floor", "ceil", "infinity", "infty", "alpha", "beta", "theta", "lambda", "cup",
];

/// The tokens of a text; `None` where there are too many.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut lexer = Lexer {
        rest: text,
        tokens: Vec::new(),
        upright: Vec::new(),
        brackets: 0,
    };
    while lexer.next() {
        if lexer.tokens.len() > MOST {
            return None;
        }
    }
    Some(lexer.tokens)
}

struct Lexer<'t> {
    rest: &'t str,
    tokens: Vec<Token>,
    /// For each open brace, whether it is that of a `\text`.
    upright: Vec<bool>,
    /// Open brackets, inside of which a comma separates.
    brackets: usize,
}

impl Lexer<'_> {
    fn push(&mut self, kind: Kind, is_apart: bool) {
        let is_upright = self.upright.iter().any(|upright| *upright);
        self.tokens.push(Token {
            kind,
            is_apart,
            is_upright,
            is_of_run: false,
        });
    }

    fn next(&mut self) -> bool {
        let text = self.rest.trim_start();
        let is_apart = text.len() < self.rest.len();
        let Some(letter) = text.chars().next() else {
            return false;
        };
        self.rest = &text[letter.len_utf8()..];
        match letter {
            '0'..='9' => self.number(text, is_apart),
            '.' if self.rest.starts_with(|c: char| c.is_ascii_digit()) => {
                self.number(text, is_apart)
            }
            '\\' => self.command(is_apart),
            letter if letter.is_alphabetic() => self.letters(text, is_apart),
            letter => {
                match letter {
                    '{' => self.upright.push(false),
                    // The braces of a `\text` are none.
                    '}' if self.upright.pop() == Some(true) => return true,
                    '(' | '[' => self.brackets += 1,
                    ')' | ']' => self.brackets = self.brackets.saturating_sub(1),
                    _ => {}
                }
                self.push(Kind::Sign(letter), is_apart);
            }
        }
        true
    }

    fn number(&mut self, text: &str, is_apart: bool) {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(text);
        let mut number = text[..end].to_string();
        let separators = [",", "{,}", " "];
        let group = |text: &str, separator: &str| {
            text.strip_prefix(separator)
                .is_some_and(|rest| digits(rest) == 3)
        };
        let separator = separators.into_iter().find(|own| group(&text[end..], own));
        let can_group = (1..=3).contains(&end) && !number.starts_with('0');
        let separator = separator.filter(|own| can_group && (*own != "," || self.brackets == 0));
        while let Some(own) = separator.filter(|own| group(&text[end..], own)) {
            end += own.len();
            number.push_str(&text[end..end + 3]);
            end += 3;
        }
        let fraction = text[end..].strip_prefix('.').map(digits);
        if let Some(fraction) = fraction {
            number.push('.');
            number.push_str(&text[end + 1..end + 1 + fraction]);
            end += 1 + fraction;
        }
        let exponent = text[end..].strip_prefix(['e', 'E']).and_then(|rest| {
            let sign = usize::from(rest.starts_with(['+', '-']));
            let count = digits(&rest[sign..]);
            (count > 0).then_some(1 + sign + count)
        });
        if let Some(length) = exponent {
            number.push_str(&text[end..end + length]);
            end += length;
        }
        self.rest = &self.rest[self.rest.len() - (text.len() - end)..];
        self.push(Kind::Number(number, separator.is_some()), is_apart);
    }

    fn command(&mut self, is_apart: bool) {
        let end = self.rest.find(|c: char| !c.is_ascii_alphabetic());
        let end = end.unwrap_or(self.rest.len());
        let length = self.rest.chars().next().map_or(0, char::len_utf8);
        let (name, rest) = self.rest.split_at(end.max(length));
        self.rest = rest;
        match name {
            "text" => {
                let inside = rest.trim_start().strip_prefix('{');
                if let Some(inside) = inside {
                    self.rest = inside;
                    self.upright.push(true);
                }
            }
            name => {
                match name {
                    "{" => self.brackets += 1,
                    "}" => self.brackets = self.brackets.saturating_sub(1),
                    _ => {}
                }
                self.push(Kind::Command(name.to_string()), is_apart);
            }
        }
    }

    fn letters(&mut self, text: &str, is_apart: bool) {
        let end = text
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(text.len());
        let mut run = &text[..end];
        let is_upright = self.upright.iter().any(|upright| *upright);
        let is_known = |name: &str| NAMES.contains(&name) || unit::is_word(name);
        if !is_known(run) && !is_upright && run.len() > 1 {
            // `4sqrt`, `xsin`: a name ends the run, or begins it.
            let starts = run.char_indices().map(|(at, _)| at).skip(1);
            let mut named = starts.filter(|at| NAMES[..24].contains(&&run[*at..]));
            if let Some(at) = named.next().filter(|at| *at <= 3) {
                run = &run[..at];
            }
        }
        self.rest = &self.rest[self.rest.len() - (text.len() - run.len())..];
        if NAMES.contains(&run) {
            self.push(Kind::Command(run.to_string()), is_apart);
        } else if let (Some(letter), 1) = (run.chars().next(), run.chars().count()) {
            self.push(Kind::Letter(letter), is_apart);
        } else if unit::is_word(run) || is_upright || run.chars().count() > 3 {
            self.push(Kind::Word(run.to_string()), is_apart);
        } else {
            let before = self.tokens.len();
            for (index, letter) in run.chars().enumerate() {
                self.push(Kind::Letter(letter), is_apart && index == 0);
            }
            self.tokens[before..]
                .iter_mut()
                .for_each(|token| token.is_of_run = true);
        }
    }
}
