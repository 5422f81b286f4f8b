//! Hot reload: a recipe that follows its file while a run goes.
//!
//! Events are hints, the content is the truth, the swap happens at a step boundary. A thread watches the script and all
//! that it imports, checks each new version, and publishes what passed; [`LiveRecipe::step`] takes it and never waits.
//!
//! A version must pass these checks, in this order and all within [`LiveOptions::deadline`], before a step uses it:
//!
//! 1. it compiles with all its imports, and the lint finds no error;
//! 2. it has the hooks of [`LiveOptions::requires`], and the values that the run sets fit its parameters;
//! 3. `init` works, and `migrate` takes over the run's state;
//! 4. a dry run, in a copy of the state, on the last batch;
//! 5. dry runs on the last batch on which a version failed at a step, and on small degenerate batches that have the
//!    columns and group sizes of the last one.
//!
//! A failure on the last batch rejects the version. The batches of 5 may never come: `k` larger than a group of one is
//! right in a run whose groups have 16. So a failure there counts only where the version in use does not fail on the
//! same batch: it rejects where every run meets such batches (all right, all wrong; the one that made a version fail),
//! and is a warning elsewhere (groups of one, responses of one token or none). Before the first batch nothing is known
//! of the run's columns, and only a script without an end is rejected.
//!
//! The state outlives a reload. A new version's `migrate(old, p)` takes it over; without one it stays, and gets what
//! the new `init(p)` has beyond it. A version that fails at a step after all gives way to the one that did the last step
//! before it, with the state that it left; that is the only one to fall back to. If it fails there too, or if there is
//! none, the batch is at fault: the step fails, and all stays as it was before it.

mod change;
mod check;
mod event;
mod follow;
mod options;
mod shared;
mod watch;

pub use change::{FileChange, ParameterChange, VersionChange};
pub use event::LiveEvent;
pub use options::LiveOptions;

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Host, Outcome, Recipe, State, Version};
use follow::Thread;
use shared::{Observed, Shared};

/// A published version: what a step uses, from its beginning to its end.
#[derive(Clone, Debug)]
pub struct Loaded {
    recipe: Recipe,
    serial: u64,
    /// How long its checks took, and until it was ready.
    times: (Duration, Duration),
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

    /// Its index in the order of publication, from 0. A content that comes back later has another serial number.
    pub fn serial(&self) -> u64 {
        self.serial
    }
}

/// A step of a run: see [`LiveRecipe::step`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveStep {
    /// The advantage, with the metrics, prints and notes of the recipe.
    pub outcome: Outcome,
    /// The version that it comes from.
    pub loaded: Arc<Loaded>,
    /// Events since the last step, in order: new versions, rejected ones, and those that failed at this step.
    pub events: Vec<LiveEvent>,
}

/// A recipe that follows its file, with its state.
///
/// ```
/// use advlab::{Batch, Host, LiveRecipe};
///
/// let mut live = LiveRecipe::watch(&Host::new(), "grpo", Default::default())?;
/// for step in 0..3 {
///     let rollouts = Batch::builder().groups([0, 0]).response("reward", vec![1.0, 0.0]);
///     let step = live.step(&rollouts.step(step).build()?)?;
///     assert_eq!(step.outcome.advantage.buffer().len(), 2);
///     for event in step.events {
///         println!("{event}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A trainer that runs more than the advantage in a step, as the recipe's loss on minibatches, does it by its parts:
/// [`LiveRecipe::begin_step`] takes the newest version, [`LiveRecipe::numbered`] gives the batch its step if it has none,
/// [`LiveRecipe::observe`] shows it, and the hooks run in a
/// copy of [`LiveRecipe::state`], which [`LiveRecipe::set_state`] takes back; where they fail, [`LiveRecipe::reject`]
/// goes back to the version before, and the step begins anew.
#[derive(Debug)]
pub struct LiveRecipe {
    shared: Arc<Shared>,
    in_use: InUse,
    /// The version before, with the state that it left.
    fallback: Option<InUse>,
    /// Both as they were before the step under way.
    before: (InUse, Option<InUse>),
    /// The version that failed at the step under way, with its error.
    failed: Option<(Arc<Loaded>, Diagnostics)>,
    /// The version whose `migrate` failed at the step under way.
    unmigrated: Option<Arc<Loaded>>,
    next_step: u64,
    thread: Option<Thread>,
}

/// A version, and the state that its last step left.
#[derive(Clone, Debug)]
struct InUse {
    loaded: Arc<Loaded>,
    state: State,
}

impl LiveRecipe {
    /// Loads a recipe, a built-in by its name or a script by its path, and follows its file from here on. A built-in
    /// has no file, and stays as it is. A relative path is one from the folder that the process is in.
    ///
    /// # Errors
    /// [`Diagnostics`] where the recipe cannot be loaded, or lacks a required hook, or does not take the settings; or
    /// where the system gives no thread.
    pub fn watch(
        host: &Host,
        recipe: &str,
        options: LiveOptions,
    ) -> Result<LiveRecipe, Diagnostics> {
        let (loaded, reading) = host.load_reading(recipe);
        let is_resumed = !options.left.is_empty();
        let mut live = LiveRecipe::start(host, loaded, options)?;
        live.thread = Thread::start(&live.shared, reading, is_resumed)?;
        Ok(live)
    }

