//! Keys, which name each response, for example by its agent or prompt; and the functions for values remembered by key.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use rhai::{Dynamic, INT, ImmutableString, Module, NativeCallContext as Context};

use crate::script::call::CallContext;
use crate::script::engine::{Method, add, add_raw, add_type};
use crate::script::error::{CallError, located};
use crate::script::limits::{ENOUGH, TABLE_KEYS};
use crate::script::remembered::Table;
use crate::script::value::{as_tensor, describe, in_brackets, number, text};
use crate::tensor::op::{self, Argument};
use crate::tensor::{Frame, GroupKey, Level, Reservation, Tensor, TensorError, Trace};

/// The number of bytes that a name takes in addition to its text.
const NAME_BYTES: usize = 48;

/// A name for each response: its text or number in a column, the name of its group, or several of these joined.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// The index of each response's name in `names`, at response level.
    pub(in crate::script) codes: Tensor,
    pub(in crate::script) names: Arc<[Arc<str>]>,
    /// The columns from which a script made the key.
    pub(in crate::script) columns: Arc<[GroupKey]>,
    pub(in crate::script) call: Arc<CallContext>,
    _reservation: Option<Arc<Reservation>>,
}

impl Key {
    /// Makes a key from the texts of all responses.
    pub(in crate::script) fn of(
        frame: &Arc<Frame>,
        call: &Arc<CallContext>,
        texts: impl Iterator<Item = Arc<str>>,
    ) -> Result<Key, TensorError> {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
        let codes = texts.map(|text| {
            // The conversion of the index to a float is exact, because there are far fewer than 2^53 names.
            *seen.entry(text).or_insert_with_key(|text| {
                names.push(text.clone());
                names.len() - 1
            }) as f64
        });
        let codes = Tensor::of_responses(frame, codes.collect())?;
        let texts: usize = names.iter().map(|name| NAME_BYTES + name.len()).sum();
        Ok(Key {
            codes,
            names: names.into(),
            columns: Arc::default(),
            call: call.clone(),
            _reservation: call.guard().hold(texts).map(Arc::new),
        })
    }

    /// Returns the name of each response.
    pub(in crate::script) fn texts(&self) -> Result<Vec<Arc<str>>, TensorError> {
        let codes = self.codes.evaluate()?;
        Ok(codes.iter().map(|code| self.name(code)).collect())
    }

    /// Returns the name at the index `code`.
    pub(in crate::script) fn name(&self, code: f64) -> Arc<str> {
        self.names[code as usize].clone()
    }

    fn frame(&self) -> &Arc<Frame> {
        self.codes.frame().expect("a key belongs to a batch")
    }

    /// Compares each response's name, by `==` or `!=`, with a text, with a number, or with the response's name in another key.
    /// The values of the result are 1 and 0.
    fn compare(&self, sign: &str, other: &Dynamic) -> Result<Tensor, CallError> {
        let row = op::table()
            .find(|op| op.name == sign)
            .expect("the op table has `==` and `!=`");
        let own: HashMap<&str, usize> = self
            .names
            .iter()
            .enumerate()
            .map(|(code, name)| (&**name, code))
            .collect();
        // A name that is missing in this key gets a code that no response has.
        let code = |name: &str| own.get(name).map_or(-1.0, |code| *code as f64);
        let (other, name) = match (other.read_lock::<Key>(), text(other), number(other)) {
            (Some(other), ..) => {
                let codes: Vec<f64> = other.names.iter().map(|name| code(name)).collect();
                let theirs = other.codes.evaluate()?;
                let codes = theirs.iter().map(|theirs| codes[theirs as usize]);
                let theirs = Tensor::of_responses(other.frame(), codes.collect())?;
                (Argument::Tensor(theirs), None)
            }
            (_, Some(name), _) => (Argument::Number(code(&name)), Some(format!("{name:?}"))),
            (.., Some(number)) => {
                let name = number.to_string();
                (Argument::Number(code(&name)), Some(name))
            }
            _ => {
                let found = describe(other);
                let message = format!(
                    "a key can be compared with a text, a number or a key, not with {found}"
                );
                let help = "as in `batch.key(\"agent\") == \"solver\"`";
                return Err(CallError::new(message, help));
            }
        };
        let result = row.apply(&[Argument::Tensor(self.codes.clone()), other])?;
        if let Some((trace, name)) = Trace::of(result.frame()).zip(name) {
            trace.note_compared(&result, name);
        }
        Ok(result)
    }
}

