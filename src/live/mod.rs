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
//! 4. a dry run, in a copy of the state, on the last batch;
//! 5. dry runs on the last batch on which a version failed at a step, and on small degenerate batches that have the
//!    columns and group sizes of the last one.
//!
//! What fails on the last batch is rejected. The batches of 5 may never come again, or not at all: `k` larger than a group
//! of one is right in a run whose groups have 16. So a failure there counts only where the version in use does not fail
//! on the same batch. It rejects the version where every run meets such batches (all right, all wrong; the one that made
//! a version fail), and is a warning where only some do (groups of one, responses of one token or none). Taking longer
//! than the deadline rejects always, and is the only thing that does before the first batch, when nothing is known of
//! the run's columns.
//!
//! The state outlives a reload. A new version's `migrate(old, p)` takes it over; without one it stays, and gets what the
//! new `init(p)` has beyond it. Where a version fails at a step after all, [`LiveRecipe::reject`] goes back to the last one
//! that worked, with the state that it left.

mod change;
mod check;
mod degenerate;
mod event;
mod follow;
mod shared;
mod watch;

pub use change::{FileChange, ParameterChange, VersionChange};
pub use event::LiveEvent;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Hook, Host, Reading, Recipe, State, Version};
use follow::{Follower, Said};
use shared::{Observed, Shared, lock, push_bounded};
use watch::{Bell, Watch};

/// Versions to fall back to, with their states: a second one fails on the batch that the first failed on only rarely.
const FALLBACKS: usize = 16;

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
    /// Versions to fall back to from the first one on, oldest first, each with the state that it left: what a resumed run
    /// has of [`LiveRecipe::fallbacks`].
    pub fallbacks: Vec<(Recipe, State)>,
    /// Versions, by all their digits, that were rejected or failed before the run was resumed. Where the file holds one of
    /// them still, it is not tried until it is saved again.
    pub rejected: Vec<String>,
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
            fallbacks: Vec::new(),
            rejected: Vec::new(),
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
///     assert_eq!(outcome.advantage.buffer().len(), 2);
///     for event in live.events() {
///         println!("{event}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LiveRecipe {
    shared: Arc<Shared>,
    run: Mutex<Run>,
    /// The thread that follows the files, where there are any, and the bell that wakes it.
    follower: Option<(JoinHandle<()>, Bell)>,
}

/// What the run alone changes.
#[derive(Debug)]
struct Run {
    loaded: Arc<Loaded>,
    /// Versions that worked, oldest first, each with the state that it left.
    worked: VecDeque<(Arc<Loaded>, State)>,
}

