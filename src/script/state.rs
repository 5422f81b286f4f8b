//! A recipe's state: what its hooks see as `this`, over the steps of a run.

use std::fmt;
use std::sync::Arc;

use rhai::{Array, Dynamic, ImmutableString, Map};

use super::held::{self, Excess};
use super::sandbox::MAP_ENTRIES;
use crate::tensor::{Level, Tensor};

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
    /// The state that a hook returned, or left behind as `this`; or what is wrong with it.
    pub(super) fn from_dynamic(value: Dynamic) -> Result<State, Unfit> {
        let unfit = |why: String| Unfit {
            path: String::new(),
            why,
        };
        if !value.is_map() {
            let found = super::bind::describe(&value);
            return Err(unfit(format!(
                "{found}, and the state is a map, as in `#{{ count: 0 }}`"
            )));
        }
        held::check(&value).map_err(|excess| {
            unfit(match excess {
                Excess::Depth => "a map with too many others in one another".to_string(),
                Excess::Entries => format!("a map with more than {MAP_ENTRIES} entries in it"),
                Excess::Bytes => format!("a map with more than {} MiB in it", held::BYTES >> 20),
            })
        })?;
        Ok(State(Arc::new(plain(value, 0)?)))
    }

    pub(super) fn to_dynamic(&self) -> Dynamic {
        (*self.0).clone()
    }

    /// The same state, with what another has at its top level and this one has not.
    pub(super) fn with_missing_of(&self, other: &State) -> State {
        let (Some(own), Some(other)) = (self.0.read_lock::<Map>(), other.0.read_lock::<Map>())
        else {
            return self.clone();
        };
        let mut missing = other
            .iter()
            .filter(|(key, _)| !own.contains_key(*key))
            .peekable();
        if missing.peek().is_none() {
            return self.clone();
        }
        let mut whole = own.clone();
        whole.extend(missing.map(|(key, value)| (key.clone(), value.clone())));
        State(Arc::new(Dynamic::from_map(whole)))
    }
}

/// As a script writes it: `#{ mean: 0.5, seen: [1, 2] }`.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(f, &self.0)
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, value: &Dynamic) -> fmt::Result {
    if let Some(map) = value.read_lock::<Map>() {
        f.write_str("#{")?;
        for (place, (key, value)) in map.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma} {key}: ")?;
            write_value(f, value)?;
        }
        return f.write_str(if map.is_empty() { "}" } else { " }" });
    }
    if let Some(array) = value.read_lock::<Array>() {
        f.write_str("[")?;
        for (place, value) in array.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { ", " })?;
            write_value(f, value)?;
        }
        return f.write_str("]");
    }
    match value.read_lock::<ImmutableString>() {
        Some(text) => write!(f, "{:?}", text.as_str()),
        None => write!(f, "{value}"),
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
    if let (Ok(a), Ok(b)) = (a.as_char(), b.as_char()) {
        return a == b;
    }
    match (a.as_int(), b.as_int(), a.as_bool(), b.as_bool()) {
        (Ok(a), Ok(b), ..) => a == b,
        (_, _, Ok(a), Ok(b)) => a == b,
        _ => a.is_unit() && b.is_unit(),
    }
}

/// Arrays and maps within one another. A checkpoint's JSON has two levels for a map, and readers stop at 128.
const DEPTH: usize = 32;

/// The most characters of a path that a message shows.
const PATH: usize = 40;

/// A part of a state that cannot be one.
#[derive(Debug)]
pub(super) struct Unfit {
    /// Where it is, from `this` on.
    path: String,
    why: String,
}

impl Unfit {
    /// The part of the state that it is in; empty for the state itself.
    pub(super) fn part(&self) -> &str {
        let path = self.path.trim_start_matches('.');
        path.split(['.', '[']).next().unwrap_or("")
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One that is too deep has a path of many steps.
        let shown: String = self.path.chars().take(PATH).collect();
        let more = if shown.len() < self.path.len() {
            "..."
        } else {
            ""
        };
        write!(f, "`this{shown}{more}` is {}", self.why)
    }
}

impl Unfit {
    fn inside(self, step: impl std::fmt::Display) -> Unfit {
        Unfit {
            path: format!("{step}{}", self.path),
            ..self
        }
    }
}

/// The value free of what it shares with a closure that captured it: a copy of a state must not change with it.
///
/// Refuses what cannot outlive a step: tensors and batches, which belong to one, and functions, which belong to a
/// version; and whatever else a checkpoint could not hold.
fn plain(value: Dynamic, depth: usize) -> Result<Dynamic, Unfit> {
    let mut value = value.flatten();
    if depth > DEPTH {
        let path = String::new();
        let why = format!("more than {DEPTH} deep in the state, which a checkpoint cannot keep");
        return Err(Unfit { path, why });
    }
    if let Some(mut map) = value.write_lock::<Map>() {
        for (key, inner) in map.iter_mut() {
            *inner =
                plain(inner.take(), depth + 1).map_err(|unfit| unfit.inside(format!(".{key}")))?;
        }
    } else if let Some(mut array) = value.write_lock::<Array>() {
        for (place, inner) in array.iter_mut().enumerate() {
            *inner = plain(inner.take(), depth + 1)
                .map_err(|unfit| unfit.inside(format!("[{place}]")))?;
        }
    } else if let Some(why) = unfit(&value) {
        let path = String::new();
        return Err(Unfit { path, why });
    }
    Ok(value)
}

fn unfit(value: &Dynamic) -> Option<String> {
    if let Some(tensor) = value.read_lock::<Tensor>() {
        let how = match tensor.level() {
            Level::Batch => "keep its number, `x.value()`",
            _ => "keep a number, as in `x.mean(\"batch\").value()`",
        };
        let level = tensor.level();
        return Some(format!(
            "a {level} tensor, which belongs to one batch: {how}"
        ));
    }
    let lasts = value.is_int()
        || value.is_float()
        || value.is_bool()
        || value.is_char()
        || value.is_string()
        || value.is_unit();
    let what = super::bind::describe(value);
    (!lasts).then(|| format!("{what}, which does not last"))
}
