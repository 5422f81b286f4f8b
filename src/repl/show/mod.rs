//! What answers look like: tensors, batches and the rest.

mod batch;
mod blocks;
mod tensor;

pub(super) use self::batch::{batch, shape};
pub(super) use self::blocks::{counts, histogram};
pub(super) use self::tensor::{spread_line, tensor};
pub(super) use crate::doc::{parameters, recipe};
use crate::figures;
use crate::paint::{self, Paint};
use crate::script::Answer;

/// An answer, as lines; `None` where there is nothing to show.
pub(super) fn answer(answer: &Answer, paint: Paint) -> Option<String> {
    Some(match answer {
        Answer::Nothing => return None,
        Answer::Tensor(computed) => tensor(computed, paint),
        Answer::Batch(columns) => batch(columns, paint),
        // Who asks for a text gets the whole of it.
        Answer::Text(text) => format!("{text:?}"),
        other => brief(other, 2 * paint.width - 30),
    })
}

/// Columns of a text, or of a key, beside which other values stand.
const TEXT: usize = 48;

/// An answer in one line, of an array or a map as much as so many columns hold.
pub(super) fn brief(answer: &Answer, columns: usize) -> String {
    match answer {
        Answer::Nothing => "()".to_string(),
        Answer::Truth(truth) => truth.to_string(),
        Answer::Whole(whole) => whole.to_string(),
        Answer::Number(number) => figures::exact(*number),
        Answer::Text(text) => {
            let start: String = text.chars().take(TEXT + 1).collect();
            paint::cut(&format!("{start:?}"), TEXT)
        }
        Answer::Tensor(computed) if computed.buffer().len() == 1 => {
            let value = figures::value(computed.buffer().get(0));
            format!("{} tensor {value}", computed.level())
        }
        Answer::Tensor(computed) => {
            let number = figures::count(computed.buffer().len());
            format!("{} tensor of {number} values", computed.level())
        }
        Answer::Batch(columns) => format!("batch of {}", shape(&columns.layout)),
        Answer::Array(items, length) => {
            let shown: Vec<String> = items.iter().map(|item| brief(item, columns)).collect();
            format!("[{}]", cut(&shown, *length, columns))
        }
        Answer::Map(entries, length) => {
            let entry = |(key, value): &(String, Answer)| {
                let key = paint::cut(&paint::visible(key), TEXT);
                format!("{key}: {}", brief(value, columns))
            };
            let shown: Vec<String> = entries.iter().map(entry).collect();
            format!("#{{ {} }}", cut(&shown, *length, columns))
        }
        Answer::Function(name) if name.starts_with("anon$") => "a closure".to_string(),
        Answer::Function(name) => format!("the function `{name}`"),
        Answer::Other(kind) => format!("a {kind}"),
    }
}

/// As many items as fit, and how many more there are.
fn cut(items: &[String], length: usize, columns: usize) -> String {
    let mut text = String::new();
    for (place, item) in items.iter().enumerate() {
        let comma = if place > 0 { ", " } else { "" };
        if place > 0 && paint::width(&text) + paint::width(item) > columns {
            return format!("{text}, ... {} more", length - place);
        }
        text = format!("{text}{comma}{item}");
    }
    match length.checked_sub(items.len()) {
        Some(more @ 1..) => format!("{text}, ... {more} more"),
        _ => text,
    }
}
