//! Hooks of built-ins that a script imports and calls, as in `passk::advantage(batch, p)`.
//!
//! The import's module is one around it: its hooks run the built-in's own, which make the graph of the result and report what
//! there is to report, and then offer that graph to the built-in's kernel, which may compute its values. So gradients, errors
//! and places are always those of the script. A batch that is a group's, or grouped anew, is left to the script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rhai::module_resolvers::StaticModuleResolver;
use rhai::{AST, Dynamic, Engine, Map, Module, NativeCallContext, Scope};

use super::{Array, Asked, HookCall, Kernels, Same};
use crate::batch::Computed;
use crate::script::batch_type::ScriptBatch;
use crate::script::call::Reports;
use crate::script::error::Raised;
use crate::script::library::Builtin;
use crate::script::params::Setting;
use crate::script::recipe::{Compiled, Hook};
use crate::script::sandbox::guarded;
use crate::tensor::{Tensor, TensorError, Value};

/// The source of the modules around built-ins: no script of anybody's, and not told of in messages.
pub(in crate::script) const AROUND: &str = "(around a built-in)";

/// The script that imports built-ins, and what may answer their hooks.
#[derive(Debug)]
pub(in crate::script) struct Importer {
    pub(in crate::script) kernels: Arc<Kernels>,
    pub(in crate::script) script: Arc<Compiled>,
}

/// A built-in's module, with the results of its reward and its advantage offered to kernels.
pub(in crate::script) fn offered(
    builtin: &'static Builtin,
    ast: &AST,
    module: Module,
) -> Raised<Module> {
    let signals = [Hook::Reward, Hook::Advantage].into_iter();
    let signals = signals.filter(|hook| ast.iter_functions().any(|f| f.name == hook.name()));
    let (mut text, mut kernels) = (String::new(), Module::new());
    for hook in signals {
        let name = hook.name();
        text += &format!(
            "fn {name}(batch, p) {{ kernel::{name}(batch, p, script::{name}(batch, p)) }}\n"
        );
        type Context<'a> = NativeCallContext<'a>;
        let offer = move |context: Context, batch: Dynamic, p: Dynamic, result: Dynamic| {
            // A script could call this too, with a result that is not the hook's.
            if context.call_source() == Some(AROUND) {
                offer(builtin, hook, &batch, &p, &result);
            }
            Raised::Ok(result)
        };
        kernels.set_native_fn(name, offer);
    }
    let mut modules = StaticModuleResolver::new();
    modules.insert("script", module.clone());
    modules.insert("kernel", kernels);
    let mut engine = Engine::new_raw();
    engine.set_module_resolver(modules);
    let imports = "import \"script\" as script; import \"kernel\" as kernel;\n";
    let around = engine.compile(format!("{imports}{text}"))?;
    let around = Module::eval_ast_as_new(Scope::new(), &around, &engine)?;
    let mut module = module;
    module.set_id(AROUND).combine(around).build_index();
    Ok(module)
}

/// Lets a kernel compute the result of a hook, where it is to be used.
fn offer(
    builtin: &'static Builtin,
    hook: Hook,
    batch: &Dynamic,
    p: &Dynamic,
    result: &Dynamic,
) -> Option<()> {
    let batch = batch.read_lock::<ScriptBatch>()?.clone();
    let tensor = result.read_lock::<Tensor>()?.clone();
    let importer = batch.call().importer.as_ref()?;
    // Known already where the built-in's hook is another one's, or was asked for twice.
    if tensor.known().is_some() || !importer.kernels.of.has(builtin.name, hook) {
        return None;
    }
    let (whole, reward) = batch.as_given()?;
    let p = p.read_lock::<Map>();
    let setting = |name: &str| Setting::from_dynamic(p.as_ref()?.get(name)?);
    let names = p.iter().flat_map(|p| p.keys());
    let names = names.map(|name| name.as_str());
    let asked = Asked {
        script: &importer.script,
        hook,
        imported: Some(builtin.name),
        settings: names
            .filter_map(|name| Some((name, setting(name)?)))
            .collect(),
        batch: &whole,
        guard: &batch.call().guard,
    };
    let call = HookCall {
        builtin: builtin.name,
        hook,
        batch: &whole,
        reward: reward.as_ref(),
        advantage: None,
        settings: &setting,
        guard: &batch.call().guard,
        input: &batch,
    };
    let by_kernel = |_: Array<'_, '_>| {
        let started = Instant::now();
        let signal = || importer.kernels.of.signal(&call, None);
        let values: Computed = guarded("in a kernel", signal).ok().flatten()?.into();
        let is_f64 = values.buffer().is_f64();
        let is_like = (values.level(), is_f64) == (tensor.level(), tensor.is_f64());
        is_like.then(|| Offered {
            values,
            native: Some(started.elapsed()),
        })
    };
    let by_script = |_: Array<'_, '_>| {
        let values = tensor.evaluate()?.over(whole.layout());
        let native = None;
        Ok::<_, TensorError>(Offered { values, native })
    };
    let answer = importer.kernels.answer(&asked, None, by_script, by_kernel);
    // An error is told where the value is needed, as without a kernel.
    let Offered { values, native } = answer.ok()?;
    let took = native?;
    let buffer = values.buffer().clone();
    let reservation = batch.call().guard.reserve(buffer.bytes()).ok()?;
    tensor.remember(Value::checked(tensor.level(), buffer, reservation, true));
    let add = |reports: &mut Reports| *reports.native.get_or_insert_default() += took;
    batch.call().report(add);
    Some(())
}

/// The values of a hook's result, with the time of the kernel that computed them.
struct Offered {
    values: Computed,
    native: Option<Duration>,
}

impl Same for Offered {
    fn same(&self, other: &Self) -> bool {
        self.values.same(&other.values)
    }
}
