//! A recipe's state: what its hooks see as `this`, over the steps of a run.

use std::sync::Arc;

use rhai::{Array, Dynamic, FnPtr, ImmutableString, Map};

use super::batch_type::ScriptBatch;
use crate::tensor::Tensor;

/// What a recipe remembers from step to step: numbers, texts, arrays and maps that `init(p)` made and hooks changed.
///
/// A clone shares the content: keeping the state of a step costs nothing.
#[derive(Clone, Debug)]
pub struct State(Arc<Dynamic>);

impl Default for State {
    /// The state of a recipe without `init`: an empty map.
    fn default() -> Self {
        State(Arc::new(Dynamic::from_map(Map::new())))
    }
}

impl State {
    /// The state that `init` or `migrate` returned, or what is wrong with it.
    pub(super) fn from_dynamic(value: Dynamic) -> Result<State, String> {
        if !value.is_map() {
            return Err(format!(
                "the state must be a map, as in `#{{ count: 0 }}`, this is {}",
                super::bind::describe(&value)
            ));
        }
        check(&value, "this")?;
        Ok(State(Arc::new(value)))
    }

    /// The state with what a hook made of it, or why it cannot be kept.
    pub(super) fn checked(value: Dynamic) -> Result<State, String> {
        check(&value, "this")?;
        Ok(State(Arc::new(value)))
    }

    pub(super) fn to_dynamic(&self) -> Dynamic {
        (*self.0).clone()
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

fn same(a: &Dynamic, b: &Dynamic) -> bool {
    if let (Some(a), Some(b)) = (a.read_lock::<Map>(), b.read_lock::<Map>()) {
        return a.len() == b.len()
            && a.iter()
                .all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)));
    }
    if let (Some(a), Some(b)) = (a.read_lock::<Array>(), b.read_lock::<Array>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same(a, b));
    }
    if let (Ok(a), Ok(b)) = (a.as_float(), b.as_float()) {
        return a.to_bits() == b.to_bits();
    }
    if let (Some(a), Some(b)) = (
        a.read_lock::<ImmutableString>(),
        b.read_lock::<ImmutableString>(),
    ) {
        return *a == *b;
    }
    match (a.as_int(), b.as_int(), a.as_bool(), b.as_bool()) {
        (Ok(a), Ok(b), ..) => a == b,
        (_, _, Ok(a), Ok(b)) => a == b,
        _ => a.is_unit() && b.is_unit(),
    }
}

/// Refuses what cannot outlive a step: tensors and batches, which belong to one, and functions, which belong to a version.
fn check(value: &Dynamic, path: &str) -> Result<(), String> {
    if let Some(map) = value.read_lock::<Map>() {
        return map
            .iter()
            .try_for_each(|(key, value)| check(value, &format!("{path}.{key}")));
    }
    if let Some(array) = value.read_lock::<Array>() {
        return array
            .iter()
            .enumerate()
            .try_for_each(|(i, value)| check(value, &format!("{path}[{i}]")));
    }
    if let Some(tensor) = value.read_lock::<Tensor>() {
        let how = match tensor.level() {
            crate::tensor::Level::Batch => "keep its number, `x.value()`".to_string(),
            level => format!(
                "a {level} tensor belongs to one batch; keep a number, as in `x.mean(\"batch\").value()`"
            ),
        };
        return Err(format!(
            "`{path}` is a tensor, and the state lasts over steps: {how}"
        ));
    }
    if value.is::<ScriptBatch>() || value.is::<FnPtr>() {
        return Err(format!(
            "`{path}` is {}, and the state lasts over steps: keep numbers, texts, arrays and maps",
            super::bind::describe(value)
        ));
    }
    Ok(())
}
