//! Registers the ops of the table as script functions, for every mix of tensors and numbers, and the other methods of tensors.

use std::any::TypeId;
use std::sync::Arc;

use rhai::{
    Array, Dynamic, Engine, FLOAT, FuncRegistration, INT, ImmutableString, Map, Module,
    NativeCallContext, RhaiFunc,
};

use super::batch_type::ScriptBatch;
use super::error::{CallError, Raised, origin, raise};
use super::explain::type_in_words;
use super::mistake::Mistake;
use crate::suggest;
use crate::tensor::op::{self, Argument, Class, Kernel, Op, ParamKind};
use crate::tensor::{Level, Tensor, TensorError, TensorErrorKind, Value};

/// The functions of the op table.
pub(super) fn module() -> Module {
    let mut module = Module::new();
    for op in op::table() {
        bind(&mut module, op);
    }
    module
}

/// Registers the type with its methods that are not in the op table: value, length, level, string.
pub(super) fn tensor_type(engine: &mut Engine) {
    type Context<'a> = NativeCallContext<'a>;
    engine
        .register_type_with_name::<Tensor>("tensor")
        .register_get("level", |tensor: &mut Tensor| {
            tensor.level_looked_at().name()
        })
        .register_fn("value", |context: Context, tensor: &mut Tensor| {
            number_of(&context, tensor)
        })
        .register_fn("values", |context: Context, tensor: &mut Tensor| {
            let value = evaluated(&context, tensor)?;
            let values: Array = value.iter().map(Dynamic::from_float).collect();
            Raised::Ok(values)
        })
        .register_fn("len", |context: Context, tensor: &mut Tensor| {
            // A length is below 2^63 as long as memory is.
            Raised::Ok(evaluated(&context, tensor)?.len() as INT)
        })
        .register_indexer_get(|context: Context, tensor: &mut Tensor, index: INT| {
            let value = evaluated(&context, tensor)?;
            let within = usize::try_from(index).ok().filter(|&i| i < value.len());
            within.map(|index| value.get(index)).ok_or_else(|| {
                let wrong = Mistake::TensorIndex {
                    index: &index.to_string(),
                    level: tensor.level().name(),
                    length: &value.len().to_string(),
                };
                raise(&context, wrong)
            })
        });
    for name in ["to_string", "to_debug"] {
        engine.register_fn(name, |context: Context, tensor: &mut Tensor| {
            shown(&context, tensor)
        });
    }
}

fn evaluated(context: &NativeCallContext, tensor: &Tensor) -> Raised<Arc<Value>> {
    tensor.evaluate().map_err(|error| raise(context, error))
}

fn number_of(context: &NativeCallContext, tensor: &Tensor) -> Raised<FLOAT> {
    let level = tensor.level_looked_at();
    if level != Level::Batch {
        let level = level.name();
        return Err(raise(context, Mistake::NotOneValue { level }));
    }
    Ok(evaluated(context, tensor)?.get(0))
}

/// How many values a tensor's string shows.
const SHOWN: usize = 8;

fn shown(context: &NativeCallContext, tensor: &mut Tensor) -> Raised<ImmutableString> {
    let value = evaluated(context, tensor)?;
    if tensor.level() == Level::Batch {
        return Ok(value.get(0).to_string().into());
    }
    let first = value.iter().take(SHOWN);
    let mut shown: Vec<String> = first.map(|x| format!("{x:.6}")).collect();
    if value.len() > SHOWN {
        shown.push(format!("... {} more", value.len() - SHOWN));
    }
    Ok(format!("{} [{}]", tensor.level(), shown.join(", ")).into())
}

/// Registers a row under its name, once for each number of arguments that it takes.
fn bind(module: &mut Module, op: &'static Op) {
    // `min` and `max` have a row in two classes: a level as the second argument means the reduction.
    let twin = op::table()
        .find(|other| other.name == op.name && other.class != op.class && other.params.len() > 1);
    let needed = op.params.iter().filter(|param| !param.optional).count();
    for count in needed..=op.params.len() {
        for types in signatures(op, count) {
            let call = move |context: Option<NativeCallContext>, args: &mut [&mut Dynamic]| {
                let Some(context) = context else {
                    unreachable!("the function is registered to be given its context");
                };
                call(op, twin, &context, args)
            };
            let func = RhaiFunc::Method {
                func: rhai::Shared::new(call),
                has_context: true,
                is_pure: true,
                is_volatile: true,
            };
            let registration = FuncRegistration::new(op.name).in_global_namespace();
            registration.set_into_module_raw(module, types, func);
        }
    }
}

