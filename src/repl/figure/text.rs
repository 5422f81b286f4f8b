//! A figure in a terminal: Braille dots, two across and four down in a letter.

use super::{Figure, Mark, Panel, Range};
use crate::figures::{along, value};
use crate::paint::{self, Paint, cut, wrapped};

const DOWN: usize = 10;
/// Columns beside the drawing: the numbers at its axis, the axis, and a margin on the right.
const BESIDE: usize = 16;
/// Letters of the numbers at the y axis.
const MARGIN: usize = 9;
/// The bit of each dot in a Braille letter, by row and column.
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl Figure {
    pub(in crate::repl) fn text(&self, paint: Paint) -> String {
        let mut lines = vec![paint.bold(&wrapped("", &self.title, paint.width))];
        for panel in &self.panels {
            lines.extend(panel.text(paint));
        }
        lines.join("\n")
    }
}

/// The ink of a series: in the order of the legend.
fn ink(paint: Paint, series: usize, text: &str) -> String {
    paint.with(["34", "33", "32"][series % 3], text)
}

/// Letters of dots, each with the series that drew it last.
struct Canvas {
    across: usize,
    letters: Vec<(u8, usize)>,
}

impl Canvas {
    /// Sets a dot, (0, 0) at the top left.
    fn dot(&mut self, (x, y): (usize, usize), series: usize) {
        if x < 2 * self.across && y < 4 * DOWN {
            let (bits, ink) = &mut self.letters[y / 4 * self.across + x / 2];
            *bits |= BITS[y % 4][x % 2];
            *ink = series;
        }
    }

    /// Sets the dots from one to another: each second of them for each second series, told apart without colours too.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), series: usize) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, step: usize| {
            let share = step as f64 / steps as f64;
            (a as f64 + share * (b as f64 - a as f64)).round() as usize
        };
        for step in (0..=steps).step_by(1 + series % 2) {
            let (x, y) = (between(from.0, to.0, step), between(from.1, to.1, step));
            self.dot((x, y), series);
        }
    }
}

impl Panel {
    fn text(&self, paint: Paint) -> Vec<String> {
        let Some(range) = self.range() else {
            let what = cut(&self.y, paint.width / 2);
            return vec![format!("  {what}: no finite value to draw")];
        };
        let across = paint.width.saturating_sub(BESIDE).max(16);
        let canvas = self.drawn(across, range);
        let legend = self.legend(paint);
        // The names of series are short, and `y` may be what somebody typed.
        let taken = paint::width(&legend);
        let y = cut(&self.y, paint.width.saturating_sub(2 + taken));
        let mut lines = vec![format!("  {y}{legend}")];
        for (index, row) in canvas.letters.chunks(across).enumerate() {
            let here = range.labels().find(|&y| row_of(y, range) / 4 == index);
            let (label, axis) = match here {
                Some(label) => (value(label), '┤'),
                None => (String::new(), '│'),
            };
            let drawn = row.iter().map(|&(bits, series)| match bits {
                0 => " ".to_string(),
                _ => {
                    let letter = char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ');
                    ink(paint, series, &letter.to_string())
                }
            });
            let axis = paint.dim(&format!("{label:>MARGIN$} {axis}"));
            let line = format!("{axis}{}", drawn.collect::<String>());
            lines.push(line.trim_end().to_string());
        }
        let margin = " ".repeat(MARGIN + 1);
        let floor = paint.dim(&format!("└{}", "─".repeat(across)));
        lines.push(format!("{margin}{floor}"));
        let (least, most) = (value(range.x.0), value(range.x.1));
        let room = across.saturating_sub(least.chars().count() + most.chars().count());
        let x = cut(&self.x, room.saturating_sub(2));
        let before = room.saturating_sub(paint::width(&x)) / 2;
        let x = paint::filled(&format!("{}{x}", " ".repeat(before)), room);
        let axis = paint.dim(&format!("{least}{x}{most}"));
        lines.push(format!("{margin} {axis}"));
        lines
    }

    fn legend(&self, paint: Paint) -> String {
        let entry = |(index, name): (usize, &str)| {
            let line = ["⣀⣀", "⡀⡀"][index % 2];
            format!("   {} {name}", ink(paint, index, line))
        };
        let names = self.series.iter().map(|series| series.name).enumerate();
        let named = names.filter(|(_, name)| !name.is_empty());
        named.map(entry).collect()
    }

    fn drawn(&self, across: usize, range: Range) -> Canvas {
        let mut canvas = Canvas {
            across,
            letters: vec![(0, 0); across * DOWN],
        };
        let width = 2 * across;
        let at = |(x, y): (f64, f64)| {
            let x = (along(x, range.x) * (width - 1) as f64).round() as usize;
            (x, row_of(y, range))
        };
        for (number, series) in self.series.iter().enumerate() {
            let dots: Vec<(usize, usize)> = series.finite().map(at).collect();
            match series.mark {
                Mark::Line if dots.len() > 1 => {
                    let pairs = dots.windows(2);
                    pairs.for_each(|pair| canvas.line(pair[0], pair[1], number));
                }
                Mark::Line | Mark::Points => {
                    dots.iter().for_each(|&dot| canvas.dot(dot, number));
                }
                Mark::Bars => {
                    let (_, floor) = at((range.x.0, 0.0));
                    // A dot is left between two bars where there is room for it.
                    let wide = (width / dots.len().max(1)).saturating_sub(1).max(1);
                    for &(x, y) in &dots {
                        for across in 0..wide {
                            let x = (x + across).saturating_sub(wide / 2);
                            canvas.line((x, floor), (x, y), number);
                        }
                    }
                }
            }
        }
        canvas
    }
}

/// The row of dots that a value lies in, from the top.
fn row_of(y: f64, range: Range) -> usize {
    ((1.0 - along(y, range.y)) * (4 * DOWN - 1) as f64).round() as usize
}
