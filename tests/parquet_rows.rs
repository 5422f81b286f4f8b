//! Writes lines of JSON as a file of parquet, as pandas would: booleans, whole numbers, numbers, texts, and lists of numbers.

use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{BoolType, ByteArrayType, DoubleType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value};

/// Writes rows with the fields of the first; `None` if they have other types of values, or are no objects. A value may be null.
pub fn write(path: &Path, lines: &str) -> Option<()> {
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    // Python writes NaN, and pandas null.
    let rows = lines.map(|line| serde_json::from_str(&line.replace("NaN", "null")).ok());
    let rows = rows.collect::<Option<Vec<Map<String, Value>>>>()?;
    let names: Vec<&String> = rows.first()?.keys().collect();
    let column = |name: &str| -> Vec<&Value> {
        let values = rows.iter().map(|row| row.get(name));
        values.map(|value| value.unwrap_or(&Value::Null)).collect()
    };
    let of_type = |name: &str| {
        let values = column(name).into_iter().filter(|value| !value.is_null());
        let values: Vec<&Value> = values.collect();
        match () {
            () if values.iter().all(|value| value.is_i64()) => Some("int64"),
            () if values.iter().all(|value| value.is_number()) => Some("double"),
            () if values.iter().all(|value| value.is_boolean()) => Some("boolean"),
            () if values.iter().all(|value| value.is_string()) => Some("binary"),
            () if values.iter().all(|value| value.is_array()) => Some("list"),
            () => None,
        }
    };
    let types = names.iter().map(|name| of_type(name));
    let types = types.collect::<Option<Vec<&str>>>()?;
    let fields = names.iter().zip(&types).map(|(name, found)| match *found {
        "list" => format!(
            "optional group {name} (LIST) {{ repeated group list {{ optional double element; }} }}"
        ),
        "binary" => format!("optional binary {name} (UTF8);"),
        number => format!("optional {number} {name};"),
    });
    let schema = format!("message rows {{ {} }}", fields.collect::<String>());
    let schema = Arc::new(parse_message_type(&schema).ok()?);
    let file = std::fs::File::create(path).unwrap();
    let mut file = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    for (name, found) in names.iter().zip(&types) {
        let (mut items, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for value in column(name) {
            let Some(list) = value.as_array() else {
                defined.push(i16::from(!value.is_null()));
                repeated.push(0);
                items.extend((!value.is_null()).then_some(value));
                continue;
            };
            for (at, item) in list.iter().enumerate() {
                defined.push(2 + i16::from(!item.is_null()));
                repeated.push(i16::from(at > 0));
                items.extend((!item.is_null()).then_some(item));
            }
            if list.is_empty() {
                defined.push(1);
                repeated.push(0);
            }
        }
        let mut writer = group.next_column().unwrap().unwrap();
        let levels = (Some(&defined[..]), Some(&repeated[..]));
        let numbers = || items.iter().map(|item| item.as_f64());
        match *found {
            "int64" => {
                let values = items.iter().map(|item| item.as_i64());
                let values = values.collect::<Option<Vec<i64>>>()?;
                let typed = writer.typed::<Int64Type>();
                typed.write_batch(&values, levels.0, levels.1).unwrap();
            }
            "boolean" => {
                let values = items.iter().filter_map(|item| item.as_bool());
                let typed = writer.typed::<BoolType>();
                typed
                    .write_batch(&values.collect::<Vec<_>>(), levels.0, levels.1)
                    .unwrap();
            }
            "binary" => {
                let values = items.iter().filter_map(|item| item.as_str());
                let values: Vec<_> = values.map(|text| text.as_bytes().to_vec().into()).collect();
                let typed = writer.typed::<ByteArrayType>();
                typed.write_batch(&values, levels.0, levels.1).unwrap();
            }
            _ => {
                let values = numbers().collect::<Option<Vec<f64>>>()?;
                let typed = writer.typed::<DoubleType>();
                typed.write_batch(&values, levels.0, levels.1).unwrap();
            }
        }
        writer.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    Some(())
}
