//! The context of a call: its limits, its random numbers and its reports, which all hooks of the call share.

use std::mem::{replace, take};
use std::sync::{Arc, Mutex, MutexGuard};

use hmac_sha256::Hash as Sha256;

use super::error::{CallError, Raised};
use super::hook::Hook;
use super::limits::{METRICS, PRINTED_BYTES};
use super::outcome::{MapGroupsNote, Reports};
use super::remembered::Tables;
use crate::parallel::lock;
use crate::tensor::{Context, Depth, Guard, Moments, Tensor, TensorError};

#[derive(Debug)]
pub(crate) struct CallContext {
    pub(super) context: Context,
    pub(crate) step: u64,
    seed: u64,
    update: Option<u64>,
    effects: Mutex<Effects>,
}

/// The effects of the scripts in a call, such as their draws, reports and remembered values, and the host's notes on the call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    /// The hook that is running; `None` at the prompt.
    pub(super) hook: Option<Hook>,
    draws: u64,
    /// The number of times that scripts reported, printed or remembered something.
    pub(super) said: u64,
    /// The reported metrics. They are computed together with the hook's result, so that shared parts are computed only once.
    pub(super) metrics: Vec<Metric>,
    /// The other reports.
    reports: Reports,
    printed: usize,
    /// The values that the recipe remembers by key.
    pub(super) tables: Tables,
}

/// A reported metric: its hook, its name and its values. It has one value or, if a function passed to `map_groups` reports it,
/// one value for each group in which it is reported.
pub(super) type Metric = ((Option<Hook>, String), Vec<Tensor>);

impl CallContext {
    /// Makes a context for a call at a step. `update` is the number of earlier losses in the step, if this is a call of
    /// [`Recipe::loss`](super::Recipe::loss).
    pub(super) fn new(context: Context, seed: u64, step: u64, update: Option<u64>) -> Arc<Self> {
        context.guard.forget_failure();
        Arc::new(CallContext {
            context,
            step,
            seed,
            update,
            effects: Mutex::default(),
        })
    }

    pub(super) fn guard(&self) -> &Arc<Guard> {
        &self.context.guard
    }

    /// Returns the result of a hook or, if the guard ended the call, the guard's error, even if a function ignored that error.
    pub(crate) fn unless_failed<T>(&self, result: Raised<T>) -> Raised<T> {
        match self.guard().failure() {
            Some(error) if result.is_ok() => Err(error.into()),
            _ => result,
        }
    }

    pub(crate) fn effects(&self) -> MutexGuard<'_, Effects> {
        lock(&self.effects)
    }

    /// Takes all effects except the remembered values and the position in the sequence of random numbers, which stay.
    pub(crate) fn take_reports(&self) -> Effects {
        let mut now = self.effects();
        let rest = Effects {
            draws: now.draws,
            tables: take(&mut now.tables),
            ..Effects::default()
        };
        replace(&mut *now, rest)
    }

    /// Returns whether scripts drew random numbers, or reported, printed or remembered something, after `before` was taken. If
    /// so, one call for all groups cannot replace one call per group, because each of these calls would have such effects.
    pub(super) fn has_effect_since(&self, before: &Effects) -> bool {
        let now = self.effects();
        (now.draws, now.said) != (before.draws, before.said)
    }

    /// Undoes the effects that scripts had after `before` was taken. The host's notes stay, because each note is made only once.
    pub(super) fn restore(&self, before: Effects) {
        let mut now = self.effects();
        let notes = take(&mut now.reports.notes);
        *now = before;
        now.reports.notes = notes;
    }

    /// Returns the key of the next random tensor: a hash of the run's seed, the step, the number of earlier draws in the call,
    /// and `update`, if there is one.
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

impl Effects {
    pub(super) fn metric(&mut self, name: &str, value: Tensor) -> Result<(), CallError> {
        self.said += 1;
        self.keep(((self.hook, name.to_string()), vec![value]))
    }

    /// Keeps the metrics that a function passed to `map_groups` reported: one metric per hook and name, with the
    /// values of the groups that reported it.
    pub(super) fn metrics_of_groups(&mut self, metrics: Vec<Metric>) -> Result<(), CallError> {
        let mut joined: Vec<Metric> = Vec::new();
        for (name, values) in metrics {
            match joined.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.extend(values),
                None => joined.push((name, values)),
            }
        }
        joined.into_iter().try_for_each(|metric| self.keep(metric))
    }

    /// Keeps a metric, in place of an earlier metric of the same hook and name. Fails if there are then more than `METRICS`.
    fn keep(&mut self, metric: Metric) -> Result<(), CallError> {
        let mut known = self.metrics.iter_mut();
        if let Some(same) = known.find(|(name, _)| *name == metric.0) {
            *same = metric;
        } else if self.metrics.len() == METRICS {
            let message = format!("more than {METRICS} metrics in one step");
            let help = "is `metric` called in a loop, with a different name each time?";
            return Err(CallError::new(message, help));
        } else {
            self.metrics.push(metric);
        }
        Ok(())
    }

    /// Returns the reports, with the metrics in the order of their first reports. Each metric is the mean over the groups that
    /// reported it. If several hooks report metrics of the same name, each of these names gets its hook as a prefix, as in
    /// `reward/clipped`.
    ///
    /// # Errors
    /// [`TensorError`] if a metric cannot be computed.
    pub(crate) fn reported(self) -> Result<Reports, TensorError> {
        let is_shared = |hook: Hook, name: &str| {
            let mut all = self.metrics.iter();
            all.any(|((other, of), _)| of == name && *other != Some(hook))
        };
        let named = self.metrics.iter().map(|((hook, name), values)| {
            let name = match hook.filter(|hook| is_shared(*hook, name)) {
                Some(hook) => format!("{}/{name}", hook.name()),
                None => name.clone(),
            };
            let values = values.iter().map(|value| Ok(value.evaluate()?.get(0)));
            let value = match &values.collect::<Result<Vec<f64>, TensorError>>()?[..] {
                [value] => *value,
                values => Moments::of(values, Depth::Extremes).mean(),
            };
            Ok((name, value))
        });
        let metrics = named.collect::<Result<_, TensorError>>()?;
        let reporters = self.metrics.into_iter().map(|(metric, _)| metric);
        Ok(Reports {
            metrics,
            reporters: reporters
                .filter_map(|(hook, name)| Some((hook?, name)))
                .collect(),
            ..self.reports
        })
    }

    /// Keeps a call of `map_groups`, in place of an earlier call at the same location.
    pub(super) fn map_groups(&mut self, call: MapGroupsNote) {
        let calls = &mut self.reports.map_groups;
        calls.retain(|known| known.origin != call.origin);
        calls.push(call);
    }

    /// Keeps a note, unless the same note or `METRICS` other notes are kept already.
    pub(super) fn note(&mut self, note: String) {
        let notes = &mut self.reports.notes;
        if notes.len() < METRICS && !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Keeps a printed line. If the step prints more than the limit, one last line says so, and all further lines are dropped.
    pub(super) fn print(&mut self, line: &str) {
        self.said += 1;
        if self.printed > PRINTED_BYTES {
            return;
        }
        // The line break counts too, so that the number of empty lines is limited.
        self.printed += line.len() + 1;
        self.reports.prints.push(if self.printed > PRINTED_BYTES {
            "... (this step printed more lines, which are not kept)".to_string()
        } else {
            line.to_string()
        });
    }
}
