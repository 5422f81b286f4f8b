//! A figure in a terminal: Braille dots, two across and four down in a letter; a heat map in shades.

use super::scale::Range;
use super::{Figure, Mark, Panel, Series};
use advlab::figures::{along, value};
use advlab::paint::{self, Paint, cut, width, wrapped};

/// The most rows of a drawing, and the fewest.
const DOWN: usize = 10;
const LEAST_DOWN: usize = 3;
/// Columns beside the drawing: the numbers at its axis, the axis, and a margin on the right.
const BESIDE: usize = 16;
/// Letters of the numbers at the y axis.
const MARGIN: usize = 9;
/// The bit of each dot in a Braille letter, by row and column.
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
/// The colours of series, in the order of the legend.
const INKS: [&str; 6] = ["34", "33", "32", "35", "36", "31"];
/// The distance between the dots of a line, in the same order, with a sample: lines differ without colours too.
const STEPS: [(usize, &str); 4] = [(1, "⣀⣀"), (2, "⡀⡀"), (4, "⡀ ⡀"), (5, "⡀ ⢀ ⡀")];
/// The shades of a heat map, for numbers above 0 and below.
const WARM: [char; 4] = ['░', '▒', '▓', '█'];
const COLD: [char; 4] = ['⠄', '⠆', '⠶', '⣿'];

impl Figure {
    /// The figure in lines of the terminal's width, without a line break at the end.
    pub fn text(&self, paint: Paint) -> String {
        self.text_within(usize::MAX, paint)
    }

    /// The figure in at most so many lines, if its panels can be that low.
    pub(crate) fn text_within(&self, most: usize, paint: Paint) -> String {
        let fits = |down: &usize| self.lines(*down, paint).lines().count() <= most;
        let down = (LEAST_DOWN..=DOWN).rev().find(fits);
        self.lines(down.unwrap_or(LEAST_DOWN), paint)
    }

    /// The figure with panels of so many rows.
    fn lines(&self, down: usize, paint: Paint) -> String {
        let mut lines = vec![paint.bold(&wrapped("", &self.title, paint.width))];
        let inks = self.legend();
        let mut shown: Vec<&str> = Vec::new();
        for panel in &self.panels {
            // Each name stands at the first panel that has it.
            let names: Vec<&str> = panel.series.iter().map(|one| &*one.name).collect();
            let entries = inks
                .iter()
                .enumerate()
                .filter(|(_, one)| names.contains(&&*one.name) && !shown.contains(&&*one.name));
            let entries = entries.map(|(index, one)| {
                let (code, _, sample) = stroke(&one.mark, index);
                format!("   {} {}", paint.with(code, sample), one.name)
            });
            lines.push(panel.head(&entries.collect::<Vec<String>>(), paint));
            lines.extend(panel.drawn(&inks, down, paint));
            shown.extend(names);
        }
        lines.join("\n")
    }
}

/// The colour of a mark, the distance between the dots of its lines, and a sample of it.
fn stroke(mark: &Mark, index: usize) -> (&'static str, usize, &'static str) {
    let (every, sample) = STEPS[index % STEPS.len()];
    match mark {
        Mark::Reference => ("2", 6, "⠂  ⠂"),
        _ => (INKS[index % INKS.len()], every, sample),
    }
}

impl Panel {
    /// The name of the y axis and the entries of the legend, as many in a line as have room.
    fn head(&self, entries: &[String], paint: Paint) -> String {
        let y = match self.heat() {
            Some((name, _)) => format!("{}, and in shades {name}", self.y),
            None => self.y.clone(),
        };
        // `y` may be what somebody typed.
        let legend: usize = entries.iter().map(|entry| width(entry)).sum();
        let room = (paint.width - 2).saturating_sub(legend);
        let y = cut(&y, room.max(paint.width / 3));
        let mut lines = vec![format!("  {y}")];
        for entry in entries {
            match lines.last_mut() {
                Some(line) if width(line) + width(entry) <= paint.width => line.push_str(entry),
                _ => lines.push(entry.clone()),
            }
        }
        lines.join("\n")
    }

    /// The drawing with its axes.
    fn drawn(&self, inks: &[&Series], down: usize, paint: Paint) -> Vec<String> {
        let Some(range) = Range::of(self) else {
            return vec!["  no finite value to draw".to_string()];
        };
        let across = paint.width.saturating_sub(BESIDE).max(16);
        let mut canvas = Canvas {
            range,
            across,
            down,
            letters: vec![(0, ""); across * down],
        };
        let heat = self.heat().map(|(_, most)| most);
        let rows = match heat {
            Some(most) => canvas.shades(&self.series, most, paint),
            None => {
                for series in &self.series {
                    let index = inks.iter().position(|one| one.name == series.name);
                    canvas.draw(series, index.unwrap_or(0));
                }
                canvas.rows(paint)
            }
        };
        let mut lines = Vec::new();
        for (index, row) in rows.into_iter().enumerate() {
            let here = range.ends().find(|&y| canvas.row(y) / 4 == index);
            let (label, axis) = here.map_or((String::new(), '│'), |y| (value(y), '┤'));
            let axis = paint.dim(&format!("{label:>MARGIN$} {axis}"));
            lines.push(format!("{axis}{row}").trim_end().to_string());
        }
        let margin = " ".repeat(MARGIN + 1);
        let floor = paint.dim(&format!("└{}", "─".repeat(across)));
        lines.push(format!("{margin}{floor}"));
        let (least, most) = (value(range.x.0), value(range.x.1));
        let room = across.saturating_sub(least.len() + most.len());
        let x = cut(&self.x, room.saturating_sub(2));
        let before = " ".repeat(room.saturating_sub(width(&x)) / 2);
        let x = paint::filled(&format!("{before}{x}"), room);
        lines.push(format!(
            "{margin} {}",
            paint.dim(&format!("{least}{x}{most}"))
        ));
        if let Some(most) = heat {
            let scale: String = COLD.iter().rev().chain(&[' ']).chain(&WARM).collect();
            lines.push(format!("{margin} {} {scale} {}", value(-most), value(most)));
        }
        lines
    }
}

