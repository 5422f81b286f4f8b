//! A profile as a table, in as many columns as a terminal has.

use std::time::Duration;

use super::Measured;
use super::in_full::InFull;
use super::lines::Line;
use super::machine::length;
use advlab::figures::{self, counted, shape};
use advlab::paint::{Paint, beside, cut, width, wrapped};
use advlab::script::Version;
use advlab::tensor::profile::StageKind;

impl Measured {
    /// The table, without a line break at its end.
    pub fn table(&self, paint: Paint) -> String {
        let blocks = [
            self.head(paint),
            self.executors(paint),
            self.stages(paint),
            self.by_line(paint),
            self.remarks(paint),
        ];
        let blocks: Vec<String> = blocks.into_iter().map(|lines| lines.join("\n")).collect();
        blocks.join("\n\n")
    }

    fn head(&self, paint: Paint) -> Vec<String> {
        let version = self.version.as_ref().map_or("", Version::short);
        let head = format!("{} {}", paint.bold(&self.name), paint.dim(version));
        let settings = paint.dim(&self.settings);
        let threads = counted(rayon::current_num_threads(), "thread");
        let batch = format!("{}; {threads}", shape(&self.layout));
        vec![
            beside(head.trim_end(), width(&head) + 2, &settings, paint.width),
            wrapped("", &batch, paint.width),
        ]
    }

    /// The best and the worst run with each executor.
    fn executors(&self, paint: Paint) -> Vec<String> {
        let mut lines = vec![paint.dim(&format!("{:<18}{:>11}{:>11}", "", "best", "median"))];
        let fused = best(&self.fused);
        let all = [
            ("fused", &self.fused),
            ("fused, new array", &self.fused_anew),
            ("naive", &self.naive),
            ("native", &self.native),
        ];
        for (name, seconds) in all {
            if seconds.is_empty() {
                continue;
            }
            let own = best(seconds);
            let ratio = match own / fused {
                _ if name == "fused" || self.fused.is_empty() => counted(seconds.len(), "run"),
                ratio => format!("{ratio:.2} times fused"),
            };
            let (own, middle) = (time(own), time(median(seconds)));
            lines.push(format!("{name:<18}{own:>11}{middle:>11}   {ratio}"));
        }
        lines
    }

    /// The fastest noted run, part by part.
    fn stages(&self, paint: Paint) -> Vec<String> {
        let head = format!(
            "{:<32}{:>9}{:>8}{:>9}{:>9}{:>11}",
            "the run by stage", "time", "share", "read", "written", "bandwidth"
        );
        let mut lines = vec![paint.dim(&head)];
        let total = self.trial.seconds();
        let mut row = |name: &str, seconds: f64, moved: Option<(usize, usize)>| {
            let share = format!("{:.0} %", 100.0 * seconds / total);
            let moved = moved.map(|(read, written)| {
                let rate = (read + written) as f64 / seconds / self.bandwidth;
                let (read, written) = (bytes(read), bytes(written));
                format!("{read:>9}{written:>9}{:>9.0} %", 100.0 * rate)
            });
            let moved = moved.unwrap_or_default();
            lines.push(format!("{name:<32}{:>9}{share:>8}{moved}", time(seconds)));
        };
        let (mut passes, mut others) = (0, (0, 0.0));
        for stage in &self.trial.stages {
            let name = match stage.kind {
                StageKind::Pass => {
                    passes += 1;
                    let operations = counted(stage.operations.len(), "operation");
                    format!("pass {passes} over tokens: {operations}")
                }
                StageKind::InFull(_) => {
                    others = (others.0 + 1, others.1 + stage.seconds);
                    continue;
                }
                StageKind::Padding => "into the padded array".to_string(),
            };
            row(&name, stage.seconds, Some((stage.read, stage.written)));
        }
        if others.0 > 0 {
            let operations = counted(others.0, "operation");
            row(&format!("in full: {operations}"), others.1, None);
        }
        row("script and plans", self.trial.in_script(), None);
        lines
    }

    fn by_line(&self, paint: Paint) -> Vec<String> {
        let total = self.trial.seconds();
        let head = format!("{:>9}{:>8}{:>9}  line", "time", "share", "moved");
        let mut lines = vec![paint.dim(&head)];
        let places: Vec<String> = self.lines.iter().map(Line::place).collect();
        let columns = places.iter().map(|place| width(place)).max().unwrap_or(0);
        for (line, place) in self.lines.iter().zip(places) {
            let share = format!("{:.0} %", 100.0 * line.seconds / total);
            let (time, moved) = (time(line.seconds), bytes(line.read + line.written));
            let text = &line.text;
            let text = format!("{time:>9}{share:>8}{moved:>9}  {place:>columns$}  {text}");
            lines.push(cut(&text, paint.width));
        }
        lines
    }

    fn remarks(&self, paint: Paint) -> Vec<String> {
        let fallbacks = self.in_full.iter().filter_map(InFull::fallback);
        let fallbacks: Vec<String> = fallbacks.collect();
        let mut stages = self.trial.stages.iter();
        let has_pass = stages.any(|stage| stage.kind == StageKind::Pass);
        let fallbacks = match &fallbacks[..] {
            [] if has_pass => "nothing: all token operations went tile by tile".to_string(),
            [] => "nothing: there is no operation on tokens".to_string(),
            all => all.join("; "),
        };
        let shares = "a pass does all of its operations tile by tile: what a line took of it was \
                      timed in a run of its own";
        let peak = format!(
            "{} at most, beside the batch and the array that the result goes into",
            bytes(self.trial.peak)
        );
        let bandwidth = format!(
            "{:.1} GB/s is what this machine moves in arrays of {}",
            self.bandwidth / 1e9,
            bytes(length(self.layout.tokens()) * size_of::<f32>())
        );
        let shares = has_pass.then(|| ("lines", shares.to_string()));
        let remarks = [
            ("memory", peak),
            ("bandwidth", bandwidth),
            ("fell back", fallbacks),
        ];
        let calls = self.trial.map_groups.iter();
        let map_groups =
            calls.map(|call| ("map_groups", format!("line {}: {call}", call.origin.line)));
        let told = (shares.into_iter())
            .chain(remarks)
            .chain(map_groups)
            .map(|(name, text)| beside(name, 11, &text, paint.width));
        told.collect()
    }
}

fn best(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn time(seconds: f64) -> String {
    figures::time(Duration::from_secs_f64(seconds))
}

fn bytes(number: usize) -> String {
    match number as f64 {
        n if n < 1e3 => format!("{n} B"),
        n if n < 1e6 => format!("{:.0} kB", n / 1e3),
        n if n < 1e8 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.0} MB", n / 1e6),
    }
}