    /// A live recipe that follows no file: it changes by [`LiveRecipe::publish`] alone.
    ///
    /// # Errors
    /// As [`LiveRecipe::watch`].
    pub fn without_file(
        host: &Host,
        recipe: Recipe,
        options: LiveOptions,
    ) -> Result<LiveRecipe, Diagnostics> {
        LiveRecipe::start(host, Ok(recipe), options)
    }

    /// Follows a file from here on, where none was followed before. What it holds is judged before this returns, as that of a
    /// run which is resumed.
    ///
    /// # Errors
    /// [`Diagnostics`] where the system gives no thread.
    pub fn follow(&mut self, recipe: &str) -> Result<(), Diagnostics> {
        let (_, reading) = self.shared.host.load_reading(recipe);
        self.thread = Thread::start(&self.shared, reading, true)?;
        Ok(())
    }

    /// With a recipe that was loaded, unless the run is resumed.
    fn start(
        host: &Host,
        loaded: Result<Recipe, Diagnostics>,
        mut options: LiveOptions,
    ) -> Result<LiveRecipe, Diagnostics> {
        let with_state = |recipe: Recipe, state| InUse {
            loaded: Arc::new(Loaded {
                recipe: recipe.on(host),
                serial: 0,
                times: Default::default(),
            }),
            state,
        };
        let mut left = Vec::new();
        for (recipe, state) in std::mem::take(&mut options.left) {
            // A parameter that the run sets may be missing from it, as from any version that an edit made.
            left.push(with_state(options.fit(recipe, true)?, state));
        }
        let in_use = match left.pop() {
            Some(in_use) => in_use,
            None => {
                let recipe = options.fit(loaded?, false)?.on(host);
                let state = recipe.init()?;
                with_state(recipe, state)
            }
        };
        Ok(LiveRecipe {
            next_step: options.next_step,
            shared: Arc::new(Shared::new(host, options, in_use.loaded.clone())),
            before: (in_use.clone(), left.last().cloned()),
            fallback: left.pop(),
            in_use,
            failed: None,
            unmigrated: None,
            thread: None,
        })
    }

    /// One step of a run: the advantage of a batch, by the newest version that passed its checks. Where it fails, the
    /// version before does the step, and the failure is among the events. The batch is kept to try new versions on.
    ///
    /// # Errors
    /// [`Diagnostics`] of the newest version where none can do the step; all is as it was before, and the next step
    /// uses the newest version again.
    pub fn step(&mut self, batch: &Batch) -> Result<LiveStep, Diagnostics> {
        let batch = &self.numbered(batch);
        self.begin_step();
        self.observe(batch);
        let outcome = loop {
            let mut state = self.in_use.state.clone();
            match self.in_use.loaded.recipe.advantage(batch, &mut state) {
                Ok(outcome) => {
                    self.in_use.state = state;
                    break outcome;
                }
                Err(error) => self.reject(error)?,
            };
        };
        Ok(LiveStep {
            outcome,
            loaded: self.in_use.loaded.clone(),
            events: self.events(),
        })
    }

    /// Takes the newest version for the step that begins now. Where it is not that of the step before, the state is
    /// migrated; where `migrate` fails on it, the version before stays in use, and the failure is reported.
    pub fn begin_step(&mut self) -> Arc<Loaded> {
        self.before = (self.in_use.clone(), self.fallback.clone());
        self.unmigrated = None;
        if self.failed.take().is_some() {
            let mut ledger = self.shared.ledger();
            ledger.failed_on = ledger.last.clone();
        }
        let loaded = self.newest();
        if loaded.version() == self.in_use.loaded.version() {
            self.in_use.loaded = loaded;
            return self.in_use.loaded.clone();
        }
        // Bounded as the check was: the run does not wait for a `migrate` without an end.
        let guard = self.shared.options.guard(&self.shared.host);
        let host = self.shared.host.clone().with_guard(guard);
        match loaded.recipe.on(&host).migrate(&self.in_use.state) {
            Ok(state) => {
                self.fallback = Some(std::mem::replace(&mut self.in_use, InUse { loaded, state }));
            }
            Err(error) => {
                self.shared.withdraw(&loaded, &self.in_use.loaded, error);
                self.unmigrated = Some(loaded);
            }
        }
        self.in_use.loaded.clone()
    }

    /// The batch, with the number of the next step if it has none.
    pub fn numbered(&self, batch: &Batch) -> Batch {
        let step = batch.given_step().unwrap_or(self.next_step);
        batch.clone().at_step(step)
    }

