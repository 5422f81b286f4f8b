//! Messages for a script that cannot be compiled.

use rhai::{LexError, ParseErrorType};

use super::names::{no_module, no_variable};
use super::{Script, habit, in_its_words, row, say};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::lint::floor_divisions;
use crate::script::syntax::TokenKind;

pub(super) fn not_parsed(
    script: &Script<'_>,
    kind: &ParseErrorType,
    place: Option<Span>,
) -> Diagnostic {
    let here = place.as_ref();
    // The end of a statement may be missing because `//` hides it.
    let (source, last) = here.map_or((script.name, usize::MAX), |at| (&at.source, at.line));
    if let Some(text) = script.sources.get(source) {
        let mut hidden = floor_divisions(source, text, &|_| false).into_iter();
        let is_before = |found: &Diagnostic| found.span.as_ref().is_some_and(|at| at.line <= last);
        if let Some(hidden) = hidden.rfind(is_before) {
            return hidden;
        }
    }
    if let Some(habit) = here.and_then(|place| foreign(script, place, kind)) {
        return habit.at(place);
    }
    let found = here.map_or("", |place| script.site(place).text(0));
    let diagnostic = match kind {
        ParseErrorType::VariableUndefined(name) => no_variable(script, name, here),
        ParseErrorType::ModuleUndefined(name) => no_module(name),
        ParseErrorType::MissingToken(..) | ParseErrorType::UnexpectedEOF => {
            return missing(kind, found).at(here.map(|place| script.end_before(place)));
        }
        ParseErrorType::BadInput(error) => lexical(error),
        ParseErrorType::Reserved(name) | ParseErrorType::UnknownOperator(name) => reserved(name),
        ParseErrorType::AssignmentToConstant(name) => constant(name),
        ParseErrorType::FnDuplicatedDefinition(name, _) => say(
            format!("the function `{name}` is defined twice, with as many parameters"),
            "rename or remove one of them",
        ),
        ParseErrorType::WrongFnDefinition => say(
            "a function cannot be defined inside another function or a block",
            "move it to the top level, or write a closure, `let f = |x| ...;`, and call it by `f.call(x)`",
        ),
        ParseErrorType::ExprTooDeep => say(
            "brackets or blocks are nested too deeply",
            "give the parts names, with `let`",
        ),
        other => {
            let help = match other {
                ParseErrorType::MismatchedType(..) => {
                    "a condition is a comparison, `if batch.step > 100 { ... }`; a loop runs over a range or an array, \
                     `for i in 0..3 { ... }`"
                }
                _ => "is something missing here, or superfluous?",
            };
            say(in_its_words(&other.to_string()), help)
        }
    };
    diagnostic.at(place)
}

/// `found` is the token at which the parser stopped.
fn missing(kind: &ParseErrorType, found: &str) -> Diagnostic {
    match kind {
        ParseErrorType::MissingToken(token, _) if token != ";" || !found.is_empty() => {
            row("missing", token).unwrap_or_else(|| {
                let message = format!("a `{token}` is missing after this");
                say(message, "is something missing before this?")
            })
        }
        _ => say("the script ends too early", "is a `}` or a `)` missing?"),
    }
}

/// A habit of another language that stops the parser with an unhelpful message.
fn foreign(script: &Script<'_>, place: &Span, kind: &ParseErrorType) -> Option<Diagnostic> {
    let (site, line) = (script.site(place), script.line(place));
    let word = |index: usize| line.get(index).map_or("", |token| token.text);
    let begins = match (word(0), word(1)) {
        ("let", "mut") => "let-mut",
        // `let a = 1, b = 2`
        ("let", _) if site.text(0) == "," && site.text(2) == "=" => "let-two",
        ("import", _) if line.iter().any(|token| token.kind == TokenKind::String) => "",
        (first, _) => first,
    };
    if let Some(row) = row("line", begins) {
        return Some(row);
    }
    let ParseErrorType::MissingToken(wanted, _) = kind else {
        return None;
    };
    let found = site.text(0);
    row("found", &format!("{wanted}{found}"))
        .or_else(|| row("found", &format!("{}{found}", word(0))))
        .or_else(|| Some(say(not_here(found), habit("keywords", found)?)))
}

fn not_here(word: &str) -> String {
    format!("`{word}` in this place is not part of this language")
}

fn lexical(error: &LexError) -> Diagnostic {
    match error {
        LexError::UnexpectedInput(sign) => {
            let first = sign.chars().next().map_or(0, char::len_utf8);
            let help = habit("signs", &sign[..first]).unwrap_or(
                "names have the letters a to z, digits and `_`; other characters belong in comments and strings",
            );
            say(format!("`{sign}` is unexpected here"), help)
        }
        LexError::MalformedIdentifier(name) => say(
            format!("`{name}` cannot be used as a variable's name"),
            "choose another name",
        ),
        LexError::UnterminatedString => say(
            "this string has no closing quote",
            "a string ends in a `\"` on the same line; one in backquotes may have several lines",
        ),
        LexError::MalformedChar(_) => say(
            "single quotes are for one character",
            "a string is written in double quotes: \"group\"",
        ),
        LexError::ImproperSymbol(sign, _) => reserved(sign),
        other => say(
            in_its_words(&other.to_string()),
            "numbers look like `8`, `0.5` and `1e-6`; a backslash in a string is `\\\\`",
        ),
    }
}

pub(super) fn constant(name: &str) -> Diagnostic {
    let help = match name {
        "p" => "`:set k=8` sets a parameter; a variable is declared with `let`",
        _ => "a variable is declared with `let` instead of `const`",
    };
    say(
        format!("`{name}` is a constant and cannot be changed"),
        help,
    )
}

fn reserved(name: &str) -> Diagnostic {
    let (what, help) = match name.starts_with(char::is_alphabetic) {
        true => ("a reserved word", "choose another name"),
        false => (
            "not an operator of this language",
            "is another operator meant?",
        ),
    };
    let known = habit("reserved", name).or_else(|| habit("keywords", name));
    say(format!("`{name}` is {what}"), known.unwrap_or(help))
}
