//! Messages for a function that does not exist, or not with these arguments.

use super::habits::{CLOSURE, habit, is_column, type_in_words};
use super::script::Script;
use crate::diagnostic::Diagnostic;
use crate::figures::counted;
use crate::script::builtin::Builtin;
use crate::script::members::{self, ops};
use crate::script::mistake::Mistake;
use crate::suggest;
use crate::tensor::op::Op;

/// The help that says how a function of advlab is called; `None` for any other name.
pub(super) fn signature(name: &str) -> Option<String> {
    let forms: Vec<String> = ops(name).map(Op::signature).collect();
    if forms.is_empty() {
        let member = members::function(name)?;
        return Some(format!(
            "it is `{}`, as in `{}`",
            member.call, member.example
        ));
    }
    let level = match forms.iter().any(|form| form.contains("(level")) {
        true => ", where `level` is the one that it goes to: \"group\", \"response\", \"batch\"",
        false => "",
    };
    Some(format!("it is `{}`{level}", forms.join("` or `")))
}

/// The help for the bare name of a built-in recipe; `None` for any other name.
pub(super) fn recipe(name: &str) -> Option<String> {
    let is_loss = !Builtin::find(name)?.text.contains("fn advantage(");
    let hook = if is_loss { "loss" } else { "advantage" };
    Some(format!(
        "`{name}` is a recipe: at the prompt `:recipe {name}` takes it, a script imports it by \
         `import \"{name}\" as {name};` and calls `{name}::{hook}(batch, p)`"
    ))
}

/// The required parameters of an operation that a call with so many arguments lacks.
fn missing_parameters(name: &str, given: usize) -> Option<String> {
    let missing = ops(name).map(|op| {
        let missing = op.params.iter().skip(given).filter(|param| !param.optional);
        suggest::list(missing.map(|param| param.name))
    });
    let missing: Vec<String> = missing.collect();
    let is_missing = !missing.is_empty() && missing.iter().all(|names| !names.is_empty());
    is_missing.then(|| missing.join(" or "))
}

/// The diagnostic of a call that the engine found no function for; `signature` is the engine's, as `mean (tensor, ?)`.
pub(in super::super) fn unknown_function(script: &Script<'_>, signature: &str) -> Diagnostic {
    let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ")"));
    let arguments = argument_types(arguments);
    let short = name.rsplit("::").next().unwrap_or(name);
    if short.starts_with(CLOSURE) {
        let given = &counted(arguments.len(), "argument");
        return Mistake::ClosureArguments { given }.into();
    }
    if !short.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return operator(name, &arguments);
    }
    let with = match arguments.is_empty() {
        true => "without arguments".to_string(),
        false => format!("for {}", in_words(&arguments)),
    };
    if let Some(help) = self::signature(short) {
        let message = match missing_parameters(short, arguments.len()) {
            Some(missing) => format!("`{short}` is called without {missing}"),
            // The lint knows how many arguments there are, and not their types.
            None if arguments.iter().all(|argument| *argument == "something") => {
                let given = counted(arguments.len(), "argument");
                format!("`{short}` exists, but not with {given}")
            }
            None => format!("`{short}` exists, but not {with}"),
        };
        return Diagnostic::error(message).with_help(help);
    }
    let is_known = script.functions.iter().any(|known| known == short);
    let help = if let Some(foreign) = habit("functions", short) {
        Some(foreign.to_string())
    } else if is_column(short) {
        Some(format!(
            "the column is `batch.{short}`, without parentheses"
        ))
    } else if is_known {
        Some(format!("`{short}` exists, but takes other arguments"))
    } else {
        let known = script.functions.iter().map(String::as_str);
        let known = known.filter(|known| !known.starts_with(CLOSURE));
        let near = || suggest::nearest(short, known);
        recipe(short).or_else(|| Some(format!("did you mean `{}`?", near()?)))
    };
    let arguments = match is_known {
        true => format!(" {with}"),
        false => String::new(),
    };
    let arguments = &arguments;
    Mistake::NoFunction { name, arguments }.or_help(help)
}

fn operator(sign: &str, arguments: &[&str]) -> Diagnostic {
    let help = if arguments.contains(&type_in_words("()")) {
        "an `if` without an `else` gives nothing, as does a block whose last line ends in `;`"
    } else if arguments.contains(&type_in_words("string")) {
        "strings are joined as in `\"k = \" + k`; `parse_float(string)` makes a number of a string"
    } else {
        &format!("`{sign}` works on tensors and numbers")
    };
    let arguments = &in_words(arguments);
    Mistake::OperatorArguments {
        sign,
        arguments,
        help: habit("reserved", sign).unwrap_or(help),
    }
    .into()
}

/// The types of a call's arguments, in words.
fn argument_types(signature: &str) -> Vec<&'static str> {
    let arguments = signature.trim().trim_end_matches(')').split(", ");
    let arguments = arguments.filter(|argument| !argument.trim().is_empty());
    arguments
        .map(|name| match name.trim() {
            "?" => "something",
            name => type_in_words(name),
        })
        .collect()
}

/// A list in words: "a tensor and a string".
fn in_words(parts: &[&str]) -> String {
    match parts {
        [] => "nothing".to_string(),
        [one] => one.to_string(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}
