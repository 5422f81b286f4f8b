//! The batch as scripts see it: columns as properties, and methods for groups, keys, and random numbers.

mod columns;
mod groups;
mod keys;
mod map_groups;

use std::any::TypeId;

use rhai::{Array, Dynamic, FnPtr, INT, ImmutableString, Module, NativeCallContext as Context};

pub(crate) use columns::{OLD_FOR_LOGP, ScriptBatch};

use crate::script::engine::{add, add_raw, add_type};
use crate::script::error::{CallError, Raised, located};
use crate::script::limits::ENOUGH;
use crate::script::value::{as_tensor, describe, level_of};
use crate::tensor::{Level, Tensor, TensorError, op};

impl ScriptBatch {
    /// Draws random numbers or, if there is a column `random` at that level, returns this column, so that a recipe can reproduce
    /// another program's results.
    fn random(&self, level: Level) -> Result<Tensor, CallError> {
        if self.has("random") {
            let given = self.column("random")?;
            if given.level() == level {
                return Ok(given);
            }
        }
        Ok(Tensor::random(self.frame(), level, self.call().next_key()))
    }

    /// Draws `k` random responses of each cell of a level, or all responses of a cell with fewer than `k`. The result is 1 for
    /// the drawn responses, and 0 for the others.
    fn subset(&self, level: &str, k: &Dynamic) -> Result<Tensor, CallError> {
        let level = level_of("subset", level)?;
        let k = as_tensor(k).ok_or_else(|| {
            TensorError::argument("subset", "k", "a number or a tensor", &describe(k))
        })?;
        Ok(op::subset(&self.random(Level::Response)?, level, &k)?)
    }
}

pub(in crate::script) fn batch_type(module: &mut Module) {
    type Batch = ScriptBatch;
    add_type(module, "batch", summary, &[]);
    module.set_indexer_get_fn(|batch: &mut Batch, name: ImmutableString| {
        Raised::Ok(match name.as_str() {
            // The conversion is exact, because steps are far below 2^63.
            "step" => Dynamic::from_int(batch.call().step as INT),
            "key" if !batch.has(&name) => Dynamic::from(batch.own_key()?),
            "groups" => batch.groups().take(ENOUGH).map(Dynamic::from).collect(),
            name => Dynamic::from(batch.column(name)?),
        })
    });
    add(module, "has", |batch: &mut Batch, name: &str| {
        matches!(batch.find(name), Ok(Some(_)))
    });
    add(module, "columns", |batch: &mut Batch, start: &str| {
        let mut names = batch.column_names().0;
        names.retain(|name| name.starts_with(start));
        names.sort();
        names.into_iter().map(Dynamic::from).collect::<Array>()
    });
    add(module, "column", |batch: &mut Batch, name: &str| {
        Raised::Ok(batch.column(name)?)
    });
    add(module, "with", Batch::with_columns);
    let random = |context: Context, batch: &mut Batch, level: &str| {
        let level = level_of("random", level);
        located(&context, level.and_then(|level| batch.random(level)))
    };
    add(module, "random", random);
    let subset = |context: Context, batch: &mut Batch, level: &str, k: Dynamic| {
        located(&context, batch.subset(level, &k))
    };
    add(module, "subset", subset);
    let map_groups = |context: Context, batch: &mut Batch, f: FnPtr| batch.map_groups(&context, &f);
    add(module, "map_groups", map_groups);
    for (name, across) in [("regroup", false), ("group_by", true)] {
        let regroup = move |context: Context, batch: &mut Batch, by: Dynamic| {
            located(&context, batch.regroup(&by, across))
        };
        add(module, name, regroup);
    }
    // Registers `batch.key(NAME, ...)`, which takes one to three names, or an array of names.
    for count in 1..=3 {
        let mut types = vec![TypeId::of::<Batch>()];
        types.resize(1 + count, TypeId::of::<Dynamic>());
        add_raw(module, "key", &types, |context, args| {
            let batch = args[0].clone_cast::<Batch>();
            let key = match args[1].read_lock::<Array>().filter(|_| args.len() == 2) {
                Some(names) => batch.key_of_names(names.iter()),
                None => batch.key_of_names(args[1..].iter().map(|name| &**name)),
            };
            located(context, key.map(Dynamic::from))
        });
    }
}

fn summary(batch: &ScriptBatch) -> Result<Dynamic, CallError> {
    batch.frame().note_inspected();
    let layout = batch.frame().layout();
    let (groups, responses, tokens) = (layout.groups(), layout.responses(), layout.tokens());
    Ok(format!("batch of {groups} groups, {responses} responses, {tokens} tokens").into())
}
