//! The script's own names: a node is called like the variable whose statement made it.

use super::formula::{COLUMN, Node};
use super::text::source_of;
use crate::script::syntax::{Token, code};
use crate::script::{Hook, Recipe};
use crate::tensor::Origin;

/// A statement that gives a value to a variable: its name, and the places from its first token to its end.
struct Assignment<'a> {
    source: &'a str,
    name: &'a str,
    start: (usize, usize),
    end: (usize, usize),
    /// The places of its operators and calls that are not in brackets, and so may give the value.
    outer: Vec<(usize, usize)>,
    /// The column that is the value: `let r = batch.reward`.
    column: Option<&'a str>,
}

/// The statements that give a column another name: the source, the line, the name and the column.
pub(super) fn renamed(recipe: &Recipe) -> Vec<(&str, usize, &str, &str)> {
    let sources = recipe.sources();
    let all = sources.flat_map(|(source, text)| assignments(source, &code(text)));
    let all = all.filter_map(|of| Some((of.source, of.start.0, of.name, of.column?)));
    all.collect()
}

/// Names nodes. If a statement made several, the one that no other of them uses is the variable's value.
pub(super) fn name(recipe: &Recipe, nodes: &mut [Node]) {
    let sources = recipe.sources();
    let all: Vec<Assignment<'_>> = sources
        .flat_map(|(source, text)| assignments(source, &code(text)))
        .collect();
    let innermost = |origin: &Origin| {
        let source = source_of(recipe, origin);
        let place = (origin.line, origin.column);
        let is_around =
            |of: &&Assignment<'_>| of.source == source && of.start <= place && place < of.end;
        all.iter().filter(is_around).max_by_key(|of| of.start)
    };
    let made_by: Vec<Option<&Assignment<'_>>> = nodes
        .iter()
        .map(|node| innermost(node.origin.as_ref()?))
        .collect();
    let is_same = |a: usize, b: usize| match (made_by[a], made_by[b]) {
        (Some(a), Some(b)) => std::ptr::eq(a, b),
        _ => false,
    };
    for index in 0..nodes.len() {
        let is_value = |of: &&Assignment<'_>| {
            let origin = nodes[index].origin.as_ref();
            origin.is_some_and(|origin| of.outer.contains(&(origin.line, origin.column)))
        };
        let is_used = || {
            (index + 1..nodes.len())
                .any(|by| is_same(index, by) && nodes[by].nodes().any(|arg| arg == index))
        };
        let of =
            made_by[index].filter(|of| is_value(of) && nodes[index].row != COLUMN && !is_used());
        if let Some(of) = of {
            nodes[index].name.get_or_insert_with(|| of.name.to_string());
        }
    }
}

/// The function of the script, no hook, whose value is made at a place.
pub(super) fn function_of(recipe: &Recipe, origin: &Origin) -> Option<String> {
    let source = source_of(recipe, origin);
    let (_, text) = recipe.sources().find(|(name, _)| *name == source)?;
    let code = code(text);
    let place = (origin.line, origin.column);
    let before = code
        .iter()
        .take_while(|token| (token.line, token.column) < place);
    let before: Vec<&Token<'_>> = before.collect();
    let start = before.iter().rposition(|token| token.text == "fn")?;
    let name = before.get(start + 1)?.text;
    // After the last statement of the body, there is its value.
    let rest = code[before.len()..]
        .iter()
        .take_while(|token| token.text != "fn");
    let is_value = rest.into_iter().all(|token| token.text != ";");
    (is_value && Hook::ALL.iter().all(|hook| hook.name() != name)).then(|| name.to_string())
}

fn assignments<'a>(source: &'a str, code: &[Token<'a>]) -> Vec<Assignment<'a>> {
    let mut all = Vec::new();
    for (index, token) in code.iter().enumerate() {
        let is_let = matches!(token.text, "let" | "const");
        let is_first = index == 0 || matches!(code[index - 1].text, ";" | "{" | "}");
        let (name, sign) = match is_let {
            true => (code.get(index + 1), code.get(index + 2)),
            false => (Some(token), code.get(index + 1)),
        };
        let (Some(name), Some(sign)) = (name, sign) else {
            continue;
        };
        if !is_first || !matches!(sign.text, "=" | "+=" | "-=" | "*=" | "/=") {
            continue;
        }
        let (mut depth, mut brackets, mut outer) = (0, 0, Vec::new());
        let end = code[index..].iter().find(|token| {
            depth += token.nesting();
            if brackets == 0 {
                outer.push((token.line, token.column));
            }
            brackets += match token.text {
                "{" | "}" | "#{" => 0,
                _ => token.nesting(),
            };
            depth < 0 || depth == 0 && token.text == ";"
        });
        let texts: Vec<&str> = code[index..]
            .iter()
            .map(|token| token.text)
            .take(7)
            .collect();
        let column = match texts[..] {
            ["let" | "const", _, "=", "batch", ".", column, ";"] => Some(column),
            _ => None,
        };
        all.push(Assignment {
            column,
            source,
            name: name.text,
            start: (token.line, token.column),
            end: end.map_or((usize::MAX, 0), |token| (token.line, token.column)),
            outer,
        });
    }
    all
}
