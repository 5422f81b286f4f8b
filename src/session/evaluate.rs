//! A session: evaluates its inputs, and makes a recipe of them.

use std::path::Path;
use std::sync::Arc;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Map, OptimizationLevel, Scope};

use super::answer::Answer;
use super::inputs::{Inputs, LAST, SOURCE, items};
use crate::batch::Batch;
use crate::deep_stack;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::compile::compile;
use crate::script::error::{CallError, Raised};
use crate::script::explain::Script;
use crate::script::functions::natives;
use crate::script::imports::{Imports, functions_of};
use crate::script::misread::misread_operators;
use crate::script::sandbox::guarded;
use crate::script::syntax::code;
use crate::script::{Hook, Host, ParamValue, Recipe, ScriptBatch};
use crate::tensor::{Guard, Tensor, TensorError};

/// The name, in messages, of the recipe that was typed.
const TYPED: &str = "what you typed";

/// Evaluates pieces of script one after another on a batch. Variables and functions persist, and `_` is the last value.
///
/// ```
/// use advlab::session::{Answer, Session};
/// use advlab::{Batch, Host};
///
/// let mut session = Session::new(&Host::new(), &Batch::example());
/// session.evaluate("let r = batch.reward")?;
/// let evaluated = session.evaluate("(r - r.mean(\"group\"))[0]")?;
/// assert!(matches!(evaluated.answer, Answer::Number(a) if (a - 1.0 / 3.0).abs() < 1e-15));
/// # Ok::<(), advlab::diagnostic::Diagnostics>(())
/// ```
pub struct Session {
    host: Host,
    pub(super) guard: Arc<Guard>,
    pub(super) batch: ScriptBatch,
    pub(super) scope: Scope<'static>,
    pub(super) functions: AST,
    inputs: Inputs,
    imports: Imports,
    pub(super) recipe: Option<Recipe>,
    /// The loss for recipes without a loss; `None` for the default loss.
    loss: Option<Recipe>,
}

/// The value and the effects of an input.
#[derive(Clone, Debug)]
pub struct EvaluatedInput {
    /// The value of the input.
    pub answer: Answer,
    /// The lines that the input printed.
    pub prints: Vec<String>,
    /// The numbers that the input reported by `metric`.
    pub metrics: Vec<(String, f64)>,
    /// Notes on columns that were read in place of other columns, such as `old_logp` for `logp`, and on keys that a full table
    /// has forgotten.
    pub notes: Vec<String>,
    /// The names of the functions that the input defines.
    pub functions: Vec<String>,
}

impl Session {
    /// Makes a session on a batch, with the host's limits. The time limit applies to each input, and the memory limit to all
    /// values that exist at the same time.
    ///
    /// The batch is shared, not copied.
    pub fn new(host: &Host, batch: &Batch) -> Session {
        let guard = host.guard_for(host.limits().time);
        let host = host.clone().with_guard(guard.clone());
        let mut session = Session {
            batch: ScriptBatch::new(host.call(batch.step()), batch),
            host,
            guard,
            scope: Scope::new(),
            functions: AST::empty(),
            inputs: Inputs::default(),
            imports: Imports::new(Some(Path::new("."))),
            recipe: None,
            loss: None,
        };
        session.reset();
        session
    }

    /// Returns the session's guard, by which another thread can cancel the input that is being evaluated.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Returns the host that loads the session's recipes, with the session's guard and seed.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the recipe in use, if any; inputs can call its hooks.
    pub fn recipe(&self) -> Option<&Recipe> {
        self.recipe.as_ref()
    }

    /// Returns the loss for recipes without a loss: the loss given to [`Session::set_batch`], or the default loss.
    pub fn loss(&self) -> Result<Recipe, Diagnostics> {
        match &self.loss {
            Some(loss) => Ok(loss.on(&self.host)),
            None => self.host.loss(),
        }
    }

    /// Returns the inputs that ran without an error.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Removes all variables, functions, imports and inputs; the batch and the recipe stay.
    pub fn reset(&mut self) {
        self.scope = Scope::new();
        self.functions = AST::empty();
        self.inputs = Inputs::default();
        self.imports = Imports::new(Some(Path::new(".")));
        self.scope.push(LAST, ());
        self.place_own();
    }

