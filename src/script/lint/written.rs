//! Mistakes that a script's own text shows, whatever the engine makes of it: powers of a negation, hooks that are misspelt,
//! parameters that nobody reads.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Severity, Span};
use crate::script::explain::{Script, said};
use crate::script::library::Functions;
use crate::script::recipe::Hook;
use crate::script::syntax::{Token, TokenKind, code};
use crate::suggest;

/// The most bytes of an operand that a message repeats.
const SHOWN: usize = 40;

/// Parameters that nobody reads: to set one with `--set` would do nothing.
pub(super) fn unread_parameters(script: &Script<'_>) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    let is_read = |name: &str| {
        code.windows(3).any(|three| {
            // A column of the batch may have the parameter's name.
            three[0].text != "batch" && three[1].text == "." && three[2].text == name
        })
    };
    let unread = script.parameters.iter().filter(|name| !is_read(name));
    let warnings = unread.map(|name| {
        let mut warning = said("lint", "unread", &[name]).at(script.key(name));
        warning.severity = Severity::Warning;
        warning
    });
    warnings.collect()
}

/// Functions that nobody calls, and whose names are near that of a hook that the script lacks.
pub(in crate::script) fn misspelt_hooks(
    script: &Script<'_>,
    functions: &Functions,
) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    let warnings = functions.iter().filter_map(|(name, counts)| {
        let hooks = Hook::ALL.into_iter().filter(|hook| {
            !functions.contains_key(hook.name()) && counts.contains(&hook.parameters().len())
        });
        let near = suggest::nearest(name, hooks.map(Hook::name))?;
        let quoted = format!("\"{name}\"");
        let named = code
            .iter()
            .filter(|token| token.is_name(name) || token.text == quoted);
        let mut warning = said("lint", "uncalled", &[name, near]).at(script.definition(name));
        warning.severity = Severity::Warning;
        (named.count() == counts.len()).then_some(warning)
    });
    warnings.collect()
}

/// Every minus before an operand of `**` without brackets: here it belongs to the operand, and in Python, Julia and
/// algebra to the power.
pub(in crate::script) fn ambiguous_powers(source: &Arc<str>, text: &Arc<str>) -> Vec<Diagnostic> {
    let code = code(text);
    let powers = (0..code.len()).filter_map(|index| {
        let minus = &code[index];
        let first = match minus.kind {
            TokenKind::Negation => index + 1,
            TokenKind::Number if minus.text.starts_with('-') => index,
            _ => return None,
        };
        let sign = operand_end(&code, first)?;
        code.get(sign).filter(|token| token.text == "**")?;
        let end = operand_end(&code, sign + 1)?;
        let last = code[end - 1].end();
        let operand = |from: usize, to: usize, name: &str| {
            let words: Vec<&str> = text[from..to].split_whitespace().collect();
            let words = words.join(" ");
            if words.len() > SHOWN {
                name.to_string()
            } else {
                words
            }
        };
        let base = operand(minus.start + 1, code[sign - 1].end(), "x");
        let exponent = operand(code[sign + 1].start, last, "y");
        let whole = text[minus.start..last].lines().next().unwrap_or("-");
        let span = Span {
            length: whole.chars().count(),
            ..minus.span(source, text)
        };
        Some(said("lint", "power", &[&base, &exponent]).at(Some(span)))
    });
    powers.collect()
}

/// The index after the operand that begins at `start`, with its calls, indices and members.
fn operand_end(code: &[Token<'_>], start: usize) -> Option<usize> {
    let mut end = start;
    while matches!(code.get(end)?.text, "!" | "-" | "+") {
        end += 1;
    }
    end = bracket_end(code, end)?;
    while let Some(token) = code.get(end) {
        end = match token.text {
            "." | "?." | "::" => end + 2,
            "(" | "()" | "[" | "?[" => bracket_end(code, end)?,
            _ => break,
        };
    }
    (end <= code.len()).then_some(end)
}

/// The index after this token, or after the bracket that it opens.
fn bracket_end(code: &[Token<'_>], start: usize) -> Option<usize> {
    let mut depth = 0;
    let length = code.get(start..)?.iter().position(|token| {
        depth += token.nesting();
        depth <= 0
    });
    Some(start + length? + 1)
}