/// The argument types under which a row is registered.
///
/// A named function takes any type, so that a wrong argument gets our message; Rhai prefers its own functions of numbers
/// (`exp(1.0)`) if the types are exactly theirs. An operator needs a tensor: on numbers, strings and the like, operators
/// stay Rhai's. Every pair with a tensor is registered, since Rhai silently takes an unregistered pair as unequal.
fn signatures(op: &Op, count: usize) -> Vec<Vec<TypeId>> {
    let (any, tensor) = (TypeId::of::<Dynamic>(), TypeId::of::<Tensor>());
    let is_operator = !op.name.starts_with(char::is_alphabetic);
    match (is_operator, count) {
        (true, 1) => vec![vec![tensor]],
        (true, _) => vec![vec![tensor, any], vec![any, tensor]],
        (false, _) => vec![vec![any; count]],
    }
}

fn call(
    op: &'static Op,
    twin: Option<&'static Op>,
    context: &NativeCallContext,
    args: &[&mut Dynamic],
) -> Raised<Dynamic> {
    let is_level = args.get(1).is_some_and(|second| second.is_string());
    let op = match twin {
        Some(twin) if (twin.class == Class::Reduction) == is_level => twin,
        _ => op,
    };
    if args.len() > op.params.len() {
        // A row of that name with more arguments has brought the call here.
        let wrong = Mistake::ArgumentCount {
            name: op.name,
            takes: &op.params.len().to_string(),
            given: &args.len().to_string(),
            signature: &op.signature(),
        };
        return Err(raise(context, wrong));
    }
    let arguments = args
        .iter()
        .zip(op.params)
        .map(|(value, param)| argument(op, param, value))
        .collect::<Result<Vec<Argument>, CallError>>()
        .map_err(|problem| raise(context, problem))?;
    let is_map = matches!(
        op.kernel,
        Kernel::One(_) | Kernel::Two(_) | Kernel::Three(_) | Kernel::Checked(_)
    );
    let tensors = args.iter().any(|value| value.is::<Tensor>());
    let tensor = op
        .apply(&arguments)
        .map_err(|error| raise(context, error))?;
    if is_map && !tensors {
        // If all arguments are numbers, so is the result.
        return Ok(Dynamic::from_float(evaluated(context, &tensor)?.get(0)));
    }
    tensor.mark(&origin(context));
    if op.class == Class::Logic && tensor.level_looked_at() == Level::Batch {
        // One value: a plain true or false, so that a script can branch on it.
        let value = evaluated(context, &tensor)?.get(0);
        return Ok(Dynamic::from_bool(value != 0.0));
    }
    Ok(Dynamic::from(tensor))
}

