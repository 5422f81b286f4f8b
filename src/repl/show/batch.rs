//! A batch: its shape, and a line for each column.

use super::{dtype, histogram};
use crate::batch::Layout;
use crate::figures::{column, counted};
use crate::paint::{Paint, filled, visible, width};
use crate::script::{Columns, Computed, Spread};

/// Responses, groups and tokens in words.
pub(in crate::repl) fn shape(layout: &Layout) -> String {
    let sizes = || (0..layout.groups()).map(|group| layout.members(group).len());
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let of = if least == most {
        format!("of {least}")
    } else {
        format!("of {least} to {most}")
    };
    let responses = counted(layout.responses(), "response");
    let groups = counted(layout.groups(), "group");
    let tokens = counted(layout.tokens(), "token");
    format!("{responses} in {groups} {of}, {tokens}")
}

pub(in crate::repl) fn batch(columns: &Columns, paint: Paint) -> String {
    let about = format!("{}, step {}", shape(&columns.layout), columns.step);
    let mut lines = vec![format!("{}   {}", paint.bold("batch"), paint.dim(&about))];
    let names = columns.columns.iter();
    let of_name = names.map(|(name, _)| width(&visible(name))).max();
    let of_name = of_name.unwrap_or(0).max(6);
    lines.push(paint.dim(&format!(
        "  {:<of_name$}  {:<12}  {:>8}  {:>8}  {:>8}  {:>8}",
        "column", "level", "mean", "std", "min", "max"
    )));
    for (index, (name, computed)) in columns.columns.iter().enumerate() {
        if index == columns.own {
            lines.push(paint.dim("  and what follows from them:"));
        }
        let name = filled(&visible(name), of_name);
        lines.push(format!("  {name}  {}", line(computed, paint)));
    }
    lines.join("\n")
}

fn line(computed: &Computed, paint: Paint) -> String {
    let values: Vec<f64> = computed.buffer().iter().collect();
    let spread = Spread::of(values.iter().copied().filter(|value| value.is_finite()));
    let level = format!("{} {}", computed.level(), dtype(computed.buffer().is_f64()));
    let numbers = [spread.mean, spread.std, spread.min, spread.max];
    let numbers = numbers.map(|number| format!("{:>8}  ", column(&[number]).concat()));
    let picture = paint.blue(&histogram(&values, 10));
    let line = format!("{level:<12}  {}{picture}", numbers.concat());
    line.trim_end().to_string()
}
