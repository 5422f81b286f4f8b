//! The script engine: what scripts may call.
//!
//! An engine is made for each call (100 ns: the functions are shared modules), so that its bounds, its metrics and its
//! printed lines are that call's own and nothing is global.

use std::sync::Arc;

use rhai::packages::{
    BasicArrayPackage, BasicMapPackage, BasicMathPackage, CorePackage, LogicPackage,
    MoreStringPackage, Package,
};
use rhai::{Dynamic, Engine, Module, NativeCallContext, Shared, Token};

use super::arrays;
use super::batch_type;
use super::bind;
use super::call::Call;
use super::error::{Problem, raise};
use super::key;
use super::library::Library;
use super::numbers;
use super::sandbox;
use crate::tensor::{ByGroup, Level, Tensor};

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

/// An engine without functions. `batch.with(...)` is a method here; Rhai keeps the word for later.
pub(super) fn bare() -> Engine {
    let mut engine = Engine::new_raw();
    #[expect(
        deprecated,
        reason = "marked so as it may change, and the version is pinned"
    )]
    engine.on_parse_token(|token, _, _| match token {
        Token::Reserved(word) if *word == "with" => Token::Identifier(word),
        token => token,
    });
    engine
}

#[derive(Clone, Debug)]
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
    pub(super) fn compiler(&self, library: &Library, call: &Arc<Call>) -> Engine {
        let mut engine = self.engine(call);
        engine.set_module_resolver(library.clone());
        engine
    }

    /// An engine that runs the hooks of one call.
    pub(super) fn engine(&self, call: &Arc<Call>) -> Engine {
        let mut engine = bare();
        for module in self.modules.iter() {
            engine.register_global_module(module.clone());
        }
        numbers::numbers(&mut engine);
        arrays::arrays(&mut engine);
        sandbox::bound(&mut engine, call);
        bind::tensor_type(&mut engine);
        batch_type::batch_type(&mut engine);
        key::key_type(&mut engine);
        reports(&mut engine, call);
        // The value of `catch (error)`.
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
        move |context: NativeCallContext, name: &str, value: Dynamic| {
            let value = metric(name, &value);
            let kept = value.and_then(|value| metrics.report(|all| all.metric(name, value)));
            kept.map_err(|problem| raise(&context, problem))
        },
    );
    let (prints, debugs) = (call.clone(), call.clone());
    engine.on_print(move |line| prints.report(|reports| reports.print(line)));
    engine.on_debug(move |line, _, _| debugs.report(|reports| reports.print(line)));
}

fn metric(name: &str, value: &Dynamic) -> Result<Tensor, Problem> {
    let length = name.len();
    if !(1..=64).contains(&length) {
        let message = format!("a metric's name has 1 to 64 characters, this one has {length}");
        return Err(Problem::new(message));
    }
    if let Some(number) = bind::number(value) {
        return Ok(Tensor::number(number));
    }
    let Some(tensor) = value.read_lock::<Tensor>() else {
        let found = bind::describe(value);
        return Err(Problem::new(format!(
            "metric \"{name}\" must be a number or a batch tensor, this is {found}"
        )));
    };
    if let Some(frame) = tensor.frame() {
        frame.goes_by_group(ByGroup::Reports);
    }
    let level = tensor.level();
    if level != Level::Batch {
        let message = format!("metric \"{name}\" is a {level} tensor: a metric is one number");
        let help = "reduce it first, as in `x.mean(\"batch\")`";
        return Err(Problem::new(message).help(help));
    }
    Ok(tensor.clone())
}
