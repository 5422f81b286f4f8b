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

use self::draw::{Figure, FigureWidth, quoted};
use crate::wrong;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;
use advlab::paint::Paint;

/// A report: a figure if it has one, the text below it, and its numbers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub figure: Option<Figure>,
    /// Lines without a line break at the end, for the [`Paint`] with which the report was made.
    pub text: String,
    /// The numbers as rows of a table: JSON objects with the same keys. A figure's points are made when they are asked for.
    pub rows: Vec<Value>,
    /// All other numbers: a JSON object.
    pub about: Value,
    /// The files that its command writes in place of figure and table, by their names.
    pub files: Vec<(&'static str, String)>,
}

impl Report {
    /// A report that is a figure; its points are the rows.
    pub fn of_figure(figure: Figure) -> Report {
        Report {
            about: json!({ "title": figure.title }),
            figure: Some(figure),
            ..Report::default()
        }
    }

    /// Sets the width of its drawing.
    pub fn set_width(&mut self, width: FigureWidth) {
        if let Some(figure) = &mut self.figure {
            figure.width = width;
        }
    }

    /// The rows of the table, or of the figure's points.
    pub fn rows(&self) -> Vec<Value> {
        match &self.figure {
            Some(figure) if self.rows.is_empty() => figure.rows(),
            _ => self.rows.clone(),
        }
    }

    /// The figure in at most `most` lines, if its panels can be that low, and the text. Of a comparison's figure, the first panel.
    pub fn whole(&self, paint: Paint, most: usize) -> String {
        let Some(mut figure) = self.figure.clone() else {
            return self.text.clone();
        };
        if !self.files.is_empty() {
            figure.panels.truncate(1);
        }
        let room = most.saturating_sub(self.text.lines().count());
        let text = format!("{}\n{}", figure.text(paint, room), self.text);
        text.trim_end().to_string()
    }

    /// Writes what its command writes, as the name ends: the figure (.svg, .pdf) or its points (.csv, .json), a table (.csv), a page
    /// (.html); or `plain`, the whole text (.txt). A name without an ending is a folder for all files that the command writes.
    pub fn write(&self, path: &Path, plain: &str) -> Result<(), Diagnostics> {
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let mut files = self.files.iter();
        let file = files.find(|(name, _)| name.ends_with(&format!(".{ending}")));
        let file = file.map(|(_, text)| text.clone());
        let drawn = || self.figure.as_ref()?.file(&ending);
        let text = match (file.or_else(drawn), &self.figure, &*ending) {
            (Some(text), ..) => text,
            (_, _, "txt") => format!("{plain}\n"),
            (_, None, "csv") => csv(&self.rows),
            (_, _, "") if !self.files.is_empty() => return self.write_folder(path),
            (_, figure, _) => {
                let path = path.display();
                let message = format!("{path}: this report is not written as such a file");
                let names = self.files.iter();
                let kinds =
                    names.filter_map(|(name, _)| Some(format!(".{}, ", name.rsplit_once('.')?.1)));
                let kinds = match figure {
                    _ if !self.files.is_empty() => format!(
                        "{}or .txt, or a folder for all of them",
                        kinds.collect::<String>()
                    ),
                    Some(_) => ".svg, .pdf, .csv, .json or .txt".to_string(),
                    None => ".csv or .txt: it has no figure".to_string(),
                };
                return Err(wrong(message, format!("its file ends in {kinds}")));
            }
        };
        Replacement::write(path, text.as_bytes())
    }

    /// Writes all files of its command.
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
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => number.to_string(),
            None => number.to_string(),
        },
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
