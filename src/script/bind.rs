//! Registers the ops of the table as script functions, for every mix of tensors and numbers, and the other methods of tensors.

use std::any::TypeId;
use std::sync::Arc;

use rhai::{
    Array, Dynamic, Engine, FLOAT, FuncRegistration, INT, ImmutableString, Module,
    NativeCallContext, RhaiFunc,
};

use super::error::{CallError, Raised, origin, raise};
use super::value::{as_tensor, describe, number, text};
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
                let (level, length) = (tensor.level(), value.len());
                let message = format!(
                    "index {index} is out of range for a {level} tensor of {length} values"
                );
                raise(&context, CallError::new(message, "indices count from 0"))
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
        let message = format!("`value()` needs a batch tensor, this is a {level} tensor");
        let help = "reduce it first, as in `x.mean(\"batch\").value()`";
        return Err(raise(context, CallError::new(message, help)));
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
        let (takes, given) = (op.params.len(), args.len());
        let message = format!(
            "`{}` of values takes {takes} arguments, and gets {given}",
            op.name
        );
        let help = format!(
            "it is `{}`; of more values: `max(a, max(b, c))`",
            op.signature()
        );
        return Err(raise(context, CallError::new(message, help)));
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
    let wrong = |expected: &str| {
        CallError::from(TensorError::argument(
            op.name,
            param.name,
            expected,
            &describe(value),
        ))
    };
    match param.kind {
        // As elsewhere `std(dim, ddof)`: a plain number would select everything or nothing.
        ParamKind::Tensor if param.name == "selection" && number(value).is_some() => Err(wrong(
            "a tensor of 0 and 1, as in `x.mean(\"group\", batch.correct)`",
        )
        .help("`std` has ddof 1, `population_std` ddof 0")),
        ParamKind::Tensor => match (number(value), as_tensor(value)) {
            (Some(number), _) => Ok(Argument::Number(number)),
            (None, Some(tensor)) => Ok(Argument::Tensor(tensor)),
            (None, None) => {
                let wrong = wrong("a tensor or a number");
                Err(match op.class {
                    _ if value.is_unit() => wrong.help(
                        "an `if` without an `else` gives nothing, as does a block whose last line ends in `;`",
                    ),
                    Class::Reduction if value.is_string() => wrong.help(
                        "the tensor comes first and the level after it, as in `x.mean(\"group\")`",
                    ),
                    Class::Scan if value.is_string() => wrong.help(
                        "a scan goes along the tokens of each response, or the turns of a trajectory; along the responses of \
                         a group, in the order of a key, it is `x.cumsum_by(key, \"group\")`",
                    ),
                    _ => wrong,
                })
            }
        },
        ParamKind::Number => match number(value) {
            Some(number) => Ok(Argument::Number(number)),
            None => Err(wrong("a plain number").help("a batch tensor's number is `x.value()`")),
        },
        ParamKind::Level => {
            let name = text(value).ok_or_else(|| wrong("the name of a level, such as \"group\""));
            let level = name?.parse::<Level>();
            Ok(Argument::Level(
                level.map_err(|unknown| TensorError::level(op.name, unknown))?,
            ))
        }
        ParamKind::Choice(choices) => {
            let name = text(value).ok_or_else(|| wrong("one of its choices, as a string"))?;
            let index = choices.iter().position(|choice| *choice == name.as_str());
            index.map(Argument::Choice).ok_or_else(|| {
                let choices = suggest::did_you_mean(&name, choices.iter().copied());
                let message = format!("`{}` is \"{name}\": {choices}", param.name);
                TensorError::new(op.name, TensorErrorKind::Argument(message)).into()
            })
        }
    }
}
