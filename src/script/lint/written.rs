//! What a script's own text shows, whatever the engine makes of it: powers of a negation, hooks that are misspelt,
//! parameters that nobody reads.

use std::sync::Arc;

use super::Lint;
use crate::diagnostic::{Diagnostic, Span};
use crate::script::recipe::Hook;
use crate::script::syntax::{Token, TokenKind, code};
use crate::suggest;

/// The most bytes of an operand that a message repeats.
const SHOWN: usize = 40;

impl Lint<'_, '_> {
    /// Parameters that nobody reads: to set one with `--set` would do nothing.
    pub(super) fn unread_parameters(&mut self) {
        let known = self.known;
        if known.is_import || self.passes_parameters_on {
            return;
        }
        let code = known.script.code(known.script.name);
        // A column of the batch may have the parameter's name.
        let reads = |three: &[Token<'_>], name: &str| {
            three[0].text != "batch" && three[1].text == "." && three[2].text == name
        };
        for name in &known.script.parameters {
            if !code.windows(3).any(|three| reads(three, name)) {
                self.warning(
                    known.script.key(name),
                    format!("the parameter `{name}` is declared and never read"),
                    format!("a hook reads it as `p.{name}`"),
                );
            }
        }
    }

    /// Functions that nobody calls, and whose names are near that of a hook that the script lacks.
    pub(super) fn misspelt_hooks(&mut self) {
        let known = self.known;
        if known.is_import {
            return;
        }
        let code = known.script.code(known.script.name);
        let mut unused = Vec::new();
        for (name, counts) in &self.own {
            let hooks = Hook::ALL.into_iter().filter(|hook| {
                !self.own.contains_key(hook.name()) && counts.contains(&hook.parameters().len())
            });
            let quoted = format!("\"{name}\"");
            let named = code
                .iter()
                .filter(|token| token.is_name(name) || token.text == quoted);
            if let Some(near) = suggest::nearest(name, hooks.map(Hook::name))
                && named.count() == counts.len()
            {
                unused.push((name.clone(), near));
            }
        }
        for (name, near) in unused {
            self.warning(
                known.script.definition(&name),
                format!("nothing calls the function `{name}`"),
                format!("did you mean the hook `{near}`?"),
            );
        }
    }
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
            if words.len() > SHOWN { name.to_string() } else { words }
        };
        let base = operand(minus.start + 1, code[sign - 1].end(), "x");
        let exponent = operand(code[sign + 1].start, last, "y");
        let message = format!(
            "`-{base} ** {exponent}` is `(-{base}) ** {exponent}` here, and `-({base} ** {exponent})` in Python and in algebra"
        );
        let help = format!(
            "write the brackets: `(-{base}) ** {exponent}` or `-({base} ** {exponent})`"
        );
        let whole = text[minus.start..last].lines().next().unwrap_or("-");
        let span = Span {
            length: whole.chars().count(),
            ..minus.span(source, text)
        };
        Some(Diagnostic::error(message).with_help(help).at(Some(span)))
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
    for (index, token) in code.iter().enumerate().skip(start) {
        depth += match token.text {
            "(" | "[" | "{" | "#{" | "?[" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        };
        if depth <= 0 {
            return Some(index + 1);
        }
    }
    None
}
