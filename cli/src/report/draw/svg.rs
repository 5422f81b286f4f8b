//! A figure as SVG: plain shapes on white, text as text, inks for colour-blind readers, lines that also differ in grey.

use std::collections::BTreeMap;

use super::scale::{Range, ticks, written};
use super::{Figure, Mark, Panel, Series};
use advlab::figures::along;
use advlab::paint::{cut, visible};

/// Units are CSS pixels: a paper's column is about half as wide.
const WIDTH: f64 = 640.0;
const MARGIN: f64 = 10.0;
/// Height above and below a panel's plot: for its name, and for the numbers and the name of the x axis.
const ABOVE: f64 = 24.0;
const UNDER: f64 = 38.0;
/// About the width of a letter, and the height of a line of text.
const LETTER: f64 = 6.2;
const LINE: f64 = 17.0;
/// The colour bar beside a heat map, with its numbers.
const BESIDE: f64 = 58.0;
/// The side of a square within which dots cannot be told apart: each dot is wider than two such squares.
const SQUARE: f64 = 2.0;
/// The inks of Okabe and Ito, except yellow, which is invisible on white.
const INKS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// Lines differ by these, also in grey.
const DASHES: [&str; 4] = ["", "7 3", "2 2.5", "9 3 2 3"];
/// The ends of a heat map's colours: below 0, and above.
const COLD: [f64; 3] = [5.0, 90.0, 150.0];
const WARM: [f64; 3] = [190.0, 70.0, 0.0];
const BLACK: &str = "#1a1a1a";
/// The strokes of axes, of the zero line, and of the other labelled levels.
const AXIS: &str = "stroke=\"#666666\"";
const ZERO: &str = "stroke=\"#666666\" stroke-width=\"0.7\"";
const LEVEL: &str = "stroke=\"#e4e4e4\" stroke-width=\"0.8\"";

type PagePoint = (f64, f64);

/// The position of a panel's data on the page.
struct PlotArea {
    range: Range,
    x: (f64, f64),
    /// The bottom, then the top.
    y: (f64, f64),
}

impl PlotArea {
    fn at(&self, x: f64, y: f64) -> PagePoint {
        let between = |(a, b): (f64, f64), share: f64| a + share * (b - a);
        let (x, y) = (along(x, self.range.x), along(y, self.range.y));
        (between(self.x, x), between(self.y, y))
    }
}

impl Figure {
    pub fn svg(&self) -> String {
        let mut drawing = Drawing(String::new());
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let height = [260.0, 230.0, 190.0, 130.0][columns.min(4) - 1];
        let width = (WIDTH - MARGIN) / columns as f64;
        drawing.add("<g font-weight=\"bold\">");
        drawing.text((MARGIN, 20.0), "start", &self.title);
        drawing.add("</g>");
        let legend = self.legend();
        let top = drawing.legend(&legend, 20.0) + 8.0;
        for (index, panel) in self.panels.iter().enumerate() {
            let (row, column) = ((index / columns) as f64, (index % columns) as f64);
            let corner = (MARGIN / 2.0 + width * column, top + height * row);
            drawing.panel(panel, &legend, corner, (width, height));
        }
        let bottom = top + height * self.panels.len().div_ceil(columns) as f64;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom}" viewBox="0 0 {WIDTH} {bottom}" font-family="Helvetica, Arial, sans-serif" font-size="11">
<rect width="{WIDTH}" height="{bottom}" fill="white"/>
{}</svg>
"#,
            drawing.0
        )
    }
}

struct Drawing(String);

impl Drawing {
    fn add(&mut self, shape: &str) {
        self.0 += shape;
        self.0 += "\n";
    }

