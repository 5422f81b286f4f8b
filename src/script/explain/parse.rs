//! Messages for a script that cannot be read.

use rhai::{LexError, ParseErrorType};

use super::{Script, find, helped, lower_first, mistake, runtime, said, variant};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::lint::floor_divisions;
use crate::script::syntax::{TokenKind, ValueKind};

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
    // The end of a statement that `//` hides is missed behind it.
    let hidden = floor_divisions(source, &text, &|_| false).into_iter();
    let is_before = |hidden: &Diagnostic| hidden.span.as_ref().is_some_and(|at| at.line <= last);
    if let Some(hidden) = hidden.rev().find(is_before) {
        return hidden;
    }
    if let Some(habit) = here.and_then(|place| habit(script, place, kind)) {
        return habit.at(place);
    }
    match kind {
        ParseErrorType::VariableUndefined(name) => {
            runtime::no_variable(script, name, here).at(place)
        }
        ParseErrorType::MissingToken(token, what) => {
            let at_end = token == ";" && found.is_empty();
            let row = mistake("missing", if at_end { "end" } else { token }, &[]);
            row.unwrap_or_else(|| said("missing", "other", &[token, what]))
                .at(here.map(|place| script.end_before(place)))
        }
        ParseErrorType::UnexpectedEOF => {
            said("engine", "UnexpectedEOF", &[]).at(here.map(|place| script.end_before(place)))
        }
        ParseErrorType::BadInput(error) => lexical(error, found).at(place),
        ParseErrorType::Reserved(name) | ParseErrorType::UnknownOperator(name) => {
            reserved(name).at(place)
        }
        ParseErrorType::ModuleUndefined(name) => runtime::no_import(name).at(place),
        ParseErrorType::MismatchedType(wanted, found) => {
            let [wanted, found] = [wanted, found].map(|name| ValueKind::of_type(name));
            let row = match wanted {
                ValueKind::Iterable => "loop",
                _ => "condition",
            };
            said("value", row, &[wanted.described(), found.described()]).at(place)
        }
        other => variant(other)
            .unwrap_or_else(|| {
                Diagnostic::error(lower_first(&other.to_string()))
                    .with_help("is something missing here, or superfluous?")
            })
            .at(place),
    }
}

/// A habit of another language that stops the parser where its own message does not tell.
fn habit(script: &Script<'_>, place: &Span, kind: &ParseErrorType) -> Option<Diagnostic> {
    let line = script.line(place);
    let word = |index: usize| line.get(index).map_or("", |token| token.text);
    let begins = match (word(0), word(1)) {
        ("let", "mut") => "let-mut",
        ("import", _) if line.iter().any(|token| token.kind == TokenKind::String) => "",
        (first, _) => first,
    };
    if let Some(row) = mistake("line", begins, &[]) {
        return Some(row);
    }
    let ParseErrorType::MissingToken(wanted, _) = kind else {
        return None;
    };
    let found = script.site(place).text(0);
    mistake("found", &format!("{wanted}{found}"), &[])
        .or_else(|| mistake("found", &format!("{}{found}", word(0)), &[]))
        .or_else(|| {
            let here = find("keywords", found)?;
            let message = format!("`{found}` in this place is not part of this language");
            Some(Diagnostic::error(message).with_help(here))
        })
}

fn lexical(error: &LexError, token: &str) -> Diagnostic {
    match error {
        LexError::UnexpectedInput(sign)
            if sign.starts_with([')', ']', '}', ',', ';', '*', '/']) =>
        {
            said("name", "before", &[sign])
        }
        LexError::UnexpectedInput(sign) => said("engine", "UnexpectedInput", &[sign]),
        LexError::MalformedEscapeSequence(sign) => {
            said("engine", "MalformedEscapeSequence", &[sign])
        }
        LexError::ImproperSymbol(sign, _) => reserved(sign),
        other => variant(other).unwrap_or_else(|| said("name", "here", &[token])),
    }
}

fn reserved(name: &str) -> Diagnostic {
    let row = match name {
        "eval" => "eval",
        name if name.starts_with(char::is_alphabetic) => "word",
        _ => "operator",
    };
    let here = find("reserved", name).or_else(|| find("keywords", name));
    helped(said("name", row, &[name]), here)
}
