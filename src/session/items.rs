//! The parts of an input: imports, functions and statements, and the uses of the last value in them.

use crate::script::syntax::{Token, TokenKind, code, sites};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// With its semicolon.
    Import(String),
    /// The engine knows a function by its name and the number of its parameters.
    Function(String, usize, String),
    /// Without its semicolon.
    Statement(String),
}

/// The parts of an input, with the comments before them: statements end at a semicolon, functions at their brace.
pub(super) fn items(text: &str) -> Vec<Item> {
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

/// The part that these tokens make, with the comments after `from`.
fn item(text: &str, from: usize, code: &[Token<'_>]) -> Option<Item> {
    // A comment after the last token is left out: it would hide a semicolon.
    let (first, last) = (code.first()?, code.last()?);
    let text = text[from..last.end()].trim().to_string();
    if !is_function(code) {
        return Some(match first.text {
            "import" => Item::Import(format!("{text};")),
            _ => Item::Statement(text),
        });
    }
    let mut names = code.iter().filter(|token| token.kind == TokenKind::Name);
    let name = names.next()?;
    let head = code.iter().skip_while(|token| token.start <= name.start);
    let head = head.take_while(|token| !matches!(token.text, "()" | ")"));
    let parameters = head.filter(|token| token.kind == TokenKind::Name).count();
    Some(Item::Function(name.text.to_string(), parameters, text))
}

/// The uses of the last value: `_`, except as the last arm of a `switch`.
pub(super) fn last_values(text: &str) -> Vec<Token<'_>> {
    let code = code(text);
    let values = sites(&code).filter(|site| site.text(0) == "_" && site.text(1) != "=>");
    values.map(|site| site.code[site.index]).collect()
}

/// The text with another name for the last value.
pub(super) fn with_value_named(text: &str, name: &str) -> String {
    let (mut renamed, mut from) = (String::new(), 0);
    for value in last_values(text) {
        renamed.extend([&text[from..value.start], name]);
        from = value.end();
    }
    renamed + &text[from..]
}

pub(super) fn has_name(text: &str, name: &str) -> bool {
    code(text).iter().any(|token| token.is_name(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "(fn |let |import |[a-z_;(){}\\[\\]=> ]|[\"'`\\\\]|\\$\\{|/\\*|\\*/|//|[\r\n\té]){0,40}") {
            let _ = (items(&text), with_value_named(&text, "v"));
        }
    }

    #[test]
    fn an_input_falls_into_its_items_whatever_stands_around_them() {
        let function =
            |name: &str, count, text: &str| Item::Function(name.into(), count, text.into());
        let statement = |text: &str| Item::Statement(text.into());
        let import = Item::Import("import \"grpo\" as g;".into());
        for (text, expected) in [
            (
                "// why\nfn  f(a, b) { a; b } let x = 1 // note; fn\n; x",
                vec![
                    function("f", 2, "// why\nfn  f(a, b) { a; b }"),
                    statement("let x = 1"),
                    statement("x"),
                ],
            ),
            (
                "import \"grpo\" as g; private fn h() { `}`; (1) } if a { b }",
                vec![
                    import,
                    function("h", 0, "private fn h() { `}`; (1) }"),
                    statement("if a { b }"),
                ],
            ),
            (" // nothing\n ;; /* here */", vec![]),
        ] {
            assert_eq!(items(text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_value_gets_a_name_except_in_a_switch() {
        let text = "switch _ { _ => `a ${_}` } + _x";
        let named = with_value_named(text, "v");
        assert_eq!(named, "switch v { _ => `a ${v}` } + _x");
    }
}
