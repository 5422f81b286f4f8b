//! Splits a cleaned text into lexemes, and recognises words that have a meaning: functions, Greek letters, relations.

use num_bigint::BigInt;

use super::number::look;
use super::text::patterns;
use super::units::unit;

/// A number without thousands separators, a letter, a word, a LaTeX command with its backslash, or a sign. The name of a function
/// in plain text becomes its command.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) text: String,
    /// Whether the lexeme follows a blank.
    pub(super) is_apart: bool,
    /// Whether the lexeme is inside a `\text{}`.
    pub(super) is_upright: bool,
    /// Whether the lexeme is one of several letters in a row, such as the letters of `ab` and of `is`.
    pub(super) is_of_run: bool,
}

pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('.').unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns whether a text consists of digits.
pub(super) fn is_whole(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a character is a letter of an alphabet. Chinese characters are words, as the unit in `12个` is.
fn is_of_alphabet(letter: char) -> bool {
    letter.is_alphabetic() && letter < '\u{2e80}'
}

/// Returns whether this is a variable: one letter, Latin or Greek, which can have a subscript.
pub(super) fn is_letter(text: &str) -> bool {
    let name = text.split('_').next().unwrap_or_default();
    let is_one = name.starts_with(is_of_alphabet) && name.chars().nth(1).is_none();
    is_one || GREEK.split(' ').any(|own| own == name)
}

/// Returns whether a lexeme begins with a letter but is not a variable: a unit, `and`, or any other word.
pub(super) fn is_word(text: &str) -> bool {
    text.starts_with(char::is_alphabetic) && !is_letter(text)
}

/// The words that begin a condition.
const CONDITIONS: &str = "for if when where since because unless otherwise else";

/// A text is not read if it has more lexemes than `MOST`, or brackets that are nested more deeply than `DEEPEST`.
const MOST: usize = 4_500;
const DEEPEST: usize = 100;

/// Greek letters that are variables.
const GREEK: &str = "\\alpha \\beta \\gamma \\delta \\epsilon \\varepsilon \\zeta \\eta \\theta \\kappa \\lambda \\mu \\nu \
    \\xi \\rho \\sigma \\tau \\phi \\varphi \\chi \\psi \\omega";

/// The names of functions, as commands and in plain text.
const FUNCTIONS: &str = "sin cos tan cot sec csc asin acos atan ln log exp abs floor ceil";

/// Other names that stand for their command in plain text, as `pi` does for `\pi`.
const NAMES: &str = "sqrt pi infinity infty alpha beta theta lambda cup";

/// Returns the function with this name; `arcsin` is another name of `asin`.
pub(super) fn function(name: &str) -> Option<&'static str> {
    let inverse = name.strip_prefix("arc");
    let is_it = |own: &&str| *own == name || inverse.is_some() && own.strip_prefix('a') == inverse;
    FUNCTIONS.split(' ').find(is_it)
}

/// Returns whether a word in plain text stands for a command, as `sin`, `sqrt` and `theta` do.
pub(super) fn is_name(word: &str) -> bool {
    function(word).is_some() || NAMES.split(' ').any(|own| own == word)
}

/// Returns whether a text has no characters other than letters, blanks, commas, braces and `\text`, and contains at least one
/// word. `odd` is a word and not a product; `sin x` is a function; `xy` is a product, because its letters name variables.
pub(super) fn is_words(text: &str) -> bool {
    patterns!(KNOWN = r"^(?:(?i:and|or)|\pL|[k-np-tv-z]{2,3})$");
    let text = text.replace("\\text", " ").replace(['{', '}', ','], " ");
    let mut letters = text.chars().filter(|letter| !letter.is_whitespace());
    let is_known = |word: &str| is_name(word) || KNOWN.is_match(word);
    letters.all(char::is_alphabetic) && !text.split_whitespace().all(is_known)
}

/// Collects lexemes. `sign`, `number` and `letters` each take lexemes from the beginning of a text, and return the length of the
/// text that they took.
#[derive(Default)]
struct Lexer {
    found: Vec<Lexeme>,
    /// Whether a blank precedes the next lexeme.
    is_apart: bool,
    /// Whether a condition follows a value, as in `5 if n = 3`, or begins the text.
    is_conditional: bool,
    /// For each open brace, whether it belongs to a `\text`.
    upright: Vec<bool>,
    /// The number of open brackets. Inside brackets, a comma separates values and does not group digits.
    brackets: usize,
}

/// Returns the lexemes of a text; `None` if there are too many of them, or too many open brackets, or if there is a condition.
pub(super) fn lexemes(text: &str) -> Option<Vec<Lexeme>> {
    let (mut lexer, mut rest) = (Lexer::default(), text);
    loop {
        let from = rest.trim_start();
        lexer.is_apart = from.len() < rest.len();
        let Some(letter) = from.chars().next() else {
            return Some(lexer.found);
        };
        let length = match letter {
            _ if is_number(from) => lexer.number(from),
            letter if letter.is_alphabetic() => lexer.letters(from),
            _ => lexer.sign(from),
        };
        rest = lexer.without_subscript(&from[length..]);
        look(120)?;
        if lexer.is_conditional
            || lexer.found.len() > MOST
            || lexer.upright.len() + lexer.brackets > DEEPEST
        {
            return None;
        }
    }
}

