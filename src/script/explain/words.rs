//! The engine's names of types, in words that a researcher uses.

/// How a value comes to be nothing.
pub(super) const NOTHING: &str =
    "an `if` without an `else` gives nothing, as does a block whose last line ends in `;`";

/// A type in words: `i64` is "a whole number".
pub(super) fn of_type(name: &str) -> String {
    let name = name.trim();
    match name {
        "i64" | "INT" => "a whole number".to_string(),
        "f64" | "FLOAT" => "a number".to_string(),
        "bool" => "true or false".to_string(),
        "()" => "nothing, `()`".to_string(),
        "char" => "a character".to_string(),
        "array" | "an array" => "an array".to_string(),
        "map" | "an object map" => "a map".to_string(),
        // What the parser says of what is written out.
        "a number" => "a whole number".to_string(),
        "a floating-point number" => "a number".to_string(),
        "a character" => "a character".to_string(),
        "a boolean" | "a boolean expression" => "true or false".to_string(),
        "an iterable value" => "an array or a range".to_string(),
        "Fn" => "a function".to_string(),
        "tensor" => "a tensor".to_string(),
        "batch" => "a batch".to_string(),
        "?" | "" => "something".to_string(),
        _ if name.contains("tring") || name.contains("str") => "a text".to_string(),
        _ if name.contains("Tensor") => "a tensor".to_string(),
        _ if name.contains("ScriptBatch") => "a batch".to_string(),
        _ if name.contains("ange") => "a range".to_string(),
        _ if name.contains("Problem") => "a caught error".to_string(),
        _ => "a value of another kind".to_string(),
    }
}

/// The types of a call's arguments, in words. Texts are several types with bars between them.
pub(super) fn of_arguments(signature: &str) -> Vec<String> {
    let arguments = signature.trim().trim_end_matches(')');
    match arguments.trim() {
        "" => Vec::new(),
        arguments => arguments.split(", ").map(of_type).collect(),
    }
}

/// A list in words: "a tensor and a text".
pub(super) fn and(parts: &[String]) -> String {
    match parts {
        [] => "nothing".to_string(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// "1 argument", "2 arguments", "no argument".
pub(in super::super) fn arguments(count: usize) -> String {
    match count {
        0 => "no argument".to_string(),
        1 => "1 argument".to_string(),
        count => format!("{count} arguments"),
    }
}

/// A text of the engine's as the middle of a sentence.
pub(super) fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().collect::<String>() + letters.as_str()
    })
}
