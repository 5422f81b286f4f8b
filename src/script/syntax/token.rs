//! Tokens: the engine's own lexer with exact locations, also of texts that are still being typed.

use std::sync::Arc;

use rhai::{InputStream, Position, Token as EngineToken, TokenizeState, get_next_token};

use crate::diagnostic::Span;

/// A token of a script, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: TokenKind,
    /// Its text.
    pub text: &'a str,
    /// Bytes before it.
    pub start: usize,
    /// From 1.
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) ending: Ending,
}

/// The kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A word of the language: `let`, `fn`, `if`, `this`.
    Keyword,
    /// The name of a variable, function or field.
    Name,
    /// A number, with its sign where one stands before it and no operand does.
    Number,
    /// A string or a character. One with `${...}` in it is several: up to the `$`, then the tokens in the braces, then
    /// what follows the `}`.
    String,
    /// A comment.
    Comment,
    /// A minus before its operand.
    Negation,
    /// Any other operator, bracket or mark.
    Symbol,
}

/// How a string or a comment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Closed,
    /// With its line, and not with its quote.
    Cut,
    /// Not yet: the next line belongs to it.
    Open,
}

impl<'a> Token<'a> {
    /// The byte behind it.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(crate) fn is_name(&self, name: &str) -> bool {
        self.kind == TokenKind::Name && self.text == name
    }

    /// Of a token that goes over lines, only its first line.
    pub(crate) fn span(&self, source: &Arc<str>, text: &Arc<str>) -> Span {
        Span {
            source: source.clone(),
            text: text.clone(),
            line: self.line,
            column: self.column,
            length: self
                .text
                .lines()
                .next()
                .map_or(1, |line| line.chars().count()),
        }
    }

    /// 1 where it opens a bracket, -1 where it closes one.
    pub(crate) fn nesting(&self) -> i32 {
        match self.text {
            "(" | "[" | "{" | "#{" | "?[" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        }
    }

    /// Whether it begins the arguments of what stands before it. The lexer takes `()` for one token.
    pub fn opens_call(&self) -> bool {
        matches!(self.text, "(" | "()")
    }
}

/// The tokens of a text without its comments.
pub fn code(text: &str) -> Vec<Token<'_>> {
    let mut all = lex(text);
    all.retain(|token| token.kind != TokenKind::Comment);
    all
}

/// The tokens of a text, comments among them. Between them is white space alone.
pub fn lex(text: &str) -> Vec<Token<'_>> {
    let mut stream = Stream { text, at: 0 };
    let mut state = TokenizeState {
        include_comments: true,
        ..TokenizeState::default()
    };
    // The engine's count of lines has 16 bits: ours is made from the bytes.
    let mut position = Position::new(1, 0);
    let (mut line, mut column, mut counted) = (1, 1, 0);
    let mut tokens = Vec::new();
    // For each string whose `${` is open: the braces that were open before it.
    let (mut inserted, mut braces) = (Vec::new(), 0usize);
    loop {
        let continues = state.is_within_text_terminated_by.is_some();
        if !continues {
            let rest = stream.rest();
            stream.at += rest.len() - rest.trim_start().len();
        }
        let start = stream.at;
        for letter in text[counted..start].chars() {
            (line, column) = match letter {
                '\n' => (line + 1, 1),
                _ => (line, column + 1),
            };
        }
        counted = start;
        if start == text.len() && !continues {
            return tokens;
        }
        let (kind, ending) = match comment(&mut stream, &mut state, &mut position) {
            Some(ending) if !continues => (TokenKind::Comment, ending),
            _ => {
                let (token, _) = get_next_token(&mut stream, &mut state, &mut position);
                match token {
                    EngineToken::InterpolatedString(_) => inserted.push(braces),
                    EngineToken::LeftBrace | EngineToken::MapStart => braces += 1,
                    EngineToken::RightBrace => {
                        braces = braces.saturating_sub(1);
                        if inserted.pop_if(|before| *before == braces).is_some() {
                            state.is_within_text_terminated_by = Some("`".into());
                        }
                    }
                    _ => {}
                }
                let ending = ending(&token, &mut stream, &mut state, start);
                let kind = kind_of(&token, &text[start..stream.at]);
                if kind == TokenKind::Symbol {
                    // The lexer takes the blank of `# ` along.
                    stream.at = start + text[start..stream.at].trim_end().len();
                }
                (kind, ending)
            }
        };
        tokens.push(Token {
            kind,
            text: &text[start..stream.at],
            start,
            line,
            column,
            ending,
        });
    }
}

