//! The parts of an input: imports, functions and statements; what they name, and how they are written elsewhere.

use std::collections::HashSet;

use super::pieces::{Kind, Piece, pieces};
use crate::script::Hook;

/// A part of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A line of its own, with its semicolon.
    Import(String),
    Function(Function),
    /// Without the semicolon.
    Statement(String),
}

/// A function, with the comments before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// How many arguments it takes: by this and its name the engine knows it.
    pub(super) arguments: usize,
    pub(super) text: String,
}

impl Item {
    pub(super) fn function(&self) -> Option<&Function> {
        match self {
            Item::Function(function) => Some(function),
            _ => None,
        }
    }

    pub(super) fn statement(&self) -> Option<&str> {
        match self {
            Item::Statement(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Item::Import(text) | Item::Statement(text) => text,
            Item::Function(function) => &function.text,
        }
    }

    /// What it computes: a function without its head.
    pub(super) fn body(&self) -> &str {
        match self {
            Item::Function(function) => function.body(),
            other => other.text(),
        }
    }
}

impl Function {
    /// Whether both have one name and as many arguments.
    pub(super) fn is_of(&self, other: &Function) -> bool {
        self.name == other.name && self.arguments == other.arguments
    }

    pub(super) fn body(&self) -> &str {
        let all = pieces(&self.text);
        let open = all
            .iter()
            .find(|piece| piece.kind == Kind::Sign && &self.text[piece.range.clone()] == "{");
        &self.text[open.map_or(0, |piece| piece.range.start)..]
    }
}

/// The parts of an input: statements end at a semicolon, functions at their brace.
pub(super) fn items(text: &str) -> Vec<Item> {
    let all = pieces(text);
    let part = |piece: &Piece| &text[piece.range.clone()];
    let mut items = Vec::new();
    let (mut start, mut depth) = (0, 0i32);
    for (place, piece) in all.iter().enumerate() {
        if piece.kind != Kind::Sign {
            continue;
        }
        match part(piece) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        let is_end = match part(piece) {
            ";" => depth == 0,
            "}" => depth == 0 && is_function(text, &all[start..=place]),
            _ => false,
        };
        if is_end {
            let end = if part(piece) == ";" { place } else { place + 1 };
            items.extend(item(text, &all[start..end]));
            start = place + 1;
        }
    }
    items.extend(item(text, &all[start.min(all.len())..]));
    items
}

fn is_code(piece: &&Piece) -> bool {
    !matches!(piece.kind, Kind::Space | Kind::Comment)
}

fn is_function(text: &str, all: &[Piece]) -> bool {
    let mut words = all
        .iter()
        .filter(is_code)
        .map(|piece| &text[piece.range.clone()]);
    match words.next() {
        Some("private") => words.next() == Some("fn"),
        first => first == Some("fn"),
    }
}

fn item(text: &str, all: &[Piece]) -> Option<Item> {
    let first = all.iter().find(is_code)?;
    // What follows the last piece is a comment, in which a semicolon would be lost.
    let last = all.iter().rfind(is_code)?;
    let code = &text[first.range.start..last.range.end];
    let comment = text[all[0].range.start..first.range.start].trim();
    let whole = match comment {
        "" => code.to_string(),
        comment => format!("{comment}\n{code}"),
    };
    if is_function(text, all) {
        let mut pieces = all.iter().filter(is_code);
        let name = pieces.find(|piece| piece.kind == Kind::Name)?;
        let is_sign = |piece: &Piece, sign| &text[piece.range.clone()] == sign;
        let inside = pieces
            .skip_while(|piece| !is_sign(piece, "("))
            .take_while(|piece| !is_sign(piece, ")"));
        return Some(Item::Function(Function {
            name: text[name.range.clone()].to_string(),
            arguments: inside.filter(|piece| piece.kind == Kind::Name).count(),
            text: whole,
        }));
    }
    Some(match &text[first.range.clone()] {
        "import" => Item::Import(format!("{code};")),
        _ => Item::Statement(whole),
    })
}

/// All names in texts, those in the `${...}` of texts in backquotes too.
pub(super) fn names<'a>(texts: impl IntoIterator<Item = &'a str>) -> HashSet<&'a str> {
    let mut found = HashSet::new();
    let mut open: Vec<&str> = texts.into_iter().collect();
    while let Some(text) = open.pop() {
        for piece in pieces(text) {
            let part = &text[piece.range.clone()];
            match piece.kind {
                Kind::Name => {
                    found.insert(part);
                }
                Kind::Text => open.extend(inserted(part).map(|range| &part[range])),
                _ => {}
            }
        }
    }
    found
}

/// Whether `_` stands in a text as the last value.
pub(super) fn mentions_last(text: &str) -> bool {
    pieces(text).iter().any(|piece| {
        let part = &text[piece.range.clone()];
        is_last(piece, text) || inserted(part).any(|range| mentions_last(&part[range]))
    })
}

/// Whether the piece is the name of the last value, and not the last arm of a `switch`.
fn is_last(piece: &Piece, text: &str) -> bool {
    let after = text[piece.range.end..].trim_start();
    piece.kind == Kind::Name && &text[piece.range.clone()] == "_" && !after.starts_with("=>")
}

