//! What a call gives, on its way to Python.

use std::collections::BTreeMap;

use advlab::batch::Computed;
use advlab::script::Loss;
use pyo3::prelude::*;

use crate::array::Values;
use crate::error::in_python;
use crate::held::{Step, Used};

/// An advantage or a loss; a dictionary of Python's.
#[derive(IntoPyObject)]
pub struct Answer {
    arrays: BTreeMap<&'static str, Option<Values>>,
    /// The level of an advantage.
    level: &'static str,
    loss: Option<f64>,
    metrics: BTreeMap<String, f64>,
    prints: Vec<String>,
    notes: Vec<String>,
    seconds: f64,
    is_native: bool,
    version: String,
    serial: u64,
    is_reloaded: bool,
}

impl Answer {
    /// `padded` gives [B, T] for one value per response too.
    pub fn of_advantage(step: Step, used: Used, f64: bool, padded: bool) -> Answer {
        let ((outcome, returns), (version, serial, is_reloaded)) = (step, used);
        let values =
            |computed: Option<&Computed>, padded| Some(Values::new(computed?, f64, padded));
        Answer {
            arrays: BTreeMap::from([
                ("advantage", values(Some(&outcome.advantage), padded)),
                ("returns", values(returns.as_ref(), padded)),
                ("reward", values(outcome.reward.as_ref(), false)),
                ("weight", values(outcome.weight.as_ref(), false)),
            ]),
            level: outcome.advantage.level().name(),
            loss: outcome.loss,
            metrics: outcome.metrics.into_iter().collect(),
            prints: outcome.prints,
            notes: outcome.notes.iter().map(|note| in_python(note)).collect(),
            seconds: outcome.time.as_secs_f64(),
            is_native: outcome.native.is_some(),
            version,
            serial,
            is_reloaded,
        }
    }

    pub fn of_loss(loss: Loss, used: Used, f64: bool) -> Answer {
        let (version, serial, is_reloaded) = used;
        let gradient = Values::new(&loss.gradient, f64, false);
        Answer {
            arrays: BTreeMap::from([("grad", Some(gradient))]),
            level: "batch",
            loss: Some(loss.value),
            metrics: loss.metrics.into_iter().collect(),
            prints: loss.prints,
            notes: loss.notes.iter().map(|note| in_python(note)).collect(),
            seconds: loss.time.as_secs_f64(),
            is_native: loss.native.is_some(),
            version,
            serial,
            is_reloaded,
        }
    }
}