/// Braille letters, each with the colour of the series that drew it last.
struct Canvas {
    range: Range,
    across: usize,
    down: usize,
    letters: Vec<(u8, &'static str)>,
}

impl Canvas {
    /// The column of dots of an x.
    fn column(&self, x: f64) -> usize {
        (along(x, self.range.x) * (2 * self.across - 1) as f64).round() as usize
    }

    /// The row of dots of a y, counted from the top.
    fn row(&self, y: f64) -> usize {
        ((1.0 - along(y, self.range.y)) * (4 * self.down - 1) as f64).round() as usize
    }

    /// Sets a dot, (0, 0) at the top left.
    fn dot(&mut self, (x, y): (usize, usize), code: &'static str) {
        if x < 2 * self.across && y < 4 * self.down {
            let (bits, ink) = &mut self.letters[y / 4 * self.across + x / 2];
            *bits |= BITS[y % 4][x % 2];
            *ink = code;
        }
    }

    /// Sets every n-th dot of a line from one dot to another.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), every: usize, code: &'static str) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, step: usize| {
            let share = step as f64 / steps as f64;
            (a as f64 + share * (b as f64 - a as f64)).round() as usize
        };
        for step in (0..=steps).step_by(every) {
            let dot = (between(from.0, to.0, step), between(from.1, to.1, step));
            self.dot(dot, code);
        }
    }

    fn draw(&mut self, series: &Series, index: usize) {
        let (code, every, _) = stroke(&series.mark, index);
        let dots = series
            .finite()
            .map(|(x, y, _)| (self.column(x), self.row(y)));
        let dots: Vec<(usize, usize)> = dots.collect();
        match &series.mark {
            Mark::Line | Mark::Reference => {
                // A single point is a line to itself.
                let ends = dots.iter().zip(dots.iter().skip(1).chain(dots.last()));
                let pairs = ends.take(dots.len().max(2) - 1);
                pairs.for_each(|(from, to)| self.line(*from, *to, every, code));
            }
            Mark::Points => dots.into_iter().for_each(|dot| self.dot(dot, code)),
            Mark::Bars => {
                let floor = self.row(0.0);
                // A dot stays empty between two bars if there is room for it.
                let wide = (2 * self.across / dots.len().max(1))
                    .saturating_sub(1)
                    .max(1);
                for (x, y) in dots {
                    for across in 0..wide {
                        let x = (x + across).saturating_sub(wide / 2);
                        self.line((x, floor), (x, y), 1, code);
                    }
                }
            }
            Mark::Band(_) => {
                for ((_, _, z), (x, y)) in series.finite().zip(dots).step_by(3) {
                    self.line((x, y), (x, self.row(z)), 3, code);
                }
            }
            Mark::Heat(_) => {}
        }
    }

    /// The rows of letters.
    fn rows(&self, paint: Paint) -> Vec<String> {
        let letter = |&(bits, code): &(u8, &'static str)| match bits {
            0 => " ".to_string(),
            _ => paint.with(code, &braille(bits).to_string()),
        };
        let rows = self.letters.chunks(self.across);
        rows.map(|row| row.iter().map(letter).collect()).collect()
    }

    /// Rows of shades, each that of the nearest cell.
    fn shades(&self, series: &[Series], most: f64, paint: Paint) -> Vec<String> {
        let cells: Vec<(f64, f64, f64)> = series.iter().flat_map(Series::finite).collect();
        let between = |share: f64, (a, b): (f64, f64)| a + share * (b - a);
        let shade = |row: usize, column: usize| {
            let x = between((column as f64 + 0.5) / self.across as f64, self.range.x);
            let y = between(1.0 - (row as f64 + 0.5) / self.down as f64, self.range.y);
            let far = |cell: &(f64, f64, f64)| {
                let (wide, tall) = self.range.cell;
                ((cell.0 - x) / wide).powi(2) + ((cell.1 - y) / tall).powi(2)
            };
            let nearest = cells.iter().min_by(|a, b| far(a).total_cmp(&far(b)));
            let share = nearest.map_or(0.0, |cell| cell.2 / most);
            let (shades, code) = if share < 0.0 {
                (COLD, "34")
            } else {
                (WARM, "33")
            };
            match share.abs() {
                none if none < 1e-3 => " ".to_string(),
                size => paint.with(code, &shades[((size * 4.0) as usize).min(3)].to_string()),
            }
        };
        let row = |row: usize| (0..self.across).map(|column| shade(row, column)).collect();
        (0..self.down).map(row).collect()
    }
}

/// The Braille letter of some dots.
fn braille(bits: u8) -> char {
    char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ')
}
