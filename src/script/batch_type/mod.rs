//! The batch as scripts see it: columns as properties, derived ones among them, groups, and random numbers.

mod by_group;
mod columns;

pub use by_group::{ByGroup, MapGroups};
pub(crate) use columns::OLD_FOR_LOGP;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rhai::{Dynamic, Engine, FnPtr, INT, ImmutableString, NativeCallContext};

use super::call::Call;
use super::error::{Problem, Raised, raise};
use super::host::Host;
use crate::batch::{Batch, Computed};
use crate::tensor::op;
use crate::tensor::{Frame, Level, Tensor, TensorError};

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

#[derive(Debug)]
enum Source {
    Whole {
        batch: Batch,
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

/// Columns that follow from others where the batch has not its own, with those of which each is enough.
const DERIVED: [(&str, &[&str]); 6] = [
    ("reward", &["token_reward", "correct", "verified"]),
    ("token_reward", &["reward", "correct", "verified"]),
    ("correct", &["reward", "token_reward", "verified"]),
    ("verified", &[]),
    ("logp", &["old_logp"]),
    ("length", &[]),
];

impl ScriptBatch {
    /// A whole batch, in one call of a host.
    pub(super) fn new(host: &Host, call: Arc<Call>, batch: &Batch) -> Self {
        let context = host.context(call.guard.clone());
        let frame = Frame::new(batch.layout().clone(), batch.is_f64(), context);
        let (batch, given) = (batch.clone(), BTreeMap::new());
        ScriptBatch::over(frame, call, Source::Whole { batch, given })
    }

    /// The same whole batch, with columns that stand above its own: a shaped reward, the advantage.
    pub(super) fn with(&self, given: BTreeMap<&'static str, Tensor>) -> Self {
        if given.is_empty() {
            return self.clone();
        }
        let source = match &self.0.source {
            Source::Whole { batch, .. } => {
                let batch = batch.clone();
                Source::Whole { batch, given }
            }
            _ => unreachable!("a hook is given columns over the whole batch"),
        };
        ScriptBatch::over(self.0.frame.clone(), self.0.call.clone(), source)
    }

    fn over(frame: Arc<Frame>, call: Arc<Call>, source: Source) -> Self {
        ScriptBatch(Arc::new(Inner {
            frame,
            call,
            source,
            columns: Mutex::default(),
        }))
    }

    /// The batch that a hook was given, and the result of the `reward` hook before it; `None` where this is another one, or
    /// the reward is not computed yet.
    pub(super) fn as_given(&self) -> Option<(Batch, Option<Computed>)> {
        let Source::Whole { batch, given } = &self.0.source else {
            return None;
        };
        // No kernel knows of weights.
        if self.has("weight") {
            return None;
        }
        let reward = match (given.get("reward"), given.get("token_reward")) {
            (Some(reward), Some(tokens)) => {
                let is_spread = tokens.inner().args.iter().any(|arg| arg.same(reward));
                let own = if is_spread { reward } else { tokens };
                Some(own.known()?.over(batch.layout()))
            }
            _ => None,
        };
        Some((batch.clone(), reward))
    }

    pub(super) fn frame(&self) -> &Arc<Frame> {
        &self.0.frame
    }

    pub(super) fn call(&self) -> &Arc<Call> {
        &self.0.call
    }

    /// One batch a group, in the groups' order.
    fn groups(&self) -> impl Iterator<Item = ScriptBatch> {
        self.frame().look_at();
        self.frame().groups().enumerate().map(|(group, frame)| {
            let whole = self.clone();
            let source = Source::GroupOf { whole, group };
            ScriptBatch::over(frame, self.call().clone(), source)
        })
    }

    fn regroup(&self, key: &Tensor) -> Result<ScriptBatch, Problem> {
        self.frame().look_at();
        let value = op::expand(key, Level::Response)?.evaluate()?;
        let key: Vec<f64> = value.iter().collect();
        let (frame, whole) = (self.frame().regroup(&key), self.clone());
        let source = Source::Regrouped { whole };
        Ok(ScriptBatch::over(frame, self.call().clone(), source))
    }

    /// Drawn numbers, or those of a column `random` of that level: so a recipe gives again what it gave elsewhere.
    fn random(&self, level: Level) -> Result<Tensor, Problem> {
        if self.has("random") {
            let given = self.column("random")?;
            if given.level() == level {
                return Ok(given);
            }
        }
        Ok(Tensor::random(self.frame(), level, self.0.call.next_key()))
    }
}

pub(super) fn batch_type(engine: &mut Engine) {
    type Context<'a> = NativeCallContext<'a>;
    engine
        .register_type_with_name::<ScriptBatch>("batch")
        .register_indexer_get(|batch: &mut ScriptBatch, name: ImmutableString| {
            Raised::Ok(match name.as_str() {
                // Steps are far below 2^63.
                "step" => Dynamic::from_int(batch.call().step as INT),
                "groups" => Dynamic::from_array(batch.groups().map(Dynamic::from).collect()),
                name => Dynamic::from(batch.column(name)?),
            })
        })
        .register_fn("has", |batch: &mut ScriptBatch, name: &str| {
            batch.column(name).is_ok()
        })
        .register_fn(
            "random",
            |context: Context, batch: &mut ScriptBatch, level: &str| {
                let level = level.parse::<Level>();
                let level = level.map_err(|unknown| TensorError::level("random", unknown));
                let level = level.map_err(|error| raise(&context, error))?;
                let random = batch.random(level);
                random.map_err(|problem| raise(&context, problem))
            },
        )
        .register_fn(
            "map_groups",
            |context: Context, batch: &mut ScriptBatch, f: FnPtr| batch.map_groups(&context, &f),
        )
        .register_fn(
            "regroup",
            |context: Context, batch: &mut ScriptBatch, key: Tensor| {
                let regrouped = batch.regroup(&key);
                regrouped.map_err(|problem| raise(&context, problem))
            },
        )
        .register_fn("to_string", |batch: &mut ScriptBatch| summary(batch))
        .register_fn("to_debug", |batch: &mut ScriptBatch| summary(batch));
}

fn summary(batch: &ScriptBatch) -> String {
    batch.frame().look_at();
    let layout = batch.frame().layout();
    let (groups, responses, tokens) = (layout.groups(), layout.responses(), layout.tokens());
    format!("batch of {groups} groups, {responses} responses, {tokens} tokens")
}
