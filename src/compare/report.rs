//! What a comparison comes to: a table, learning curves, and the files of a report.

use std::path::Path;

use super::stats::{Estimate, improvement, interquartile, mean, separations};
use super::{Compared, Finished};
use crate::batch::Replacement;
use crate::diagnostic::Diagnostics;
use crate::figure::{Figure, Mark, Panel, Series, quoted};
use crate::figures::counted;
use crate::paint::{Paint, cut, filled, wrapped};

/// Orders below which a separation of all seeds is no evidence at 95 %.
const ORDERS: f64 = 20.0;

/// A design's scores: of the last evaluation of each run.
#[derive(Clone, Debug)]
pub struct Scores {
    /// The design.
    pub name: String,
    /// How many runs it has.
    pub seeds: usize,
    /// The mean of the score.
    pub mean: f64,
    /// Its interquartile mean.
    pub interquartile: Estimate,
    /// The chance to score higher than a run of the first design; none for that one.
    pub improvement: Option<Estimate>,
    /// Means of other numbers, by the names of [`Comparison::others`].
    pub others: Vec<Option<f64>>,
}

/// Designs beside each other.
#[derive(Clone, Debug)]
pub struct Comparison {
    designs: Vec<Compared>,
    /// The number that they are compared by.
    score: String,
    /// Other numbers, each with its heading.
    others: Vec<String>,
    scores: Vec<Scores>,
    /// The last steps after which all runs have the score, where some run has later ones.
    end: Option<f64>,
}

impl Comparison {
    /// Compares designs by the last pass@1 that all of their runs have, or by the mean reward where no run has that. The
    /// first design is the one that the others are held against.
    pub fn of(designs: Vec<Compared>) -> Comparison {
        let runs = || designs.iter().flat_map(|design| &design.runs);
        let has = |name: &str| runs().any(|run| run.curves.contains_key(name));
        let score = if has("pass@1") {
            "pass@1"
        } else {
            "reward_mean"
        }
        .to_string();
        let ks = runs().flat_map(|run| run.curves.keys());
        let ks = ks.filter_map(|name| name.strip_prefix("pass@")?.parse::<usize>().ok());
        let most = ks.max().filter(|k| *k > 1).map(|k| format!("pass@{k}"));
        let some = ["entropy", "length"].map(str::to_string).into_iter();
        let others: Vec<String> = most
            .into_iter()
            .chain(some)
            .filter(|name| has(name))
            .collect();
        let end = common_end(runs(), &score);
        let scores_of = |design: &Compared| -> Vec<f64> {
            design
                .runs
                .iter()
                .filter_map(|run| run.at(&score, end))
                .collect()
        };
        let first = designs.first().map(scores_of).unwrap_or_default();
        let of = |(index, design): (usize, &Compared)| {
            let own = scores_of(design);
            let mean_of = |of: &dyn Fn(&Finished) -> Option<f64>| {
                let all: Vec<f64> = design.runs.iter().filter_map(of).collect();
                (!all.is_empty()).then(|| mean(&all))
            };
            let last = others.iter().map(|name| mean_of(&|run| run.at(name, end)));
            Scores {
                name: design.name.clone(),
                seeds: own.len(),
                mean: mean(&own),
                interquartile: interquartile(&own),
                improvement: (index > 0 && !own.is_empty() && !first.is_empty())
                    .then(|| improvement(&first, &own)),
                others: last.chain([mean_of(&|run| Some(run.seconds))]).collect(),
            }
        };
        let scores = designs.iter().enumerate().map(of).collect();
        Comparison {
            scores,
            designs,
            score,
            others,
            end,
        }
    }

    /// The cells of the table, the headings first.
    fn cells(&self) -> Vec<Vec<String>> {
        let first = self.scores.first().map_or("", |one| &one.name);
        let fixed = ["design", "seeds", &self.score, "IQM (95 %)"].map(str::to_string);
        let better = format!("P(> {first})");
        let others = self.others.iter().map(String::as_str).chain(["seconds"]);
        let heads = fixed
            .into_iter()
            .chain([better])
            .chain(others.map(str::to_string));
        let mut rows: Vec<Vec<String>> = vec![heads.collect()];
        let spread = |of: &Estimate, digits: usize| {
            let (low, high) = of.interval;
            format!("{:.digits$} [{low:.digits$}, {high:.digits$}]", of.value)
        };
        for one in &self.scores {
            let better = one
                .improvement
                .as_ref()
                .map_or("-".to_string(), |of| spread(of, 2));
            let [mean, middle] = match one.seeds {
                0 => ["-", "-"].map(str::to_string),
                _ => [format!("{:.3}", one.mean), spread(&one.interquartile, 3)],
            };
            let seeds = one.seeds.to_string();
            let mut row = vec![one.name.clone(), seeds, mean, middle, better];
            let names = self.others.iter().map(String::as_str).chain(["seconds"]);
            row.extend(
                names
                    .zip(&one.others)
                    .map(|(name, number)| match (number, name) {
                        (None, _) => "-".to_string(),
                        (Some(number), "seconds" | "length") => format!("{number:.1}"),
                        (Some(number), _) => format!("{number:.3}"),
                    }),
            );
            rows.push(row);
        }
        rows
    }

