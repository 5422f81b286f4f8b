//! A figure in a terminal: Braille dots, two across and four down in a letter; a heat map in shades.

use std::collections::BTreeMap;

use super::scale::Range;
use super::{Figure, Mark, Panel, Series};
use advlab::figures::{along, value};
use advlab::paint::{self, Paint, cut, wrapped};

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
/// The distance between the dots of a line, in the same order: lines differ without colours too.
const STEPS: [usize; 4] = [1, 2, 4, 5];
const SAMPLES: [&str; 4] = ["⣀⣀", "⡀⡀", "⡀ ⡀", "⡀ ⢀ ⡀"];
/// The code of dimmed text.
const DIM: &str = "2";
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
        let mut told: Vec<&str> = Vec::new();
        for panel in &self.panels {
            // Each name stands at the first panel that has it.
            let entries: Vec<String> = inks
                .iter()
                .enumerate()
                .filter(|(_, one)| panel.series.iter().any(|own| own.name == one.name))
                .filter(|(_, one)| !told.contains(&one.name.as_str()))
                .map(|(index, one)| entry(paint, index, one))
                .collect();
            told.extend(panel.series.iter().map(|series| series.name.as_str()));
            lines.extend(panel.head(&entries, paint));
            lines.extend(panel.text(&inks, down, paint));
        }
        lines.join("\n")
    }
}

/// A name of the legend after a sample of its ink.
fn entry(paint: Paint, index: usize, series: &Series) -> String {
    let (code, sample) = match series.mark {
        Mark::Reference => (DIM, "⠂  ⠂"),
        Mark::Moments => (DIM, "⡇"),
        _ => (INKS[index % INKS.len()], SAMPLES[index % SAMPLES.len()]),
    };
    format!("   {} {}", paint.with(code, sample), series.name)
}

/// Braille letters, each with the colour of the series that drew it last.
struct Canvas {
    across: usize,
    down: usize,
    letters: Vec<(u8, &'static str)>,
    /// The largest number of points in one letter.
    most: usize,
}

impl Canvas {
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
            let (x, y) = (between(from.0, to.0, step), between(from.1, to.1, step));
            self.dot((x, y), code);
        }
    }
}

impl Panel {
    /// The name of the y axis and, beside or below it, the legend.
    fn head(&self, entries: &[String], paint: Paint) -> Vec<String> {
        let legend: usize = entries.iter().map(|entry| paint::width(entry)).sum();
        let y = match self.heat() {
            Some((name, _)) => format!("{}, and in shades {name}", self.y),
            None => self.y.clone(),
        };
        // `y` may be what somebody typed.
        let least = paint::width(&y).min(paint.width / 3);
        if 2 + least + legend <= paint.width {
            let y = cut(&y, paint.width.saturating_sub(2 + legend));
            return vec![format!("  {y}{}", entries.concat())];
        }
        let mut lines = vec![format!("  {}", cut(&y, paint.width - 2))];
        for entry in entries {
            match lines
                .last_mut()
                .filter(|line| paint::width(line) + paint::width(entry) <= paint.width)
            {
                Some(line) if !line.starts_with("  ") || line.starts_with("   ") => {
                    line.push_str(entry)
                }
                _ => lines.push(entry.clone()),
            }
        }
        lines
    }

