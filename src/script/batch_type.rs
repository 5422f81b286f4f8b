//! The batch as scripts see it: columns as properties, derived ones among them, groups, and random numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rhai::{Array, Dynamic, Engine, EvalAltResult, FnPtr, INT, ImmutableString, NativeCallContext};
use sha2::{Digest, Sha256};

use super::bind::{describe, number};
use super::error::{Problem, origin, raise};
use super::reports::Reports;
use crate::batch::{Floats, Lent};
use crate::suggest;
use crate::tensor::op::{self, Argument, Op};
use crate::tensor::{Frame, Guard, Level, Tensor, TensorError, TensorErrorKind, Value};

type Outcome<T> = Result<T, Box<EvalAltResult>>;

/// What the hooks of one step share: their bounds, their randomness, and what they report.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) guard: Arc<Guard>,
    pub(super) step: u64,
    pub(super) seed: u64,
    draws: AtomicU64,
    reports: Mutex<Reports>,
}

impl Call {
    pub(super) fn new(guard: Arc<Guard>, step: u64, seed: u64) -> Arc<Self> {
        Arc::new(Call {
            guard,
            step,
            seed,
            draws: AtomicU64::new(0),
            reports: Mutex::default(),
        })
    }

    pub(super) fn report(&self, f: impl FnOnce(&mut Reports)) {
        f(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn take_reports(&self) -> Reports {
        std::mem::take(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key of the next random tensor: from the run's seed, the step, and how many were drawn before.
    fn next_key(&self) -> u64 {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        let mut hash = Sha256::new();
        for part in [self.seed, self.step, draw] {
            hash.update(part.to_le_bytes());
        }
        let digest = hash.finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |key, &byte| key << 8 | u64::from(byte))
    }
}

/// The batch as scripts see it.
#[derive(Clone, Debug)]
pub(crate) struct ScriptBatch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    frame: Arc<Frame>,
    call: Arc<Call>,
    source: Source,
    /// Tensors by column name, each made once: a gradient by `batch.logp` must meet the same node everywhere.
    columns: Mutex<BTreeMap<String, Tensor>>,
}

/// Where a batch's columns come from.
#[derive(Debug)]
enum Source {
    Lent {
        lent: Lent,
        given: BTreeMap<&'static str, Tensor>,
    },
    GroupOf {
        whole: ScriptBatch,
        group: usize,
    },
    Regrouped {
        whole: ScriptBatch,
    },
}

/// Columns that follow from others where the batch has not its own.
const DERIVED: [&str; 5] = ["reward", "token_reward", "correct", "logp", "length"];

impl ScriptBatch {
    /// The whole batch. `given` columns stand above those of the batch: a shaped reward, the advantage.
    pub(super) fn new(
        frame: Arc<Frame>,
        call: Arc<Call>,
        lent: Lent,
        given: BTreeMap<&'static str, Tensor>,
    ) -> Self {
        ScriptBatch::over(frame, call, Source::Lent { lent, given })
    }

    fn over(frame: Arc<Frame>, call: Arc<Call>, source: Source) -> Self {
        ScriptBatch(Arc::new(Inner {
            frame,
            call,
            source,
            columns: Mutex::default(),
        }))
    }

    pub(super) fn frame(&self) -> &Arc<Frame> {
        &self.0.frame
    }

    /// The training step.
    pub(super) fn step(&self) -> u64 {
        self.0.call.step
    }

    /// Whether a column follows from those that the batch has.
    pub(super) fn can_derive(&self, name: &str) -> bool {
        match name {
            "reward" => self.has("token_reward") || self.has("correct"),
            "token_reward" => self.has("reward") || self.has("correct"),
            "correct" => self.has("reward") || self.has("token_reward"),
            "logp" => self.has("old_logp"),
            _ => self.frame().layout().width() > 0,
        }
    }

    /// The columns that have been asked for so far.
    pub(super) fn known_columns(&self) -> Vec<(String, Tensor)> {
        let columns = self
            .0
            .columns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        columns
            .iter()
            .map(|(name, tensor)| (name.clone(), tensor.clone()))
            .collect()
    }

    /// The names of the batch's own columns, and of those that may follow from them.
    pub(super) fn column_names(&self) -> (Vec<String>, Vec<String>) {
        match &self.0.source {
            Source::Lent { lent, .. } => {
                let own = lent.responses.keys().chain(lent.tokens.keys());
                let own: Vec<String> = own.map(|name| name.to_string()).collect();
                let derived = DERIVED.into_iter().map(str::to_string);
                let derived = derived.filter(|name| !own.contains(name)).collect();
                (own, derived)
            }
            Source::GroupOf { whole, .. } | Source::Regrouped { whole } => whole.column_names(),
        }
    }

    /// A column by its name: one of the batch, or one that follows from others.
    pub(super) fn column(&self, name: &str) -> Result<Tensor, Problem> {
        let known = self
            .0
            .columns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        if let Some(tensor) = known {
            return Ok(tensor);
        }
        let tensor = match &self.0.source {
            Source::Lent { lent, given } => match given.get(name) {
                Some(tensor) => tensor.clone(),
                None => self.own_column(lent, name)?,
            },
            Source::GroupOf { whole, group } => whole.column(name)?.select(*group, self.frame())?,
            Source::Regrouped { whole } => whole.column(name)?.rehomed(self.frame())?,
        };
        let mut columns = self
            .0
            .columns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(columns.entry(name.to_string()).or_insert(tensor).clone())
    }

    fn own_column(&self, lent: &Lent, name: &str) -> Result<Tensor, Problem> {
        if let Some(values) = lent.responses.get(name) {
            let floats = Floats::F64(Arc::new(values.to_vec()));
            return Ok(Tensor::from_value(
                self.frame(),
                Value::new(Level::Response, floats, None),
            ));
        }
        if let Some(store) = lent.tokens.get(name) {
            return Ok(Tensor::column(self.frame(), store.clone()));
        }
        match self.derived(lent, name)? {
            Some(tensor) => Ok(tensor),
            None => Err(self.unknown(lent, name)),
        }
    }

    /// Columns that follow from others: each is the field's own reading of what the rollouts do carry.
    fn derived(&self, lent: &Lent, name: &str) -> Result<Option<Tensor>, Problem> {
        let has = |column: &str| self.has(column);
        Ok(match name {
            "reward" if has("token_reward") => {
                Some(self.sum_of_tokens(&self.column("token_reward")?)?)
            }
            "reward" if has("correct") => Some(self.column("correct")?),
            "token_reward" if has("reward") || has("correct") => {
                let reward = Argument::Tensor(self.column("reward")?);
                Some(row("at_last_token", 1).apply(&[reward])?)
            }
            "correct" if has("reward") || has("token_reward") => {
                // Right or wrong is about the reward that the verifier gave, not about a shaped one.
                let given = if lent.responses.contains_key("reward") {
                    self.own_column(lent, "reward")?
                } else {
                    self.sum_of_tokens(&self.own_column(lent, "token_reward")?)?
                };
                let args = [Argument::Tensor(given), Argument::Number(0.0)];
                Some(row(">", 2).apply(&args)?)
            }
            "logp" if has("old_logp") => match lent.tokens.get("old_logp") {
                // Its own leaf: a gradient by `logp` is not one by `old_logp`.
                Some(store) => {
                    let note = "there is no column `logp`: `old_logp` stands for it, as at a step's first update";
                    self.0
                        .call
                        .report(|reports| reports.notes.push(note.to_string()));
                    Some(Tensor::column(self.frame(), store.clone()))
                }
                None => None,
            },
            "length" if has_tokens(lent) => {
                let layout = self.frame().layout();
                let lengths =
                    (0..layout.responses()).map(|response| layout.tokens_of(response).len() as f64);
                let floats = Floats::F64(Arc::new(lengths.collect()));
                Some(Tensor::from_value(
                    self.frame(),
                    Value::new(Level::Response, floats, None),
                ))
            }
            _ => None,
        })
    }

    /// A reward by token, summed for each response, in the precision that it was given in: 0.1 + 0.2 + 0.4 is then the
    /// 0.7 of another response also where both were f32, and their group has no difference.
    fn sum_of_tokens(&self, reward: &Tensor) -> Result<Tensor, Problem> {
        let sum = reduce("sum", reward, Level::Response)?;
        if reward.is_f64() {
            return Ok(sum);
        }
        let narrowed = sum
            .evaluate()?
            .iter()
            .map(|sum| f64::from(sum as f32))
            .collect();
        let floats = Floats::F64(Arc::new(narrowed));
        Ok(Tensor::from_value(
            self.frame(),
            Value::new(Level::Response, floats, None),
        ))
    }

    /// Whether the batch has the column itself, or was given it.
    fn has(&self, name: &str) -> bool {
        match &self.0.source {
            Source::Lent { lent, given } => {
                given.contains_key(name)
                    || lent.responses.contains_key(name)
                    || lent.tokens.contains_key(name)
            }
            Source::GroupOf { whole, .. } | Source::Regrouped { whole } => whole.has(name),
        }
    }

    fn unknown(&self, lent: &Lent, name: &str) -> Problem {
        let known: Vec<&str> = lent
            .responses
            .keys()
            .chain(lent.tokens.keys())
            .map(|name| &**name)
            .collect();
        let also = ["advantage", "groups", "step"];
        let near = suggest::nearest(name, known.iter().copied().chain(DERIVED).chain(also));
        let problem = Problem::new(format!("the batch has no column `{name}`"));
        match (near, name) {
            (Some(near), _) if near != name => problem.help(format!("did you mean `{near}`?")),
            (_, "ref_logp") => problem.help(
                "log-probs under the reference policy are needed for a KL: add the column, or set `kl_beta` to 0",
            ),
            (_, "advantage") => problem.help(
                "a loss on `batch.advantage` is for a training run, which computes the advantage first",
            ),
            _ => problem.help(format!("it has {}", suggest::list(known))),
        }
    }

    /// One batch a group, in the groups' order.
    fn groups(&self) -> Vec<ScriptBatch> {
        (0..self.frame().layout().groups())
            .map(|group| {
                let from = Source::GroupOf {
                    whole: self.clone(),
                    group,
                };
                ScriptBatch::over(self.frame().group(group), self.0.call.clone(), from)
            })
            .collect()
    }

    fn regroup(&self, key: &Tensor) -> Result<ScriptBatch, Problem> {
        let args = [
            Argument::Tensor(key.clone()),
            Argument::Level(Level::Response),
        ];
        let value = row("expand", 2).apply(&args)?.evaluate()?;
        let key: Vec<f64> = value.iter().collect();
        let from = Source::Regrouped {
            whole: self.clone(),
        };
        Ok(ScriptBatch::over(
            self.frame().regroup(&key),
            self.0.call.clone(),
            from,
        ))
    }

    fn random(&self, level: Level) -> Tensor {
        Tensor::random(self.frame(), level, self.0.call.next_key())
    }

    /// The results of `f` for each group's batch, put together over the whole batch.
    fn map_groups(&self, context: &NativeCallContext, f: &FnPtr) -> Outcome<Tensor> {
        let mut parts = Vec::new();
        for (group, batch) in self.groups().into_iter().enumerate() {
            let frame = batch.frame().clone();
            let result: Dynamic = f.call_within_context(context, (batch,))?;
            let part = match (result.read_lock::<Tensor>(), number(&result)) {
                (Some(tensor), _) => tensor.clone(),
                (None, Some(number)) => Tensor::number(number),
                _ => {
                    let message = format!(
                        "the function of `map_groups` must give a tensor or a number, it gave {}",
                        describe(&result)
                    );
                    let help = "the last line of the function is its result, without a semicolon";
                    return Err(raise(context, Problem::new(message).help(help)));
                }
            };
            parts.push((group, part, frame));
        }
        let join =
            |level: Level, (_, part, _): &(usize, Tensor, Arc<Frame>)| level.join(part.level());
        let level = parts.iter().fold(Level::Group, join);
        let parts = parts
            .into_iter()
            .map(|(group, part, frame)| {
                let foreign = part.level() != Level::Batch
                    && part
                        .frame()
                        .is_some_and(|own| own.responses != frame.responses);
                if foreign {
                    let (left, right) = (part.level(), level);
                    return Err(TensorError::new(
                        "map_groups",
                        TensorErrorKind::DifferentBatches { left, right },
                    ));
                }
                Ok((group, part.expanded(level, &frame)?))
            })
            .collect::<Result<Vec<_>, _>>()
            .and_then(|parts| Tensor::assemble(self.frame(), level, parts))
            .map_err(|error| raise(context, error))?;
        parts.mark(&origin(context));
        Ok(parts)
    }
}

/// Whether the batch says anything of tokens, though none of them may count.
fn has_tokens(lent: &Lent) -> bool {
    lent.layout.width() > 0 || !lent.tokens.is_empty()
}

/// The row of the op table with that name and number of parameters.
fn row(name: &str, params: usize) -> &'static Op {
    match op::table().find(|op| op.name == name && op.params.len() == params) {
        Some(op) => op,
        None => unreachable!("the op table has `{name}`"),
    }
}

fn reduce(name: &str, x: &Tensor, to: Level) -> Result<Tensor, TensorError> {
    row(name, 3).apply(&[Argument::Tensor(x.clone()), Argument::Level(to)])
}

/// Registers the type with its properties and methods.
pub(super) fn batch_type(engine: &mut Engine) {
    engine
        .register_type_with_name::<ScriptBatch>("batch")
        .register_indexer_get(
            |batch: &mut ScriptBatch, name: ImmutableString| -> Outcome<Dynamic> {
                match name.as_str() {
                    // Steps are far below 2^63.
                    "step" => Ok(Dynamic::from_int(batch.0.call.step as INT)),
                    "groups" => Ok(Dynamic::from_array(
                        batch
                            .groups()
                            .into_iter()
                            .map(Dynamic::from)
                            .collect::<Array>(),
                    )),
                    name => Ok(Dynamic::from(batch.column(name)?)),
                }
            },
        )
        .register_fn("has", |batch: &mut ScriptBatch, name: &str| {
            batch.column(name).is_ok()
        })
        .register_fn(
            "random",
            |context: NativeCallContext, batch: &mut ScriptBatch, level: &str| -> Outcome<Tensor> {
                let level = level
                    .parse::<Level>()
                    .map_err(|unknown| raise(&context, TensorError::new("random", unknown)))?;
                Ok(batch.random(level))
            },
        )
        .register_fn(
            "map_groups",
            |context: NativeCallContext, batch: &mut ScriptBatch, f: FnPtr| {
                batch.map_groups(&context, &f)
            },
        )
        .register_fn(
            "regroup",
            |context: NativeCallContext,
             batch: &mut ScriptBatch,
             key: Tensor|
             -> Outcome<ScriptBatch> {
                batch
                    .regroup(&key)
                    .map_err(|problem| raise(&context, problem))
            },
        )
        .register_fn("to_string", |batch: &mut ScriptBatch| summary(batch))
        .register_fn("to_debug", |batch: &mut ScriptBatch| summary(batch));
}

fn summary(batch: &ScriptBatch) -> String {
    let layout = batch.frame().layout();
    let (groups, responses, tokens) = (layout.groups(), layout.responses(), layout.tokens());
    format!("batch of {groups} groups, {responses} responses, {tokens} tokens")
}
