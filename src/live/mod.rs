//! Hot reload: a recipe that follows its file while a run goes.
//!
//! Events are hints, the content hash is the truth, the swap happens at a step boundary. A thread of its own watches the
//! script and all that it imports, checks each new version, and publishes what passed; the run picks it up with
//! [`LiveRecipe::begin_step`] and never waits.
//!
//! What a version must pass before a step uses it, in this order and all within [`LiveOptions::deadline`]:
//!
//! 1. it compiles with all its imports, and the lint finds no error;
//! 2. it has the hooks of [`LiveOptions::requires`], and the values that the run sets fit its parameters;
//! 3. `init` works, and `migrate` takes over the run's state;
//! 4. a dry run, in a copy of the state, on the last batch; and on the last batch on which a version failed at a step;
//! 5. dry runs on small degenerate batches of the last one's columns and group sizes.
//!
//! A failure in 4 on the last batch rejects the version. A batch that has not occurred may be one that never will: `k`
//! larger than a group of one is right in a run whose groups have 16. So a failure on a batch of 5 counts only where the
//! version in use does not fail there too, and then it rejects the version where the batch is one that every run meets
//! (all right, all wrong) and warns where it is one of another shape (groups of one, responses of one token or none).
//! Taking longer than the deadline rejects always.

mod event;

pub use event::{LiveEvent, ParameterChange, Published};

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::batch::Batch;
use crate::script::{Hook, Host, Recipe, ScriptError, State, Version};
use crate::tensor::Guard;

/// Published versions that are kept, for [`LiveRecipe::version`]: more than a person makes in a sitting.
const HISTORY: usize = 256;
/// Versions to fall back to, with their states: a second one fails on the batch that the first failed on only rarely.
const FALLBACKS: usize = 16;
/// Events that are kept for a run that does not ask for them; the oldest are lost first.
const EVENTS: usize = 1024;

/// How a recipe is watched and checked.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Parameters that the run sets, as in `--set k=8`; each version must take them.
    pub settings: Vec<(String, String)>,
    /// Hooks that each version must have, where the run calls them whatever happens.
    pub requires: Vec<Hook>,
    /// The version to start with, as a resumed run has it from its checkpoint. What the file holds is then a new version
    /// like any other, and is checked in the background; the file may even be missing.
    pub start: Option<Recipe>,
    /// The time that a version has for all its checks together.
    pub deadline: Duration,
    /// Whether to leave the system's file events alone, and find saves by the poll.
    pub poll_only: bool,
}

impl Default for LiveOptions {
    /// Nothing is set or required; the checks have 2 seconds, some hundred times what they take.
    fn default() -> Self {
        LiveOptions {
            settings: Vec::new(),
            requires: Vec::new(),
            start: None,
            deadline: Duration::from_secs(2),
            poll_only: false,
        }
    }
}

/// A published version: what a step uses, from its beginning to its end.
#[derive(Clone, Debug)]
pub struct Loaded {
    recipe: Recipe,
    serial: u64,
}

impl Loaded {
    /// The recipe, with the run's parameter values.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The recipe's version.
    pub fn version(&self) -> &Version {
        self.recipe.version()
    }

    /// The place in the order of publication, from 0. A content that comes back later has another serial number.
    pub fn serial(&self) -> u64 {
        self.serial
    }
}

/// A recipe that follows its file.
///
/// ```
/// use std::sync::Arc;
/// use advlab::{Batch, Host, LiveRecipe};
///
/// let live = LiveRecipe::watch(&Host::new(), "grpo", Default::default())?;
/// let mut state = live.load().recipe().init()?;
/// for step in 0..3 {
///     let mut loaded = live.begin_step(&mut state);
///     let rollouts = Batch::builder().groups([0, 0]).response("reward", vec![1.0, 0.0]);
///     let batch = Arc::new(rollouts.step(step).build()?);
///     live.observe(batch.clone(), &state);
///     let outcome = loop {
///         match loaded.recipe().advantage(&batch, &mut state) {
///             Ok(outcome) => break outcome,
///             Err(error) => loaded = live.reject(&loaded, error, &mut state)?,
///         }
///     };
///     assert_eq!(outcome.advantage.floats().len(), 2);
///     for event in live.events() {
///         println!("{event:?}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LiveRecipe {
    shared: Arc<Shared>,
    run: Mutex<Run>,
}

/// What the run and the watching thread share.
#[derive(Debug)]
struct Shared {
    host: Host,
    options: LiveOptions,
    current: ArcSwap<Loaded>,
    ledger: Mutex<Ledger>,
    /// The last batch of the run.
    observed: ArcSwapOption<Observed>,
    /// The last batch on which a version failed at a step.
    failed_on: ArcSwapOption<Observed>,
}

/// A batch of the run, and the state that its step began with.
#[derive(Debug)]
struct Observed {
    batch: Arc<Batch<'static>>,
    state: State,
    /// The version that the state belongs to.
    loaded: Arc<Loaded>,
}

/// What is written under one lock: whoever changes the version in use holds it.
#[derive(Debug, Default)]
struct Ledger {
    events: VecDeque<LiveEvent>,
    history: VecDeque<Arc<Loaded>>,
    published: u64,
}