    /// The number of the next step, for a batch that has none: one more than that of the last step that was done. Whoever
    /// keeps [`LiveRecipe::state`] keeps it too: [`LiveOptions::next_step`] takes it back.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Shows the batch of the step, before the hooks run on it, with the columns that they see: new versions are tried
    /// on it. Nothing is copied. The step counts from its number on, as [`LiveRecipe::numbered`] gives it, unless all
    /// versions fail.
    pub fn observe(&mut self, batch: &Batch) {
        self.next_step = batch.step().saturating_add(1);
        self.show(batch.clone());
    }

    fn show(&self, batch: Batch) {
        self.shared.ledger().last = Some(Arc::new(Observed {
            batch,
            in_use: self.in_use.clone(),
        }));
    }

    /// Tells that the version in use failed at a step, although it had passed its checks. Goes back to the last version
    /// that worked, to redo the step with, and to the state that it left, until another version is published.
    ///
    /// # Errors
    /// That of the first version that failed at this step, if no other is left: the batch is at fault then. All is
    /// as it was before the step, and the next one uses the newest version again.
    pub fn reject(&mut self, error: Diagnostics) -> Result<Arc<Loaded>, Diagnostics> {
        let Some(fallback) = self.fallback.take() else {
            return Err(self.put_back(error));
        };
        let failed = std::mem::replace(&mut self.in_use, fallback).loaded;
        self.observe_again();
        self.shared
            .withdraw(&failed, &self.in_use.loaded, error.clone());
        self.failed = Some((failed, error));
        Ok(self.in_use.loaded.clone())
    }

    /// Goes back to before the step; gives the error of the first version that failed at it, where the last one failed
    /// with `error`.
    fn put_back(&mut self, mut error: Diagnostics) -> Diagnostics {
        if let Some((failed, first)) = self.failed.take() {
            self.shared.reinstate(&failed, &self.in_use.loaded);
            error = first;
        }
        // A switch is undone too: a checkpoint of this moment does not know of it, and the next step makes it again.
        (self.in_use, self.fallback) = self.before.clone();
        if let Some(last) = self.observe_again() {
            self.next_step = last.batch.step();
        }
        error
    }

    /// Shows the last batch with the version and the state that are in use now.
    fn observe_again(&self) -> Option<Arc<Observed>> {
        let last = self.shared.ledger().last.clone();
        last.inspect(|last| self.show(last.batch.clone()))
    }

    /// The recipe's state after the last step: what a checkpoint keeps, with the version of [`LiveRecipe::in_use`] and
    /// with [`LiveRecipe::fallback`].
    pub fn state(&self) -> &State {
        &self.in_use.state
    }

    /// Sets the state of the version in use, as its hooks left it.
    pub fn set_state(&mut self, state: State) {
        self.in_use.state = state;
    }

    /// The version that [`LiveRecipe::reject`] can go back to, with the state that it left.
    pub fn fallback(&self) -> Option<(&Arc<Loaded>, &State)> {
        let fallback = self.fallback.as_ref();
        fallback.map(|one| (&one.loaded, &one.state))
    }

    /// The version of the last step; before the first one, the version to start with.
    pub fn in_use(&self) -> &Arc<Loaded> {
        &self.in_use.loaded
    }

    /// The newest version that passed its checks: the next step uses it.
    pub fn newest(&self) -> Arc<Loaded> {
        self.shared.current()
    }

    /// Looks at the file now, without waiting for an event, and returns when what it holds has been judged: published, or
    /// among the events with the reason. `false` where that takes longer than the time given.
    pub fn refresh(&self, time: Duration) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.look(time))
    }

    /// The version of that name, if it is the newest one, the one in use, the one to fall back to, or one that failed at
    /// the last step.
    pub fn version(&self, version: &Version) -> Option<Arc<Loaded>> {
        let fallback = self.fallback.as_ref().map(|fallback| &fallback.loaded);
        let failed = self.failed.as_ref().map(|(failed, _)| failed);
        let in_use = Some(&self.in_use.loaded);
        let known = [in_use, fallback, failed, self.unmigrated.as_ref()];
        let mut known = known.into_iter().flatten().cloned().chain([self.newest()]);
        known.find(|one| one.version() == version)
    }

    /// How two versions differ, as from one step to the next: others may have been published in between.
    pub fn change(&self, from: &Loaded, to: &Loaded) -> VersionChange {
        let settings = &self.shared.options.settings;
        VersionChange::between(&from.recipe, &to.recipe, settings, to.times)
    }

    /// Events since the last call, in order. [`LiveRecipe::step`] gives them too.
    pub fn events(&self) -> Vec<LiveEvent> {
        self.shared.ledger().events.drain(..).collect()
    }

    /// Puts a version into use with no check but of its hooks and parameters: from the next step on, it is the newest.
    ///
    /// # Errors
    /// [`Diagnostics`] where it lacks a required hook, or does not take the settings.
    pub fn publish(&self, recipe: Recipe) -> Result<(), Diagnostics> {
        let recipe = self.shared.options.fit(recipe, true)?.on(&self.shared.host);
        let at_once = (Duration::ZERO, Duration::ZERO);
        while !self.shared.publish(&self.newest(), recipe.clone(), at_once) {}
        Ok(())
    }
}
