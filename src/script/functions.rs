//! The functions that scripts may call, and the engine that runs the scripts of a call.
//!
//! Each call has its own engine, so that limits, metrics and printed lines belong to the call and nothing is global. The engines
//! share the modules of functions, because registering the functions takes as long as computing the advantage of a small batch.

use std::any::TypeId;
use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use rhai::{
    Array, Dynamic, Engine, EvalAltResult, FLOAT, FnPtr, FuncInfo, FuncMetadata, INT,
    ImmutableString, Map, Module, Position, Scope, Shared,
};

use super::bindings::batch::{self, ScriptBatch};
use super::bindings::keys::{self, Key};
use super::bindings::{arithmetic, arrays, tensors};
use super::call::CallContext;
use super::engine::{Method, add_raw, add_type, bare, packages};
use super::error::{CallError, Raised};
use super::imports::{Arities, by_name};
use super::limits::{
    ARRAY_ELEMENTS, CALL_LEVELS, EXPRESSION_DEPTH, MAP_ENTRIES, MEMORY, OPERATIONS, TEXT_BYTES,
    WORK,
};
use super::sandbox::{PER_READ, READS, measure_all};
use super::value::{as_tensor, describe};
use crate::allocation::held;
use crate::diagnostic::Diagnostic;
use crate::tensor::{Level, Stopped, Tensor, TensorError};

/// The modules of the functions that scripts may call. If two modules contain the same function, the later module wins.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    modules: Arc<[Shared<Module>]>,
    /// The functions of an engine with these modules, listed once because every compilation needs them.
    natives: Arc<OnceLock<Arities>>,
}

impl Default for Functions {
    fn default() -> Self {
        let mut own = Module::new();
        refuse(&mut own);
        tensors::ops(&mut own);
        tensors::tensor_type(&mut own);
        arithmetic::numbers(&mut own);
        arrays::arrays(&mut own);
        batch::batch_type(&mut own);
        keys::key_type(&mut own);
        // This is the type of `error` in `catch (error)`, if a native function failed.
        let message: Method<CallError> = |problem| Ok(problem.diagnostic.message.clone().into());
        add_type(&mut own, "error", message, &[]);
        Functions::of(packages().into_iter().chain([own.into()]))
    }
}

/// Lists the functions outside the op table that scripts may call, and says what limits the time and memory of each function.
const NATIVES: &str = include_str!("natives.txt");

/// Returns the row that a function has in [`NATIVES`], such as `pad: array, int, any`.
fn row_of(function: &FuncMetadata) -> String {
    macro_rules! types {
        ($($type:ty = $name:literal),+) => { [$((TypeId::of::<$type>(), $name)),+] };
    }
    let names = types!(
        Dynamic = "any", () = "()", INT = "int", FLOAT = "float", bool = "bool", char = "char", ImmutableString = "string",
        Array = "array", Map = "map", FnPtr = "Fn", Range<INT> = "range", RangeInclusive<INT> = "range=", Tensor = "tensor",
        ScriptBatch = "batch", Key = "key", CallError = "error"
    );
    let named = |id: &TypeId| names.iter().find(|(known, _)| known == id);
    let types: Vec<&str> = function
        .param_types
        .iter()
        .map(named)
        .map(|found| found.map_or("?", |(_, name)| name))
        .collect();
    let row = format!("{}: {}", function.name, types.join(", "));
    row.trim_end().to_string()
}

/// Returns whether a function of the language itself is in the table [`NATIVES`].
pub(crate) fn is_listed(function: &FuncMetadata) -> bool {
    static ROWS: LazyLock<HashSet<&str>> = LazyLock::new(|| NATIVES.lines().collect());
    ROWS.contains(&*row_of(function))
}

/// The functions of the language itself that are not in the table [`NATIVES`]: no script may call them.
static REFUSED: LazyLock<HashSet<(String, Vec<TypeId>)>> = LazyLock::new(|| {
    let mut engine = Engine::new_raw();
    packages().into_iter().for_each(|package| {
        engine.register_global_module(package);
    });
    let unlisted = |FuncInfo { metadata, .. }: FuncInfo<'_>| {
        let function = || (metadata.name.to_string(), metadata.param_types.to_vec());
        (!is_listed(metadata)).then(function)
    };
    let unlisted = engine.collect_fn_metadata(None, unlisted, true);
    unlisted.into_iter().collect()
});

fn is_refused(function: &FuncMetadata) -> bool {
    REFUSED.contains(&(function.name.to_string(), function.param_types.to_vec()))
}

/// Replaces each refused function by an error, so that no kind of call reaches the language's own function.
fn refuse(own: &mut Module) {
    for (name, types) in REFUSED.iter() {
        add_raw(own, name, types, move |_, args| {
            let types: Vec<&str> = args.iter().map(|value| (**value).type_name()).collect();
            let name = name.trim_start_matches("get$");
            let call = format!("{name} ({})", types.join(", "));
            Err(EvalAltResult::ErrorFunctionNotFound(call, Position::NONE).into())
        });
    }
}

