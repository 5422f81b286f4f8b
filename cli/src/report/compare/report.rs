//! The result of a comparison: a table, its conclusions, and learning curves.

use std::collections::BTreeMap;

use super::stats::{self, Estimate, improvement, interquartile, mean, separations};
use super::{Compared, Failed, Finished};
use crate::report::figure::{Figure, Mark, Panel, Series};
use advlab::figures::counted;
use advlab::paint::{Paint, cut, filled, wrapped};

/// The most points of a curve: each is a bootstrap.
const PLACES: usize = 200;

/// Designs that are compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub(super) designs: Vec<Compared>,
    /// The name of the score, and of the other numbers.
    pub(super) numbers: Vec<String>,
    /// The last step after which all runs have the score, if there is one.
    pub(super) end: Option<f64>,
    /// Runs that are left out, with the reasons.
    failed: Vec<String>,
}

impl Comparison {
    /// Compares designs with the first one by the last pass@1 that all runs have, or by the mean reward if no run has that. Runs
    /// that failed are listed.
    pub fn of(designs: Vec<Compared>, failed: &[Failed]) -> Comparison {
        let runs = || designs.iter().flat_map(|design| &design.runs);
        let has = |name: &str| runs().any(|run| run.curves.contains_key(name));
        let score = ["reward_mean", "pass@1"][usize::from(has("pass@1"))];
        let ks = runs().flat_map(|run| run.curves.keys());
        let ks = ks.filter_map(|name| name.strip_prefix("pass@")?.parse::<usize>().ok());
        let most = ks.max().filter(|k| *k > 1).map(|k| format!("pass@{k}"));
        let some = ["entropy", "length"].into_iter().filter(|name| has(name));
        let some = most.into_iter().chain(some.map(str::to_string));
        let failed = failed.iter().map(|(folder, error)| {
            let (folder, message) = (folder.display(), &error[0].message);
            format!("{folder} failed and is left out: {message}")
        });
        Comparison {
            end: shared(runs(), score).last().copied(),
            numbers: [score.to_string()].into_iter().chain(some).collect(),
            failed: failed.collect(),
            designs,
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Finished> {
        self.designs.iter().flat_map(|design| &design.runs)
    }

    /// The numbers of a design's runs.
    fn numbers_of(&self, design: &Compared, name: &str) -> Vec<f64> {
        let runs = design.runs.iter();
        runs.filter_map(|run| run.at(name, self.end)).collect()
    }

    /// The chance that a design scores higher than the first; `None` if either has no score.
    fn improvement(&self, design: &Compared) -> Option<Estimate> {
        let [first, own] =
            [&self.designs[0], design].map(|one| self.numbers_of(one, &self.numbers[0]));
        (!first.is_empty() && !own.is_empty()).then(|| improvement(&first, &own))
    }

    /// The cells of the table, first the headings.
    pub(super) fn cells(&self) -> Vec<Vec<String>> {
        let Some(first) = self.designs.first() else {
            return Vec::new();
        };
        let (score, others) = (&self.numbers[0], &self.numbers[1..]);
        let better = format!("P(> {})", first.name);
        let mut heads = vec!["design", "seeds", score, "IQM (95 %)", &better];
        heads.extend(others.iter().map(String::as_str).chain(["seconds"]));
        let mut rows: Vec<Vec<String>> = vec![heads.into_iter().map(str::to_string).collect()];
        let spread = |of: Estimate, digits: usize| {
            let (low, high) = of.interval;
            format!("{:.digits$} [{low:.digits$}, {high:.digits$}]", of.value)
        };
        let number = |of: &[f64], digits: usize| match of {
            [] => "-".to_string(),
            _ => format!("{:.digits$}", mean(of)),
        };
        for (index, design) in self.designs.iter().enumerate() {
            let own = self.numbers_of(design, score);
            let better = self.improvement(design).filter(|_| index > 0);
            let middle = (!own.is_empty()).then(|| spread(interquartile(&own), 3));
            let seconds: Vec<f64> = design.runs.iter().map(|run| run.seconds).collect();
            let mut row = vec![design.name.clone(), own.len().to_string(), number(&own, 3)];
            let cells = [middle, better.map(|better| spread(better, 2))];
            row.extend(cells.map(|cell| cell.unwrap_or("-".to_string())));
            row.extend(others.iter().map(|name| {
                let digits = if name == "length" { 1 } else { 3 };
                number(&self.numbers_of(design, name), digits)
            }));
            row.push(number(&seconds, 1));
            rows.push(row);
        }
        rows
    }

    /// What the numbers say about each design compared with the first, whether the seeds are too few, and which runs failed.
    pub fn claims(&self) -> Vec<String> {
        let (mut claims, mut too_few) = (Vec::new(), BTreeMap::<usize, Vec<&str>>::new());
        let first = self.designs.first();
        let (than, of_first) = first.map_or(("", 0), |one| (&one.name, one.runs.len()));
        for design in self.designs.iter().skip(1) {
            let (name, own) = (&design.name, design.runs.len());
            let seeds = format!("{} and {own}", counted(of_first, "seed"));
            let curves = |of: &Compared| -> Vec<_> {
                of.runs.iter().map(|run| run.curves.clone()).collect()
            };
            if first.is_some_and(|first| own > 0 && curves(first) == curves(design)) {
                claims.push(format!(
                    "{name} has every number of {than}: they compute the same"
                ));
                continue;
            }
            let better = self.improvement(design).map(|better| better.interval);
            claims.push(match better {
                None => format!("{name} has no run to compare"),
                Some(_) if stats::are_too_few(of_first, own) => {
                    too_few.entry(own).or_default().push(name);
                    continue;
                }
                Some((low, _)) if low > 0.5 => format!("{name} is above {than} at 95 % ({seeds})"),
                Some((_, high)) if high < 0.5 => {
                    format!("{name} is below {than} at 95 % ({seeds})")
                }
                _ => format!("{name}: no difference from {than} is shown at 95 % ({seeds})"),
            });
        }
        for (own, names) in too_few {
            let (names, seeds) = (names.join(", "), counted(of_first, "seed"));
            let orders = separations(of_first, own);
            claims.push(format!(
                "too few seeds to compare {names} with {than}: with {seeds} and {own}, chance alone puts all of one above all of the other in one of {orders:.0} cases; four of each are the least at 95 %"
            ));
        }
        claims.extend(self.failed.iter().cloned());
        claims
    }

    /// The table and its conclusions.
    pub fn text(&self, paint: Paint) -> String {
        let rows = self.cells();
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count().min(24));
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        // The other numbers are in a second table: 80 columns have no room for all.
        let others = std::iter::once(0).chain(5..columns).collect();
        let mut lines = Vec::new();
        for table in [Vec::from_iter(0..5), others] {
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
        let claims = self.claims();
        lines.extend(claims.iter().map(|claim| wrapped("", claim, paint.width)));
        lines.push(wrapped("", &self.method(), paint.width));
        lines.join("\n")
    }

    /// After which steps the numbers were taken, and how the estimates are made.
    pub(super) fn method(&self) -> String {
        let score = &self.numbers[0];
        let end = |run: &Finished| Some(run.curves.get(score)?.last()?.0);
        let ends: Vec<f64> = self.runs().filter_map(end).collect();
        let place = match self.end {
            Some(end) if ends.iter().any(|own| *own > end) => {
                format!("after {end} steps, the last that all runs have: some runs are longer")
            }
            Some(end) => format!("after {end} steps"),
            None => {
                let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
                let most = ends.iter().copied().fold(0.0, f64::max);
                format!(
                    "of each run's end, after {least} to {most} steps: the runs have no evaluation after equally many steps, so that the designs are not compared at one place"
                )
            }
        };
        format!(
            "{score} and the other numbers are those {place}. IQM is the interquartile mean over seeds, P the chance that a run scores higher than one of the first design; 95 % stratified bootstrap over seeds (arXiv 2108.13264)."
        )
    }

    /// Learning curves: the interquartile mean over seeds with its interval, and the reloads.
    pub fn figure(&self) -> Figure {
        let panels = self.numbers.iter().map(|name| {
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
            let reloads = self.runs().flat_map(|run| run.reloads.iter().copied());
            let mut reloads: Vec<u64> = reloads.collect();
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
}

/// The steps after which all runs that have the number have it.
fn shared<'r>(runs: impl Iterator<Item = &'r Finished>, name: &str) -> Vec<f64> {
    let mut curves = runs.filter_map(|run| run.curves.get(name));
    let steps = |curve: &Vec<(f64, f64)>| curve.iter().map(|point| point.0).collect::<Vec<f64>>();
    let first = curves.next().map(steps).unwrap_or_default();
    curves.fold(first, |mut shared, curve| {
        let own = steps(curve);
        shared.retain(|step| own.binary_search_by(|one| one.total_cmp(step)).is_ok());
        shared
    })
}

/// The interquartile mean after steps that all runs have, the last one included.
fn curve(runs: &[Finished], name: &str) -> Vec<(f64, Estimate)> {
    let shared = shared(runs.iter(), name);
    let every = shared.len().div_ceil(PLACES).max(1);
    let at = |&steps: &f64| {
        let scores = runs.iter().filter_map(|run| run.at(name, Some(steps)));
        let scores: Vec<f64> = scores.collect();
        // A single run has no bootstrap.
        let estimate = match scores[..] {
            [value] => Estimate {
                value,
                interval: (value, value),
            },
            _ => interquartile(&scores),
        };
        (steps, estimate)
    };
    let mut points: Vec<_> = shared.iter().rev().step_by(every).map(at).collect();
    points.reverse();
    points
}
