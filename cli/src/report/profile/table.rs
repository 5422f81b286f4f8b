//! A profile as a table, in as many columns as a terminal has, and as JSON.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Line, Measured};
use advlab::figures::{self, counted, shape};
use advlab::paint::{Paint, beside, cut, width, wrapped};
use advlab::script::Version;

impl Measured {
    /// All figures, in seconds and bytes.
    pub fn json(&self) -> Value {
        let seconds = |runs: &[f64]| (!runs.is_empty()).then(|| json!({ "seconds": runs }));
        let hooks = self.run.hooks.iter();
        let hooks = hooks.map(|(hook, seconds)| json!({ "hook": hook, "seconds": seconds }));
        let lines = self.lines.iter().map(|line| {
            json!({
                "script": line.script, "line": line.number, "text": line.text,
                "seconds": line.seconds,
            })
        });
        let map_groups = self.run.map_groups.iter().map(|call| {
            json!({
                "script": call.origin.source.as_deref(), "line": call.origin.line,
                "by_one_call": call.by_group.is_none(), "told": call.to_string(),
            })
        });
        json!({
            "recipe": self.name,
            "version": self.version.as_ref().map(Version::as_str),
            "responses": self.layout.responses(),
            "groups": self.layout.groups(),
            "tokens": self.layout.tokens(),
            "threads": rayon::current_num_threads(),
            "script": seconds(&self.script),
            "script_new_array": seconds(&self.new_array),
            "native": seconds(&self.native),
            "hooks": hooks.collect::<Vec<_>>(),
            "lines": lines.collect::<Vec<_>>(),
            "in_script": self.run.in_script(),
            "map_groups": map_groups.collect::<Vec<_>>(),
            "peak_bytes": self.run.peak,
        })
    }

    /// The table, without a line break at its end.
    pub fn table(&self, paint: Paint) -> String {
        let blocks = [
            self.head(paint),
            self.runs(paint),
            self.hooks(paint),
            self.lines(paint),
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

    /// The best and the median run of the script, and of the kernel.
    fn runs(&self, paint: Paint) -> Vec<String> {
        let best = |runs: &[f64]| runs.iter().copied().fold(f64::INFINITY, f64::min);
        let mut lines = vec![paint.dim(&format!("{:<18}{:>11}{:>11}", "", "best", "median"))];
        let all = [
            ("script", &self.script),
            ("script, new array", &self.new_array),
            ("native", &self.native),
        ];
        for (name, runs) in all.into_iter().filter(|(_, runs)| !runs.is_empty()) {
            let mut sorted = runs.clone();
            sorted.sort_by(f64::total_cmp);
            let ratio = match name {
                "script" => counted(runs.len(), "run"),
                _ => format!("{:.2} times script", sorted[0] / best(&self.script)),
            };
            let (best, median) = (time(sorted[0]), time(sorted[sorted.len() / 2]));
            lines.push(format!("{name:<18}{best:>11}{median:>11}   {ratio}"));
        }
        lines
    }

    fn row(&self, seconds: f64) -> String {
        let share = format!("{:.0} %", 100.0 * seconds / self.run.seconds());
        format!("{:>9}{share:>8}", time(seconds))
    }

    fn hooks(&self, paint: Paint) -> Vec<String> {
        let mut lines = vec![paint.dim(&format!("{:>9}{:>8}  hook", "time", "share"))];
        let hooks = self.run.hooks.iter();
        lines.extend(hooks.map(|(hook, seconds)| format!("{}  {hook}", self.row(*seconds))));
        lines
    }

    fn lines(&self, paint: Paint) -> Vec<String> {
        let mut lines = vec![paint.dim(&format!("{:>9}{:>8}  line", "time", "share"))];
        let places: Vec<String> = self.lines.iter().map(place).collect();
        let columns = places.iter().map(|place| width(place)).max().unwrap_or(0);
        for (line, place) in self.lines.iter().zip(places) {
            let row = self.row(line.seconds);
            let text = format!("{row}  {place:>columns$}  {}", line.text);
            lines.push(cut(&text, paint.width));
        }
        let rest = self.row(self.run.in_script());
        lines.push(format!("{rest}  the script itself, and plans"));
        lines
    }

    fn remarks(&self, paint: Paint) -> Vec<String> {
        let peak = format!(
            "{} at most, beside the batch and the array that the result goes into",
            bytes(self.run.peak)
        );
        let calls = self.run.map_groups.iter();
        let calls = calls.map(|call| ("map_groups", format!("line {}: {call}", call.origin.line)));
        let remarks = std::iter::once(("memory", peak)).chain(calls);
        remarks
            .map(|(name, text)| beside(name, 11, &text, paint.width))
            .collect()
    }
}

/// A line's number, after the name of its script unless that is the measured one.
fn place(line: &Line) -> String {
    let name = line
        .script
        .as_ref()
        .map(|script| Path::new(script).file_name());
    match name {
        Some(name) => {
            let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            format!("{name}:{}", line.number)
        }
        None => line.number.to_string(),
    }
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
