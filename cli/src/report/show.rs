//! Shows answers as text: tensors, batches and their shapes, plain values, and scripts with syntax colours.

use super::Report;
use super::draw::along;
use super::study::indices;
use crate::number_text::{column, counted, exact, share, value};
use crate::paint::{BLOCKS, Paint, cut, filled, table, visible, width};
use advlab::batch::Layout;
use advlab::script::{Computed, Statistics, Token, TokenKind, lex};
use advlab::session::{Answer, BatchColumns};
use advlab::tensor::Level;
use serde_json::json;

/// The largest number of rows of a tensor: of groups or, for a token tensor, of responses.
const ROWS: usize = 4;
/// The largest number of responses per group that a token tensor shows, if there are several groups.
const OF_A_GROUP: usize = 2;
/// The largest number of values of a group tensor that are shown.
const VALUES: usize = 24;
/// The largest width of a group's name; a longer name is cut.
const LABEL: usize = 15;

/// Describes a batch's shape in words: `128 responses in 16 groups of 8, 1 363 tokens`.
pub fn shape(layout: &Layout) -> String {
    shape_in(layout, "token")
}

/// Does the same as [`shape`] with another unit of length, such as `word`.
pub fn shape_in(layout: &Layout, unit: &str) -> String {
    let sizes = || (0..layout.groups()).map(|group| layout.members(group).len());
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let to_most = if least == most {
        String::new()
    } else {
        format!(" to {most}")
    };
    let responses = counted(layout.responses(), "response");
    let groups = counted(layout.groups(), "group");
    let tokens = counted(layout.tokens(), unit);
    format!("{responses} in {groups} of {least}{to_most}, {tokens}")
}

/// Formats an answer as lines; returns `None` if there is nothing to show.
pub(crate) fn answer(answer: &Answer, paint: Paint) -> Option<String> {
    Some(match answer {
        Answer::Nothing => return None,
        Answer::Tensor(computed) => tensor(computed, paint),
        Answer::Batch(columns) => batch(columns, paint).text,
        // A string that is the whole answer is not cut.
        Answer::String(text) => format!("{text:?}"),
        other => brief(other, paint.width),
    })
}

/// Formats the first values of a tensor, as many as fit in a line, in the order of the batch.
pub(crate) fn values(computed: &Computed, columns: usize) -> String {
    let mut text = String::new();
    for (index, number) in computed.iter().enumerate() {
        let next = format!("{}{}", if index == 0 { "" } else { ", " }, value(number));
        if text.len() + next.len() + 5 > columns {
            return text + ", ...";
        }
        text += &next;
    }
    text
}

/// Formats an answer in one line, cut to the given width.
pub(crate) fn brief(answer: &Answer, columns: usize) -> String {
    let more = |shown: usize, length: usize| match length - shown {
        0 => String::new(),
        more => format!(", ... {more} more"),
    };
    let text = match answer {
        Answer::Nothing => "()".to_string(),
        Answer::Bool(truth) => truth.to_string(),
        Answer::Integer(whole) => whole.to_string(),
        Answer::Number(number) => exact(*number),
        Answer::String(text) => format!("{text:?}"),
        Answer::Tensor(computed) if computed.buffer().len() == 1 => {
            let number = value(computed.buffer().get(0));
            format!("{} tensor {number}", computed.level())
        }
        Answer::Tensor(computed) => {
            let values = counted(computed.buffer().len(), "value");
            format!("{} tensor of {values}", computed.level())
        }
        Answer::Batch(batch) => format!("batch of {}", shape(&batch.layout)),
        Answer::Array(items, length) => {
            let shown: Vec<String> = items.iter().map(|item| brief(item, columns)).collect();
            format!("[{}{}]", shown.join(", "), more(items.len(), *length))
        }
        Answer::Map(entries, length) => {
            let entry = |(key, item): &(String, Answer)| {
                format!("{}: {}", visible(key), brief(item, columns))
            };
            let shown: Vec<String> = entries.iter().map(entry).collect();
            format!("#{{ {}{} }}", shown.join(", "), more(shown.len(), *length))
        }
        Answer::Other(text) => text.clone(),
    };
    cut(&text, columns)
}

