//! Keys: what tells responses apart by name, such as an agent or a prompt; and what is remembered by key.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use rhai::{Array, Dynamic, Engine, INT, ImmutableString, NativeCallContext};

use super::bind::{describe, number};
use super::call::Call;
use super::error::{CallError, Raised, raise};
use super::memory::{MAX_KEYS, Table};
use super::mistake::Mistake;
use crate::tensor::op::{self, Argument};
use crate::tensor::{Frame, Level, Tensor, TensorError};

/// A text per response: from a column, the group's name, or several of them joined.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// The index of each response's name, at response level.
    pub(super) codes: Tensor,
    pub(super) names: Arc<[Arc<str>]>,
    pub(super) call: Arc<Call>,
}

impl Key {
    /// The key with these texts of all responses.
    pub(super) fn of(
        frame: &Arc<Frame>,
        call: &Arc<Call>,
        texts: impl Iterator<Item = Arc<str>>,
    ) -> Key {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
        let codes = texts.map(|text| {
            // There are far fewer names than 2^53.
            *seen.entry(text).or_insert_with_key(|text| {
                names.push(text.clone());
                names.len() - 1
            }) as f64
        });
        Key {
            codes: Tensor::of_responses(frame, codes.collect()),
            names: names.into(),
            call: call.clone(),
        }
    }

    /// The text of each response.
    pub(super) fn texts(&self) -> Result<Vec<Arc<str>>, TensorError> {
        let codes = self.codes.evaluate()?;
        Ok(codes.iter().map(|code| self.name(code)).collect())
    }

    /// The name with a code, which is its index.
    pub(super) fn name(&self, code: f64) -> Arc<str> {
        self.names[code as usize].clone()
    }

    fn frame(&self) -> &Arc<Frame> {
        let Some(frame) = self.codes.frame() else {
            unreachable!("a key is one of a batch");
        };
        frame
    }

    /// 1 for the responses that have a name, 0 for the others.
    fn is(&self, other: &Dynamic) -> Result<Tensor, CallError> {
        if let Some(other) = other.read_lock::<Key>() {
            // As codes of this key; a name that it does not have has no code.
            let own = self.names.iter().enumerate();
            let own: HashMap<&Arc<str>, usize> = own.map(|(code, name)| (name, code)).collect();
            let code = |name: &Arc<str>| own.get(name).map_or(-1.0, |code| *code as f64);
            let codes: Vec<f64> = other.names.iter().map(code).collect();
            let of_other = other.codes.evaluate()?;
            let in_own = of_other.iter().map(|at| codes[at as usize]);
            let theirs = Tensor::of_responses(other.frame(), in_own.collect());
            return Ok(equal(&self.codes, &theirs)?);
        }
        let text = match (other.read_lock::<ImmutableString>(), number(other)) {
            (Some(text), _) => text.to_string(),
            (None, Some(number)) => number.to_string(),
            _ => {
                let found = &describe(other);
                return Err(Mistake::KeyCompared { found }.into());
            }
        };
        let code = self.names.iter().position(|name| **name == *text);
        let code = code.map_or(-1.0, |code| code as f64);
        Ok(equal(&self.codes, &Tensor::number(code))?)
    }
}

fn equal(a: &Tensor, b: &Tensor) -> Result<Tensor, TensorError> {
    let Some(row) = op::table().find(|op| op.name == "==") else {
        unreachable!("the op table has `==`");
    };
    row.apply(&[Argument::Tensor(a.clone()), Argument::Tensor(b.clone())])
}

/// The type of keys, and what is remembered by them.
pub(super) fn key_type(engine: &mut Engine) {
    type Context<'a> = NativeCallContext<'a>;
    let is = |context: &Context, key: &Key, other: &Dynamic, sign: &str| {
        let is = key.is(other);
        let is = is.and_then(|is| match sign {
            "!=" => Ok(equal(&is, &Tensor::number(0.0))?),
            _ => Ok(is),
        });
        is.map_err(|problem| raise(context, problem))
    };
    engine.register_type_with_name::<Key>("key");
    for sign in ["==", "!="] {
        engine
            .register_fn(sign, move |context: Context, key: Key, other: Dynamic| {
                is(&context, &key, &other, sign)
            })
            .register_fn(
                sign,
                move |context: Context, other: ImmutableString, key: Key| {
                    is(&context, &key, &Dynamic::from(other), sign)
                },
            );
    }
    engine
        .register_fn("len", |key: &mut Key| {
            key.texts().map_or(0, |all| all.len() as INT)
        })
        .register_fn("values", |context: Context, key: &mut Key| {
            let texts = key.texts().map_err(|error| raise(&context, error))?;
            let texts = texts.iter().map(|text| Dynamic::from(text.to_string()));
            Raised::Ok(texts.collect::<Array>())
        })
        .register_fn("to_string", |key: &mut Key| summary(key))
        .register_fn("to_debug", |key: &mut Key| summary(key))
        .register_fn(
            "recall",
            |context: Context, table: &str, key: Key, start: Dynamic| {
                recall(table, &key, &start).map_err(|problem| raise(&context, problem))
            },
        );
    // `remember(table, key, value)` and `running(table, key, a, b, c)`, each also with a number of keys as the last argument.
    let (text, key) = (TypeId::of::<ImmutableString>(), TypeId::of::<Key>());
    for (name, count) in [("remember", 1), ("running", 3)] {
        for last in [None, Some(TypeId::of::<INT>())] {
            let values = std::iter::repeat_n(TypeId::of::<Dynamic>(), count);
            let types = [text, key].into_iter().chain(values).chain(last);
            let types: Vec<TypeId> = types.collect();
            engine.register_raw_fn(name, types, move |context, args| {
                let before = write(args, count).map_err(|problem| raise(&context, problem))?;
                Ok(match name {
                    "running" => Dynamic::from(before),
                    _ => Dynamic::UNIT,
                })
            });
        }
    }
}

