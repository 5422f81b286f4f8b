//! What to say of a script that cannot be read.

use rhai::{LexError, ParseErrorType};

use super::place::end_of_what_is_before;
use super::{Script, elsewhere, runtime, words};
use crate::diagnostic::{Diagnostic, Span};

impl Script<'_> {
    /// The diagnostic of a script that does not compile, with its place.
    pub(super) fn syntax(&self, kind: &ParseErrorType, place: Option<Span>) -> Diagnostic {
        let found = place.as_ref().map(Found::at);
        if let Some(diagnostic) = found.as_ref().and_then(|found| found.of_python(kind)) {
            return diagnostic.at(place);
        }
        match kind {
            ParseErrorType::VariableUndefined(name) => {
                self.no_variable(name, place.as_ref()).at(place)
            }
            ParseErrorType::MissingToken(token, what) => {
                missing(token, what, found.as_ref(), place)
            }
            ParseErrorType::UnexpectedEOF => {
                Diagnostic::error("the script ends in the middle of something")
                    .with_help("is a `}` or a `)` missing?")
                    .at(place)
            }
            ParseErrorType::BadInput(error) => lexical(error, found.as_ref()).at(place),
            ParseErrorType::Reserved(name) => reserved(name).at(place),
            other => parsed(other).at(place),
        }
    }
}

/// The word or sign at a place, and the line that it stands in.
struct Found {
    token: String,
    line: String,
    rest: String,
}

impl Found {
    fn at(place: &Span) -> Found {
        let line = place.text.lines().nth(place.line - 1).unwrap_or("");
        let from_here = || line.chars().skip(place.column - 1);
        Found {
            token: from_here().take(place.length).collect(),
            line: line.trim().to_string(),
            rest: from_here().skip(place.length).collect(),
        }
    }

    /// What people write who come from Python, where it stops the parser in a place that does not tell.
    fn of_python(&self, kind: &ParseErrorType) -> Option<Diagnostic> {
        let starts = |word: &str| {
            let rest = self.line.strip_prefix(word);
            rest.is_some_and(|rest| rest.starts_with([' ', '(']))
        };
        let not_here = |what: &str, help: &str| {
            Some(Diagnostic::error(format!("{what} is not of this language")).with_help(help))
        };
        if starts("def") {
            return not_here("`def`", "a function is `fn advantage(batch, p) { ... }`");
        }
        if starts("import") && !self.line.contains('"') {
            return not_here(
                "an `import` without quotes",
                "functions need no import; a recipe is imported by its name, `import \"grpo\" as grpo;`",
            );
        }
        if starts("from") {
            return not_here(
                "`from`",
                "a recipe is imported by its name, `import \"grpo\" as grpo;`",
            );
        }
        if starts("class") {
            return not_here(
                "`class`",
                "a recipe is made of functions; what lasts over steps is its state, `this`",
            );
        }
        if starts("let mut") {
            return not_here(
                "`mut`",
                "variables can be changed as they are: `let x = 0.5;`",
            );
        }
        let ParseErrorType::MissingToken(wanted, _) = kind else {
            return None;
        };
        if self.token == "," && wanted == ";" {
            return not_here(
                "a `,` in this place",
                "numbers have a point, `0.5`; commas stand between arguments, and a line ends in `;`",
            );
        }
        if let Some(here) = elsewhere::operator(&self.token) {
            return not_here(&format!("`{}` in this place", self.token), here);
        }
        if self.token == ":" && wanted == "{" {
            return not_here(
                "a `:` before a block",
                "a block stands in braces: `if x > 0 { ... }`, `for g in batch.groups { ... }`",
            );
        }
        if self.token == ":" && wanted == "]" {
            return not_here(
                "a slice",
                "tensors have levels instead of axes: a reduction names where it goes, `x.mean(\"group\")`; of a text or an array it is `a.extract(1, 2)`",
            );
        }
        if self.token == ":" && self.line.starts_with("let") {
            return not_here(
                "a type after a variable",
                "variables have no types: `let x = 0.5;`",
            );
        }
        None
    }
}

