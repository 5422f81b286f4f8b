//! A figure as SVG: plain shapes, readable on white and on black.

use std::collections::HashMap;

use super::{Figure, Mark, Panel};
use crate::figures::{along, value};
use crate::paint::{cut, visible};

const WIDTH: f64 = 640.0;
const PANEL: f64 = 260.0;
const TOP: f64 = 40.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// Room above and under the drawing of a panel: its name, the numbers at the axis.
const ABOVE: f64 = 24.0;
const UNDER: f64 = 40.0;
/// Blue, orange, green: told apart also by those who see red and green alike.
const INKS: [&str; 3] = ["#3b78b5", "#d9822b", "#4c9a4c"];
/// Letters that fit beside each other.
const LETTERS: usize = 88;
const GRAY: &str = "#888888";

impl Figure {
    pub(in crate::repl) fn svg(&self) -> String {
        let height = TOP + PANEL * self.panels.len() as f64;
        let title = text(16.0, 24.0, "start", &self.title);
        let panels = self.panels.iter().enumerate();
        let panels: String = panels
            .map(|(index, panel)| panel.svg(TOP + PANEL * index as f64))
            .collect();
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<g font-size="15" font-weight="bold">
{title}</g>
{panels}</svg>
"#
        )
    }
}

impl Panel {
    fn svg(&self, top: f64) -> String {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (above, under) = (top + ABOVE, top + PANEL - UNDER);
        let mut out = text(left, top + 14.0, "start", &self.y);
        let Some(range) = self.range() else {
            return out;
        };
        let x = |value: f64| left + along(value, range.x) * (right - left);
        let y = |value: f64| under - along(value, range.y) * (under - above);
        out.push_str(&line(left, above, left, under));
        out.push_str(&line(left, under, right, under));
        if let Some(zero) = range.labels().nth(2) {
            out.push_str(&line(left, y(zero), right, y(zero)));
        }
        for label in range.labels() {
            out.push_str(&text(left - 6.0, y(label) + 4.0, "end", &value(label)));
        }
        let middle = (left + right) / 2.0;
        out.push_str(&text(left, under + 16.0, "start", &value(range.x.0)));
        out.push_str(&text(right, under + 16.0, "end", &value(range.x.1)));
        out.push_str(&text(middle, under + 16.0, "middle", &self.x));
        for (index, series) in self.series.iter().enumerate() {
            let ink = INKS[index % INKS.len()];
            let points = series.finite().map(|(a, b)| (x(a), y(b)));
            match series.mark {
                Mark::Line => {
                    let mut path: Vec<String> =
                        points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                    path.dedup();
                    let path = path.join(" ");
                    out.push_str(&format!("<polyline fill=\"none\" stroke=\"{ink}\" stroke-width=\"1.8\" points=\"{path}\"/>\n"));
                }
                Mark::Points => {
                    for (x, y, number) in apart(points) {
                        // As dark as that many on top of each other; ten are as dark as any more.
                        let opacity = value(1.0 - 0.5f64.powi(number.min(10) as i32));
                        out.push_str(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\" fill=\"{ink}\" fill-opacity=\"{opacity}\"/>\n"));
                    }
                }
                Mark::Bars => {
                    let wide = (right - left) / series.finite().count().max(1) as f64 * 0.85;
                    for (middle, end) in points {
                        let (high, low) = (end.min(y(0.0)), end.max(y(0.0)));
                        out.push_str(&bar(middle - wide / 2.0, high, wide, low - high, ink));
                    }
                }
            }
            if !series.name.is_empty() {
                let at = right - 110.0 * (self.series.len() - index) as f64 + 30.0;
                out.push_str(&bar(at - 20.0, top + 9.0, 14.0, 3.0, ink));
                out.push_str(&text(at, top + 14.0, "start", series.name));
            }
        }
        out
    }
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{GRAY}\" stroke-width=\"0.8\"/>\n"
    )
}

fn bar(x: f64, y: f64, width: f64, height: f64, ink: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{ink}\"/>\n"
    )
}

/// The side of a square whose dots, each wider than two such squares, nobody tells apart.
const SQUARE: f64 = 2.0;

/// A dot for each square that has any, at the location of the first of them, with their number: a million points are a
/// figure that can still be opened.
fn apart(places: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64, usize)> {
    let mut dots: Vec<(f64, f64, usize)> = Vec::new();
    let mut squares: HashMap<(i64, i64), usize> = HashMap::new();
    for (x, y) in places {
        // Coordinates are some hundreds at most.
        let square = ((x / SQUARE) as i64, (y / SQUARE) as i64);
        let dot = *squares.entry(square).or_insert(dots.len());
        match dots.get_mut(dot) {
            Some(dot) => dot.2 += 1,
            None => dots.push((x, y, 1)),
        }
    }
    dots
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = cut(&visible(content), LETTERS)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{GRAY}\">{content}</text>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    fn scatter(points: Vec<(f64, f64)>) -> String {
        let series = Series {
            name: "",
            mark: Mark::Points,
            points,
        };
        let panel = Panel {
            x: "x".to_string(),
            y: "y".to_string(),
            series: vec![series],
        };
        let figure = Figure {
            title: String::new(),
            panels: vec![panel],
        };
        figure.svg()
    }

    #[test]
    fn a_million_points_are_a_figure_that_can_be_opened() {
        let place = |number: u32| f64::from(number.wrapping_mul(2_654_435_761) >> 12);
        let points = (0..1_000_000).map(|number| (place(number), place(number ^ 0x5bd1_e995)));
        let bytes = scatter(points.collect()).len();
        assert!(bytes < 3_000_000, "{bytes}");
    }

    #[test]
    fn dots_in_one_place_are_one_dot_that_is_darker() {
        let svg = scatter(vec![(0.0, 0.0), (1.0, 1.0), (1.0, 1.0)]);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("fill-opacity=\"0.5\"") && svg.contains("fill-opacity=\"0.75\""));
    }
}
