//! What to say of a script that cannot be read.

use rhai::{LexError, ParseErrorType};

use super::elsewhere::{self, Table};
use super::script::Site;
use super::{Script, lower_first, runtime};
use crate::diagnostic::{Diagnostic, Span};
use crate::script::syntax::{TokenKind, ValueKind};

pub(super) fn not_parsed(
    script: &Script<'_>,
    kind: &ParseErrorType,
    place: Option<Span>,
) -> Diagnostic {
    let site = place.as_ref().map(|place| script.site(place));
    if let Some((what, help)) = site.as_ref().and_then(|site| of_python(site, kind)) {
        let message = format!("{what} is not part of this language");
        return Diagnostic::error(message).with_help(help).at(place);
    }
    match kind {
        ParseErrorType::VariableUndefined(name) => {
            runtime::no_variable(script, name, place.as_ref()).at(place)
        }
        ParseErrorType::MissingToken(token, what) => missing(token, what, site),
        ParseErrorType::UnexpectedEOF => Diagnostic::error("the script ends unexpectedly")
            .with_help("is a `}` or a `)` missing?")
            .at(place),
        ParseErrorType::BadInput(error) => {
            lexical(error, site.map_or("", |site| site.text(0))).at(place)
        }
        ParseErrorType::Reserved(name) => reserved(name).at(place),
        other => parsed(other).at(place),
    }
}

/// The habits of other languages that stop the parser where its own message does not tell: their name and the help.
fn of_python(site: &Site<'_>, kind: &ParseErrorType) -> Option<(String, &'static str)> {
    let line = site.line();
    let word = |index: usize| line.get(index).map_or("", |token| token.text);
    let has_string = line.iter().any(|token| token.kind == TokenKind::String);
    let (what, help) = match (word(0), word(1)) {
        ("def", _) => ("`def`", "a function is `fn advantage(batch, p) { ... }`"),
        ("import", _) if !has_string => (
            "an `import` without quotes",
            "functions need no import; a recipe is imported by its name, `import \"grpo\" as grpo;`",
        ),
        ("from", _) => (
            "`from`",
            "a recipe is imported by its name, `import \"grpo\" as grpo;`",
        ),
        ("class", _) => (
            "`class`",
            "a recipe is made of functions; its state, `this`, lasts over steps",
        ),
        ("let", "mut") => (
            "`mut`",
            "variables can be changed as they are: `let x = 0.5;`",
        ),
        (first, _) => match (kind, site.text(0)) {
            (ParseErrorType::MissingToken(wanted, _), ",") if wanted == ";" => (
                "a `,` in this place",
                "decimals have a point, `0.5`; commas separate arguments, and a statement ends in `;`",
            ),
            (ParseErrorType::MissingToken(wanted, _), ":") if wanted == "{" => (
                "a `:` before a block",
                "a block is written in braces: `if x > 0 { ... }`, `for g in batch.groups { ... }`",
            ),
            (ParseErrorType::MissingToken(wanted, _), ":") if wanted == "]" => (
                "a slice",
                "tensors have levels instead of axes: a reduction names the level that it goes to, `x.mean(\"group\")`; a part of a string or an array is `a.extract(1, 2)`",
            ),
            (ParseErrorType::MissingToken(..), ":") if first == "let" => (
                "a type after a variable",
                "variables have no types: `let x = 0.5;`",
            ),
            (ParseErrorType::MissingToken(..), found) => {
                let here = elsewhere::KEYWORDS.find(found)?;
                return Some((format!("`{found}` in this place"), here));
            }
            _ => return None,
        },
    };
    Some((what.to_string(), help))
}

fn missing(token: &str, what: &str, site: Option<Site<'_>>) -> Diagnostic {
    let place = site.as_ref().map(Site::end_of_token_before);
    if token == ";" && site.is_none_or(|site| site.is_at_end()) {
        return Diagnostic::error("the script ends in the middle of a block")
            .with_help("is a `}` or a `)` missing?")
            .at(place);
    }
    let help = match token {
        ";" => {
            "every statement but the last of a block ends in `;`; an extra `)` or a missing operator looks like this too"
        }
        ")" | "," => "arguments are written in parentheses, separated by commas: `safe_div(a, b)`",
        "]" => "indices and arrays are written in square brackets: `a[0]`, `[1, 2]`",
        "}" => "a block ends in `}`, and commas separate the entries of a map: `#{ a: 1, b: 2 }`",
        "{" => "a block is written in braces: `if x > 0 { ... } else { ... }`",
        ":" => "a map is `#{ k: 4, eps: 1e-6 }`",
        "(" => "a function is `fn advantage(batch, p) { ... }`",
        "in" => "a loop is `for g in batch.groups { ... }`",
        "|" => "an anonymous function is `|g| g.reward`",
        _ => "is something missing before this?",
    };
    let message = match token {
        ")" | "," => "a `)` or a `,` is missing after this".to_string(),
        "in" => "an `in` is missing after this".to_string(),
        ";" | "]" | "}" | "{" | ":" | "(" | "|" => format!("a `{token}` is missing after this"),
        other => format!("a `{other}` is missing {what}"),
    };
    Diagnostic::error(message).with_help(help).at(place)
}