fn missing(token: &str, what: &str, found: Option<&Found>, place: Option<Span>) -> Diagnostic {
    let (message, help) = match token {
        ";" => (
            "a `;` is missing after this".to_string(),
            "each line but the last of a block ends in `;`; a `)` too much or a sign forgotten looks like this too".to_string(),
        ),
        ")" | "," => (
            "a `)` or a `,` is missing after this".to_string(),
            "arguments stand in brackets, with commas between: `safe_div(a, b)`".to_string(),
        ),
        "]" => (
            "a `]` is missing after this".to_string(),
            "places and arrays stand in square brackets: `a[0]`, `[1, 2]`".to_string(),
        ),
        "}" => (
            "a `}` is missing after this".to_string(),
            "a block ends in `}`, and a map has commas between its entries: `#{ a: 1, b: 2 }`".to_string(),
        ),
        "{" => (
            "a `{` is missing after this".to_string(),
            "a block stands in braces: `if x > 0 { ... } else { ... }`".to_string(),
        ),
        ":" => (
            "a `:` is missing after this".to_string(),
            "a map is `#{ k: 4, eps: 1e-6 }`".to_string(),
        ),
        "(" => (
            "a `(` is missing after this".to_string(),
            "a function is `fn advantage(batch, p) { ... }`".to_string(),
        ),
        "in" => (
            "an `in` is missing after this".to_string(),
            "a loop is `for g in batch.groups { ... }`".to_string(),
        ),
        "|" => (
            "a `|` is missing after this".to_string(),
            "a function without a name is `|g| g.reward`".to_string(),
        ),
        other => (
            format!("a `{other}` is missing {what}"),
            "is something forgotten before this?".to_string(),
        ),
    };
    let at_end = found.is_none_or(|found| found.token.is_empty() && found.rest.is_empty());
    let place = place.as_ref().map(end_of_what_is_before);
    if token == ";" && at_end {
        return Diagnostic::error("the script ends in the middle of a block")
            .with_help("is a `}` or a `)` missing?")
            .at(place);
    }
    Diagnostic::error(message).with_help(help).at(place)
}

fn lexical(error: &LexError, found: Option<&Found>) -> Diagnostic {
    match error {
        LexError::UnterminatedString => Diagnostic::error("the text that starts here has no end")
            .with_help("a text ends in the `\"` that it starts with, on the same line"),
        LexError::MalformedChar(_) => Diagnostic::error("single quotes are for one character")
            .with_help("a text stands in double quotes: \"group\""),
        LexError::MalformedNumber(number) => Diagnostic::error(format!("`{number}` is no number"))
            .with_help("numbers are as `8`, `0.5` and `1e-6`"),
        LexError::UnexpectedInput(sign)
            if sign.starts_with([')', ']', '}', ',', ';', '*', '/']) =>
        {
            Diagnostic::error(format!("something is missing before the `{sign}`"))
                .with_help("a value, a variable or a formula is expected")
        }
        LexError::UnexpectedInput(sign) => Diagnostic::error(format!(
            "`{sign}` cannot stand in a script"
        ))
        .with_help(
            "names have the letters a to z, digits and `_`; others may stand in comments and texts",
        ),
        LexError::ImproperSymbol(sign, _) => reserved(sign),
        LexError::MalformedEscapeSequence(sign) => {
            Diagnostic::error(format!("`{sign}` means nothing in a text"))
                .with_help("a backslash itself is `\\\\`")
        }
        _ => {
            let token = found.map_or("this", |found| &found.token);
            Diagnostic::error(format!("`{token}` cannot be read"))
                .with_help("is another sign meant?")
        }
    }
}

/// A word or a sign that the language keeps for itself, or does not have.
fn reserved(name: &str) -> Diagnostic {
    let help = match name {
        "#" => "a comment is `// ...`, a map `#{ k: 4 }`",
        "++" => "one more is `x += 1`",
        "--" => "one less is `x -= 1`",
        "?" => "a choice is `if c { a } else { b }`, and value by value `where(c, a, b)`",
        "@" => "a product value by value is `a * b`",
        "===" => "two values are compared by `==`",
        "!==" | "<>" => "two values are unequal by `!=`",
        ":=" | "<-" => "a variable is `let x = ...;`, and changed by `x = ...;`",
        "=>" | "->" => "a function without a name is `|x| x + 1`",
        "::<" => "functions take no types",
        "var" => "the variance is `x.std(\"group\") ** 2`; a variable is `let x = ...;`",
        "this" => "the recipe's state is `this` in its hooks alone",
        "print" => "it is called with brackets: `print(x)`",
        "eval" => "a recipe is all in its file: write what it would run into it",
        _ => match elsewhere::keyword(name).or_else(|| elsewhere::operator(name)) {
            Some(here) => here,
            None if name.starts_with(char::is_alphabetic) => "choose another name",
            None => "is another sign meant?",
        },
    };
    let message = match (name, name.starts_with(char::is_alphabetic)) {
        ("eval", _) => "there is no `eval`".to_string(),
        (name, true) => format!("`{name}` is a word that the language keeps for itself"),
        (name, false) => format!("`{name}` is no sign of this language"),
    };
    Diagnostic::error(message).with_help(help)
}

