//! What to say of a function that does not exist, or not for these arguments.

use super::{CLOSURE, NOTHING, Script, elsewhere};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;
use crate::script::members::MEMBERS;
use crate::script::syntax::ValueKind;
use crate::suggest;
use crate::tensor::op;

/// The signature in words, for the help of a message; `None` where advlab has no such function.
pub(super) fn signature(name: &str) -> Option<String> {
    let rows: Vec<String> = op::table()
        .filter(|op| op.name == name)
        .map(op::Op::signature)
        .collect();
    if !rows.is_empty() {
        let to_level = rows.iter().any(|row| row.contains("(level"));
        let level = if to_level {
            ", where `level` is the one that it goes to: \"group\", \"response\", \"batch\""
        } else {
            ""
        };
        return Some(format!("it is `{}`{level}", rows.join("` or `")));
    }
    let mut members = MEMBERS.iter();
    let member = members.find(|member| member.name == name && member.call.contains(name))?;
    Some(format!(
        "it is `{}`, as in `{}`",
        member.call, member.example
    ))
}

/// The diagnostic of a call that the engine found no function for; `signature` is the engine's, as `mean (tensor, ?)`.
pub(in super::super) fn unknown_function(script: &Script<'_>, signature: &str) -> Diagnostic {
    let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ")"));
    let arguments = of_arguments(arguments);
    let short = name.rsplit("::").next().unwrap_or(name);
    if short.starts_with(CLOSURE) {
        let message = format!(
            "the closure does not take {}",
            counted(arguments.len(), "argument")
        );
        return Diagnostic::error(message)
            .with_help("list as many parameters between the bars: `|a, b| ...`");
    }
    if !short.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return operator(name, &arguments);
    }
    let with = if arguments.is_empty() {
        "without arguments".to_string()
    } else {
        format!("for {}", and(&arguments))
    };
    if let Some(help) = self::signature(short) {
        return Diagnostic::error(format!("`{short}` exists, but not {with}")).with_help(help);
    }
    let message = if script.functions.iter().any(|known| known == short) {
        format!("there is no function `{name}` {with}")
    } else {
        format!("there is no function `{name}`")
    };
    let diagnostic = Diagnostic::error(message);
    if let Some(here) = elsewhere::FUNCTIONS.find(short) {
        return diagnostic.with_help(here);
    }
    if elsewhere::is_column(short) {
        return diagnostic.with_help(format!(
            "the column is `batch.{short}`, without parentheses"
        ));
    }
    let known = script.functions.iter().map(String::as_str);
    let known = known.filter(|known| !known.starts_with(CLOSURE));
    match suggest::nearest(short, known) {
        Some(near) if near == short => {
            diagnostic.with_help(format!("`{near}` exists, but takes other arguments"))
        }
        Some(near) => diagnostic.with_help(format!("did you mean `{near}`?")),
        None => diagnostic.with_help("`advlab doc` lists the functions that scripts have"),
    }
}

fn operator(sign: &str, arguments: &[&str]) -> Diagnostic {
    let has_nothing = arguments.contains(&ValueKind::Nothing.described());
    let has_string = arguments.contains(&"a string");
    let help = match sign {
        "^" => "a power is `x ** 2`".to_string(),
        "@" => "an elementwise product is `a * b`, and its sum `(a * b).sum(\"response\")`".to_string(),
        _ if has_nothing => NOTHING.to_string(),
        _ if has_string => "strings are joined as in `\"k = \" + k`; `parse_float(string)` makes a number of a string".to_string(),
        _ => format!("`{sign}` works on tensors and numbers"),
    };
    let between = and(arguments);
    Diagnostic::error(format!("`{sign}` does not work with {between}")).with_help(help)
}

/// The kinds of a call's arguments. The types of strings have bars between them.
fn of_arguments(signature: &str) -> Vec<&'static str> {
    let arguments = signature.trim().trim_end_matches(')');
    let arguments = arguments
        .split(", ")
        .filter(|argument| !argument.trim().is_empty());
    let described = |name: &str| match name.trim() {
        "?" => "something",
        name => ValueKind::of_type(name).described(),
    };
    arguments.map(described).collect()
}

/// A list in words: "a tensor and a string".
fn and(parts: &[&str]) -> String {
    match parts {
        [] => "nothing".to_string(),
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        [one, ..] => one.to_string(),
    }
}