    /// Continues with another batch. `batch.random` draws from `seed`, and recipes without a loss use `loss` (`ppo_clip` if it is
    /// `None`). Variables stay, including tensors of the earlier batch.
    pub fn set_batch(&mut self, batch: &Batch, seed: u64, loss: Option<Recipe>) {
        self.host = self.host.clone().with_seed(seed);
        self.loss = loss;
        self.recipe = self.recipe.take().map(|recipe| recipe.on(&self.host));
        self.batch = ScriptBatch::new(self.host.call(batch.step()), batch);
        // The last value that can be an advantage belongs to the previous batch.
        self.inputs.signal = None;
        self.place_own();
    }

    /// Makes a recipe's hooks callable, as `reward()`, `weight()`, `advantage()` and `loss()`, and its parameters readable as
    /// `p`. Typed functions with the name of one of these hooks and two parameters are removed: the last definition wins.
    pub fn use_recipe(&mut self, recipe: Option<Recipe>) {
        let is_hook = |name: &str| Hook::OF_BATCH.iter().any(|hook| hook.name() == name);
        self.functions
            .retain_functions(|_, _, name, arguments| arguments != 2 || !is_hook(name));
        self.recipe = recipe.map(|recipe| recipe.on(&self.host));
        self.place_own();
    }

