//! A recipe with its parameters and its state.

use std::collections::BTreeMap;
use std::time::Duration;

use advlab::batch::Computed;
use advlab::native::{Mode, Native};
use advlab::script::{Hook, Host, Loss, Outcome, Recipe, State, Version};
use advlab::{Batch, Diagnostics};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::error::{in_python, raise};
use crate::output::Values;
use crate::pool::{self, ForkLock};
use crate::state;

/// What a call gives: the advantage or the gradient, and what came up on the way, by name.
pub type Answer = Py<PyDict>;

/// The version that a call used, and its number in the order of publication.
pub type Used = (Version, u64);

#[pyclass(frozen, name = "Recipe", module = "advlab._native")]
pub struct PyRecipe {
    recipe: Recipe,
    state: ForkLock<State>,
}

/// A host with kernels of its own: what a thread of the parent held when a process forked is then this recipe's alone.
pub fn host() -> Host {
    Host::new().with_native(&Native::new(Mode::Auto))
}

impl PyRecipe {
    fn of(recipe: Recipe, settings: &state::Settings) -> Result<PyRecipe, Diagnostics> {
        let mut recipe = recipe;
        state::set(&mut recipe, settings)?;
        let first = recipe.init()?;
        Ok(PyRecipe {
            recipe,
            state: ForkLock::new(first),
        })
    }

    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn used(&self) -> Used {
        (self.recipe.version().clone(), 0)
    }

    /// Runs something on the state, with the interpreter's lock released.
    fn on<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut State) -> Result<R, Diagnostics> + Send,
    ) -> PyResult<R> {
        let done = py.detach(|| {
            let mut held = self.state.lock()?;
            let state: &mut State = &mut held;
            pool::install(|| run(state))
        })?;
        done.map_err(raise(py))
    }
}

/// The hooks that a recipe has, by name.
pub fn hooks(recipe: &Recipe) -> Vec<&'static str> {
    let hooks = Hook::ALL.into_iter();
    hooks
        .filter(|hook| recipe.has(*hook))
        .map(Hook::name)
        .collect()
}

/// Whether the code of a recipe names one of these columns; names that it computes do not count.
pub fn reads(recipe: &Recipe, columns: &[String]) -> bool {
    let named = &recipe.reads().names;
    columns.iter().any(|column| named.contains(column))
}

#[pymethods]
impl PyRecipe {
    /// Loads a built-in by its name, or a script by its path.
    #[staticmethod]
    fn load(py: Python<'_>, recipe: &str, settings: state::Settings) -> PyResult<PyRecipe> {
        let loaded = py.detach(|| PyRecipe::of(host().load(recipe)?, &settings));
        loaded.map_err(raise(py))
    }

    /// The same version as another recipe's, from its name and sources.
    #[staticmethod]
    fn restore(
        py: Python<'_>,
        name: &str,
        sources: BTreeMap<String, String>,
        settings: state::Settings,
    ) -> PyResult<PyRecipe> {
        let restored = state::restored(name, &sources);
        restored
            .and_then(|recipe| PyRecipe::of(recipe, &settings))
            .map_err(raise(py))
    }

    #[getter]
    fn name(&self) -> &str {
        self.recipe.name()
    }

    #[getter]
    fn version(&self) -> &str {
        self.recipe.version().as_str()
    }

    #[getter]
    fn in_use(&self) -> &str {
        self.version()
    }

    #[getter]
    fn text(&self) -> &str {
        self.recipe.text()
    }

    #[getter]
    fn hooks(&self) -> Vec<&'static str> {
        hooks(&self.recipe)
    }

    fn reads(&self, columns: Vec<String>) -> bool {
        reads(&self.recipe, &columns)
    }

    #[getter]
    fn params(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        state::params(py, &self.recipe)
    }

    #[getter]
    fn sources(&self) -> BTreeMap<String, String> {
        state::sources(&self.recipe)
    }

    /// As JSON.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let state = py.detach(|| self.state.lock().map(|state| state.clone()))?;
        Ok(state.to_json().to_string())
    }

    #[setter]
    fn set_state(&self, py: Python<'_>, json: &str) -> PyResult<()> {
        let state = state::read(py, json)?;
        py.detach(|| self.state.lock().map(|mut held| *held = state))
    }

    /// The advantage; [B, T] also where it has one value a response, if `padded`.
    fn advantage(
        &self,
        py: Python<'_>,
        batch: &PyBatch,
        f64: bool,
        padded: bool,
    ) -> PyResult<Answer> {
        let shape = Shape { f64, padded };
        self.on(py, |state| {
            let computed = compute(&self.recipe, &batch.batch, state)?;
            Ok(Advantage::of(computed, shape))
        })?
        .into_python(py, &self.used())
    }

    /// The loss and its gradient.
    fn loss(&self, py: Python<'_>, batch: &PyBatch, f64: bool) -> PyResult<Answer> {
        self.on(py, |state| {
            let loss = self.recipe.loss(&batch.batch, None, state)?;
            Ok(Gradient::of(loss, f64))
        })?
        .into_python(py, &self.used())
    }
}