    fn text(&self, inks: &[&Series], down: usize, paint: Paint) -> Vec<String> {
        let Some(range) = self.range() else {
            return vec!["  no finite value to draw".to_string()];
        };
        let across = paint.width.saturating_sub(BESIDE).max(16);
        let (rows, points) = match self.heat() {
            Some((_, most)) => (self.shades((across, down), range, most, paint), 1),
            None => self.drawn(inks, (across, down), range, paint),
        };
        let mut lines = Vec::new();
        for (index, row) in rows.into_iter().enumerate() {
            let here = range.ends().find(|&y| row_of(y, range, down) / 4 == index);
            let (label, axis) = match here {
                Some(label) => (value(label), '┤'),
                None => (String::new(), '│'),
            };
            let axis = paint.dim(&format!("{label:>MARGIN$} {axis}"));
            lines.push(format!("{axis}{row}").trim_end().to_string());
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
        if let Some((_, most)) = self.heat() {
            let scale: String = COLD.iter().rev().chain(&[' ']).chain(&WARM).collect();
            lines.push(format!("{margin} {} {scale} {}", value(-most), value(most)));
        }
        if points > 1 {
            let sample = |doubled: u32| {
                let bits = BITS.concat()[..=doubled as usize].iter().sum::<u8>();
                format!("{} {}", braille(bits), 1u32 << doubled)
            };
            let samples: Vec<String> = (0..=points.ilog2().min(7)).map(sample).collect();
            let legend = format!("{margin} points, at least: {}", samples.join("  "));
            lines.push(paint.dim(&legend));
        }
        lines
    }

    /// Rows of Braille letters, and the largest number of points in a letter.
    fn drawn(
        &self,
        inks: &[&Series],
        (across, down): (usize, usize),
        range: Range,
        paint: Paint,
    ) -> (Vec<String>, usize) {
        let mut canvas = Canvas {
            across,
            down,
            letters: vec![(0, ""); across * down],
            most: 0,
        };
        for series in &self.series {
            let index = inks.iter().position(|one| one.name == series.name);
            canvas.series(series, index.unwrap_or(0), range);
        }
        let letter = |&(bits, code): &(u8, &'static str)| match bits {
            0 => " ".to_string(),
            _ => paint.with(code, &braille(bits).to_string()),
        };
        let rows = canvas.letters.chunks(across);
        let rows = rows.map(|row| row.iter().map(letter).collect()).collect();
        (rows, canvas.most)
    }

    /// Rows of shades, each that of the nearest cell.
    fn shades(
        &self,
        (across, down): (usize, usize),
        range: Range,
        most: f64,
        paint: Paint,
    ) -> Vec<String> {
        let cells: Vec<(f64, f64, f64)> = self.series.iter().flat_map(Series::with_third).collect();
        let shade = |row: usize, column: usize| {
            let along = |share: f64, (a, b): (f64, f64)| a + share * (b - a);
            let x = along((column as f64 + 0.5) / across as f64, range.x);
            let y = along(1.0 - (row as f64 + 0.5) / down as f64, range.y);
            let far = |cell: &(f64, f64, f64)| {
                let (x, y) = ((cell.0 - x) / range.cell.0, (cell.1 - y) / range.cell.1);
                x * x + y * y
            };
            let nearest = cells.iter().min_by(|a, b| far(a).total_cmp(&far(b)));
            let share = nearest.map_or(0.0, |cell| cell.2 / most);
            if share.abs() < 1e-3 || !share.is_finite() {
                return " ".to_string();
            }
            let (shades, code) = match share < 0.0 {
                true => (COLD, "34"),
                false => (WARM, "33"),
            };
            let index = ((share.abs() * 4.0) as usize).min(3);
            paint.with(code, &shades[index].to_string())
        };
        let row = |row: usize| (0..across).map(|column| shade(row, column)).collect();
        (0..down).map(row).collect()
    }
}

impl Canvas {
    /// Sets a dot for each point; a letter with twice as many points has one more dot.
    fn points(&mut self, dots: &[(usize, usize)], code: &'static str) {
        let mut held = BTreeMap::new();
        for &(x, y) in dots {
            self.dot((x, y), code);
            *held.entry(y / 4 * self.across + x / 2).or_insert(0usize) += 1;
        }
        for (place, points) in held {
            let Some((bits, _)) = self.letters.get_mut(place) else {
                continue;
            };
            for bit in BITS.concat() {
                if bits.count_ones() <= points.ilog2() {
                    *bits |= bit;
                }
            }
            self.most = self.most.max(points);
        }
    }

    fn series(&mut self, series: &Series, index: usize, range: Range) {
        let width = 2 * self.across;
        let column = |x: f64| (along(x, range.x) * (width - 1) as f64).round() as usize;
        let down = self.down;
        let at = |(x, y): (f64, f64)| (column(x), row_of(y, range, down));
        let dots: Vec<(usize, usize)> = series.finite().map(at).collect();
        let code = INKS[index % INKS.len()];
        let (every, code) = match series.mark {
            Mark::Reference => (6, DIM),
            Mark::Moments => (2, DIM),
            _ => (STEPS[index % STEPS.len()], code),
        };
        match &series.mark {
            Mark::Line | Mark::Reference if dots.len() > 1 => {
                let pairs = dots.windows(2);
                pairs.for_each(|pair| self.line(pair[0], pair[1], every, code));
            }
            Mark::Line | Mark::Reference => dots.iter().for_each(|&dot| self.dot(dot, code)),
            Mark::Points => self.points(&dots, code),
            Mark::Bars => {
                let (_, floor) = at((range.x.0, 0.0));
                // A dot stays empty between two bars if there is room for it.
                let wide = (width / dots.len().max(1)).saturating_sub(1).max(1);
                for &(x, y) in &dots {
                    for across in 0..wide {
                        let x = (x + across).saturating_sub(wide / 2);
                        self.line((x, floor), (x, y), 1, code);
                    }
                }
            }
            Mark::Band(_) => {
                let ends = series
                    .with_third()
                    .map(|(x, y, z)| (at((x, y)), at((x, z))));
                for (from, to) in ends.step_by(3) {
                    self.line(from, to, 3, code);
                }
            }
            Mark::Moments => {
                let within = |x: &f64| (range.x.0..=range.x.1).contains(x);
                for x in series.points.iter().map(|point| point.0).filter(within) {
                    self.line((column(x), 0), (column(x), 4 * down - 1), every, code);
                }
            }
            Mark::Heat(_) => {}
        }
    }
}

/// The Braille letter of some dots.
fn braille(bits: u8) -> char {
    char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ')
}

/// The row of dots of a value, counted from the top, in so many rows of letters.
fn row_of(y: f64, range: Range, down: usize) -> usize {
    ((1.0 - along(y, range.y)) * (4 * down - 1) as f64).round() as usize
}
