//! Inputs that are run without keeping their values: for their numbers, their gradient, their time.

use std::time::{Duration, Instant};

use rhai::{Array, Dynamic};

use super::{Answer, EVALUATING, Session};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::Recipe;
use crate::script::bind::{describe, number};
use crate::script::sandbox::guarded;
use crate::tensor::profile::{Detail, Stage};
use crate::tensor::{Level, Origin, Tensor, grad};

/// The most time that an input is measured for, after `LEAST_RUNS`.
const MEASURING: Duration = Duration::from_millis(400);
const RUNS: usize = 5000;
const LEAST_RUNS: usize = 3;

/// One run of an input, with the executor's stages.
#[derive(Debug)]
pub(crate) struct InputTrial {
    /// In seconds on the clock of the session's profile.
    pub(crate) started: f64,
    pub(crate) seconds: f64,
    pub(crate) stages: Vec<Stage>,
    /// The most bytes that it held at once, without those held before.
    pub(crate) peak: usize,
}

/// The values of two inputs that go together, and the level where they meet; none for arrays.
pub type Pairs = (Option<Level>, Vec<(f64, f64)>);

impl Session {
    /// The numbers of an input: a tensor's values, with its level, or those of an array.
    ///
    /// # Errors
    /// As [`Session::evaluate`]; also where the input gives something else.
    pub fn numbers(&mut self, text: &str) -> Result<(Option<Level>, Vec<f64>), Diagnostics> {
        let value = self.value(text)?;
        if let Some(tensor) = value.read_lock::<Tensor>() {
            let computed = tensor
                .evaluate()
                .map_err(|error| self.failed_in(text, error))?;
            return Ok((Some(tensor.level()), computed.iter().collect()));
        }
        let array = value.read_lock::<Array>();
        let numbers = array.and_then(|array| array.iter().map(number).collect::<Option<_>>());
        let numbers =
            numbers.ok_or_else(|| is_no(text, &value, "not a tensor or an array of numbers"))?;
        Ok((None, numbers))
    }

    /// The values of two inputs, tensors of any levels, at the level where they meet.
    ///
    /// # Errors
    /// As [`Session::numbers`].
    pub fn pairs(&mut self, x: &str, y: &str) -> Result<Pairs, Diagnostics> {
        let (left, right) = (self.value(x)?, self.value(y)?);
        let (level, left, right) = match (super::as_tensor(&left), super::as_tensor(&right)) {
            (Some(left), Some(right)) => {
                let level = left.level().join(right.level());
                let frame = self.batch.frame();
                let spread = |text: &str, tensor: &Tensor| {
                    let tensor = tensor.expanded(level, tensor.frame().unwrap_or(frame));
                    let values = tensor.and_then(|tensor| tensor.evaluate());
                    let values = values.map_err(|error| self.failed_in(text, error))?;
                    Ok::<_, Diagnostics>(values.iter().collect())
                };
                (Some(level), spread(x, &left)?, spread(y, &right)?)
            }
            _ => (None, self.numbers(x)?.1, self.numbers(y)?.1),
        };
        if left.len() != right.len() {
            let (of_x, of_y): (usize, usize) = (left.len(), right.len());
            let message =
                format!("`{x}` has {of_x} values and `{y}` has {of_y}: they must go together");
            return Err(Diagnostic::error(message).into());
        }
        Ok((level, left.into_iter().zip(right).collect()))
    }

    /// The derivative of an input, a batch tensor, by each value of `batch.logp`.
    ///
    /// # Errors
    /// As [`Session::evaluate`]; also where the input is no batch tensor, or has no derivative.
    pub fn gradient(&mut self, text: &str) -> Result<Answer, Diagnostics> {
        let value = self.value(text)?;
        let loss = super::as_tensor(&value);
        let loss =
            loss.ok_or_else(|| is_no(text, &value, "and only a batch tensor has a gradient"))?;
        let logp = self.batch.column("logp").map_err(|problem| {
            let help = "a gradient is one by the policy's log-probs";
            Diagnostics::from(Diagnostic::error(problem.diagnostic.message.clone()).with_help(help))
        })?;
        let gradient = grad(&loss, &logp).map_err(|error| self.failed_in(text, error))?;
        self.answer(&Dynamic::from(gradient))
    }

