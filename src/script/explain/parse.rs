//! Messages for a script that cannot be compiled.

use rhai::{LexError, ParseErrorType};

use super::habits::{habit, habit_diagnostic, lower_first, type_in_words, type_named};
use super::runtime;
use super::script::Script;
use crate::diagnostic::{Diagnostic, Span};
use crate::script::mistake::Mistake;
use crate::script::syntax::{TokenKind, floor_divisions};

pub(super) fn not_parsed(
    script: &Script<'_>,
    kind: &ParseErrorType,
    place: Option<Span>,
) -> Diagnostic {
    let here = place.as_ref();
    let found = here.map_or("", |place| script.site(place).text(0));
    let (source, text, last) = match here {
        Some(place) => (&place.source, place.text.clone(), place.line),
        None => (script.name, script.text(), usize::MAX),
    };
    // The end of a statement may be missing because `//` hides it.
    let mut hidden = floor_divisions(source, &text, &|_| false).into_iter();
    let is_before = |hidden: &Diagnostic| hidden.span.as_ref().is_some_and(|at| at.line <= last);
    if let Some(hidden) = hidden.rfind(is_before) {
        return hidden;
    }
    if let Some(habit) = here.and_then(|place| foreign(script, place, kind)) {
        return habit.at(place);
    }
    let end_before = || here.map(|place| script.end_before(place));
    match kind {
        ParseErrorType::VariableUndefined(name) => runtime::no_variable(script, name, here),
        ParseErrorType::MissingToken(token, _) if token == ";" && found.is_empty() => {
            return Mistake::EndsInBlock.at(end_before());
        }
        ParseErrorType::MissingToken(token, purpose) => {
            let missing = Mistake::MissingToken { token, purpose };
            let known = habit_diagnostic("missing", token);
            return known.unwrap_or_else(|| missing.into()).at(end_before());
        }
        ParseErrorType::UnexpectedEOF => return Mistake::EndsEarly.at(end_before()),
        ParseErrorType::BadInput(error) => lexical(error, found),
        ParseErrorType::Reserved(name) | ParseErrorType::UnknownOperator(name) => reserved(name),
        ParseErrorType::ModuleUndefined(name) => runtime::no_module(name),
        ParseErrorType::MismatchedType(expected, found) => {
            let (name, expected) = type_named(expected);
            let help = match name {
                "iterable" => "a loop runs over a range or an array: `for i in 0..3 { ... }`",
                _ => "a condition is a comparison, as in `if batch.step > 100 { ... }`",
            };
            let found = type_in_words(found);
            let wrong = Mistake::WrongType {
                expected,
                found,
                help,
            };
            wrong.into()
        }
        other => grammar(other),
    }
    .at(place)
}

/// What the parser says of a definition or an expression that is not well-formed; rare cases in its own words.
fn grammar(kind: &ParseErrorType) -> Diagnostic {
    match kind {
        ParseErrorType::FnMissingParams(name) => Mistake::NoParameterList { name },
        ParseErrorType::FnMissingName => Mistake::NoFunctionName,
        ParseErrorType::FnMissingBody(_) => Mistake::NoFunctionBody,
        ParseErrorType::FnDuplicatedDefinition(name, _) => Mistake::FunctionTwice { name },
        ParseErrorType::FnDuplicatedParam(function, name) => {
            Mistake::ParameterTwice { function, name }
        }
        ParseErrorType::WrongFnDefinition => Mistake::NestedFunction,
        ParseErrorType::ExprTooDeep => Mistake::TooDeep,
        ParseErrorType::AssignmentToInvalidLHS(_) => Mistake::NotAssignable,
        ParseErrorType::AssignmentToConstant(name) => Mistake::Constant { name },
        ParseErrorType::ExprExpected(_) | ParseErrorType::MissingSymbol(_) => Mistake::NoExpression,
        ParseErrorType::ForbiddenVariable(name) => Mistake::ForbiddenName { name },
        other => {
            return Diagnostic::error(lower_first(&other.to_string()))
                .with_help("is something missing here, or superfluous?");
        }
    }
    .into()
}

/// A habit of another language that stops the parser where its own message does not help.
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
    if let Some(row) = habit_diagnostic("line", begins) {
        return Some(row);
    }
    let ParseErrorType::MissingToken(wanted, _) = kind else {
        return None;
    };
    let found = site.text(0);
    habit_diagnostic("found", &format!("{wanted}{found}"))
        .or_else(|| habit_diagnostic("found", &format!("{}{found}", word(0))))
        .or_else(|| {
            let help = habit("keywords", found)?;
            Some(Mistake::NotHere { word: found, help }.into())
        })
}

fn lexical(error: &LexError, token: &str) -> Diagnostic {
    match error {
        LexError::UnexpectedInput(sign)
            if sign.starts_with([')', ']', '}', ',', ';', '*', '/']) =>
        {
            Mistake::NothingBefore { sign }
        }
        LexError::UnexpectedInput(sign) => {
            return Mistake::UnexpectedCharacter { sign }.or_help(habit("signs", sign));
        }
        LexError::MalformedIdentifier(name) => Mistake::ForbiddenName { name },
        LexError::UnterminatedString => Mistake::UnclosedString,
        LexError::MalformedChar(_) => Mistake::SingleQuotes,
        LexError::MalformedNumber(text) => Mistake::NotANumber { text },
        LexError::MalformedEscapeSequence(sign) => Mistake::UnknownEscape { sign },
        LexError::ImproperSymbol(sign, _) => return reserved(sign),
        _ => Mistake::OutOfPlace { sign: token },
    }
    .into()
}

fn reserved(name: &str) -> Diagnostic {
    match name {
        "eval" => Mistake::NoEval,
        name if name.starts_with(char::is_alphabetic) => Mistake::ReservedWord { name },
        sign => Mistake::NotAnOperator { sign },
    }
    .or_help(habit("reserved", name).or_else(|| habit("keywords", name)))
}
