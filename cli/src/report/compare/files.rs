//! The files of a report: HTML, Markdown with its figure, and the numbers.

use std::path::Path;

use super::Comparison;
use crate::report::figure::quoted;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::Replacement;

impl Comparison {
    /// Writes `report.html`, a single file, `report.md` with `curves.svg`, `runs.csv` and `curves.csv`. The HTML also has what
    /// reproduces it: the command, this machine, and each design's configuration and scripts.
    pub fn write(&self, folder: &Path, command: &str) -> Result<(), Diagnostics> {
        std::fs::create_dir_all(folder).map_err(|error| {
            let message = format!("cannot make the folder {}: {error}", folder.display());
            Diagnostic::error(message)
        })?;
        let figure = self.figure();
        let (svg, curves) = (figure.svg(), figure.csv());
        for (name, text) in [
            ("report.html", self.html(&svg, command)),
            ("report.md", self.markdown()),
            ("curves.svg", svg),
            ("curves.csv", curves),
            ("runs.csv", self.csv()),
        ] {
            Replacement::write(&folder.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    /// The report in Markdown, which shows `curves.svg`.
    pub fn markdown(&self) -> String {
        let mut table = String::new();
        for (index, row) in self.cells().iter().enumerate() {
            let row: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            table.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                table.push_str(&format!("|{}\n", "---|".repeat(row.len())));
            }
        }
        let claims = self.claims().into_iter();
        let claims: String = claims.map(|claim| format!("- {claim}\n")).collect();
        let method = self.method();
        format!("{table}\n{claims}\n{method}\n\n![learning curves](curves.svg)\n")
    }

    fn html(&self, svg: &str, command: &str) -> String {
        let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let row = |(index, row): (usize, &Vec<String>)| {
            let tag = if index == 0 { "th" } else { "td" };
            let cell = |cell: &String| format!("<{tag}>{}</{tag}>", safe(cell));
            format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>())
        };
        let table: String = self.cells().iter().enumerate().map(row).collect();
        let claim = |claim: &String| format!("<li>{}</li>\n", safe(claim));
        let claims: String = self.claims().iter().map(claim).collect();
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let version = env!("CARGO_PKG_VERSION");
        let machine = format!("advlab {version}, {os} {arch}, {cores} cores");
        let about = self.designs.iter().map(|design| {
            let (name, about) = (safe(&design.name), safe(&design.about));
            format!("<details><summary>{name}</summary><pre>{about}</pre></details>\n")
        });
        let about: String = about.collect();
        format!(
            r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Designs compared</title>
<style>
body {{ font: 15px/1.5 Helvetica, Arial, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #1a1a1a; background: white }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }} th, td {{ padding: .3em .8em; text-align: right; border-bottom: 1px solid #e4e4e4 }}
th:first-child, td:first-child {{ text-align: left }} svg {{ max-width: 100%; height: auto }}
@media (prefers-color-scheme: dark) {{ body {{ color: #ddd; background: #1a1a1a }} th, td {{ border-color: #444 }} }}
</style>
<h1>Designs compared</h1>
<table>
{table}</table>
<ul>
{claims}</ul>
{svg}<p>{}</p>
<pre>{}
{machine}</pre>
{about}</html>
"#,
            safe(&self.method()),
            safe(command)
        )
    }

    /// A line per run.
    fn csv(&self) -> String {
        let heads: String = self.numbers.iter().map(|name| format!(",{name}")).collect();
        let mut lines = vec![format!("design,seed,folder{heads},seconds")];
        for design in &self.designs {
            for run in &design.runs {
                let seed = run.seed.map_or(String::new(), |seed| seed.to_string());
                let number = |name: &String| {
                    let number = run.at(name, self.end);
                    number.map_or(",".to_string(), |x| format!(",{x}"))
                };
                let numbers: String = self.numbers.iter().map(number).collect();
                let folder = quoted(&run.folder.display().to_string());
                let (name, seconds) = (quoted(&design.name), run.seconds);
                lines.push(format!("{name},{seed},{folder}{numbers},{seconds}"));
            }
        }
        lines.join("\n") + "\n"
    }
}
