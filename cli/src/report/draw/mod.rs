//! Draws figures in a terminal or as SVG, and writes their data. A figure is described once, as lines, bands, points, bars and
//! heat maps in panels; the content of most figures is made in `report/study/`.

mod inks;
mod layout;
mod scale;
mod svg;
mod text;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::csv::csv;
pub(super) use scale::along;
pub(super) use svg::escaped;

/// The way in which points are drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    Line,
    /// A line to compare other lines with: thin, dashed and grey.
    Reference,
    Points,
    /// Bars from 0, one per point, which are a little narrower than the distance between the points.
    Bars,
    /// The area between each point and the y value given here, in the ink of the line with the same name.
    Band(Vec<f64>),
    /// Cells of a grid, coloured by the values given here; the points are their centres.
    Heat(Vec<f64>),
}

#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The series' name in the legend; empty for a series that has no entry there. Lines with the same name have the same ink in
    /// all panels.
    pub name: String,
    pub mark: Mark,
    /// The coordinates x and y of each point; points that are not finite are not drawn.
    pub points: Vec<(f64, f64)>,
}

/// The labels of the axes, and the series, which are drawn in order, so that later series cover earlier ones.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    pub x: String,
    pub y: String,
    pub series: Vec<Series>,
}

/// The width of a drawn figure: a paper's column, or the whole page.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub enum FigureWidth {
    Single,
    #[default]
    Double,
}

/// Panels, which are shown below each other in a terminal, and in rows in a drawing.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The caption, which is shown only in a terminal, above the figure.
    pub title: String,
    /// The number of panels in a row of a drawing that is as wide as a page.
    pub columns: usize,
    #[serde(skip)]
    pub width: FigureWidth,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
}

impl Series {
    pub fn new(
        name: impl Into<String>,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Series {
        let (name, points) = (name.into(), points.into_iter().collect());
        Series { name, mark, points }
    }

    /// Returns x, y and the third number of each point: the other end of a band, or the value of a cell.
    fn all(&self) -> impl Iterator<Item = (f64, f64, Option<f64>)> + '_ {
        let third = match &self.mark {
            Mark::Band(third) | Mark::Heat(third) => &third[..],
            _ => &[],
        };
        let points = self.points.iter().enumerate();
        points.map(|(index, &(x, y))| (x, y, third.get(index).copied()))
    }

    /// Returns x, y and the third number of the points that can be drawn; y replaces a missing third number.
    fn finite(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let points = self.all().map(|(x, y, z)| (x, y, z.unwrap_or(y)));
        points.filter(|(x, y, z)| x.is_finite() && y.is_finite() && z.is_finite())
    }

    /// Returns the largest |value| of a heat map.
    fn largest(&self) -> f64 {
        let sizes = self.finite().map(|(_, _, z)| z.abs());
        sizes.fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Returns the series' index in a legend, or 0 if it has no entry; the index determines the series' ink.
    fn ink(&self, legend: &[&Series]) -> usize {
        let own = legend.iter().position(|one| one.name == self.name);
        own.unwrap_or(0)
    }
}

impl Panel {
    pub fn new(x: impl Into<String>, y: impl Into<String>, series: Vec<Series>) -> Panel {
        let (x, y) = (x.into(), y.into());
        Panel { x, y, series }
    }

    /// Returns the name of the panel's heat map, and the largest |value| in the map.
    fn heat(&self) -> Option<(&str, f64)> {
        let is_heat = |series: &&Series| matches!(series.mark, Mark::Heat(_));
        let heat = self.series.iter().find(is_heat)?;
        Some((&heat.name, heat.largest()))
    }
}

impl Figure {
    pub fn new(title: impl Into<String>, columns: usize, panels: Vec<Panel>) -> Figure {
        Figure {
            title: title.into(),
            columns,
            width: FigureWidth::default(),
            panels,
        }
    }

    /// Returns the entries of the legend, one per name, with grey entries last; an entry's index determines its ink. A band uses
    /// the entry of the line inside the band.
    fn legend(&self) -> Vec<&Series> {
        let all = self.panels.iter().flat_map(|panel| &panel.series);
        let mut legend: Vec<&Series> = Vec::new();
        for series in all {
            let is_entry = !matches!(series.mark, Mark::Band(_) | Mark::Heat(_));
            let is_new = legend.iter().all(|one| one.name != series.name);
            if is_entry && is_new && !series.name.is_empty() {
                legend.push(series);
            }
        }
        legend.sort_by_key(|one| one.mark == Mark::Reference);
        legend
    }

    /// Returns the content of a file with this ending: the figure as SVG, or its numbers as CSV or JSON; `None` for other
    /// endings.
    pub fn file(&self, ending: &str) -> Option<String> {
        match ending {
            "svg" => Some(self.svg()),
            "csv" => Some(csv(&self.rows())),
            "json" => Some(format!("{}\n", json!(self))),
            _ => None,
        }
    }

    /// Returns a row per point: the label of the panel's y axis, the series, x, y, and the third number of bands and heat maps.
    pub fn rows(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for panel in &self.panels {
            for series in &panel.series {
                let row = |(x, y, z)| json!({ "panel": panel.y, "series": series.name, "x": x, "y": y, "z": z });
                rows.extend(series.all().map(row));
            }
        }
        rows
    }
}
