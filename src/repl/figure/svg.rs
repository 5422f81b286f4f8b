//! A figure as SVG: plain shapes, readable on white and on black.

use std::collections::HashMap;

use super::{Figure, Mark, Panel, Range};
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
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        );
        out.push_str("<g font-size=\"15\" font-weight=\"bold\">\n");
        out.push_str(&text(16.0, 24.0, "start", &self.title));
        out.push_str("</g>\n");
        for (index, panel) in self.panels.iter().enumerate() {
            panel.svg(TOP + PANEL * index as f64, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Panel {
    fn svg(&self, top: f64, out: &mut String) {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (above, under) = (top + ABOVE, top + PANEL - UNDER);
        out.push_str(&text(left, top + 14.0, "start", &self.y));
        let Some(range) = self.range() else {
            return;
        };
        let x = |value: f64| left + along(value, range.x) * (right - left);
        let y = |value: f64| under - along(value, range.y) * (under - above);
        self.axes(range, &x, &y, out);
        for (index, series) in self.series.iter().enumerate() {
            let ink = INKS[index % INKS.len()];
            let finite = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
            let points = || series.points.iter().filter(finite);
            match series.mark {
                Mark::Line => {
                    let mut path: Vec<String> = points()
                        .map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b)))
                        .collect();
                    path.dedup();
                    out.push_str(&format!(
                        "<polyline fill=\"none\" stroke=\"{ink}\" stroke-width=\"1.8\" points=\"{}\"/>\n",
                        path.join(" ")
                    ));
                }
                Mark::Points => {
                    for (x, y, number) in apart(points().map(|&(a, b)| (x(a), y(b)))) {
                        // As dark as that many on top of each other; ten are as dark as any more.
                        let opacity = 1.0 - 0.5f64.powi(number.min(10) as i32);
                        out.push_str(&format!(
                            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\" fill=\"{ink}\" fill-opacity=\"{}\"/>\n",
                            value(opacity)
                        ));
                    }
                }
                Mark::Bars => {
                    let wide = (right - left) / points().count().max(1) as f64 * 0.85;
                    for &(a, b) in points() {
                        let (high, low) = (y(b).min(y(0.0)), y(b).max(y(0.0)));
                        out.push_str(&format!(
                            "<rect x=\"{:.1}\" y=\"{high:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" fill=\"{ink}\"/>\n",
                            x(a) - wide / 2.0,
                            low - high
                        ));
                    }
                }
            }
            if !series.name.is_empty() {
                let at = right - 110.0 * (self.series.len() - index) as f64 + 30.0;
                out.push_str(&format!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"3\" fill=\"{ink}\"/>\n",
                    at - 20.0,
                    top + 9.0
                ));
                out.push_str(&text(at, top + 14.0, "start", &series.name));
            }
        }
    }

    fn axes(&self, range: Range, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64, out: &mut String) {
        let (left, right, above, under) = (x(range.x.0), x(range.x.1), y(range.y.1), y(range.y.0));
        let line = |a: f64, b: f64, c: f64, d: f64| {
            format!(
                "<line x1=\"{a:.1}\" y1=\"{b:.1}\" x2=\"{c:.1}\" y2=\"{d:.1}\" stroke=\"{GRAY}\" stroke-width=\"0.8\"/>\n"
            )
        };
        out.push_str(&line(left, above, left, under));
        out.push_str(&line(left, under, right, under));
        if range.y.0 < 0.0 && range.y.1 > 0.0 {
            out.push_str(&line(left, y(0.0), right, y(0.0)));
            out.push_str(&text(left - 6.0, y(0.0) + 4.0, "end", "0"));
        }
        for end in [range.y.0, range.y.1] {
            out.push_str(&text(left - 6.0, y(end) + 4.0, "end", &value(end)));
        }
        out.push_str(&text(left, under + 16.0, "start", &value(range.x.0)));
        out.push_str(&text(right, under + 16.0, "end", &value(range.x.1)));
        let middle = (left + right) / 2.0;
        out.push_str(&text(middle, under + 16.0, "middle", &self.x));
    }
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
            name: String::new(),
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
