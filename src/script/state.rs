//! A recipe's state: what its hooks see as `this`, over the steps of a run.

use std::fmt;
use std::sync::Arc;

use rhai::{Array, Dynamic, Map};

use super::bind::describe;
pub(super) use super::bind::written;
use super::bounds;
use super::memory::Tables;
use crate::tensor::{Level, Tensor};

/// The memory of a recipe from step to step: numbers, strings, arrays and maps that `init(p)` made and hooks changed.
///
/// A clone shares the content: keeping the state of a step costs nothing.
#[derive(Clone, Debug)]
pub struct State {
    this: Arc<Dynamic>,
    /// What `remember` has put there, by table and key.
    pub(super) tables: Tables,
    /// A step, and how many losses were computed in it. No part of what is saved: that is between steps.
    updates: (u64, u64),
}

impl Default for State {
    /// The state of a recipe without `init`: an empty map.
    fn default() -> Self {
        State {
            this: Arc::new(Dynamic::from_map(Map::new())),
            tables: Tables::default(),
            updates: (0, 0),
        }
    }
}

impl State {
    /// Takes what a hook returned, or left behind as `this`.
    pub(super) fn from_dynamic(value: Dynamic) -> Result<State, Unfit> {
        if !value.is_map() {
            let found = describe(&value);
            return Err(Unfit::new(format!(
                "{found}, and the state is a map, as in `#{{ count: 0 }}`"
            )));
        }
        bounds::check(&value).map_err(|excess| Unfit::new(excess.to_string()))?;
        Ok(State {
            this: Arc::new(plain(value, 0)?),
            tables: Tables::default(),
            updates: (0, 0),
        })
    }

    /// The same with what is remembered by key.
    pub(super) fn with_tables(self, tables: Tables) -> State {
        State { tables, ..self }
    }

    /// The number of losses of a step that were computed with it: each draws other random numbers.
    pub(super) fn updates(&self, step: u64) -> u64 {
        let (of, updates) = self.updates;
        if of == step { updates } else { 0 }
    }

    pub(super) fn set_updates(&mut self, step: u64, updates: u64) {
        self.updates = (step, updates);
    }

    /// What is remembered in a table under a key.
    pub fn recall(&self, table: &str, key: &str) -> Option<f64> {
        self.tables.get(table)?.get(key)
    }

    pub(super) fn to_dynamic(&self) -> Dynamic {
        (*self.this).clone()
    }

    /// The same state, with what another has at its top level and this one has not.
    pub(super) fn with_missing_of(&self, other: &State) -> State {
        let (own, other) = (self.this.read_lock::<Map>(), other.this.read_lock::<Map>());
        let mut whole = other.map_or(Map::new(), |other| other.clone());
        whole.extend(own.map_or(Map::new(), |own| own.clone()));
        State {
            this: Arc::new(whole.into()),
            tables: self.tables.clone(),
            updates: self.updates,
        }
    }
}

/// As a script writes it: `#{ mean: 0.5, seen: [1, 2] }`.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(&self.this))
    }
}

/// The same types with the same bits.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }
}

/// Arrays and maps within one another. A checkpoint's JSON has two levels for a map, and readers stop at 128.
const DEPTH: usize = 32;

/// The most characters of a path that a message shows.
const PATH: usize = 40;

/// A part of a state that cannot be one.
#[derive(Debug)]
pub(super) struct Unfit {
    /// Where it is, from `this` on; the last step first.
    path: Vec<String>,
    why: String,
}

impl Unfit {
    fn new(why: impl Into<String>) -> Unfit {
        Unfit {
            path: Vec::new(),
            why: why.into(),
        }
    }

    fn inside(mut self, step: String) -> Unfit {
        self.path.push(step);
        self
    }

    /// The part of the state that it is in; empty for the state itself.
    pub(super) fn part(&self) -> &str {
        self.path
            .last()
            .map_or("", |step| step.trim_start_matches('.'))
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        // One that is too deep has a path of many steps.
        let (shown, more) = match path.char_indices().nth(PATH) {
            Some((end, _)) => (&path[..end], "..."),
            None => (path.as_str(), ""),
        };
        write!(f, "`this{shown}{more}` is {}", self.why)
    }
}

/// The value free of what it shares with a closure that captured it: a copy of a state must not change with it.
///
/// Refuses what cannot outlive a step: tensors and batches, which belong to one, and functions, which belong to a
/// version; and whatever else a checkpoint could not hold.
fn plain(value: Dynamic, depth: usize) -> Result<Dynamic, Unfit> {
    let mut value = value.flatten();
    if depth > DEPTH {
        return Err(Unfit::new(format!(
            "nested more than {DEPTH} deep, which a checkpoint cannot keep"
        )));
    }
    if let Some(mut map) = value.write_lock::<Map>() {
        for (key, inner) in map.iter_mut() {
            let value = plain(inner.take(), depth + 1);
            *inner = value.map_err(|unfit| unfit.inside(format!(".{key}")))?;
        }
    } else if let Some(mut array) = value.write_lock::<Array>() {
        for (index, inner) in array.iter_mut().enumerate() {
            let value = plain(inner.take(), depth + 1);
            *inner = value.map_err(|unfit| unfit.inside(format!("[{index}]")))?;
        }
    } else if let Some(tensor) = value.read_lock::<Tensor>() {
        return Err(match tensor.level() {
            Level::Batch => Unfit::new(
                "a batch tensor, which belongs to one batch: keep its number, `x.value()`",
            ),
            level => Unfit::new(format!(
                "a {level} tensor, which belongs to one batch: keep a number, as in \
                 `x.mean(\"batch\").value()`"
            )),
        });
    } else if !["i64", "f64", "bool", "char", "string", "()"].contains(&value.type_name()) {
        let found = describe(&value);
        return Err(Unfit::new(format!(
            "{found}, which cannot be kept from step to step"
        )));
    }
    Ok(value)
}
