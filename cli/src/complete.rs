//! The word that is completed at the cursor in a script; [`Session::members`] finds the members of a value.

use advlab::script::{Builtin, Token, TokenKind, Unfinished, unfinished};
use advlab::session::{Name, Session};
use advlab::tensor::Level;
use advlab::tensor::op::{self, ParamKind};

/// Returns the position at which the word at the end of a script's text begins, and the names that may be typed there.
pub(crate) fn of_script(script: &Session, before: &str) -> (usize, Vec<Name>) {
    let open = unfinished(before);
    if let Some(last) = open.last {
        return match last.kind {
            TokenKind::String => (last.start + 1, in_quotes(&open)),
            _ => (before.len(), Vec::new()),
        };
    }
    let is_word = |token: &Token<'_>| {
        let is_name = matches!(token.kind, TokenKind::Name | TokenKind::Keyword);
        is_name && token.end() == before.len()
    };
    let (start, code) = match open.code.split_last() {
        Some((word, code)) if is_word(word) => (word.start, code),
        _ => (before.len(), &open.code[..]),
    };
    let names = match code.split_last() {
        Some((dot, receiver)) if dot.text == "." => script.members(receiver),
        _ => script.names(),
    };
    (start, names)
}

/// Returns the strings that may follow an opening quote: recipes to import, the choices of a function's parameter, or else
/// levels.
fn in_quotes(open: &Unfinished<'_>) -> Vec<Name> {
    let quoted = |name: &str| Name {
        text: format!("{name}\""),
        call: name.to_string(),
    };
    if open.code.last().is_some_and(|token| token.text == "import") {
        return Builtin::importable().map(|one| quoted(one.name)).collect();
    }
    let head = open.call().and_then(|(head, _)| head.last());
    let function = op::table().find(|op| head.is_some_and(|head| head.text == op.name));
    let choices = function
        .iter()
        .flat_map(|op| op.params)
        .find_map(|param| match param.kind {
            ParamKind::Choice(choices) => {
                Some(choices.iter().map(|choice| quoted(choice)).collect())
            }
            _ => None,
        });
    choices.unwrap_or_else(|| Level::ALL.iter().map(|one| quoted(one.name())).collect())
}
