//! Mistakes that a script's own text shows, whatever the engine makes of it: operators that mean something else in Python,
//! hooks that are misspelt, parameters that nobody reads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Severity, Span};
use crate::script::explain::{Script, names, said};
use crate::script::library::Functions;
use crate::script::recipe::Hook;
use crate::script::syntax::{Token, TokenKind, code, lex, rows};
use crate::suggest;

/// The most bytes of an operand that a message repeats.
const SHOWN: usize = 40;

/// Parameters that nobody reads: to set one with `--set` would do nothing.
pub(super) fn unread_parameters(script: &Script<'_>) -> Vec<Diagnostic> {
    let code = script.code(script.name);
    // A column of the batch may have the parameter's name.
    let read = code.windows(3).filter_map(|three| {
        let is_read = three[0].text != "batch" && three[1].text == ".";
        is_read.then_some(three[2].text)
    });
    let read: HashSet<&str> = read.collect();
    let mut keys: HashMap<&str, (bool, &Token<'_>)> = HashMap::new();
    for (index, two) in code.windows(2).enumerate().rev() {
        // The first key of that name, most of all one whose value is a map.
        let declares = code.get(index + 2).is_some_and(|token| token.text == "#{");
        if two[1].text == ":" && (declares || !keys.get(two[0].text).is_some_and(|key| key.0)) {
            keys.insert(two[0].text, (declares, &two[0]));
        }
    }
    let text = script.text();
    let unread = script
        .parameters
        .iter()
        .filter(|name| !read.contains(name.as_str()));
    let warnings = unread.map(|name| {
        let key = keys.get(name.as_str());
        let mut warning = said("lint", "unread", &[name])
            .at(key.map(|(_, token)| token.span(script.name, &text)));
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

/// Operators that mean something else in Python; `knows` tells which names are variables beside those of the text itself.
pub(in crate::script) fn misread_operators(
    source: &Arc<str>,
    text: &Arc<str>,
    knows: &dyn Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let mut found = ambiguous_powers(source, text);
    found.extend(floor_divisions(source, text, knows));
    found
}

/// Every `//` between an expression and what can only be an operand: here it begins a comment, which is dropped.
pub(in crate::script) fn floor_divisions(
    source: &Arc<str>,
    text: &Arc<str>,
    knows: &dyn Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let all = lex(text);
    let declared: HashSet<&str> = names(&all).into_iter().collect();
    let knows = |name: &str| declared.contains(name) || knows(name);
    let functions = all.windows(2).filter(|two| two[0].text == "fn");
    let functions: HashSet<&str> = functions.map(|two| two[1].text).collect();
    let divisions = (1..all.len()).filter_map(|index| {
        let (last, comment) = (&all[index - 1], &all[index]);
        let behind = comment.text.strip_prefix("//")?;
        let ends_operand = matches!(last.kind, TokenKind::Name | TokenKind::Number)
            || matches!(last.text, ")" | "]" | "()");
        if comment.kind != TokenKind::Comment || last.line != comment.line || !ends_operand {
            return None;
        }
        let operands = Operands {
            code: &code(behind),
            knows: &knows,
            functions: &functions,
        };
        let end = operands.all().then(|| operands.operand(0, false))??;
        let end = operands.code[end - 1].end();
        let first = operand_start(&all[..index]);
        let (a, b) = (&text[all[first].start..last.end()], behind[..end].trim());
        let shown = |operand, name| match str::len(operand) {
            ..=SHOWN => operand,
            _ => name,
        };
        let span = Span {
            length: 2,
            ..comment.span(source, text)
        };
        Some(said("lint", "floor", &[shown(a, "a"), shown(b, "b")]).at(Some(span)))
    });
    divisions.collect()
}

/// The index of the first token of the operand at the end of some tokens, with its calls, indices and members.
fn operand_start(tokens: &[Token<'_>]) -> usize {
    let mut start = tokens.len();
    loop {
        let last = &tokens[start - 1];
        let mut depth = 0;
        start = tokens[..start]
            .iter()
            .rposition(|token| {
                depth -= token.nesting();
                depth <= 0
            })
            .unwrap_or(0);
        let Some(before) = start.checked_sub(1).map(|before| &tokens[before]) else {
            return 0;
        };
        let is_bracket = |token: &Token<'_>| matches!(token.text, ")" | "]" | "()");
        let is_call = is_bracket(last)
            && (before.kind == TokenKind::Name || is_bracket(before))
            && before.end() == tokens[start].start;
        let is_member = matches!(before.text, "." | "?." | "::");
        match (is_call, is_member) {
            (false, true) if start > 1 => start -= 1,
            (true, _) => {}
            _ => return start,
        }
    }
}

/// A comment's words, read as the operand of a division and what may come after it. A comment of words is none: its names are
/// no variables, or no operator stands between them. Neither is a minus (code that was taken out), `(1)` (the number of an
/// equation) or 0.
struct Operands<'t, 'k> {
    code: &'t [Token<'t>],
    knows: &'k dyn Fn(&str) -> bool,
    functions: &'k HashSet<&'k str>,
}

impl Operands<'_, '_> {
    fn text(&self, at: usize) -> &str {
        self.code.get(at).map_or("", |token| token.text)
    }

    fn is_operator(&self, at: usize) -> bool {
        let operators = "+ - * / % ** == != < <= > >= & | && ||";
        operators
            .split(' ')
            .any(|operator| operator == self.text(at))
    }

    /// Whether all of the words can be that.
    fn all(&self) -> bool {
        let is_zero = self.code.len() == 1 && self.text(0).parse() == Ok(0.0);
        let Some(mut end) = self.expression(0, false).filter(|_| !is_zero) else {
            return false;
        };
        loop {
            match self.text(end) {
                "" => return true,
                ";" => {
                    let next = self.code.get(end + 1);
                    return next.is_none_or(|next| {
                        next.kind == TokenKind::Keyword || (self.knows)(next.text)
                    });
                }
                ")" | "]" | "}" | "{" => end += 1,
                "," if end + 1 == self.code.len() => return true,
                sign if sign == "," || self.is_operator(end) => {
                    match self.expression(end + 1, false) {
                        Some(next) => end = next,
                        None => return false,
                    }
                }
                _ => return false,
            }
        }
    }

    /// The index after operands with operators between them.
    fn expression(&self, start: usize, is_inside: bool) -> Option<usize> {
        let mut end = self.operand(start, is_inside)?;
        while self.is_operator(end) {
            end = self.operand(end + 1, is_inside)?;
        }
        Some(end)
    }

    /// The index after a number, a variable, a call or a group in brackets, with its members and indices.
    fn operand(&self, start: usize, is_inside: bool) -> Option<usize> {
        let token = self.code.get(start)?;
        // White space ends an operand.
        let is_next = |at: usize| {
            let next = self.code.get(at)?;
            (next.start == self.code[at - 1].end()).then_some(next)
        };
        let follows = is_next(start + 1).map_or("", |next| next.text);
        let mut end = match token.kind {
            TokenKind::Number if is_inside || !token.text.starts_with('-') => start + 1,
            TokenKind::String | TokenKind::Negation if is_inside => start + 1,
            TokenKind::Name if matches!(follows, "(" | "()") => {
                let is_function = (self.knows)(token.text) || rows(token.text).next().is_some();
                is_function.then_some(start + 1)?
            }
            TokenKind::Name => {
                // The name of a function without a call is a word.
                let is_alone = follows != "." && ["batch", "p"].contains(&token.text)
                    || self.functions.contains(token.text);
                (!is_alone && (self.knows)(token.text)).then_some(start + 1)?
            }
            _ if token.text == "(" => {
                let is_label = self.code.get(start + 1)?.kind == TokenKind::Number
                    && self.text(start + 2) == ")";
                (is_inside || !is_label).then(|| self.closed(start))??
            }
            _ => return None,
        };
        if token.kind == TokenKind::Negation {
            return self.operand(end, is_inside);
        }
        while let Some(next) = is_next(end) {
            end = match next.text {
                "." | "?." if is_next(end + 1)?.kind == TokenKind::Name => end + 2,
                "()" => end + 1,
                "(" | "[" => self.closed(end)?,
                _ => break,
            };
        }
        Some(end)
    }

    /// The index after a bracket that is opened here, with expressions in it.
    fn closed(&self, open: usize) -> Option<usize> {
        let mut end = open;
        loop {
            end = self.expression(end + 1, true)?;
            match self.text(end) {
                "," => {}
                ")" | "]" => return Some(end + 1),
                _ => return None,
            }
        }
    }
}

/// Every minus before an operand of `**` without brackets: here it belongs to the operand, and in Python, Julia and
/// algebra to the power.
fn ambiguous_powers(source: &Arc<str>, text: &Arc<str>) -> Vec<Diagnostic> {
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