impl LiveRecipe {
    /// Loads a recipe, a built-in by its name or a script by its path, and follows its file from here on. A built-in has
    /// no file, and stays as it is. A relative path is one from the folder that the process is in.
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
        // What the file holds is judged in the background where the run starts with a version that it has already.
        let is_new = options.start.is_some();
        let recipe = match &options.start {
            Some(start) => start.clone(),
            None => loaded?,
        };
        let known = reading.version().filter(|version| {
            let mut rejected = options.rejected.iter();
            rejected.any(|rejected| rejected == version.as_str())
        });
        let begin = match (known, is_new) {
            (Some(version), true) => Begin::Rejected(version.clone()),
            (_, true) => Begin::New,
            (_, false) => Begin::InUse,
        };
        let mut live = LiveRecipe::start(host, recipe, options, is_new)?;
        live.follower = follow(&live.shared, reading, begin)?;
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
        LiveRecipe::start(host, recipe, options, false)
    }

    /// `is_taken_over` where an earlier process has used the version already: a parameter that the run sets may be missing
    /// from it, as from any version that an edit made.
    fn start(
        host: &Host,
        recipe: Recipe,
        options: LiveOptions,
        is_taken_over: bool,
    ) -> Result<LiveRecipe, Diagnostics> {
        let load = |recipe: &Recipe, serial, is_reload| {
            let mut recipe = recipe.on(host);
            check::has_hooks(&recipe, &options.requires)?;
            check::set(&mut recipe, &options.settings, is_reload)?;
            Ok::<_, Diagnostics>(Arc::new(Loaded {
                recipe,
                serial,
                times: Default::default(),
            }))
        };
        let worked = options.fallbacks.iter();
        let worked = worked.map(|(recipe, left)| Ok((load(recipe, 0, true)?, left.clone())));
        let worked: VecDeque<_> = worked.collect::<Result<_, Diagnostics>>()?;
        let loaded = load(&recipe, 0, is_taken_over)?;
        loaded.recipe.init()?;
        let shared = Arc::new(Shared::new(host, options, loaded.clone()));
        Ok(LiveRecipe {
            follower: None,
            shared,
            run: Mutex::new(Run { loaded, worked }),
        })
    }

    /// Puts a version into use without any check beside its hooks and parameters: from the next step on, it is the newest.
    ///
    /// # Errors
    /// [`Diagnostics`] where it lacks a required hook, or does not take the settings.
    pub fn publish(&self, mut recipe: Recipe) -> Result<(), Diagnostics> {
        let options = &self.shared.options;
        check::has_hooks(&recipe, &options.requires)?;
        check::set(&mut recipe, &options.settings, true)?;
        let recipe = recipe.on(&self.shared.host);
        loop {
            let nothing = (Duration::ZERO, Duration::ZERO);
            if self.shared.publish(&self.load(), recipe.clone(), nothing) {
                return Ok(());
            }
        }
    }

    /// How two versions differ, as from one step to the next: others may have been published in between.
    pub fn change(&self, from: &Loaded, to: &Loaded) -> VersionChange {
        self.shared.change(from, &to.recipe, to.times)
    }

    /// The versions that [`LiveRecipe::reject`] can go back to, oldest first, each with the state that it left.
    pub fn fallbacks(&self) -> Vec<(Arc<Loaded>, State)> {
        lock(&self.run).worked.iter().cloned().collect()
    }

    /// The newest version that passed its checks. A step calls [`LiveRecipe::begin_step`] instead, once.
    pub fn load(&self) -> Arc<Loaded> {
        self.shared.current.load_full()
    }

    /// The version of the last step; before the first one, the version to start with.
    pub fn in_use(&self) -> Arc<Loaded> {
        lock(&self.run).loaded.clone()
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
        // Bounded as the check was: the run does not wait for a `migrate` without an end.
        let host = self.shared.host.clone().with_guard(self.shared.guard());
        match next.recipe.on(&host).migrate(state) {
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
    pub fn observe(&self, batch: Arc<Batch>, state: &State) {
        let loaded = lock(&self.run).loaded.clone();
        let state = state.clone();
        let observed = Arc::new(Observed {
            batch,
            state,
            loaded,
        });
        self.shared.observed.store(Some(observed));
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
        error: Diagnostics,
        state: &mut State,
    ) -> Result<Arc<Loaded>, Diagnostics> {
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
        if let Some(last) = self.shared.observed.load_full() {
            let failed_on = Some(Arc::new(Observed {
                batch: last.batch.clone(),
                state: state.clone(),
                loaded: worked.clone(),
            }));
            self.shared.observed.store(failed_on.clone());
            self.shared.failed_on.store(failed_on);
        }
        self.shared.withdraw(failed, &worked, error);
        Ok(worked)
    }

    /// What happened since the last call, in order.
    pub fn events(&self) -> Vec<LiveEvent> {
        self.shared.drain()
    }

    /// A version that was published, as long as it is among the last ones.
    pub fn version(&self, version: &Version) -> Option<Arc<Loaded>> {
        self.shared.published(version)
    }
}

impl Drop for LiveRecipe {
    /// Stops the thread, in the middle of a dry run if need be.
    fn drop(&mut self) {
        self.shared.stop();
        if let Some((thread, bell)) = self.follower.take() {
            bell.ring();
            // Its panics are caught where they can happen, and there is nobody left to tell of another.
            let _ = thread.join();
        }
    }
}

/// What the file holds when it begins to be followed.
enum Begin {
    /// What the run begins with.
    InUse,
    /// A version that has never been judged.
    New,
    /// A version that was found wanting before.
    Rejected(Version),
}

/// Starts the thread that follows the files, where there are any.
fn follow(
    shared: &Arc<Shared>,
    reading: Reading,
    begin: Begin,
) -> Result<Option<(JoinHandle<()>, Bell)>, Diagnostics> {
    let Some(path) = reading.main().map(std::path::Path::to_path_buf) else {
        return Ok(None);
    };
    // Neither a pipe nor a device can be followed.
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    let (mut watch, bell, outcome) = Watch::new(shared.options.poll_only);
    if let Err(error) = outcome.and_then(|()| watch.follow(reading.files())) {
        shared.say_polling(&error);
    }
    let (is_new, said) = match begin {
        Begin::InUse => (false, Said::Well),
        Begin::New => (true, Said::Well),
        Begin::Rejected(version) => (false, Said::Rejected(version)),
    };
    let follower = Follower {
        shared: shared.clone(),
        watch,
        path,
        reading,
        said,
    };
    let thread = std::thread::Builder::new()
        .name("advlab-live".to_string())
        .spawn(move || follower.follow(is_new))
        .map_err(|error| {
            Diagnostic::error(format!(
                "cannot start a thread to follow the script: {error}"
            ))
        })?;
    Ok(Some((thread, bell)))
}
