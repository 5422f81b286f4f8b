//! The script engine: the functions that scripts may call.
//!
//! Each call has its own engine, so that its bounds, its metrics and its printed lines belong to that call and nothing is
//! global. The functions are in modules that all engines share, because registering them takes as long as computing the
//! advantage of a small batch.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rhai::packages::{
    BasicArrayPackage, BasicMapPackage, BasicMathPackage, CorePackage, LogicPackage,
    MoreStringPackage, Package,
};
use rhai::{
    Dynamic, Engine, FuncRegistration, Module, NativeCallContext, RhaiFunc, RhaiNativeFunc, Scope,
    Shared, Token, Variant,
};

use super::batch_type::{self, ScriptBatch};
use super::bind;
use super::call::Call;
use super::error::{CallError, Raised, located};
use super::key;
use super::numbers;
use super::sandbox::{
    ARRAY_ELEMENTS, CALL_LEVELS, EXPRESSION_DEPTH, MAP_ENTRIES, OPERATIONS, PER_READ, READS,
    TEXT_BYTES, measure_all,
};
use super::value::{as_tensor, describe};
use crate::diagnostic::Diagnostic;
use crate::tensor::{Level, Tensor, TensorError};

/// The functions of the language itself. There is no clock and there are no files or bytes: no formula needs them, and a
/// step's result must depend only on its seed.
pub(crate) fn packages() -> [Shared<Module>; 6] {
    [
        CorePackage::new().as_shared_module(),
        LogicPackage::new().as_shared_module(),
        BasicMathPackage::new().as_shared_module(),
        BasicArrayPackage::new().as_shared_module(),
        BasicMapPackage::new().as_shared_module(),
        MoreStringPackage::new().as_shared_module(),
    ]
}

/// An engine without functions, for the language as recipes have it.
pub(super) fn bare() -> Engine {
    let mut engine = Engine::new_raw();
    #[expect(
        deprecated,
        reason = "marked so as it may change, and the version is pinned"
    )]
    engine.on_parse_token(|token, _, _| own_token(token));
    engine
}

/// A token as recipes have it: `with`, a reserved word of Rhai, is a method of batches.
pub(crate) fn own_token(token: Token) -> Token {
    match token {
        Token::Reserved(word) if *word == "with" => Token::Identifier(word),
        // It would make a run wait.
        Token::Identifier(word) if *word == "sleep" => Token::Reserved(word),
        // Rhai's `^` of integers is bitwise (`2 ^ 3` is 1), but users expect the power.
        Token::XOr | Token::XOrAssign => Token::Reserved(Box::new("^".into())),
        token => token,
    }
}

/// The functions that scripts may call. A function of a later module comes before one of an earlier module.
#[derive(Clone, Debug)]
pub(crate) struct Functions(Arc<[Shared<Module>]>);

impl Default for Functions {
    fn default() -> Self {
        let mut own = Module::new();
        bind::ops(&mut own);
        bind::tensor_type(&mut own);
        numbers::numbers(&mut own);
        batch_type::batch_type(&mut own);
        key::key_type(&mut own);
        // The value of `catch (error)`.
        let message: Method<CallError> = |problem| Ok(problem.diagnostic.message.clone().into());
        add_type(&mut own, "error", message, &[]);
        Functions(packages().into_iter().chain([own.into()]).collect())
    }
}

/// Adds a function to a module.
pub(super) fn add<A: 'static, const N: usize, const X: bool, R, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
) where
    R: Variant + Clone,
{
    FuncRegistration::new(name).set_into_module(module, function);
}

/// Adds a function of these types; `Dynamic` is any type.
pub(super) fn add_raw(
    module: &mut Module,
    name: &str,
    types: &[TypeId],
    function: impl Fn(&NativeCallContext, &mut [&mut Dynamic]) -> Raised<Dynamic>
    + Send
    + Sync
    + 'static,
) {
    let with_context = move |context: Option<NativeCallContext>, args: &mut [&mut Dynamic]| {
        function(&context.expect("it is registered with its context"), args)
    };
    let function = RhaiFunc::Method {
        func: Shared::new(with_context),
        has_context: true,
        is_pure: true,
        is_volatile: true,
    };
    FuncRegistration::new(name).set_into_module_raw(module, types, function);
}

/// A method without arguments.
pub(super) type Method<T> = fn(&T) -> Result<Dynamic, CallError>;

/// Adds a type with the method that makes a string of a value, and with other methods.
pub(super) fn add_type<T: Variant + Clone>(
    module: &mut Module,
    name: &str,
    to_string: Method<T>,
    others: &[(&str, Method<T>)],
) {
    module.set_custom_type::<T>(name);
    let shown = [("to_string", to_string), ("to_debug", to_string)];
    for &(name, method) in shown.iter().chain(others) {
        let method =
            move |context: NativeCallContext, value: &mut T| located(&context, method(value));
        add(module, name, method);
    }
}