/// Describes a batch by its shape and a line for each column of numbers.
pub fn batch(columns: &BatchColumns, paint: Paint) -> Report {
    let (mut report, layout) = (Report::new(paint), &columns.layout);
    let about = format!("{}, step {}", shape(layout), columns.step);
    report.line(format!("{}   {}", paint.bold("batch"), paint.dim(&about)));
    let titles = ["column", "level", "mean", "std", "min", "max"];
    let mut lines = vec![titles.map(String::from).to_vec()];
    for (index, (name, computed)) in columns.columns.iter().enumerate() {
        let values: Vec<f64> = computed.buffer().iter().collect();
        let of = finite(&values);
        let numbers = [of.mean, of.std, of.min, of.max];
        let is_derived = index >= columns.own;
        let derived = if is_derived { "= " } else { "" };
        let (level, dtype) = (computed.level().name(), dtype(computed));
        let head = [
            format!("{derived}{}", visible(name)),
            format!("{level} {dtype}"),
        ];
        let numbers = numbers.map(|number| column(&[number]).concat());
        let nans = values.iter().filter(|x| x.is_nan()).count();
        let mut histogram = paint.blue(&blocks(&counts(&values, 10).2));
        if nans > 0 {
            histogram.push_str(&format!("  NaN {}", share(nans, values.len())));
        }
        lines.push(head.into_iter().chain(numbers).chain([histogram]).collect());
        report.rows.push(json!({
            "column": name, "level": level, "dtype": dtype, "is_derived": is_derived,
            "mean": of.mean, "std": of.std, "min": of.min, "max": of.max,
        }));
    }
    report.table(&lines);
    report.line("  = computed from other columns");
    report.about = json!({
        "responses": layout.responses(), "groups": layout.groups(), "tokens": layout.tokens(), "step": columns.step,
    });
    report
}

fn dtype(computed: &Computed) -> &'static str {
    ["f32", "f64"][usize::from(computed.buffer().is_f64())]
}

/// Describes a tensor by its level, the distribution of its values, and the first values by group.
fn tensor(computed: &Computed, paint: Paint) -> String {
    let values: Vec<f64> = computed.buffer().iter().collect();
    let dtype = dtype(computed);
    if computed.level() == Level::Batch {
        let note = paint.dim(&format!("batch tensor, {dtype}"));
        return format!("{}   {note}", exact(values[0]));
    }
    let title = paint.bold(&format!("{} tensor", computed.level()));
    let about = paint.dim(&format!("{}, {dtype}", counted(values.len(), "value")));
    let mut lines = vec![format!("{title}   {about}")];
    if !values.is_empty() {
        lines.push(format!("  {}", spread(&values)));
        let (least, most, counts) = counts(&values, paint.width * 3 / 5);
        if least < most {
            let (least, most) = (value(least), value(most));
            lines.push(format!("  {least} {} {most}", paint.blue(&blocks(&counts))));
        }
        // A group tensor is shown as cells, each with the group's name; other tensors have a row per group or response.
        let (level, layout) = (computed.level(), computed.layout());
        let (first, shown) = match level {
            Level::Group => in_cells(layout, &values, paint),
            _ => in_rows(computed, &values, paint),
        };
        lines.extend(first);
        let (all, noun) = match level {
            Level::Token => (layout.responses(), "response"),
            _ => (layout.groups(), "group"),
        };
        if shown < all {
            let more = counted(all - shown, &format!("more {noun}"));
            lines.push(paint.dim(&format!("  ... {more}")));
        }
    }
    lines.join("\n")
}

/// Returns a line with mean, standard deviation, minimum and maximum, and the shares of zeros and of values that are not finite.
pub(crate) fn spread(values: &[f64]) -> String {
    let of = finite(values);
    // A mean that differs from 0 only by rounding errors is shown as 0.
    let is_zero = of.mean.abs() < 1e-12 * of.min.abs().max(of.max.abs());
    let mean = if is_zero { 0.0 } else { of.mean };
    let mut line = if values.iter().any(|x| x.is_finite()) {
        statistics(Statistics { mean, ..of })
    } else {
        "no finite value".to_string()
    };
    let number = |is_kind: fn(&f64) -> bool| values.iter().copied().filter(is_kind).count();
    let (zeros, nans) = (number(|x| *x == 0.0), number(|x| x.is_nan()));
    let infinite = number(|x| x.is_infinite());
    for (name, number) in [("zero", zeros), ("NaN", nans), ("infinite", infinite)] {
        if number > 0 {
            line.push_str(&format!("   {name} {}", share(number, values.len())));
        }
    }
    line
}

/// Returns a line with mean, standard deviation, minimum and maximum.
pub(crate) fn statistics(of: Statistics) -> String {
    let [mean, std, min, max] = [of.mean, of.std, of.min, of.max].map(value);
    format!("mean {mean}   std {std}   min {min}   max {max}")
}

fn finite(values: &[f64]) -> Statistics {
    Statistics::of(values.iter().copied().filter(|value| value.is_finite()))
}

