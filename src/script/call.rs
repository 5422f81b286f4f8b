//! The context of a call: bounds, random numbers and reports that the hooks of one step share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hmac_sha256::Hash as Sha256;

use super::error::CallError;
use super::hook::Hook;
use super::memory::Tables;
use crate::tensor::{ByGroup, Context, Depth, Guard, Moments, Origin, Tensor, TensorError};

/// The most metrics of a step.
const METRICS: usize = 256;
/// The most bytes that a step prints.
const PRINTED: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Call {
    pub(super) context: Context,
    pub(crate) step: u64,
    seed: u64,
    /// The index of the step's update whose loss it computes.
    update: Option<u64>,
    draws: AtomicU64,
    reports: Mutex<Reports>,
    /// What the recipe remembers by key.
    tables: Mutex<Tables>,
}

/// What scripts can change in a call.
pub(super) struct Snapshot {
    draws: u64,
    reports: Reports,
    tables: Tables,
}

impl Call {
    pub(crate) fn new(context: Context, seed: u64, step: u64, update: Option<u64>) -> Arc<Self> {
        Arc::new(Call {
            context,
            step,
            seed,
            update,
            draws: AtomicU64::new(0),
            reports: Mutex::default(),
            tables: Mutex::default(),
        })
    }

    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.context.guard
    }

    pub(crate) fn report<R>(&self, f: impl FnOnce(&mut Reports) -> R) -> R {
        f(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn tables<R>(&self, f: impl FnOnce(&mut Tables) -> R) -> R {
        f(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_reports(&self) -> Reports {
        std::mem::take(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            draws: self.draws.load(Ordering::Relaxed),
            reports: self.report(|reports| reports.clone()),
            tables: self.tables(|tables| tables.clone()),
        }
    }

    /// What scripts have done since a snapshot that they would do for each group by itself.
    pub(super) fn effect_since(&self, before: &Snapshot) -> Option<ByGroup> {
        if self.draws.load(Ordering::Relaxed) != before.draws {
            return Some(ByGroup::Draws);
        }
        let said = self.report(|reports| reports.said);
        (said != before.reports.said).then_some(ByGroup::Reports)
    }

    /// Takes back what scripts have done since a snapshot, but the host's notes: those are given once.
    pub(super) fn restore(&self, mut before: Snapshot) {
        self.draws.store(before.draws, Ordering::Relaxed);
        self.tables(|tables| *tables = before.tables);
        self.report(|reports| {
            before.reports.notes = std::mem::take(&mut reports.notes);
            *reports = before.reports;
        });
    }

    /// The key of the next random tensor: from the run's seed, the step, how many were drawn before, and the update.
    pub(super) fn next_key(&self) -> u64 {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        let mut hash = Sha256::new();
        let parts = [self.seed, self.step, draw].into_iter();
        for part in parts.chain(self.update) {
            hash.update(part.to_le_bytes());
        }
        let [a, b, c, d, e, f, g, h, ..] = hash.finalize();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// A call of `map_groups` in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapGroups {
    /// The place of the call.
    pub origin: Origin,
    /// Why its function was called for each group; `None` if one call was enough for all.
    pub by_group: Option<ByGroup>,
}

impl fmt::Display for MapGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.by_group {
            None => return f.write_str("by one call for all groups"),
            Some(ByGroup::Looks) => "its function looks at values, or at the group's shape",
            Some(ByGroup::Reports) => "its function reports a metric, prints or remembers",
            Some(ByGroup::Draws) => "its function draws random numbers",
            Some(ByGroup::Writes) => "its function changes a variable from outside",
            Some(ByGroup::Mixes) => "its function computes with what is not the group's own",
            Some(ByGroup::Fails) => "an operation of its function fails",
        };
        write!(f, "group by group: {why}")
    }
}

/// A number that a script reports.
#[derive(Clone, Debug)]
struct Metric {
    hook: Option<Hook>,
    name: String,
    /// One; in a `map_groups` one per group, with its turn.
    values: Vec<(u64, Tensor)>,
}

impl Metric {
    /// The mean over the groups that reported it.
    fn value(&self) -> Result<f64, TensorError> {
        let values = self.values.iter();
        let values = values.map(|(_, value)| Ok(value.evaluate()?.get(0)));
        let values = values.collect::<Result<Vec<f64>, TensorError>>()?;
        Ok(match values[..] {
            [value] => value,
            _ => Moments::of(&values, Depth::Extremes).mean(),
        })
    }
}

/// The reports of scripts, by `metric` and `print`, and the notes of the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// The hook that is running; `None` at the prompt.
    pub(super) hook: Option<Hook>,
    /// Computed with what the hook returns, not before.
    metrics: Vec<Metric>,
    /// The number of groups that functions of `map_groups` were called for so far.
    turn: u64,
    /// The first turn of the `map_groups` that is running, the outermost one.
    turns_from: Option<u64>,
    pub(crate) prints: Vec<String>,
    printed: usize,
    /// Columns that were not read as their names say.
    pub(crate) notes: Vec<String>,
    /// How often a script has reported or printed something.
    pub(super) said: u64,
    /// The calls of `map_groups`, each place once.
    pub(super) map_groups: Vec<MapGroups>,
}

impl Reports {
    /// Keeps a metric: the last value of each name in a hook, and in a `map_groups` that of each group.
    pub(super) fn metric(&mut self, name: &str, value: Tensor) -> Result<(), CallError> {
        self.said += 1;
        let (from, turn) = (self.turns_from.unwrap_or(u64::MAX), self.turn);
        let mut known = self.metrics.iter_mut();
        if let Some(same) = known.find(|known| known.hook == self.hook && known.name == name) {
            same.values.retain(|&(of, _)| from <= of && of != turn);
            same.values.push((turn, value));
            return Ok(());
        }
        if self.metrics.len() == METRICS {
            let message = format!("more than {METRICS} metrics in one step");
            let help = "is `metric` called in a loop, with another name each time?";
            return Err(CallError::new(message, help));
        }
        self.metrics.push(Metric {
            hook: self.hook,
            name: name.to_string(),
            values: vec![(turn, value)],
        });
        Ok(())
    }

    /// A `map_groups` begins: until it ends, a metric has a value for each group. Returns what [`Reports::end_groups`] takes.
    pub(super) fn begin_groups(&mut self) -> Option<u64> {
        let outer = self.turns_from;
        self.turns_from = outer.or(Some(self.turn + 1));
        outer
    }

    pub(super) fn end_groups(&mut self, outer: Option<u64>) {
        self.turns_from = outer;
    }

    /// A function of `map_groups` is called for another group.
    pub(super) fn next_group(&mut self) {
        self.turn += 1;
    }

    /// The metrics in the order of their first reports; with the hook, as in `reward/clipped`, if several hooks have one of
    /// the same name.
    ///
    /// # Errors
    /// [`TensorError`] where one of them cannot be computed.
    pub(crate) fn metrics(&self) -> Result<Vec<(String, f64)>, TensorError> {
        let name = |hook: Option<Hook>, name: &str| {
            let mut all = self.metrics.iter();
            match hook.filter(|_| all.any(|other| other.name == name && other.hook != hook)) {
                Some(hook) => format!("{}/{name}", hook.name()),
                None => name.to_string(),
            }
        };
        let metrics = self.metrics.iter();
        let named = metrics.map(|metric| Ok((name(metric.hook, &metric.name), metric.value()?)));
        named.collect()
    }

    /// Keeps the last call of `map_groups` at each place.
    pub(super) fn map_groups(&mut self, call: MapGroups) {
        let mut known = self.map_groups.iter_mut();
        match known.find(|known| known.origin == call.origin) {
            Some(same) => *same = call,
            None => self.map_groups.push(call),
        }
    }

    /// The tensors of metrics, not yet computed.
    pub(super) fn metric_tensors(&self) -> impl Iterator<Item = &Tensor> {
        let values = self.metrics.iter().flat_map(|metric| &metric.values);
        values.map(|(_, value)| value)
    }

    /// Keeps a printed line; beyond some bytes it says once that there is more.
    pub(super) fn print(&mut self, line: &str) {
        self.said += 1;
        if self.printed > PRINTED {
            return;
        }
        // The end of a line counts: empty lines are bounded too.
        self.printed += line.len() + 1;
        self.prints.push(if self.printed > PRINTED {
            "... (this step prints more than is kept)".to_string()
        } else {
            line.to_string()
        });
    }
}