    /// Runs an input repeatedly: the times of the runs, at least one, each of which builds its graph and computes it, the
    /// shortest first.
    ///
    /// # Errors
    /// As [`Session::evaluate`].
    pub fn time(&mut self, text: &str) -> Result<Vec<Duration>, Diagnostics> {
        let is_enough = |runs, spent| runs >= RUNS || (runs >= LEAST_RUNS && spent >= MEASURING);
        let trials = self.repeated(text, Detail::Nothing, is_enough)?;
        let times = trials.iter().map(|trial| trial.seconds);
        let mut times: Vec<Duration> = times.map(Duration::from_secs_f64).collect();
        times.sort();
        Ok(times)
    }

    /// Runs an input repeatedly, with its stages recorded.
    ///
    /// # Errors
    /// As [`Session::evaluate`].
    pub(crate) fn trials(
        &mut self,
        text: &str,
        runs: usize,
        detail: Detail,
    ) -> Result<Vec<InputTrial>, Diagnostics> {
        self.repeated(text, detail, |done, _| done >= runs)
    }

    /// Compiles an input, runs it once for its errors, and then until it is enough by the number of runs and the time spent.
    /// Each run builds its graph and computes it, and leaves the session as it was.
    fn repeated(
        &mut self,
        text: &str,
        detail: Detail,
        is_enough: impl Fn(usize, Duration) -> bool,
    ) -> Result<Vec<InputTrial>, Diagnostics> {
        // One deep stack for all runs: their values are dropped on it too, and no run pays for making it.
        let trials = guarded(EVALUATING, || {
            let _ = self.value(text)?;
            let engine = self.engine(text);
            let ast = self.functions.merge(&self.compile(&engine, text)?);
            let (guard, profile) = (self.guard.clone(), self.profile.clone());
            let (scope, began) = (self.scope.clone(), Instant::now());
            profile.set_detail(detail);
            let mut trials = Vec::new();
            while !is_enough(trials.len(), began.elapsed()) {
                let (before, started) = (guard.begin_run(), profile.clock());
                let value = self.run_compiled(&engine, &ast, text);
                self.scope = scope.clone();
                if let Some(tensor) = value?.read_lock::<Tensor>() {
                    let computed = tensor.evaluate().map(drop);
                    computed.map_err(|error| self.failed_in(text, error))?;
                }
                trials.push(InputTrial {
                    started,
                    seconds: profile.clock() - started,
                    stages: profile.take(),
                    peak: guard.peak() - before,
                });
            }
            Ok(trials)
        });
        self.profile.set_detail(Detail::Nothing);
        self.profile.take();
        self.batch.call().take_reports();
        trials?
    }

    /// The line of an operation of an input: the name of its source, unless that is the input, its number and its text.
    pub(crate) fn line_of(&self, text: &str, origin: &Origin) -> (Option<String>, usize, String) {
        let (name, number, text) = match self.inputs.line(text, origin) {
            Some(of_input) => of_input,
            None => {
                let name = origin.source.as_deref().unwrap_or_default();
                let mut sources = self.recipe.iter().flat_map(Recipe::sources);
                let text = sources.find(|(own, _)| *own == name);
                let text = text.map_or("", |(_, text)| text);
                (Some(name.to_string()), origin.line, text)
            }
        };
        let line = text.lines().nth(number.saturating_sub(1));
        (name, number, line.unwrap_or_default().trim().to_string())
    }

    /// Runs an input for its value, and leaves the session as it was.
    fn value(&mut self, text: &str) -> Result<Dynamic, Diagnostics> {
        self.guard.rearm();
        let engine = self.engine(text);
        let ast = self.functions.merge(&self.compile(&engine, text)?);
        let scope = self.scope.clone();
        let value = self.run_compiled(&engine, &ast, text);
        self.scope = scope;
        self.batch.call().take_reports();
        value
    }
}

/// The error of an input whose value has the wrong type.
fn is_no(text: &str, value: &Dynamic, what: &str) -> Diagnostics {
    Diagnostic::error(format!("`{text}` is {}, {what}", describe(value))).into()
}