fn argument(op: &Op, param: &op::Param, value: &Dynamic) -> Result<Argument, CallError> {
    let wrong = |expected: &'static str| {
        let error = TensorError::argument(op.name, param.name, expected, &describe(value));
        let mut problem = CallError::from(error);
        if value.is_unit() {
            let help = "an `if` without an `else` gives nothing, as does a block whose last line ends in `;`";
            problem = problem.help(help);
        }
        problem
    };
    match param.kind {
        // As elsewhere `std(dim, ddof)`: a plain number would select everything or nothing.
        ParamKind::Tensor if param.name == "selection" && (value.is_int() || value.is_float()) => {
            Err(
                wrong("a tensor of 0 and 1, as in `x.mean(\"group\", batch.correct)`")
                    .help("`std` has ddof 1, `population_std` ddof 0"),
            )
        }
        ParamKind::Tensor => match (value.read_lock::<Tensor>(), number(value)) {
            (Some(tensor), _) => Ok(Argument::Tensor(tensor.clone())),
            (None, Some(number)) => Ok(Argument::Number(number)),
            _ if value.is_string() && op.class == Class::Reduction => Err(wrong("a tensor")
                .help("the tensor comes first and the level after it, as in `x.mean(\"group\")`")),
            _ if value.is_string() && op.class == Class::Scan => Err(wrong("a tensor or a number")
                .help("a scan goes along the tokens of each response, or the turns of a trajectory; along the responses of a group, in the order of a key, it is `x.cumsum_by(key, \"group\")`")),
            _ => Err(wrong("a tensor or a number")),
        },
        ParamKind::Number => match number(value) {
            Some(number) => Ok(Argument::Number(number)),
            None if value.is::<Tensor>() => {
                Err(wrong("a plain number").help("a batch tensor's number is `x.value()`"))
            }
            None => Err(wrong("a number")),
        },
        ParamKind::Level => {
            let Some(name) = value.read_lock::<ImmutableString>() else {
                let problem = wrong("the name of a level, such as \"group\"");
                let is_batch = value.is::<ScriptBatch>();
                let help = "a regrouped batch has its own columns, and a value can be one: `batch.with(#{ mine: x }).regroup(key).mine.mean(\"group\")`";
                return Err(if is_batch {
                    problem.help(help)
                } else {
                    problem
                });
            };
            let level = name.parse::<Level>();
            let level = level.map_err(|unknown| TensorError::level(op.name, unknown));
            Ok(Argument::Level(level?))
        }
        ParamKind::Choice(choices) => {
            let Some(name) = value.read_lock::<ImmutableString>() else {
                return Err(wrong("one of its choices, as a string"));
            };
            let index = choices.iter().position(|choice| *choice == name.as_str());
            index.map(Argument::Choice).ok_or_else(|| {
                let choices = suggest::did_you_mean(&name, choices.iter().copied());
                let message = format!("`{}` is \"{}\": {choices}", param.name, name.as_str());
                TensorError::new(op.name, TensorErrorKind::Argument(message)).into()
            })
        }
    }
}

/// A plain number: true and false are 1 and 0, as comparisons give them.
pub(crate) fn number(value: &Dynamic) -> Option<f64> {
    match (value.as_float(), value.as_int(), value.as_bool()) {
        (Ok(number), ..) => Some(number),
        // Exact up to 2^53, as in any script that mixes the two.
        (_, Ok(whole), _) => Some(whole as f64),
        (.., Ok(truth)) => Some(f64::from(u8::from(truth))),
        _ => None,
    }
}

/// A value in words, for messages: "a string (\"gruop\")", "a group tensor".
pub(crate) fn describe(value: &Dynamic) -> String {
    match value.read_lock::<ImmutableString>() {
        Some(text) => {
            let start: String = text.chars().take(40).collect();
            format!("a string (\"{start}\")")
        }
        None => kind(value),
    }
}

/// As [`describe`], without a string's content.
pub(super) fn kind(value: &Dynamic) -> String {
    if let Some(tensor) = value.read_lock::<Tensor>() {
        return format!("a {} tensor", tensor.level());
    }
    match value.type_name() {
        "i64" | "f64" => format!("a number ({value})"),
        "bool" => format!("{value}"),
        "char" => format!("a character ('{value}')"),
        name => type_in_words(name).to_string(),
    }
}

/// A value of the types that a state has, as a script writes it.
pub(crate) fn written(value: &Dynamic) -> String {
    if let Some(map) = value.read_lock::<Map>() {
        let entries = map.iter();
        let entries = entries.map(|(key, value)| format!("{key}: {}", written(value)));
        return match entries.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "#{}".to_string(),
            entries => format!("#{{ {entries} }}"),
        };
    }
    if let Some(array) = value.read_lock::<Array>() {
        let values: Vec<String> = array.iter().map(written).collect();
        return format!("[{}]", values.join(", "));
    }
    match (value.read_lock::<ImmutableString>(), value.as_float()) {
        (Some(text), _) => format!("{:?}", text.as_str()),
        (_, Ok(number)) => format!("{number:?}"),
        _ if value.is_unit() => "()".to_string(),
        _ => value.to_string(),
    }
}