/// How a token ends that begins at `start`; a string that the lexer does not take is read to its end.
fn ending(
    token: &EngineToken,
    stream: &mut Stream<'_>,
    state: &mut TokenizeState,
    start: usize,
) -> Ending {
    let text = stream.text;
    let own = &text[start..];
    match token {
        EngineToken::LexError(_) if own.starts_with(['"', '\'']) => {
            let (length, ending) = quoted(own);
            stream.at = start + length;
            ending
        }
        EngineToken::StringConstant(_) if state.is_within_text_terminated_by.take().is_some() => {
            Ending::Open
        }
        _ => Ending::Closed,
    }
}

/// Reads a comment, where one starts here.
fn comment(
    stream: &mut Stream<'_>,
    state: &mut TokenizeState,
    position: &mut Position,
) -> Option<Ending> {
    let rest = stream.rest();
    if rest.starts_with("//") {
        stream.at += rest.find('\n').unwrap_or(rest.len());
        return Some(Ending::Closed);
    }
    if !rest.starts_with("/*") || state.is_within_text_terminated_by.is_some() {
        return None;
    }
    let is_operand = state.next_token_cannot_be_unary;
    stream.at += 2;
    state.comment_level = 1;
    let _ = get_next_token(stream, state, position);
    state.next_token_cannot_be_unary = is_operand;
    Some(match std::mem::take(&mut state.comment_level) {
        0 => Ending::Closed,
        _ => Ending::Open,
    })
}

fn kind_of(token: &EngineToken, text: &str) -> TokenKind {
    let is_word = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    match token {
        EngineToken::StringConstant(_)
        | EngineToken::InterpolatedString(_)
        | EngineToken::CharConstant(_) => TokenKind::String,
        EngineToken::LexError(_) if text.starts_with(['"', '\'']) => TokenKind::String,
        EngineToken::UnaryMinus => TokenKind::Negation,
        token if token.is_standard_keyword() => TokenKind::Keyword,
        _ if matches!(text, "this" | "is") => TokenKind::Keyword,
        _ if is_word => TokenKind::Name,
        _ if text.ends_with(|c: char| c.is_ascii_alphanumeric()) => TokenKind::Number,
        EngineToken::IntegerConstant(_) | EngineToken::FloatConstant(_) => TokenKind::Number,
        _ => TokenKind::Symbol,
    }
}

/// The bytes of a string that the lexer does not take, up to its quote or to the end of its line.
fn quoted(rest: &str) -> (usize, Ending) {
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if !is_escaped && rest.starts_with(letter) {
            return (at + 1, Ending::Closed);
        }
        if letter == '\n' && !is_escaped {
            return (at, Ending::Cut);
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    (rest.len(), Ending::Cut)
}

/// A text as the engine reads it, with the bytes that it has read.
struct Stream<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Stream<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

impl InputStream for Stream<'_> {
    fn unget(&mut self, letter: char) {
        self.at -= letter.len_utf8();
    }

    fn get_next(&mut self) -> Option<char> {
        let letter = self.peek_next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn peek_next(&mut self) -> Option<char> {
        self.rest().chars().next()
    }
}

/// The strings, comments and brackets that are open at the end of a text that is being typed.
#[derive(Default)]
pub struct Unfinished<'a> {
    /// The code, without what is open last.
    pub code: Vec<Token<'a>>,
    /// A string or a comment without its end.
    pub last: Option<Token<'a>>,
    /// The brackets that are open, as indices in `code`.
    pub(crate) brackets: Vec<usize>,
    /// Whether something before it is wrong, which more text does not mend.
    pub(crate) is_wrong: bool,
}

/// What is open at the end of a text.
pub fn unfinished(text: &str) -> Unfinished<'_> {
    let mut open = Unfinished::default();
    let all = lex(text);
    for (index, token) in all.iter().enumerate() {
        // A comment to the end of its line is open at the end of the text as well: what is typed next belongs to it.
        let is_last = index + 1 == all.len();
        let is_comment = token.kind == TokenKind::Comment;
        if is_last && (token.ending != Ending::Closed || (is_comment && token.end() == text.len()))
        {
            open.is_wrong |= token.ending == Ending::Cut;
            open.last = Some(*token);
        }
        if is_comment || open.last.is_some() {
            continue;
        }
        match token.nesting() {
            _ if token.kind == TokenKind::String => open.is_wrong |= token.ending == Ending::Cut,
            1 => open.brackets.push(open.code.len()),
            -1 => {
                let opening = open.brackets.pop().map(|at| open.code[at].text);
                open.is_wrong |= opening.map(closing) != Some(token.text);
            }
            _ => {}
        }
        open.code.push(*token);
    }
    open
}

impl<'a> Unfinished<'a> {
    /// Whether the next line belongs to this input.
    pub(crate) fn goes_on(&self) -> bool {
        match self.last {
            Some(last) if last.ending == Ending::Open => true,
            _ => !self.is_wrong && !self.brackets.is_empty(),
        }
    }

