//! Writes the rows of a report as CSV. Text is quoted only if necessary. A number that is missing or not finite is an empty cell.

use serde_json::Value;

/// Writes rows as CSV; the first line has the names of the columns.
pub(super) fn csv(rows: &[Value]) -> String {
    let quoted = |text: &str| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_string()
        }
    };
    let cell = |value: &Value| match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => number.to_string(),
            None => number.to_string(),
        },
        Value::String(text) => quoted(text),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let objects = || rows.iter().flat_map(Value::as_object);
    let heads = objects().take(1);
    let heads = heads.map(|row| line(row.keys().map(|key| quoted(key)).collect()));
    let rows = objects().map(|row| line(row.values().map(cell).collect()));
    heads.chain(rows).collect()
}
