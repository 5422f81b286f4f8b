//! The lexemes of a cleaned text.

use super::unit;
use super::work;

/// A number without separators of thousands, a letter, a word, a command of LaTeX with its backslash, or a sign; and how it
/// stands. A function's name in plain text is its command.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) text: String,
    /// Behind a blank.
    pub(super) is_apart: bool,
    /// Inside of `\text{}`.
    pub(super) is_upright: bool,
    /// A letter of several in a row: `ab`, but also `is`.
    pub(super) is_of_run: bool,
}

pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('.').unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Digits alone.
pub(super) fn is_whole(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The letter that this is: a variable.
pub(super) fn letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters
        .next()
        .filter(|c| c.is_alphabetic() && letters.next().is_none())
}

/// Whether these are letters that are no product of variables: a unit, `and`, any word.
pub(super) fn is_word(text: &str) -> bool {
    text.starts_with(char::is_alphabetic) && letter(text).is_none()
}

/// More are not read, and brackets inside of each other neither.
const MOST: usize = 4_500;
const DEEPEST: usize = 100;

/// The functions by their names, as commands and in plain text.
const FUNCTIONS: &str = "sin cos tan cot sec csc asin acos atan sinh cosh tanh ln log exp abs gcd lcm max min floor ceil";

/// Other names in plain text that mean what the command means.
const NAMES: &str = "sqrt pi arcsin arccos arctan infinity infty alpha beta theta lambda cup";

/// The function of a name.
pub(super) fn function(name: &str) -> Option<&'static str> {
    let name = if name == "lg" { "log" } else { name };
    let inverse = name.strip_prefix("arc");
    let is_it = |own: &&str| *own == name || inverse.is_some() && own.strip_prefix('a') == inverse;
    FUNCTIONS.split(' ').find(is_it)
}

/// Whether a word in plain text means a command: `sin`, `sqrt`, `theta`.
pub(super) fn is_name(word: &str) -> bool {
    word != "lg" && function(word).is_some() || NAMES.split(' ').any(|own| own == word)
}

/// The lexemes of a text; `None` where there are too many.
pub(super) fn lexemes(text: &str) -> Option<Vec<Lexeme>> {
    let mut lexer = Lexer {
        rest: text,
        found: Vec::new(),
        upright: Vec::new(),
        brackets: 0,
    };
    while lexer.next() {
        work::look(120)?;
        let depth = lexer.upright.len() + lexer.brackets;
        if lexer.found.len() > MOST || depth > DEEPEST {
            return None;
        }
    }
    Some(lexer.found)
}

struct Lexer<'t> {
    rest: &'t str,
    found: Vec<Lexeme>,
    /// For each open brace, whether it is that of a `\text`.
    upright: Vec<bool>,
    /// Open brackets, inside of which a comma separates.
    brackets: usize,
}

impl Lexer<'_> {
    fn push(&mut self, text: impl Into<String>, is_apart: bool) {
        self.found.push(Lexeme {
            text: text.into(),
            is_apart,
            is_upright: self.upright.contains(&true),
            is_of_run: false,
        });
    }

    fn next(&mut self) -> bool {
        let text = self.rest.trim_start();
        let is_apart = text.len() < self.rest.len();
        let Some(letter) = text.chars().next() else {
            return false;
        };
        self.rest = text;
        match letter {
            '\\' => self.command(is_apart),
            _ if is_number(text) => self.number(is_apart),
            letter if letter.is_alphabetic() => self.letters(is_apart),
            letter => {
                self.rest = &text[letter.len_utf8()..];
                match letter {
                    '{' => self.upright.push(false),
                    // The braces of a `\text` are none.
                    '}' if self.upright.pop() == Some(true) => return true,
                    letter => self.bracket(letter),
                }
                self.push(letter, is_apart);
            }
        }
        true
    }

    fn bracket(&mut self, sign: char) {
        match sign {
            '(' | '[' => self.brackets += 1,
            ')' | ']' => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
    }

    fn number(&mut self, is_apart: bool) {
        let text = self.rest;
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(text);
        let mut number = text[..end].to_string();
        let is_group = |text: &str, separator: &str| {
            text.strip_prefix(separator)
                .is_some_and(|rest| digits(rest) == 3)
        };
        let can_group = (1..=3).contains(&end) && !number.starts_with('0');
        let separator = [",", "{,}", " "].into_iter().find(|own| {
            can_group && is_group(&text[end..], own) && (*own != "," || self.brackets == 0)
        });
        while let Some(own) = separator.filter(|own| is_group(&text[end..], own)) {
            let start = end + own.len();
            end = start + 3;
            number.push_str(&text[start..end]);
        }
        let start = end;
        if let Some(fraction) = text[end..].strip_prefix('.') {
            end += 1 + digits(fraction);
        }
        if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            match digits(&exponent[sign..]) {
                0 => {}
                count => end += 1 + sign + count,
            }
        }
        number.push_str(&text[start..end]);
        self.rest = &text[end..];
        self.push(number, is_apart);
    }

    fn command(&mut self, is_apart: bool) {
        let behind = &self.rest[1..];
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let sign = behind.chars().next();
        let end = 1 + letters.max(sign.map_or(0, char::len_utf8));
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if name == "\\text" {
            if let Some(inside) = rest.trim_start().strip_prefix('{') {
                self.rest = inside;
                self.upright.push(true);
            }
            return;
        }
        match name {
            "\\{" => self.brackets += 1,
            "\\}" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        self.push(name, is_apart);
    }

    fn letters(&mut self, is_apart: bool) {
        let text = self.rest;
        let end = text.find(|c: char| !c.is_alphabetic());
        let mut run = &text[..end.unwrap_or(text.len())];
        if letter(run).is_some() {
            self.rest = &text[run.len()..];
            return self.push(run, is_apart);
        }
        let is_upright = self.upright.contains(&true);
        if !is_upright && !is_name(run) && !unit::is_word(run) {
            // `4sqrt`, `xsin`: a name ends the run.
            let starts = run.char_indices().map(|(at, _)| at).skip(1);
            let is_function =
                |name: &str| function(name).is_some() || name == "sqrt" || name == "pi";
            let named = starts.take(3).find(|at| is_function(&run[*at..]));
            run = &run[..named.unwrap_or(run.len())];
        }
        self.rest = &text[run.len()..];
        let count = run.chars().count();
        if is_name(run) {
            self.push(format!("\\{run}"), is_apart);
        } else if count > 3 || is_upright || unit::is_word(run) {
            self.push(run, is_apart);
        } else {
            for (index, letter) in run.chars().enumerate() {
                self.push(letter, is_apart && index == 0);
                self.found.last_mut().expect("one was pushed").is_of_run = true;
            }
        }
    }
}