/// What the run alone changes.
#[derive(Debug)]
struct Run {
    loaded: Arc<Loaded>,
    /// Versions that worked, oldest first, each with the state that it left.
    worked: VecDeque<(Arc<Loaded>, State)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves whole values behind: each is replaced at once, never changed in steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveRecipe {
    /// Loads a recipe, a built-in by its name or a script by its path, and follows its file from here on. A built-in has
    /// no file, and stays as it is.
    ///
    /// # Errors
    /// [`ScriptError`] where the recipe cannot be loaded, or lacks a required hook, or does not take the settings.
    pub fn watch(
        host: &Host,
        recipe: &str,
        options: LiveOptions,
    ) -> Result<LiveRecipe, ScriptError> {
        let recipe = host.load(recipe)?;
        let loaded = Arc::new(Loaded { recipe, serial: 0 });
        let ledger = Ledger {
            history: [loaded.clone()].into(),
            published: 1,
            ..Ledger::default()
        };
        let shared = Shared {
            host: host.clone(),
            options,
            current: ArcSwap::new(loaded.clone()),
            ledger: Mutex::new(ledger),
            observed: ArcSwapOption::empty(),
            failed_on: ArcSwapOption::empty(),
        };
        let run = Run {
            loaded,
            worked: VecDeque::new(),
        };
        Ok(LiveRecipe {
            shared: Arc::new(shared),
            run: Mutex::new(run),
        })
    }

    /// The newest version that passed its checks. A step calls [`LiveRecipe::begin_step`] instead, once.
    pub fn load(&self) -> Arc<Loaded> {
        self.shared.current.load_full()
    }

    /// The version for the step that begins now. Where it is not that of the step before, the state is migrated.
    ///
    /// Where `migrate` fails on the run's own state, the version before stays in use, and the failure is reported.
    pub fn begin_step(&self, state: &mut State) -> Arc<Loaded> {
        let mut run = lock(&self.run);
        let next = self.load();
        if Arc::ptr_eq(&next, &run.loaded) {
            return next;
        }
        if next.version() == run.loaded.version() {
            run.loaded = next.clone();
            return next;
        }
        let bounded = self.shared.bounded();
        match next.recipe.on(&bounded).migrate(state) {
            Ok(migrated) => {
                let old = std::mem::replace(state, migrated);
                let worked = std::mem::replace(&mut run.loaded, next.clone());
                push_bounded(&mut run.worked, (worked, old), FALLBACKS);
                next
            }
            Err(error) => {
                self.shared.withdraw(&next, &run.loaded, error);
                run.loaded.clone()
            }
        }
    }

    /// Tells the batch of the step, before the hooks run on it, with the columns that they see, and the state that they
    /// run in: new versions are tried on it. Nothing is copied.
    pub fn observe(&self, batch: Arc<Batch<'static>>, state: &State) {
        let loaded = lock(&self.run).loaded.clone();
        self.shared.observed.store(Some(Arc::new(Observed {
            batch,
            state: state.clone(),
            loaded,
        })));
    }

    /// Tells that a version failed at a step, although it had passed its checks. Gives the last version that worked, to
    /// redo the step with, and puts `state` back to what that version left. It is in use from here on, until another
    /// version is published.
    ///
    /// # Errors
    /// The `error` itself, where no version has worked before.
    pub fn reject(
        &self,
        failed: &Arc<Loaded>,
        error: ScriptError,
        state: &mut State,
    ) -> Result<Arc<Loaded>, ScriptError> {
        let mut run = lock(&self.run);
        if !Arc::ptr_eq(failed, &run.loaded) {
            // Another call has already fallen back from it.
            return Ok(run.loaded.clone());
        }
        let Some((worked, left)) = run.worked.pop_back() else {
            return Err(error);
        };
        *state = left;
        run.loaded = worked.clone();
        self.shared
            .failed_on
            .store(self.shared.observed.load_full());
        self.shared.withdraw(failed, &worked, error);
        Ok(worked)
    }

    /// What happened since the last call, in order.
    pub fn events(&self) -> Vec<LiveEvent> {
        lock(&self.shared.ledger).events.drain(..).collect()
    }

    /// A version that was published, as long as it is among the last ones.
    pub fn version(&self, version: &Version) -> Option<Arc<Loaded>> {
        let ledger = lock(&self.shared.ledger);
        let found = ledger
            .history
            .iter()
            .rev()
            .find(|loaded| loaded.version() == version);
        found.cloned()
    }
}

impl Shared {
    /// The run's host, with the time of a check for whatever runs on it.
    fn bounded(&self) -> Host {
        let memory = self.host.limits().memory;
        let guard = Guard::new(Some(self.options.deadline), memory);
        self.host.clone().with_guard(guard)
    }

    fn tell(&self, event: LiveEvent) {
        push_bounded(&mut lock(&self.ledger).events, event, EVENTS);
    }

    /// Takes a version that failed at a step out of use, unless a newer one has already replaced it.
    fn withdraw(&self, failed: &Arc<Loaded>, back_to: &Arc<Loaded>, error: ScriptError) {
        let mut ledger = lock(&self.ledger);
        if Arc::ptr_eq(&self.current.load(), failed) {
            self.current.store(back_to.clone());
        }
        let event = LiveEvent::Rejected {
            version: failed.version().clone(),
            error,
            still_using: back_to.version().clone(),
            at_step: true,
        };
        push_bounded(&mut ledger.events, event, EVENTS);
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}
