//! The parts of an input: imports, functions and statements; what they name, and how they are written elsewhere.

use std::collections::HashSet;

use super::token::{Token, TokenKind, code, lex};
use crate::script::Hook;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    /// A line of its own, with its semicolon.
    Import,
    /// The engine knows a function by its name and the number of its parameters.
    Function(String, usize),
    /// Without the semicolon.
    Statement,
}

/// A part of an input, with the comments before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) text: String,
}

impl Item {
    /// The name of a function.
    pub(crate) fn function(&self) -> Option<&str> {
        match &self.kind {
            ItemKind::Function(name, _) => Some(name),
            _ => None,
        }
    }

    /// A function without its head, anything else as it is.
    pub(crate) fn body(&self) -> &str {
        let mut tokens = code(&self.text).into_iter();
        match (self.function(), tokens.find(|token| token.text == "{")) {
            (Some(_), Some(brace)) => &self.text[brace.start..],
            _ => &self.text,
        }
    }
}

/// The parts of an input: statements end at a semicolon, functions at their brace.
pub(crate) fn items(text: &str) -> Vec<Item> {
    let all = code(text);
    let mut items = Vec::new();
    let (mut first, mut from, mut depth) = (0, 0, 0i32);
    for (index, token) in all.iter().enumerate() {
        depth += token.nesting();
        let last = match token.text {
            ";" if depth == 0 => index,
            "}" if depth == 0 && is_function(&all[first..]) => index + 1,
            _ => continue,
        };
        items.extend(item(text, from, &all[first..last]));
        (first, from) = (index + 1, token.end());
    }
    items.extend(item(text, from, &all[first..]));
    items
}

fn is_function(code: &[Token<'_>]) -> bool {
    let is = |index: usize, word| code.get(index).is_some_and(|token| token.text == word);
    is(0, "fn") || (is(0, "private") && is(1, "fn"))
}

/// The part that these tokens make, with the comments between `from` and them.
fn item(text: &str, from: usize, code: &[Token<'_>]) -> Option<Item> {
    // A semicolon would be lost in the comment that may follow the last token.
    let (first, last) = (code.first()?, code.last()?);
    let own = &text[first.start..last.end()];
    let whole = match text[from..first.start].trim() {
        "" => own.to_string(),
        comment => format!("{comment}\n{own}"),
    };
    if is_function(code) {
        let name = code
            .iter()
            .position(|token| token.kind == TokenKind::Name)?;
        let head = code[name + 1..].iter();
        let head = head.take_while(|token| !matches!(token.text, "()" | ")"));
        let parameters = head.filter(|token| token.kind == TokenKind::Name).count();
        let kind = ItemKind::Function(code[name].text.to_string(), parameters);
        return Some(Item { kind, text: whole });
    }
    let (kind, text) = match first.text {
        "import" => (ItemKind::Import, format!("{own};")),
        _ => (ItemKind::Statement, whole),
    };
    Some(Item { kind, text })
}

pub(crate) fn names<'a>(texts: impl IntoIterator<Item = &'a str>) -> HashSet<&'a str> {
    let all = texts.into_iter().flat_map(code);
    all.filter(|token| token.kind == TokenKind::Name)
        .map(|token| token.text)
        .collect()
}

/// How many values back a name of the last values reaches: `_` and `_1` the last one, `_2` that before it.
fn values_back(name: &str) -> Option<usize> {
    match name.strip_prefix('_')?.as_bytes() {
        [] => Some(1),
        [digit @ b'1'..=b'9'] => Some(usize::from(digit - b'0')),
        _ => None,
    }
}

/// Every name of one of the last values; a `_` that is the last arm of a `switch` is none.
pub(crate) fn last_values(text: &str) -> impl Iterator<Item = Token<'_>> {
    let all = code(text);
    (0..all.len()).filter_map(move |index| {
        let is_arm = all.get(index + 1).is_some_and(|next| next.text == "=>");
        let is_value = all[index].kind == TokenKind::Name && values_back(all[index].text).is_some();
        (is_value && !is_arm).then_some(all[index])
    })
}

const ASSIGNMENTS: [&str; 12] = [
    "=", "+=", "-=", "*=", "/=", "%=", "**=", "<<=", ">>=", "&=", "|=", "^=",
];

/// Whether an expression changes nothing: it assigns nothing, and calls only what `is_known` says to be so, given a name
/// and whether it is called as a method.
pub(crate) fn is_pure(text: &str, is_known: impl Fn(&str, bool) -> bool) -> bool {
    let all = code(text);
    (0..all.len()).all(|index| {
        let is_call = all.get(index + 1).is_some_and(Token::opens_call);
        let is_method = index > 0 && all[index - 1].text == ".";
        match all[index].kind {
            TokenKind::Name if is_call => is_known(all[index].text, is_method),
            _ => !ASSIGNMENTS.contains(&all[index].text),
        }
    })
}

