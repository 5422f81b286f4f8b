//! A session: pieces of script evaluated one after the other on a batch, with variables and functions that persist.

mod answer;
mod errors;
mod hooks;
mod inputs;
mod inspect;
mod items;
mod names;

use std::path::Path;
use std::sync::Arc;

use rhai::{AST, Dynamic, Engine, EvalAltResult, Map, OptimizationLevel, Scope};

pub use self::answer::{Answer, BatchColumns};
pub use self::inputs::Inputs;
use self::inputs::{LAST, function_names, place_of_name};
pub use self::inspect::InputTimes;
pub use self::inspect::Pairs;
use self::items::{Item, items};
pub use self::names::Name;
use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::batch_type::ScriptBatch;
use crate::script::bind::number;
use crate::script::library::Library;
use crate::script::mistake::Mistake;
use crate::script::sandbox::{guarded, on_deep_stack};
use crate::script::syntax::{floor_divisions, misread_operators, unfinished};
use crate::script::{Host, Recipe};
use crate::tensor::profile::Profile;
use crate::tensor::{Guard, Tensor};

/// The name of the recipe that was typed, in messages.
const TYPED: &str = "what you typed";

/// Pieces of script evaluated one after the other on a batch: `_` is the last value; variables and functions persist.
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
    guard: Arc<Guard>,
    profile: Arc<Profile>,
    batch: ScriptBatch,
    scope: Scope<'static>,
    functions: AST,
    inputs: Inputs,
    library: Library,
    recipe: Option<Recipe>,
}

/// The effects of an input.
#[derive(Clone, Debug)]
pub struct EvaluatedInput {
    /// Its value.
    pub answer: Answer,
    /// Its printed lines.
    pub prints: Vec<String>,
    /// Its reports, by `metric`.
    pub metrics: Vec<(String, f64)>,
    /// Notes on what was read otherwise than its name says.
    pub notes: Vec<String>,
    /// The names of the functions that it defines.
    pub functions: Vec<String>,
}

impl Session {
    /// A session on a batch, bounded by the host's limits: each input anew for the time, all that lives for the memory.
    ///
    /// The batch is shared, not copied.
    pub fn new(host: &Host, batch: &Batch) -> Session {
        let limits = host.limits();
        let guard = Guard::new(Some(limits.time), limits.memory);
        let profile = Arc::new(Profile::default());
        let host = host
            .clone()
            .with_guard(guard.clone())
            .with_profile(profile.clone());
        let mut session = Session {
            batch: whole(&host, batch),
            host,
            guard,
            profile,
            scope: Scope::new(),
            functions: AST::empty(),
            inputs: Inputs::default(),
            library: Library::new(Some(Path::new("."))),
            recipe: None,
        };
        session.reset();
        session
    }

    /// Bounds the input that is being evaluated: whoever holds it can cancel that.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// The host that the session's recipes are loaded with, bounded as the session is.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The loss that goes with advantages from here on, where their recipes have none: a run's, or `ppo_clip`.
    pub fn set_loss(&mut self, loss: Option<Recipe>) {
        self.host = self.host.clone().with_loss(loss);
        self.recipe = self.recipe.take().map(|recipe| recipe.on(&self.host));
    }

    /// Draws `batch.random` from another seed, from the next batch on.
    pub fn set_seed(&mut self, seed: u64) {
        self.host = self.host.clone().with_seed(seed);
        self.recipe = self.recipe.take().map(|recipe| recipe.on(&self.host));
    }

    /// Forgets all variables, functions and imports; the batch and the recipe stay.
    pub fn reset(&mut self) {
        self.scope = Scope::new();
        self.functions = AST::empty();
        self.inputs = Inputs::default();
        self.library = Library::new(Some(Path::new(".")));
        self.scope.push(LAST, ());
        self.place_own();
    }

    /// Goes on with another batch. Variables stay, those that hold tensors of the batch before as well.
    pub fn set_batch(&mut self, batch: &Batch) {
        self.batch = whole(&self.host, batch);
        // It belongs to the batch before.
        self.inputs.signal = None;
        self.place_own();
    }