    fn line(&mut self, (x1, y1): PagePoint, (x2, y2): PagePoint, stroke: &str) {
        self.add(&format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {stroke}/>"
        ));
    }

    /// A rectangle by its left upper corner, its width and its height.
    fn bar(&mut self, [x, y, width, height]: [f64; 4], ink: &str) {
        self.add(&format!("<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{ink}\" shape-rendering=\"crispEdges\"/>"));
    }

    fn text(&mut self, (x, y): PagePoint, anchor: &str, content: &str) {
        let content = cut(&visible(content), ((WIDTH - MARGIN) / LETTER) as usize);
        let content = content.replace('&', "&amp;").replace('<', "&lt;");
        let content = content.replace('>', "&gt;");
        self.add(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{BLACK}\">{content}</text>"));
    }

    /// Draws the legend below a given height, and returns its lower end.
    fn legend(&mut self, legend: &[&Series], above: f64) -> f64 {
        let (mut x, mut y) = (f64::INFINITY, above);
        for (index, series) in legend.iter().enumerate() {
            let room = 44.0 + LETTER * series.name.chars().count() as f64;
            if x + room > WIDTH - MARGIN {
                (x, y) = (MARGIN, y + LINE);
            }
            let (ink, stroke) = stroke(&series.mark, index);
            match series.mark {
                Mark::Points | Mark::Bars => self.bar([x + 6.0, y - 8.0, 9.0, 9.0], ink),
                _ => self.line((x, y - 3.5), (x + 22.0, y - 3.5), &stroke),
            }
            self.text((x + 27.0, y), "start", &series.name);
            x += room;
        }
        y
    }

    fn panel(&mut self, panel: &Panel, legend: &[&Series], (x0, y0): PagePoint, size: (f64, f64)) {
        self.text((x0 + 5.0, y0 + 13.0), "start", &panel.y);
        let Some(range) = Range::of(panel) else {
            return self.text((x0 + 5.0, y0 + 40.0), "start", "no finite value to draw");
        };
        let heat = panel.heat();
        let (range, beside) = match heat {
            Some(_) => (range, BESIDE),
            None => (range.with_room(), 14.0),
        };
        let upright = ticks(range.y, ((size.1 - ABOVE - UNDER) / 32.0) as usize);
        let left = x0 + 14.0 + longest(&upright);
        let (right, top, bottom) = (x0 + size.0 - beside, y0 + ABOVE, y0 + size.1 - UNDER);
        let (x, y) = ((left, right), (bottom, top));
        let frame = PlotArea { range, x, y };
        let level = |drawing: &mut Drawing, value: f64, stroke: &str| {
            let (_, y) = frame.at(range.x.0, value);
            drawing.line((left, y), (right, y), stroke);
            y
        };
        for (tick, written) in &upright {
            let y = level(self, *tick, LEVEL);
            self.text((left - 5.0, y + 4.0), "end", written);
        }
        for series in &panel.series {
            self.series(series, series.ink(legend), &frame);
        }
        if range.y.0 < 0.0 && range.y.1 > 0.0 && heat.is_none() {
            level(self, 0.0, ZERO);
        }
        self.line((left, bottom), (right, bottom), AXIS);
        let across = |room: f64| ticks(range.x, ((right - left) / room) as usize);
        for (tick, written) in across((14.0 + longest(&across(40.0))).max(40.0)) {
            let (x, _) = frame.at(tick, range.y.0);
            self.line((x, bottom), (x, bottom + 4.0), AXIS);
            self.text((x, bottom + 15.0), "middle", &written);
        }
        self.text(((left + right) / 2.0, bottom + 30.0), "middle", &panel.x);
        if let Some((name, most)) = heat {
            self.text((right + BESIDE - 14.0, y0 + 13.0), "end", name);
            self.colours([right + 10.0, top, 10.0, bottom - top], most);
        }
    }

    /// A heat map's bar of colours, from `-most` at its bottom to `most`.
    fn colours(&mut self, [x, y, width, height]: [f64; 4], most: f64) {
        const STEPS: u8 = 40;
        let part = height / f64::from(STEPS);
        for step in (0..STEPS).map(f64::from) {
            let share = 1.0 - 2.0 * (step + 0.5) / f64::from(STEPS);
            self.bar([x, y + part * step, width, part + 0.5], &colour(share));
        }
        for (place, number) in [(0.0, most), (0.5, 0.0), (1.0, -most)] {
            let at = (x + width + 4.0, y + place * height + 4.0);
            self.text(at, "start", &written(number));
        }
    }

    fn series(&mut self, series: &Series, index: usize, frame: &PlotArea) {
        let points = series.finite().map(|(x, y, _)| frame.at(x, y));
        let (ink, stroke) = stroke(&series.mark, index);
        let Range { x, y, cell } = frame.range;
        // The width and the height of a bar or a cell.
        let corner = frame.at(x.0 + cell.0, y.0 + cell.1);
        let (wide, tall) = (corner.0 - frame.x.0, frame.y.0 - corner.1);
        match &series.mark {
            Mark::Line | Mark::Reference => {
                let path = path(points);
                self.add(&format!(
                    "<polyline fill=\"none\" stroke-linejoin=\"round\" {stroke} points=\"{path}\"/>"
                ));
            }
            Mark::Band(_) => {
                let back: Vec<PagePoint> =
                    series.finite().map(|(x, _, z)| frame.at(x, z)).collect();
                let path = path(points.chain(back.into_iter().rev()));
                self.add(&format!(
                    "<polygon fill=\"{ink}\" fill-opacity=\"0.16\" points=\"{path}\"/>"
                ));
            }
            Mark::Points => {
                // Dots in one square are one dot: a figure of a million points can still be opened.
                let mut dots: BTreeMap<(i64, i64), (PagePoint, i32)> = BTreeMap::new();
                for (x, y) in points {
                    let square = ((x / SQUARE) as i64, (y / SQUARE) as i64);
                    dots.entry(square).or_insert(((x, y), 0)).1 += 1;
                }
                for ((x, y), number) in dots.into_values() {
                    // As dark as that many on top of each other; ten are as dark as any more.
                    let opacity = written(1.0 - 0.5f64.powi(number.min(10)));
                    self.add(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\" fill=\"{ink}\" fill-opacity=\"{opacity}\"/>"));
                }
            }
            Mark::Bars => {
                let (_, floor) = frame.at(x.0, 0.0);
                for (middle, end) in points {
                    let (left, width) = (middle - 0.425 * wide, 0.85 * wide);
                    self.bar([left, end.min(floor), width, (end - floor).abs()], ink);
                }
            }
            Mark::Heat(_) => {
                let most = series.largest();
                for (x, y, z) in series.finite() {
                    let (x, y) = frame.at(x, y);
                    // A little larger, so that no seam shows.
                    let place = [x - wide / 2.0, y - tall / 2.0, wide + 0.3, tall + 0.3];
                    self.bar(place, &colour(z / most));
                }
            }
        }
    }
}