/// How the text of an input is written in a script of its own.
#[derive(Clone, Copy)]
pub(crate) struct Rewriting<'a> {
    /// The names of the values so far, of which `_` is the last and `_2` that before it.
    pub(crate) values: &'a [String],
    /// The built-in recipe that was in use, whose hooks become those of an import.
    pub(crate) recipe: Option<&'a str>,
    /// A map of the settings that it had, in place of `p`.
    pub(crate) settings: Option<&'a str>,
}

impl Rewriting<'_> {
    /// The text rewritten, and whether that needs the recipe's import.
    pub(crate) fn of(&self, text: &str, is_function: bool) -> (String, bool) {
        let (mut out, mut at, mut needs_import) = (String::new(), 0, false);
        let all = lex(text);
        let last: HashSet<usize> = last_values(text).map(|token| token.start).collect();
        let mut before = "";
        for (index, token) in all.iter().enumerate() {
            if token.start < at {
                continue;
            }
            out.push_str(&text[at..token.start]);
            at = token.end();
            let next = all.get(index + 1).map_or("", |next| next.text);
            let is_free = token.kind == TokenKind::Name
                && ![".", "fn", "::"].contains(&before)
                && next != ":";
            let is_hook = Hook::OF_BATCH.iter().any(|hook| hook.name() == token.text);
            match (self.recipe, self.settings) {
                (Some(recipe), settings) if is_free && is_hook && next.starts_with('(') => {
                    needs_import = true;
                    out.push_str(&format!("{recipe}::{}", token.text));
                    if next == "()" {
                        out.push_str(&format!("(batch, {})", settings.unwrap_or("p")));
                        at = all[index + 1].end();
                    }
                }
                (Some(_), Some(settings)) if is_free && token.text == "p" && !is_function => {
                    out.push_str(settings);
                }
                _ if last.contains(&token.start) => {
                    let back = values_back(token.text).unwrap_or(1);
                    let value = self.values.iter().nth_back(back - 1);
                    out.push_str(value.map_or("()", String::as_str));
                }
                _ => out.push_str(token.text),
            }
            if token.kind != TokenKind::Comment {
                before = token.text;
            }
        }
        out.push_str(&text[at..]);
        (out, needs_import)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_falls_into_its_items_whatever_stands_around_them() {
        let item = |kind, text: &str| Item {
            kind,
            text: text.to_string(),
        };
        let function = |name: &str, parameters, text: &str| {
            item(ItemKind::Function(name.to_string(), parameters), text)
        };
        let statement = |text: &str| item(ItemKind::Statement, text);
        assert_eq!(
            items("// why\nfn  f(a, b) { a; b } let x = 1 // note; fn\n; x"),
            [
                function("f", 2, "// why\nfn  f(a, b) { a; b }"),
                statement("let x = 1"),
                statement("x"),
            ]
        );
        assert_eq!(
            items("import \"grpo\" as g; private fn h() { `}`; (1) } if a { b }"),
            [
                item(ItemKind::Import, "import \"grpo\" as g;"),
                function("h", 0, "private fn h() { `}`; (1) }"),
                statement("if a { b }"),
            ]
        );
        assert_eq!(items(" // nothing\n ;; /* here */"), []);
    }

    #[test]
    fn the_last_value_and_a_recipes_hooks_are_written_out() {
        let rewriting = Rewriting {
            values: &["last".to_string()],
            recipe: Some("passk"),
            settings: Some("#{ k: 2 }"),
        };
        let text = "advantage() * p.k + `a ${_} b` + x.loss() + advantage(batch, p)";
        assert_eq!(
            rewriting.of(text, false),
            (
                "passk::advantage(batch, #{ k: 2 }) * #{ k: 2 }.k + `a ${last} b` + x.loss() + \
                 passk::advantage(batch, #{ k: 2 })"
                    .to_string(),
                true
            )
        );
        let plain = Rewriting {
            recipe: None,
            ..rewriting
        };
        let text = "switch _ { _ => passk::advantage(batch, p) }";
        assert_eq!(
            plain.of(text, false),
            (text.replacen('_', "last", 1), false)
        );
    }

    #[test]
    fn what_assigns_or_calls_a_stranger_is_not_pure() {
        let is_pure = |text: &str| is_pure(text, |name, _| name == "mean");
        assert!(is_pure("r.mean(\"group\") == 1 && a <= b"));
        assert!(!is_pure("a.pop()"));
        assert!(!is_pure("x += 1"));
        assert!(!is_pure("{ x = 1; x }"));
        assert!(!is_pure("`${a.pop()}`"));
    }
}
