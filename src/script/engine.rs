//! The script engine and its sandbox: what scripts may call, and what bounds them.
//!
//! An engine is made for each call (100 ns: the functions are shared modules), so that its bounds, its metrics and its
//! printed lines are that call's own and nothing is global.

use std::sync::Arc;

use rhai::packages::{
    BasicArrayPackage, BasicMapPackage, BasicMathPackage, CorePackage, LogicPackage,
    MoreStringPackage, Package,
};
use rhai::{Dynamic, Engine, EvalAltResult, ImmutableString, Module, NativeCallContext, Shared};

use super::batch_type::{self, Call};
use super::bind;
use super::error::{Problem, raise};
use super::library::{Library, NoImports, Resolver};
use crate::tensor::Stopped;

/// Operations between two looks at the guard: some 10 microseconds.
const OPERATIONS_PER_CHECK: u64 = 64;
/// More than any recipe needs; what ends an endless loop in practice is the deadline.
const OPERATIONS: u64 = 1_000_000_000;
/// Calls within calls. A hook needs three or four; the stack of a thread bears this many in a debug build too.
const CALL_LEVELS: usize = 32;
/// Expressions within expressions, outside and inside functions.
const EXPRESSION_DEPTH: usize = 64;
/// Bytes of a text, and elements of an array or a map.
///
/// A single `s += s` or `a.pad(n, 0)` in a loop would take all memory between two looks at the guard, so these limits
/// are on although they make `push` cost a pass over the array: 8192 pushes take 30 ms instead of 6, and
/// `batch.map_groups` needs none.
const DATA_SIZE: usize = 1 << 20;

/// The functions that all engines share.
#[derive(Clone)]
pub(super) struct Functions {
    modules: Arc<[Shared<Module>]>,
}

impl Functions {
    pub(super) fn new() -> Self {
        let packages = [
            // No clock, no files, no bytes: nothing that a formula needs, and a step's result depends on its seed alone.
            CorePackage::new().as_shared_module(),
            LogicPackage::new().as_shared_module(),
            BasicMathPackage::new().as_shared_module(),
            BasicArrayPackage::new().as_shared_module(),
            BasicMapPackage::new().as_shared_module(),
            MoreStringPackage::new().as_shared_module(),
            Shared::new(bind::module()),
        ];
        Functions {
            modules: packages.into(),
        }
    }

    /// An engine that compiles scripts whose imports `library` finds.
    pub(super) fn compiler(&self, library: &Arc<Library>, call: &Arc<Call>) -> Engine {
        let mut engine = self.engine(call);
        engine.set_module_resolver(Resolver(library.clone()));
        engine
    }

    /// An engine that runs the hooks of one call.
    pub(super) fn engine(&self, call: &Arc<Call>) -> Engine {
        let mut engine = Engine::new_raw();
        for module in self.modules.iter() {
            engine.register_global_module(module.clone());
        }
        engine.set_module_resolver(NoImports);
        sandbox(&mut engine, call);
        bind::tensor_type(&mut engine);
        batch_type::batch_type(&mut engine);
        reports(&mut engine, call);
        engine
    }
}

fn sandbox(engine: &mut Engine, call: &Arc<Call>) {
    engine
        .set_max_operations(OPERATIONS)
        .set_max_call_levels(CALL_LEVELS)
        .set_max_expr_depths(EXPRESSION_DEPTH, EXPRESSION_DEPTH)
        .set_max_string_size(DATA_SIZE)
        .set_max_array_size(DATA_SIZE)
        .set_max_map_size(DATA_SIZE)
        .set_strict_variables(true)
        .set_fail_on_invalid_map_property(true)
        .disable_symbol("eval");
    let guard = call.guard.clone();
    engine.on_progress(move |operations| {
        if operations % OPERATIONS_PER_CHECK != 0 {
            return None;
        }
        guard.check().err().map(Dynamic::from::<Stopped>)
    });
    let asleep = |context: NativeCallContext, _: Dynamic| -> Result<(), Box<EvalAltResult>> {
        Err(raise(
            &context,
            Problem::new("a recipe cannot sleep: the run would wait for it"),
        ))
    };
    // Rhai has one for each number type.
    engine.register_raw_fn(
        "sleep",
        [std::any::TypeId::of::<i64>()],
        move |context, args| asleep(context, args[0].take()),
    );
    engine.register_raw_fn(
        "sleep",
        [std::any::TypeId::of::<f64>()],
        move |context, args| asleep(context, args[0].take()),
    );
}

/// `metric` and `print`.
fn reports(engine: &mut Engine, call: &Arc<Call>) {
    let metrics = call.clone();
    engine.register_fn(
        "metric",
        move |context: NativeCallContext,
              name: &str,
              value: Dynamic|
              -> Result<(), Box<EvalAltResult>> {
            let number = metric(&context, name, &value)?;
            metrics.report(|reports| {
                match reports.metrics.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => *known = number,
                    None => reports.metrics.push((name.to_string(), number)),
                }
            });
            Ok(())
        },
    );
    let prints = call.clone();
    engine.on_print(move |line| prints.report(|reports| reports.prints.push(line.to_string())));
    let prints = call.clone();
    engine
        .on_debug(move |line, _, _| prints.report(|reports| reports.prints.push(line.to_string())));
}

fn metric(
    context: &NativeCallContext,
    name: &str,
    value: &Dynamic,
) -> Result<f64, Box<EvalAltResult>> {
    if name.is_empty() || name.len() > 64 {
        let problem = Problem::new(format!(
            "a metric's name has 1 to 64 characters, this one has {}",
            name.len()
        ));
        return Err(raise(context, problem));
    }
    if let Some(number) = bind::number(value) {
        return Ok(number);
    }
    let Some(tensor) = value.read_lock::<crate::tensor::Tensor>() else {
        let found = bind::describe(value);
        let problem = Problem::new(format!(
            "metric \"{name}\" must be a number or a batch tensor, this is {found}"
        ));
        return Err(raise(context, problem));
    };
    if tensor.level() != crate::tensor::Level::Batch {
        let problem = Problem::new(format!(
            "metric \"{name}\" is a {} tensor: a metric is one number",
            tensor.level()
        ));
        return Err(raise(
            context,
            problem.help("reduce it first, as in `x.mean(\"batch\")`"),
        ));
    }
    let value = tensor.evaluate().map_err(|error| raise(context, error))?;
    Ok(value.get(0))
}

/// A text that names the type of a script's value, as messages use it.
pub(super) fn returned(value: &Dynamic) -> String {
    match value.read_lock::<ImmutableString>() {
        Some(_) => "a text".to_string(),
        None => bind::describe(value),
    }
}
