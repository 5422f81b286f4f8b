//! What a script reports: metrics, printed lines, and notes of the host.

/// What scripts report with `metric` and `print`.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) metrics: Vec<(String, f64)>,
    pub(super) prints: Vec<String>,
    /// The bytes that were printed.
    printed: usize,
    /// What the host read otherwise than its name says.
    pub(super) notes: Vec<String>,
}

/// The most metrics of a step.
pub(super) const METRICS: usize = 256;
/// The most bytes that a step prints.
const PRINTED: usize = 1 << 20;

impl Reports {
    /// Keeps a metric, the last value of each name; `false` where there are too many.
    pub(super) fn metric(&mut self, name: &str, number: f64) -> bool {
        let full = self.metrics.len() == METRICS;
        match self.metrics.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = number,
            None if full => return false,
            None => self.metrics.push((name.to_string(), number)),
        }
        true
    }

    /// Keeps a printed line; beyond some bytes it says once that there is more.
    pub(super) fn print(&mut self, line: &str) {
        if self.printed > PRINTED {
            return;
        }
        // A line has its end too: empty ones are not for nothing.
        self.printed += line.len() + 1;
        self.prints.push(match self.printed > PRINTED {
            true => "... (this step prints more than is kept)".to_string(),
            false => line.to_string(),
        });
    }
}
