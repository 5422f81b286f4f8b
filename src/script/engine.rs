//! The script engine: what scripts may call.
//!
//! An engine is made for each call (100 ns: the functions are shared modules), so that its bounds, its metrics and its
//! printed lines are that call's own and nothing is global.

use std::sync::Arc;

use rhai::packages::{
    BasicArrayPackage, BasicMapPackage, BasicMathPackage, CorePackage, LogicPackage,
    MoreStringPackage, Package,
};
use rhai::{Dynamic, Engine, EvalAltResult, ImmutableString, Module, NativeCallContext, Shared};

use super::batch_type;
use super::bind;
use super::call::Call;
use super::error::{Problem, raise};

use super::library::{Library, NoImports, Resolver};
use super::numbers;
use super::reports::METRICS;
use super::sandbox;

/// The functions of the language itself. No clock, no files, no bytes: nothing that a formula needs, and a step's result
/// depends on its seed alone.
pub(super) fn packages() -> [Shared<Module>; 6] {
    [
        CorePackage::new().as_shared_module(),
        LogicPackage::new().as_shared_module(),
        BasicMathPackage::new().as_shared_module(),
        BasicArrayPackage::new().as_shared_module(),
        BasicMapPackage::new().as_shared_module(),
        MoreStringPackage::new().as_shared_module(),
    ]
}

/// The functions that all engines share.
#[derive(Clone)]
pub(super) struct Functions {
    modules: Arc<[Shared<Module>]>,
}

impl Functions {
    pub(super) fn new() -> Self {
        let own = Shared::new(bind::module());
        Functions {
            modules: packages().into_iter().chain([own]).collect(),
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
        numbers::numbers(&mut engine);
        sandbox::bound(&mut engine, call);
        bind::tensor_type(&mut engine);
        batch_type::batch_type(&mut engine);
        reports(&mut engine, call);
        // What `catch (error)` has in hand.
        engine
            .register_type_with_name::<Problem>("error")
            .register_fn("to_string", |problem: &mut Problem| problem.message.clone())
            .register_fn("to_debug", |problem: &mut Problem| problem.message.clone());
        engine
    }
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
            let mut kept = true;
            metrics.report(|reports| kept = reports.metric(name, number));
            let too_many = format!("more than {METRICS} metrics in one step");
            match kept {
                true => Ok(()),
                false => Err(raise(
                    &context,
                    Problem::new(too_many)
                        .help("is `metric` called in a loop, with another name each time?"),
                )),
            }
        },
    );
    let prints = call.clone();
    engine.on_print(move |line| prints.report(|reports| reports.print(line)));
    let prints = call.clone();
    engine.on_debug(move |line, _, _| prints.report(|reports| reports.print(line)));
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