impl Functions {
    /// An engine for one call; functions see the constants.
    pub(crate) fn engine(&self, call: &Arc<Call>, constants: &Arc<Scope<'static>>) -> Engine {
        let mut engine = bare();
        for module in self.0.iter() {
            engine.register_global_module(module.clone());
        }
        // Otherwise the engine does not look up overrides of its own operators.
        engine.set_fast_operators(false);
        bound(&mut engine, call);
        watch(&mut engine, constants.clone());
        reports(&mut engine, call);
        engine
    }
}

/// Operations between two looks at the guard: some 10 microseconds.
const OPERATIONS_PER_CHECK: u64 = 64;
/// Bounds the resources of a script: operations, depth, values, and the time and memory of the call.
fn bound(engine: &mut Engine, call: &Arc<Call>) {
    engine
        .set_max_operations(OPERATIONS as u64)
        .set_max_call_levels(CALL_LEVELS)
        .set_max_expr_depths(EXPRESSION_DEPTH, EXPRESSION_DEPTH)
        .set_max_string_size(TEXT_BYTES)
        .set_max_array_size(ARRAY_ELEMENTS)
        .set_max_map_size(MAP_ENTRIES)
        .set_strict_variables(true)
        .set_fail_on_invalid_map_property(true)
        .disable_symbol("eval");
    let guard = call.guard().clone();
    engine.on_progress(move |operations| {
        if operations % OPERATIONS_PER_CHECK != 0 {
            return None;
        }
        let stopped = guard.check().err()?;
        let error = TensorError::new("script", stopped);
        Some(Dynamic::from(CallError::from(error)))
    });
}

/// Measures variables when one of them is read, at intervals that grow with their size, so that measuring takes only a
/// fraction of the script's time. Also gives closures the batch and the script's constants.
fn watch(engine: &mut Engine, constants: Arc<Scope<'static>>) {
    let (reads, due) = (AtomicU64::new(0), AtomicU64::new(READS));
    // Deprecated means volatile here: the callback may change in a later version, and ours is pinned.
    #[allow(deprecated)]
    engine.on_var(move |name, index, context| {
        let read = reads.fetch_add(1, Ordering::Relaxed);
        if read >= due.load(Ordering::Relaxed) {
            let values = measure_all(context.scope(), context.this_ptr())?;
            due.store(read + READS.max(values / PER_READ), Ordering::Relaxed);
        }
        let scope = context.scope();
        let constant = || constants.get(name).filter(|_| !scope.contains(name));
        Ok(captured_batch(scope, name, index).or_else(|| constant().cloned()))
    });
}

/// A copy of the batch, which is cheap, if the variable is a batch that a closure has captured.
///
/// The engine locks a captured variable while a method of it runs, so `batch.map_groups(|g| ... batch ...)` would find it
/// locked. A batch does not change, and needs no lock.
fn captured_batch(scope: &Scope<'_>, name: &str, index: usize) -> Option<Dynamic> {
    // The engine counts from the last variable, from 1; 0 is a variable that it looks up by name.
    let (found, _, value) = scope.iter_raw().nth(index.checked_sub(1)?)?;
    if !value.is_shared() || found != name {
        return None;
    }
    let batch = value.read_lock::<ScriptBatch>()?;
    Some(Dynamic::from(batch.clone()))
}

/// `metric` and `print`.
fn reports(engine: &mut Engine, call: &Arc<Call>) {
    let (metrics, prints, debugs) = (call.clone(), call.clone(), call.clone());
    engine.register_fn("metric", move |name: &str, value: Dynamic| -> Raised<()> {
        let value = metric(name, &value)?;
        Ok(metrics.effects().metric(name, value)?)
    });
    engine.on_print(move |line| prints.effects().print(line));
    engine.on_debug(move |line, _, _| debugs.effects().print(line));
}

fn metric(name: &str, value: &Dynamic) -> Result<Tensor, CallError> {
    let length = name.len();
    if !(1..=64).contains(&length) {
        let message = format!("a metric's name has 1 to 64 characters, this one has {length}");
        return Err(Diagnostic::error(message).into());
    }
    let number = as_tensor(value).filter(|tensor| tensor.level_looked_at() == Level::Batch);
    number.ok_or_else(|| {
        let found = describe(value);
        let message = format!("metric \"{name}\" is {found}: a metric is one number");
        CallError::new(message, "reduce it first, as in `x.mean(\"batch\")`")
    })
}
