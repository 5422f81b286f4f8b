//! Figures: lines, bands, points, bars and heat maps in panels, described once, and shown in a terminal, as SVG or as
//! data.

mod scale;
mod svg;
mod text;

use std::path::Path;

use serde::Serialize;

use crate::wrong;
use advlab::diagnostic::Diagnostics;
use advlab::files::Replacement;

/// How points are drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// A line through the points.
    Line,
    /// A line to compare others with: thin, dashed and grey.
    Reference,
    /// A dot for each point.
    Points,
    /// Bars that stand on 0, one per point, as wide as the distance of the points.
    Bars,
    /// The area between each point and the y given here, in the ink of the line with that name.
    Band(Vec<f64>),
    /// Cells of a grid, coloured by the values given here; the points are their centres.
    Heat(Vec<f64>),
}

/// Points that belong together.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name in the legend; empty if it is the only one. Series with one name have one ink in all panels.
    pub name: String,
    /// How the points are drawn.
    pub mark: Mark,
    /// x and y; what is not finite is left out.
    pub points: Vec<(f64, f64)>,
}

/// Axes with series.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// The label of the x axis.
    pub x: String,
    /// The label of the y axis.
    pub y: String,
    /// What is drawn, the first at the bottom.
    pub series: Vec<Series>,
}

/// Panels, one below the other in a terminal, side by side in SVG.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// One line above the panels.
    pub title: String,
    /// The number of panels in a row of the SVG.
    pub columns: usize,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
}

impl Series {
    /// A series of a name.
    pub fn new(
        name: impl Into<String>,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Series {
        let (name, points) = (name.into(), points.into_iter().collect());
        Series { name, mark, points }
    }

    /// The third number of a point: the other end of a band, or the value of a cell.
    fn third(&self, index: usize) -> Option<f64> {
        match &self.mark {
            Mark::Band(third) | Mark::Heat(third) => third.get(index).copied(),
            _ => None,
        }
    }

    /// The points that can be drawn, with their third numbers, or y if there are none.
    fn finite(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let points = self.points.iter().enumerate();
        let points = points.map(|(index, &(x, y))| (x, y, self.third(index).unwrap_or(y)));
        points.filter(|(x, y, z)| x.is_finite() && y.is_finite() && z.is_finite())
    }
}

impl Panel {
    /// Axes with these labels and some series.
    pub fn new(x: impl Into<String>, y: impl Into<String>, series: Vec<Series>) -> Panel {
        let (x, y) = (x.into(), y.into());
        Panel { x, y, series }
    }

    /// The name of its heat map, and the largest |value| in it.
    fn heat(&self) -> Option<(&str, f64)> {
        let is_heat = |series: &&Series| matches!(series.mark, Mark::Heat(_));
        let heat = self.series.iter().find(is_heat)?;
        let sizes = heat.finite().map(|(_, _, z)| z.abs());
        Some((&heat.name, sizes.fold(f64::MIN_POSITIVE, f64::max)))
    }
}

impl Figure {
    /// A figure of one panel.
    pub fn one(title: impl Into<String>, panel: Panel) -> Figure {
        Figure {
            title: title.into(),
            columns: 1,
            panels: vec![panel],
        }
    }

    /// The entries of the legend, one per name; their indices are their inks. Grey ones come last, and lines stand for the bands
    /// around them.
    fn legend(&self) -> Vec<&Series> {
        let all = self.panels.iter().flat_map(|panel| &panel.series);
        let all = all.filter(|one| !one.name.is_empty() && !matches!(one.mark, Mark::Heat(_)));
        let mut legend: Vec<&Series> = Vec::new();
        for series in all {
            match legend.iter_mut().find(|one| one.name == series.name) {
                Some(one) if matches!(one.mark, Mark::Band(_)) => *one = series,
                Some(_) => {}
                None => legend.push(series),
            }
        }
        legend.sort_by_key(|one| one.mark == Mark::Reference);
        legend
    }

    /// Writes the figure: as SVG, or its numbers as CSV or JSON, as the name ends.
    pub fn write(&self, path: &Path) -> Result<(), Diagnostics> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let text = match ending {
            Some("svg") => self.svg(),
            Some("csv") => self.csv(),
            Some("json") => format!("{}\n", serde_json::json!(self)),
            _ => {
                let message = format!("{}: this is no kind of figure", path.display());
                let help = "figures are written as .svg, their numbers as .csv or .json";
                return Err(wrong(message, help));
            }
        };
        Replacement::write(path, text.as_bytes())
    }

    /// A line per point: the panel by its y axis, the series, x, y, and the third number of bands and heat maps.
    fn csv(&self) -> String {
        let number = |x: f64| match x.is_finite() {
            true => x.to_string(),
            false => String::new(),
        };
        let mut lines = vec!["panel,series,x,y,z".to_string()];
        for panel in &self.panels {
            for series in &panel.series {
                let names = format!("{},{}", quoted(&panel.y), quoted(&series.name));
                for (index, &(x, y)) in series.points.iter().enumerate() {
                    let z = series.third(index).map_or(String::new(), number);
                    lines.push(format!("{names},{},{},{z}", number(x), number(y)));
                }
            }
        }
        lines.join("\n") + "\n"
    }
}

/// A cell of a CSV file.
pub(super) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}