fn parsed(kind: &ParseErrorType) -> Diagnostic {
    let said = |message: String, help: &str| Diagnostic::error(message).with_help(help);
    match kind {
        ParseErrorType::ModuleUndefined(name) => runtime::no_import(name),
        ParseErrorType::AssignmentToConstant(name) => runtime::constant(name),
        ParseErrorType::FnMissingParams(name) => said(
            format!("the function `{name}` has no list of arguments"),
            "as in `fn advantage(batch, p) { ... }`; without arguments it is `()`",
        ),
        ParseErrorType::FnMissingName => said(
            "a function without a name".to_string(),
            "as in `fn advantage(batch, p) { ... }`, or `|x| x + 1` for one without a name",
        ),
        ParseErrorType::FnMissingBody(_) => said(
            "a function without a body".to_string(),
            "its body stands in braces: `fn advantage(batch, p) { ... }`",
        ),
        ParseErrorType::FnDuplicatedDefinition(name, _) => said(
            format!("there are two functions `{name}` of as many arguments"),
            "rename one, or take it out",
        ),
        ParseErrorType::FnDuplicatedParam(name, argument) => said(
            format!("the function `{name}` has two arguments `{argument}`"),
            "rename one",
        ),
        ParseErrorType::WrongFnDefinition => said(
            "a function cannot stand in another, nor in a block".to_string(),
            "move it out to the left margin, or write `let f = |x| ...;` and call it by `f.call(x)`",
        ),
        ParseErrorType::DuplicatedProperty(name) => {
            said(format!("the map has `{name}` twice"), "take one out")
        }
        ParseErrorType::DuplicatedVariable(name) => {
            said(format!("`{name}` is there twice"), "rename one")
        }
        ParseErrorType::ExprTooDeep => said(
            "brackets or blocks in one another, too deep".to_string(),
            "give the parts names, with `let`",
        ),
        ParseErrorType::LoopBreak => said(
            "`break` and `continue` are for loops".to_string(),
            "a function is left with `return x;`",
        ),
        ParseErrorType::AssignmentToInvalidLHS(_) => said(
            "this cannot be assigned to".to_string(),
            "a variable, or a part of one, stands before the `=`; two values are compared by `==`",
        ),
        ParseErrorType::ExprExpected(_) | ParseErrorType::MissingSymbol(_) => said(
            "something is missing here".to_string(),
            "a value, a variable or a formula is expected",
        ),
        ParseErrorType::PropertyExpected => said(
            "a name is missing here".to_string(),
            "after a dot and in a map stands a name: `p.k`, `#{ k: 4 }`",
        ),
        ParseErrorType::VariableExpected => said(
            "the name of a variable is missing here".to_string(),
            "as in `let x = 0.5;` and `for g in batch.groups { ... }`; several at once are not set",
        ),
        ParseErrorType::ForbiddenVariable(name) => said(
            format!("`{name}` cannot be a variable's name"),
            "choose another name",
        ),
        ParseErrorType::UnknownOperator(sign) => reserved(sign),
        ParseErrorType::MalformedIndexExpr(_) => said(
            "this cannot stand in square brackets".to_string(),
            "a place is a whole number, a key a text: `a[0]`, `m[\"k\"]`",
        ),
        ParseErrorType::MismatchedType(wanted, found) => said(
            format!(
                "this must be {}, and is {}",
                words::of_type(wanted),
                words::of_type(found)
            ),
            match wanted.contains("iterable") {
                true => "a loop goes over a range or an array: `for i in 0..3 { ... }`",
                false => "a condition is a comparison, as in `if batch.step > 100 { ... }`",
            },
        ),
        ParseErrorType::WrongDocComment => said(
            "a comment with three strokes stands before a function alone".to_string(),
            "write `//` for any other",
        ),
        ParseErrorType::WrongExport => said(
            "`export` is not needed".to_string(),
            "whoever imports the script sees its functions",
        ),
        ParseErrorType::LiteralTooLarge(..) => said(
            "this is larger than a script may write".to_string(),
            "values by response or token are columns of the batch",
        ),
        ParseErrorType::WrongSwitchIntegerCase
        | ParseErrorType::WrongSwitchDefaultCase
        | ParseErrorType::WrongSwitchCaseCondition => said(
            "this case of the `switch` cannot stand here".to_string(),
            "values come first, then ranges, and `_`, for all others, at the end",
        ),
        other => said(
            words::lower_first(&other.to_string()),
            "is something missing or too much here?",
        ),
    }
}
