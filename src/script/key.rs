//! Keys: what tells responses apart by name, such as an agent or a prompt; and what is remembered by key.

use std::collections::HashMap;
use std::sync::Arc;

use rhai::{Array, Dynamic, Engine, INT, ImmutableString, NativeCallContext};

use super::batch_type::ScriptBatch;
use super::bind::{describe, number};
use super::call::Call;
use super::error::{CallError, Raised, raise};
use super::memory::{MAX_KEYS, Table};
use super::mistake::Mistake;
use crate::tensor::op::{self, Argument};
use crate::tensor::{Frame, Level, Tensor, TensorError};

/// A text for each response: that of a column or of its group, or several put together.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Which of the names each response has, at response level.
    pub(super) codes: Tensor,
    pub(super) names: Arc<[Arc<str>]>,
    pub(super) call: Arc<Call>,
}

impl Key {
    /// The key of the texts of all responses.
    pub(super) fn of(batch: &ScriptBatch, texts: impl Iterator<Item = Arc<str>>) -> Key {
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
            codes: Tensor::of_responses(batch.frame(), codes.collect()),
            names: names.into(),
            call: batch.call().clone(),
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

    /// 1 for the responses that have a name, 0 for the others.
    fn is(&self, other: &Dynamic) -> Result<Tensor, CallError> {
        if let Some(other) = other.read_lock::<Key>() {
            // By the names of this key; where the other one has another name, no code.
            let own = self.names.iter().enumerate();
            let own: HashMap<&Arc<str>, usize> = own.map(|(code, name)| (name, code)).collect();
            let code = |name: &Arc<str>| own.get(name).map_or(-1.0, |code| *code as f64);
            let codes: Vec<f64> = other.names.iter().map(code).collect();
            let of_other = other.codes.evaluate()?;
            let in_own = of_other.iter().map(|at| codes[at as usize]);
            let Some(frame) = other.codes.frame() else {
                unreachable!("a key is one of a batch");
            };
            let theirs = Tensor::of_responses(frame, in_own.collect());
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
    let is = |context: &Context, key: &Key, other: &Dynamic, negated: bool| {
        let is = key.is(other);
        let is = is.and_then(|is| match negated {
            true => Ok(equal(&is, &Tensor::number(0.0))?),
            false => Ok(is),
        });
        is.map_err(|problem| raise(context, problem))
    };
    engine.register_type_with_name::<Key>("key");
    for (sign, negated) in [("==", false), ("!=", true)] {
        engine
            .register_fn(sign, move |context: Context, key: Key, other: Dynamic| {
                is(&context, &key, &other, negated)
            })
            .register_fn(
                sign,
                move |context: Context, other: ImmutableString, key: Key| {
                    is(&context, &key, &Dynamic::from(other), negated)
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
        .register_fn("to_debug", |key: &mut Key| summary(key));
    memory(engine);
}

fn summary(key: &Key) -> String {
    const SHOWN: usize = 8;
    let texts = key.texts().unwrap_or_default();
    let mut shown: Vec<&str> = texts.iter().take(SHOWN).map(|text| &**text).collect();
    let more = format!("... {} more", texts.len().saturating_sub(SHOWN));
    shown.extend((texts.len() > SHOWN).then_some(&*more));
    format!("key [{}]", shown.join(", "))
}

/// `recall`, `remember` and `running`.
fn memory(engine: &mut Engine) {
    type Context<'a> = NativeCallContext<'a>;
    let raised = |context: &Context, result: Result<Tensor, CallError>| {
        result.map_err(|problem| raise(context, problem))
    };
    engine.register_fn(
        "recall",
        move |context: Context, table: &str, key: Key, start: Dynamic| {
            raised(&context, recall(table, &key, &start))
        },
    );
    let remember = move |context: &Context, table: &str, key: &Key, value: &Dynamic, most: INT| {
        let write = Write::of(table, key, most);
        let done = write.and_then(|write| write.rows(&[value], |_, row| row[0]));
        raised(context, done).map(|_| ())
    };
    engine
        .register_fn(
            "remember",
            move |context: Context, table: &str, key: Key, value: Dynamic| {
                remember(&context, table, &key, &value, MAX_KEYS as INT)
            },
        )
        .register_fn(
            "remember",
            move |context: Context, table: &str, key: Key, value: Dynamic, most: INT| {
                remember(&context, table, &key, &value, most)
            },
        );
    let running = move |context: &Context, table: &str, key: &Key, of: [&Dynamic; 3], most: INT| {
        let write = Write::of(table, key, most);
        let next = |old: Option<f64>, row: &[f64]| row[1] * old.unwrap_or(row[0]) + row[2];
        raised(context, write.and_then(|write| write.rows(&of, next)))
    };
    engine
        .register_fn(
            "running",
            move |context: Context, table: &str, key: Key, a: Dynamic, b: Dynamic, c: Dynamic| {
                running(&context, table, &key, [&a, &b, &c], MAX_KEYS as INT)
            },
        )
        .register_fn(
            "running",
            move |context: Context,
                  table: &str,
                  key: Key,
                  a: Dynamic,
                  b: Dynamic,
                  c: Dynamic,
                  most: INT| { running(&context, table, &key, [&a, &b, &c], most) },
        );
}

/// A tensor or a number, one value a response of the key.
fn of_responses(key: &Key, value: &Dynamic) -> Result<Vec<f64>, CallError> {
    let wrong = || {
        let found = &describe(value);
        CallError::from(Mistake::KeyValue { found })
    };
    let tensor = match (value.read_lock::<Tensor>(), number(value)) {
        (Some(tensor), _) => tensor.clone(),
        (None, Some(number)) => Tensor::number(number),
        _ => return Err(wrong()),
    };
    if !tensor.level().contains(Level::Response) {
        return Err(wrong());
    }
    // Through the codes, so that it is one value a response of their batch, or an error.
    let sum = op::add(&tensor, &op::mul(&key.codes, &Tensor::number(0.0))?)?;
    Ok(sum.evaluate()?.iter().collect())
}

fn recall(table: &str, key: &Key, start: &Dynamic) -> Result<Tensor, CallError> {
    let (texts, start) = (key.texts()?, of_responses(key, start)?);
    // What it gives depends on the group.
    key.call.report(|reports| reports.said += 1);
    let known = key.call.tables(|tables| tables.get(table).cloned());
    let value = |(text, start): (&Arc<str>, f64)| {
        let known = known.as_ref().and_then(|table| table.get(text));
        known.unwrap_or(start)
    };
    let values = texts.iter().zip(start).map(value).collect();
    Ok(Tensor::of_responses(frame(key), values))
}

fn frame(key: &Key) -> &Arc<Frame> {
    match key.codes.frame() {
        Some(frame) => frame,
        None => unreachable!("a key is one of a batch"),
    }
}

/// What is about to be written to a table.
struct Write<'a> {
    table: &'a str,
    key: &'a Key,
    most: usize,
}

impl<'a> Write<'a> {
    fn of(table: &'a str, key: &'a Key, most: INT) -> Result<Self, CallError> {
        let most = usize::try_from(most).ok().filter(|most| *most > 0);
        let most = most.ok_or(Mistake::TableBound)?;
        Ok(Write { table, key, most })
    }

    /// Writes, response by response in batch order, what `next` makes of the value before and of the response's own values;
    /// gives the values before. Nothing is written where one of these is not finite.
    fn rows(
        &self,
        values: &[&Dynamic],
        next: impl Fn(Option<f64>, &[f64]) -> f64,
    ) -> Result<Tensor, CallError> {
        let key = self.key;
        let columns = values.iter().map(|value| of_responses(key, value));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let texts = key.texts()?;
        let known = key.call.tables(|tables| tables.get(self.table).cloned());
        let mut table: Arc<Table> = known.unwrap_or_default();
        let writing = Arc::make_mut(&mut table);
        let mut before = Vec::with_capacity(texts.len());
        for (response, text) in texts.iter().enumerate() {
            let row: Vec<f64> = columns.iter().map(|column| column[response]).collect();
            let old = writing.update(text, |old| match next(old, &row) {
                new if new.is_finite() => Ok(new),
                new => {
                    let cell = frame(key).layout().describe(Level::Response, response);
                    let (value, response) = (&new.to_string(), &cell);
                    Err(CallError::from(Mistake::NotRemembered { value, response }))
                }
            })?;
            before.push(old.unwrap_or(row[0]));
        }
        let is_full = writing.bound(self.most);
        key.call.report(|reports| {
            reports.said += 1;
            if is_full {
                reports.notes.push(format!(
                    "\"{}\" has had more than {} keys: those written longest ago are forgotten",
                    self.table, self.most
                ));
            }
        });
        let kept = key.call.tables(|tables| tables.insert(self.table, table));
        kept.map_err(|bound| {
            let table: String = self.table.chars().take(40).collect();
            let (table, bound) = (&table, &bound);
            CallError::from(Mistake::MemoryFull { table, bound })
        })?;
        Ok(Tensor::of_responses(frame(key), before.into()))
    }
}
