//! The context of a call: bounds, random numbers and reports that the hooks of one step share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hmac_sha256::Hash as Sha256;

use super::error::CallError;
use super::host::Host;
use super::memory::Tables;
use super::recipe::Hook;
use crate::tensor::{Context, Depth, Guard, Moments, Origin, Tensor, TensorError};

/// The most metrics of a step.
const METRICS: usize = 256;
/// The most bytes that a step prints.
const PRINTED: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Call {
    pub(super) context: Context,
    pub(crate) step: u64,
    seed: u64,
    update: Option<u64>,
    effects: Mutex<Effects>,
}

/// The part of a call that scripts can change.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    draws: u64,
    reports: Reports,
    /// The values that the recipe remembers by key.
    tables: Tables,
}

impl Call {
    /// A call within bounds. `update` is the index of the step's loss computation.
    pub(super) fn new(
        host: &Host,
        guard: &Arc<Guard>,
        step: u64,
        update: Option<u64>,
    ) -> Arc<Self> {
        let context = Context {
            executor: host.executor,
            guard: guard.clone(),
            profile: host.profile.clone(),
        };
        Arc::new(Call {
            context,
            step,
            seed: host.seed,
            update,
            effects: Mutex::default(),
        })
    }

    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.context.guard
    }

    fn effects(&self) -> MutexGuard<'_, Effects> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report<R>(&self, f: impl FnOnce(&mut Reports) -> R) -> R {
        f(&mut self.effects().reports)
    }

    pub(super) fn tables<R>(&self, f: impl FnOnce(&mut Tables) -> R) -> R {
        f(&mut self.effects().tables)
    }

    pub(crate) fn take_reports(&self) -> Reports {
        self.report(std::mem::take)
    }

    pub(super) fn snapshot(&self) -> Effects {
        self.effects().clone()
    }

    /// Whether scripts have drawn, reported or remembered something since a snapshot: this would occur once per group.
    pub(super) fn has_effect_since(&self, before: &Effects) -> bool {
        let now = self.effects();
        (now.draws, now.reports.said) != (before.draws, before.reports.said)
    }

    /// Undoes the effects of scripts since a snapshot, except the host's notes, which are given once.
    pub(super) fn restore(&self, mut before: Effects) {
        let mut now = self.effects();
        before.reports.notes = std::mem::take(&mut now.reports.notes);
        *now = before;
    }

    /// The key of the next random tensor: from the run's seed, the step, the number of earlier draws, and the update.
    pub(super) fn next_key(&self) -> u64 {
        let mut effects = self.effects();
        let mut hash = Sha256::new();
        let parts = [self.seed, self.step, effects.draws].into_iter();
        for part in parts.chain(self.update) {
            hash.update(part.to_le_bytes());
        }
        effects.draws += 1;
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
    /// Whether one call of the function was enough for all groups.
    pub by_one_call: bool,
}

/// A number that a script reports.
#[derive(Clone, Debug)]
pub(super) struct Metric {
    hook: Option<Hook>,
    name: String,
    /// One value; in a function of `map_groups`, one per group that reported it.
    values: Vec<Tensor>,
}

impl Metric {
    fn is_of(&self, other: &Metric) -> bool {
        (self.hook, &self.name) == (other.hook, &other.name)
    }

    /// The mean over the groups that reported it.
    fn value(&self) -> Result<f64, TensorError> {
        let values = self.values.iter();
        let values = values.map(|value| Ok(value.evaluate()?.get(0)));
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
    /// Computed together with the hook's result, not before.
    pub(super) metrics: Vec<Metric>,
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
    pub(super) fn metric(&mut self, name: &str, value: Tensor) -> Result<(), CallError> {
        self.said += 1;
        let (hook, name, values) = (self.hook, name.to_string(), vec![value]);
        self.keep(Metric { hook, name, values })
    }

    /// Keeps the metrics that a function of `map_groups` reported for its groups.
    pub(super) fn metrics_of_groups(&mut self, metrics: Vec<Metric>) -> Result<(), CallError> {
        let mut joined: Vec<Metric> = Vec::new();
        for metric in metrics {
            match joined.iter_mut().find(|known| known.is_of(&metric)) {
                Some(same) => same.values.extend(metric.values),
                None => joined.push(metric),
            }
        }
        joined.into_iter().try_for_each(|metric| self.keep(metric))
    }

    /// Keeps a metric; it replaces a metric of the same hook and name.
    fn keep(&mut self, metric: Metric) -> Result<(), CallError> {
        if let Some(same) = self.metrics.iter_mut().find(|known| known.is_of(&metric)) {
            *same = metric;
        } else if self.metrics.len() == METRICS {
            let message = format!("more than {METRICS} metrics in one step");
            let help = "is `metric` called in a loop, with another name each time?";
            return Err(CallError::new(message, help));
        } else {
            self.metrics.push(metric);
        }
        Ok(())
    }

    /// The metrics in the order of their first reports. If several hooks report one name, each is named with its hook, as in
    /// `reward/clipped`.
    ///
    /// # Errors
    /// [`TensorError`] if one of them cannot be computed.
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

    /// Keeps a call of `map_groups`, instead of an earlier one at the same place.
    pub(super) fn map_groups(&mut self, call: MapGroups) {
        self.map_groups.retain(|known| known.origin != call.origin);
        self.map_groups.push(call);
    }

    /// The tensors of metrics, not yet computed.
    pub(super) fn metric_tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.metrics.iter().flat_map(|metric| &metric.values)
    }

    /// Keeps a printed line; above a limit it says once that there is more.
    pub(super) fn print(&mut self, line: &str) {
        self.said += 1;
        if self.printed > PRINTED {
            return;
        }
        // The end of a line counts too, so that empty lines are bounded.
        self.printed += line.len() + 1;
        self.prints.push(if self.printed > PRINTED {
            "... (this step prints more than is kept)".to_string()
        } else {
            line.to_string()
        });
    }
}
