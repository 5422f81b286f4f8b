//! Numbers, names and statements as Python and black write them.

use super::WIDTH;

/// A statement of a function's body; if it is too long, the arguments of its last call have lines of their own, as black has them.
pub(super) fn wrapped(statement: &str) -> String {
    let fits = |text: &str, indent: usize| indent + text.len() <= WIDTH;
    let is_call = !statement.starts_with('#') && statement.ends_with(')');
    if fits(statement, 4) || !is_call {
        return format!("    {statement}\n");
    }
    let (mut depth, mut start) = (0, 0);
    for (index, letter) in statement.char_indices().rev() {
        depth += match letter {
            ')' | ']' => 1,
            '(' | '[' => -1,
            _ => 0,
        };
        if depth == 0 {
            start = index;
            break;
        }
    }
    let (head, body) = (
        &statement[..=start],
        &statement[start + 1..statement.len() - 1],
    );
    if fits(body, 8) {
        return format!("    {head}\n        {body}\n    )\n");
    }
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in body.chars() {
        depth += match letter {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        match parts.last_mut() {
            Some(last) if depth > 0 || letter != ',' => last.push(letter),
            _ => parts.push(String::new()),
        }
    }
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
    format!(
        "    {head}\n        {},\n    )\n",
        parts.join(",\n        ")
    )
}

/// The head of a function.
pub(super) fn head(name: &str, arguments: &str, gives: &str) -> String {
    let head = format!("def {name}({arguments}) -> {gives}:");
    let inner = match (head.len() <= WIDTH, arguments.len() + 4 <= WIDTH) {
        (true, _) => return head,
        (_, true) => arguments.to_string(),
        _ => format!("{},", arguments.replace(", ", ",\n    ")),
    };
    format!("def {name}(\n    {inner}\n) -> {gives}:")
}

/// A name for the result of a row.
pub(super) fn called(row: &'static str) -> &'static str {
    match row {
        "+" => "total",
        "-" => "difference",
        "*" => "product",
        "/" | "safe_div" => "ratio",
        "**" => "power",
        "%" => "remainder",
        "<" | "<=" | ">" | ">=" | "==" | "!=" | "&" | "|" | "!" => "condition",
        "where" => "chosen",
        "index" => "place",
        "neg" => "negated",
        "max" => "largest",
        "min" => "smallest",
        "sum" => "total",
        "abs" => "size",
        "round" => "rounded",
        row => row,
    }
}

/// A number as Python reads it back exactly; a whole one without a point.
pub(super) fn literal(number: f64) -> String {
    if number.is_nan() {
        return "torch.nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "torch.inf"
        } else {
            "-torch.inf"
        }
        .to_string();
    }
    if number.fract() == 0.0 && number.abs() < 1e15 && (number != 0.0 || number.is_sign_positive())
    {
        return format!("{number:.0}");
    }
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use super::called;
    use crate::tensor::op;

    #[test]
    fn each_row_has_a_name_that_python_takes() {
        for op in op::table() {
            let mut letters = called(op.name).chars();
            let is_name = letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            assert!(is_name, "{}", op.name);
        }
    }
}
