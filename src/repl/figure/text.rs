//! A figure in a terminal.

use super::canvas::Canvas;
use super::{Figure, Mark, Panel, Range};
use crate::figures::{along, value};
use crate::paint::{self, Paint, cut, wrapped};

const DOWN: usize = 10;
/// Columns beside the drawing: the numbers at its axis, the axis, and a margin on the right.
const BESIDE: usize = 16;
/// Letters of the numbers at the y axis.
const MARGIN: usize = 9;

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
    match series % 3 {
        0 => paint.blue(text),
        1 => paint.yellow(text),
        _ => paint.green(text),
    }
}

impl Panel {
    fn text(&self, paint: Paint) -> Vec<String> {
        let Some(range) = self.range() else {
            let what = cut(&self.y, paint.width / 2);
            return vec![format!("  {what}: no finite value to draw")];
        };
        let across = paint.width.saturating_sub(BESIDE).max(16);
        let mut canvas = Canvas::new(across, DOWN);
        self.draw(&mut canvas, range);
        let legend = self.legend(paint);
        // The names of series are short, and `y` may be what somebody typed.
        let taken = paint::width(&legend);
        let y = cut(&self.y, paint.width.saturating_sub(2 + taken));
        let mut lines = vec![format!("  {y}{legend}")];
        let zero = zero_row(range);
        for (index, row) in canvas.rows().iter().enumerate() {
            let label = match index {
                0 => value(range.y.1),
                _ if index == DOWN - 1 => value(range.y.0),
                _ if Some(index) == zero => "0".to_string(),
                _ => String::new(),
            };
            let drawn: String = row
                .iter()
                .map(|(letter, series)| match series {
                    Some(series) => ink(paint, *series, &letter.to_string()),
                    None => letter.to_string(),
                })
                .collect();
            let axis = if label.is_empty() { '│' } else { '┤' };
            let line = format!(
                "{} {}{drawn}",
                paint.dim(&format!("{label:>MARGIN$}")),
                paint.dim(&axis.to_string())
            );
            lines.push(line.trim_end().to_string());
        }
        let (least, most) = (value(range.x.0), value(range.x.1));
        let room = across.saturating_sub(least.chars().count() + most.chars().count());
        lines.push(format!(
            "{} {}",
            " ".repeat(MARGIN),
            paint.dim(&format!("└{}", "─".repeat(across)))
        ));
        let x = cut(&self.x, room.saturating_sub(2));
        let before = room.saturating_sub(paint::width(&x)) / 2;
        let x = paint::filled(&format!("{}{x}", " ".repeat(before)), room);
        let axis = format!("{least}{x}{most}");
        lines.push(format!("{}{}", " ".repeat(MARGIN + 2), paint.dim(&axis)));
        lines
    }

    fn legend(&self, paint: Paint) -> String {
        let named = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| !series.name.is_empty());
        named
            .map(|(place, series)| format!("   {} {}", ink(paint, place, "⣀"), series.name))
            .collect()
    }

    fn draw(&self, canvas: &mut Canvas, range: Range) {
        let (width, height) = canvas.size();
        let place = |(x, y): (f64, f64)| {
            let x = (along(x, range.x) * (width - 1) as f64).round() as usize;
            let y = ((1.0 - along(y, range.y)) * (height - 1) as f64).round() as usize;
            (x, y)
        };
        for (number, series) in self.series.iter().enumerate() {
            let finite = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
            let places: Vec<(usize, usize)> = series
                .points
                .iter()
                .filter(finite)
                .map(|&point| place(point))
                .collect();
            match series.mark {
                Mark::Points => places.iter().for_each(|&(x, y)| canvas.dot(x, y, number)),
                Mark::Line => match places[..] {
                    [(x, y)] => canvas.dot(x, y, number),
                    _ => places
                        .windows(2)
                        .for_each(|pair| canvas.line(pair[0], pair[1], number)),
                },
                Mark::Bars => {
                    let (_, floor) = place((range.x.0, 0.0));
                    // A dot is left between two bars where there is room for it.
                    let wide = (width / places.len().max(1)).saturating_sub(1).max(1);
                    for &(x, y) in &places {
                        for across in 0..wide {
                            let x = (x + across).saturating_sub(wide / 2);
                            canvas.line((x, floor), (x, y), number);
                        }
                    }
                }
            }
        }
    }
}

/// The row of letters that 0 lies in, where it is neither the first nor the last.
fn zero_row(range: Range) -> Option<usize> {
    let (least, most) = range.y;
    if least >= 0.0 || most <= 0.0 {
        return None;
    }
    let row = (most / (most - least) * (4 * DOWN - 1) as f64 / 4.0) as usize;
    (1..DOWN - 1).contains(&row).then_some(row)
}