/// The width of the longest number of an axis.
fn longest(ticks: &[(f64, String)]) -> f64 {
    let letters = ticks.iter().map(|(_, text)| text.chars().count());
    LETTER * letters.max().unwrap_or(0) as f64
}

/// The ink of a mark, and the stroke of its lines.
fn stroke(mark: &Mark, index: usize) -> (&'static str, String) {
    let (ink, width, dash) = match mark {
        Mark::Reference => ("#666666", 1.0, DASHES[1 + index % 3]),
        _ => (INKS[index % INKS.len()], 1.8, DASHES[index % DASHES.len()]),
    };
    let dash = match dash {
        "" => String::new(),
        dash => format!(" stroke-dasharray=\"{dash}\""),
    };
    let stroke = format!("stroke=\"{ink}\" stroke-width=\"{width}\"{dash}");
    (ink, stroke)
}

fn path(points: impl Iterator<Item = PagePoint>) -> String {
    let mut path: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    path.dedup();
    path.join(" ")
}

/// The colour of a share from -1 to 1: white at 0.
fn colour(share: f64) -> String {
    let end = if share < 0.0 { COLD } else { WARM };
    // The square root makes small values visible.
    let share = share.abs().min(1.0).sqrt();
    let [red, green, blue] = end.map(|end| (255.0 + share * (end - 255.0)).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(points: Vec<(f64, f64)>) -> String {
        let series = Series::new("", Mark::Points, points);
        Figure::new("", 1, vec![Panel::new("x", "y", vec![series])]).svg()
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