    /// Compiles [`Session::typed_script`]. If `advantage` or `loss` was typed, the parameters take the changed settings of the
    /// recipe in use.
    ///
    /// # Errors
    /// [`Diagnostics`] as for [`Host::compile`](crate::script::Host::compile).
    pub fn typed_recipe(&self) -> Result<Recipe, Diagnostics> {
        let imports = Imports::new(Some(Path::new(".")));
        let mut recipe = compile(&self.host, TYPED, &self.typed_script(), &imports)?;
        if let Some(in_use) = self.recipe.as_ref().filter(|_| self.inputs.has_hook()) {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// Returns what was typed as a script: the imports, the functions and, if neither `advantage` nor `loss` is among them, a
    /// hook `advantage` with the statements up to the last value that can be an advantage. A hook `params` is added if needed.
    pub fn typed_script(&self) -> String {
        self.inputs.script(self.recipe.as_ref())
    }

    /// Returns the source of the functions with this name, from the last input that defines any or else from the recipe.
    pub fn source_of(&self, name: &str) -> Option<String> {
        let typed = self.inputs.texts().rev();
        let mut texts = typed.chain(self.recipe.iter().map(|recipe| recipe.text()));
        let found = texts.find_map(|text| {
            let is_named = |function: &(String, usize)| function.0 == name;
            let functions: Vec<String> = items(text)
                .into_iter()
                .filter(|item| item.function.as_ref().is_some_and(is_named))
                .map(|function| function.text)
                .collect();
            (!functions.is_empty()).then(|| functions.join("\n\n"))
        })?;
        // The script's doc comment is dropped, because it does not belong to the first function.
        let lines = found.lines().skip_while(|line| line.starts_with("//!"));
        let text = lines.collect::<Vec<_>>().join("\n");
        Some(text.trim_start().to_string())
    }

    /// Returns whether the text is a complete input that compiles.
    pub fn compiles(&self, text: &str) -> bool {
        let (engine, text) = (self.engine(text), self.inputs.padded(text));
        engine.compile_with_scope(&self.scope, text).is_ok()
    }

    /// Evaluates an input.
    ///
    /// # Errors
    /// [`Diagnostics`] as for a recipe, with the location in the input. After an error, the input's new variables and functions
    /// are removed, but its changes to other variables stay.
    pub fn evaluate(&mut self, text: &str) -> Result<EvaluatedInput, Diagnostics> {
        self.guard.rearm();
        let known = self.scope.len();
        let evaluated = self.try_evaluate(text);
        if evaluated.is_err() {
            self.scope.rewind(known);
            self.place_own();
        }
        // To show a batch, all its columns are read. The notes on them are dropped, because they do not belong to the next input.
        self.batch.call().take_reports();
        evaluated
    }

    fn try_evaluate(&mut self, text: &str) -> Result<EvaluatedInput, Diagnostics> {
        let engine = self.engine(text);
        let ast = self.compile(&engine, text)?;
        let value = self.run(&engine, &self.functions.merge(&ast), text)?;
        let effects = self.batch.call().take_reports();
        let reports =
            deep_stack::call(|| effects.reported()).map_err(|error| self.failed_in(text, error))?;
        self.own_unchanged(text)?;
        let answer = self.answer(text, &value)?;
        // Variables that a later `let` of the same name hides are dropped, because they would still take memory.
        self.scope = self.scope.clone_visible();
        if !value.is_unit() {
            self.scope.set_value(LAST, value);
        }
        self.functions = self.functions.merge(&ast.clone_functions_only());
        let functions: Vec<String> = ast
            .iter_functions()
            .map(|one| one.name.to_string())
            .collect();
        if !text.trim().is_empty() {
            self.inputs
                .push(text, &ast, &functions, &answer, self.recipe.as_ref());
        }
        Ok(EvaluatedInput {
            answer,
            functions,
            metrics: reports.metrics,
            prints: reports.prints,
            notes: reports.notes,
        })
    }

    /// Compiles an input, with the variables of the earlier inputs. Operators that mean something else in Python are errors.
    pub(super) fn compile(&self, engine: &Engine, text: &str) -> Result<AST, Diagnostics> {
        let mut ast = engine
            .compile_with_scope(&self.scope, self.inputs.padded(text))
            .map_err(|error| self.explain(text, &error.into()))?;
        let is_variable = |name: &str| self.scope.contains(name);
        let misread = misread_operators(&SOURCE.into(), &text.into(), &is_variable);
        if let Some(error) = Diagnostics::several(misread) {
            return Err(error);
        }
        ast.set_source(SOURCE);
        Ok(ast)
    }

    pub(super) fn run(
        &mut self,
        engine: &Engine,
        ast: &AST,
        text: &str,
    ) -> Result<Dynamic, Diagnostics> {
        let run = || engine.eval_ast_with_scope::<Dynamic>(&mut self.scope, ast);
        let value = guarded("to evaluate this", run)?;
        let value = self
            .batch
            .call()
            .unless_failed(value)
            .map_err(|error| self.explain(text, &error))?;
        Ok(value.flatten())
    }

    pub(super) fn engine(&self, text: &str) -> Engine {
        let (functions, call) = (&self.host.functions, self.batch.call());
        let mut engine = functions.engine(call, &Arc::default());
        engine.set_module_resolver(self.imports.clone());
        // The optimiser is off because it replaces the names of constants by values, and panics at an assignment to a constant.
        engine.set_optimization_level(OptimizationLevel::None);
        self.inputs.name_last_value(&mut engine, text);
        self.hooks(&mut engine);
        engine
    }

    /// Registers the hooks of the recipe in use, as `advantage()`, as `advantage(batch)` and, as in scripts, as
    /// `advantage(batch, p)`. Each call starts from the state that `init` makes, so that its result does not depend on the state
    /// after earlier calls.
    fn hooks(&self, engine: &mut Engine) {
        for hook in Hook::OF_BATCH {
            let (recipe, loss) = (self.recipe.clone(), self.loss.clone());
            let (current, name) = (self.batch.clone(), hook.name());
            let call = move |batch: Option<ScriptBatch>, p: Map| -> Raised<Tensor> {
                let recipe = recipe_of(hook, recipe.as_ref(), &current, batch, &p)?;
                let tensor = recipe.tensor(hook, &current, loss.as_ref());
                Ok(tensor.map_err(|error| CallError::from(error[0].clone()))?)
            };
            let (of_batch, of_both) = (call.clone(), call.clone());
            engine
                .register_fn(name, move || call(None, Map::new()))
                .register_fn(name, move |batch| of_batch(Some(batch), Map::new()))
                .register_fn(name, move |batch, p| of_both(Some(batch), p));
        }
    }

    /// Adds `batch` and `p` to the inputs' variables.
    fn place_own(&mut self) {
        let params = self.recipe.as_ref().map(|recipe| recipe.params().to_map());
        self.scope.set_or_push("batch", self.batch.clone());
        // `p` is a constant, because an assignment to `p.k` would not reach the recipe.
        self.scope.push_constant("p", params.unwrap_or_default());
        self.scope = self.scope.clone_visible();
    }

    /// Fails unless `batch` is still a batch, and `p` a map with as many entries as the recipe has parameters.
    fn own_unchanged(&self, text: &str) -> Result<(), Diagnostics> {
        let params = |recipe: &Recipe| recipe.params().iter().len();
        let entries = self.recipe.as_ref().map_or(0, params);
        let is_p = |p: &Dynamic| p.read_lock::<Map>().is_some_and(|p| p.len() == entries);
        let is_batch = |batch: &Dynamic| batch.is::<ScriptBatch>();
        let (name, held, help) = if !self.scope.get("p").is_some_and(is_p) {
            ("p", "the recipe's parameters", "`:set k=8` sets `k`")
        } else if !self.scope.get("batch").is_some_and(is_batch) {
            let help = "`:load FILE` loads another batch";
            ("batch", "the batch", help)
        } else {
            return Ok(());
        };
        let place = code(text)
            .into_iter()
            .find(|token| token.is_name(name))
            .map(|token| token.span(&SOURCE.into(), &text.into()));
        let message = format!("`{name}` holds {held}, and cannot be changed here");
        Err(Diagnostic::error(message).with_help(help).at(place).into())
    }

    /// Returns the diagnostics of an error in computing the value of an input.
    pub(super) fn failed_in(&self, text: &str, error: TensorError) -> Diagnostics {
        let raised: Box<EvalAltResult> = CallError::from(error).into();
        self.explain(text, &raised)
    }

    fn explain(&self, text: &str, error: &EvalAltResult) -> Diagnostics {
        let mut sources = self.imports.found().sources.clone();
        let name: Arc<str> = SOURCE.into();
        sources.insert(name.clone(), self.inputs.whole(text).into());
        let mut functions = natives(&self.engine(""));
        functions.append(&mut functions_of(&self.functions));
        if let Some(recipe) = &self.recipe {
            let of_recipe = recipe.sources();
            sources.extend(of_recipe.map(|(name, text)| (name.into(), text.into())));
        }
        let (own, derived) = self.batch.column_names();
        let variables = self.own_variables();
        let parameters = self.recipe.as_ref().map(|recipe| recipe.params().names());
        let script = Script {
            parameters: parameters.unwrap_or_default(),
            functions: functions.into_keys().collect(),
            variables: variables.map(|(name, _)| name.to_string()).collect(),
            columns: own.into_iter().chain(derived).collect(),
            ..Script::new(&name, &sources)
        };
        let diagnostic = script.explain(error);
        self.inputs.in_its_input(text, diagnostic).into()
    }

    /// Returns the variables that the inputs have defined.
    pub(super) fn own_variables(&self) -> impl Iterator<Item = (&str, &Dynamic)> {
        let all = self.scope.iter_raw().map(|(name, _, value)| (name, value));
        all.filter(|(name, _)| !["batch", "p", LAST].contains(name))
    }

    pub(super) fn answer(&self, text: &str, value: &Dynamic) -> Result<Answer, Diagnostics> {
        deep_stack::call(|| Answer::of(value)).map_err(|error| self.failed_in(text, error))
    }
}

/// Returns the recipe in use, with the settings in `p`, to run a hook on the session's batch. Fails if no recipe is in use, if
/// `batch` is another batch, or if the recipe refuses a setting.
fn recipe_of(
    hook: Hook,
    recipe: Option<&Recipe>,
    current: &ScriptBatch,
    batch: Option<ScriptBatch>,
    p: &Map,
) -> Result<Recipe, CallError> {
    let name = hook.name();
    let Some(mut recipe) = recipe.cloned() else {
        let message = format!("`{name}()` is a hook of a recipe, and no recipe is loaded");
        let help = "`:recipe grpo` loads a recipe; a formula that you typed is run by `:run`";
        return Err(CallError::new(message, help));
    };
    if batch.is_some_and(|batch| !Arc::ptr_eq(batch.frame(), current.frame())) {
        let message =
            format!("`{name}` runs only on the prompt's whole batch; this is another batch");
        let help = "`advantage()` has the values of all groups: `where(batch.correct, advantage(), 0)` shows some of them";
        return Err(CallError::new(message, help));
    }
    for (name, value) in p {
        let setting = ParamValue::from_dynamic(value).unwrap_or(ParamValue::Unset);
        let set = recipe.set(name, setting);
        set.map_err(|error| CallError::from(error).help("`:params` lists the parameters"))?;
    }
    Ok(recipe)
}

/// Returns whether a recipe was typed in a session.
pub fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == TYPED
}