fn summary(key: &Key) -> String {
    const SHOWN: usize = 8;
    let texts = key.texts().unwrap_or_default();
    let mut shown: Vec<&str> = texts.iter().take(SHOWN).map(|text| &**text).collect();
    let more = format!("... {} more", texts.len().saturating_sub(SHOWN));
    shown.extend((texts.len() > SHOWN).then_some(&*more));
    format!("key [{}]", shown.join(", "))
}

/// A tensor or a number, as one value per response of the key.
fn of_responses(key: &Key, value: &Dynamic) -> Result<Vec<f64>, CallError> {
    let tensor = match (value.read_lock::<Tensor>(), number(value)) {
        (Some(tensor), _) => Some(tensor.clone()),
        (None, number) => number.map(Tensor::number),
    };
    let Some(tensor) = tensor.filter(|tensor| tensor.level().contains(Level::Response)) else {
        let found = &describe(value);
        return Err(Mistake::KeyValue { found }.into());
    };
    // Through the codes, so that it is one value per response of their batch, or an error.
    let sum = op::add(&tensor, &op::mul(&key.codes, &Tensor::number(0.0))?)?;
    Ok(sum.evaluate()?.iter().collect())
}

fn recall(table: &str, key: &Key, start: &Dynamic) -> Result<Tensor, CallError> {
    let (texts, start) = (key.texts()?, of_responses(key, start)?);
    // The result depends on the group.
    key.call.report(|reports| reports.said += 1);
    let known = key.call.tables(|tables| tables.get(table).cloned());
    let value = |(text, start): (&Arc<str>, f64)| {
        let known = known.as_ref().and_then(|table| table.get(text));
        known.unwrap_or(start)
    };
    let values = texts.iter().zip(start).map(value).collect();
    Ok(Tensor::of_responses(key.frame(), values))
}

/// `remember`, of one value per response, or `running`, of three. Writes response by response in batch order, and gives the
/// values before, or for a new key the response's first value. Nothing is written if a new value is not finite.
fn write(args: &[&mut Dynamic], count: usize) -> Result<Tensor, CallError> {
    let (Some(name), Some(key)) = (
        args[0].read_lock::<ImmutableString>(),
        args[1].read_lock::<Key>(),
    ) else {
        unreachable!("the function is registered for a string and a key");
    };
    let most = match args.get(2 + count).map(|most| most.as_int()) {
        None => Some(MAX_KEYS),
        Some(most) => most.ok().and_then(|most| usize::try_from(most).ok()),
    };
    let Some(most) = most.filter(|most| *most > 0) else {
        return Err(Mistake::TableBound.into());
    };
    let columns = args[2..2 + count].iter();
    let columns = columns.map(|value| of_responses(&key, value));
    let columns: Vec<Vec<f64>> = columns.collect::<Result<_, _>>()?;
    let known = key.call.tables(|tables| tables.get(&name).cloned());
    let mut table: Arc<Table> = known.unwrap_or_default();
    let writing = Arc::make_mut(&mut table);
    let mut before = Vec::new();
    for (response, text) in key.texts()?.iter().enumerate() {
        let first = columns[0][response];
        let old = writing.update(text, |old| {
            let new = match &columns[..] {
                [_, factor, summand] => factor[response] * old.unwrap_or(first) + summand[response],
                _ => first,
            };
            if new.is_finite() {
                return Ok(new);
            }
            let response = &key.frame().layout().describe(Level::Response, response);
            let value = &new.to_string();
            Err(CallError::from(Mistake::NotRemembered { value, response }))
        })?;
        before.push(old.unwrap_or(first));
    }
    let is_full = writing.bound(most);
    key.call.report(|reports| {
        reports.said += 1;
        reports.notes.extend(is_full.then(|| {
            format!(
                "\"{}\" has had more than {most} keys: those written longest ago are forgotten",
                name.as_str()
            )
        }));
    });
    let kept = key.call.tables(|tables| tables.insert(&name, table));
    kept.map_err(|bound| {
        let table: String = name.chars().take(40).collect();
        let (table, bound) = (&table, &bound);
        CallError::from(Mistake::MemoryFull { table, bound })
    })?;
    Ok(Tensor::of_responses(key.frame(), before.into()))
}
