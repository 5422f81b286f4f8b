//! Answers as text: tensors, batches and the rest.

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
        // Who asks for a string gets the whole of it.
        Answer::String(text) => format!("{text:?}"),
        other => brief(other, two_lines(paint)),
    })
}

pub(super) fn dtype(is_f64: bool) -> &'static str {
    if is_f64 { "f64" } else { "f32" }
}

/// Columns of a string, or of a key, beside which other values stand.
const STRING: usize = 48;

/// The columns of an array or a map that is shown in two lines.
pub(super) fn two_lines(paint: Paint) -> usize {
    (2 * paint.width).saturating_sub(30)
}

/// An answer in one line, of an array or a map as much as so many columns hold.
pub(super) fn brief(answer: &Answer, columns: usize) -> String {
    match answer {
        Answer::Nothing => "()".to_string(),
        Answer::Truth(truth) => truth.to_string(),
        Answer::Whole(whole) => whole.to_string(),
        Answer::Number(number) => figures::exact(*number),
        Answer::String(text) => {
            let start: String = text.chars().take(STRING + 1).collect();
            paint::cut(&format!("{start:?}"), STRING)
        }
        Answer::Tensor(computed) => match computed.buffer().len() {
            1 => {
                let value = figures::value(computed.buffer().get(0));
                format!("{} tensor {value}", computed.level())
            }
            length => {
                let values = figures::counted(length, "value");
                format!("{} tensor of {values}", computed.level())
            }
        },
        Answer::Batch(columns) => format!("batch of {}", shape(&columns.layout)),
        Answer::Array(items, length) => {
            let shown: Vec<String> = items.iter().map(|item| brief(item, columns)).collect();
            format!("[{}]", cut(&shown, *length, columns))
        }
        Answer::Map(entries, length) => {
            let entry = |(key, value): &(String, Answer)| {
                let key = paint::cut(&paint::visible(key), STRING);
                format!("{key}: {}", brief(value, columns))
            };
            let shown: Vec<String> = entries.iter().map(entry).collect();
            format!("#{{ {} }}", cut(&shown, *length, columns))
        }
        Answer::Other(text) => text.clone(),
    }
}

/// As many items as fit, and how many more there are.
fn cut(items: &[String], length: usize, columns: usize) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        if index > 0 && paint::width(&text) + paint::width(item) > columns {
            return format!("{text}, ... {} more", length - index);
        }
        text = format!("{text}{comma}{item}");
    }
    match length.checked_sub(items.len()) {
        Some(more @ 1..) => format!("{text}, ... {more} more"),
        _ => text,
    }
}
