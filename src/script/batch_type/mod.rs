//! The batch as scripts see it: columns as properties, derived ones among them, groups, and random numbers.

mod columns;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rhai::{Array, Dynamic, Engine, EvalAltResult, FnPtr, INT, ImmutableString, NativeCallContext};

use super::bind::{describe, number};
use super::call::Call;
use super::error::{Problem, origin, raise};
use super::host::Host;
use crate::batch::Batch;
use crate::tensor::op;
use crate::tensor::{Frame, Level, Tensor, TensorError};

type Outcome<T> = Result<T, Box<EvalAltResult>>;

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

/// Columns that follow from others where the batch has not its own.
const DERIVED: [&str; 5] = ["reward", "token_reward", "correct", "logp", "length"];

impl ScriptBatch {
    /// A whole batch, in one call of a host.
    pub(super) fn new(host: &Host, call: Arc<Call>, batch: &Batch) -> Self {
        let (guard, executor) = (call.guard.clone(), host.executor.clone());
        let frame = Frame::new(batch.layout().clone(), batch.is_f64(), guard, executor);
        let (batch, given) = (batch.clone(), BTreeMap::new());
        ScriptBatch::over(frame, call, Source::Whole { batch, given })
    }

    /// The same whole batch, with columns that stand above its own: a shaped reward, the advantage.
    pub(super) fn with(&self, given: BTreeMap<&'static str, Tensor>) -> Self {
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

    pub(super) fn frame(&self) -> &Arc<Frame> {
        &self.0.frame
    }

    pub(super) fn call(&self) -> &Arc<Call> {
        &self.0.call
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
        let value = op::expand(key, Level::Response)?.evaluate()?;
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
                    return Err(TensorError::different_batches(
                        "map_groups",
                        part.level(),
                        level,
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
                    .map_err(|unknown| raise(&context, TensorError::level("random", unknown)))?;
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
