//! What to say of a function that does not exist, or not for these arguments.

use super::{CLOSURE, Script, elsewhere, words};
use crate::diagnostic::Diagnostic;
use crate::suggest;
use crate::tensor::op;

/// How the functions are called that are no rows of the op table.
const OTHERS: &[(&str, &str)] = &[
    (
        "map_groups",
        "it is `batch.map_groups(|g| g.reward - g.reward.mean(\"batch\"))`",
    ),
    (
        "regroup",
        "it is `batch.regroup(key)`, with a tensor as the key, such as `batch.length > 100`",
    ),
    (
        "random",
        "it is `batch.random(level)`, with a level's name such as \"response\"",
    ),
    (
        "has",
        "it is `batch.has(name)`, with a column's name such as \"entropy\"",
    ),
    (
        "metric",
        "it is `metric(name, value)`, as in `metric(\"mean_length\", batch.length.mean(\"batch\"))`",
    ),
    ("value", "it is `x.value()`, the number of a batch tensor"),
    (
        "values",
        "it is `x.values()`, the values of a tensor as an array",
    ),
];

/// How a function that advlab has is called.
pub(super) fn signature(name: &str) -> Option<String> {
    let rows: Vec<String> = op::table()
        .filter(|op| op.name == name)
        .map(op::Op::signature)
        .collect();
    if !rows.is_empty() {
        let to_level = rows.iter().any(|row| row.contains("(level"));
        let level = if to_level {
            ", with the level that it goes to: \"group\", \"response\", \"batch\""
        } else {
            ""
        };
        return Some(format!("it is `{}`{level}", rows.join("` or `")));
    }
    let other = OTHERS.iter().find(|(other, _)| *other == name);
    other.map(|(_, help)| help.to_string())
}

impl Script<'_> {
    /// What to say of a call that the engine found no function for; `signature` is the engine's, as `mean (tensor, ?)`.
    pub(in super::super) fn unknown_function(&self, signature: &str) -> Diagnostic {
        let (name, arguments) = signature.split_once(" (").unwrap_or((signature, ")"));
        let arguments = words::of_arguments(arguments);
        let short = name.rsplit("::").next().unwrap_or(name);
        if short.starts_with(CLOSURE) {
            let message = format!(
                "the closure does not take {}",
                words::arguments(arguments.len())
            );
            return Diagnostic::error(message).with_help(
                "between the bars stand as many names as it is called with: `|a, b| ...`",
            );
        }
        if !short.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return operator(name, &arguments);
        }
        let with = match arguments.is_empty() {
            true => "without arguments".to_string(),
            false => format!("of {}", words::and(&arguments)),
        };
        if let Some(help) = self::signature(short) {
            return Diagnostic::error(format!("there is `{short}`, but not {with}"))
                .with_help(help);
        }
        let message = match self.functions.iter().any(|known| known == short) {
            true => format!("there is no function `{name}` {with}"),
            false => format!("there is no function `{name}`"),
        };
        let diagnostic = Diagnostic::error(message);
        if let Some(here) = elsewhere::function(short) {
            return diagnostic.with_help(here);
        }
        if elsewhere::COLUMNS.contains(&short) {
            return diagnostic
                .with_help(format!("the column is `batch.{short}`, without brackets"));
        }
        let known = self.functions.iter().map(String::as_str);
        let known = known.filter(|known| !known.starts_with(CLOSURE));
        match suggest::nearest(short, known) {
            Some(near) if near == short => {
                diagnostic.with_help(format!("`{near}` is there, for other arguments than these"))
            }
            Some(near) => diagnostic.with_help(format!("did you mean `{near}`?")),
            None => diagnostic.with_help("`advlab doc` lists the functions that scripts have"),
        }
    }
}

fn operator(sign: &str, arguments: &[String]) -> Diagnostic {
    let nothing = arguments
        .iter()
        .any(|argument| argument.starts_with("nothing"));
    let text = arguments.iter().any(|argument| argument == "a text");
    let help = match sign {
        "^" => "a power is `x ** 2`".to_string(),
        "@" => "a product value by value is `a * b`, and its sum `(a * b).sum(\"response\")`".to_string(),
        _ if nothing => words::NOTHING.to_string(),
        _ if text => "a text is made of parts as in `\"k = \" + k`; a number from a text is `parse_float(text)`".to_string(),
        _ => format!("`{sign}` is for tensors and numbers"),
    };
    let between = words::and(arguments);
    Diagnostic::error(format!("`{sign}` does not work with {between}")).with_help(help)
}