/// The insides of the `${...}` of a text in backquotes.
fn inserted(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let is_open_to_them = text.starts_with('`');
    let mut from = 0;
    std::iter::from_fn(move || {
        if !is_open_to_them {
            return None;
        }
        let start = from + text[from..].find("${")? + 2;
        let mut depth = 1;
        let length = text[start..].find(|c| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        })?;
        from = start + length;
        Some(start..from)
    })
}

/// Whether an expression changes nothing: it assigns nothing, and calls only what `is_known` says to be so.
pub(super) fn is_pure(text: &str, is_known: impl Fn(&str, bool) -> bool) -> bool {
    let all = pieces(text);
    let code: Vec<&Piece> = all.iter().filter(is_code).collect();
    let part = |place: usize| {
        code.get(place)
            .map_or("", |piece| &text[piece.range.clone()])
    };
    (0..code.len()).all(|place| match code[place].kind {
        Kind::Sign if part(place) == "=" => {
            let is_before = place > 0 && ["=", "<", ">", "!"].contains(&part(place - 1));
            is_before || part(place + 1) == "="
        }
        Kind::Name if part(place + 1) == "(" => {
            is_known(part(place), place > 0 && part(place - 1) == ".")
        }
        Kind::Text => inserted(part(place)).next().is_none(),
        _ => true,
    })
}

/// A text as it stands in a script of its own: `_` under the name `last`, and the hooks of the recipe that was in use,
/// `calls`, as those of an import. With a map beside its name the recipe has the settings in it in place of `p`.
pub(super) fn rewritten(
    text: &str,
    last: &str,
    calls: Option<(&str, Option<&str>)>,
    is_function: bool,
    imports: &mut Vec<String>,
) -> String {
    let all = pieces(text);
    let part = |place: usize| {
        all.get(place)
            .map_or("", |piece| &text[piece.range.clone()])
    };
    let code_before = |place: usize| all[..place].iter().rfind(is_code);
    let mut out = String::new();
    let mut place = 0;
    while place < all.len() {
        let piece = &all[place];
        let own = part(place);
        let before = code_before(place).map_or("", |piece| &text[piece.range.clone()]);
        let is_free = piece.kind == Kind::Name && ![".", "fn", ":"].contains(&before);
        let is_hook = Hook::OF_BATCH.iter().any(|hook| hook.name() == own);
        let is_hook = is_hook && part(place + 1) == "(";
        match calls {
            Some((name, p)) if is_free && is_hook => {
                let line = format!("import \"{name}\" as {name};");
                if !imports.contains(&line) {
                    imports.push(line);
                }
                out.push_str(&format!("{name}::{own}"));
                if part(place + 2) == ")" {
                    out.push_str(&format!("(batch, {})", p.unwrap_or("p")));
                    place += 2;
                }
            }
            Some((_, Some(p))) if is_free && own == "p" && !is_function => out.push_str(p),
            _ if is_last(piece, text) => out.push_str(last),
            _ if piece.kind == Kind::Text => {
                let mut from = 0;
                for range in inserted(own) {
                    out.push_str(&own[from..range.start]);
                    let inside = &own[range.clone()];
                    out.push_str(&rewritten(inside, last, calls, is_function, imports));
                    from = range.end;
                }
                out.push_str(&own[from..]);
            }
            _ => out.push_str(own),
        }
        place += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_falls_into_its_items_whatever_stands_around_them() {
        let function = |name: &str, arguments, text: &str| {
            Item::Function(Function {
                name: name.to_string(),
                arguments,
                text: text.to_string(),
            })
        };
        let statement = |text: &str| Item::Statement(text.to_string());
        assert_eq!(
            items("// why\nfn  f(a, b) { a; b } let x = 1 // note; fn\n; x"),
            [
                function("f", 2, "// why\nfn  f(a, b) { a; b }"),
                statement("let x = 1"),
                statement("x"),
            ]
        );
        assert_eq!(
            items("import \"grpo\" as g; private fn h() { `}` } if a { b }"),
            [
                Item::Import("import \"grpo\" as g;".to_string()),
                function("h", 0, "private fn h() { `}` }"),
                statement("if a { b }"),
            ]
        );
        assert_eq!(items(" // nothing\n ;; /* here */"), []);
    }

    #[test]
    fn the_last_value_and_a_recipes_hooks_are_written_out() {
        let mut imports = Vec::new();
        let calls = Some(("passk", Some("#{ k: 2 }")));
        let text = "advantage() * p.k + `a ${_} b` + x.loss() + advantage(batch, p)";
        assert_eq!(
            rewritten(text, "last", calls, false, &mut imports),
            "passk::advantage(batch, #{ k: 2 }) * #{ k: 2 }.k + `a ${last} b` + x.loss() + \
             passk::advantage(batch, #{ k: 2 })"
        );
        assert_eq!(imports, ["import \"passk\" as passk;"]);
        let text = "switch _ { _ => passk::advantage(batch, p) }";
        assert_eq!(
            rewritten(text, "last", None, false, &mut imports),
            "switch last { _ => passk::advantage(batch, p) }"
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