    /// The sign that closes what is open last.
    pub fn closed_by(&self) -> Option<&'static str> {
        match self.last.filter(|last| last.ending == Ending::Open) {
            Some(last) if last.kind == TokenKind::Comment => Some("*/"),
            Some(_) => Some("`"),
            None => self.brackets.last().map(|&at| closing(self.code[at].text)),
        }
    }

    /// The innermost call whose arguments are being typed: the tokens up to its name, and the byte where they begin.
    pub fn call(&self) -> Option<(&[Token<'a>], usize)> {
        let &at = self.brackets.last()?;
        let is_call = self.code[at].text == "(" && at > 0;
        is_call.then(|| (&self.code[..at], self.code[at].end()))
    }
}

fn closing(opening: &str) -> &'static str {
    match opening {
        "(" => ")",
        "[" | "?[" => "]",
        _ => "}",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        let all = lex(text).into_iter();
        all.map(|token| (token.kind, token.text)).collect()
    }

    fn goes_on(text: &str) -> bool {
        unfinished(text).goes_on()
    }

    #[test]
    fn signs_in_strings_and_comments_are_not_signs() {
        assert_eq!(kinds("'`' 1")[0], (TokenKind::String, "'`'"));
        assert_eq!(
            kinds("/* a /* b */ c */ 1")[0],
            (TokenKind::Comment, "/* a /* b */ c */")
        );
        assert!(goes_on("/* a /* b */ c") && !goes_on("/* a /* b */ c */"));
        assert!(!goes_on("let c = '`'"));
        assert_eq!(kinds("\"open\n1").last(), Some(&(TokenKind::Number, "1")));
        let chunks = kinds("`a ${f(\"}\", #{ k: 1 })} \" b` + 1");
        assert_eq!(chunks[0], (TokenKind::String, "`a $"));
        assert!(chunks.contains(&(TokenKind::String, " \" b`")));
        assert_eq!(chunks.last(), Some(&(TokenKind::Number, "1")));
    }

    #[test]
    fn a_bracket_is_open_until_it_is_closed_by_its_own() {
        assert!(goes_on("fn f(x) {\n  1 2\n"));
        assert!(goes_on("f(\"}\", '}', `)`"));
        assert!(goes_on("`a ${f(x)"));
        assert!(goes_on("`a ${x}"));
        assert!(goes_on("#{ a: [1"));
        assert!(!goes_on("f(]"));
        assert!(!goes_on("f(\"not closed"));
        assert!(!goes_on("f(x) { }"));
        assert!(!goes_on("// {"));
    }

    #[test]
    fn every_text_is_taken_apart_and_only_white_space_is_left() {
        for text in [
            "let a_1 = 1e-6 + x.mean(\"gro\\\"up\"); // why\n1.max(2) \"open",
            "//! doc\n//// four\n/*** stars */ fn f() { -x ** -2 }",
            "\"\\d\" + 'ab' + '' é $ \\ # 1.5.6 ''' \u{feff} __ `x ${`y ${z}`} ${",
            "#\"raw \" \"# ##\"open",
            "\r\n`\r\n a`\r\n\"a \\\n b\" ((())) }}} ]",
        ] {
            let mut at = 0;
            for token in lex(text) {
                assert!(text[at..token.start].trim().is_empty(), "{text}: {token:?}");
                assert_eq!(&text[token.start..token.end()], token.text);
                let before = &text[..token.start];
                assert_eq!(token.line, before.matches('\n').count() + 1);
                let line = before.rsplit('\n').next().unwrap_or("");
                assert_eq!(token.column, line.chars().count() + 1);
                at = token.end();
            }
            assert!(text[at..].trim().is_empty(), "{text}: {:?}", &text[at..]);
        }
        let kinds = kinds("let a_1 = 1e-6 - -x // why");
        assert_eq!(kinds[0], (TokenKind::Keyword, "let"));
        assert_eq!(kinds[1], (TokenKind::Name, "a_1"));
        assert_eq!(kinds[3], (TokenKind::Number, "1e-6"));
        assert_eq!(kinds[5], (TokenKind::Negation, "-"));
        assert_eq!(kinds[7], (TokenKind::Comment, "// why"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// A prompt asks at each key: no text may end the session, or lose a letter.
        #[test]
        fn no_text_is_too_odd(text in "(fn |let |[a-z_0-9.#!?=<>+*/ -]|[(){}\\[\\],;:|&@~^%$]|[\"'`\\\\]|\\$\\{|/\\*|\\*/|//|\\\\[xuU]|[\r\n\té∞\u{feff}]){0,40}") {
            let mut at = 0;
            for token in lex(&text) {
                prop_assert!(text[at..token.start].trim().is_empty());
                prop_assert_eq!(&text[token.start..token.end()], token.text);
                at = token.end();
            }
            prop_assert!(text[at..].trim().is_empty());
            let open = unfinished(&text);
            let _ = (open.goes_on(), open.closed_by(), open.call());
        }
    }
}