impl Functions {
    /// Returns these functions and, in addition, the functions of a module.
    pub(crate) fn with(&self, module: Module) -> Functions {
        let modules = self.modules.iter().cloned();
        Functions::of(modules.chain([module.into()]))
    }

    fn of(modules: impl Iterator<Item = Shared<Module>>) -> Functions {
        Functions {
            modules: modules.collect(),
            natives: Arc::default(),
        }
    }

    /// Returns the [`natives`] of an engine of these functions.
    pub(super) fn natives(&self, engine: &Engine) -> &Arities {
        self.natives.get_or_init(|| natives(engine))
    }

    /// Makes the engine of one call, in which the script's functions see its constants.
    pub(crate) fn engine(
        &self,
        call: &Arc<CallContext>,
        constants: &Arc<Scope<'static>>,
    ) -> Engine {
        let mut engine = bare();
        for module in self.modules.iter() {
            engine.register_global_module(module.clone());
        }
        // Fast operators are switched off because the engine would ignore our replacements of its own operators.
        engine.set_fast_operators(false);
        bound(&mut engine, call);
        watch(&mut engine, constants.clone());
        reports(&mut engine, call);
        engine
    }
}

/// Returns the functions of an engine that scripts may call, by name.
pub(crate) fn natives(engine: &Engine) -> Arities {
    let named = |info: FuncInfo<'_>| {
        let (name, parameters) = (&info.metadata.name, info.metadata.num_params);
        let is_callable = !name.contains('$') && !is_refused(info.metadata);
        is_callable.then(|| (name.to_string(), parameters))
    };
    by_name(engine.collect_fn_metadata(None, named, true))
}

/// The number of operations between two checks of the guard. This many operations take about 10 microseconds.
const OPERATIONS_PER_CHECK: u64 = 64;

/// Limits the resources of a script: operations, depth, values, and the time and memory of the call.
fn bound(engine: &mut Engine, call: &Arc<CallContext>) {
    engine
        .set_max_call_levels(CALL_LEVELS)
        .set_max_expr_depths(EXPRESSION_DEPTH, EXPRESSION_DEPTH)
        .set_max_string_size(TEXT_BYTES)
        .set_max_array_size(ARRAY_ELEMENTS)
        .set_max_map_size(MAP_ENTRIES)
        .set_strict_variables(true)
        .set_fail_on_invalid_map_property(true)
        .disable_symbol("eval");
    let (guard, before) = (call.guard().clone(), held());
    // Operations are counted here because the engine's count is reset after each closure that a native function calls.
    let operations = AtomicU64::new(0);
    engine.on_progress(move |_| {
        // A load and a store suffice instead of an atomic addition, because a script runs in one thread.
        let now = operations.load(Ordering::Relaxed) + 1;
        operations.store(now, Ordering::Relaxed);
        if !now.is_multiple_of(OPERATIONS_PER_CHECK) {
            return None;
        }
        let checked = match usize::try_from(held() - before) {
            _ if now > OPERATIONS => Err(Stopped::Script(WORK)),
            Ok(bytes) if bytes > guard.allowance() => Err(Stopped::Script(MEMORY)),
            _ => guard.check(),
        };
        if let Err(stopped) = checked {
            guard.fail(&TensorError::new("script", stopped));
        }
        // This also ends a script that exceeded a limit elsewhere if the engine ignored that error.
        Some(Dynamic::from(CallError::from(guard.failure()?)))
    });
}

