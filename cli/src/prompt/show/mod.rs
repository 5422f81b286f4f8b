//! Answers as text: tensors, batches and the rest.

mod tensor;

pub(super) use self::tensor::{spread_line, tensor};
pub(super) use crate::doc::{parameters, recipe};
use advlab::figures::{self, BLOCKS, along, column, shape};
use advlab::paint::{self, Paint, filled, visible, width};
use advlab::script::{Computed, Statistics};
use advlab::session::{Answer, BatchColumns};

/// An answer as lines; `None` if there is nothing to show.
pub(super) fn answer(answer: &Answer, paint: Paint) -> Option<String> {
    Some(match answer {
        Answer::Nothing => return None,
        Answer::Tensor(computed) => tensor(computed, paint),
        Answer::Batch(columns) => batch(columns, paint),
        // A string that is the whole answer is not cut.
        Answer::String(text) => format!("{text:?}"),
        other => brief(other, two_lines(paint)),
    })
}

pub(super) fn dtype(is_f64: bool) -> &'static str {
    if is_f64 { "f64" } else { "f32" }
}

/// The most columns of a string or a key among other values.
const STRING: usize = 48;

/// The columns of an array or a map that is shown in two lines.
pub(super) fn two_lines(paint: Paint) -> usize {
    (2 * paint.width).saturating_sub(30)
}

/// An answer in one line; of an array or a map as much as fits in so many columns.
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
        Answer::Tensor(computed) => {
            let (level, buffer) = (computed.level(), computed.buffer());
            match buffer.len() {
                1 => format!("{level} tensor {}", figures::value(buffer.get(0))),
                length => format!("{level} tensor of {}", figures::counted(length, "value")),
            }
        }
        Answer::Batch(columns) => format!("batch of {}", shape(&columns.layout)),
        Answer::Array(items, length) => {
            let shown: Vec<String> = items.iter().map(|item| brief(item, columns)).collect();
            format!("[{}]", cut(&shown, *length, columns))
        }
        Answer::Map(entries, length) => {
            let entry = |(key, value): &(String, Answer)| {
                let key = paint::cut(&visible(key), STRING);
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
        if index > 0 && width(&text) + width(item) > columns {
            return format!("{text}, ... {} more", length - index);
        }
        text = format!("{text}{comma}{item}");
    }
    match length.checked_sub(items.len()) {
        Some(more @ 1..) => format!("{text}, ... {more} more"),
        _ => text,
    }
}

/// A batch: its shape, and a line for each column.
fn batch(columns: &BatchColumns, paint: Paint) -> String {
    let about = format!("{}, step {}", shape(&columns.layout), columns.step);
    let mut lines = vec![format!("{}   {}", paint.bold("batch"), paint.dim(&about))];
    let names = columns.columns.iter();
    let widest = names.map(|(name, _)| width(&visible(name))).max();
    let widest = widest.unwrap_or(0).max(6);
    lines.push(paint.dim(&format!(
        "  {:<widest$}  {:<12}  {:>8}  {:>8}  {:>8}  {:>8}",
        "column", "level", "mean", "std", "min", "max"
    )));
    for (index, (name, computed)) in columns.columns.iter().enumerate() {
        if index == columns.own {
            lines.push(paint.dim("  and what follows from them:"));
        }
        let name = filled(&visible(name), widest);
        lines.push(format!("  {name}  {}", about_column(computed, paint)));
    }
    lines.join("\n")
}

fn about_column(computed: &Computed, paint: Paint) -> String {
    let values: Vec<f64> = computed.buffer().iter().collect();
    let spread = finite(&values);
    let level = format!("{} {}", computed.level(), dtype(computed.buffer().is_f64()));
    let numbers = [spread.mean, spread.std, spread.min, spread.max];
    let numbers = numbers.map(|number| format!("{:>8}  ", column(&[number]).concat()));
    let picture = paint.blue(&histogram(&values, 10));
    let line = format!("{level:<12}  {}{picture}", numbers.concat());
    line.trim_end().to_string()
}

fn finite(values: &[f64]) -> Statistics {
    Statistics::of(values.iter().copied().filter(|value| value.is_finite()))
}

/// The range of the finite values, and how many fall in each of `buckets` equal parts of it.
pub(super) fn counts(values: &[f64], buckets: usize) -> (f64, f64, Vec<usize>) {
    let Statistics { min, max, .. } = finite(values);
    let mut counts = vec![0; buckets];
    if min < max {
        for value in values.iter().filter(|value| value.is_finite()) {
            let share = along(*value, (min, max));
            // The largest value belongs to the last bucket.
            let bucket = ((share * buckets as f64) as usize).min(buckets - 1);
            counts[bucket] += 1;
        }
    }
    (min, max, counts)
}

/// A histogram in one line of blocks. Empty if all values are the same.
fn histogram(values: &[f64], width: usize) -> String {
    let (_, _, counts) = counts(values, width);
    let most = counts.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let block = |&count: &usize| match count {
        0 => ' ',
        // A bucket with any value at all shows a block.
        count => BLOCKS[(count * BLOCKS.len()).div_ceil(most) - 1],
    };
    counts.iter().map(block).collect()
}