/// Registers the type of keys, and the functions for values remembered by key.
pub(in crate::script) fn key_type(module: &mut Module) {
    let methods: [(&str, Method<Key>); 2] = [
        ("len", |key| Ok((key.texts()?.len() as INT).into())),
        ("values", |key| {
            let texts = key
                .texts()?
                .into_iter()
                .map(|text| Dynamic::from(text.to_string()));
            Ok(texts.take(ENOUGH).collect())
        }),
    ];
    add_type(module, "key", summary, &methods);
    let recall = |context: Context, table: &str, key: Key, start: Dynamic| {
        located(&context, recall(table, &key, &start))
    };
    add(module, "recall", recall);
    for sign in ["==", "!="] {
        let with_any = move |context: Context, key: &mut Key, other: Dynamic| {
            located(&context, key.compare(sign, &other))
        };
        let with_name = move |context: Context, name: ImmutableString, key: Key| {
            located(&context, key.compare(sign, &name.into()))
        };
        add(module, sign, with_any);
        add(module, sign, with_name);
    }
    // Registers `remember(table, key, value)` and `running(table, key, a, b, c)`, both also with the maximum number of keys as an
    // additional last argument.
    let (text, key) = (TypeId::of::<ImmutableString>(), TypeId::of::<Key>());
    let (any, most) = (TypeId::of::<Dynamic>(), TypeId::of::<INT>());
    for (name, count, types) in [
        ("remember", 1, &[text, key, any][..]),
        ("remember", 1, &[text, key, any, most]),
        ("running", 3, &[text, key, any, any, any]),
        ("running", 3, &[text, key, any, any, any, most]),
    ] {
        add_raw(module, name, types, move |context, args| {
            let before = located(context, write(args, count))?;
            Ok(match count {
                1 => Dynamic::UNIT,
                _ => Dynamic::from(before),
            })
        });
    }
}

fn summary(key: &Key) -> Result<Dynamic, CallError> {
    let texts = key.texts()?;
    let names = texts.iter().map(|text| text.to_string());
    Ok(in_brackets("key", texts.len(), names).into())
}

/// Expands a tensor or a number to one value per response of a batch. Fails for a tensor of another batch, or at token or
/// position level.
pub(in crate::script) fn of_responses(
    frame: &Arc<Frame>,
    value: &Dynamic,
) -> Result<Vec<f64>, CallError> {
    let tensor = as_tensor(value).filter(|tensor| tensor.level().contains(Level::Response));
    let Some(tensor) = tensor else {
        let found = describe(value);
        let message = format!("a response tensor or a number is needed here, not {found}");
        let help = "reduce a token tensor first, as in `x.mean(\"response\")`; a text column is `batch.key(\"agent\")`";
        return Err(CallError::new(message, help));
    };
    let zeros = vec![0.0; frame.layout().responses()];
    let sum = op::add(&tensor, &Tensor::of_responses(frame, zeros)?)?;
    Ok(sum.evaluate()?.iter().collect())
}

fn recall(table: &str, key: &Key, start: &Dynamic) -> Result<Tensor, CallError> {
    let (texts, start) = (key.texts()?, of_responses(key.frame(), start)?);
    let known = key.call.effects().tables.get(table).cloned();
    let value = |(text, start): (&Arc<str>, f64)| {
        let known = known.as_ref().and_then(|table| table.get(text));
        known.unwrap_or(start)
    };
    let values = texts.iter().zip(start).map(value).collect();
    Ok(Tensor::of_responses(key.frame(), values)?)
}

/// Computes `remember` (`count` is 1: one value per response) or `running` (`count` is 3: three values per response). Writes a
/// value for each response, in batch order, and returns the value that its key had before; for a new key, the first of the
/// response's given values. If the table exceeds its maximum number of keys, the keys written longest ago are forgotten. If a new
/// value is not finite, nothing is written.
fn write(args: &[&mut Dynamic], count: usize) -> Result<Tensor, CallError> {
    let (Some(name), Some(key)) = (text(args[0]), args[1].read_lock::<Key>()) else {
        unreachable!("the function is registered for a string and a key");
    };
    let most = match args.get(2 + count).map(|most| most.as_int()) {
        None => Some(TABLE_KEYS),
        Some(most) => most.ok().and_then(|most| usize::try_from(most).ok()),
    };
    let Some(most) = most.filter(|most| *most > 0) else {
        let message = "the maximum number of keys must be at least 1";
        return Err(CallError::new(
            message,
            "omit the argument for the default, 200000",
        ));
    };
    let columns: Vec<Vec<f64>> = args[2..2 + count]
        .iter()
        .map(|value| of_responses(key.frame(), value))
        .collect::<Result<_, _>>()?;
    let known = key.call.effects().tables.get(&name).cloned();
    let mut table: Arc<Table> = known.unwrap_or_default();
    let writing = Arc::make_mut(&mut table);
    let mut before = Vec::new();
    for (response, text) in key.texts()?.iter().enumerate() {
        let first = columns[0][response];
        let old = writing.get(text).unwrap_or(first);
        let new = match &columns[..] {
            [_, factor, summand] => factor[response] * old + summand[response],
            _ => first,
        };
        if !new.is_finite() {
            let response = key.frame().layout().describe(Level::Response, response);
            let message = format!("{new} cannot be remembered, at {response}");
            let help = "`where(is_finite(x), x, 0)` replaces it with 0";
            return Err(CallError::new(message, help));
        }
        writing.set(text, new);
        before.push(old);
    }
    let is_full = writing.bound(most);
    let mut effects = key.call.effects();
    effects.said += 1;
    if is_full {
        effects.note(format!(
            "\"{name}\" has had more than {most} keys: the keys written longest ago are forgotten"
        ));
    }
    let kept = effects.tables.insert(&name, table);
    kept.map_err(|bound| {
        let table: String = name.chars().take(40).collect();
        let message = format!("with the table \"{table}\", the remembered values would exceed {bound}");
        let help = format!(
            "does each step use a new key or a new table? With a maximum number of keys, a table forgets its oldest keys: \
             `remember(\"{table}\", key, x, 1000)`"
        );
        CallError::new(message, help)
    })?;
    Ok(Tensor::of_responses(key.frame(), before)?)
}