/// Measures the variables when one of them is read, at intervals that grow with their size, so that measuring takes only a
/// fraction of the script's time. Also makes the batch available in closures, and the script's constants in functions.
fn watch(engine: &mut Engine, constants: Arc<Scope<'static>>) {
    let (reads, due) = (AtomicU64::new(0), AtomicU64::new(READS));
    // The engine marks every unstable API as deprecated. We may use this API, because we pin the engine's version.
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

/// Returns a copy of the batch if the variable is a batch that a closure has captured. The copy is cheap.
///
/// The engine locks a captured variable while a method of the variable runs, so the closure in `batch.map_groups(|g| ... batch
/// ...)` could not read it. A batch needs no lock, because it never changes.
fn captured_batch(scope: &Scope<'_>, name: &str, index: usize) -> Option<Dynamic> {
    // The engine counts variables from the last variable, whose index is 1; index 0 means that it looks up the variable by name.
    let (found, _, value) = scope.iter_raw().nth(index.checked_sub(1)?)?;
    if !value.is_shared() || found != name {
        return None;
    }
    let batch = value.read_lock::<ScriptBatch>()?;
    Some(Dynamic::from(batch.clone()))
}

/// Registers `metric`, `print` and `debug`.
fn reports(engine: &mut Engine, call: &Arc<CallContext>) {
    let (metrics, prints, debugs) = (call.clone(), call.clone(), call.clone());
    engine.register_fn("metric", move |name: &str, value: Dynamic| -> Raised<()> {
        let value = metric(name, &value)?;
        Ok(metrics.effects().metric(name, value)?)
    });
    engine.on_print(move |line| prints.effects().print(line));
    engine.on_debug(move |line, _, _| debugs.effects().print(line));
}

fn metric(name: &str, value: &Dynamic) -> Result<Tensor, CallError> {
    let length = name.chars().count();
    if !(1..=64).contains(&length) {
        let message = format!("a metric's name has 1 to 64 characters; this one has {length}");
        return Err(Diagnostic::error(message).into());
    }
    let number = as_tensor(value).filter(|tensor| tensor.level_for_script() == Level::Batch);
    number.ok_or_else(|| {
        let found = describe(value);
        let message = format!("metric \"{name}\" is {found}: a metric is one number");
        CallError::new(message, "reduce it first, as in `x.mean(\"batch\")`")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::script::{Host, reference};

    /// The functions of an engine as rows of the table.
    fn rows(engine: &Engine) -> BTreeSet<String> {
        let row = |info: FuncInfo<'_>| Some(row_of(info.metadata));
        engine
            .collect_fn_metadata(None, row, true)
            .into_iter()
            .collect()
    }

    /// The operators that the engine itself has for values of the language, without any function.
    fn built_in() -> BTreeSet<String> {
        let values: Vec<(&str, &str)> = "int 2~float 0.5~bool true~char 'a'~string \"a\"~array [1]~map #{ a: 1 }~Fn Fn(\"f\")~range 0..2~range= 0..=2~() ()".split('~')
            .filter_map(|value| value.split_once(' '))
            .collect();
        let signs = "+ - * / % ** << >> & | == != < <= > >= += -= *= /= %= **= <<= >>= &= |=";
        let engine = Engine::new_raw();
        let mut rows = BTreeSet::new();
        for sign in signs.split(' ') {
            for (a, left) in &values {
                for (b, right) in &values {
                    let script = format!("let a = {left}; let b = {right}; a {sign} b");
                    let missing = |error: EvalAltResult| match error {
                        EvalAltResult::ErrorFunctionNotFound(..) => true,
                        other => panic!("{script}: {other}"),
                    };
                    let done = engine.eval::<Dynamic>(&script);
                    if !done.is_err_and(|error| missing(*error)) {
                        // All values can be compared.
                        let is_comparison = "== != <= >=".contains(sign);
                        let types = [*a, *b].map(|one| if is_comparison { "any" } else { one });
                        rows.insert(format!("{sign}: {}", types.join(", ")));
                    }
                }
            }
        }
        rows
    }

    /// Every function and operator of the engine, the language's and ours, stands in the table, is a row of the op table, or is
    /// refused: an upgrade of the engine adds none unseen.
    #[test]
    fn every_function_that_a_script_can_call_is_listed() {
        let host = Host::new();
        let all: BTreeSet<String> = rows(&host.functions.engine(&host.call(0), &Arc::default()))
            .into_iter()
            .chain(built_in())
            .collect();
        let mut language = Engine::new_raw();
        packages().into_iter().for_each(|package| {
            language.register_global_module(package);
        });
        let language = rows(&language);
        let (_, sections) = NATIVES.split_once("\n[").unwrap();
        let is_row = |line: &&str| !line.is_empty() && !line.ends_with(']');
        let listed: BTreeSet<&str> = sections.lines().filter(is_row).collect();
        let unlisted = all.iter().filter(|row| !listed.contains(&***row));
        let (refused, own): (Vec<&String>, Vec<&String>) =
            unlisted.partition(|row| language.contains(*row));
        let is_op = |row: &str| {
            let (name, types) = row.split_once(": ").unwrap_or((row, ""));
            let is_of_tensors = types
                .split(", ")
                .all(|one| ["any", "tensor"].contains(&one));
            is_of_tensors && reference::ops(name).next().is_some()
        };
        let own: Vec<&&String> = own.iter().filter(|row| !is_op(row)).collect();
        assert!(own.is_empty(), "these have no row in natives.txt: {own:#?}");
        let gone: Vec<&&str> = listed.iter().filter(|row| !all.contains(**row)).collect();
        assert!(
            gone.is_empty(),
            "these rows of natives.txt are of no function: {gone:#?}"
        );
        // Rows with a `?` are left out here: they take a type that no value of a script has.
        let refused = refused.iter().filter(|row| !row.contains('?'));
        let names: BTreeSet<&str> = refused.filter_map(|row| row.split(':').next()).collect();
        let known = "bits chars get$bits get$chars get$is_anonymous get$name is_anonymous name pad to_binary to_blob to_hex to_json to_octal";
        assert_eq!(
            names.into_iter().collect::<Vec<_>>().join(" "),
            known,
            "are these refused or listed?"
        );
    }
}
