//! Messages for a function that does not exist, or not for these arguments.

use super::{CLOSURE, Script, find, helped, runtime, said, text};
use crate::diagnostic::Diagnostic;
use crate::figures::counted;
use crate::script::library::Builtin;
use crate::script::members::{MEMBERS, Member};
use crate::script::syntax::{ValueKind, rows};
use crate::suggest;
use crate::tensor::op::Op;

fn member(name: &str) -> Option<&'static Member> {
    let mut members = MEMBERS.iter();
    members.find(|member| member.name == name && member.call.contains(name))
}

/// The signature in words, for the help of a message; `None` where advlab has no such function.
pub(super) fn signature(name: &str) -> Option<String> {
    let rows: Vec<String> = rows(name).map(Op::signature).collect();
    if rows.is_empty() {
        let member = member(name)?;
        return text("call", "member", &[member.call, member.example]);
    }
    let to_level = rows.iter().any(|row| row.contains("(level"));
    let row = if to_level { "level" } else { "row" };
    text("call", row, &[&rows.join("` or `")])
}

/// The help for who writes the name of a built-in recipe alone; `None` for any other name.
pub(super) fn of_recipe(name: &str) -> Option<String> {
    let is_loss = !Builtin::find(name)?.text.contains("fn advantage(");
    let hook = if is_loss { "loss" } else { "advantage" };
    text("call", "recipe", &[name, hook])
}

/// The message for a wrong number of arguments of a function that advlab has, the receiver counted too; `None` where
/// there may be so many.
fn wrong_count(name: &str, given: usize) -> Option<String> {
    let mut forms: Vec<(Vec<&str>, usize)> = rows(name)
        .map(|op| {
            let required = op.params.iter().filter(|param| !param.optional);
            (required.map(|param| param.name).collect(), op.params.len())
        })
        .collect();
    if let Some(member) = member(name).filter(|_| forms.is_empty()) {
        let (receiver, parameters) = member.call.split_once('(')?;
        let receiver = receiver.split_once('.').map(|(receiver, _)| receiver);
        let parameters = parameters.strip_suffix(')')?.split(", ");
        let parameters = parameters.filter(|name| !["", "..."].contains(name));
        let names: Vec<&str> = receiver.into_iter().chain(parameters).collect();
        forms.push((names.clone(), names.len()));
    }
    let most = forms.iter().map(|(_, most)| *most).max()?;
    if given > most {
        let excess = counted(given - most, "argument");
        return Some(format!("`{name}` is called with {excess} too many"));
    }
    let lacking: Option<Vec<String>> = forms
        .iter()
        .map(|(required, _)| Some(suggest::list(required.get(given..)?.iter().copied())))
        .collect();
    let lacking = lacking?.join(" or ");
    (!lacking.is_empty()).then(|| format!("`{name}` is called without {lacking}"))
}

/// The diagnostic of a call that the engine found no function for; `signature` is the engine's, as `mean (tensor, ?)`.
pub(in super::super) fn unknown_function(script: &Script<'_>, signature: &str) -> Diagnostic {
    let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ")"));
    let arguments = of_arguments(arguments);
    let short = name.rsplit("::").next().unwrap_or(name);
    if short.starts_with(CLOSURE) {
        return said("call", "closure", &[&counted(arguments.len(), "argument")]);
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
        let message = wrong_count(short, arguments.len());
        let message = message.unwrap_or_else(|| format!("`{short}` exists, but not {with}"));
        return Diagnostic::error(message).with_help(help);
    }
    let is_known = script.functions.iter().any(|known| known == short);
    let with = if is_known {
        format!(" {with}")
    } else {
        String::new()
    };
    let known = script.functions.iter().map(String::as_str);
    let known = known.filter(|known| !known.starts_with(CLOSURE));
    let column = || format!("the column is `batch.{short}`, without parentheses");
    let help = find("functions", short)
        .map(str::to_string)
        .or_else(|| runtime::is_column(short).then(column))
        .or_else(|| is_known.then(|| format!("`{short}` exists, but takes other arguments")))
        .or_else(|| of_recipe(short))
        .or_else(|| {
            Some(format!(
                "did you mean `{}`?",
                suggest::nearest(short, known)?
            ))
        });
    helped(said("call", "none", &[name, &with]), help)
}

fn operator(sign: &str, arguments: &[&str]) -> Diagnostic {
    let between = and(arguments);
    let row = if arguments.contains(&ValueKind::Nothing.described()) {
        "nothing"
    } else if arguments.contains(&ValueKind::String.described()) {
        "string"
    } else {
        "operator"
    };
    helped(said("call", row, &[sign, &between]), find("reserved", sign))
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
        [one] => one.to_string(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}