    /// What the numbers say of each design beside the first, and where its seeds are too few to say it.
    pub fn claims(&self) -> Vec<String> {
        let Some((first, rest)) = self.scores.split_first() else {
            return Vec::new();
        };
        let claim = |one: &Scores| {
            let (name, than) = (&one.name, &first.name);
            let Some(better) = &one.improvement else {
                return format!("{name} has no run to compare");
            };
            let orders = separations(first.seeds, one.seeds);
            let seeds = format!("{} and {}", counted(first.seeds, "seed"), one.seeds);
            if orders < ORDERS {
                return format!(
                    "{name}: too few seeds to say anything against {than}: with {seeds}, chance alone puts all of one above all of the other in one of {orders:.0} cases; four of each are the least at 95 %"
                );
            }
            match better.interval {
                (low, _) if low > 0.5 => format!("{name} is above {than} at 95 % ({seeds})"),
                (_, high) if high < 0.5 => format!("{name} is below {than} at 95 % ({seeds})"),
                _ => format!("{name}: no difference from {than} is shown at 95 % ({seeds})"),
            }
        };
        rest.iter().map(claim).collect()
    }

    /// The table and what it says, in lines.
    pub fn text(&self, paint: Paint) -> String {
        let rows = self.cells();
        let columns = rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                rows.iter()
                    .map(|row| row[column].chars().count().min(24))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        // The other numbers stand in a table of their own: 80 columns have no room for all.
        let tables: [Vec<usize>; 2] = [
            (0..5).collect(),
            [0].into_iter().chain(5..columns).collect(),
        ];
        let mut lines = Vec::new();
        for table in tables {
            for (index, row) in rows.iter().enumerate() {
                let cell = |&column: &usize| {
                    let text = cut(&row[column], widths[column]);
                    match column {
                        0 => filled(&text, widths[0]),
                        _ => format!("{text:>0$}", widths[column]),
                    }
                };
                let line = table.iter().map(cell).collect::<Vec<_>>().join("  ");
                lines.push(if index == 0 { paint.dim(&line) } else { line });
            }
            lines.push(String::new());
        }
        lines.extend(
            self.claims()
                .iter()
                .map(|claim| wrapped("", claim, paint.width)),
        );
        lines.push(wrapped("", &self.method(), paint.width));
        lines.join("\n")
    }

    fn method(&self) -> String {
        let place = match self.end {
            Some(end) => {
                format!("after {end} steps, the last that all runs have: some runs are longer")
            }
            None => "of each run's last evaluation".to_string(),
        };
        format!(
            "{} and the other numbers are those {place}. IQM is the interquartile mean over seeds, P the chance that a run scores higher than one of the first design; 95 % stratified bootstrap over seeds (arXiv 2108.13264).",
            self.score
        )
    }

    /// Learning curves: the interquartile mean over the seeds and its interval, with the reloads.
    pub fn figure(&self) -> Figure {
        let names = [&self.score].into_iter().chain(&self.others);
        let panels = names.map(|name| {
            let mut series = Vec::new();
            for design in &self.designs {
                let points = curve(&design.runs, name);
                let low = points.iter().map(|(x, one)| (*x, one.interval.0));
                let high = points.iter().map(|(_, one)| one.interval.1).collect();
                if design.runs.len() > 1 {
                    series.push(Series::new(&design.name, Mark::Band(high), low));
                }
                let middle = points.iter().map(|(x, one)| (*x, one.value));
                series.push(Series::new(&design.name, Mark::Line, middle));
            }
            let runs = self.designs.iter().flat_map(|design| &design.runs);
            let mut reloads: Vec<u64> = runs.flat_map(|run| run.reloads.iter().copied()).collect();
            reloads.sort_unstable();
            reloads.dedup();
            if !reloads.is_empty() {
                let moments = reloads.iter().map(|&step| (step as f64, f64::NAN));
                series.push(Series::new("reload", Mark::Moments, moments));
            }
            Panel::new("step", name, series)
        });
        let panels: Vec<Panel> = panels.collect();
        Figure {
            title: "Interquartile mean over seeds, 95 % interval".to_string(),
            columns: 2.min(panels.len()),
            panels,
        }
    }

