//! Reports on designs, as text, figures and JSON: the same for commands, prompt, page and the Python package.

pub mod check;
pub mod compare;
pub mod draw;
pub mod profile;
pub mod show;
pub mod study;
pub mod view;

use std::path::Path;

use serde_json::{Value, json};

use self::draw::{Figure, quoted};
use crate::wrong;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;
use advlab::paint::Paint;

/// A report: a figure if it has one, the text below it, and its numbers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub figure: Option<Figure>,
    /// How many of the figure's panels are shown as text; all if it is `None`.
    pub panels: Option<usize>,
    /// Lines without a line break at the end, for the [`Paint`] with which the report was made.
    pub text: String,
    /// The numbers as rows of a table: JSON objects with the same keys.
    pub rows: Vec<Value>,
    /// All other numbers: a JSON object.
    pub about: Value,
    /// The files that its command writes in place of figure and table, by their names.
    pub files: Vec<(&'static str, String)>,
}

impl Report {
    /// A report that is a figure; its points are the rows.
    pub fn of_figure(figure: Figure) -> Report {
        let mut rows = Vec::new();
        for panel in &figure.panels {
            for series in &panel.series {
                let of = series.all().map(|(x, y, z)| json!({ "panel": panel.y, "series": series.name, "x": x, "y": y, "z": z }));
                rows.extend(of);
            }
        }
        let about = json!({ "title": figure.title });
        Report {
            figure: Some(figure),
            rows,
            about,
            ..Report::default()
        }
    }

    /// The figure in at most `most` lines, if its panels can be that low, and the text.
    pub fn whole(&self, paint: Paint, most: usize) -> String {
        let room = most.saturating_sub(self.text.lines().count());
        let mut figure = self.figure.clone();
        if let (Some(figure), Some(panels)) = (&mut figure, self.panels) {
            figure.panels.truncate(panels);
        }
        let figure = figure.map(|figure| figure.text(paint, room));
        let parts: Vec<&str> = figure
            .iter()
            .map(String::as_str)
            .chain([&*self.text])
            .collect();
        parts.join("\n").trim_end().to_string()
    }

    /// Writes what its command writes, as the name ends: the figure (.svg) or its points (.csv, .json), a table (.csv), a page
    /// (.html); or the text (.txt). A name without an ending is a folder for all the files that the command writes.
    pub fn write(&self, path: &Path, plain: &str) -> Result<(), Diagnostics> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let ending = ending.unwrap_or_default();
        let file = self
            .files
            .iter()
            .find(|(name, _)| name.ends_with(&format!(".{ending}")));
        match (file, &self.figure) {
            (Some((_, text)), _) => Replacement::write(path, text.as_bytes()),
            _ if ending == "txt" => Replacement::write(path, format!("{plain}\n").as_bytes()),
            (_, Some(figure)) if ["svg", "csv", "json"].contains(&ending) => figure.write(path),
            (_, None) if ending == "csv" => Replacement::write(path, csv(&self.rows).as_bytes()),
            _ if ending.is_empty() && !self.files.is_empty() => self.write_folder(path),
            (_, figure) => {
                let message = format!(
                    "{}: this report is not written as such a file",
                    path.display()
                );
                let kinds = match figure {
                    Some(_) if self.files.is_empty() => ".svg, .csv, .json or .txt",
                    Some(_) => ".html, .svg, .csv or .txt, or a folder for all of them",
                    None => ".csv or .txt: it has no figure",
                };
                Err(wrong(message, format!("its file ends in {kinds}")))
            }
        }
    }

    pub fn write_folder(&self, folder: &Path) -> Result<(), Diagnostics> {
        std::fs::create_dir_all(folder).map_err(|error| {
            let message = format!("cannot make the folder {}: {error}", folder.display());
            Diagnostic::error(message)
        })?;
        let mut files = self.files.iter();
        files.try_for_each(|(name, text)| Replacement::write(&folder.join(name), text.as_bytes()))
    }
}

/// Rows as CSV, with the names of the columns first.
fn csv(rows: &[Value]) -> String {
    let cell = |value: &Value| match value {
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN).to_string(),
        Value::String(text) => quoted(text),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let objects = || rows.iter().flat_map(Value::as_object);
    let heads = objects()
        .take(1)
        .map(|row| line(row.keys().map(|key| quoted(key)).collect()));
    let rows = objects().map(|row| line(row.values().map(cell).collect()));
    heads.chain(rows).collect()
}
