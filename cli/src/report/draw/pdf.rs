//! A figure as PDF, for a paper: one page of its size. The text is in Helvetica, which every reader of PDF has.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::Figure;
use super::layout::{BLACK, Ink, PagePoint, Shape, TEXT};

/// Points per CSS pixel.
const POINTS: f64 = 0.75;

impl Figure {
    pub fn pdf(&self) -> String {
        let drawing = self.drawing();
        let (width, height) = (POINTS * drawing.width, POINTS * drawing.height);
        // In pixels from the top, as the shapes are, with round joins.
        let mut content = format!("{POINTS} 0 0 -{POINTS} 0 {height} cm 1 j\n");
        let mut states = BTreeSet::new();
        for shape in &drawing.shapes {
            if let Shape::Area(.., opacity) | Shape::Dot(.., opacity) = shape {
                let name = opacity.to_bits();
                states.insert(format!("/o{name} << /ca {opacity} /CA {opacity} >> "));
            }
            content += &operators(shape);
        }
        let states: String = states.into_iter().collect();
        let length = content.len();
        // The minus sign is in the font, and not in its usual encoding.
        let font = |name: &str| {
            format!(
                "<< /Type /Font /Subtype /Type1 /BaseFont /{name} /Encoding << /BaseEncoding /WinAnsiEncoding /Differences [128 /minus] >> >>"
            )
        };
        let objects = [
            "<< /Type /Catalog /Pages 2 0 R >>".to_string(),
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_string(),
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents 4 0 R /Resources << /Font << /f0 5 0 R /f1 6 0 R >> /ExtGState << {states}>> >> >>"
            ),
            format!("<< /Length {length} >>\nstream\n{content}\nendstream"),
            font("Helvetica"),
            font("Helvetica-Oblique"),
        ];
        let (mut file, mut places) = ("%PDF-1.7\n".to_string(), String::new());
        for (object, index) in objects.iter().zip(1..) {
            places += &format!("{:010} 00000 n \n", file.len());
            file += &format!("{index} 0 obj\n{object}\nendobj\n");
        }
        let (start, size) = (file.len(), objects.len() + 1);
        file += &format!(
            "xref\n0 {size}\n0000000000 65535 f \n{places}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
        );
        file
    }
}

fn operators(shape: &Shape) -> String {
    match shape {
        Shape::Line(points, (ink, width, dashes)) => {
            let (ink, path, dashes) = (rgb(*ink), path(points), dashes.replace("none", ""));
            format!("{ink} RG {width} w [{dashes}] 0 d {path}S\n")
        }
        Shape::Area(points, ink, opacity) => {
            let name = opacity.to_bits();
            format!("q /o{name} gs {} rg {}f Q\n", rgb(*ink), path(points))
        }
        Shape::Dot(at, ink, opacity) => {
            // A line without a length, with round ends.
            let (name, ink, path) = (opacity.to_bits(), rgb(*ink), path(&[*at, *at]));
            format!("q /o{name} gs {ink} RG 4.8 w 1 J [] 0 d {path}S Q\n")
        }
        Shape::Text((x, y), share, parts) => {
            let letters = parts.iter().flat_map(|(_, text)| text.chars());
            let x = x - share * letters.map(width).sum::<f64>();
            let mut text = format!("BT {} rg 1 0 0 -1 {x:.2} {y:.2} Tm", rgb(BLACK));
            for (is_italic, part) in parts {
                let font = u8::from(*is_italic);
                let coded: String = part.chars().map(code).collect();
                let _ = write!(text, " /f{font} {TEXT} Tf ({coded}) Tj");
            }
            text + " ET\n"
        }
    }
}

fn path(points: &[PagePoint]) -> String {
    let points = points.iter().zip("m".chars().chain(std::iter::repeat('l')));
    points
        .map(|((x, y), operator)| format!("{x:.2} {y:.2} {operator} "))
        .collect()
}

fn rgb(ink: Ink) -> String {
    let [_, red, green, blue] = ink.to_be_bytes().map(|part| f64::from(part) / 255.0);
    format!("{red:.3} {green:.3} {blue:.3}")
}

/// A letter in a string of PDF. Helvetica has no prime, but a mark that looks like one, and Latin letters only.
fn code(letter: char) -> String {
    match letter {
        '(' | ')' | '\\' => format!("\\{letter}"),
        ' '..='~' => letter.to_string(),
        '\u{2032}' => "'".to_string(),
        '\u{2212}' => "\\200".to_string(),
        '…' => "\\205".to_string(),
        '\u{a0}'..='\u{ff}' => format!("\\{:o}", u32::from(letter)),
        _ => "?".to_string(),
    }
}

/// About the width of a letter of Helvetica, in pixels; exact for those of most numbers.
fn width(letter: char) -> f64 {
    let width = match letter {
        ' ' | '.' | ',' | '/' | '-' | 'f' | 'i' | 'j' | 'l' | 'r' | 't' | '(' | ')' => 0.278,
        'm' | 'A'..='Z' => 0.7,
        _ => 0.556,
    };
    TEXT * width
}

#[cfg(test)]
mod tests {
    use crate::report::draw::{Figure, FigureWidth, Mark, Panel, Series};

    #[test]
    fn a_reader_finds_all_objects_and_the_text() {
        let points = [(0.0, -1.0), (1.0, 2.0)];
        let marks = [Mark::Line, Mark::Points, Mark::Band(vec![1.0, 2.0])];
        let series = marks.map(|mark| Series::new("é (a)", mark, points));
        let panel = Panel::new("p, 世", "weight F'(p)", series.into());
        let mut figure = Figure::new("title", 1, vec![panel]);
        figure.width = FigureWidth::Single;
        let pdf = figure.pdf();
        let (_, table) = pdf.rsplit_once("xref\n0 7\n").unwrap();
        for (index, line) in (1..7).zip(table.lines().skip(1)) {
            let place: usize = line[..10].parse().unwrap();
            assert!(
                pdf[place..].starts_with(&format!("{index} 0 obj\n")),
                "{line}"
            );
        }
        let start = pdf.lines().nth_back(1).unwrap().parse::<usize>().unwrap();
        assert!(pdf[start..].starts_with("xref\n"));
        let (head, stream) = pdf.split_once("\nstream\n").unwrap();
        let (_, length) = head.rsplit_once("/Length ").unwrap();
        let (stream, _) = stream.split_once("\nendstream").unwrap();
        assert_eq!(length, format!("{} >>", stream.len()));
        // 3.25 inches.
        assert!(pdf.contains("/MediaBox [0 0 234 ") && pdf.is_ascii());
        for text in [
            "/f0 11 Tf (\\351 \\(a\\)) Tj",
            "(weight ) Tj /f1 11 Tf (F') Tj /f0 11 Tf (\\() Tj /f1 11 Tf (p) Tj",
            "/f1 11 Tf (p) Tj /f0 11 Tf (, ?) Tj",
            "(\\2001) Tj",
        ] {
            assert!(pdf.contains(text), "{text} in {pdf}");
        }
        assert!(!pdf.contains("title"));
    }
}