/// Returns the names and values of the first groups in lines of several groups each. Also returns the number of groups shown.
fn in_cells(layout: &Layout, values: &[f64], paint: Paint) -> (Vec<String>, usize) {
    let shown = values.len().min(VALUES);
    let numbers = column(&values[..shown]).into_iter().enumerate();
    let cells = numbers.map(|(group, number)| vec![label(layout, group), number]);
    let cells = table(&cells.collect::<Vec<_>>());
    let widest = cells.iter().map(|cell| width(cell)).max();
    let across = (paint.width + 2) / (widest.unwrap_or(0) + 2);
    let lines = cells.chunks(across.max(1)).map(|line| line.join("  "));
    (lines.collect(), shown)
}

/// Returns a line for each of the first groups or responses, with as many values as fit. Also returns the number of lines.
fn in_rows(computed: &Computed, values: &[f64], paint: Paint) -> (Vec<String>, usize) {
    let (level, layout) = (computed.level(), computed.layout());
    let each = [OF_A_GROUP, ROWS][usize::from(layout.groups() == 1)];
    let of_group = |group: usize| {
        let lists = indices(layout, level, group).into_iter().take(each);
        lists.enumerate().map(move |(number, list)| match level {
            Level::Token => (format!("{} #{number}", label(layout, group)), list),
            _ => (label(layout, group), list),
        })
    };
    let rows = (0..layout.groups()).flat_map(of_group).take(ROWS);
    let rows: Vec<(String, Vec<usize>)> = rows.collect();
    let labels = rows.iter().map(|(label, _)| width(label)).max();
    let labels = labels.unwrap_or(0);
    let longest = rows.iter().map(|(_, list)| list.len()).max().unwrap_or(0);
    let room = paint.width.saturating_sub(labels + 2);
    // No more values are formatted than would fit if each took one character and two spaces.
    let most = longest.min(room / 3);
    let shown = rows.iter().flat_map(|(_, list)| list.iter().take(most));
    let numbers = column(&shown.map(|&index| values[index]).collect::<Vec<f64>>());
    let widest = numbers.iter().map(String::len).max().unwrap_or(0);
    let each = widest + 2;
    // The number of values that are not shown needs room as well.
    let across = if longest * each <= room {
        longest
    } else {
        room.saturating_sub(13) / each
    };
    let (mut numbers, mut lines) = (numbers.iter(), Vec::new());
    for (label, list) in &rows {
        let mut line = format!("  {}", filled(label, labels));
        let own: Vec<&String> = numbers.by_ref().take(list.len().min(most)).collect();
        let own = own.iter().take(across);
        line.extend(own.map(|number| format!("  {number:>widest$}")));
        if let left @ 1.. = list.len().saturating_sub(across) {
            line += &paint.dim(&format!("  ... {left} more"));
        }
        lines.push(line);
    }
    (lines, rows.len())
}

/// Returns a group's name, cut and escaped, because a name may be a whole prompt with any characters.
fn label(layout: &Layout, group: usize) -> String {
    let name = layout.group_id(group).name();
    let text = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let start: String = text.chars().take(4 * LABEL).collect();
    cut(&visible(&start), LABEL)
}

/// Returns the range of the finite values, and the number of values in each of `buckets` equal parts of the range; all counts are
/// 0 if the values are equal.
pub(crate) fn counts(values: &[f64], buckets: usize) -> (f64, f64, Vec<usize>) {
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

/// Draws a histogram in one line; the line is empty if all counts are 0.
fn blocks(counts: &[usize]) -> String {
    let most = counts.iter().copied().max().unwrap_or(0);
    let block = |&count: &usize| match count {
        0 => ' ',
        // A bucket that is not empty always shows a block.
        count => BLOCKS[(count * BLOCKS.len()).div_ceil(most) - 1],
    };
    let shown = counts.iter().filter(|_| most > 0);
    shown.map(block).collect()
}

/// Colours the syntax of a script.
pub(crate) fn highlighted(text: &str, paint: Paint) -> String {
    let all = lex(text);
    let (mut out, mut at) = (String::new(), 0);
    for (index, token) in all.iter().enumerate() {
        let is_call = all.get(index + 1).is_some_and(Token::opens_call);
        out.push_str(&text[at..token.start]);
        out.push_str(&match token.kind {
            TokenKind::Keyword => paint.with("35", token.text),
            TokenKind::String => paint.with("32", token.text),
            TokenKind::Number => paint.with("36", token.text),
            TokenKind::Comment => paint.dim(token.text),
            TokenKind::Name if is_call => paint.blue(token.text),
            _ => token.text.to_string(),
        });
        at = token.end();
    }
    out + &text[at..]
}
