//! What the text of a script shows without being compiled: its tokens and the names in them.
//!
//! A script that compiles has the engine's tree besides; one that is wrong, or is still being typed, has its tokens only.

mod operators;
mod token;

pub(crate) use operators::{floor_divisions, misread_operators};
pub(crate) use token::{Token, TokenKind, Unfinished, code, lex, unfinished};

/// The texts of the tokens for which `is_it` holds, given a function that has the texts of the tokens around.
fn texts<'a>(
    code: &[Token<'a>],
    is_it: impl Fn(&dyn Fn(isize) -> &'a str) -> bool,
) -> Vec<&'a str> {
    let texts = (0..code.len()).filter(|&index| {
        is_it(&|offset| {
            let index = index.checked_add_signed(offset);
            let token = index.and_then(|index| code.get(index));
            token.map_or("", |token| token.text)
        })
    });
    texts.map(|index| code[index].text).collect()
}

/// The keys of map literals.
pub(crate) fn map_keys<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |text| text(1) == ":")
}

/// The parameters that a script declares: keys whose values are maps.
pub(crate) fn declared_parameters<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |text| text(1) == ":" && text(2) == "#{")
}

/// The names that are given to variables, parameters and functions.
pub(crate) fn declared_names<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    texts(code, |text| {
        let is_name = text(0).starts_with(|c: char| c.is_alphabetic() || c == '_');
        let is_parameter =
            ["(", ",", "|"].contains(&text(-1)) && [",", ")", "|"].contains(&text(1));
        is_name && (["let", "const", "for", "fn"].contains(&text(-1)) || is_parameter)
    })
}
