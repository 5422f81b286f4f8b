//! A tensor: its level, the distribution of its values, and the first of them by group.

use super::{dtype, finite, histogram};
use crate::report::study::indices;
use advlab::batch::Layout;
use advlab::figures::{column, counted, exact, share, value};
use advlab::paint::{Paint, cut, filled, visible, width};
use advlab::script::Computed;
use advlab::tensor::Level;

/// The most groups, or responses of a token tensor, that are shown.
const ROWS: usize = 4;
/// The most responses of one group that a token tensor shows.
const OF_A_GROUP: usize = 2;
/// The most values of a group tensor that are shown.
const VALUES: usize = 24;
/// The columns of a group's name before it is cut.
const LABEL: usize = 14;

pub(in crate::prompt) fn tensor(computed: &Computed, paint: Paint) -> String {
    let buffer = computed.buffer();
    let dtype = dtype(buffer.is_f64());
    if computed.level() == Level::Batch {
        let note = paint.dim(&format!("batch tensor, {dtype}"));
        return format!("{}   {note}", exact(buffer.get(0)));
    }
    let values: Vec<f64> = buffer.iter().collect();
    let title = format!("{} tensor", computed.level());
    let about = format!("{}, {dtype}", counted(values.len(), "value"));
    let mut lines = vec![format!("{}   {}", paint.bold(&title), paint.dim(&about))];
    if values.is_empty() {
        return lines.remove(0);
    }
    lines.push(spread_line(&values));
    let picture = histogram(&values, paint.width * 3 / 5);
    if !picture.trim().is_empty() {
        let spread = finite(&values);
        let (least, most) = (value(spread.min), value(spread.max));
        lines.push(format!("  {least} {} {most}", paint.blue(&picture)));
    }
    lines.extend(first_values(computed, &values, paint));
    lines.join("\n")
}

/// Mean, std and the like in one line.
pub(in crate::prompt) fn spread_line(values: &[f64]) -> String {
    let spread = finite(values);
    let number = |test: fn(&f64) -> bool| values.iter().copied().filter(test).count();
    let (zeros, nans) = (number(|x| *x == 0.0), number(|x| x.is_nan()));
    let infinite = number(|x| x.is_infinite());
    let mut line = if nans + infinite == values.len() {
        "  no finite value".to_string()
    } else {
        // A mean that is 0 but for rounding is 0.
        let largest = spread.min.abs().max(spread.max.abs());
        let is_zero = spread.mean.abs() < 1e-12 * largest;
        let mean = value(if is_zero { 0.0 } else { spread.mean });
        let [std, min, max] = [spread.std, spread.min, spread.max].map(value);
        format!("  mean {mean}   std {std}   min {min}   max {max}")
    };
    for (what, number) in [("zero", zeros), ("NaN", nans), ("infinite", infinite)] {
        if number > 0 {
            line.push_str(&format!("   {what} {}", share(number, values.len())));
        }
    }
    line
}

/// The first values: several groups per line, or else a line per group or response.
fn first_values(computed: &Computed, values: &[f64], paint: Paint) -> Vec<String> {
    let (level, layout) = (computed.level(), computed.layout());
    if level == Level::Group {
        return in_groups(layout, values, paint);
    }
    // Show responses of more than one group if there are several.
    let is_single = layout.groups() == 1;
    let each = if is_single { ROWS } else { OF_A_GROUP };
    let of_group = |group| {
        let label = label(layout, group);
        let lists = indices(layout, level, group)
            .into_iter()
            .take(each)
            .enumerate();
        let row = move |(number, own): (usize, Vec<usize>)| {
            let label = match level {
                Level::Token => format!("{label} #{number}"),
                _ => label.clone(),
            };
            (label, own.iter().map(|&index| values[index]).collect())
        };
        lists.map(row)
    };
    let rows = (0..layout.groups()).flat_map(of_group).take(ROWS);
    let rows: Vec<(String, Vec<f64>)> = rows.collect();
    let (whole, noun) = match level {
        Level::Token => (layout.responses(), "response"),
        _ => (layout.groups(), "group"),
    };
    let mut lines = table(&rows, paint);
    lines.extend(more(whole - rows.len(), noun, paint));
    lines
}

/// Names and values of groups, several per line.
fn in_groups(layout: &Layout, values: &[f64], paint: Paint) -> Vec<String> {
    let shown = values.len().min(VALUES);
    let numbers = column(&values[..shown]);
    let labels: Vec<String> = (0..shown).map(|group| label(layout, group)).collect();
    let widest = |texts: &[String]| texts.iter().map(|text| width(text)).max().unwrap_or(0);
    let (of_label, of_number) = (widest(&labels), widest(&numbers));
    let across = ((paint.width + 2) / (of_label + 2 + of_number + 4)).max(1);
    let cell = |(label, number): (&String, &String)| {
        let label = paint.dim(&filled(label, of_label));
        format!("{label}  {number:>of_number$}")
    };
    let cells: Vec<String> = labels.iter().zip(&numbers).map(cell).collect();
    let rows = cells.chunks(across);
    let mut lines: Vec<String> = rows.map(|row| format!("  {}", row.join("    "))).collect();
    lines.extend(more(values.len() - shown, "group", paint));
    lines
}

fn more(number: usize, what: &str, paint: Paint) -> Option<String> {
    let text = counted(number, &format!("more {what}"));
    (number > 0).then(|| paint.dim(&format!("  ... {text}")))
}

/// Rows of numbers that line up, as many of each as fit.
fn table(rows: &[(String, Vec<f64>)], paint: Paint) -> Vec<String> {
    let labels = rows.iter().map(|(label, _)| width(label));
    let of_label = labels.max().unwrap_or(0);
    // No more than fit at two letters per number.
    let fitting = |values: &[f64]| values.len().min(paint.width / 3);
    let shown = rows.iter().flat_map(|(_, own)| &own[..fitting(own)]);
    let numbers = column(&shown.copied().collect::<Vec<f64>>());
    let of_number = numbers.iter().map(|text| text.len()).max().unwrap_or(0);
    let longest = rows.iter().map(|(_, own)| own.len()).max().unwrap_or(0);
    let room = |reserved: usize| {
        let room = paint.width.saturating_sub(2 + of_label + reserved);
        room / (of_number + 2)
    };
    // The number of values that are left out needs room as well.
    let all_fit = room(0) >= longest;
    let rest = format!("  ... {longest} more");
    let across = if all_fit { room(0) } else { room(rest.len()) };
    let mut numbers = numbers.iter();
    let line = |(label, own): &(String, Vec<f64>)| {
        let cells = numbers.by_ref().take(fitting(own)).enumerate();
        let cells = cells.filter(|(index, _)| *index < across);
        let cells: String = cells
            .map(|(_, number)| format!("  {number:>of_number$}"))
            .collect();
        let rest = match own.len().saturating_sub(across.min(fitting(own))) {
            0 => String::new(),
            left => paint.dim(&format!("  ... {left} more")),
        };
        format!("  {}{cells}{rest}", paint.dim(&filled(label, of_label)))
    };
    rows.iter().map(line).collect()
}

/// A group's name, cut if it is long: a name may be a whole prompt, with any characters.
fn label(layout: &Layout, group: usize) -> String {
    let name = layout.group_id(group).name();
    let text = name.split_whitespace().collect::<Vec<_>>().join(" ");
    // Of a long name, only what can be shown is looked at.
    let start: String = text.chars().take(4 * LABEL).collect();
    cut(&visible(&start), LABEL + 1)
}