fn lexical(error: &LexError, token: &str) -> Diagnostic {
    match error {
        LexError::UnterminatedString => Diagnostic::error("this string has no closing quote")
            .with_help("a string ends in a `\"` on the same line; one in backquotes may have several lines"),
        LexError::MalformedChar(_) => Diagnostic::error("single quotes are for one character")
            .with_help("a string is written in double quotes: \"group\""),
        LexError::MalformedNumber(number) => Diagnostic::error(format!("`{number}` is not a number"))
            .with_help("numbers look like `8`, `0.5` and `1e-6`"),
        LexError::UnexpectedInput(sign)
            if sign.starts_with([')', ']', '}', ',', ';', '*', '/']) =>
        {
            Diagnostic::error(format!("something is missing before the `{sign}`"))
                .with_help("a value, a variable or an expression is expected")
        }
        LexError::UnexpectedInput(sign) => Diagnostic::error(format!(
            "`{sign}` is an unexpected character"
        ))
        .with_help(
            "names have the letters a to z, digits and `_`; other characters belong in comments and strings",
        ),
        LexError::ImproperSymbol(sign, _) => reserved(sign),
        LexError::MalformedEscapeSequence(sign) => {
            Diagnostic::error(format!("`{sign}` is not an escape that strings have"))
                .with_help("a backslash itself is `\\\\`")
        }
        _ => Diagnostic::error(format!("`{token}` cannot be used here"))
            .with_help("is another operator meant?"),
    }
}

fn reserved(name: &str) -> Diagnostic {
    let is_word = name.starts_with(char::is_alphabetic);
    let help = elsewhere::RESERVED
        .find(name)
        .or_else(|| elsewhere::KEYWORDS.find(name));
    let help = help.unwrap_or(if is_word {
        "choose another name"
    } else {
        "is another operator meant?"
    });
    let message = match (name, is_word) {
        ("eval", _) => "there is no `eval`".to_string(),
        (name, true) => format!("`{name}` is a reserved word"),
        (name, false) => format!("`{name}` is not an operator of this language"),
    };
    Diagnostic::error(message).with_help(help)
}

/// The parser's errors by its own names for them: the message, with the names that the error has for `{}`, and the help.
const PARSED: Table = Table(
    r#"
FnMissingParams: the function `{}` has no parameter list | as in `fn advantage(batch, p) { ... }`; an empty one is `()`
FnMissingName: a function without a name | as in `fn advantage(batch, p) { ... }`; an anonymous function is `|x| x + 1`
FnMissingBody: a function without a body | its body is written in braces: `fn advantage(batch, p) { ... }`
FnDuplicatedDefinition: the function `{}` is defined twice, with as many parameters | rename or remove one of them
FnDuplicatedParam: the function `{}` has two parameters `{}` | rename one
WrongFnDefinition: a function cannot be defined inside another function or a block | move it to the top level, or write a closure, `let f = |x| ...;`, and call it by `f.call(x)`
DuplicatedProperty: the map has the key `{}` twice | remove one of them
DuplicatedVariable: `{}` is declared twice | rename one
ExprTooDeep: brackets or blocks are nested too deeply | give the parts names, with `let`
LoopBreak: `break` and `continue` are for loops | `return x;` leaves a function
AssignmentToInvalidLHS: this cannot be assigned to | only a variable or a part of one can be; equality is `==`
ExprExpected MissingSymbol: an expression is missing here | a value, a variable or an expression is expected
PropertyExpected: a name is missing here | a dot is followed by a name, and an entry of a map begins with one: `p.k`, `#{ k: 4 }`
VariableExpected: a variable's name is missing here | as in `let x = 0.5;` and `for g in batch.groups { ... }`, one variable at a time
ForbiddenVariable: `{}` cannot be used as a variable's name | choose another name
MalformedIndexExpr: this cannot be used as an index | an index is an integer, a key a string: `a[0]`, `m["k"]`
WrongDocComment: a doc comment `///` must come right before a function | an ordinary comment is `//`
WrongExport: `export` is not needed | a script that imports this one sees all of its functions
LiteralTooLarge: this literal is too large | values by response or token are columns of the batch
WrongSwitchIntegerCase WrongSwitchDefaultCase WrongSwitchCaseCondition: this case of the `switch` cannot come here | values come first, then ranges, and `_`, for all others, last
"#,
);

fn parsed(kind: &ParseErrorType) -> Diagnostic {
    // Such as `FnDuplicatedParam("f", "x")`.
    let shown = format!("{kind:?}");
    let (name, carried) = shown.split_once('(').unwrap_or((&shown, ""));
    if let Some((message, help)) = PARSED.find(name).and_then(|row| row.split_once(" | ")) {
        let carried = carried.split('"').skip(1).step_by(2);
        let message = carried.fold(message.to_string(), |message, name| {
            message.replacen("{}", name, 1)
        });
        return Diagnostic::error(message).with_help(help);
    }
    match kind {
        ParseErrorType::ModuleUndefined(name) => runtime::no_import(name),
        ParseErrorType::AssignmentToConstant(name) => runtime::constant(name),
        ParseErrorType::UnknownOperator(sign) => reserved(sign),
        ParseErrorType::MismatchedType(wanted, found) => {
            let [wanted, found] = [wanted, found].map(|name| ValueKind::of_type(name).described());
            let help = match wanted {
                "an array or a range" => {
                    "a loop runs over a range or an array: `for i in 0..3 { ... }`"
                }
                _ => "a condition is a comparison, as in `if batch.step > 100 { ... }`",
            };
            Diagnostic::error(format!("expected {wanted}, found {found}")).with_help(help)
        }
        other => Diagnostic::error(lower_first(&other.to_string()))
            .with_help("is something missing here, or superfluous?"),
    }
}
