//! The shape of a batch, and numbers that line up, as people read them.

pub use advlab::number_text::{count, counted, exact, in_json, share, time, value};

use advlab::batch::Layout;
use advlab::number_text::trimmed;

/// The parts of a bar of text, from the lowest to the highest.
pub const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A batch's shape in words: `128 responses in 16 groups of 8, 1 363 tokens`.
pub fn shape(layout: &Layout) -> String {
    shape_in(layout, "token")
}

/// Like [`shape`], with lengths counted in another unit, such as `word`.
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

/// The relative position of a value in a range: 0 at its start, 1 at its end. Halves avoid overflow for the widest ranges.
pub fn along(value: f64, (least, most): (f64, f64)) -> f64 {
    (value / 2.0 - least / 2.0) / (most / 2.0 - least / 2.0)
}

/// Numbers with as many decimals each, so that they line up in a table: three at most.
pub fn column(numbers: &[f64]) -> Vec<String> {
    let finite = || numbers.iter().copied().filter(|number| number.is_finite());
    let largest = finite().fold(0.0f64, |largest, number| largest.max(number.abs()));
    if largest >= 1e6 || (largest > 0.0 && largest < 1e-3) {
        return numbers.iter().map(|&number| value(number)).collect();
    }
    let whole_digits = largest.max(1.0).log10().floor() as i32;
    let most = (3 - whole_digits).clamp(0, 3) as usize;
    let decimals = |number: f64| {
        let text = format!("{number:.most$}");
        let (_, digits) = trimmed(&text).split_once('.').unwrap_or_default();
        digits.len()
    };
    let decimals = finite().map(decimals).max().unwrap_or(0);
    let text = |&number: &f64| {
        let text = format!("{number:.decimals$}");
        match text.strip_prefix('-') {
            // A zero but for rounding has no sign.
            Some(zero) if zero.parse() == Ok(0.0) => zero.to_string(),
            _ => text,
        }
    };
    numbers.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_lines_up() {
        assert_eq!(column(&[1.0, 0.0]), ["1", "0"]);
        assert_eq!(column(&[0.5, -0.25, 1.0]), ["0.50", "-0.25", "1.00"]);
        assert_eq!(column(&[1.0 / 3.0, -1e-9]), ["0.333", "0.000"]);
        assert_eq!(column(&[1234.56, 2.0]), ["1235", "2"]);
    }
}