/// How values are to be given.
#[derive(Clone, Copy)]
pub struct Shape {
    pub f64: bool,
    /// Statistics over the tokens, [B, T], also where there is one value a response.
    pub padded: bool,
}

/// The advantage, and what a critic is to learn where the recipe says it, from the state that the step begins with.
pub fn compute(
    recipe: &Recipe,
    batch: &Batch,
    state: &mut State,
) -> Result<(Outcome, Option<Computed>), Diagnostics> {
    let recipe = recipe.for_step();
    let before = recipe.has(Hook::Returns).then(|| state.clone());
    let outcome = recipe.advantage(batch, state)?;
    let returns = before.map(|before| recipe.returns(batch, &before));
    Ok((outcome, returns.transpose()?.flatten()))
}

/// An advantage on its way to Python.
pub struct Advantage {
    arrays: Vec<(&'static str, Option<Values>)>,
    outcome: Outcome,
}

impl Advantage {
    pub fn of((outcome, returns): (Outcome, Option<Computed>), shape: Shape) -> Self {
        let given = Shape {
            padded: false,
            ..shape
        };
        let of = |values: &Option<Computed>, shape| Some(Values::of(values.as_ref()?, shape));
        Advantage {
            arrays: vec![
                ("advantage", Some(Values::of(&outcome.advantage, shape))),
                ("returns", of(&returns, shape)),
                ("reward", of(&outcome.reward, given)),
                ("weight", of(&outcome.weight, given)),
            ],
            outcome,
        }
    }

    pub fn into_python(self, py: Python<'_>, used: &Used) -> PyResult<Answer> {
        let (answer, outcome) = (PyDict::new(py), self.outcome);
        for (name, values) in self.arrays {
            let values = values.map(|values| values.into_python(py));
            answer.set_item(name, values.transpose()?)?;
        }
        answer.set_item("level", outcome.advantage.level().name())?;
        answer.set_item("loss", outcome.loss)?;
        let Outcome {
            metrics,
            prints,
            notes,
            time,
            native,
            ..
        } = outcome;
        told(&answer, metrics, prints, notes, (time, native), used)?;
        Ok(answer.unbind())
    }
}

/// A loss on its way to Python.
pub struct Gradient {
    values: Values,
    loss: Loss,
}

impl Gradient {
    pub fn of(loss: Loss, f64: bool) -> Self {
        let values = Values::of(&loss.gradient, Shape { f64, padded: false });
        Gradient { values, loss }
    }

    pub fn into_python(self, py: Python<'_>, used: &Used) -> PyResult<Answer> {
        let (answer, loss) = (PyDict::new(py), self.loss);
        answer.set_item("loss", loss.value)?;
        answer.set_item("grad", self.values.into_python(py)?)?;
        let time = (loss.time, loss.native);
        told(&answer, loss.metrics, loss.prints, loss.notes, time, used)?;
        Ok(answer.unbind())
    }
}

/// What came up on the way, whatever was computed; the time of the hooks, and that of kernels in their place.
fn told(
    answer: &Bound<'_, PyDict>,
    metrics: Vec<(String, f64)>,
    prints: Vec<String>,
    notes: Vec<String>,
    (time, native): (Duration, Option<Duration>),
    (version, serial): &Used,
) -> PyResult<()> {
    let notes: Vec<String> = notes.iter().map(|note| in_python(note)).collect();
    answer.set_item("metrics", metrics.into_iter().collect::<BTreeMap<_, _>>())?;
    answer.set_item("prints", prints)?;
    answer.set_item("notes", notes)?;
    answer.set_item("seconds", time.as_secs_f64())?;
    answer.set_item("is_native", native.is_some())?;
    answer.set_item("version", version.as_str())?;
    answer.set_item("serial", serial)
}