    /// Writes `report.html`, which is one file, `report.md` with `curves.svg`, `runs.csv` and `curves.csv`.
    ///
    /// # Errors
    /// [`Diagnostics`] where one cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Diagnostics> {
        std::fs::create_dir_all(folder).map_err(|error| {
            let message = format!("cannot make the folder {}: {error}", folder.display());
            crate::diagnostic::Diagnostic::error(message)
        })?;
        let figure = self.figure();
        let (svg, curves) = (figure.svg(), figure.csv());
        for (name, text) in [
            ("report.html", self.html(&svg)),
            ("report.md", self.markdown()),
            ("curves.svg", svg),
            ("curves.csv", curves),
            ("runs.csv", self.csv()),
        ] {
            Replacement::write(&folder.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    /// The report in Markdown, with the curves beside it in `curves.svg`.
    pub fn markdown(&self) -> String {
        let mut lines = Vec::new();
        for (index, row) in self.cells().iter().enumerate() {
            lines.push(format!("| {} |", row.join(" | ")));
            if index == 0 {
                lines.push(format!("|{}", "---|".repeat(row.len())));
            }
        }
        let claims: Vec<String> = self
            .claims()
            .iter()
            .map(|claim| format!("- {claim}"))
            .collect();
        let table = lines.join("\n");
        format!(
            "{table}\n\n{}\n\n{}\n\n![learning curves](curves.svg)\n",
            claims.join("\n"),
            self.method()
        )
    }

    fn html(&self, svg: &str) -> String {
        let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let row = |(index, row): (usize, &Vec<String>)| {
            let tag = if index == 0 { "th" } else { "td" };
            let cells = row
                .iter()
                .map(|cell| format!("<{tag}>{}</{tag}>", safe(cell)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let table: String = self.cells().iter().enumerate().map(row).collect();
        let claims = self.claims();
        let claims: String = claims
            .iter()
            .map(|claim| format!("<li>{}</li>\n", safe(claim)))
            .collect();
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
</html>
"#,
            safe(&self.method())
        )
    }

    /// A line a run.
    fn csv(&self) -> String {
        let names: Vec<&String> = [&self.score].into_iter().chain(&self.others).collect();
        let heads = names
            .iter()
            .map(|name| format!(",{name}"))
            .collect::<String>();
        let mut lines = vec![format!("design,seed,folder{heads},seconds")];
        for design in &self.designs {
            for run in &design.runs {
                let seed = run.seed.map_or(String::new(), |seed| seed.to_string());
                let number = |name: &&String| {
                    run.at(name, self.end)
                        .map_or(",".to_string(), |x| format!(",{x}"))
                };
                let numbers = names.iter().map(number).collect::<String>();
                let (name, folder) = (quoted(&design.name), run.folder.display().to_string());
                lines.push(format!(
                    "{name},{seed},{}{numbers},{}",
                    quoted(&folder),
                    run.seconds
                ));
            }
        }
        lines.join("\n") + "\n"
    }
}

/// The last steps after which all runs with that number have it; `None` where that is the last of each, or there are none.
fn common_end<'r>(runs: impl Iterator<Item = &'r Finished>, name: &str) -> Option<f64> {
    let curves: Vec<_> = runs.filter_map(|run| run.curves.get(name)).collect();
    let mut ends = curves.iter().filter_map(|curve| curve.last());
    let first = ends.next()?.0;
    if ends.all(|end| end.0 == first) {
        return None;
    }
    let all_have = |steps: f64| {
        let mut curves = curves.iter();
        curves.all(|curve| curve.iter().any(|point| point.0 == steps))
    };
    let steps = curves[0].iter().rev().map(|point| point.0);
    steps.into_iter().find(|&steps| all_have(steps))
}

/// Places of a curve, at most: each is a bootstrap.
const PLACES: usize = 200;

/// The interquartile mean at numbers of steps that all runs have, the last one included.
fn curve(runs: &[Finished], name: &str) -> Vec<(f64, Estimate)> {
    let Some(first) = runs.first().and_then(|run| run.curves.get(name)) else {
        return Vec::new();
    };
    let at = |steps: f64| -> Option<(f64, Estimate)> {
        let of = |run: &Finished| {
            let mut points = run.curves.get(name)?.iter();
            Some(points.find(|(own, _)| *own == steps)?.1)
        };
        let scores: Vec<f64> = runs.iter().map(of).collect::<Option<_>>()?;
        // Of one run there is nothing to draw.
        let estimate = match scores[..] {
            [value] => Estimate {
                value,
                interval: (value, value),
            },
            _ => interquartile(&scores),
        };
        Some((steps, estimate))
    };
    let shared = first.iter().rev().filter_map(|(steps, _)| {
        let mut others = runs.iter().filter_map(|run| run.curves.get(name));
        others
            .all(|curve| curve.iter().any(|(own, _)| own == steps))
            .then_some(*steps)
    });
    let shared: Vec<f64> = shared.collect();
    let every = shared.len().div_ceil(PLACES).max(1);
    let mut points: Vec<_> = shared.into_iter().step_by(every).filter_map(at).collect();
    points.reverse();
    points
}