impl Lexer {
    fn push(&mut self, text: impl Into<String>, is_of_run: bool) {
        self.found.push(Lexeme {
            text: text.into(),
            is_apart: std::mem::take(&mut self.is_apart),
            is_upright: self.upright.contains(&true),
            is_of_run,
        });
    }

    fn sign(&mut self, text: &str) -> usize {
        patterns!(SIGN = r"^(?s)(?:\\text\s*\{|\\[A-Za-z]+|\\.|[<>!=]=|=/=|=<|<>|.)");
        let sign = SIGN.find(text).map_or("", |sign| sign.as_str());
        // `5!=120` has a factorial; `x!=3` and `5 != 3` have an inequality.
        let is_operand =
            |last: &Lexeme| is_number(&last.text) || [")", "}", "]"].contains(&&*last.text);
        let sign = match sign {
            "!=" if !self.is_apart && self.found.last().is_some_and(is_operand) => "!",
            sign => sign,
        };
        let opens_text = sign.len() > 2 && sign.ends_with('{');
        match sign {
            "{" => self.upright.push(false),
            _ if opens_text => self.upright.push(true),
            "(" | "[" | "\\{" => self.brackets += 1,
            ")" | "]" | "\\}" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        // A `\text` and its braces are not lexemes.
        let closes_text = sign == "}" && self.upright.pop() == Some(true);
        // The point of an abbreviation, as in `sq. units`.
        let is_point = sign == "." && self.found.last().is_some_and(|last| is_word(&last.text));
        if is_point {
            return sign.len();
        }
        if sign != "\\text" && !opens_text && !closes_text {
            let command = match sign {
                ">=" => "\\geq",
                "<=" | "=<" => "\\leq",
                "!=" | "<>" | "=/=" => "\\neq",
                "==" => "=",
                sign => sign,
            };
            self.push(command, false);
        }
        sign.len()
    }

    /// Takes a number: digits, with or without group separators, then a fraction and an exponent; or `0x` or `0b` and digits.
    fn number(&mut self, text: &str) -> usize {
        patterns! {
            BASED = r"^0(?:[xX]([0-9A-Fa-f]+)|[bB]([01]+))\b";
            GROUPS = r"^[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:\{,\}[0-9]{3})+|(?: [0-9]{3})+)";
            NUMBER = r"^[0-9]*(?:\.[0-9]{3}(?:(?: |\{,\})[0-9]{3})+|\.[0-9]*)?(?:[eE][+-]?[0-9]+)?";
        }
        if let Some(found) = BASED.captures(text) {
            let base = if found.get(1).is_some() { 16 } else { 2 };
            let value = BigInt::parse_bytes(&found[0].as_bytes()[2..], base).unwrap_or_default();
            self.push(value.to_string(), false);
            return found[0].len();
        }
        let groups = GROUPS.find(text).map_or("", |groups| groups.as_str());
        let is_list = self.brackets > 0 && !groups.contains(['{', ' ']);
        let is_cut = text[groups.len()..].starts_with(|c: char| c.is_ascii_digit());
        let groups = if is_list || is_cut { "" } else { groups };
        let rest = NUMBER.find(&text[groups.len()..]);
        let rest = rest.map_or("", |rest| rest.as_str());
        let digits = |text: &str| text.replace([',', '{', '}', ' '], "");
        self.push(digits(groups) + &digits(rest), false);
        groups.len() + rest.len()
    }

    /// Adds a subscript to the name of the letter before it, and returns the text after the subscript.
    fn without_subscript<'t>(&mut self, text: &'t str) -> &'t str {
        patterns!(SUBSCRIPT = r"^_(?:\{[^{}]+\}|[0-9A-Za-z])");
        if !text.starts_with('_') {
            return text;
        }
        let letter = self.found.last_mut();
        let letter = letter.filter(|last| is_letter(&last.text));
        match letter.zip(SUBSCRIPT.find(text)) {
            Some((letter, found)) => {
                letter.text += &found.as_str().replace(['{', '}'], "");
                &text[found.end()..]
            }
            None => text,
        }
    }

    /// Takes letters: the name of a function, a single letter, a word, or several letters in a row.
    fn letters(&mut self, text: &str) -> usize {
        let end = text.find(|c: char| !c.is_alphabetic());
        let run = &text[..end.unwrap_or(text.len())];
        // In Chinese, powers of ten and `square` stand directly before a unit.
        let mut heads = ["万", "亿", "平方", "立方"].into_iter();
        let run = heads.find(|head| run.starts_with(head)).unwrap_or(run);
        let is_known = || {
            let lower = run.to_lowercase();
            unit(&lower).is_some() || matches!(&*lower, "and" | "or" | "choose")
        };
        let is_long = run.chars().count() > 3 || !run.starts_with(is_of_alphabet);
        let is_one = self.upright.contains(&true) || is_long || is_known();
        let last = self.found.last().map_or("", |last| &last.text);
        let is_it = |own: &str| run.eq_ignore_ascii_case(own);
        self.is_conditional |= !is_word(last) && CONDITIONS.split(' ').any(is_it);
        if matches!(run, "inf" | "oo") {
            self.push("\\infty", false);
        } else if run == "U" && matches!(last, ")" | "]") {
            self.push("\\cup", false);
        } else if is_name(run) {
            self.push(format!("\\{run}"), false);
        } else if is_one || is_letter(run) {
            self.push(run, false);
        } else {
            run.chars().for_each(|letter| self.push(letter, true));
        }
        run.len()
    }
}
