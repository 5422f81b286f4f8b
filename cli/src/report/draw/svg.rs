//! A figure as SVG.

use super::Figure;
use super::layout::{BLACK, PagePoint, Shape};

impl Figure {
    pub fn svg(&self) -> String {
        let drawing = self.drawing();
        let (width, height) = (drawing.width, drawing.height);
        let shapes: String = drawing.shapes.iter().map(element).collect();
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="11">
<title>{}</title>
<rect width="{width}" height="{height}" fill="white"/>
{shapes}</svg>
"#,
            escaped(&self.title)
        )
    }
}

fn element(shape: &Shape) -> String {
    let element = match shape {
        Shape::Line(points, (ink, width, dashes)) => format!(
            r##"<polyline fill="none" stroke-linejoin="round" stroke="#{ink:06x}" stroke-width="{width}" stroke-dasharray="{dashes}" points="{}"/>"##,
            path(points)
        ),
        Shape::Area(points, ink, opacity) => format!(
            r##"<polygon fill="#{ink:06x}" fill-opacity="{opacity}" points="{}"/>"##,
            path(points)
        ),
        Shape::Dot((x, y), ink, opacity) => format!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="2.4" fill="#{ink:06x}" fill-opacity="{opacity}"/>"##
        ),
        Shape::Text((x, y), share, parts) => {
            let anchor = ["start", "middle", "end"][(2.0 * share) as usize];
            let part = |(is_italic, text): &(bool, String)| match is_italic {
                true => format!(r#"<tspan font-style="italic">{}</tspan>"#, escaped(text)),
                false => escaped(text),
            };
            let content: String = parts.iter().map(part).collect();
            format!(
                r##"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="#{BLACK:06x}">{content}</text>"##
            )
        }
    };
    element + "\n"
}

fn path(points: &[PagePoint]) -> String {
    let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    let mut path: Vec<String> = points.collect();
    path.dedup();
    path.join(" ")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::draw::{Mark, Panel, Series};

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