    /// The inputs that ran.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The recipe of what was typed: the hooks, or if there are none the statements, whose last value per response or
    /// token is the advantage. It has the settings of the recipe in use, where it has parameters of these names.
    ///
    /// # Errors
    /// As [`Host::compile`](crate::script::Host::compile).
    pub fn typed_recipe(&self) -> Result<Recipe, Diagnostics> {
        let (script, folder) = (self.typed_script(), Path::new("."));
        let compiled = self.host.compile_beside(TYPED, &script, folder);
        let mut recipe = compiled.map_err(|mut error| {
            self.explain_scope(error.first_mut());
            error
        })?;
        if let Some(in_use) = self.recipe.as_ref().filter(|_| self.inputs.has_hook()) {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// The script of what was typed, in order: imports, functions, and, if none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub fn typed_script(&self) -> String {
        self.inputs.script(self.recipe.as_ref())
    }

    /// The source of the functions of that name: those of the last input that has any, or else of the recipe.
    pub fn source_of(&self, name: &str) -> Option<String> {
        let typed = self.inputs.all.iter().rev().map(|input| &*input.text);
        let texts = typed.chain(self.recipe.iter().map(|recipe| recipe.text()));
        let mut found = texts.map(|text| {
            let functions = items(text).into_iter().filter_map(|item| match item {
                Item::Function(own, _, text) if own == name => Some(text),
                _ => None,
            });
            functions.collect::<Vec<_>>().join("\n\n")
        });
        let found = found.find(|functions| !functions.is_empty())?;
        // The doc comment of the script does not belong to its first function.
        let lines = found.lines().skip_while(|line| line.starts_with("//!"));
        let text = lines.collect::<Vec<_>>().join("\n");
        Some(text.trim_start().to_string())
    }

    /// Whether the text is the beginning of an input that goes on in the next line.
    pub fn is_incomplete(&self, text: &str) -> bool {
        if unfinished(text).goes_on() {
            return true;
        }
        // Without the end that `//` hides, no more text completes it.
        if !floor_divisions(&inputs::SOURCE.into(), &text.into(), &|_| false).is_empty() {
            return false;
        }
        let engine = self.engine(text);
        match engine.compile_with_scope(&self.scope, self.inputs.padded(text)) {
            Ok(_) => false,
            Err(error) => self.inputs.ends_too_early(text, &error),
        }
    }

    /// Evaluates an input.
    ///
    /// # Errors
    /// [`Diagnostics`] as for a recipe, with the location in the input. Variables that the input made before it failed
    /// are gone; what it changed in others stays changed.
    pub fn evaluate(&mut self, text: &str) -> Result<EvaluatedInput, Diagnostics> {
        self.guard.rearm();
        let known = self.scope.len();
        let evaluated = self.try_evaluate(text, known).inspect_err(|_| {
            self.scope.rewind(known);
        });
        // To show a batch reads all its columns: the notes on these are not the next input's.
        self.batch.call().take_reports();
        evaluated
    }

    fn try_evaluate(&mut self, text: &str, known: usize) -> Result<EvaluatedInput, Diagnostics> {
        let (value, functions) = self.run(text)?;
        let reports = self.batch.call().take_reports();
        let metrics = on_deep_stack(|| reports.metrics());
        let metrics = metrics.map_err(|error| self.failed_in(text, error))?;
        self.own_unchanged(text, known)?;
        let answer = self.answer(&value)?;
        // Variables that a later `let` of the same name hides would keep their memory.
        self.scope = self.scope.clone_visible();
        if !text.trim().is_empty() {
            self.inputs.complete(&answer, self.recipe.as_ref());
        }
        if !value.is_unit() {
            self.scope.set_value(LAST, value);
        }
        Ok(EvaluatedInput {
            answer,
            metrics,
            functions,
            prints: reports.prints,
            notes: reports.notes,
        })
    }

    /// The names of the variables that inputs made, with their values.
    pub fn variables(&self) -> Vec<(String, Result<Answer, Diagnostics>)> {
        self.guard.rearm();
        let named = self.own_variables();
        let variables = named.map(|(name, value)| (name.to_string(), self.answer(value)));
        let variables = variables.collect();
        // To look at a batch reads all its columns: the notes on these are not the next input's.
        self.batch.call().take_reports();
        variables
    }

    fn own_variables(&self) -> impl Iterator<Item = (&str, &Dynamic)> {
        let all = self.scope.iter_raw();
        let is_own = |name: &str| !["batch", "p", LAST].contains(&name);
        all.filter(move |(name, ..)| is_own(name))
            .map(|(name, _, value)| (name, value))
    }

    /// Compiles an input behind those before it.
    fn compile(&self, engine: &Engine, text: &str) -> Result<AST, Diagnostics> {
        let mut ast = engine
            .compile_with_scope(&self.scope, self.inputs.padded(text))
            .map_err(|error| self.explain(text, &EvalAltResult::from(error)))?;
        let is_variable = |name: &str| self.scope.contains(name);
        let misread = misread_operators(&inputs::SOURCE.into(), &text.into(), &is_variable);
        if let Some(error) = Diagnostics::several(misread) {
            return Err(error);
        }
        ast.set_source(inputs::SOURCE);
        Ok(ast)
    }

    /// Compiles and runs an input, and keeps its functions: gives its value and their names.
    fn run(&mut self, text: &str) -> Result<(Dynamic, Vec<String>), Diagnostics> {
        let engine = self.engine(text);
        let ast = self.compile(&engine, text)?;
        let value = self.run_compiled(&engine, &self.functions.merge(&ast), text)?;
        self.functions = self.functions.merge(&ast.clone_functions_only());
        let notes = self.misspelt_hooks(text, &ast);
        self.batch
            .call()
            .report(|reports| reports.notes.extend(notes));
        self.inputs.push(text, &ast);
        Ok((value, function_names(&ast)))
    }

    fn run_compiled(
        &mut self,
        engine: &Engine,
        ast: &AST,
        text: &str,
    ) -> Result<Dynamic, Diagnostics> {
        let scope = &mut self.scope;
        let outcome = guarded(EVALUATING, || {
            engine.eval_ast_with_scope::<Dynamic>(scope, ast)
        })?;
        outcome
            .map(Dynamic::flatten)
            .map_err(|error| self.explain(text, &error))
    }

    /// Puts the batch and the parameters where inputs find them.
    pub(super) fn place_own(&mut self) {
        let params = self.recipe.as_ref().map(|recipe| recipe.params().to_map());
        self.scope.set_or_push("batch", self.batch.clone());
        // A constant: what is assigned to `p.k` would not reach the recipe.
        self.scope.push_constant("p", params.unwrap_or_default());
        self.scope = self.scope.clone_visible();
    }

    /// Whether `batch` and `p` are what they were. A constant's entries cannot be changed, but the engine lets a map have
    /// more of them, and lets a `let` hide it. Where they are not, the variables beyond the `known` ones go.
    fn own_unchanged(&mut self, text: &str, known: usize) -> Result<(), Diagnostics> {
        let p = self.scope.get("p").and_then(|p| p.read_lock::<Map>());
        let recipe = self.recipe.as_ref();
        let entries = recipe.map_or(0, |recipe| recipe.params().iter().len());
        let is_own = p.is_some_and(|map| map.len() == entries);
        let (name, mistake) = match self.scope.get("batch") {
            _ if !is_own => ("p", Mistake::FixedParameters),
            Some(batch) if batch.is::<ScriptBatch>() => return Ok(()),
            _ => ("batch", Mistake::FixedBatch),
        };
        self.scope.rewind(known);
        self.place_own();
        Err(mistake.at(place_of_name(text, name)).into())
    }

    fn engine(&self, text: &str) -> Engine {
        let functions = &self.host.functions;
        let mut engine = functions.engine(self.batch.call());
        engine.set_module_resolver(self.library.clone());
        // The optimiser puts constants in place of their names, and panics where something is assigned to one.
        engine.set_optimization_level(OptimizationLevel::None);
        self.inputs.name_last_value(&mut engine, text);
        self.hooks(&mut engine);
        engine
    }

    fn answer(&self, value: &Dynamic) -> Result<Answer, Diagnostics> {
        on_deep_stack(|| Answer::of(value)).map_err(|error| self.failed_in("", error))
    }
}

impl Host {
    /// Evaluates a piece of script that sees the batch as `batch`: a [`Session`] of one input.
    ///
    /// # Errors
    /// [`Diagnostics`] as for a recipe.
    pub fn evaluate(&self, text: &str, batch: &Batch) -> Result<Answer, Diagnostics> {
        Ok(Session::new(self, batch).evaluate(text)?.answer)
    }
}

/// Whether a recipe is one that was typed.
pub fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == TYPED
}

/// What an internal failure says that advlab was doing.
const EVALUATING: &str = "to evaluate this";

fn whole(host: &Host, batch: &Batch) -> ScriptBatch {
    ScriptBatch::new(host.call(batch.step()), batch)
}

/// The tensor that a value is, or that a number stands for.
fn as_tensor(value: &Dynamic) -> Option<Tensor> {
    match value.read_lock::<Tensor>() {
        Some(tensor) => Some(tensor.clone()),
        None => number(value).map(Tensor::number),
    }
}
